"""The golden machine: memories, the rule table of the commands, the run loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vkore_jax.chips import Chip
from vkore_jax.cost import blocks_of
from vkore_jax.errors import InvalidArgument, VkoreError
from vkore_jax.isa import COMMANDS, Block, Case, Command, While
from vkore_jax.isa.access import accesses
from vkore_jax.isa.rules import Rules
from vkore_jax.program import Program
from vkore_jax.sim.golden.memory import Dram, check_argument

Callback = Callable[..., Any]
Trace = Callable[[str, Command, list[np.ndarray]], None]

COMMAND_RULES: Rules[Callable[..., None]] = Rules(
    "golden commands", over=COMMANDS.values()
)


class Machine:
    """Architectural state of one run of a program."""

    def __init__(
        self,
        program: Program,
        chip: Chip,
        callbacks: Mapping[int, Callback],
        trace: Trace | None,
    ) -> None:
        self.program = program
        self.chip = chip
        self.callbacks = callbacks
        self.dram = Dram(program, chip)
        self.ran: Counter[tuple[int, int]] = Counter()
        """How often each dynamic body ran: by its command's id and the branch."""
        self._trace = trace

    def call(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Write the arguments, run the program, read the results."""
        params = self.program.params
        if len(inputs) != len(params):
            raise InvalidArgument(
                f"program {self.program.name!r} takes {len(params)} arguments, "
                f"found {len(inputs)}"
            )
        for i, (value, spec) in enumerate(zip(inputs, params)):
            value = np.asarray(value)
            check_argument(i, value, spec.dtype, spec.shape)
            self.dram.write(spec.view, value)
        self.dram.strays -= len(params)  # the arguments
        self.run(self.program.block)
        return [self.dram.read(spec.view) for spec in self.program.results]

    def counts(self) -> list[int]:
        """Return how often each dynamic body ran, as `cost.dynamic_bodies` counts."""
        return list(self._counts(self.program.block))

    def _counts(self, block: Block) -> Iterator[int]:
        for located in block:
            cmd = located.cmd
            if isinstance(cmd, While):
                yield self.ran[id(cmd), 0]
            elif isinstance(cmd, Case):
                yield from (self.ran[id(cmd), i] for i in range(len(cmd.branches)))
            for nested in blocks_of(cmd):
                yield from self._counts(nested)

    def run(self, block: Block, path: str = "") -> None:
        """Run the commands of a block in order."""
        for i, located in enumerate(block):
            cmd, here = located.cmd, f"{path}{i}"
            self.path = here
            outer, self.dram.owner = self.dram.owner, cmd
            try:
                COMMAND_RULES[type(cmd)](self, cmd)
            except VkoreError as e:
                if "\n  in command " in str(e):  # the innermost place is enough
                    raise
                place = self.program.locations[located.loc]
                raise e.with_context(
                    f"in command {here} ({cmd.MNEMONIC}), {place}"
                ) from e
            finally:
                self.dram.owner = outer
            if self._trace is not None:
                writes = accesses(cmd).writes
                self._trace(here, cmd, [self.dram.read(v) for v in writes])
