"""Tiling: everything fits, K is cut when it must be, and what cannot fit says so."""

from __future__ import annotations

import dataclasses
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.lowering import programs
from tests.lowering.graphs import LOC, GraphBuilder, f32, gelu, module
from tests.lowering.programs import MEMORIES, PROGRAMS, groups
from vkore_jax import isa
from vkore_jax.chips import TINY, VK1, Chip
from vkore_jax.errors import ResourceExhausted
from vkore_jax.isa import NO_AXIS, Strategy
from vkore_jax.lowering import Options, compile_module, ir
from vkore_jax.lowering.blocking import place
from vkore_jax.verify import verify

KINDS = pytest.mark.parametrize("chip", MEMORIES, ids=lambda c: c.name)


@KINDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_fits_and_reserves_what_it_uses(name: str, chip: Chip) -> None:
    made = programs.compiled(PROGRAMS[name](), chip)
    used = 0
    for group in groups(made):
        for t in group.tiles:
            align = chip.scratchpad_align_bytes
            slot = -(-t.block_bytes(group.grid) // align) * align
            used = max(used, t.offset + slot * t.slots)
    assert used <= made.scratchpad_bytes <= chip.scratchpad_bytes


def test_deep_products_cut_k_on_tiny_only() -> None:
    m = PROGRAMS["deep_product"]()
    (small,) = groups(programs.agree(m, TINY))
    assert small.k_axis == len(small.grid) - 1
    assert small.grid[-1].block < small.grid[-1].extent == 1000
    phases = [s.phase for s in small.stages if isinstance(s, isa.Vec | isa.Store)]
    assert set(phases) == {isa.Phase.TAIL}
    (large,) = groups(programs.agree(m, VK1))
    assert large.k_axis == NO_AXIS


@pytest.mark.parametrize("k", [300, 1000])
def test_k_is_cut_between_segments_that_share_a_scale(k: int) -> None:
    x, y = f32(24, k), f32(k, 40)
    b = GraphBuilder(x, y)
    made = programs.compiled(module(b.done(b.gemm(x, y, Strategy.FP16X2))), TINY)
    (group,) = groups(made)
    assert group.k_axis != NO_AXIS
    assert group.grid[-1].block % 128 == 0


@dataclasses.dataclass
class _Stages:
    """A plan as `place` sees it."""

    tiles: list[Any]
    stages: list[isa.Vec]


@pytest.mark.parametrize("seed", range(8))
def test_tiles_that_are_live_together_have_bytes_of_their_own(seed: int) -> None:
    """Random chains of stages; a tile lives from its first to its last stage."""
    rng = np.random.default_rng(seed)
    count, align = 40, TINY.scratchpad_align_bytes
    sizes = rng.integers(1, 500, count).tolist()
    tiles = [SimpleNamespace(external=False) for _ in range(count)]
    none = isa.MicroProgram((), (), ())
    reads = [tuple(map(int, rng.integers(0, max(i, 1), 2))) for i in range(count)]
    stages = [isa.Vec(r, (i,), none, isa.Phase.BODY) for i, r in enumerate(reads)]
    blocking = SimpleNamespace(
        chip=TINY,
        plan=_Stages(tiles, stages),
        block_bytes=lambda tile, blocks: sizes[tile],
    )
    offsets, used = place(blocking, {}, 1, True)  # type: ignore[arg-type]
    life = {
        t: [i for i, s in enumerate(stages) if t in (*s.ins, *s.outs)]
        for t in range(count)
    }
    for a, b in itertools.combinations(range(count), 2):
        apart = life[a][-1] < life[b][0] or life[b][-1] < life[a][0]
        low, high = sorted((a, b), key=lambda t: offsets[t])
        assert apart or offsets[low] + sizes[low] <= offsets[high]
    assert used == max(o + -(-n // align) * align for o, n in zip(offsets, sizes))
    assert used < sum(sizes)


def test_long_rows_reduce_along_k() -> None:
    for group in groups(programs.agree(PROGRAMS["long_rows"](), TINY)):
        assert group.k_axis != NO_AXIS
    for group in groups(programs.agree(PROGRAMS["long_rows"](), VK1)):
        assert group.k_axis == NO_AXIS


def test_column_sums_store_in_the_body_and_sum_along_k() -> None:
    made = programs.agree(PROGRAMS["column_sums"](), TINY)
    group = groups(made)[0]
    assert group.k_axis != NO_AXIS
    stores = [(s.dst.shape, s.phase) for s in group.stages if isinstance(s, isa.Store)]
    assert ((40, 96), isa.Phase.BODY) in stores
    assert ((1, 96), isa.Phase.TAIL) in stores


def test_several_blocks_are_double_buffered() -> None:
    x, y = f32(1024, 1024), f32(1024, 1024)
    b = GraphBuilder(x, y)
    made = programs.compiled(module(b.done(b.op("add", x, y))), VK1)
    (group,) = groups(made)
    blocks = math.prod(-(-a.extent // a.block) for a in group.grid)
    assert 4 <= blocks <= 16
    assert {t.slots for t in group.tiles} == {2}


def test_one_block_needs_one_slot() -> None:
    made = programs.compiled(PROGRAMS["norm"](), VK1)
    (group,) = groups(made)
    assert group.grid == ()
    assert {t.slots for t in group.tiles} == {1}


@pytest.mark.parametrize("shape", [(512, 2048, 512), (4096, 512, 1536), (31, 3000, 17)])
def test_product_blocks_suit_the_array(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w = f32(m, k), f32(k, n)
    b = GraphBuilder(x, w)
    made = programs.compiled(module(b.done(gelu(b, b.gemm(x, w)))), VK1)
    (group,) = groups(made)
    for axis in group.grid:
        assert axis.block % 8 == 0 or axis.block == axis.extent
        assert axis.block >= min(axis.extent, VK1.mxu_rows)


def test_addresses_are_shared_when_nothing_else_fits() -> None:
    """Many intermediates of one row: tiles whose lives do not meet overlap."""
    x = f32(4, 360)
    b = GraphBuilder(x)
    y = x
    for _ in range(3):
        y = b.op("sub", y, b.broadcast(b.max(y, 1), y.shape, (0,)))
        y = b.op("mul", y, b.broadcast(b.sum(b.op("abs", y), 1), y.shape, (0,)))
    made = programs.agree(module(b.done(y)), TINY)
    assert made.scratchpad_bytes <= TINY.scratchpad_bytes


def test_groups_that_do_not_fit_are_split() -> None:
    x = f32(4, 1300)
    b = GraphBuilder(x)
    y = x
    for _ in range(3):
        y = b.op("sub", y, b.broadcast(b.max(y, 1), y.shape, (0,)))
    made = programs.agree(module(b.done(y)), TINY)
    assert len(groups(made)) > 1


def conv(shape: tuple[int, ...], window: tuple[int, ...]) -> ir.Module:
    x, w = f32(*shape), f32(*window)
    b = GraphBuilder(x, w)
    rank = len(shape) - 2
    y = b.direct(
        isa.Conv,
        (x, w),
        f32(*shape[:-1], window[-1]),
        strides=(1,) * rank,
        pad_low=tuple(e // 2 for e in window[:rank]),
        pad_high=tuple((e - 1) // 2 for e in window[:rank]),
        lhs_dilation=(1,) * rank,
        rhs_dilation=(1,) * rank,
        reversal=(0,) * rank,
        feature_groups=1,
        batch_groups=1,
        strategy=isa.Strategy.BF16X1,
    )
    return module(b.done(y))


def test_convolutions_are_cut_in_samples_positions_and_features() -> None:
    whole = programs.compiled(conv((8, 10, 10, 3), (3, 3, 3, 16)), VK1).block[0].cmd
    assert (whole.block_n, whole.block_out, whole.block_o) == (8, (10, 10), 16)
    cut = programs.compiled(conv((8, 10, 10, 3), (3, 3, 3, 16)), TINY).block[0].cmd
    assert cut.block_n == 1
    assert 1 < cut.block_out[0] < 10
    assert cut.block_out[1] == 10
    large = programs.compiled(conv((1, 512, 512, 3), (7, 7, 3, 64)), VK1).block[0].cmd
    assert large.block_o == 64
    # As many positions as there are accumulators; a square reads the least twice.
    assert large.block_out == (128, 128)
    assert large.blocks.lhs_bytes() < 1.5 * large.lhs.nbytes
    wide = programs.compiled(conv((1, 4, 4, 64), (3, 3, 64, 512)), TINY).block[0].cmd
    assert wide.block_o < 512


def test_a_convolution_that_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(ResourceExhausted) as e:
        programs.compiled(conv((1, 8, 8, 2048), (3, 3, 2048, 4)), TINY)
    for part in (
        "chip 'tiny' has 16,384 and 4,096",
        "bytes of scratchpad",
        "input channels",
        "test at ?",
    ):
        assert part in str(e.value)


def test_a_stage_that_does_not_fit_says_what_to_do() -> None:
    """One micro-program with more operands than the sequencer takes."""
    xs = [f32(4) for _ in range(12)]
    b = GraphBuilder(*xs)
    build = ir_add(len(xs))
    y = f32(4)
    b.add(ir.Vec(operands=tuple(xs), results=(y,), loc=LOC, program=build))
    small = dataclasses.replace(VK1, vec_max_operands=8)
    with pytest.raises(ResourceExhausted) as e:
        compile_module(module(b.done(y)), small)
    assert "micro-programs of at most 8 tiles" in str(e.value)


def ir_add(n: int) -> isa.MicroProgram:
    from vkore_jax.dtypes import F32
    from vkore_jax.lowering.micro import MicroBuilder

    build = MicroBuilder()
    total = build.input(F32)
    for _ in range(n - 1):
        code = isa.MICRO_OPS["add"].code
        total = build.emit(code, F32, (total, build.input(F32)))
    return build.finish([total])[0]


@pytest.mark.parametrize("seed", range(12))
def test_random_sizes_fit_and_agree(seed: int) -> None:
    """Ragged last blocks: extents that no block divides."""
    rng = np.random.default_rng(seed)
    m, k, n = (int(v) for v in rng.integers(1, 70, 3))
    x, w, bias = f32(m, k), f32(k, n), f32(n)
    b = GraphBuilder(x, w, bias)
    h = b.op("add", b.gemm(x, w), b.broadcast(bias, (m, n), (1,)))
    top = b.broadcast(b.max(h, 1), (m, n), (0,))
    e = b.op("exp", b.op("sub", h, top))
    graph = b.done(e, b.sum(e, 0), b.sum(e, 1))
    for chip in MEMORIES:
        programs.agree(module(graph), chip, seed=seed)


def test_smaller_scratchpads_only_mean_smaller_blocks() -> None:
    m = PROGRAMS["mlp"]()
    wanted = None
    for size in (8192, 16384, 65536):
        chip = dataclasses.replace(TINY, scratchpad_bytes=size)
        made = compile_module(m, chip, Options(verify=True))
        verify(made, chip)
        args = programs.inputs(m)
        (found,) = programs.golden.run(made.encoded, args, chip=chip)
        if wanted is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        wanted = found
