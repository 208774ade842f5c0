"""Views: strided descriptors on buffers, and the layout algebra on them.

A view is what a DMA descriptor is: element offset, extents and strides in elements.
Stride 0 repeats an element (broadcast); a negative stride walks backwards (reverse).
A buffer may be read as another type than it was written as when both are real types
of 8 bits or more; constants may be read as any type whose elements their bytes are.
"""

from __future__ import annotations

import math

from vkore_jax.dtypes import DType
from vkore_jax.isa.codec import DTYPE, I64, INTS, U32, f, record


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the element strides of a dense row-major tensor."""
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


@record
class View:
    """A strided tensor descriptor on a buffer; offset and strides in elements."""

    buffer: int = f(U32, "index into the buffer table")
    dtype: DType = f(DTYPE, "element type")
    offset: int = f(I64, "first element, counted in elements from the buffer's start")
    shape: tuple[int, ...] = f(INTS, "extent of each axis")
    strides: tuple[int, ...] = f(INTS, "step of each axis, in elements")

    @staticmethod
    def dense(buffer: int, dtype: DType, shape: tuple[int, ...]) -> View:
        """Return the view of a whole row-major tensor."""
        return View(buffer, dtype, 0, shape, row_major(shape))

    @property
    def size(self) -> int:
        """Number of elements that the view presents."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that a transfer of the view moves."""
        return self.size * self.dtype.itemsize

    @property
    def is_dense(self) -> bool:
        """True when it presents elements 0..size-1 of the buffer in order."""
        return self.offset == 0 and self.is_contiguous

    @property
    def is_contiguous(self) -> bool:
        """True when the elements are adjacent and in row-major order."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def has_contiguous_rows(self) -> bool:
        """True when the innermost axis with more than one element has stride 1.

        Only such views may be loaded into or stored from the scratchpad; all others
        go through the layout engine (a COPY command) first.  A view whose elements
        are all one (broadcast scalar) has rows of one element.
        """
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1:
                return stride == 1
        return True

    def bounds(self) -> tuple[int, int]:
        """Return the lowest and highest element touched (0, -1 when empty)."""
        if self.size == 0:
            return 0, -1
        low = high = self.offset
        for extent, stride in zip(self.shape, self.strides):
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


@record
class Decomposition:
    """A view spelled as reshape, slice, reverse, transpose, broadcast.

    Applied to the first `prod(base)` elements of the flat buffer, in this order:
    reshape to `base`; slice `[start, limit)` with `step`, reverse `reverse` axes;
    transpose by `permutation`; then `broadcast_in_dim` to the view's shape along
    `dims` (one entry for each kept base axis, after the permutation).
    """

    base: tuple[int, ...] = f(INTS, "shape that the buffer is read as")
    start: tuple[int, ...] = f(INTS, "first index on each base axis")
    limit: tuple[int, ...] = f(INTS, "end index (exclusive) on each base axis")
    step: tuple[int, ...] = f(INTS, "step on each base axis")
    reverse: tuple[int, ...] = f(INTS, "base axes that run backwards")
    permutation: tuple[int, ...] = f(INTS, "order of the base axes in the view")
    dims: tuple[int, ...] = f(INTS, "view axis of each permuted base axis, or -1")


def decompose(view: View, buffer_elements: int) -> Decomposition | None:
    """Spell a view as structured tensor operations, or None when it is irregular.

    Args:
        view: any non-empty view within bounds.
        buffer_elements: elements of `view.dtype` that the buffer holds.

    Returns:
        None for views with two axes of equal stride (diagonals, windows) and others
        that are not a box in any mixed-radix reading of the buffer; such views are
        still valid and are executed by address.  Base axes that no view axis walks
        are sliced to one element and have `dims` entry -1.
    """
    axes = [
        (abs(stride), axis)
        for axis, (extent, stride) in enumerate(zip(view.shape, view.strides))
        if extent != 1 and stride != 0
    ]
    axes.sort(key=lambda a: -a[0])
    low, _ = view.bounds()
    base: list[int] = []
    start: list[int] = []
    limit: list[int] = []
    step: list[int] = []
    owner: list[int] = []
    above, rest = buffer_elements, low

    def push(unit: int, jump: int, extent: int, axis: int) -> bool:
        nonlocal above, rest
        dim = above // unit
        first = rest // unit
        rest -= first * unit
        if first + (extent - 1) * jump >= dim:
            return False
        base.append(dim)
        start.append(first)
        limit.append(first + (extent - 1) * jump + 1)
        step.append(jump)
        owner.append(axis)
        above = unit
        return True

    for stride, axis in axes:
        unit = stride if above % stride == 0 else math.gcd(above, stride)
        if not push(unit, stride // unit, view.shape[axis], axis):
            return None
    if above > 1 and not push(1, 1, 1, -1):
        return None
    order = sorted(range(len(base)), key=lambda i: (owner[i] < 0, owner[i]))
    return Decomposition(
        base=tuple(base),
        start=tuple(start),
        limit=tuple(limit),
        step=tuple(step),
        reverse=tuple(i for i, a in enumerate(owner) if a >= 0 and view.strides[a] < 0),
        permutation=tuple(order),
        dims=tuple(owner[i] for i in order),
    )
