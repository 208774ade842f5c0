"""Hand-build Programs for tests: buffers with addresses, commands, groups, micro-code.

    b = ProgramBuilder(TINY)
    x, y = b.arg(F32, (10, 6)), b.arg(F32, (10, 6))
    g = b.group([(10, 4), (6, 4)])
    t = g.vec(binary("add", F32), [g.load(x, (0, 1)), g.load(y, (0, 1))])
    g.store(b.result(F32, (10, 6)), t)
    program = b.build()

Buffers never share addresses unless a test asks for it (`at=`); tiles neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from vkore_jax import dtypes
from vkore_jax.chips import TINY, Chip
from vkore_jax.dtypes import DType
from vkore_jax.isa import (
    MICRO_OPS,
    NO_AXIS,
    Block,
    Gemm,
    GridAxis,
    Group,
    Load,
    Located,
    MicroInsn,
    MicroProgram,
    Phase,
    Reduce,
    ReduceKind,
    Segment,
    Store,
    Strategy,
    Tile,
    Transpose,
    Vec,
    View,
)
from vkore_jax.program import Buffer, Location, Program, TensorSpec


def align_up(value: int, align: int) -> int:
    """Return the least multiple of `align` that is at least `value`."""
    return -(-value // align) * align


# ----------------------------------------------------------------------- micro-programs


class MicroBuilder:
    """Straight-line micro-code; `op` appends, registers are plain numbers."""

    def __init__(self, *inputs: DType) -> None:
        self.inputs = inputs
        self.types: list[DType] = list(inputs)
        self.insns: list[MicroInsn] = []

    @property
    def last(self) -> int:
        """The register written last."""
        return len(self.types) - 1

    def op(
        self, name: str, *srcs: int, dtype: DType | None = None, imm: bytes = b""
    ) -> MicroBuilder:
        """Append an instruction; the type defaults to what the table says."""
        row = MICRO_OPS[name]
        if dtype is None:
            dtype = dtypes.BOOL if row.result == "bool" else self.types[srcs[-1]]
        self.insns.append(MicroInsn(row.code, dtype, srcs, imm))
        self.types.append(dtype)
        return self

    def imm(self, dtype: DType, value: Any) -> MicroBuilder:
        """Append a constant."""
        raw = np.asarray(value).astype(dtype.numpy).tobytes()
        return self.op("imm", dtype=dtype, imm=raw)

    def iota(self, dtype: DType, axis: int) -> MicroBuilder:
        """Append the element's index along an axis."""
        return self.op("iota", dtype=dtype, imm=bytes((axis,)))

    def out(self, *regs: int) -> MicroProgram:
        """Return the program; outputs default to the last register."""
        return MicroProgram(self.inputs, tuple(self.insns), regs or (self.last,))


def micro(*inputs: DType) -> MicroBuilder:
    """Start a micro-program over input registers of the given types."""
    return MicroBuilder(*inputs)


def nary(name: str, *inputs: DType, dtype: DType | None = None) -> MicroProgram:
    """Return the program of a single instruction over the inputs in order."""
    return micro(*inputs).op(name, *range(len(inputs)), dtype=dtype).out()


def unary(name: str, dtype: DType) -> MicroProgram:
    """Return the program of a one-operand instruction."""
    return nary(name, dtype)


def binary(name: str, dtype: DType) -> MicroProgram:
    """Return the program of a two-operand instruction."""
    return nary(name, dtype, dtype)


# ------------------------------------------------------------------------------- groups


class GroupBuilder:
    """A group under construction; tiles are numbered and placed as they appear."""

    def __init__(
        self, owner: ProgramBuilder, grid: Sequence[tuple[int, int]], k_axis: int
    ) -> None:
        self._owner = owner
        self.grid = tuple(GridAxis(e, b) for e, b in grid)
        self.k_axis = k_axis
        self.tiles: list[Tile] = []
        self.stages: list[Any] = []
        self._end = 0

    def tile(
        self,
        dtype: DType,
        shape: Sequence[int],
        axes: Sequence[int | None] | None = None,
        *,
        slots: int = 1,
        at: int | None = None,
    ) -> int:
        """Add a tile (None or 255: axis not cut); return its number."""
        cut = tuple(NO_AXIS if a is None else a for a in axes or [None] * len(shape))
        tile = Tile(dtype, tuple(shape), cut, 0, slots)
        align = self._owner.chip.scratchpad_align_bytes
        size = align_up(tile.block_bytes(self.grid), align) * slots
        offset = self._end if at is None else at
        self.tiles.append(replace(tile, offset=offset))
        self._end = max(self._end, offset + size)
        self._owner.scratchpad_bytes = max(self._owner.scratchpad_bytes, self._end)
        return len(self.tiles) - 1

    def load(
        self,
        src: View,
        axes: Sequence[int | None] | None = None,
        *,
        slots: int = 1,
        phase: Phase = Phase.BODY,
        at: int | None = None,
    ) -> int:
        """Load a DRAM tensor into a new tile."""
        tile = self.tile(src.dtype, src.shape, axes, slots=slots, at=at)
        self.stages.append(Load(tile, src, phase))
        return tile

    def store(self, dst: View, tile: int, phase: Phase = Phase.BODY) -> None:
        """Store a tile to a DRAM tensor."""
        self.stages.append(Store(dst, tile, phase))

    def gemm(
        self,
        lhs: int,
        rhs: int,
        dtype: DType = dtypes.F32,
        strategy: Strategy = Strategy.BF16X1,
        *,
        phase: Phase = Phase.BODY,
        at: int | None = None,
    ) -> int:
        """Multiply two tiles into a new one."""
        a, b = self.tiles[lhs], self.tiles[rhs]
        shape, axes = self._broadcast([lhs, rhs], len(a.shape) - 2)
        shape += [a.shape[-2], b.shape[-1]]
        axes += [a.axes[-2], b.axes[-1]]
        out = self.tile(dtype, shape, axes, at=at)
        self.stages.append(Gemm(lhs, rhs, out, strategy, phase))
        return out

    def vec(
        self,
        program: MicroProgram,
        ins: Sequence[int],
        *,
        shape: Sequence[int] | None = None,
        axes: Sequence[int | None] | None = None,
        phase: Phase = Phase.BODY,
        at: int | None = None,
    ) -> Any:
        """Run a micro-program; returns the out tile, or a tuple when there are more.

        `shape` and `axes` are needed only without inputs.
        """
        if shape is None:
            shape, axes = self._broadcast(ins, len(self.tiles[ins[0]].shape))
        outs = tuple(self.tile(t, shape, axes, at=at) for t in program.output_types())
        self.stages.append(Vec(tuple(ins), outs, program, phase))
        return outs[0] if len(outs) == 1 else outs

    def reduce(
        self,
        src: int,
        kind: ReduceKind,
        axes: Sequence[int],
        *,
        dtype: DType | None = None,
        index: DType = dtypes.I32,
        phase: Phase = Phase.BODY,
        at: int | None = None,
    ) -> Any:
        """Reduce axes of a tile; ARG kinds return (value tile, index tile)."""
        tile = self.tiles[src]
        shape = [1 if i in axes else e for i, e in enumerate(tile.shape)]
        cut = [NO_AXIS if i in axes else a for i, a in enumerate(tile.axes)]
        outs = [self.tile(dtype or tile.dtype, shape, cut, at=at)]
        if kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN):
            outs.append(self.tile(index, shape, cut))
        self.stages.append(Reduce(src, tuple(outs), kind, tuple(axes), phase))
        return outs[0] if len(outs) == 1 else tuple(outs)

    def transpose(
        self, src: int, *, phase: Phase = Phase.BODY, at: int | None = None
    ) -> int:
        """Exchange the last two axes of a tile."""
        tile = self.tiles[src]
        shape, axes = ((*x[:-2], x[-1], x[-2]) for x in (tile.shape, tile.axes))
        out = self.tile(tile.dtype, shape, axes, at=at)
        self.stages.append(Transpose(src, out, phase))
        return out

    def command(self) -> Group:
        """Return the finished command."""
        return Group(self.grid, self.k_axis, tuple(self.tiles), tuple(self.stages))

    def _broadcast(self, ins: Sequence[int], rank: int) -> tuple[list[int], list[Any]]:
        shape, axes = [1] * rank, [NO_AXIS] * rank
        for t in ins:
            for i in range(rank):
                if self.tiles[t].shape[i] != 1:
                    shape[i], axes[i] = self.tiles[t].shape[i], self.tiles[t].axes[i]
        return shape, axes


# ----------------------------------------------------------------------------- programs


class ProgramBuilder:
    """A program under construction; every method returns views or numbers."""

    def __init__(self, chip: Chip = TINY, name: str = "test") -> None:
        self.chip = chip
        self.name = name
        self.scratchpad_bytes = 0
        self.buffers: list[Buffer] = []
        self.constants = bytearray()
        self.params: list[TensorSpec] = []
        self.results: list[TensorSpec] = []
        self.donated: tuple[int, ...] = ()
        self.locations: list[Location] = [Location("test", "test.py", 1, "case")]
        self._ends = dict.fromkeys(Segment, 0)
        self._stack: list[list[Any]] = [[]]

    def buffer(
        self, segment: Segment, dtype: DType, shape: Sequence[int], at: int | None
    ) -> View:
        """Add a buffer (at a byte offset, or behind the last one); its dense view."""
        size = math.prod(shape) * dtype.itemsize
        end = self._ends[segment]
        offset = align_up(end, self.chip.dram_align_bytes) if at is None else at
        self._ends[segment] = max(end, offset + size)
        self.buffers.append(Buffer(segment, offset, size))
        return View.dense(len(self.buffers) - 1, dtype, tuple(shape))

    def arg(self, dtype: DType, shape: Sequence[int]) -> View:
        """Add a parameter."""
        view = self.buffer(Segment.ARGUMENT, dtype, shape, None)
        self.params.append(TensorSpec(view.buffer, dtype, view.shape, ""))
        return view

    def result(self, dtype: DType, shape: Sequence[int]) -> View:
        """Add a result."""
        view = self.buffer(Segment.RESULT, dtype, shape, None)
        self.results.append(TensorSpec(view.buffer, dtype, view.shape, ""))
        return view

    def results_of(self, views: Sequence[View]) -> list[View]:
        """Add a result for each view, with its dtype and shape."""
        return [self.result(v.dtype, v.shape) for v in views]

    def temp(
        self, dtype: DType, shape: Sequence[int], *, at: int | None = None
    ) -> View:
        """Add an arena buffer."""
        return self.buffer(Segment.ARENA, dtype, shape, at)

    def const(self, value: Any, dtype: DType | None = None) -> View:
        """Add a constant."""
        array = np.asarray(value)
        dtype = dtype or dtypes.by_numpy(array.dtype)
        view = self.buffer(Segment.CONSTANT, dtype, array.shape, None)
        buffer = self.buffers[view.buffer]
        self.constants += bytes(buffer.offset - len(self.constants))
        self.constants += np.ascontiguousarray(array.astype(dtype.numpy)).tobytes()
        return view

    def emit(self, *commands: Any) -> None:
        """Append commands to the innermost open block."""
        for cmd in commands:
            self._stack[-1].append(cmd)

    def group(
        self, grid: Sequence[tuple[int, int]], k_axis: int = NO_AXIS
    ) -> GroupBuilder:
        """Append a group of (extent, block) axes; stages are added to what returns."""
        group = GroupBuilder(self, grid, k_axis)
        self.emit(group)
        return group

    @contextmanager
    def block(self) -> Iterator[list[Any]]:
        """Collect the commands emitted inside into a nested block.

        Pass what it yields through `close` when the command is built.
        """
        self._stack.append([])
        try:
            yield self._stack[-1]
        finally:
            self._stack.pop()

    def close(self, commands: Sequence[Any]) -> Block:
        """Turn collected commands into a block."""
        return tuple(
            Located(c.command() if isinstance(c, GroupBuilder) else c, 0)
            for c in commands
        )

    def elementwise(
        self, program: MicroProgram, dsts: Sequence[View], srcs: Sequence[View]
    ) -> GroupBuilder:
        """Append an unblocked group that runs a micro-program over whole tensors.

        Sources of extent 1 broadcast.  For small tensors (loop counters, predicates).
        """
        g = self.group([])
        ins = [g.load(v) for v in srcs]
        outs = g.vec(program, ins, shape=dsts[0].shape)
        outs = outs if isinstance(outs, tuple) else (outs,)
        for dst, out in zip(dsts, outs, strict=True):
            g.store(dst, out)
        return g

    def build(self) -> Program:
        """Return the program."""
        return Program(
            name=self.name,
            chip=self.chip.name,
            scratchpad_bytes=self.scratchpad_bytes,
            arena_bytes=self._ends[Segment.ARENA],
            buffers=tuple(self.buffers),
            constants=bytes(self.constants),
            params=tuple(self.params),
            results=tuple(self.results),
            donated=self.donated,
            locations=tuple(self.locations),
            block=self.close(self._stack[0]),
        )
