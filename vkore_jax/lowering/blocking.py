"""Blocking: which blocks of a stage plan fit the memories, and where tiles lie.

Blocks are cut outermost axis first, so that transfers stay long; a GEMM keeps its
output block near square and gives up depth (k) before it gives up reuse.  Everything is
closed form or a short halving loop: compile time is linear in the stages.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.isa import room
from vkore_jax.isa.strategies import STRATEGIES
from vkore_jax.lowering.stages import K, StagePlan, TileSpec

Blocks = dict[int, int]


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
        self.grain = _grains(plan)
        self.array = {
            rank - 2: chip.mxu_rows,
            rank - 1: chip.mxu_cols,
            K: round_up(chip.mxu_rows, self.grain.get(K, 1)),
        }
        self.free = [i for i in range(len(plan.extents)) if i not in plan.locked]
        if plan.k == K:
            self.free.append(K)
        self.sizes = [self._split(t) for t in plan.tiles]
        self.sums = [i for i, t in enumerate(plan.tiles) if t.sums]

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
            size = room.slot_bytes(size, align)
            total += size * slots if tile.external else size
        return total

    def accumulators(self, blocks: Mapping[int, int]) -> int:
        """Return the bytes of accumulators that a block needs."""
        total = 0
        for i in self.sums:
            tile = self.plan.tiles[i]
            total += self.block_bytes(i, blocks) // tile.dtype.itemsize * tile.sums
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

    def cut(self, blocks: Blocks) -> list[int]:
        """Return the axes that are cut, in the order of the grid."""
        cut = [i for i in sorted(blocks) if blocks[i] < self.extent[i]]
        k = self.plan.k
        return [*(i for i in cut if i != k), *(i for i in cut if i == k)]

    def cost(self, made: Solution) -> tuple[int, int]:
        """Return DRAM bytes (as `vkore_jax.cost` counts them) and blocks."""
        blocks, tiles = dict(made.blocks), self.plan.tiles
        order = self.cut(blocks)
        counts = [-(-self.extent[i] // blocks[i]) for i in order]
        total = 0
        for stage in self.plan.stages:
            if not isinstance(stage, isa.Load | isa.Store):
                continue
            tile = tiles[stage.tile]
            moves = 1
            if isinstance(stage, isa.Load):
                inside = [n for n, i in enumerate(order) if i in tile.axes]
                upto = range(inside[-1] + 1 if inside else 0)
                moves = math.prod(counts[n] for n in upto if n not in inside)
            total += math.prod(tile.shape) * tile.dtype.itemsize * moves
        return total, math.prod(counts)

    def smallest(self, comfortable: bool = False) -> Blocks:
        """Return the smallest blocks that are allowed (that fill the array)."""
        least = {i: min(self.extent[i], self.grain.get(i, 1)) for i in self.free}
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
            found = [Solution(blocks, 2 if self.cut(blocks) else 1, False)]
            if self.gemm and self.cut(blocks):
                # Larger blocks, or all of k in a block, may spare an operand its trips.
                for size in (target, max(target, limit // 2)):
                    for whole_k in (False, True):
                        blocks = self._fit(size, 2, small, whole_k)
                        if blocks is not None and self._good_rows(blocks):
                            found.append(Solution(blocks, 2, False))
            return min(found, key=self.cost)
        for slots in (2, 1):
            blocks = self._fit(limit, slots, self.smallest())
            if blocks is not None:
                return Solution(blocks, slots, False)
        blocks = self.smallest()
        if self.accumulators(blocks) > self.chip.accumulator_bytes:
            return None
        if place(self, blocks, 1, True)[1] <= limit:
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

    def _fit(
        self, limit: int, slots: int, least: Blocks, whole_k: bool = False
    ) -> Blocks | None:
        """Return large blocks within the limit, None when the least do not fit."""
        if not self._fits(least, limit, slots):
            return None
        blocks: Blocks = {i: self.extent[i] for i in self.free}
        if self.gemm:
            self._shrink_matrix(blocks, limit, slots, whole_k)
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
        block = min(round_up(even, grain), low)
        if block < self.extent[axis]:
            block -= block % self.grain.get(axis, 1)
        return max(block, least)

    def _shrink_matrix(
        self, blocks: Blocks, limit: int, slots: int, whole_k: bool
    ) -> None:
        """Halve m, n and k of a GEMM until one sample of the batch fits.

        Depth goes first, it costs no traffic; but steps of less than two array heights
        are not worth their latency.  Then what adds the least traffic.
        """
        rank = len(self.plan.extents)
        one = {i: 1 for i in self.free if 0 <= i < rank - 2}
        while not self._fits({**blocks, **one}, limit, slots):
            choices: list[tuple[int, int, int]] = []
            for axis, size in self.array.items():
                if axis == K and whole_k:
                    continue
                if axis in blocks and blocks[axis] > size:
                    half = round_up(-(-blocks[axis] // 2), size)
                    if axis == K and blocks[axis] > 2 * size:
                        choices = [(0, axis, half)]
                        break
                    cost = self.traffic({**blocks, axis: half})
                    choices.append((cost, axis, half))
            if not choices:
                return
            _, axis, blocks[axis] = min(choices)


def _grains(plan: StagePlan) -> dict[int, int]:
    """Return the axes that must be cut in multiples: k, where segments share scales."""
    grains: dict[int, int] = {}
    for stage in plan.stages:
        if isinstance(stage, isa.Gemm):
            axis = plan.tiles[stage.lhs].axes[-1]
            segment = STRATEGIES[stage.strategy].segment
            if segment:
                grains[axis] = max(segment, grains.get(axis, 1))
    return grains


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


# ------------------------------------------------------------------ addresses


def place(
    blocking: Blocking, blocks: Blocks, slots: int, reuse: bool
) -> tuple[list[int], int]:
    """Return the offset of each tile and the bytes of scratchpad used."""
    align = blocking.chip.scratchpad_align_bytes
    tiles = blocking.plan.tiles
    sizes = [
        room.slot_bytes(blocking.block_bytes(i, blocks), align)
        * (slots if t.external else 1)
        for i, t in enumerate(tiles)
    ]
    if not reuse:
        offsets, at = [], 0
        for size in sizes:
            offsets.append(at)
            at += size
        return offsets, at
    life = _lifetimes(blocking.plan.stages, len(tiles))
    if slots > 1:
        # A double-buffered tile is filled for the next block meanwhile.
        always = (0, len(blocking.plan.stages))
        life = [always if t.external else x for t, x in zip(tiles, life)]
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
    if isinstance(stage, isa.Transpose):
        return (stage.src, stage.out)
    if isinstance(stage, isa.Vec):
        return (*stage.ins, *stage.outs)
    return (stage.src, *stage.outs)
