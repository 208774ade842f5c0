"""The golden engine's memories: poisoned, bounds-checked, every byte owned.

Each unit of `dram_align_bytes` (of `scratchpad_align_bytes`) remembers which buffer
(tile) was written there last.  Reading a buffer that was never written, or whose bytes
belong to another one by now, is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkore_jax.chips import Chip
from vkore_jax.dtypes import DType
from vkore_jax.errors import HazardError, InvalidArgument, InvalidProgram
from vkore_jax.isa import Command, Group, Segment, View, room
from vkore_jax.isa.access import written_buffers
from vkore_jax.program import Buffer, Program

POISON = 0xFF
"""Memory's content before it is written: a NaN in every float type, -1 in integers."""
NOBODY = -1


class Dram:
    """DRAM: one byte array per segment, addressed through the buffer table.

    Attributes:
        owner: the command at work.
        strays: tensors that were written while none was.
    """

    def __init__(self, program: Program, chip: Chip) -> None:
        self.owner: Command | None = None
        self.strays = 0
        self._buffers = program.buffers
        self._align = chip.dram_align_bytes
        nothing = np.empty(0, np.uint8), np.empty(0, np.int64)
        self._bytes: dict[Segment, np.ndarray] = dict.fromkeys(Segment, nothing[0])
        self._owner: dict[Segment, np.ndarray] = dict.fromkeys(Segment, nothing[1])
        ends = dict.fromkeys(Segment, 0)
        ends[Segment.CONSTANT] = len(program.constants)
        for i in _held(program):
            b = program.buffers[i]
            ends[b.segment] = max(ends[b.segment], b.offset + b.nbytes)
        for segment in Segment:
            self._reserve(segment, ends[segment])
        constants = np.frombuffer(program.constants, np.uint8)
        self._bytes[Segment.CONSTANT][: len(constants)] = constants
        for i, buffer in enumerate(program.buffers):
            if buffer.segment is Segment.CONSTANT:
                self._claim(i)

    def read(self, view: View) -> np.ndarray:
        """Return a copy of a view's elements."""
        self.check_readable(view)
        return np.array(self._strided(view))

    def read_block(
        self, view: View, start: Sequence[int], size: Sequence[int]
    ) -> np.ndarray:
        """Return a copy of a box of a view; the caller has checked readability."""
        box = tuple(slice(a, a + n) for a, n in zip(start, size))
        return np.array(self._strided(view)[box])

    def write(self, view: View, value: np.ndarray) -> None:
        """Write a whole dense tensor."""
        self.claim(view)
        self.write_block(view, (0,) * len(view.shape), value)

    def claim(self, view: View) -> None:
        """Poison the buffer of a dense view and make it the owner of its bytes.

        Raises:
            InvalidProgram: the view is not dense or not of the buffer's size.
        """
        if not view.is_dense or view.nbytes != self._buffers[view.buffer].nbytes:
            raise InvalidProgram(f"destination is not a whole dense buffer: {view!r}")
        buffer = self._buffers[view.buffer]
        end = buffer.offset + buffer.nbytes
        self._reserve(buffer.segment, end)
        self._bytes[buffer.segment][buffer.offset : end] = POISON
        self._claim(view.buffer)
        self.strays += self.owner is None

    def write_block(self, view: View, start: Sequence[int], value: np.ndarray) -> None:
        """Write a box of a dense tensor whose buffer has been claimed."""
        if value.dtype != view.dtype.numpy:
            raise InvalidProgram(f"{value.dtype} values for a {view.dtype} tensor")
        box = tuple(slice(a, a + n) for a, n in zip(start, value.shape))
        target = self._strided(view)
        if target[box].shape != value.shape:
            raise InvalidProgram(
                f"block {tuple(start)}+{value.shape} leaves a tensor of {view.shape}"
            )
        target[box] = value

    def forget(self, buffers: Sequence[int]) -> None:
        """Mark buffers as not written (the values of an earlier iteration)."""
        for i in buffers:
            owner = self._owned(self._buffers[i])
            owner[owner == i] = NOBODY

    def check_readable(self, view: View) -> None:
        """Check that a view is in bounds and its buffer's bytes are its own.

        Raises:
            InvalidProgram: out of the buffer's bounds.
            HazardError: never written, or overwritten by another buffer.
        """
        buffer = self._buffers[view.buffer]
        low, high = view.bounds()
        if low < 0 or (high + 1) * view.dtype.itemsize > buffer.nbytes:
            raise InvalidProgram(
                f"view {view!r} leaves its buffer of {buffer.nbytes} bytes"
            )
        if high < low:
            return
        owner = self._owned(buffer)
        if owner.size and (owner == view.buffer).all():
            return
        thief = next((int(o) for o in owner if o != view.buffer), NOBODY)
        what = "was never written" if thief == NOBODY else f"belongs to buffer {thief}"
        raise HazardError(f"buffer {view.buffer} is read but {what}")

    def _reserve(self, segment: Segment, end: int) -> None:
        """Have memory up to an address, poisoned."""
        old_bytes, old_owner = self._bytes[segment], self._owner[segment]
        size = self._units(end) * self._align
        if size > len(old_bytes):
            self._bytes[segment] = np.full(size, POISON, np.uint8)
            self._bytes[segment][: len(old_bytes)] = old_bytes
            self._owner[segment] = np.full(self._units(size), NOBODY, np.int64)
            self._owner[segment][: len(old_owner)] = old_owner

    def _units(self, size: int) -> int:
        return -(-size // self._align)

    def _owned(self, buffer: Buffer) -> np.ndarray:
        first = buffer.offset // self._align
        last = self._units(buffer.offset + buffer.nbytes)
        return self._owner[buffer.segment][first:last]

    def _claim(self, buffer: int) -> None:
        self._owned(self._buffers[buffer])[:] = buffer

    def _strided(self, view: View) -> np.ndarray:
        """Return an array over the segment's own bytes; NumPy checks its bounds."""
        if view.size == 0:
            return np.empty(view.shape, view.dtype.numpy)
        buffer = self._buffers[view.buffer]
        end = buffer.offset + buffer.nbytes
        size = view.dtype.itemsize
        return np.ndarray(
            view.shape,
            view.dtype.numpy,
            self._bytes[buffer.segment][buffer.offset : end],
            view.offset * size,
            tuple(s * size for s in view.strides),
        )


def _held(program: Program) -> set[int]:
    """Return the buffers that a program writes; no memory is spent on others."""
    specs = (*program.params, *program.results)
    constants = (
        i for i, b in enumerate(program.buffers) if b.segment is Segment.CONSTANT
    )
    return {s.buffer for s in specs} | {*constants, *written_buffers(program.block)}


class Scratchpad:
    """The scratchpad during one group: tiles at addresses, slots that rotate."""

    def __init__(self, group: Group, chip: Chip) -> None:
        self._group = group
        align = self._align = chip.scratchpad_align_bytes
        self._slot_bytes = [
            room.slot_bytes(t.block_bytes(group.grid), align) for t in group.tiles
        ]
        size = chip.scratchpad_bytes
        self._bytes = np.full(size, POISON, np.uint8)
        self._owner = np.full(-(-size // align), NOBODY, np.int64)
        self._step = 0

    def new_step(self, step: int) -> None:
        """Begin block number `step`: every tile is unwritten again."""
        self._step = step
        self._owner[:] = NOBODY

    def write(self, tile: int, value: np.ndarray) -> None:
        """Write a block of a tile into its slot; the rest of the slot is poison."""
        t = self._group.tiles[tile]
        first, last = self._slot(tile)
        raw = np.ascontiguousarray(value, t.dtype.numpy).reshape(-1).view(np.uint8)
        if value.dtype != t.dtype.numpy or raw.size > last - first:
            raise InvalidProgram(
                f"tile {tile} ({t.dtype}, {last - first} bytes a slot) cannot take "
                f"{value.dtype}{value.shape}"
            )
        self._bytes[first:last] = POISON
        self._bytes[first : first + raw.size] = raw
        self._owner[first // self._align : last // self._align] = tile

    def read(self, tile: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return a copy of the present block of a tile.

        Raises:
            HazardError: the block was not written in this step, or overwritten.
        """
        t = self._group.tiles[tile]
        first, last = self._slot(tile)
        owner = self._owner[first // self._align : last // self._align]
        if (owner != tile).any():
            thief = next(int(o) for o in owner if o != tile)
            what = "not written" if thief == NOBODY else f"overwritten by tile {thief}"
            raise HazardError(f"tile {tile} is read but {what} in block {self._step}")
        size = math.prod(shape) * t.dtype.itemsize
        raw = self._bytes[first : first + size]
        return np.array(raw.view(t.dtype.numpy).reshape(shape))

    def _slot(self, tile: int) -> tuple[int, int]:
        t, size = self._group.tiles[tile], self._slot_bytes[tile]
        first = t.offset + (self._step % t.slots) * size
        if first % self._align or first + size > len(self._bytes):
            raise InvalidProgram(
                f"tile {tile} at {first}+{size} is misaligned or outside the "
                f"scratchpad of {len(self._bytes)} bytes"
            )
        return first, first + size


def check_argument(i: int, value: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    """Check an argument of a run against the program's parameter.

    Raises:
        InvalidArgument: wrong type or shape.
    """
    if value.dtype != dtype.numpy or value.shape != shape:
        raise InvalidArgument(
            f"argument {i}: the program takes {dtype}{list(shape)}, "
            f"found {value.dtype}{list(value.shape)}"
        )
