"""Blocking of a scope: rows fill the array, the K axis gives way first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.lowering.blocking import Blocking, Blocks, Solution, place
from vkore_jax.lowering.stages import StagePlan


@dataclasses.dataclass
class ScopePlan(StagePlan):
    """A stage plan whose axes are classes; `k` is one of them.

    Attributes:
        matrix: classes of rows and columns of products.
        held: tiles that stay in the accumulators over the K steps.
    """

    matrix: frozenset[int] = frozenset()
    held: set[int] = dataclasses.field(default_factory=set)

    def key(self) -> Any:
        """Return what decides the schedule: plans of equal key share it."""
        stages = tuple(
            (s.tile, s.phase, isinstance(s, isa.Load))
            if isinstance(s, isa.Load | isa.Store)
            else s
            for s in self.stages
        )
        locked = frozenset(self.locked)
        return tuple(self.extents), self.k, locked, tuple(self.tiles), stages


class ScopeBlocking(Blocking):
    """Finds blocks for a scope: rows fill the array, the K axis gives way first."""

    def __init__(self, plan: ScopePlan, chip: Chip) -> None:
        super().__init__(plan, chip)
        self.plan: ScopePlan = plan
        self.reuse = False

    def footprint(self, blocks: Mapping[int, int], slots: int) -> int:
        if not self.reuse:
            return super().footprint(blocks, slots)
        return place(self, dict(blocks), slots, True)[1]

    def accumulators(self, blocks: Mapping[int, int]) -> int:
        """Return the bytes that stay over the K steps, and the largest that do not."""
        held = passing = 0
        for i in self.sums:
            tile = self.plan.tiles[i]
            size = self.block_bytes(i, blocks) // tile.dtype.itemsize * tile.sums
            if i in self.plan.held:
                held += size
            else:
                passing = max(passing, size)
        return held + passing

    def solve_best(self) -> Solution | None:
        """Return the blocks with the least DRAM traffic, None when none fit."""
        full = {i: self.array_size(i) for i in self.free}
        for slots, reuse, least in (
            (2, False, full),
            (2, True, full),
            (1, True, full),
            (1, True, dict.fromkeys(self.free, 1)),
        ):
            self.reuse = reuse
            found = [
                Solution(blocks, slots if self.cut(blocks) else 1, reuse)
                for blocks in self._tries(slots, least)
            ]
            self.reuse = False
            if found:
                return min(found, key=self.cost)
        return None

    def array_size(self, axis: int) -> int:
        """Return the block that fills the array along an axis."""
        size = self.chip.mxu_rows if axis in self.plan.matrix else 1
        return min(self.extent[axis], size)

    def _tries(self, slots: int, least: Blocks) -> Iterator[Blocks]:
        """Yield blocks that fit, one choice for each block of the K axis."""
        limit, k = self.chip.scratchpad_bytes, self.plan.k
        depths = [1]
        if k is not None:
            step = max(min(least[k], self.chip.mxu_rows), self.grain.get(k, 1))
            depths = list(k_blocks(self.extent[k], step))
        for depth in depths:
            blocks = {i: self.extent[i] for i in self.free}
            if k is not None:
                blocks[k] = depth
            for axis in self.free:
                if self._fits(blocks, limit, slots):
                    break
                if axis != k:
                    size = self._largest(axis, blocks, limit, slots, least[axis])
                    blocks[axis] = size
            if self._fits(blocks, limit, slots):
                yield blocks


def k_blocks(extent: int, step: int) -> Iterator[int]:
    """Yield blocks of the K axis worth a try, largest first, down to `step`."""
    yield extent
    size = 1 << (max(extent - 1, 1).bit_length() - 1)
    while size >= max(step, 1):
        if size < extent:
            yield size
        size //= 2
