"""Program -> StableHLO: one module that computes what the command stream computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vkore_jax import isa
from vkore_jax.cost import dynamic_bodies
from vkore_jax.errors import InvalidProgram, VkoreError
from vkore_jax.isa import COMMANDS, Block, Segment
from vkore_jax.isa.rules import Rules
from vkore_jax.program import Program
from vkore_jax.sim.fast import control, core, groups, windows
from vkore_jax.sim.fast.emitter import Val, tensor_type
from vkore_jax.sim.fast.small import NOTHING, Small, loaded_shape
from vkore_jax.sim.fast.state import HostCall, State

CommandRule = Callable[[State, Any], None]

INSTRUMENT, PASSED = -1, -2
"""Owners that are no command: the ledger's counters, a value handed through."""

RULES: Rules[CommandRule] = Rules("fast commands", over=COMMANDS.values())


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A translated program.

    Attributes:
        text: the StableHLO module.  Its results are the program's (but the small ones,
            if a table has them), then one i64 counter for every dynamic body
            (`vkore_jax.cost.dynamic_bodies`).
        counters: number of those counters.
        callbacks: callback ids by index of the module's host calls.
        calls: those HOST calls, in the same order.
        host_compute: operations written outside of any command plus results that no
            command (nor parameter nor constant) accounts for.
    """

    text: str
    counters: int
    callbacks: tuple[int, ...]
    calls: tuple[HostCall, ...]
    host_compute: int


def run(s: State, block: Block) -> None:
    """Translate the commands of a block in order.

    Raises:
        VkoreError: with the command and its source location.
    """
    outer = s.e.owner
    for located in block:
        s.e.owner = s.number()
        try:
            RULES[type(located.cmd)](s, located.cmd)
        except VkoreError as error:
            where = s.program.locations[located.loc]
            raise error.with_context(f"in {located.cmd.MNEMONIC} for {where}") from None
    s.e.owner = outer


RULES.update(
    {
        isa.Group: groups.run,
        isa.Conv: core.conv,
        isa.Copy: core.copy,
        isa.Concat: core.concat,
        isa.Pad: core.pad,
        isa.DynamicSlice: core.dynamic_slice,
        isa.DynamicUpdate: core.dynamic_update,
        isa.Gather: core.gather,
        isa.Scatter: core.scatter,
        isa.Sort: core.sort,
        isa.ReduceWindow: windows.reduce_window,
        isa.SelectAndScatter: core.select_and_scatter,
        isa.ReduceGeneric: windows.reduce_generic,
        isa.Fft: core.fft,
        isa.Loop: lambda s, cmd: control.loop(s, cmd, run),
        isa.While: lambda s, cmd: control.while_(s, cmd, run),
        isa.Case: lambda s, cmd: control.case(s, cmd, run),
        isa.Host: control.host,
    }
)
RULES.complete()


def translate_program(program: Program, small: Small = NOTHING) -> Translation:
    """Translate a decoded program.

    Args:
        program: the program.
        small: parameters and results that are neither arguments nor results of the
            module, whose first argument is then a table's address.

    Raises:
        InvalidProgram: the program reads what it never writes, or types do not fit.
    """
    s = State(program)
    arguments = small.argument
    aliases = _aliases(program, small)
    for number, spec in enumerate(program.params):
        name = small.name(number)
        shape = loaded_shape(spec) if number in small.loaded else spec.shape
        s.bind(spec.view, Val(name, spec.dtype, shape, shape, 0))
        if number in small.loaded:
            continue
        attribute = ""
        if number in aliases:
            attribute = f" {{tf.aliasing_output = {aliases[number]} : i32}}"
        elif number in program.donated:
            attribute = " {jax.buffer_donor = true}"
        arguments.append(f"{name}: {tensor_type(spec.dtype, spec.shape)}{attribute}")
    run(s, program.block)
    vals, strays = _results(s, small)
    counters = dynamic_bodies(program.block)
    s.e.owner = INSTRUMENT
    vals += [s.thread(number) for number in range(counters)]
    lines = s.e.scopes[0].lines
    stores = small.store([v.name for v in vals], [v.type for v in vals])
    vals = [v for number, v in enumerate(vals) if number not in small.stored]
    types = ", ".join(v.type for v in vals)
    last = f"return {', '.join(v.name for v in vals)} : {types}" if vals else "return"
    body = "\n".join([*small.load(program), *lines, *stores, last])
    text = (
        f"module @{_identifier(program.name)} {{\n"
        f"func.func public @main({', '.join(arguments)}) -> ({types}) {{\n"
        f"{body}\n}}\n}}\n"
    )
    return Translation(
        text=text,
        counters=counters,
        callbacks=tuple(c.callback for c in s.calls),
        calls=tuple(s.calls),
        host_compute=s.e.unattributed + strays,
    )


def _results(s: State, small: Small) -> tuple[list[Val], int]:
    """Return the results, and how many of them nothing accounts for.

    What it takes to show a result whole belongs to the command that produced it.  A
    parameter or constant that is handed through needs no command.
    """
    vals: list[Val] = []
    strays = 0
    for number, spec in enumerate(s.program.results):
        segment = s.program.buffers[spec.buffer].segment
        passed = segment in (Segment.ARGUMENT, Segment.CONSTANT)
        s.e.owner = s.producer.get(spec.buffer, PASSED if passed else None)
        strays += s.e.owner is None
        try:
            shown = s.stored if number in small.stored else s.full
            vals.append(shown(spec.view))
        except InvalidProgram as error:
            raise error.with_context(f"result {number}") from None
    return vals, strays


def _aliases(program: Program, small: Small) -> dict[int, int]:
    """Pair donated parameters with results of the same type, each in order.

    Returns:
        Number of the module's result by number of the parameter.
    """
    free: dict[Any, list[int]] = {}
    results = [x for n, x in enumerate(program.results) if n not in small.stored]
    for number, spec in enumerate(results):
        key = (spec.dtype.short, spec.shape, spec.memory_kind)
        free.setdefault(key, []).append(number)
    pairs: dict[int, int] = {}
    for number in sorted(set(program.donated).difference(small.params)):
        spec = program.params[number]
        waiting = free.get((spec.dtype.short, spec.shape, spec.memory_kind))
        if waiting:
            pairs[number] = waiting.pop(0)
    return pairs


def _identifier(name: str) -> str:
    clean = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return clean if clean and not clean[0].isdigit() else f"program_{clean}"
