"""The golden engine: the ISA's meaning, in plain NumPy.

It executes an encoded program literally: every command in order, every group block by
block, in poisoned memories, with all checks on.  Being slow and plain is its job; the
fast engine must agree with it (`vkore_jax.sim.contract`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vkore_jax.chips import Chip, get_chip
from vkore_jax.program import decode

# Each of these modules adds its rules to the machine's table.
from vkore_jax.sim.golden import core, flow, move, windows
from vkore_jax.sim.golden.machine import COMMAND_RULES, Machine, Trace
from vkore_jax.verify import verify

__all__ = ["run"]

RULE_MODULES = (core, flow, move, windows)
COMMAND_RULES.complete()


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
    decoded = decode(program)
    chip = chip or get_chip(decoded.chip)
    verify(decoded, chip)
    return Machine(decoded, chip, callbacks or {}, trace).call(inputs)
