"""Every case on every engine: against the specification and an independent oracle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.sim.builder import ProgramBuilder, micro, unary
from tests.sim.case import SimCase
from tests.sim.cases import CASES
from tests.sim.conftest import Engine
from vkore_jax import dtypes
from vkore_jax.chips import TINY, VK1
from vkore_jax.dtypes import F32, I32
from vkore_jax.errors import HostCallbackError, InvalidArgument, InvalidProgram
from vkore_jax.isa import COMMANDS, MICRO_OPS, STAGES, Copy, Host, View
from vkore_jax.isa.access import accesses
from vkore_jax.program import Program
from vkore_jax.sim.contract import VALUES, disagreement

OTHER = {d.short for d in dtypes.ALL} - {"f32", "bf16", "i32", "ui8", "i1"}


def _slow(case: SimCase) -> bool:
    """Micro-ops in the other types: tests/test_op_matrix.py has them all, too."""
    kind, _, name = case.id.partition("/")
    return kind == "micro" and name.partition("-")[2] in OTHER


ALL_CASES = [
    pytest.param(c, id=c.id, marks=[pytest.mark.slow] if _slow(c) else [])
    for c in CASES
]


@pytest.mark.parametrize("case", ALL_CASES)
def test_agreement(engines: Mapping[str, Engine], case: SimCase) -> None:
    """All engines within the contract; the first also within it of the oracle."""
    inputs = case.inputs(np.random.default_rng(0))
    program = case.build(TINY).encoded
    first, *others = engines
    golden = engines[first](program, inputs)
    with np.errstate(all="ignore"):
        bound = case.bound(inputs)
        expected = case.oracle(*inputs) if case.oracle else golden
    for i, (want, have) in enumerate(zip(expected, golden, strict=True)):
        problem = disagreement(np.asarray(want), have, case.oracle_tolerance or bound)
        assert problem is None, f"oracle, result {i}: {problem}"
    for name in others:
        found = engines[name](program, inputs)
        for i, (want, have) in enumerate(zip(golden, found, strict=True)):
            problem = disagreement(want, have, bound)
            assert problem is None, f"{name}, result {i}: {problem}"


def test_cases_cover_the_isa() -> None:
    """Every command, stage and micro-op appears in at least one case."""
    commands: set[type] = {Host}  # below: it needs a callback
    stages: set[type] = set()
    micro_ops: set[int] = set()

    def visit(value: object) -> None:
        if type(value) in COMMANDS.values():
            commands.add(type(value))
            for _, block in accesses(value).blocks:  # type: ignore[arg-type]
                for located in block:
                    visit(located.cmd)
        for s in getattr(value, "stages", ()):
            stages.add(type(s))
            micro_ops.update(i.code for i in getattr(s, "program", micro().out()).insns)

    for case in CASES:
        for located in case.build(TINY).block:
            visit(located.cmd)
    assert commands == set(COMMANDS.values())
    assert stages == set(STAGES.values())
    assert micro_ops == {op.code for op in MICRO_OPS.values()}


# ------------------------------------------------------------- schedules change nothing


def _matmul(blocks: tuple[int, int, int], slots: int) -> Program:
    from vkore_jax.isa import Phase

    b = ProgramBuilder(VK1)
    x, y = b.arg(F32, (17, 40)), b.arg(F32, (40, 19))
    g = b.group(list(zip((17, 19, 40), blocks)), 2)
    acc = g.gemm(g.load(x, (0, 2), slots=slots), g.load(y, (2, 1), slots=slots))
    out = g.vec(unary("tanh", F32), [acc], phase=Phase.TAIL)
    g.store(b.result(F32, (17, 19)), out, Phase.TAIL)
    return b.build()


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param((1, 1, 1), marks=pytest.mark.slow),
        *[(5, 7, 9), (16, 16, 40), (17, 19, 13)],
    ],
)
@pytest.mark.parametrize("slots", [1, 2])
def test_schedule_changes_nothing(
    engine: Engine, blocks: tuple[int, int, int], slots: int
) -> None:
    rng = np.random.default_rng(1)
    # Small integers: every sum is exact, so every order gives the same bits.
    inputs = [rng.integers(-8, 8, s).astype(np.float32) for s in ((17, 40), (40, 19))]
    whole = engine(_matmul((17, 19, 40), 1).encoded, inputs)[0]
    cut = engine(_matmul(blocks, slots).encoded, inputs)[0]
    assert disagreement(whole, cut, VALUES) is None


# --------------------------------------------------------------------- host, errors


def _host_program() -> Program:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (3,))
    t = b.temp(F32, (3,))
    b.elementwise(unary("neg", F32), [t], [x])
    b.emit(Host((b.result(F32, (3,)), b.result(I32, ())), (t,), 7, "callback", True))
    return b.build()


def test_host(engine: Engine) -> None:
    x = np.arange(3, dtype=np.float32)
    out = engine(
        _host_program().encoded,
        [x],
        callbacks={7: lambda v: (np.asarray(v) * 2, np.int32(len(v)))},
    )
    np.testing.assert_array_equal(out[0], -2 * x)
    assert out[1] == 3


def test_host_raises(engine: Engine) -> None:
    def bad(_: object) -> None:
        raise ValueError("the user's message")

    with pytest.raises(HostCallbackError, match="the user's message"):
        engine(_host_program().encoded, [np.zeros(3, "f4")], callbacks={7: bad})


def _identity() -> Program:
    b = ProgramBuilder(TINY)
    b.emit(Copy(b.result(F32, (2, 3)), b.arg(F32, (2, 3))))
    return b.build()


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [np.zeros((2, 3), np.float32)] * 2,
        [np.zeros((3, 2), np.float32)],
        [np.zeros((2, 3), np.float64)],
    ],
    ids=["none", "too-many", "shape", "dtype"],
)
def test_wrong_arguments(engine: Engine, inputs: list[np.ndarray]) -> None:
    with pytest.raises(InvalidArgument):
        engine(_identity().encoded, inputs)


def test_damaged_bytes(engine: Engine) -> None:
    data = bytearray(_identity().encoded)
    data[-1] ^= 1
    with pytest.raises(InvalidProgram, match="checksum"):
        engine(bytes(data), [np.zeros((2, 3), np.float32)])


def test_arguments_are_not_changed(engine: Engine) -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (4,))
    b.emit(Copy(b.result(F32, (4,)), View(x.buffer, F32, 3, (4,), (-1,))))
    value = np.arange(4, dtype=np.float32)
    out = engine(b.build().encoded, [value])[0]
    np.testing.assert_array_equal(value, np.arange(4))
    np.testing.assert_array_equal(out, value[::-1])
    assert not np.shares_memory(out, value)
