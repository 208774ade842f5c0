"""Tiling: the grid and block shapes with which a group fits the scratchpad.

A group that fits in no blocks is cut in two, a scope (see `scoped`) is given back to
ordinary fusion.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.errors import ResourceExhausted
from vkore_jax.isa import NO_AXIS, GridAxis, Tile
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.blocking import Blocking, Solution, place
from vkore_jax.lowering.conv_blocks import schedule
from vkore_jax.lowering.ir import Case, Direct, Graph, Module, Node, While
from vkore_jax.lowering.plan import FusedGroup, TiledGroup
from vkore_jax.lowering.scoped import ScopeBuilder
from vkore_jax.lowering.scoped_axes import Unplaceable
from vkore_jax.lowering.scoped_blocking import ScopeBlocking
from vkore_jax.lowering.stages import K, StageBuilder, StagePlan

Split = Callable[[FusedGroup], Sequence[Node]]


def tile(module: Module, chip: Chip, views: Views, split: Split) -> Module:
    """Return the module with every group and convolution scheduled.

    Args:
        module: after fusion.
        chip: profile whose memories bound the blocks.
        views: reads through moves.
        split: cuts a group that does not fit in two (empty when it cannot).

    Raises:
        ResourceExhausted: one stage does not fit even in its smallest blocks.
    """
    tiler = _Tiler(chip, views, split)
    return dataclasses.replace(module, graph=tiler.graph(module.graph))


class _Tiler:
    def __init__(self, chip: Chip, views: Views, split: Split) -> None:
        self.chip, self.views, self.split = chip, views, split
        self.solved: dict[Any, Solution | None] = {}

    def graph(self, graph: Graph) -> Graph:
        nodes: list[Node] = []
        for node in graph.nodes:
            if isinstance(node, FusedGroup):
                nodes += self.group(node)
            elif isinstance(node, Direct) and node.command is isa.Conv:
                nodes.append(schedule(node, self.chip))
            elif node.graphs:
                nodes.append(_with_graphs(node, [self.graph(g) for g in node.graphs]))
            else:
                nodes.append(node)
        return dataclasses.replace(graph, nodes=tuple(nodes))

    def group(self, group: FusedGroup) -> list[Node]:
        """Schedule a group; one that does not fit is cut in two."""
        if group.space is None:
            made = self._scope(group)
            return [made] if made is not None else self._parts(self.split(group))
        build = StageBuilder(group, self.views)
        choices: list[int | None] = [None, *build.k_candidates()]
        if build.gemms and build.k_extent > 1:
            # Covers the schedules that leave k whole, too: see `_emit`.
            choices = [K]
        plans: dict[int | None, StagePlan] = {}
        for comfortable in (True, False):
            for k in choices:
                plan = plans.get(k) or plans.setdefault(k, build.build(k))
                made = self._solution(plan, comfortable)
                if made is not None and self._small_programs(plan):
                    return [_emit(group, plan, made, Blocking(plan, self.chip))]
        halves = self.split(group)
        if not halves:
            raise self._too_big(group, plans[choices[-1]])
        return self._parts(halves)

    def _solution(self, plan: StagePlan, comfortable: bool) -> Solution | None:
        """Find blocks; the layers of a model have the same products over and over."""
        if not comfortable or not any(isinstance(s, isa.Gemm) for s in plan.stages):
            return Blocking(plan, self.chip).solve(comfortable)
        key = plan.traffic_key()
        if key not in self.solved:
            self.solved[key] = Blocking(plan, self.chip).solve(comfortable)
        return self.solved[key]

    def _parts(self, parts: Sequence[Node]) -> list[Node]:
        nodes: list[Node] = []
        for part in parts:
            nodes += self.group(part) if isinstance(part, FusedGroup) else [part]
        return nodes

    def _scope(self, group: FusedGroup) -> TiledGroup | None:
        """Schedule a scope with the least traffic, None when it cannot be one group."""
        try:
            build = ScopeBuilder(group, self.views)
        except Unplaceable:
            return None
        found: list[tuple[Any, TiledGroup]] = []
        for k in (None, *build.k_candidates()):
            plan = build.build(k)
            blocking = ScopeBlocking(plan, self.chip)
            key = plan.key()
            if key not in self.solved:
                fits = self._small_programs(plan)
                self.solved[key] = blocking.solve_best() if fits else None
            made = self.solved[key]
            if made is not None:
                tiled = _emit(group, plan, made, blocking)
                found.append((blocking.cost(made), tiled))
        return min(found, key=lambda f: f[0])[1] if found else None

    def _small_programs(self, plan: StagePlan) -> bool:
        chip = self.chip
        return all(
            len(s.program.insns) <= chip.vec_max_insns
            and len(s.ins) + len(s.outs) <= chip.vec_max_operands
            for s in plan.stages
            if isinstance(s, isa.Vec)
        )

    def _too_big(self, group: FusedGroup, plan: StagePlan) -> ResourceExhausted:
        blocking = Blocking(plan, self.chip)
        need = blocking.footprint(blocking.smallest(), 1)
        shapes = ", ".join(str(v) for v in (*group.operands, *group.results))
        return ResourceExhausted(
            f"{group.loc}: operands {shapes} do not fit the chip in any schedule: the "
            f"smallest blocks need {need:,} bytes of scratchpad, chip "
            f"{self.chip.name!r} has {self.chip.scratchpad_bytes:,} (accumulators "
            f"{self.chip.accumulator_bytes:,}, micro-programs of at most "
            f"{self.chip.vec_max_operands} tiles and {self.chip.vec_max_insns} "
            "instructions); use smaller tensors or a chip profile with more memory"
        )


def _with_graphs(node: Node, graphs: Sequence[Graph]) -> Node:
    if isinstance(node, While):
        return dataclasses.replace(node, cond=graphs[0], body=graphs[1])
    if isinstance(node, Case):
        return dataclasses.replace(node, branches=tuple(graphs))
    return node


def _emit(
    group: FusedGroup, plan: StagePlan, solution: Solution, blocking: Blocking
) -> TiledGroup:
    """Return the scheduled group: only axes that are cut become grid axes."""
    blocks = dict(solution.blocks)
    cut = [i for i in sorted(blocks) if i != K and blocks[i] < blocking.extent[i]]
    if plan.k is not None and blocks.get(plan.k, 0) < blocking.extent[plan.k]:
        cut = [i for i in cut if i != plan.k] + [plan.k]
        k_axis = len(cut) - 1
    else:
        k_axis = NO_AXIS
    number = {axis: i for i, axis in enumerate(cut)}
    offsets, used = place(blocking, blocks, solution.slots, solution.reuse)
    tiles = tuple(
        Tile(
            t.dtype,
            t.shape,
            tuple(
                number.get(a, NO_AXIS) if e > 1 else NO_AXIS
                for a, e in zip(t.axes, t.shape)
            ),
            offset,
            solution.slots if t.external else 1,
        )
        for t, offset in zip(plan.tiles, offsets)
    )
    stages = plan.stages
    if k_axis == NO_AXIS:
        stages = [dataclasses.replace(s, phase=isa.Phase.BODY) for s in stages]
    return TiledGroup(
        operands=group.operands,
        results=group.results,
        loc=group.loc,
        grid=tuple(GridAxis(blocking.extent[i], blocks[i]) for i in cut),
        k_axis=k_axis,
        tiles=tiles,
        stages=tuple(stages),
        scratchpad_bytes=used,
    )
