"""The specification's own strictness: memories that notice what nobody may do.

The verifier rejects these programs first, so the memories are tested by themselves.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.builder import ProgramBuilder, unary
from vkore_jax.chips import TINY
from vkore_jax.dtypes import F32, I32
from vkore_jax.errors import HazardError, InvalidProgram
from vkore_jax.isa import Command, Copy, Loop, View
from vkore_jax.sim import golden
from vkore_jax.sim.golden.memory import POISON, Dram, Scratchpad


def _dram() -> tuple[Dram, View, View]:
    """Two arena buffers that share an address."""
    b = ProgramBuilder(TINY)
    first = b.temp(F32, (4,))
    second = b.temp(I32, (4,), at=0)
    return Dram(b.build(), TINY), first, second


def test_unwritten_buffer() -> None:
    dram, first, _ = _dram()
    with pytest.raises(HazardError, match="never written"):
        dram.read(first)


def test_overwritten_buffer() -> None:
    dram, first, second = _dram()
    dram.write(first, np.zeros(4, np.float32))
    dram.write(second, np.ones(4, np.int32))
    np.testing.assert_array_equal(dram.read(second), np.ones(4))
    with pytest.raises(HazardError, match="belongs to buffer 1"):
        dram.read(first)


def test_forgotten_buffer() -> None:
    dram, first, _ = _dram()
    dram.write(first, np.zeros(4, np.float32))
    dram.forget([first.buffer])
    with pytest.raises(HazardError, match="never written"):
        dram.read(first)


def test_out_of_bounds() -> None:
    dram, first, _ = _dram()
    dram.write(first, np.zeros(4, np.float32))
    with pytest.raises(InvalidProgram, match="leaves its buffer"):
        dram.read(View(first.buffer, F32, 1, (4,), (1,)))


def test_claimed_buffer_is_poison() -> None:
    dram, first, second = _dram()
    dram.claim(first)
    assert np.isnan(dram.read(first)).all()
    dram.claim(second)
    assert (dram.read(second).view(np.uint8) == POISON).all()


def _pad() -> Scratchpad:
    b = ProgramBuilder(TINY)
    g = b.group([(8, 4)])
    t = g.load(b.arg(F32, (8,)), (0,), slots=2)
    g.vec(unary("neg", F32), [t], at=0)
    return Scratchpad(g.command(), TINY)


def test_slots_rotate_and_are_stale() -> None:
    pad = _pad()
    pad.new_step(0)
    pad.write(0, np.zeros(4, np.float32))
    pad.new_step(1)
    with pytest.raises(HazardError, match="not written in block 1"):
        pad.read(0, (4,))


def test_overwritten_tile() -> None:
    pad = _pad()
    pad.new_step(0)
    pad.write(0, np.zeros(4, np.float32))
    pad.write(1, np.zeros(4, np.float32))
    with pytest.raises(HazardError, match="overwritten by tile 1"):
        pad.read(0, (4,))


def test_ragged_block_leaves_poison() -> None:
    pad = _pad()
    pad.new_step(0)
    pad.write(0, np.zeros(4, np.float32))
    pad.write(0, np.ones(2, np.float32))
    value = pad.read(0, (4,))
    np.testing.assert_array_equal(value[:2], 1)
    assert np.isnan(value[2:]).all()


def test_trace_names_commands() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (2,))
    current, following = b.temp(F32, (2,)), b.temp(F32, (2,))
    from vkore_jax.isa import Carry

    with b.block() as body:
        b.emit(Copy(following, current))
    leave = b.result(F32, (2,))
    b.emit(Loop(2, (Carry(x, current, following, leave),), b.close(body)))
    seen: list[tuple[str, str]] = []

    def trace(path: str, cmd: Command, values: list[np.ndarray]) -> None:
        seen.append((path, cmd.MNEMONIC))
        assert all(v.shape == (2,) for v in values)

    golden.run(b.build().encoded, [np.zeros(2, np.float32)], trace=trace)
    assert seen == [("0.body.0", "copy"), ("0.body.0", "copy"), ("0", "loop")]
