"""Fusion: which nodes share a group, so that intermediates stay in the scratchpad.

One walk in dependency order.  A node joins the group of an operand when the group's
iteration space takes it, when no path leads from the group around to the node, and
when what the group then keeps whole (rows that are reduced and read again) leaves room
in the memories.  A node that reads two groups joins them.  Values that others need are
stored as well, so nothing expensive is computed twice.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.errors import InternalError
from vkore_jax.lowering.access import Access, Views, walk
from vkore_jax.lowering.ir import (
    Case,
    Const,
    Direct,
    Gemm,
    Graph,
    HostCall,
    Module,
    Move,
    Node,
    Reduce,
    Scope,
    Value,
    Vec,
    While,
)
from vkore_jax.lowering.options import Options
from vkore_jax.lowering.plan import FusedGroup
from vkore_jax.lowering.space import (
    Region,
    Space,
    axis_spans,
    covers,
    node_shape,
    region_size,
    source_region,
)
from vkore_jax.lowering.stages import sums_of

MAX_SEARCH = 128
"""Items that a reachability search visits before it gives up (and does not fuse)."""
MAX_MEMBERS = 160
"""Longest group; bounds the work of a join."""


def fuse(module: Module, chip: Chip, options: Options, views: Views) -> Module:
    """Return the module with groups in place of Vec, Reduce and Gemm nodes."""
    uses: Counter[Value] = Counter(views.root(v) for v in module.graph.outputs)
    for node in walk(module.graph):
        if not isinstance(node, Move):
            uses.update(views.root(v) for v in node.operands)
        for graph in node.graphs:
            uses.update(views.root(v) for v in graph.outputs)
    graph = _rewrite(module.graph, chip, options, views, uses)
    return dataclasses.replace(module, graph=graph)


def _rewrite(
    graph: Graph, chip: Chip, options: Options, views: Views, uses: Counter[Value]
) -> Graph:
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, While):
            node = dataclasses.replace(
                node,
                cond=_rewrite(node.cond, chip, options, views, uses),
                body=_rewrite(node.body, chip, options, views, uses),
            )
        elif isinstance(node, Case):
            branches = tuple(
                _rewrite(b, chip, options, views, uses) for b in node.branches
            )
            node = dataclasses.replace(node, branches=branches)
        nodes.append(node)
    fuser = _Fuser(chip, views, uses, options.fuse)
    for node in nodes:
        # From here on moves are known to `views` only: they are no commands.
        if not isinstance(node, Move):
            fuser.add(node)
    return dataclasses.replace(graph, nodes=fuser.ordered())


def group_of(
    members: Sequence[Node], space: Space | None, views: Views, results: Iterable[Value]
) -> FusedGroup:
    """Return a group; its operands are what its members read from DRAM."""
    inside = {v for n in members for v in n.results}
    operands: dict[Value, None] = {}
    for node in members:
        for value in node.operands:
            root = views.root(value)
            if root not in inside:
                operands[root] = None
    lead = next((n for n in members if isinstance(n, Gemm)), members[-1])
    return FusedGroup(
        operands=tuple(operands),
        results=tuple(results),
        loc=lead.loc,
        members=tuple(members),
        space=space,
    )


class _Item:
    """A future command: a group that may still grow, or any other node."""

    __slots__ = (
        "first",
        "followers",
        "inside",
        "insns",
        "last",
        "lead",
        "members",
        "outs",
        "preds",
        "rank",
        "scoped",
        "space",
    )

    def __init__(self, order: int, space: Space | None) -> None:
        self.first = self.last = order
        self.lead = 0
        """Order of the member that decides when the item runs."""
        self.members: list[Node] = []
        self.space = space
        self.scoped = False
        """A scope of an import rule: no node joins that is not of it."""
        self.preds: set[_Item] = set()
        self.followers: set[_Item] = set()
        """Whose `preds` hold this item."""
        self.rank = order
        """Greater than the rank of every pred.  Program order is no such number once
        items are unions: an early member's reader may depend on a late member.
        """
        self.inside: Counter[Value] = Counter()
        """How often members read each member's result."""
        self.outs: set[Value] = set()
        """Results that others read as well (as far as known)."""
        self.insns = 0


class _BlockSize:
    """Elements of a region's smallest useful block: what is locked is whole, rows
    (and the columns of a product) have eight elements, all else has one.
    """

    def __init__(self, space: Space) -> None:
        lock, axes = space.lock(), space.axes()
        wide = [axes[-1]] if axes else []
        if space.gemm is not None:
            wide.append((1, space.gemm.result.shape[-1]))
        self._sizes: dict[Region, int] = {}
        self._axes: list[tuple[int, int, int]] = []
        for low, high in axes:
            extent = high // low
            if covers(lock, low, high):
                self._axes.append((low, high, extent))
            elif (low, high) in wide:
                self._axes.append((low, high, min(extent, 8)))

    def __call__(self, region: Region) -> int:
        size = self._sizes.get(region)
        if size is None:
            size = 1
            for low, high, extent in self._axes:
                if covers(region, low, high):
                    size *= extent
            self._sizes[region] = size
        return size


class _Fuser:
    def __init__(
        self,
        chip: Chip,
        views: Views,
        uses: Counter[Value],
        enabled: bool,
        scopes: bool = True,
    ) -> None:
        self.chip, self.views, self.uses = chip, views, uses
        self.enabled = enabled
        self.heed = scopes and enabled
        self.scopes: dict[Scope, _Item] = {}
        self.items: dict[_Item, None] = {}
        self.item_of: dict[Value, _Item] = {}
        self.order = 0
        self.effect: _Item | None = None

    # ------------------------------------------------------------------ building

    def add(self, node: Node) -> None:
        self.order += 1
        reads = self._reads(node)
        preds = {self.item_of[r] for r in reads if r in self.item_of}
        if self.heed and node.scope is not None:
            self._join_scope(node, node.scope, preds)
            return
        fusible = isinstance(node, Vec | Reduce | Gemm)
        home = self._home(node, preds) if fusible and self.enabled else None
        if home is None:
            space = None
            if fusible:
                space = Space.empty(math.prod(node_shape(node)))
                if not space.place(node, space.full, self.views):
                    raise InternalError(f"{node.loc}: node has no iteration space")
            home = _Item(self.order, space)
            self.items[home] = None
        self._append(home, node)
        # Joining has renamed items: look the operands' up again.
        preds = {self.item_of[r] for r in reads if r in self.item_of}
        if _has_effect(node):
            if self.effect is not None:
                preds.add(self.effect)
            self.effect = home
        self._wait(home, preds)
        if isinstance(node, Gemm) or (not home.lead and home.preds):
            home.lead = self.order
        for value in node.results:
            self.item_of[value] = home

    def _join_scope(self, node: Node, scope: Scope, preds: set[_Item]) -> None:
        """Add a node to the group of its scope, or begin it (again, in a tangle)."""
        item = self.scopes.get(scope)
        if item is None or self._reaches(item, preds - {item}):
            item = self.scopes[scope] = _Item(self.order, None)
            item.scoped = True
            self.items[item] = None
        self._append(item, node)
        self._wait(item, preds)
        item.lead = self.order
        for value in node.results:
            self.item_of[value] = item

    def _append(self, item: _Item, node: Node) -> None:
        item.members.append(node)
        item.last = self.order
        if item.space is None and not item.scoped:
            return
        for value in node.operands:
            root = self.views.root(value)
            if self.item_of.get(root) is item:
                item.inside[root] += 1
                if item.inside[root] == self.uses[root]:
                    item.outs.discard(root)
        item.outs.update(v for v in node.results if self.uses[v])
        item.insns += _insns(node)

    def _reads(self, node: Node) -> set[Value]:
        """Return the owners that a node reads, its nested graphs included."""
        reads = {self.views.root(v) for v in node.operands}
        for graph in node.graphs:
            reads |= {self.views.root(v) for v in graph.outputs}
            for inner in graph.nodes:
                reads |= self._reads(inner)
        return reads

    def _home(self, node: Node, preds: set[_Item]) -> _Item | None:
        """Return the group that takes the node, after joining groups it reads."""
        if isinstance(node, Gemm):
            return None
        found = [(p.space.gemm is None, -p.last, p) for p in preds if p.space]
        found.sort(key=lambda f: f[:2])
        near = [f[2] for f in found]
        for item in near:
            if self._reaches(item, preds - {item}):
                continue
            space = self._joined(item, node)
            if space is None:
                continue
            item.space = space
            for other in near:
                rest = preds - {item, other}
                if other is not item and not self._reaches(other, rest):
                    preds = self._merge(item, other, node, preds)
            return item
        return None

    def _reaches(self, source: _Item, sinks: Iterable[_Item]) -> bool:
        """True when a path leads from `source` to one of the sinks (or may)."""
        stack = [s for s in sinks if s.rank >= source.rank]
        seen = set(stack)
        while stack:
            item = stack.pop()
            if item is source:
                return True
            if len(seen) > MAX_SEARCH:
                return True
            for p in item.preds:
                if p not in seen and p.rank >= source.rank:
                    seen.add(p)
                    stack.append(p)
        return False

    def _wait(self, item: _Item, preds: Iterable[_Item]) -> None:
        """Add edges to an item; ranks rise where they must."""
        for p in preds:
            if p is not item:
                item.preds.add(p)
                p.followers.add(item)
        item.rank = max([item.rank, *(p.rank + 1 for p in item.preds)])
        # In the order of the old ranks, so that each is raised once and for all.
        raised: list[tuple[int, int, _Item]] = []

        def push_followers(top: _Item) -> None:
            for f in top.followers:
                if f.rank <= top.rank:
                    heapq.heappush(raised, (f.rank, id(f), f))

        push_followers(item)
        while raised:
            f = heapq.heappop(raised)[2]
            if f is item:
                raise InternalError("fusion made groups that wait for each other")
            rank = max(p.rank for p in f.preds) + 1
            if f.rank < rank:
                f.rank = rank
                push_followers(f)

    # ------------------------------------------------------------------ joining

    def _joined(self, item: _Item, node: Node) -> Space | None:
        """Return the item's space with the node placed, None when it cannot join."""
        assert item.space is not None
        if len(item.members) >= MAX_MEMBERS:
            return None
        size = math.prod(node_shape(node))
        space = item.space
        needs = (item.insns + _insns(node), len(item.outs) + len(node.results))
        candidates: list[Region] = []
        for value in node.operands:
            region = space.regions.get(self.views.root(value))
            if region is not None and region_size(region) == size:
                candidates.append(region)
        if space.total == size:
            candidates.append(space.full)
        for region in dict.fromkeys(candidates):
            trial = space.copy()
            if trial.place(node, region, self.views) and self._room(trial, *needs):
                return trial
        if size > space.total and self._all_read_by(item, node):
            grown = self._grown(space, node, size)
            if grown is not None and self._room(grown, *needs):
                return grown
        return None

    def _all_read_by(self, item: _Item, node: Node) -> bool:
        """True when nobody but the node will read what the group leaves."""
        if len(item.outs) > len(node.operands):
            return False
        reads = Counter(self.views.root(v) for v in node.operands)
        return all(self.uses[v] == item.inside[v] + reads[v] for v in item.outs)

    def _grown(self, space: Space, node: Node, size: int) -> Space | None:
        """Return the space of a larger node that repeats the group's values."""
        whole = Space.empty(size)
        spans = axis_spans(node_shape(node), whole.full)
        assert spans is not None
        for value in node.operands:
            access = self.views[value]
            region = space.regions.get(access.value)
            if region is None or region != space.full:
                continue
            grown = space.embed(source_region(access, spans), size)
            if grown is not None and grown.place(node, grown.full, self.views):
                return grown
        return None

    def _merge(
        self, item: _Item, other: _Item, node: Node, preds: set[_Item]
    ) -> set[_Item]:
        """Join another group that the node reads, where that is possible.

        Returns:
            What the node waits for besides the joined group.
        """
        assert item.space is not None
        assert other.space is not None
        if len(item.members) + len(other.members) > MAX_MEMBERS:
            return preds
        if item.space.gemm is not None and other.space.gemm is not None:
            return preds
        if self._reaches(item, [other]) or self._reaches(other, [item]):
            return preds
        needs = (
            item.insns + other.insns + _insns(node),
            len(item.outs | other.outs) + len(node.results),
        )
        spans = axis_spans(node_shape(node), item.space.placed[node])
        assert spans is not None
        for value in node.operands:
            access = self.views[value]
            if self.item_of.get(access.value) is not other or access.offset:
                continue
            target = source_region(access, spans)
            moved = self._aligned(item, other, node, access, target)
            if moved is None:
                continue
            trial = item.space.copy()
            # The node is placed again so that the join is checked element by element.
            trial.remove(node)
            if (
                trial.join(moved)
                and trial.place(node, item.space.placed[node], self.views)
                and self._room(trial, *needs)
            ):
                self._absorb(item, other, trial)
                return preds - {other}
        return preds

    def _aligned(
        self, item: _Item, other: _Item, node: Node, access: Access, target: Region
    ) -> Space | None:
        """Return the space of `other` in the coordinates of `item`."""
        assert item.space is not None
        assert other.space is not None
        region = other.space.regions[access.value]
        if region == other.space.full:
            if target != item.space.full and not self._all_read_by(other, node):
                return None
            return other.space.embed(target, item.space.total)
        if other.space.total == item.space.total and region == target:
            return other.space
        return None

    def _absorb(self, item: _Item, other: _Item, space: Space) -> None:
        """Make `item` the union of two groups that do not depend on each other."""
        item.space = space
        item.members += other.members
        item.inside.update(other.inside)
        item.outs |= other.outs
        item.insns += other.insns
        item.first = min(item.first, other.first)
        item.last = max(item.last, other.last)
        if space.gemm is None or space.gemm in other.members:
            item.lead = max(item.lead, other.lead)
        del self.items[other]
        for p in other.preds:
            p.followers.discard(other)
        for follower in other.followers:
            follower.preds.discard(other)
            follower.preds.add(item)
        item.followers |= other.followers
        item.rank = max(item.rank, other.rank)
        self._wait(item, other.preds)
        for member in other.members:
            for v in member.results:
                self.item_of[v] = item

    # ------------------------------------------------------------------ room

    def _room(self, space: Space, insns: int, outs: int) -> bool:
        """True when the smallest useful block of a group fits the memories."""
        chip = self.chip
        if insns > chip.vec_max_insns:
            return False
        if len(space.loads) + outs > chip.vec_max_operands - 8:
            return False
        used = sums = 0
        if space.gemm is not None:
            n = space.gemm.result.shape[-1]
            columns = n if covers(space.lock(), 1, n) else 8
            used += 64 * 8 + 8 * columns * space.gemm.operands[1].dtype.itemsize
        block = _BlockSize(space)
        for value, region in space.regions.items():
            used += block(region) * value.dtype.itemsize
        for access, region in space.loads.items():
            used += 2 * block(region) * access.value.dtype.itemsize
        for node in space.contractions:
            sums += block(space.regions[node.results[0]]) * sums_of(node)
        return used <= chip.scratchpad_bytes * 3 // 4 and sums <= chip.accumulator_bytes

    # ------------------------------------------------------------------ emission

    def ordered(self) -> tuple[Node, ...]:
        """Return the commands in a dependency order near the program's own."""
        ready: list[tuple[float, int]] = []
        items = list(self.items)
        index = {item: i for i, item in enumerate(items)}
        waiting = {item: len(item.preds) for item in items}
        keys = self._keys(items)
        for item in items:
            if not item.preds:
                heapq.heappush(ready, (keys[item], index[item]))
        nodes: list[Node] = []
        while ready:
            item = items[heapq.heappop(ready)[1]]
            nodes.append(self._made(item))
            for f in item.followers:
                waiting[f] -= 1
                if not waiting[f]:
                    heapq.heappush(ready, (keys[f], index[f]))
        if len(nodes) != len(items):
            raise InternalError("fusion made groups that wait for each other")
        return tuple(nodes)

    def _keys(self, items: Sequence[_Item]) -> dict[_Item, float]:
        """Return the moment at which each item wants to run, once it may.

        Copies, and what needs only parameters, wait for their first reader: they free
        nothing, so running them early only lengthens a life in DRAM.
        """
        keys: dict[_Item, float] = {}
        for item in sorted(items, key=lambda x: -x.rank):
            node = item.members[0]
            keys[item] = 0 if isinstance(node, Const) else item.lead or item.first
            late = isinstance(node, Direct) and node.command is isa.Copy
            late = late or all(isinstance(p.members[0], Const) for p in item.preds)
            readers = [keys[f] for f in item.followers]
            if late and readers and not isinstance(node, Const | HostCall):
                keys[item] = min(readers) - 0.5
        return keys

    def _made(self, item: _Item) -> Node:
        if item.space is None and not item.scoped:
            return item.members[0]
        members = in_order(item.members, self.views)
        results = [v for m in members for v in m.results if v in item.outs]
        return group_of(members, item.space, self.views, results)


def in_order(members: Sequence[Node], views: Views) -> list[Node]:
    """Return members so that every one follows what it reads; stable."""
    producer = {v: n for n in members for v in n.results}
    done: set[Node] = set()
    out: list[Node] = []

    def visit(node: Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            wait = [
                producer[r]
                for r in (views.root(v) for v in top.operands)
                if r in producer and producer[r] not in done
            ]
            if wait:
                stack += wait[::-1]
            else:
                done.add(top)
                out.append(top)
                stack.pop()

    for member in members:
        visit(member)
    return out


def _insns(node: Node) -> int:
    return len(node.program.insns) if isinstance(node, Vec) else 0


def _has_effect(node: Node) -> bool:
    if isinstance(node, HostCall):
        return node.effect
    return any(_has_effect(n) for g in node.graphs for n in g.nodes)


def _with_copies(members: Sequence[Node], views: Views) -> list[Node]:
    """Have the layout engine turn in DRAM what the group would have on the chip."""
    made: dict[Value, Value] = {}
    out: list[Node] = []
    for node in members:
        operands = list(node.operands)
        for i, value in enumerate(operands):
            if isinstance(node, Gemm) and not views[value].core().has_contiguous_rows:
                if value not in made:
                    made[value] = Value(value.dtype, value.shape)
                    copy = Direct(
                        operands=(value,),
                        results=(made[value],),
                        loc=node.loc,
                        command=isa.Copy,
                    )
                    out.append(copy)
                operands[i] = made[value]
        out.append(dataclasses.replace(node, operands=tuple(operands)))
    return out


def split(group: FusedGroup, chip: Chip, views: Views) -> Sequence[Node]:
    """Cut a group that does not fit in two; nothing when it has one member.

    The members of a scope are fused anew, as if there had been no hint.
    """
    if group.space is None:
        members = _with_copies(group.members, views)
        uses: Counter[Value] = Counter(group.results)
        for node in members:
            uses.update(views.root(v) for v in node.operands)
        fuser = _Fuser(chip, views, uses, True, scopes=False)
        for node in members:
            fuser.add(node)
        return fuser.ordered()
    if len(group.members) < 2:
        return ()
    half = len(group.members) // 2
    parts = (group.members[:half], group.members[half:])
    stored = set(group.results)
    late = {views.root(v) for n in parts[1] for v in n.operands}
    made: list[FusedGroup] = []
    for part in parts:
        space = Space.empty(group.space.total)
        for node in part:
            region = group.space.placed[node]
            if not space.place(node, region, views):
                raise InternalError(f"{node.loc}: a part of a group has no space")
        results = [
            v
            for n in part
            for v in n.results
            if v in stored or (part is parts[0] and v in late)
        ]
        made.append(group_of(part, space, views, results))
    return made
