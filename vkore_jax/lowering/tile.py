"""Tiling: the grid and block shapes with which a group fits the scratchpad.

Blocks are cut outermost axis first, so that transfers stay long; a GEMM keeps its
output block near square and gives up depth (k) before it gives up reuse.  Everything is
closed form or a short halving loop: compile time is linear in the stages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.errors import ResourceExhausted
from vkore_jax.isa import NO_AXIS, GridAxis, Tile
from vkore_jax.isa.commands import conv_staged_bytes
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.ir import Case, Direct, Graph, Module, Node, While
from vkore_jax.lowering.plan import FusedGroup, TiledGroup
from vkore_jax.lowering.stages import K, StageBuilder, StagePlan, TileSpec

Blocks = dict[int, int]
Split = Callable[[FusedGroup], Sequence[FusedGroup]]


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

    def graph(self, graph: Graph) -> Graph:
        nodes: list[Node] = []
        for node in graph.nodes:
            if isinstance(node, FusedGroup):
                nodes += self.group(node)
            elif isinstance(node, Direct) and node.command is isa.Conv:
                nodes.append(_conv(node, self.chip))
            elif node.graphs:
                nodes.append(_with_graphs(node, [self.graph(g) for g in node.graphs]))
            else:
                nodes.append(node)
        return dataclasses.replace(graph, nodes=tuple(nodes))

    def group(self, group: FusedGroup) -> list[Node]:
        """Schedule a group; one that does not fit is cut in two."""
        build = StageBuilder(group, self.views)
        choices: list[int | None] = [None, *build.k_candidates()]
        if build.gemms and build.k_extent > 1:
            # Covers the schedules that leave k whole, too: see `_emit`.
            choices = [K]
        plans: dict[int | None, StagePlan] = {}
        for comfortable in (True, False):
            for k in choices:
                plan = plans.get(k) or plans.setdefault(k, build.build(k))
                made = Blocking(plan, self.chip).solve(comfortable)
                if made is not None and self._small_programs(plan):
                    return [_emit(group, plan, made, self.chip)]
        halves = self.split(group)
        if not halves:
            raise self._too_big(group, plans[choices[-1]])
        return [node for half in halves for node in self.group(half)]

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


@dataclasses.dataclass(frozen=True)
class Solution:
    """Blocks of the cut axes, rotating slots, and whether tiles share addresses."""

    blocks: Mapping[int, int]
    slots: int
    reuse: bool


class Blocking:
    """Finds blocks for one stage plan."""

    def __init__(self, plan: StagePlan, chip: Chip) -> None:
        self.plan, self.chip = plan, chip
        self.extent = dict(enumerate(plan.extents)) | {K: plan.k_extent}
        self.gemm = any(isinstance(s, isa.Gemm) for s in plan.stages)
        rank = len(plan.extents)
        self.array = {
            rank - 2: chip.mxu_rows,
            rank - 1: chip.mxu_cols,
            K: chip.mxu_rows,
        }
        self.free = [i for i in range(len(plan.extents)) if i not in plan.locked]
        if plan.k == K:
            self.free.append(K)
        self.sizes = [self._split(t) for t in plan.tiles]
        self.sums = [i for i, t in enumerate(plan.tiles) if t.accumulated]

    # ------------------------------------------------------------------ sizes

    def _split(self, tile: TileSpec) -> tuple[int, tuple[int, ...]]:
        """Return the bytes of a tile along axes that stay whole, and the other axes."""
        size, axes = tile.dtype.itemsize, []
        for extent, axis in zip(tile.shape, tile.axes):
            if axis in self.free:
                axes.append(axis)
            else:
                size *= extent
        return size, tuple(axes)

    def block_bytes(self, tile: int, blocks: Mapping[int, int]) -> int:
        """Return the bytes of one block of a tile."""
        size, axes = self.sizes[tile]
        for axis in axes:
            size *= blocks[axis]
        return size

    def footprint(self, blocks: Mapping[int, int], slots: int) -> int:
        """Return the scratchpad bytes without sharing of addresses."""
        align = self.chip.scratchpad_align_bytes
        total = 0
        for (size, axes), tile in zip(self.sizes, self.plan.tiles):
            for axis in axes:
                size *= blocks[axis]
            size = -(-size // align) * align
            total += size * slots if tile.external else size
        return total

    def accumulators(self, blocks: Mapping[int, int]) -> int:
        """Return the bytes of accumulators that a block needs."""
        total = 0
        for i in self.sums:
            item = self.plan.tiles[i].dtype.itemsize
            total += self.block_bytes(i, blocks) // item * max(4, item)
        return total

    def traffic(self, blocks: Mapping[int, int]) -> int:
        """Return the DRAM bytes of the schedule: loads and stores run on each block."""
        steps = 1
        for axis, block in blocks.items():
            steps *= -(-self.extent[axis] // block)
        k = self.plan.k
        late = steps if k is None else steps // -(-self.extent[k] // blocks[k])
        total = 0
        for stage in self.plan.stages:
            if isinstance(stage, isa.Load | isa.Store):
                size = self.block_bytes(stage.tile, blocks)
                total += size * (late if stage.phase is isa.Phase.TAIL else steps)
        return total

    def smallest(self, comfortable: bool = False) -> Blocks:
        """Return the smallest blocks that are allowed (that fill the array)."""
        least = dict.fromkeys(self.free, 1)
        if comfortable and self.gemm:
            for axis, size in self.array.items():
                if axis in least:
                    least[axis] = min(self.extent[axis], size)
        return least

    # ------------------------------------------------------------------ search

    def solve(self, comfortable: bool) -> Solution | None:
        """Return blocks that fit, None when there are none.

        Args:
            comfortable: ask for double buffering and rows that are worth a transfer.
        """
        limit = self.chip.scratchpad_bytes
        if comfortable:
            whole = self.footprint(self.extent, 2)
            # Several blocks let transfers overlap with work; tiny ones do not pay.
            least = limit // 8 if self.gemm else limit // 32
            target = min(max(whole // 8, least), limit)
            small = self.smallest(True)
            blocks = self._fit(target, 2, small) or self._fit(limit, 2, small)
            if blocks is None or not self._good_rows(blocks):
                return None
            many = any(b < self.extent[i] for i, b in blocks.items())
            return Solution(blocks, 2 if many else 1, False)
        for slots in (2, 1):
            blocks = self._fit(limit, slots, self.smallest())
            if blocks is not None:
                return Solution(blocks, slots, False)
        blocks = self.smallest()
        if self.accumulators(blocks) > self.chip.accumulator_bytes:
            return None
        if _place(self, blocks, 1, True)[1] <= limit:
            return Solution(blocks, 1, True)
        return None

    def _fits(self, blocks: Blocks, limit: int, slots: int) -> bool:
        return (
            self.accumulators(blocks) <= self.chip.accumulator_bytes
            and self.footprint(blocks, slots) <= limit
        )

    def _good_rows(self, blocks: Blocks) -> bool:
        """True unless the innermost axis is cut into crumbs."""
        inner = len(self.plan.extents) - 1
        return all(
            b >= min(self.extent[i], 16) for i, b in blocks.items() if i in (inner, K)
        )

    def _fit(self, limit: int, slots: int, least: Blocks) -> Blocks | None:
        """Return large blocks within the limit, None when the least do not fit."""
        if not self._fits(least, limit, slots):
            return None
        blocks: Blocks = {i: self.extent[i] for i in self.free}
        if self.gemm:
            self._shrink_matrix(blocks, limit, slots)
        for axis in self.free:
            if self._fits(blocks, limit, slots):
                break
            blocks[axis] = self._largest(axis, blocks, limit, slots, least[axis])
        return blocks

    def _largest(
        self, axis: int, blocks: Blocks, limit: int, slots: int, least: int
    ) -> int:
        """Return the largest balanced block of an axis that fits, or the least."""
        low, high = least, blocks[axis]
        # Sizes grow linearly with the block: start where the line meets the limit.
        less = self.footprint({**blocks, axis: low}, slots)
        slope = (self.footprint(blocks, slots) - less) / max(high - low, 1)
        guess = low + int((limit - less) / slope) if slope > 0 else high
        middle = min(max(guess, low + 1), high)
        while low < high:
            if self._fits({**blocks, axis: middle}, limit, slots):
                low = middle
                middle = min(middle + max((high - low) // 16, 1), high)
            else:
                high = middle - 1
                middle = (low + high + 1) // 2
        steps = -(-self.extent[axis] // low)
        even = -(-self.extent[axis] // steps)
        # Round up to a rounder number where that leaves the number of steps alone.
        grain = 1 << max(even.bit_length() - 4, 0)
        return min(_round_up(even, grain), low)

    def _shrink_matrix(self, blocks: Blocks, limit: int, slots: int) -> None:
        """Halve m, n and k of a GEMM until one sample of the batch fits.

        Depth goes first, it costs no traffic; but steps of less than two array heights
        are not worth their latency.  Then what adds the least traffic.
        """
        rank = len(self.plan.extents)
        one = {i: 1 for i in self.free if 0 <= i < rank - 2}
        while not self._fits({**blocks, **one}, limit, slots):
            choices: list[tuple[int, int, int]] = []
            for axis, size in self.array.items():
                if axis in blocks and blocks[axis] > size:
                    half = _round_up(-(-blocks[axis] // 2), size)
                    if axis == K and blocks[axis] > 2 * size:
                        choices = [(0, axis, half)]
                        break
                    cost = self.traffic({**blocks, axis: half})
                    choices.append((cost, axis, half))
            if not choices:
                return
            _, axis, blocks[axis] = min(choices)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


# ------------------------------------------------------------------ addresses


def _place(
    blocking: Blocking, blocks: Blocks, slots: int, reuse: bool
) -> tuple[list[int], int]:
    """Return the offset of each tile and the bytes of scratchpad used."""
    align = blocking.chip.scratchpad_align_bytes
    tiles = blocking.plan.tiles
    sizes = [
        _round_up(blocking.block_bytes(i, blocks), align) * (slots if t.external else 1)
        for i, t in enumerate(tiles)
    ]
    if not reuse:
        offsets, at = [], 0
        for size in sizes:
            offsets.append(at)
            at += size
        return offsets, at
    life = _lifetimes(blocking.plan.stages, len(tiles))
    offsets = [0] * len(tiles)
    placed: list[int] = []
    for t in sorted(range(len(tiles)), key=lambda t: (life[t][0], -sizes[t], t)):
        clash = sorted(
            (offsets[o], offsets[o] + sizes[o])
            for o in placed
            if life[o][0] <= life[t][1] and life[t][0] <= life[o][1]
        )
        at = 0
        for low, high in clash:
            if at + sizes[t] <= low:
                break
            at = max(at, high)
        offsets[t] = at
        placed.append(t)
    return offsets, max((o + s for o, s in zip(offsets, sizes)), default=0)


def _lifetimes(stages: Sequence[Any], count: int) -> list[tuple[int, int]]:
    """Return the first and last stage that touches each tile."""
    first, last = [len(stages)] * count, [0] * count
    for i, stage in enumerate(stages):
        for t in _touched(stage):
            first[t], last[t] = min(first[t], i), max(last[t], i)
    return list(zip(first, last))


def _touched(stage: Any) -> tuple[int, ...]:
    if isinstance(stage, isa.Load | isa.Store):
        return (stage.tile,)
    if isinstance(stage, isa.Gemm):
        return (stage.lhs, stage.rhs, stage.out)
    if isinstance(stage, isa.Vec):
        return (*stage.ins, *stage.outs)
    return (stage.src, *stage.outs)


def _emit(
    group: FusedGroup, plan: StagePlan, solution: Solution, chip: Chip
) -> TiledGroup:
    """Return the scheduled group: only axes that are cut become grid axes."""
    blocking = Blocking(plan, chip)
    blocks = dict(solution.blocks)
    cut = [i for i in sorted(blocks) if i != K and blocks[i] < blocking.extent[i]]
    if plan.k is not None and blocks.get(plan.k, 0) < blocking.extent[plan.k]:
        cut = [i for i in cut if i != plan.k] + [plan.k]
        k_axis = len(cut) - 1
    else:
        k_axis = NO_AXIS
    number = {axis: i for i, axis in enumerate(cut)}
    offsets, used = _place(blocking, blocks, solution.slots, solution.reuse)
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


# ------------------------------------------------------------------ convolution


def _conv(node: Direct, chip: Chip) -> Direct:
    """Choose how many samples and output features a block has."""
    lhs, rhs = node.operands
    out = node.result
    samples, features = out.shape[0], out.shape[-1]
    batch_groups = node.attrs["batch_groups"]
    groups = node.attrs["feature_groups"] * batch_groups

    def need(block_n: int, block_o: int) -> int:
        parts = conv_staged_bytes(lhs, rhs, out, batch_groups, block_n, block_o)
        return sum(_round_up(2 * p, chip.scratchpad_align_bytes) for p in parts)

    def sums(block_n: int, block_o: int) -> int:
        return math.prod(out.shape[1:-1]) * block_n * block_o * 4

    block_n, block_o = max(samples, 1), max(features, 1)
    while (
        need(block_n, block_o) > chip.scratchpad_bytes
        or sums(block_n, block_o) > chip.accumulator_bytes
    ):
        if block_n > 1:
            block_n = -(-block_n // 2)
        elif block_o > 1 and groups == 1:
            block_o = -(-block_o // 2)
        else:
            raise ResourceExhausted(
                f"{node.loc}: one sample of convolution {lhs} * {rhs} needs "
                f"{need(block_n, block_o):,} bytes of scratchpad and "
                f"{sums(block_n, block_o):,} bytes of accumulators; chip "
                f"{chip.name!r} has {chip.scratchpad_bytes:,} and "
                f"{chip.accumulator_bytes:,}; use a smaller image, fewer features or "
                "a chip profile with more memory"
            )
    attrs = {
        **node.attrs,
        "block_n": block_n,
        "block_o": block_o,
        "scratchpad_bytes": need(block_n, block_o),
    }
    return dataclasses.replace(node, attrs=attrs)
