"""The first executions of programs that only move data: no code is generated for them.

XLA needs 25 to 40 ms of CPU time for a kernel.  A program that moves a few kilobytes
once (a slice, a transpose, a concatenation, `jnp.zeros`) is done in half a millisecond
by the golden engine, which needs no code.  Data movement is defined to the bit and the
engines agree on all of them (`vkore_jax.sim.contract`, BITS; `keeps_bits` has where XLA
falls short), so it cannot be seen in
a result which engine ran, and the change to the fast engine after some executions
changes nothing but the time.  Programs that compute are outside: there the engines
promise less than all bits, and a value must not depend on how often a program ran.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from vkore_jax.dtypes import DType
from vkore_jax.isa import Concat, Copy, DynamicSlice, DynamicUpdate, Gather, Pad
from vkore_jax.isa.access import accesses
from vkore_jax.pjrt.inner import Array, Execute
from vkore_jax.program import Program
from vkore_jax.sim.fast.load import put

MOVEMENT = (Concat, Copy, DynamicSlice, DynamicUpdate, Gather, Pad)
"""Commands whose results are bits of their operands."""

MAX_BYTES = 1 << 15
"""Of all buffers together; the golden engine walks gathers in Python."""

MAX_COMMANDS = 4
RUNS = 16
"""Executions without code: together they cost less than generating it."""


def moves_only(program: Program) -> bool:
    """Return whether a program is small and does nothing but move data."""
    return (
        len(program.block) <= MAX_COMMANDS
        and all(isinstance(x.cmd, MOVEMENT) for x in program.block)
        and sum(b.nbytes for b in program.buffers) <= MAX_BYTES
        and all(keeps_bits(x.dtype) for x in (*program.params, *program.results))
        and all(
            keeps_bits(view.dtype)
            for x in program.block
            for view in (*accesses(x.cmd).reads, *accesses(x.cmd).writes)
        )
    )


def keeps_bits(dtype: DType) -> bool:
    """Return whether XLA moves a type as bits.

    Floats below 32 bits may travel as f32, where a NaN loses its payload.
    """
    return dtype.kind != "f" or dtype.bits >= 32


class MovementTier:
    """A program that moves data: golden at first, then code.

    Attributes:
        execute: inner arrays in, inner arrays out.
    """

    def __init__(
        self, program: Program, device: Any, compile_: Callable[[], Execute]
    ) -> None:
        """Load without generating code.

        Args:
            program: what `moves_only` holds for.
            device: inner device.
            compile_: loads the program on the fast engine.
        """
        from vkore_jax.sim import golden  # 40 ms, which not every process needs

        self._golden = golden.GoldenProgram(program.encoded)
        self._device = device
        self._compile = compile_
        self._left = RUNS
        self._lock = threading.Lock()
        self._fast: Execute | None = None

    def execute(self, arguments: list[Array]) -> list[Array]:
        """Run once on whichever engine it is time for."""
        if self._fast is not None:
            return self._fast(arguments)
        if self._left > 0:
            self._left -= 1
            values = [np.asarray(a) for a in arguments]
            return [put(r, self._device) for r in self._golden.execute(values)]
        with self._lock:
            if self._fast is None:
                self._fast = self._compile()
        return self._fast(arguments)
