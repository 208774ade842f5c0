"""Negative padding as slices: XLA:CPU must not see it in a windowed operation.

The convolution of jaxlib 0.10.2 takes padding for an offset and reads before its input
when that is negative at the low end.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax.sim.fast.emitter import Emitter, Shape, Val


def cropped(
    e: Emitter,
    v: Val,
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    first: int = 0,
) -> tuple[Val, Shape, Shape]:
    """Cut off what negative padding removes.

    Element k of an axis lies at low + k dilation of an axis whose extent is
    low + (n - 1) dilation + 1 + high; those before it and beyond its end are cut off.

    Args:
        e: where to write.
        v: a whole tensor.
        low: padding before the dilated axis, for the axes from `first` on.
        high: padding behind it.
        dilation: distance of neighbours.
        first: first padded axis.

    Returns:
        The rest, and what padding it needs.  An axis of which nothing remains has one
        element of zero, which counts as padding.
    """
    starts, limits, lows, highs, gone = [0] * len(v.shape), list(v.shape), [], [], ()
    for axis, (a, b, d) in enumerate(zip(low, high, dilation), first):
        n = v.shape[axis]
        extent = a + max(n - 1, 0) * d + min(n, 1) + b
        begin = -(min(a, 0) // d)
        end = min(n, (extent - 1 - a) // d + 1) if b < 0 else n
        if n and begin >= end and extent > 0:
            gone = (*gone, axis)
            begin, end, a, b = 0, 1, 0, extent - 1
        elif n:
            a += begin * d
            b = extent - a - (end - 1 - begin) * d - 1
        starts[axis], limits[axis] = begin, end
        lows.append(a)
        highs.append(b)
    out = e.slice(v, starts, limits, (1,) * len(starts))
    if gone:
        out = e.full(e.scalar(v.dtype, 0).standing_for(out.shape))
    return out, tuple(lows), tuple(highs)
