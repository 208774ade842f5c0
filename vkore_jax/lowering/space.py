"""Iteration spaces: one set of axes for all nodes of a group.

Nodes of a group may see the same elements in other shapes: a GEMM has rows of 128
tokens where its epilogue counts (2, 64).  A space is therefore not a shape but a set
of *cuts* of the flat index range: positions 1 = c0 < c1 < ... < total, each dividing
the next.  Neighbouring cuts are the axes of the group.  A value occupies a *region*, a
set of such intervals (a row statistic has no interval of the row).  Coarse spaces are
the rule: a cut is made only where some node needs one, so groups have low rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from vkore_jax.lowering.access import Access, Views
from vkore_jax.lowering.ir import Gemm, Node, Reduce, Shape, Value, Vec
from vkore_jax.lowering.micro import iota_axes

Interval = tuple[int, int]
Region = tuple[Interval, ...]
Span = tuple[int, int, int]
"""Low position, high position, elements of the node's axis below low."""


def region_size(region: Region) -> int:
    """Return the number of elements of a region."""
    size = 1
    for low, high in region:
        size *= high // low
    return size


def merged(intervals: Sequence[Interval]) -> Region:
    """Return intervals in ascending order, neighbours joined."""
    out: list[Interval] = []
    for low, high in sorted(intervals):
        if low == high:
            continue
        if out and out[-1][1] == low:
            out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return tuple(out)


def union(intervals: Iterable[Interval]) -> Region:
    """Return the union of intervals that may overlap."""
    out: list[Interval] = []
    for low, high in sorted(intervals):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def without(region: Region, holes: Sequence[Interval]) -> Region:
    """Return the region without some intervals (each inside it)."""
    points = {p for i in (*region, *holes) for p in i}
    order = sorted(points)
    pieces = [
        (low, high)
        for low, high in pairwise(order)
        if covers(region, low, high) and not covers(holes, low, high)
    ]
    return merged(pieces)


def covers(region: Sequence[Interval], low: int, high: int) -> bool:
    """True when one interval of the region holds [low, high)."""
    for a, b in region:  # noqa: SIM110 -- the innermost loop of fusion
        if a <= low and high <= b:
            return True
    return False


def axis_spans(shape: Shape, region: Region) -> list[list[Span]] | None:
    """Return where each axis of a shape lies in a region, innermost span first.

    Returns:
        None when an axis boundary falls between divisors of the region.
    """
    spans: list[list[Span]] = [[] for _ in shape]
    index, at, left = -1, 1, 1
    for axis in range(len(shape) - 1, -1, -1):
        extent, factor = shape[axis], 1
        while extent > 1:
            if left == 1:
                index += 1
                if index == len(region):
                    return None
                at, left = region[index][0], region[index][1] // region[index][0]
            take = min(extent, left)
            if extent % take or left % take:
                return None
            spans[axis].append((at, at * take, factor))
            factor *= take
            at *= take
            left //= take
            extent //= take
    return spans


def node_shape(node: Node) -> Shape:
    """Return the shape over which a node iterates (without a GEMM's k)."""
    return node.operands[0].shape if isinstance(node, Reduce) else node.results[0].shape


@dataclass
class Space:
    """The iteration space of a group, and what its memory needs follow from.

    Attributes:
        total: elements of the whole space.
        cuts: boundaries between axes.
        regions: where the values that the group computes live.
        placed: where its nodes iterate.
        solids: intervals that must remain one axis.
        loads: what Vec and Reduce nodes read from DRAM, and the region of the read.
        contractions: Gemm and Reduce nodes, whose results leave the accumulators.
        after: the reduced regions behind each value.
        locked: intervals that are reduced and then read along again.
        opened: all reduced regions; they may run along the K axis if not locked.
    """

    total: int
    cuts: set[int]
    regions: dict[Value, Region] = field(default_factory=dict)
    placed: dict[Node, Region] = field(default_factory=dict)
    solids: set[Interval] = field(default_factory=set)
    loads: dict[Access, Region] = field(default_factory=dict)
    contractions: list[Node] = field(default_factory=list)
    after: dict[Value, tuple[Region, ...]] = field(default_factory=dict)
    locked: set[Interval] = field(default_factory=set)
    opened: set[Region] = field(default_factory=set)

    @staticmethod
    def empty(total: int) -> Space:
        """Return the space of `total` elements without nodes."""
        return Space(total, {1, total})

    @property
    def gemm(self) -> Gemm | None:
        """The first matrix product of the group."""
        return next((n for n in self.contractions if isinstance(n, Gemm)), None)

    @property
    def full(self) -> Region:
        """Region of all elements."""
        return merged([(1, self.total)])

    def axes(self) -> list[Interval]:
        """Return the intervals between cuts, outermost first."""
        order = sorted(self.cuts)
        return list(pairwise(order))[::-1]

    def copy(self) -> Space:
        """Return an independent copy."""
        return Space(
            self.total,
            set(self.cuts),
            dict(self.regions),
            dict(self.placed),
            set(self.solids),
            dict(self.loads),
            list(self.contractions),
            dict(self.after),
            set(self.locked),
            set(self.opened),
        )

    def place(self, node: Node, region: Region, views: Views) -> bool:
        """Add a node that iterates over a region; False (unchanged) if it cannot.

        Operands that the space produces must be read element by element (repeated
        along axes that they lack); all others only need to be strided in the axes.
        """
        shape = node_shape(node)
        spans = axis_spans(shape, region)
        if spans is None:
            return False
        accesses = [views[v] for v in node.operands]
        cuts = {p for axis in spans for low, high, _ in axis for p in (low, high)}
        inner = [
            (a, self.regions[a.value]) for a in accesses if a.value in self.regions
        ]
        fine = sorted(self.cuts | cuts | {p for _, r in inner for i in r for p in i})
        for access, source in inner:
            if not _reads_elements(access, source, spans, fine):
                return False
        cuts = {p for low, high in region for p in (low, high)}
        names = [i for i, e in enumerate(shape) if e > 1]
        outer = [a for a in accesses if a.value not in self.regions]
        for a, b in pairwise(names):
            if _must_cut(node, a, b, shape, outer):
                cuts |= {spans[b][-1][1], spans[a][0][0]}
        solids = {
            (spans[a][0][0], spans[a][-1][1]) for a in _solid_axes(node) if spans[a]
        }
        if any(len(spans[a]) > 1 for a in _solid_axes(node)):
            return False
        if not self._admits(cuts, solids):
            return False
        self.cuts |= cuts
        self.solids |= solids
        self._record(node, region, spans, accesses)
        return True

    def _record(
        self,
        node: Node,
        region: Region,
        spans: list[list[Span]],
        accesses: Sequence[Access],
    ) -> None:
        """Note what a placed node adds to the group."""
        self.placed[node] = region
        made = region
        past = dict.fromkeys(
            hole for a in accesses for hole in self.after.get(a.value, ())
        )
        for hole in past:
            if all(covers(region, *i) for i in hole):
                self.locked.update(hole)
        if not isinstance(node, Gemm):
            for a in accesses:
                if a.value not in self.regions:
                    self.loads[a] = source_region(a, spans)
        if isinstance(node, Reduce):
            hole = merged([s[:2] for a in node.axes for s in spans[a]])
            made = without(region, hole)
            past[hole] = None
            self.opened.add(hole)
            if self.gemm is not None:
                # The K axis is the product's.
                self.locked.update(hole)
        if not isinstance(node, Vec):
            self.contractions.append(node)
        for value in node.results:
            self.regions[value] = made
            if past:
                self.after[value] = tuple(past)

    def remove(self, node: Node) -> None:
        """Take back a node whose results nobody in the group reads yet."""
        del self.placed[node]
        for value in node.results:
            del self.regions[value]
            self.after.pop(value, None)
        if node in self.contractions:
            self.contractions.remove(node)

    def lock(self) -> Region:
        """Return what no block may cut.

        Reductions whose results are only read without the reduced axes may run along
        the K axis; all of those must agree on it, else they are locked as well.
        """
        lock = union(self.locked)
        left = [h for h in self.opened if not all(covers(lock, *i) for i in h)]
        if len(left) < 2:
            return lock
        left.sort(key=lambda h: (-region_size(h), h))
        return union([*lock, *(i for h in left[1:] for i in h)])

    def _admits(self, cuts: set[int], solids: set[Interval]) -> bool:
        order = sorted(self.cuts | cuts)
        if any(high % low for low, high in pairwise(order)):
            return False
        return not any(
            low < c < high for low, high in self.solids | solids for c in order
        )

    def embed(self, region: Region, total: int) -> Space | None:
        """Return this space as the part `region` of a space of `total` elements."""
        order = sorted(self.cuts)
        pieces = list(pairwise(order))
        shape = tuple(high // low for low, high in reversed(pieces))
        spans = axis_spans(shape, region)
        if spans is None or region_size(region) != self.total:
            return None
        where = dict(zip(reversed(pieces), spans))

        def moved(old: Region) -> Region:
            return merged(
                [
                    s[:2]
                    for piece, found in where.items()
                    if covers(old, *piece)
                    for s in found
                ]
            )

        solids: set[Interval] = set()
        for low, high in self.solids:
            new = moved(((low, high),))
            if len(new) > 1:
                return None
            solids |= set(new)
        cuts = {1, total} | {
            p for f in spans for low, high, _ in f for p in (low, high)
        }
        cuts |= {p for i in region for p in i}
        made = Space(
            total,
            cuts,
            {v: moved(r) for v, r in self.regions.items()},
            {n: moved(r) for n, r in self.placed.items()},
            solids,
            {a: moved(r) for a, r in self.loads.items()},
            list(self.contractions),
            {v: tuple(moved(h) for h in past) for v, past in self.after.items()},
            {j for i in self.locked for j in moved((i,))},
            {moved(h) for h in self.opened},
        )
        if not all(_columns_innermost(n, r) for n, r in made.placed.items()):
            return None
        return made if made._admits(set(), set()) else None

    def join(self, other: Space) -> bool:
        """Take over the nodes of a space of the same total; False if impossible."""
        if other.total != self.total or not self._admits(other.cuts, other.solids):
            return False
        self.cuts |= other.cuts
        self.solids |= other.solids
        self.regions.update(other.regions)
        self.placed.update(other.placed)
        self.loads.update(other.loads)
        self.contractions += other.contractions
        self.after.update(other.after)
        self.locked |= other.locked
        self.opened |= other.opened
        if self.gemm is not None:
            self.locked.update(i for hole in self.opened for i in hole)
        return True


def _columns_innermost(node: Node, region: Region) -> bool:
    """True unless some axis of the group lies inside the columns of a product.

    The array writes rows of columns: results with another axis inside would have to
    be stored transposed.
    """
    if not isinstance(node, Gemm) or node.result.shape[-1] == 1:
        return True
    return region[0][0] == 1


def source_region(access: Access, spans: list[list[Span]]) -> Region:
    """Return the part of a node's region along which an access walks."""
    return merged(
        [
            span[:2]
            for axis, stride in zip(spans, access.strides)
            if stride
            for span in axis
        ]
    )


def refined(
    access: Access, spans: list[list[Span]], axes: Sequence[Interval]
) -> tuple[list[int], list[int]]:
    """Return extents and strides of an access on the axes of a space.

    Axes that the access repeats, or that its node lacks, get extent 1 and stride 0.
    """
    shape, strides = [1] * len(axes), [0] * len(axes)
    for i, (low, high) in enumerate(axes):
        for spans_of, stride in zip(spans, access.strides):
            for a, b, factor in spans_of:
                # Axes of the node that were joined walk on with the lowest's stride;
                # other nodes may cut them where a does not divide the cut.
                if a <= low < b and low < high and stride:
                    shape[i] = high // low
                    strides[i] = stride * factor * low // a
    return shape, strides


def _reads_elements(
    access: Access, source: Region, spans: list[list[Span]], fine: list[int]
) -> bool:
    """True when an access reads a value of region `source` element by element."""
    if access.offset:
        return False
    expected = 1
    seen = 1
    for low, high in pairwise(fine):
        actual = None
        for axis, stride in zip(spans, access.strides):
            for a, b, factor in axis:
                if a <= low and high <= b:
                    actual = stride * factor * (low // a)
        inside = covers(source, low, high)
        if actual is None:
            if inside:
                return False
            continue
        if actual != (expected if inside else 0):
            return False
        if inside:
            expected *= high // low
            seen *= high // low
    return seen == access.value.size


def _must_cut(
    node: Node, a: int, b: int, shape: Shape, outer: Sequence[Access]
) -> bool:
    """True when neighbouring axes a (outer) and b of a node cannot be one axis."""
    if isinstance(node, Gemm):
        lhs, rhs = outer
        rank = len(shape)
        if b == rank - 1:
            return True
        reach = lhs.strides[b] * lhs.shape[b] if lhs.shape[b] > 1 else 0
        if _step(lhs, a) != reach:
            return True
        if b == rank - 2:
            return _step(rhs, a) != 0
        reach = rhs.strides[b] * rhs.shape[b] if rhs.shape[b] > 1 else 0
        return _step(rhs, a) != reach
    if isinstance(node, Reduce) and (a in node.axes) != (b in node.axes):
        return True
    if isinstance(node, Vec) and {a, b} & iota_axes(node.program):
        return True
    return any(x.strides[a] != x.strides[b] * shape[b] for x in outer)


def _step(access: Access, axis: int) -> int:
    return access.strides[axis] if access.shape[axis] > 1 else 0


def _solid_axes(node: Node) -> tuple[int, ...]:
    """Axes of a node that must remain single axes of the group."""
    if isinstance(node, Gemm):
        return (len(node.result.shape) - 1,)
    if isinstance(node, Vec):
        return tuple(iota_axes(node.program))
    if isinstance(node, Reduce) and len(node.results) > 1:
        return node.axes
    return ()
