"""Negative padding as slices: XLA:CPU must not see it in a windowed operation.

In jaxlib 0.10.2 the convolution reads before its input when padding is negative at the
low end, and select_and_scatter counts from the wrong element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vkore_jax.isa import SelectAndScatter
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of a tensor, and with which padding.

    Attributes:
        start: first element that is left on each axis.
        limit: end of what is left; at most `start` where nothing is.
        low: padding that is needed before the rest.
        high: padding that is needed behind it.
        extents: of the dilated tensor with its padding.
    """

    start: Shape
    limit: Shape
    low: Shape
    high: Shape
    extents: Shape

    @property
    def empty(self) -> bool:
        """Nothing is left."""
        return any(a >= b for a, b in zip(self.start, self.limit))

    def of(self, e: Emitter, v: Val) -> Val:
        """Return the rest of a whole tensor."""
        return e.slice(v, self.start, self.limit, (1,) * len(self.start))

    def undo(self, e: Emitter, v: Val, fill: Val, shape: Shape) -> Val:
        """Put a tensor of the rest's shape where the rest was, and a scalar around."""
        high = [n - b for n, b in zip(shape, self.limit)]
        return surrounded(e, v, fill, self.start, high)


def surrounded(
    e: Emitter, v: Val, fill: Val, low: Sequence[int], high: Sequence[int]
) -> Val:
    """Put a scalar around a whole tensor."""
    if not any(low) and not any(high):
        return v
    shape = tuple(a + n + b for a, n, b in zip(low, v.shape, high))
    text = (
        f"stablehlo.pad {v.name}, {fill.name}, low = {ints(low)}, high = "
        f"{ints(high)}, interior = {ints([0] * len(shape))} : "
        f"({v.type}, {fill.type}) -> {tensor_type(v.dtype, shape)}"
    )
    return e.op(text, v.dtype, shape)


def cut(
    shape: Shape,
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
) -> Cut:
    """Return what negative padding leaves of a tensor; other padding remains.

    Element k of an axis of n lies at low + k dilation of an axis whose extent is
    low + (n - 1) dilation + 1 + high; those before it and beyond its end are cut off.

    Args:
        shape: extents.
        low: padding before each dilated axis.
        high: padding behind it.
        dilation: distance of neighbours.
    """
    rows = []
    for n, a, b, d in zip(shape, low, high, dilation):
        extent = a + (n - 1) * d + 1 + b if n else a + b
        first = -(min(a, 0) // d)
        limit = min(n, -(-(extent - a) // d)) if b < 0 else n
        before = a + first * d
        behind = extent - before - (limit - 1 - first) * d - 1
        left = (first, limit, before, behind) if n else (0, 0, a, b)
        rows.append((*left, extent))
    return Cut(*(zip(*rows) if rows else ((),) * 5))


def windows_inside(cmd: SelectAndScatter) -> Cut:
    """Return the windows that have an element, and the padding that they need."""
    rows = []
    for n, m, w, step, low in zip(
        cmd.operand.shape, cmd.source.shape, cmd.window, cmd.strides, cmd.pad_low
    ):
        first = max(0, -((w - 1 - low) // step))
        limit = min(m, (low + n - 1) // step + 1)
        before = low - first * step
        extent = (limit - 1 - first) * step + w
        rows.append((first, limit, before, extent - before - n, extent))
    return Cut(*zip(*rows))
