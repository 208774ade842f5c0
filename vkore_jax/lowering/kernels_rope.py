"""Rotary embedding in one group: no halves are cut out and joined again.

With x as (..., 2, d / 2), y = x cos + x' sin', where x' has the halves exchanged (a
view with a negative stride) and sin' is -sin in the first half.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax.dtypes import F32, F64, I32
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.kernels import batch_of, broadcasting, with_batch
from vkore_jax.lowering.op import Op

ROPE = (3, 2, 2)


def fits(shapes: Sequence[Shape]) -> bool:
    """True when x has the batch of the whole call."""
    return 0 not in shapes[0] and shapes[0][:-3] == batch_of(shapes, ROPE)


def rope(b: Builder, op: Op, x: Value, cos: Value, sin: Value) -> Value:
    """Both halves of the channels by one micro-program."""
    *lead, t, h, d = x.shape
    wide = x.dtype if x.dtype is F64 else F32
    do = broadcasting(b)

    def table(a: Value) -> Value:
        a = b.convert(with_batch(b, a, 2, len(lead)), wide)
        return b.reshape(a, (*a.shape[:-1], 1, 1, d // 2))

    halves = b.reshape(x, (*lead, t, h, 2, d // 2))
    axis = len(halves.shape) - 2
    other = b.reverse(halves, (axis,))
    first = do("eq", b.iota(I32, halves.shape, axis), b.scalar(I32, 0, halves.shape))
    sines = b.broadcast(table(sin), halves.shape, tuple(range(axis + 2)))
    turned = do("select", first, do("neg", sines), sines)
    y = do("mul", b.convert(halves, wide), table(cos))
    y = do("add", y, do("mul", b.convert(other, wide), turned))
    return b.reshape(b.convert(y, x.dtype), x.shape)
