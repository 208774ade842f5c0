"""Order and addresses: single assignment, read after write, liveness, overlap.

The stream is walked once in order; each command is a point in time.  A buffer is live
from its write to its last read; a read inside a loop of a buffer from outside extends
to the end of the loop's body.  Times are closed: what a command writes may not share
an address with what it reads.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from vkore_jax.dtypes import DType
from vkore_jax.errors import HazardError, InvalidProgram, VkoreError
from vkore_jax.isa import Block, Carry, Case, Loop, Segment, View, While
from vkore_jax.isa.access import accesses
from vkore_jax.verify.checks import Context
from vkore_jax.verify.shapes import RULES

FOREVER = 1 << 60
_UNWRITTEN, _VISIBLE, _GONE = 0, 1, 2


class Walk:
    """One pass over a program."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.time = 0
        program = ctx.program
        count = len(program.buffers)
        self._state = bytearray(count)
        self._start = [-1] * count
        self._end = [-1] * count
        self._depth = [0] * count
        self._dtype: list[DType | None] = [None] * count
        """Type that a buffer was written as; of a constant, none."""
        self._writable = [
            b.segment in (Segment.RESULT, Segment.ARENA) for b in program.buffers
        ]
        self._scope: list[int] = []
        self._loops: list[list[int]] = []
        self._points: list[tuple[int, int]] = []
        for i, b in enumerate(program.buffers):
            if b.segment is Segment.CONSTANT:
                self._given(i)
        for p in program.params:
            self._given(p.buffer)
            self._dtype[p.buffer] = p.dtype

    def run(self) -> None:
        """Walk the program; check results and addresses at the end."""
        program = self.ctx.program
        self._block(program.block, "")
        for i, spec in enumerate(program.results):
            try:
                self._read(spec.view)
            except VkoreError as e:
                raise e.with_context(f"result {i} of the program") from None
            self._end[spec.buffer] = FOREVER
        self._check_addresses()

    # ------------------------------------------------------------------------- accesses

    def _given(self, buffer: int) -> None:
        self._state[buffer] = _VISIBLE
        self._start[buffer], self._end[buffer] = -1, FOREVER

    def _read(self, v: View) -> None:
        buffer = v.buffer
        state = self._state[buffer]
        if state != _VISIBLE:
            raise HazardError(
                f"buffer {buffer} is read but was never written"
                if state == _UNWRITTEN
                else f"buffer {buffer} is read outside the block that wrote it"
            )
        if self._end[buffer] < self.time:
            self._end[buffer] = self.time
        depth = self._depth[buffer]
        if depth < len(self._loops):
            self._loops[depth].append(buffer)
        written = self._dtype[buffer]
        if v.dtype is not written:
            self.ctx.reread(v, written)

    def _write(self, v: View) -> None:
        buffer = v.buffer
        if self._state[buffer]:
            raise HazardError(
                f"buffer {buffer} is written twice; a buffer has one writer"
                if self._writable[buffer]
                else f"buffer {buffer} is an argument or a constant and is read-only"
            )
        if not self._writable[buffer]:
            raise HazardError(f"buffer {buffer} is not in a segment that is written")
        self._state[buffer] = _VISIBLE
        self._start[buffer] = self._end[buffer] = self.time
        self._depth[buffer] = len(self._loops)
        self._dtype[buffer] = v.dtype
        self._scope.append(buffer)

    # --------------------------------------------------------------------------- blocks

    def _block(self, block: Block, path: str) -> None:
        """Walk a block; its buffers stay visible (the caller closes the scope)."""
        ctx = self.ctx
        locations = len(ctx.program.locations)
        for i, located in enumerate(block):
            cmd = located.cmd
            if located.loc >= locations:
                raise InvalidProgram(
                    f"command {path}{i}: location {located.loc} does not exist; the "
                    f"table has {locations}"
                )
            self.time += 1
            try:
                _TABLE[type(cmd)](ctx, cmd)
                nested = _FLOW.get(type(cmd))
                if nested is not None:
                    nested(self, cmd, f"{path}{i}.")
                    continue
                access = accesses(cmd)
                reads = {v.buffer for v in access.reads}
                for v in access.writes:
                    if v.buffer in reads:
                        raise HazardError(
                            f"the command writes buffer {v.buffer}, which it reads"
                        )
                for v in access.reads:
                    self._read(v)
                for v in access.writes:
                    self._write(v)
            except VkoreError as e:
                if "\n  in command " in str(e):
                    raise
                place = self.ctx.program.locations[located.loc]
                raise e.with_context(
                    f"in command {path}{i} ({cmd.MNEMONIC}), {place}"
                ) from None

    def _inner(self, block: Block, path: str, late: Iterable[View]) -> None:
        """Walk a nested block with its own scope; `late` is read at its end."""
        outer, self._scope = self._scope, []
        self._block(block, path)
        self.time += 1
        for v in late:
            self._read(v)
        for b in self._scope:
            self._state[b] = _GONE
        self._scope = outer

    def _enter(self, carries: Sequence[Carry]) -> None:
        for k in carries:
            self._read(k.enter)
        self._loops.append([])
        for k in carries:
            self._write(k.current)

    def _leave(self, carries: Sequence[Carry]) -> None:
        """End a loop: what it read from outside lived until now; write `leave`."""
        for b in self._loops.pop():
            if self._end[b] < self.time:
                self._end[b] = self.time
        self.time += 1
        for k in carries:
            current = k.current.buffer
            self._end[current] = self.time
            self._state[current] = _GONE
        for k in carries:
            self._write(k.leave)

    def loop(self, cmd: Loop, path: str) -> None:
        """Walk a counted loop."""
        self._enter(cmd.carries)
        self._inner(cmd.body, f"{path}body.", [k.next for k in cmd.carries])
        self._leave(cmd.carries)

    def while_(self, cmd: While, path: str) -> None:
        """Walk a while loop; condition and body do not see each other's buffers."""
        self._enter(cmd.carries)
        self._inner(cmd.cond, f"{path}cond.", [cmd.predicate])
        self._inner(cmd.body, f"{path}body.", [k.next for k in cmd.carries])
        self._leave(cmd.carries)

    def case(self, cmd: Case, path: str) -> None:
        """Walk the branches; a merge reads its source at the end of each."""
        self._read(cmd.index)
        for i, branch in enumerate(cmd.branches):
            self._inner(branch, f"{path}branch{i}.", [m.srcs[i] for m in cmd.merges])
            # The branch taken copies right here: dst is occupied at this moment.
            self._points += [(m.dst.buffer, self.time) for m in cmd.merges]
        self.time += 1
        for m in cmd.merges:
            self._write(m.dst)

    # ------------------------------------------------------------------------ addresses

    def _check_addresses(self) -> None:
        """Sweep over time with the live buffers of each segment ordered by address."""
        buffers = self.ctx.program.buffers
        lives: list[list[tuple[int, int, int]]] = [[] for _ in Segment]
        for i, b in enumerate(buffers):
            if self._state[i] and b.nbytes:
                lives[b.segment].append((self._start[i], self._end[i], i))
        for i, time in self._points:
            if buffers[i].nbytes:
                lives[buffers[i].segment].append((time, time, i))
        for intervals in lives:
            intervals.sort()
            self._sweep(intervals)

    def _sweep(self, intervals: Sequence[tuple[int, int, int]]) -> None:
        buffers = self.ctx.program.buffers
        starts: list[int] = []  # addresses of the live buffers, ascending
        live: list[int] = []  # the buffers at them
        ends: list[tuple[int, int]] = []
        for start, end, i in intervals:
            while ends and ends[0][0] < start:
                dead = heapq.heappop(ends)[1]
                at = bisect_left(starts, buffers[dead].offset)
                del starts[at], live[at]
            low = buffers[i].offset
            at = bisect_left(starts, low)
            for near in live[max(at - 1, 0) : at + 1]:
                other = buffers[near]
                if (
                    other.offset < low + buffers[i].nbytes
                    and low < other.offset + other.nbytes
                ):
                    raise HazardError(self._collision(near, i))
            starts.insert(at, low)
            live.insert(at, i)
            heapq.heappush(ends, (end, i))

    def _collision(self, a: int, b: int) -> str:
        rows = self.ctx.program.buffers
        spans = [
            f"[{rows[i].offset}, {rows[i].offset + rows[i].nbytes})" for i in (a, b)
        ]
        return (
            f"buffers {a} {spans[0]} and {b} {spans[1]} overlap in segment "
            f"{rows[a].segment.name} and are live together"
        )


_TABLE = dict(RULES)
_FLOW: dict[type, Callable[..., None]] = {
    Loop: Walk.loop,
    While: Walk.while_,
    Case: Walk.case,
}
