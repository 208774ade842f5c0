"""The golden engine: the ISA's meaning, in plain NumPy.

It executes an encoded program literally: every command in order, every group block by
block, in poisoned memories, with all checks on.  Being slow and plain is its job; the
fast engine must agree with it (`vkore_jax.sim.contract`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vkore_jax.chips import Chip, named_chip
from vkore_jax.program import decode

# Each of these modules adds its rules to the machine's table.
from vkore_jax.sim.golden import core, flow, move, windows
from vkore_jax.sim.golden.machine import COMMAND_RULES, Machine, Trace
from vkore_jax.sim.ledger import ledger
from vkore_jax.verify import verify

__all__ = ["GoldenProgram", "run"]

RULE_MODULES = (core, flow, move, windows)
COMMAND_RULES.complete()


class GoldenProgram:
    """A program that is decoded and verified once and executed often.

    Attributes:
        program: the decoded program.
        ledger: what it did so far.
    """

    def __init__(
        self,
        data: bytes,
        *,
        chip: Chip | None = None,
        callbacks: Mapping[int, Callable[..., Any]] | None = None,
    ) -> None:
        """Decode and verify; see `run` for arguments and errors."""
        self.program = decode(data)
        self._chip = chip or named_chip(self.program.chip)
        self._callbacks = callbacks or {}
        verify(self.program, self._chip)
        self.ledger = ledger().open(self.program, host_compute=0)

    def execute(
        self, inputs: Sequence[np.ndarray], trace: Trace | None = None
    ) -> list[np.ndarray]:
        """Run once; see `run`."""
        machine = Machine(self.program, self._chip, self._callbacks, trace)
        results = machine.call(inputs)
        self.ledger.executions += 1
        self.ledger.host_compute = machine.dram.strays
        self.ledger.note_counts(machine.counts())
        return results


def run(
    program: bytes,
    inputs: Sequence[np.ndarray],
    *,
    chip: Chip | None = None,
    callbacks: Mapping[int, Callable[..., Any]] | None = None,
    trace: Trace | None = None,
) -> list[np.ndarray]:
    """Execute an encoded program.

    Args:
        program: encoded bytes; they are decoded and verified first.
        inputs: one array for each parameter, of its dtype and shape.
        chip: profile to execute on; the program's own by default.
        callbacks: the user's functions by the number that HOST commands name.
        trace: called after each command with its path in the stream (nested blocks
            separated by dots), the command, and copies of the tensors it wrote.

    Returns:
        The results in order.

    Raises:
        InvalidProgram: malformed bytes, or a rule of the ISA is broken.
        HazardError: something is read that was not written, or is overwritten.
        InvalidArgument: the inputs do not fit the parameters.
        HostCallbackError: the user's own function raised.
    """
    loaded = GoldenProgram(program, chip=chip, callbacks=callbacks)
    return loaded.execute(inputs, trace)
