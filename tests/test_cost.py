"""Work of commands in closed form, and accounts of whole programs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from tests.sim.builder import ProgramBuilder, binary, micro, nary
from tests.sim.cases import CASES
from tests.wrong_commands import BASES
from vkore_jax.chips import TINY, VK1
from vkore_jax.cost import (
    PASSES,
    Work,
    account,
    dynamic_bodies,
    moves,
    unit_of,
    works,
)
from vkore_jax.dtypes import BF16, BOOL, F32, F64, I32
from vkore_jax.isa import (
    NO_AXIS,
    Carry,
    Case,
    Copy,
    Host,
    Loop,
    Merge,
    ReduceKind,
    Strategy,
    Unit,
    View,
    While,
)
from vkore_jax.isa.strategies import STRATEGIES
from vkore_jax.sim.cycles import work_cycles


def matmul(strategy: Strategy, m: int, n: int, k: int, block: int) -> Any:
    b = ProgramBuilder(TINY)
    x, y = b.arg(BF16, (m, k)), b.arg(BF16, (k, n))
    g = b.group([(m, block), (n, block), (k, block)], 2)
    out = g.gemm(g.load(x, (0, 2)), g.load(y, (2, 1)), F32, strategy)
    g.store(b.result(F32, (m, n)), out)
    return b.build()


@pytest.mark.parametrize("strategy", Strategy)
def test_gemm_counts_partial_products(strategy: Strategy) -> None:
    static = account(matmul(strategy, 8, 12, 16, 4).block).static
    units, needs = static.units, STRATEGIES[strategy].needs
    products = 8 * 12 * 16 * PASSES[strategy]
    assert dict(static.array_macs) == ({needs: products} if needs else {})
    if strategy is Strategy.LANES:
        assert units[Unit.MXU].macs == 0
        assert units[Unit.VPU].vector_ops == 2 * products
    else:
        assert units[Unit.MXU].macs == products
        assert units[Unit.MXU].commands == 1


def test_array_cycles_know_the_rate_of_a_type() -> None:
    """An array that does i8 twice as fast needs half the cycles for it."""
    chip = dataclasses.replace(VK1, mac_rates={"i8": 2})
    macs = 10 * chip.peak_macs_per_cycle
    for operand, cycles in (("bf16", 10), ("i8", 5)):
        work = Work(unit=Unit.MXU, macs=macs, operand=operand)
        assert work_cycles(work, chip) == cycles
    assert chip.array_cycles({"bf16": macs, "i8": macs}) == 15


def test_gemm_traffic_depends_on_the_grid() -> None:
    """x moves once per column block, y once per row block, the result once."""
    dma = account(matmul(Strategy.BF16X1, 8, 12, 16, 4).block).static.units[Unit.DMA]
    assert dma.bytes_in == 2 * (8 * 16 * (12 // 4) + 16 * 12 * (8 // 4))
    assert dma.bytes_out == 4 * 8 * 12
    assert dma.commands == 3


@pytest.mark.parametrize(
    ("axes", "times"),
    [((0, NO_AXIS), 1), ((1, NO_AXIS), 2), ((2, 0), 3), ((NO_AXIS, NO_AXIS), 1)],
)
def test_a_block_in_its_slot_is_not_moved_again(
    axes: tuple[int, int], times: int
) -> None:
    b = ProgramBuilder(TINY)
    g = b.group([(8, 4), (12, 4), (8, 4)])  # 2 x 3 x 2 blocks
    shape = tuple(1 if a == NO_AXIS else g.grid[a].extent for a in axes)
    tile = g.tile(F32, shape, axes)
    assert moves(g.command(), g.tiles[tile]) == times


@pytest.mark.parametrize(
    ("program", "cycles"),
    [
        (binary("add", F32), 1),
        (binary("div", F32), 8),
        (binary("add", F64), 2),
        (micro(F32).imm(F32, 1.0).op("add", 0, 1).op("exp", 2).out(), 9),
        (nary("select", BOOL, F32, F32), 1),
    ],
)
def test_vector_work(program: Any, cycles: int) -> None:
    b = ProgramBuilder(TINY)
    args = [b.arg(t, (5, 7)) for t in program.inputs]
    out = program.output_types()[0]
    b.elementwise(program, [b.result(out, (5, 7))], args)
    assert account(b.build().block).static.units[Unit.VPU].vector_ops == 35 * cycles


def test_reduction_work_is_one_pass_over_the_source() -> None:
    b = ProgramBuilder(TINY)
    g = b.group([])
    tile = g.reduce(g.load(b.arg(F32, (6, 9))), ReduceKind.SUM, (1,))
    g.store(b.result(F32, (6, 1)), tile)
    total = account(b.build().block).static
    assert total.units[Unit.VPU].vector_ops == 54
    assert dict(total.mnemonics) == {"group": 1, "load": 1, "reduce": 1, "store": 1}


def test_an_element_granular_copy_is_the_layout_engines() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (4, 6))
    dst = b.result(F32, (6, 4))
    turned = Copy(dst, View(x.buffer, F32, 0, (6, 4), (1, 6)))
    plain = Copy(b.result(F32, (4, 6)), x)
    assert (unit_of(turned), unit_of(plain)) == (Unit.LAYOUT, Unit.DMA)
    ((mnemonic, work),) = works(turned)
    assert (mnemonic, work.unit, work.bytes_in, work.bytes_out) == (
        "copy",
        Unit.LAYOUT,
        96,
        96,
    )


def increment(b: ProgramBuilder, dst: View, x: View) -> None:
    b.elementwise(micro(I32).imm(I32, 1).op("add", 0, 1).out(), [dst], [x])


def test_loops_multiply_and_dynamic_bodies_do_not() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(I32, ())
    current, following, leave = (b.temp(I32, ()) for _ in range(3))
    inner = [b.temp(I32, ()) for _ in range(3)]
    predicate, merged = b.temp(BOOL, ()), b.temp(I32, ())
    with b.block() as cond:
        less = micro(I32).imm(I32, 3).op("lt", 0, 1).out()
        b.elementwise(less, [predicate], [inner[0]])
    with b.block() as inside:
        increment(b, inner[1], inner[0])
    loop = While((Carry(x, *inner),), b.close(cond), predicate, b.close(inside))
    branches = []
    for _ in range(2):
        with b.block() as block:
            out = b.temp(I32, ())
            increment(b, out, x)
        branches.append((b.close(block), out))
    case = Case(
        x,
        tuple(c for c, _ in branches),
        (Merge(merged, tuple(o for _, o in branches)),),
    )
    with b.block() as body:
        b.emit(loop, case)
        increment(b, following, current)
    b.emit(Loop(5, (Carry(x, current, following, leave),), b.close(body)))
    b.emit(Host((), (x,), 0, "debug", True))
    program = b.build()
    assert dynamic_bodies(program.block) == 3
    found = account(program.block)
    assert [d.mnemonics["vec"] for d in found.dynamic] == [2, 1, 1]
    # Five increments of the loop, five first evaluations of the WHILE's condition.
    assert found.static.mnemonics["vec"] == 10
    assert found.static.host_callbacks == 1
    total = found.total([15, 2, 3])
    assert total.mnemonics["vec"] == 10 + 15 * 2 + 2 + 3
    assert found.static.mnemonics["vec"] == 10


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_case_has_an_account(case: Any) -> None:
    """Bytes never fall short of what the program reads and writes at least once."""
    program = case.build(TINY)
    found = account(program.block)
    total = found.total([1] * len(found.dynamic))
    assert len(found.dynamic) == dynamic_bodies(program.block)
    for unit in total.units.values():
        assert min(vars(unit).values()) >= 0
    written = {s.buffer: s.view.nbytes for s in program.results}
    out = sum(u.bytes_out for u in total.units.values())
    if not found.dynamic:
        assert out >= sum(written.values())


def test_conv_counts_window_products() -> None:
    case = next(c for c in CASES if c.id.startswith("conv/"))
    program = case.build(TINY)
    conv = program.block[-1].cmd
    ((_, work),) = works(conv)
    window = math.prod(conv.rhs.shape[:-1])
    assert work.macs == conv.dst.size * window * PASSES[conv.strategy]
    assert np.prod(conv.dst.shape) == conv.dst.size


def _work(bytes_in: int, bytes_out: int, unit: Unit, **more: int) -> dict[str, Any]:
    return {"unit": unit, "bytes_in": bytes_in, "bytes_out": bytes_out, **more}


COMMANDS_BY_HAND: dict[str, dict[str, Any]] = {
    "copy": _work(24, 24, Unit.DMA),
    "concat": _work(32 + 24, 56, Unit.DMA),
    "pad": _work(24 + 4, 112, Unit.DMA),
    "dynamic_slice": _work(24 + 4 + 1, 24, Unit.DMA),
    "dynamic_update": _work(48 + 24 + 8, 48 + 24, Unit.DMA),
    # Each of 3 positions sees 3 rows of 12 bytes, in 2 samples, for 4 feature blocks.
    "conv": _work(2 * 9 * 12 * 4 + 144, 96, Unit.MXU, macs=24 * 9),
    "plain_conv": _work(2 * 12 * 4 + 48, 32, Unit.MXU, macs=8 * 3),
    "gather": _work(96 + 24, 96, Unit.CORE, core_ops=24),
    "gather_two": _work(480 + 48, 480, Unit.CORE, core_ops=120),
    # Read: operand, indices, what is updated and the updates.  One step of the
    # combiner and the write for each update.
    "scatter": _work(224 + 24 + 96 + 96, 224 + 96, Unit.CORE, core_ops=24 * 2),
    "scatter_window": _work(48 + 4 + 32 + 32, 48 + 32, Unit.CORE, core_ops=8 * 2),
    "scatter_pair": _work(40 + 12 + 24 + 24, 40 + 24, Unit.CORE, core_ops=6 * 3),
    "sort": _work(48, 48, Unit.CORE, core_ops=12 * 2 * 2),
    "reduce_generic": _work(48 + 4, 12, Unit.CORE, core_ops=12),
    "reduce_pair": _work(96 + 8, 24, Unit.CORE, core_ops=12 * 2),
    "reduce_window": _work(24 + 4, 16, Unit.CORE, core_ops=4 * 3),
    "select_and_scatter": _work(24 + 16 + 4, 24, Unit.CORE, core_ops=4 * 3 + 4),
    "fft": _work(128, 128, Unit.CORE, core_ops=5 * 16 * 3),
    "irfft": _work(80, 64, Unit.CORE, core_ops=5 * 16 * 3 // 2),
    "loop": _work(32, 32, Unit.CORE),
    "while_": _work(32, 32, Unit.CORE),
    "case": _work(4 + 16, 16, Unit.CORE),
    "host": _work(16, 16, Unit.HOST),
}
"""Work of the bases of `wrong_commands`, counted by the rules of the module."""


@pytest.mark.parametrize("make", BASES, ids=lambda m: m.__name__)
def test_work_counted_by_hand(make: Any) -> None:
    ((_, work),) = works(make(ProgramBuilder(TINY)))
    found = {k: v for k, v in vars(work).items() if v or k == "unit"}
    assert found.pop("operand", "") == ("bf16" if work.macs else "")
    assert found == COMMANDS_BY_HAND[make.__name__]


LANES_CONV = _work(1008, 96, Unit.VPU, vector_ops=2 * 216)


def test_lanes_do_a_convolution_in_two_cycles_a_product() -> None:
    b = ProgramBuilder(TINY)
    cmd = next(m for m in BASES if m.__name__ == "conv")(b)
    ((_, work),) = works(dataclasses.replace(cmd, strategy=Strategy.LANES))
    assert {k: v for k, v in vars(work).items() if v} == LANES_CONV


@pytest.mark.parametrize(
    ("axes", "grid", "times"),
    [
        ((0,), ((7, 3), (5, 2)), 1),  # done before the second axis moves
        ((1,), ((7, 3), (5, 2)), 3),  # 3 ragged steps of the first
        ((2,), ((7, 3), (5, 2), (4, 4)), 9),
        ((1,), ((0, 3), (5, 2)), 1),  # an empty axis has one block
        ((0,), ((1, 1), (5, 2)), 1),
    ],
)
def test_moves_of_ragged_grids(
    axes: tuple[int], grid: tuple[tuple[int, int], ...], times: int
) -> None:
    b = ProgramBuilder(TINY)
    g = b.group(grid)
    tile = g.tile(F32, (grid[axes[0]][0],), axes)
    assert moves(g.command(), g.tiles[tile]) == times


def test_a_turned_block_counts_the_bytes_in_the_scratchpad() -> None:
    b = ProgramBuilder(TINY)
    g = b.group([(8, 4), (6, 2)])
    g.transpose(g.load(b.arg(F32, (6, 5)), (1, None)))
    units = account(b.build().block).static.units
    assert units[Unit.LAYOUT].turned == 6 * 5 * 4 * 2
    assert units[Unit.LAYOUT].commands == 1


@pytest.mark.parametrize(
    ("kind", "dtype", "each"),
    [
        (ReduceKind.MAX, F32, 1),
        (ReduceKind.MAX, F64, 2),
        (ReduceKind.LOGSUMEXP, F32, 11),
        (ReduceKind.LOGSUMEXP, F64, 22),
    ],
)
def test_a_reduction_counts_elements(kind: ReduceKind, dtype: Any, each: int) -> None:
    b = ProgramBuilder(TINY)
    g = b.group([])
    g.reduce(g.load(b.arg(dtype, (6, 9))), kind, (1,))
    assert account(b.build().block).static.units[Unit.VPU].vector_ops == 54 * each


def test_the_layout_engine_copies_what_has_no_rows() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (4, 6))
    rows = dataclasses.replace(x, shape=(4, 3), strides=(6, 1))
    apart = dataclasses.replace(x, shape=(4, 3), strides=(6, 2))
    units = [unit_of(Copy(b.result(F32, (4, 3)), v)) for v in (rows, apart)]
    assert units == [Unit.DMA, Unit.LAYOUT]
