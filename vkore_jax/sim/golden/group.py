"""The meaning of a group: its schedule executed literally, block by block."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from vkore_jax.chips import Chip
from vkore_jax.errors import VkoreError
from vkore_jax.isa import (
    NO_AXIS,
    STAGES,
    Gemm,
    Group,
    Load,
    Phase,
    Reduce,
    Stage,
    Store,
    Transpose,
    Vec,
)
from vkore_jax.isa.rules import Rules
from vkore_jax.sim.golden import matrix, strategies
from vkore_jax.sim.golden.memory import Dram, Scratchpad
from vkore_jax.sim.golden.micro import evaluate

STAGE_RULES: Rules[Callable[..., None]] = Rules("golden stages", over=STAGES.values())


class GroupRun:
    """State of a group: the present block, the scratchpad, the accumulators."""

    def __init__(self, group: Group, dram: Dram, chip: Chip) -> None:
        self.group = group
        self.dram = dram
        self.pad = Scratchpad(group, chip)
        self.block: tuple[int, ...] = ()
        self.accumulators: dict[int, Any] = {}
        self._counts = [max(1, -(-a.extent // a.block)) for a in group.grid]

    def run(self) -> None:
        """Run every block of the grid in row-major order, K innermost."""
        group = self.group
        for s in group.stages:
            if isinstance(s, Store):
                self.dram.claim(s.dst)
        for s in group.stages:
            if isinstance(s, Load):
                self.dram.check_readable(s.src)
        body = [s for s in group.stages if s.phase is Phase.BODY]
        tail = [s for s in group.stages if s.phase is Phase.TAIL]
        blocks = itertools.product(*[range(n) for n in self._counts])
        for step, block in enumerate(blocks):
            self.block = block
            self.pad.new_step(step)
            if self.first_k:
                self.accumulators.clear()
            self._stages(body)
            if self.last_k:
                self._stages(tail)

    @property
    def first_k(self) -> bool:
        """True on the first K step of a block (always, without a K axis)."""
        return self.group.k_axis == NO_AXIS or self.block[-1] == 0

    @property
    def last_k(self) -> bool:
        """True on the last K step of a block (always, without a K axis)."""
        return self.group.k_axis == NO_AXIS or self.block[-1] == self._counts[-1] - 1

    def box(self, tile: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return first index and shape of a tile's present block (maybe ragged)."""
        t = self.group.tiles[tile]
        start, shape = [], []
        for extent, axis in zip(t.shape, t.axes):
            if axis == NO_AXIS:
                start.append(0)
                shape.append(extent)
                continue
            size = self.group.grid[axis].block
            start.append(self.block[axis] * size)
            shape.append(min(size, extent - start[-1]))
        return tuple(start), tuple(shape)

    def read(self, tile: int) -> Any:
        """Return the present block of a tile."""
        return self.pad.read(tile, self.box(tile)[1])

    def cut_by_k(self, tile: int, axis: int) -> bool:
        """True when the group's K axis cuts an axis of a tile."""
        k = self.group.k_axis
        return k != NO_AXIS and self.group.tiles[tile].axes[axis] == k

    def _stages(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            try:
                STAGE_RULES[type(stage)](self, stage)
            except VkoreError as e:
                number = self.group.stages.index(stage)
                raise e.with_context(
                    f"in stage {number} ({stage.MNEMONIC}), block {self.block}"
                ) from None


@STAGE_RULES.rule(Load)
def load(run: GroupRun, stage: Load) -> None:
    """Tile = block of the DRAM tensor."""
    run.pad.write(stage.tile, run.dram.read_block(stage.src, *run.box(stage.tile)))


@STAGE_RULES.rule(Store)
def store(run: GroupRun, stage: Store) -> None:
    """Block of the DRAM tensor = tile."""
    start, _ = run.box(stage.tile)
    run.dram.write_block(stage.dst, start, run.read(stage.tile))


@STAGE_RULES.rule(Gemm)
def gemm(run: GroupRun, stage: Gemm) -> None:
    """Multiply a block; over a cut K the sums leave after the last step."""
    lhs, rhs = run.read(stage.lhs), run.read(stage.rhs)
    dtype = run.group.tiles[stage.out].dtype
    if not run.cut_by_k(stage.lhs, -1):
        part = strategies.multiply(lhs, rhs, stage.strategy)
        run.pad.write(stage.out, matrix.finish(part, dtype))
        return
    total = run.accumulators.get(stage.out)
    total = strategies.multiply(lhs, rhs, stage.strategy, total=total)
    run.accumulators[stage.out] = total
    if run.last_k:
        run.pad.write(stage.out, matrix.finish(total, dtype))


@STAGE_RULES.rule(Vec)
def vec(run: GroupRun, stage: Vec) -> None:
    """Run the micro-program on the block."""
    start, shape = run.box(stage.outs[0])
    values = evaluate(stage.program, [run.read(t) for t in stage.ins], shape, start)
    for tile, value in zip(stage.outs, values):
        run.pad.write(tile, value)


@STAGE_RULES.rule(Reduce)
def reduce(run: GroupRun, stage: Reduce) -> None:
    """Reduce a block; over a cut axis the partial results wait for the last step."""
    start, _ = run.box(stage.src)
    part = matrix.reduce_block(
        stage.kind, run.read(stage.src), stage.axes, start[stage.axes[0]]
    )
    if any(run.cut_by_k(stage.src, a) for a in stage.axes):
        total = run.accumulators.get(stage.outs[0])
        part = part if total is None else matrix.combine(stage.kind, total, part)
        run.accumulators[stage.outs[0]] = part
        if not run.last_k:
            return
    for tile, value in zip(stage.outs, matrix.leave(stage.kind, part)):
        run.pad.write(tile, matrix.finish(value, run.group.tiles[tile].dtype))


@STAGE_RULES.rule(Transpose)
def transpose(run: GroupRun, stage: Transpose) -> None:
    """Exchange the last two axes of a block."""
    run.pad.write(stage.out, run.read(stage.src).swapaxes(-1, -2))


STAGE_RULES.complete()
