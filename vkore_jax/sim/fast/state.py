"""The translator's state: which value each buffer holds, and what threads through.

Buffer ids are single-assignment, so the whole memory of the chip becomes a mapping
from buffer id to SSA value; addresses play no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vkore_jax.dtypes import I64, DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import Segment, View
from vkore_jax.program import Program
from vkore_jax.sim.fast import views
from vkore_jax.sim.fast.emitter import TOKEN, Emitter, Shape, Val

TOKEN_KEY = "token"
Key = int | str
"""What a region threads: a dynamic body's number (its counter), or `TOKEN_KEY`."""


@dataclass(frozen=True)
class HostCall:
    """One call of a user's function in the module.

    Attributes:
        callback: id of the function.
        kind: what the user wrote, for messages.
        effect: takes and returns the ordering token first.
        results: types that the function must return.
    """

    callback: int
    kind: str
    effect: bool
    results: tuple[tuple[DType, Shape], ...]


class State:
    """Buffers and threads while a block is being translated.

    Attributes:
        e: the writer.
        program: what is being translated.
        calls: the host calls of the module, in order of index.
        threads: execution counters of the dynamic bodies (WHILE bodies, CASE branches)
            by number, and the token that orders effects.
        producer: buffer id -> number of the command that wrote it.
    """

    def __init__(self, program: Program) -> None:
        self.e = Emitter()
        self.program = program
        self.calls: list[HostCall] = []
        self.threads: dict[Key, Val] = {}
        self.producer: dict[int, int] = {}
        self.next_body = 0
        self._commands = 0
        self._buffers: dict[int, Val] = {}

    def number(self) -> int:
        """Return the next command number."""
        self._commands += 1
        return self._commands

    def bind(self, view: View, val: Val) -> None:
        """Give a buffer its value: a parameter or a loop-carried tensor."""
        self._buffers[view.buffer] = val

    def read(self, view: View) -> Val:
        """Return what a view shows.

        Raises:
            InvalidProgram: nothing has been written to the buffer.
        """
        found = self._buffers.get(view.buffer)
        if found is None:
            found = self._constant(view)
        return views.read(self.e, found, view)

    def scalar(self, view: View) -> Val:
        """Return a one-element view as a rank-0 value."""
        return self.e.full(self.e.reshape(self.read(view), ()))

    def full(self, view: View) -> Val:
        """Return what a view shows with every extent present."""
        return self.e.full(self.read(view))

    def stored(self, view: View) -> Val:
        """Return the elements of a dense view in order, in any shape."""
        found = self._buffers.get(view.buffer)
        if found is None or found.dtype is not view.dtype or found.size != view.size:
            return self.full(view)
        return self.e.full(found) if view.is_dense else self.full(view)

    def write(self, view: View, val: Val) -> None:
        """Write a buffer, whole.

        Raises:
            InvalidProgram: dtype or shape of the value differ from the destination's.
        """
        if val.dtype is not view.dtype or val.logical != view.shape:
            raise InvalidProgram(
                f"buffer {view.buffer} takes {view.dtype}{list(view.shape)}, the "
                f"command makes {val.dtype}{list(val.logical)}"
            )
        self._buffers[view.buffer] = val
        if self.e.owner is not None:
            self.producer[view.buffer] = self.e.owner

    def _constant(self, view: View) -> Val:
        program = self.program
        row = program.buffers[view.buffer]
        if row.segment is not Segment.CONSTANT:
            raise InvalidProgram(f"buffer {view.buffer} is read before it is written")
        raw = program.constants[row.offset : row.offset + row.nbytes]
        count = row.nbytes // view.dtype.itemsize
        whole = view.is_dense and view.size == count
        shape = view.shape if whole else (count,)
        raw = raw[: count * view.dtype.itemsize]
        key = ("constant", view.buffer, view.dtype.short, shape)
        memo = self.e.scopes[self.e.depth].memo
        if key not in memo:
            memo[key] = self.e.constant(view.dtype, shape, raw)
        return memo[key]

    # ------------------------------------------------------------------------ regions

    @contextmanager
    def inner(self) -> Iterator[None]:
        """Translate a nested block: what it binds is gone afterwards."""
        buffers, threads = dict(self._buffers), dict(self.threads)
        try:
            yield
        finally:
            self._buffers, self.threads = buffers, threads

    def thread(self, key: Key) -> Val:
        """Return the current value of a thread; a counter starts at zero."""
        found = self.threads.get(key)
        if found is None:
            if key == TOKEN_KEY:
                found = self.e.op(
                    "stablehlo.create_token : !stablehlo.token", TOKEN, ()
                )
            else:
                found = self.e.scalar(I64, 0)
            self.threads[key] = found
        return found

    def count(self, key: Key) -> None:
        """Add one to a counter."""
        now, one = self.thread(key), self.e.scalar(I64, 1)
        text = f"stablehlo.add {now.name}, {one.name} : {now.type}"
        self.threads[key] = self.e.op(text, I64, ())
