"""Groups that an import rule asks for: several products, intermediates on the chip.

A scope's nodes know their axes by name only: two axes are one where an element of one
tensor is read for an element of the other.  Unification finds them; a class of axes is
an axis of the group, whether it is a batch, rows, columns, or what is contracted.  One
contracted class may become the K axis, if nothing reads a partial sum too early: the
vocabulary of a cross-entropy, the queries of an attention's gradient.  All others stay
whole in a block, as the keys of an attention do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from vkore_jax import isa
from vkore_jax.isa import NO_AXIS, Phase, View
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.ir import Gemm, Node, Reduce, Shape, Value, Vec
from vkore_jax.lowering.micro import MicroBuilder
from vkore_jax.lowering.plan import FusedGroup
from vkore_jax.lowering.scoped_axes import Axes, Dims, Read
from vkore_jax.lowering.scoped_blocking import ScopePlan
from vkore_jax.lowering.stages import TileSpec, assign_phases, sums_of


class ScopeBuilder:
    """Lays the members of one scope out as stages.

    Raises:
        Unplaceable: they do not share axes.
    """

    def __init__(self, group: FusedGroup, views: Views) -> None:
        self.group, self.views = group, views
        self.axes = Axes(group.members, views)
        self.producer = {v: n for n in group.members for v in n.results}
        self.index = {v: i for i, v in enumerate((*group.operands, *group.results))}
        self.stored = set(group.results)

    def k_candidates(self) -> list[int]:
        """Return the classes that may be the K axis, longest first."""
        found: set[int] = set()
        for node in self.group.members:
            found |= self.axes.contracted(node)
        good = [c for c in found if self._phases(c) is not None]
        return sorted(good, key=lambda c: (-self.axes.extents[c], c))

    def _inner(self, node: Node) -> list[Node]:
        roots = (self.views.root(v) for v in node.operands)
        return [self.producer[r] for r in roots if r in self.producer]

    def _phases(self, k: int | None) -> dict[Node, Phase] | None:
        """Return the phase of every member, None when `k` cannot be the K axis."""
        members = self.group.members
        if k is None:
            return dict.fromkeys(members, Phase.BODY)
        return assign_phases(
            members,
            self._inner,
            lambda n: k in self.axes.iterates[n],
            lambda n: k in self.axes.contracted(n),
        )

    def _locked(self, k: int | None) -> set[int]:
        """Return the classes that no block may cut.

        Besides what is summed and what a stored tensor lacks, that is what a product
        lacks: its blocks would be computed again for every block of such an axis.
        """
        locked: set[int] = set()
        every = range(len(self.axes.extents))
        for node in self.group.members:
            locked |= self.axes.contracted(node)
            if isinstance(node, Gemm):
                locked |= set(every) - set(self.axes.iterates[node])
            for value in node.results:
                dims = self.axes.dims(value)
                if value in self.stored:
                    locked |= set(every) - set(dims)
                locked |= {d for d in dims if d is not None and dims.count(d) > 1}
        return locked - {k}

    # ------------------------------------------------------------------ stages

    def build(self, k: int | None) -> ScopePlan:
        """Return the stages with the given class as K axis."""
        phases = self._phases(k)
        assert phases is not None
        matrix = {
            d
            for n in self.group.members
            if isinstance(n, Gemm)
            for d in self.axes.iterates[n][-3:-1]
            if d is not None
        }
        self.plan = ScopePlan(
            self.axes.extents, 1, k, self._locked(k), matrix=frozenset(matrix)
        )
        self.tile_of: dict[Value, int] = {}
        self.loaded: dict[Any, int] = {}
        self.turned: dict[int, int] = {}
        buckets = self._buckets(phases)
        order = sorted(buckets)
        home = {n: key for key in order for n in buckets[key]}
        self.readers: dict[Value, set[Any]] = defaultdict(set)
        for node in self.group.members:
            for value in node.operands:
                self.readers[self.views.root(value)].add(home[node])
        for key in order:
            nodes, phase = buckets[key], phases[buckets[key][0]]
            if isinstance(nodes[0], Vec):
                self._vec(nodes, phase, key)
            elif isinstance(nodes[0], Gemm):
                self._gemm(nodes[0], phase)
            elif isinstance(nodes[0], Reduce):
                self._reduce(nodes[0], phase)
        self.plan.stages.sort(key=lambda s: s.phase)
        return self.plan

    def _buckets(self, phases: Mapping[Node, Phase]) -> dict[tuple[Any, ...], Any]:
        """Return what becomes one stage: Vec nodes of one phase, level and shape."""
        level = self._levels(phases)
        buckets: dict[tuple[Any, ...], list[Node]] = {}
        for i, node in enumerate(self.group.members):
            key = (phases[node], level[node], 1, i)
            if isinstance(node, Vec):
                shape = node.results[0].shape
                dims = tuple(-1 if d is None else d for d in self.axes.iterates[node])
                key = (phases[node], level[node], 0, math.prod(shape), shape, dims)
            buckets.setdefault(key, []).append(node)
        return buckets

    def _levels(self, phases: Mapping[Node, Phase]) -> dict[Node, int]:
        """Return the number of contractions before each node.

        Element code that only element code of its own shape reads (a causal mask) goes
        where that is, so that it needs no tile.
        """
        level: dict[Node, int] = {}
        readers: dict[Node, list[Node]] = defaultdict(list)
        for node in self.group.members:
            inner = self._inner(node)
            level[node] = max(
                (level[p] + (not isinstance(p, Vec)) for p in inner), default=0
            )
            for p in inner:
                readers[p].append(node)
        for node in reversed(self.group.members):
            like = (phases[node], self.axes.iterates[node])
            if (
                isinstance(node, Vec)
                and not self.stored.intersection(node.results)
                and all(
                    isinstance(r, Vec) and (phases[r], self.axes.iterates[r]) == like
                    for r in readers[node]
                )
            ):
                level[node] = min((level[r] for r in readers[node]), default=0)
        return level

    def _new_tile(self, spec: TileSpec) -> int:
        self.plan.tiles.append(spec)
        return len(self.plan.tiles) - 1

    def _value_tile(self, value: Value, sums: int = 0, held: bool = False) -> int:
        """Return the tile of a value that the group computes.

        Args:
            value: what it holds.
            sums: bytes of an accumulator of one element; 0 when none is needed.
            held: the accumulators keep it over the K steps.
        """
        if value not in self.tile_of:
            axes = self._cut(self.axes.dims(value))
            spec = TileSpec(value.dtype, value.shape, axes, value in self.stored, sums)
            tile = self.tile_of[value] = self._new_tile(spec)
            if held:
                self.plan.held.add(tile)
        return self.tile_of[value]

    def _cut(self, dims: Dims) -> Shape:
        """Return the classes by which a block may be cut, NO_AXIS elsewhere."""
        locked = self.plan.locked
        return tuple(NO_AXIS if d is None or d in locked else d for d in dims)

    def _operand(self, node: Node, index: int, phase: Phase) -> int:
        """Return the tile of an operand; loads or turns it where that is needed."""
        read = self.axes.read(node, index)
        tile = self._source(read, phase)
        if not read.turned:
            return tile
        if tile not in self.turned:
            spec = self.plan.tiles[tile]
            shape, axes = ((*x[:-2], x[-1], x[-2]) for x in (spec.shape, spec.axes))
            made = self._new_tile(TileSpec(spec.dtype, shape, axes, False))
            self.plan.stages.append(isa.Transpose(tile, made, phase))
            self.turned[tile] = made
        return self.turned[tile]

    def _source(self, read: Read, phase: Phase) -> int:
        value = read.tile.value
        if value in self.producer:
            return self._value_tile(value)
        axes = self._cut(self.axes.read_dims(read))
        if read.turned:
            axes = (*axes[:-2], axes[-1], axes[-2])
        shape = read.shape
        strides = tuple(s if e > 1 else 0 for e, s in zip(shape, read.tile.strides))
        key = (value, read.tile.offset, shape, strides, axes)
        if key not in self.loaded:
            tile = self._new_tile(TileSpec(value.dtype, shape, axes, True))
            view = View(
                self.index[value], value.dtype, read.tile.offset, shape, strides
            )
            self.plan.stages.append(isa.Load(tile, view, phase))
            self.loaded[key] = tile
        return self.loaded[key]

    def _store(self, values: Sequence[Value], phase: Phase) -> None:
        for value in values:
            if value not in self.stored:
                continue
            tile, k = self.tile_of[value], self.plan.k
            late = k is not None and k not in self.plan.tiles[tile].axes
            view = View.dense(self.index[value], value.dtype, value.shape)
            stage = isa.Store(view, tile, Phase.TAIL if late else phase)
            self.plan.stages.append(stage)

    def _held(self, node: Node) -> bool:
        return self.plan.k in self.axes.contracted(node)

    def _gemm(self, node: Gemm, phase: Phase) -> None:
        lhs, rhs = (self._operand(node, i, phase) for i in (0, 1))
        out = self._value_tile(node.result, sums_of(node), self._held(node))
        self.plan.stages.append(isa.Gemm(lhs, rhs, out, node.strategy, phase))
        self._store(node.results, phase)

    def _reduce(self, node: Reduce, phase: Phase) -> None:
        src = self._operand(node, 0, phase)
        first, *others = node.results
        outs = (
            self._value_tile(first, sums_of(node), self._held(node)),
            *(self._value_tile(v) for v in others),
        )
        self.plan.stages.append(isa.Reduce(src, outs, node.kind, node.axes, phase))
        self._store(node.results, phase)

    def _vec(self, nodes: Sequence[Node], phase: Phase, here: tuple[Any, ...]) -> None:
        """Join Vec nodes into one micro-program and append it."""
        build = MicroBuilder()
        ins: list[int] = []
        of_tile: dict[int, int] = {}
        register: dict[Value, int] = {}
        for node in nodes:
            assert isinstance(node, Vec)
            regs: list[int] = []
            for i, value in enumerate(node.operands):
                root = self.views.root(value)
                if root in register:
                    regs.append(register[root])
                    continue
                tile = self._operand(node, i, phase)
                if tile not in of_tile:
                    of_tile[tile] = build.input(value.dtype)
                    ins.append(tile)
                regs.append(of_tile[tile])
            made = build.inline(node.program, regs)
            register.update(zip(node.results, made, strict=True))
        outs = [v for v in register if v in self.stored or self.readers[v] - {here}]
        program, kept = build.finish([register[v] for v in outs])
        tiles = tuple(self._value_tile(v) for v in outs)
        stage = isa.Vec(tuple(ins[i] for i in kept), tiles, program, phase)
        self.plan.stages.append(stage)
        self._store(outs, phase)
