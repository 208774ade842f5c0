"""Groups and structured control flow as commands of the machine."""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax.isa import Carry, Case, Group, Loop, While
from vkore_jax.isa.access import written_buffers
from vkore_jax.sim.golden.group import GroupRun
from vkore_jax.sim.golden.machine import COMMAND_RULES, Machine


@COMMAND_RULES.rule(Group)
def group(m: Machine, cmd: Group) -> None:
    """Run the group's blocks."""
    GroupRun(cmd, m.dram, m.chip).run()


def _enter(m: Machine, carries: Sequence[Carry]) -> None:
    for k, value in zip(carries, [m.dram.read(k.enter) for k in carries]):
        m.dram.write(k.current, value)


def _advance(m: Machine, carries: Sequence[Carry]) -> None:
    """All `next` are read before any `current` is written: carries may swap."""
    for k, value in zip(carries, [m.dram.read(k.next) for k in carries]):
        m.dram.write(k.current, value)


def _leave(m: Machine, carries: Sequence[Carry]) -> None:
    for k in carries:
        m.dram.write(k.leave, m.dram.read(k.current))


@COMMAND_RULES.rule(Loop)
def loop(m: Machine, cmd: Loop) -> None:
    """Run the body `trips` times; its buffers are unwritten in each iteration."""
    path = m.path
    inner = sorted(set(written_buffers(cmd.body)))
    _enter(m, cmd.carries)
    for _ in range(cmd.trips):
        m.dram.forget(inner)
        m.run(cmd.body, f"{path}.body.")
        _advance(m, cmd.carries)
    _leave(m, cmd.carries)


@COMMAND_RULES.rule(While)
def while_(m: Machine, cmd: While) -> None:
    """Run the body as long as the condition holds."""
    path = m.path
    inner = sorted({*written_buffers(cmd.cond), *written_buffers(cmd.body)})
    _enter(m, cmd.carries)
    while True:
        m.dram.forget(inner)
        m.run(cmd.cond, f"{path}.cond.")
        if not m.dram.read(cmd.predicate).reshape(()):
            break
        m.ran[id(cmd), 0] += 1
        m.run(cmd.body, f"{path}.body.")
        _advance(m, cmd.carries)
    _leave(m, cmd.carries)


@COMMAND_RULES.rule(Case)
def case(m: Machine, cmd: Case) -> None:
    """Run one branch; an index out of range runs the last."""
    index, last = int(m.dram.read(cmd.index).reshape(())), len(cmd.branches) - 1
    taken = index if 0 <= index <= last else last
    m.ran[id(cmd), taken] += 1
    m.run(cmd.branches[taken], f"{m.path}.branch{taken}.")
    for merge, value in zip(
        cmd.merges, [m.dram.read(g.srcs[taken]) for g in cmd.merges]
    ):
        m.dram.write(merge.dst, value)
