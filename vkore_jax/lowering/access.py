"""Access algebra: strided reads of values, how they compose, who can take them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vkore_jax.isa import row_major
from vkore_jax.lowering.ir import Graph, Move, Node, Shape, Value


@dataclass(frozen=True, slots=True)
class Access:
    """A strided read of the dense buffer of `value`, in elements (an ISA view)."""

    value: Value
    offset: int
    shape: Shape
    strides: Shape

    @staticmethod
    def whole(value: Value) -> Access:
        """Return the dense read of a whole value."""
        return Access(value, 0, value.shape, row_major(value.shape))

    @property
    def is_dense(self) -> bool:
        """True when it presents elements 0..size-1 of the value in order."""
        return self.offset == 0 and is_contiguous(self.shape, self.strides)

    @property
    def is_alias(self) -> bool:
        """True when it is the whole value in order: a pure reshape."""
        return self.is_dense and math.prod(self.shape) == self.value.size

    @property
    def has_contiguous_rows(self) -> bool:
        """True when the innermost axis with more than one element has stride 1."""
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1:
                return stride == 1
        return True

    def swapped(self) -> Access:
        """Return the read with the last two axes exchanged."""
        shape, strides = self.shape, self.strides
        return Access(
            self.value,
            self.offset,
            (*shape[:-2], shape[-1], shape[-2]),
            (*strides[:-2], strides[-1], strides[-2]),
        )

    def core(self) -> Access:
        """Return the read without its repeats: axes of stride 0 get extent 1."""
        if all(s for e, s in zip(self.shape, self.strides) if e != 1):
            return self
        shape = tuple(e if s else 1 for e, s in zip(self.shape, self.strides))
        return Access(self.value, self.offset, shape, self.strides)

    @property
    def repeats(self) -> bool:
        """True when an axis of more than one element has stride 0."""
        return any(e > 1 and s == 0 for e, s in zip(self.shape, self.strides))


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """True when the elements are adjacent and in row-major order."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def compose(inner: Access, outer: Move) -> Access | None:
    """Return the single strided read that equals `outer` applied to `inner`.

    Args:
        inner: read of some value.
        outer: a move of the dense tensor that `inner` presents.

    Returns:
        None when no single strided view does it (a reshape across a transpose).
    """
    shape = outer.result.shape
    if inner.is_alias:
        return Access(inner.value, outer.offset, shape, outer.strides)
    if math.prod(shape) == 0 or math.prod(inner.shape) == 0:
        return None
    chains = _chains(inner)
    rest, position = outer.offset, []
    for unit, _, _ in chains:
        position.append(rest // unit)
        rest -= position[-1] * unit
    low, high = list(position), list(position)
    strides: list[int] = []
    for extent, stride in zip(shape, outer.strides):
        if extent == 1 or stride == 0:
            strides.append(0)
            continue
        c = next((i for i, x in enumerate(chains) if x[0] <= abs(stride)), None)
        if c is None or stride % chains[c][0]:
            return None
        unit, _, step = chains[c]
        jump = stride // unit
        low[c] += min(jump * (extent - 1), 0)
        high[c] += max(jump * (extent - 1), 0)
        strides.append(jump * step)
    for (_, extent, _), lo, hi in zip(chains, low, high):
        if lo < 0 or hi >= extent:
            return None
    offset = inner.offset + sum(
        p * step for p, (_, _, step) in zip(position, chains, strict=True)
    )
    return Access(inner.value, offset, shape, tuple(strides))


def _chains(access: Access) -> list[tuple[int, int, int]]:
    """Merge axes that walk as one; outermost first: (flat unit, extent, stride)."""
    chains: list[tuple[int, int, int]] = []
    unit = 1
    for extent, stride in zip(reversed(access.shape), reversed(access.strides)):
        if extent == 1:
            continue
        if chains:
            below, n, s = chains[-1]
            if stride == s * n:
                chains[-1] = (below, n * extent, s)
                unit *= extent
                continue
        chains.append((unit, extent, stride))
        unit *= extent
    return chains[::-1] or [(1, 1, 0)]


class Views:
    """Resolves values to reads of values that own a buffer.

    A `Move` owns no buffer: it is read through, as far as one strided view reaches.
    """

    def __init__(self) -> None:
        self._accesses: dict[Value, Access] = {}

    @staticmethod
    def of(graph: Graph) -> Views:
        """Return the views that all moves of a graph (and nested graphs) define."""
        views = Views()
        for node in walk(graph):
            if isinstance(node, Move):
                views.define(node)
        return views

    def define(self, move: Move) -> Access | None:
        """Record a move; return its access, or None when it is not one view."""
        access = compose(self[move.operands[0]], move)
        if access is not None:
            self._accesses[move.result] = access
        return access

    def set(self, value: Value, access: Access) -> None:
        """Record that reads of `value` are reads by `access`."""
        self._accesses[value] = access

    def __getitem__(self, value: Value) -> Access:
        found = self._accesses.get(value)
        return Access.whole(value) if found is None else found

    def root(self, value: Value) -> Value:
        """Return the value whose buffer a read of `value` touches."""
        found = self._accesses.get(value)
        return value if found is None else found.value

    def alias(self, value: Value) -> Value | None:
        """Return the owner when `value` is all of it in order, else None."""
        found = self._accesses.get(value)
        if found is None:
            return value
        return found.value if found.is_alias else None


def walk(graph: Graph) -> Iterator[Node]:
    """Yield every node of a graph and of its nested graphs, outer first."""
    stack = [iter(graph.nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        stack.extend(iter(g.nodes) for g in reversed(node.graphs))


def producers(graph: Graph) -> Mapping[Value, Node]:
    """Return the node behind every non-parameter value, nested graphs included."""
    return {v: node for node in walk(graph) for v in node.results}
