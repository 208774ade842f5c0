"""From the members of a group to stages on whole tensors, before any blocking.

Nodes of one phase, level and region become one micro-program.  The *level* of a node
is the number of reductions and products on the way to it, so every value that a stage
reads is complete when the stage runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vkore_jax import isa
from vkore_jax.dtypes import DType
from vkore_jax.isa import NO_AXIS, Phase, View, room, row_major
from vkore_jax.lowering.access import Access, Views
from vkore_jax.lowering.ir import Gemm, Node, Reduce, Shape, Value, Vec
from vkore_jax.lowering.micro import MicroBuilder, iota_axes
from vkore_jax.lowering.plan import FusedGroup
from vkore_jax.lowering.space import (
    Interval,
    Region,
    Span,
    axis_spans,
    covers,
    merged,
    node_shape,
    refined,
    region_size,
)

K = -1
"""Stands for the axis that a GEMM contracts in `TileSpec.axes`."""


@dataclass(frozen=True)
class TileSpec:
    """A tile before blocking: `axes` are indices of the group's axes, K or 255."""

    dtype: DType
    shape: Shape
    axes: Shape
    external: bool
    """Loaded from or stored to DRAM: double buffering helps."""
    sums: int = 0
    """Accumulator bytes of an element; 0 when it does not leave the accumulators."""


@dataclass
class StagePlan:
    """Stages and tiles of a group for one choice of the K axis."""

    extents: list[int]
    """Extent of each axis, outermost first."""
    k_extent: int
    """Extent of the contracted axis of a GEMM, or 1."""
    k: int | None
    """Axis of the group that is the K axis (K for a GEMM's), None without."""
    locked: set[int]
    tiles: list[TileSpec] = field(default_factory=list)
    stages: list[Any] = field(default_factory=list)

    def traffic_key(self) -> Any:
        """Return what decides blocks that need no shared addresses."""
        moves = tuple(
            (s.tile, s.phase, isinstance(s, isa.Load))
            for s in self.stages
            if isinstance(s, isa.Load | isa.Store)
        )
        products = tuple(
            (s.lhs, s.rhs, s.out, s.strategy)
            for s in self.stages
            if isinstance(s, isa.Gemm)
        )
        axes = (tuple(self.extents), self.k_extent, self.k, frozenset(self.locked))
        return axes, tuple(self.tiles), moves, products


def sums_of(node: Node) -> int:
    """Return the accumulator bytes of an element of a node's first result.

    They hold what belongs to further results (the index of an ARGMAX), too.
    """
    assert isinstance(node, Gemm | Reduce)
    how = node.strategy if isinstance(node, Gemm) else node.kind
    return room.sum_bytes(how, node.operands[0].dtype)


class StageBuilder:
    """Lays the members of one group out as stages."""

    def __init__(self, group: FusedGroup, views: Views) -> None:
        assert group.space is not None
        self.group, self.views = group, views
        self.space = group.space
        self.gemms = [n for n in group.members if isinstance(n, Gemm)]
        self.spans: dict[Node, list[list[Span]]] = {}
        for node in group.members:
            spans = axis_spans(node_shape(node), self.space.placed[node])
            assert spans is not None
            self.spans[node] = spans
        self.axes = self._axes()
        self.extents = [high // low for low, high in self.axes]
        self.k_extent = self.gemms[0].operands[0].shape[-1] if self.gemms else 1
        self.producer = {v: n for n in group.members for v in n.results}
        self.index = {v: i for i, v in enumerate((*group.operands, *group.results))}
        self.stored = set(group.results)

    def _axes(self) -> list[Interval]:
        axes = self.space.axes()
        if not self.gemms:
            return axes
        spans = self.spans[self.gemms[0]]
        n = spans[-1][0][:2] if spans[-1] else (1, 1)
        axes = [a for a in axes if a != n]
        if not spans[-2]:
            axes.append((n[1], n[1]))
        return [*axes, n]

    # ------------------------------------------------------------------ analysis

    def k_candidates(self) -> list[int]:
        """Axes that may be the K axis of a group without GEMM, longest first."""
        if self.gemms:
            return []
        found = {
            i
            for node in self.group.members
            if isinstance(node, Reduce)
            for i in self._reduced(node)
        }
        good = [i for i in found if self.extents[i] > 1 and self._phases(i) is not None]
        return sorted(good, key=lambda i: (-self.extents[i], i))

    def _reduced(self, node: Reduce) -> set[int]:
        holes = merged([s[:2] for a in node.axes for s in self.spans[node][a]])
        return {i for i, a in enumerate(self.axes) if a[0] < a[1] and covers(holes, *a)}

    def _on(self, region: Region, axis: int) -> bool:
        low, high = self.axes[axis]
        return low < high and covers(region, low, high)

    def _phases(self, k: int | None) -> dict[Node, Phase] | None:
        """Return the phase of every member, None when `k` cannot be the K axis."""
        members = self.group.members
        if k is None:
            return dict.fromkeys(members, Phase.BODY)
        if k == K:
            return {
                n: Phase.BODY if isinstance(n, Gemm) else Phase.TAIL for n in members
            }
        return assign_phases(
            members,
            self._inner,
            lambda n: self._on(self.space.placed[n], k),
            lambda n: isinstance(n, Reduce) and k in self._reduced(n),
        )

    def _inner(self, node: Node) -> list[Node]:
        roots = (self.views.root(v) for v in node.operands)
        return [self.producer[r] for r in roots if r in self.producer]

    def _locked(self, k: int | None) -> set[int]:
        locked: set[int] = set()
        for node in self.group.members:
            if isinstance(node, Reduce):
                locked |= self._reduced(node)
        for value in self.stored:
            region = self.space.regions[value]
            locked |= {i for i in range(len(self.axes)) if not self._on(region, i)}
        locked |= {i for i, e in enumerate(self.extents) if e == 1}
        return locked - {k}

    # ------------------------------------------------------------------ stages

    def build(self, k: int | None) -> StagePlan:
        """Return the stages with the given axis as K axis."""
        phases = self._phases(k)
        assert phases is not None
        self.plan = StagePlan(self.extents, self.k_extent, k, self._locked(k))
        self.tile_of: dict[Any, int] = {}
        self.loaded: dict[Any, int] = {}
        level: dict[Node, int] = {}
        for node in self.group.members:
            level[node] = max(
                (
                    level[p] + (0 if isinstance(p, Vec) else 1)
                    for p in self._inner(node)
                ),
                default=0,
            )
        buckets: dict[tuple[Any, ...], list[Node]] = {}
        for i, node in enumerate(self.group.members):
            region = self.space.placed[node]
            if isinstance(node, Vec):
                key = (phases[node], level[node], 0, region_size(region), region)
            else:
                key = (phases[node], level[node], 1, i, region)
            buckets.setdefault(key, []).append(node)
        order = sorted(buckets)
        home = {n: key for key in order for n in buckets[key]}
        self.readers: dict[Value, set[Any]] = defaultdict(set)
        for node in self.group.members:
            for value in node.operands:
                self.readers[self.views.root(value)].add(home[node])
        for key in order:
            nodes, phase = buckets[key], key[0]
            if isinstance(nodes[0], Vec):
                self._vec(nodes, phase, home)
            elif isinstance(nodes[0], Gemm):
                self._gemm(nodes[0], phase)
            elif isinstance(nodes[0], Reduce):
                self._reduce(nodes[0], phase)
        return self.plan

    def _new_tile(self, spec: TileSpec) -> int:
        self.plan.tiles.append(spec)
        return len(self.plan.tiles) - 1

    def _value_tile(self, value: Value, sums: int = 0) -> int:
        """Return the tile of a value that the group computes."""
        if value not in self.tile_of:
            region = self.space.regions[value]
            on = [self._on(region, i) for i in range(len(self.axes))]
            shape = tuple(e if o else 1 for e, o in zip(self.extents, on))
            axes = tuple(i if o else NO_AXIS for i, o in enumerate(on))
            spec = TileSpec(value.dtype, shape, axes, value in self.stored, sums)
            self.tile_of[value] = self._new_tile(spec)
        return self.tile_of[value]

    def _load(
        self, access: Access, shape: Shape, strides: Shape, axes: Shape, phase: Phase
    ) -> int:
        strides = tuple(s if e > 1 else 0 for s, e in zip(strides, shape))
        key = (access.value, access.offset, shape, strides, axes)
        if key not in self.loaded:
            tile = self._new_tile(TileSpec(access.value.dtype, shape, axes, True))
            view = View(
                self.index[access.value],
                access.value.dtype,
                access.offset,
                shape,
                strides,
            )
            self.plan.stages.append(isa.Load(tile, view, phase))
            self.loaded[key] = tile
        return self.loaded[key]

    def _operand(self, node: Node, value: Value, phase: Phase) -> int:
        """Return the tile that a Vec or Reduce reads for an operand."""
        access = self.views[value]
        if access.value in self.producer:
            return self._value_tile(access.value)
        shape, strides = refined(access, self.spans[node], self.axes)
        axes = tuple(i if e > 1 else NO_AXIS for i, e in enumerate(shape))
        return self._load(access, tuple(shape), tuple(strides), axes, phase)

    def _store(self, values: Sequence[Value], phase: Phase) -> None:
        for value in values:
            if value not in self.stored:
                continue
            tile = self.tile_of[value]
            shape = self.plan.tiles[tile].shape
            k = self.plan.k
            late = k is not None and (
                k == K or not self._on(self.space.regions[value], k)
            )
            view = View(self.index[value], value.dtype, 0, shape, row_major(shape))
            self.plan.stages.append(
                isa.Store(view, tile, Phase.TAIL if late else phase)
            )

    def _gemm(self, node: Gemm, phase: Phase) -> None:
        lhs, rhs = (self._matrix(node, i, phase) for i in (0, 1))
        out = self._value_tile(node.result, sums_of(node))
        self.plan.stages.append(isa.Gemm(lhs, rhs, out, node.strategy, phase))
        self._store(node.results, phase)

    def _matrix(self, node: Gemm, index: int, phase: Phase) -> int:
        """Load a matrix operand: rows or columns on the group's axes, k on K."""
        access = self.views[node.operands[index]]
        strides = tuple(s if e > 1 else 0 for e, s in zip(access.shape, access.strides))
        spans = list(self.spans[node])
        rank = len(self.axes)
        if index == 0:
            spans[-1] = []
            where, step = rank - 1, strides[-1]
        else:
            # Rows of rhs are k: nothing of it lies on the rows of the result.
            spans[-2] = []
            where, step = rank - 2, strides[-2]
        shape, steps = refined(
            Access(access.value, access.offset, access.shape, strides), spans, self.axes
        )
        axes = [i if e > 1 else NO_AXIS for i, e in enumerate(shape)]
        shape[where], steps[where] = self.k_extent, step
        axes[where] = K if self.k_extent > 1 else NO_AXIS
        if access.core().has_contiguous_rows:
            return self._load(access, tuple(shape), tuple(steps), tuple(axes), phase)
        for each in (shape, steps, axes):
            each[-2:] = each[-1], each[-2]
        tile = self._load(access, tuple(shape), tuple(steps), tuple(axes), phase)
        return self._turned(tile, phase)

    def _turned(self, tile: int, phase: Phase) -> int:
        """Return the tile with the last two axes of another one exchanged."""
        spec = self.plan.tiles[tile]
        shape, axes = ((*x[:-2], x[-1], x[-2]) for x in (spec.shape, spec.axes))
        made = self._new_tile(TileSpec(spec.dtype, shape, axes, False))
        self.plan.stages.append(isa.Transpose(tile, made, phase))
        return made

    def _reduce(self, node: Reduce, phase: Phase) -> None:
        src = self._operand(node, node.operands[0], phase)
        first, *others = node.results
        outs = (
            self._value_tile(first, sums_of(node)),
            *(self._value_tile(v) for v in others),
        )
        axes = tuple(sorted(self._reduced(node)))
        self.plan.stages.append(isa.Reduce(src, outs, node.kind, axes, phase))
        self._store(node.results, phase)

    def _vec(
        self, nodes: Sequence[Node], phase: Phase, home: dict[Node, tuple[Any, ...]]
    ) -> None:
        """Join Vec nodes into one micro-program and append it."""
        build = MicroBuilder()
        ins: list[int] = []
        of_tile: dict[int, int] = {}
        register: dict[Value, int] = {}
        here = home[nodes[0]]
        for node in nodes:
            assert isinstance(node, Vec)
            regs: list[int] = []
            for value in node.operands:
                root = self.views.root(value)
                if root in register:
                    regs.append(register[root])
                    continue
                tile = self._operand(node, value, phase)
                if tile not in of_tile:
                    of_tile[tile] = build.input(value.dtype)
                    ins.append(tile)
                regs.append(of_tile[tile])
            axes = [self._axis_of(node, a) for a in range(len(node.results[0].shape))]
            for value, reg in zip(
                node.results, build.inline(node.program, regs, axes), strict=True
            ):
                register[value] = reg
        outs = [v for v in register if v in self.stored or self.readers[v] - {here}]
        program, kept = build.finish([register[v] for v in outs])
        tiles = tuple(self._value_tile(v) for v in outs)
        stage = isa.Vec(tuple(ins[i] for i in kept), tiles, program, phase)
        self.plan.stages.append(stage)
        self._store(outs, phase)

    def _axis_of(self, node: Vec, axis: int) -> int | None:
        """Return the group's axis of a node's axis that must not be split."""
        spans = self.spans[node][axis]
        if not spans or axis not in iota_axes(node.program):
            return None
        return self.axes.index(spans[0][:2])


def assign_phases(
    members: Sequence[Node],
    inner: Callable[[Node], list[Node]],
    iterates: Callable[[Node], bool],
    contracts: Callable[[Node], bool],
) -> dict[Node, Phase] | None:
    """Return the phase of each node of a group with a K axis.

    Args:
        members: nodes in order.
        inner: members whose results a node reads.
        iterates: whether a node runs on each K step of its own.
        contracts: whether a node's result is complete after the last K step only.

    Returns:
        None when a node would read a partial sum too early.
    """
    phases: dict[Node, Phase] = {}
    needed: set[Node] = set()
    for node in reversed(members):
        body = node in needed or iterates(node)
        phases[node] = Phase.BODY if body else Phase.TAIL
        if body:
            needed.update(inner(node))
    late: set[Node] = set()
    for node in members:
        if any(p in late for p in inner(node)):
            late.add(node)
            if phases[node] is Phase.BODY:
                return None
        if contracts(node):
            late.add(node)
    return phases
