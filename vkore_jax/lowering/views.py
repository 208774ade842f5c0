"""Layout algebra on (offset, shape, strides) without the tensor: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vkore_jax.isa import row_major
from vkore_jax.lowering.ir import Shape, Value


class Layout(NamedTuple):
    """How a value reads a dense tensor `base`; offset and strides in elements."""

    base: Value
    offset: int
    shape: Shape
    strides: Shape

    @staticmethod
    def dense(value: Value) -> Layout:
        """Return the layout of a value that is stored as it is."""
        return Layout(value, 0, value.shape, row_major(value.shape))

    @property
    def has_contiguous_rows(self) -> bool:
        """True when the innermost axis with more than one element has stride 1."""
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1:
                return stride == 1
        return True

    def transposed(self, permutation: Sequence[int]) -> Layout:
        """Return the layout with axes in the order of `permutation`."""
        return Layout(
            self.base,
            self.offset,
            tuple(self.shape[p] for p in permutation),
            tuple(self.strides[p] for p in permutation),
        )

    def sliced(self, start: Shape, step: Shape, shape: Shape) -> Layout:
        """Return the layout of ``x[start::step]`` cut to `shape`."""
        offset = self.offset + sum(s * t for s, t in zip(start, self.strides))
        strides = tuple(s * t for s, t in zip(step, self.strides))
        return Layout(self.base, offset, shape, strides)

    def reversed(self, axes: Sequence[int]) -> Layout:
        """Return the layout with some axes running backwards."""
        offset, strides = self.offset, list(self.strides)
        for a in axes:
            offset += (self.shape[a] - 1) * strides[a]
            strides[a] = -strides[a]
        return Layout(self.base, offset, self.shape, tuple(strides))

    def broadcast(self, shape: Shape, dims: Sequence[int]) -> Layout:
        """Return the layout of StableHLO `broadcast_in_dim`."""
        strides = [0] * len(shape)
        for axis, d in enumerate(dims):
            if self.shape[axis] == shape[d]:
                strides[d] = self.strides[axis]
        return Layout(self.base, self.offset, shape, tuple(strides))

    def reshaped(self, shape: Shape) -> Layout | None:
        """Return the layout with other extents, or None when it needs a copy."""
        strides = reshape_strides(self.shape, self.strides, shape)
        if strides is None:
            return None
        return Layout(self.base, self.offset, shape, strides)


def reshape_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Return strides that read a strided tensor under other extents, if there are any.

    The method is NumPy's: split both shapes into groups of equal element count; a group
    can be reread when its old axes walk memory as one.

    Args:
        old: present extents, none of them 0.
        strides: present strides in elements.
        new: wanted extents, with the same product.
    """
    axes = [(e, s) for e, s in zip(old, strides) if e != 1]
    out: list[int] = []
    i, j = 0, 0
    while j < len(new):
        if new[j] == 1:
            out.append(0)
            j += 1
            continue
        first, have = i, axes[i][0]
        i += 1
        want, group = new[j], [new[j]]
        j += 1
        while have != want:
            if have < want:
                have *= axes[i][0]
                i += 1
            else:
                want *= new[j]
                group.append(new[j])
                j += 1
        for (_, outer), (extent, inner) in zip(
            axes[first : i - 1], axes[first + 1 : i]
        ):
            if outer != extent * inner:
                return None
        step = axes[i - 1][1]
        steps: list[int] = []
        for extent in reversed(group):
            steps.append(step)
            step *= extent
        out.extend(reversed(steps))
    return tuple(out)
