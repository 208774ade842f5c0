"""Axes of a scope: which axes of its tensors are one, found by unification."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from vkore_jax.isa import row_major
from vkore_jax.lowering.access import Access, Views
from vkore_jax.lowering.ir import Gemm, Node, Reduce, Shape, Value

Dim = tuple[Any, int]
"""An axis of a tensor: its owner (a value, or a read of a node) and its position."""
Dims = tuple[int | None, ...]
"""Class of each axis of a tensor; None where it has one element."""


class Unplaceable(Exception):
    """The nodes of a scope do not share axes."""


@dataclasses.dataclass(frozen=True)
class Read:
    """How a node reads an operand.

    Attributes:
        tile: what its tile presents.
        shape: extents of that tile, without repeats.
        dims: axes of the operand, as the node sees them.
        turned: the node sees the tile with the last two axes exchanged.
    """

    tile: Access
    shape: Shape
    dims: list[Dim]
    turned: bool

    @property
    def extents(self) -> Shape:
        """Extents as the node sees them."""
        if not self.turned:
            return self.shape
        return (*self.shape[:-2], self.shape[-1], self.shape[-2])


def _elementwise(access: Access) -> bool:
    """True when a whole tensor is read in place, repeated along axes that it lacks."""
    root = access.value.shape
    if access.offset or len(root) != len(access.shape):
        return False
    for extent, have, stride, step in zip(
        access.shape, root, access.strides, row_major(root), strict=True
    ):
        repeats = extent == 1 or not stride
        if have != (1 if repeats else extent) or not (repeats or stride == step):
            return False
    return True


class Axes:
    """Classes of axes of the members of a scope, by unification."""

    def __init__(self, members: Sequence[Node], views: Views) -> None:
        self.views = views
        self.inner = {v for n in members for v in n.results}
        self._parent: dict[Dim, Dim] = {}
        self._extent: dict[Dim, int] = {}
        for node in members:
            self._unify(node)
        self.number: dict[Dim, int] = {}
        self.extents: list[int] = []
        self.iterates: dict[Node, Dims] = {n: self._iterated(n) for n in members}

    # ------------------------------------------------------------------ unification

    def _find(self, dim: Dim) -> Dim:
        while self._parent.setdefault(dim, dim) != dim:
            self._parent[dim] = self._parent[self._parent[dim]]
            dim = self._parent[dim]
        return dim

    def _join(self, a: Dim, b: Dim, extent: int) -> None:
        if extent == 1:
            return
        a, b = self._find(a), self._find(b)
        self._parent[b] = a
        for dim in (a, b):
            if self._extent.setdefault(dim, extent) != extent:
                raise Unplaceable

    def read(self, node: Node, index: int) -> Read:
        """Return how a node reads an operand.

        Raises:
            Unplaceable: a member's result is read neither element by element nor, by a
                product, the other way round.
        """
        access = self.views[node.operands[index]]
        product = isinstance(node, Gemm)
        if access.value not in self.inner:
            turned = product and not access.core().has_contiguous_rows
            tile = access.swapped() if turned else access
            owner = (node, index)
        else:
            turned = product and not _elementwise(access)
            tile = access.swapped() if turned else access
            owner = access.value
            if not _elementwise(tile):
                raise Unplaceable
        shape = tuple(e if s else 1 for e, s in zip(tile.shape, tile.strides))
        dims = [(owner, i) for i in range(len(shape))]
        if turned:
            dims[-2:] = dims[-1], dims[-2]
        return Read(tile, shape, dims, turned)

    def _unify(self, node: Node) -> None:
        reads = [self.read(node, i) for i in range(len(node.operands))]
        if isinstance(node, Gemm):
            lhs, rhs = reads
            out, rank = node.result, len(node.result.shape)
            self._join(lhs.dims[-1], rhs.dims[-2], lhs.extents[-1])
            self._join((out, rank - 2), lhs.dims[-2], lhs.extents[-2])
            self._join((out, rank - 1), rhs.dims[-1], rhs.extents[-1])
            for side in reads:
                for i in range(rank - 2):
                    self._join((out, i), side.dims[i], side.extents[i])
            return
        if isinstance(node, Reduce):
            (source,) = reads
            for result in node.results:
                for i, extent in enumerate(source.shape):
                    if i not in node.axes:
                        self._join(source.dims[i], (result, i), extent)
            return
        first = node.results[0]
        for result in node.results[1:]:
            for i, extent in enumerate(first.shape):
                self._join((first, i), (result, i), extent)
        for side in reads:
            for i, extent in enumerate(side.shape):
                self._join((first, i), side.dims[i], extent)

    # ------------------------------------------------------------------ classes

    def dims(self, value: Value) -> Dims:
        """Return the class of each axis of a member's result."""
        return self._classes([(value, i) for i in range(len(value.shape))], value.shape)

    def read_dims(self, read: Read) -> Dims:
        """Return the class of each axis of an operand, as its reader sees it."""
        return self._classes(read.dims, read.extents)

    def _classes(self, dims: Sequence[Dim], shape: Shape) -> Dims:
        return tuple(
            None if e == 1 else self._class(dim, e) for dim, e in zip(dims, shape)
        )

    def _class(self, dim: Dim, extent: int) -> int:
        root = self._find(dim)
        if root not in self.number:
            self.number[root] = len(self.extents)
            self.extents.append(extent)
        return self.number[root]

    def _iterated(self, node: Node) -> Dims:
        """Return all axes over which a node works, the contracted one last."""
        if isinstance(node, Gemm):
            made = self.dims(node.result)
            return (*made, self.read_dims(self.read(node, 0))[-1])
        if isinstance(node, Reduce):
            return self.read_dims(self.read(node, 0))
        return self.dims(node.results[0])

    def contracted(self, node: Node) -> set[int]:
        """Return the classes that a node sums over."""
        dims = self.iterates[node]
        if isinstance(node, Gemm):
            found = {dims[-1]}
        elif isinstance(node, Reduce):
            found = {dims[a] for a in node.axes}
        else:
            found = set()
        return {d for d in found if d is not None}
