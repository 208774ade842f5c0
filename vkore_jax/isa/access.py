"""Which tensors a command reads and writes: one rule per command class.

The verifier, the allocator and the engines ask here instead of knowing the fields of
every class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vkore_jax.isa import commands as c
from vkore_jax.isa.rules import Rules
from vkore_jax.isa.view import View


@dataclass(frozen=True)
class Access:
    """What a command touches in DRAM, nested blocks not included.

    Attributes:
        reads: views read when the command starts (and, in a While, a Loop or a Case,
            before any nested block runs).
        writes: dense views written; of a loop these are `current` and `leave`.
        late_reads: views read after nested blocks have run (`next`, predicate,
            merged values).
        blocks: nested blocks in order of execution, each with its name in messages.
    """

    reads: tuple[View, ...]
    writes: tuple[View, ...]
    late_reads: tuple[View, ...] = ()
    blocks: tuple[tuple[str, c.Block], ...] = ()


RULES: Rules[Callable[[Any], Access]] = Rules("access", over=c.COMMANDS.values())


@RULES.rule(c.Group)
def _group(cmd: c.Group) -> Access:
    return Access(
        tuple(s.src for s in cmd.stages if type(s) is c.Load),
        tuple(s.dst for s in cmd.stages if type(s) is c.Store),
    )


@RULES.rule(c.Conv)
def _conv(cmd: c.Conv) -> Access:
    return Access((cmd.lhs, cmd.rhs), (cmd.dst,))


@RULES.rule(c.Copy, c.Fft)
def _copy(cmd: c.Copy | c.Fft) -> Access:
    return Access((cmd.src,), (cmd.dst,))


@RULES.rule(c.Concat)
def _concat(cmd: c.Concat) -> Access:
    return Access(cmd.srcs, (cmd.dst,))


@RULES.rule(c.Pad)
def _pad(cmd: c.Pad) -> Access:
    return Access((cmd.src, cmd.value), (cmd.dst,))


@RULES.rule(c.DynamicSlice)
def _dynamic_slice(cmd: c.DynamicSlice) -> Access:
    return Access((cmd.src, *cmd.starts), (cmd.dst,))


@RULES.rule(c.DynamicUpdate)
def _dynamic_update(cmd: c.DynamicUpdate) -> Access:
    return Access((cmd.src, cmd.update, *cmd.starts), (cmd.dst,))


@RULES.rule(c.Gather)
def _gather(cmd: c.Gather) -> Access:
    return Access((cmd.operand, cmd.indices), (cmd.dst,))


@RULES.rule(c.Scatter)
def _scatter(cmd: c.Scatter) -> Access:
    return Access((*cmd.operands, cmd.indices, *cmd.updates), cmd.dsts)


@RULES.rule(c.Sort, c.Host)
def _many(cmd: c.Sort | c.Host) -> Access:
    return Access(cmd.srcs, cmd.dsts)


@RULES.rule(c.ReduceWindow, c.ReduceGeneric)
def _reduce(cmd: c.ReduceWindow | c.ReduceGeneric) -> Access:
    return Access((*cmd.srcs, *cmd.inits), cmd.dsts)


@RULES.rule(c.SelectAndScatter)
def _select_and_scatter(cmd: c.SelectAndScatter) -> Access:
    return Access((cmd.operand, cmd.source, cmd.init), (cmd.dst,))


def _carried(carries: tuple[c.Carry, ...]) -> tuple[tuple[View, ...], ...]:
    return (
        tuple(k.enter for k in carries),
        (*(k.current for k in carries), *(k.leave for k in carries)),
        tuple(k.next for k in carries),
    )


@RULES.rule(c.Loop)
def _loop(cmd: c.Loop) -> Access:
    reads, writes, late = _carried(cmd.carries)
    return Access(reads, writes, late, (("body", cmd.body),))


@RULES.rule(c.While)
def _while(cmd: c.While) -> Access:
    reads, writes, late = _carried(cmd.carries)
    blocks = (("cond", cmd.cond), ("body", cmd.body))
    return Access(reads, writes, (*late, cmd.predicate), blocks)


@RULES.rule(c.Case)
def _case(cmd: c.Case) -> Access:
    return Access(
        (cmd.index,),
        tuple(m.dst for m in cmd.merges),
        tuple(v for m in cmd.merges for v in m.srcs),
        tuple((f"branch {i}", b) for i, b in enumerate(cmd.branches)),
    )


RULES.complete()


def accesses(cmd: c.Command) -> Access:
    """Return what a command reads and writes."""
    return RULES[type(cmd)](cmd)


def written_buffers(block: c.Block) -> Iterator[int]:
    """Yield the buffers that the commands of a block write, nested ones included."""
    for located in block:
        access = accesses(located.cmd)
        for view in access.writes:
            yield view.buffer
        for _, nested in access.blocks:
            yield from written_buffers(nested)
