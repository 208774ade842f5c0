"""Monoids over whole axes, in forms in which XLA:CPU keeps NaN and is fast.

From 4,096 elements on XLA:CPU gives a reduction to YNNPACK, whose maximum and minimum
lose a NaN and the order of zeros, together with the elementwise operations around it
(`micro` writes those that suffer in forms that YNNPACK does not know).  Sums stay with
YNNPACK: they are right, and compile in a tenth of the time.  An extreme of floats is

- along the last axis a reduction of two tensors at once.  Neither YNNPACK nor XLA's own
  rewriting into a tree takes it, and LLVM vectorizes it.  The second one, the largest
  magnitude's bits, says whether there is a NaN.
- along other axes elementwise maxima of slices, which may overlap, until few rows are
  left.
- otherwise a reduction whose combiner is a clamp.

Measured at 1024 x 1024 (f32, AVX2, CPU time of a call; jaxlib 0.10.2): 93 to 220 us by
YNNPACK, which is wrong; 140 along the last axis, 120 along both, 165 along the first,
where XLA's own code for `maximum` needs 300, 550 and 375.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax.dtypes import BOOL, F64, I32, I64, DType
from vkore_jax.isa import ReduceKind
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, i64s, ints, tensor_type

WORDS = {
    ReduceKind.SUM: "add",
    ReduceKind.PROD: "multiply",
    ReduceKind.MAX: "maximum",
    ReduceKind.MIN: "minimum",
    ReduceKind.AND: "and",
    ReduceKind.OR: "or",
    ReduceKind.XOR: "xor",
}
"""Monoid -> operation of StableHLO."""

FEW = 4096
"""Elements below which the plainest form does."""

_CUT, _TREE = 8, 32
"""Slices of one pass; the longest axis that XLA folds without a tree of windows."""


def top(dtype: DType) -> int:
    """Return the largest integer of a type."""
    return int(ml_dtypes.iinfo(dtype.numpy).max)


def bottom(dtype: DType) -> int:
    """Return the smallest integer of a type."""
    return int(ml_dtypes.iinfo(dtype.numpy).min)


def identity(kind: ReduceKind, dtype: DType) -> Any:
    """Return the neutral element of a monoid in a type."""
    if kind in (ReduceKind.SUM, ReduceKind.OR, ReduceKind.XOR):
        return 0
    if kind is ReduceKind.PROD:
        return 1
    if kind is ReduceKind.AND:
        return True if dtype.kind == "b" else (-1 if dtype.kind == "i" else top(dtype))
    highest = kind is ReduceKind.MIN
    if dtype.kind == "b":
        return highest
    if dtype.is_float:
        return np.inf if highest else -np.inf
    return top(dtype) if highest else bottom(dtype)


def fold(e: Emitter, v: Val, kind: ReduceKind, axes: Shape) -> Val:
    """Reduce axes, which must be whole; the result keeps extent 1 there."""
    v = v.standing_for(v.shape)
    kept = tuple(1 if i in axes else n for i, n in enumerate(v.shape))
    if kind not in (ReduceKind.MAX, ReduceKind.MIN) or not v.dtype.is_float:
        made = _plain(e, v, kind, axes)
    elif v.size < FEW:
        made = _clamped(e, v, kind, axes)
    else:
        made = _extreme(e, v, kind, axes)
    return e.reshape(made, kept)


def extreme(e: Emitter, word: str, a: Val, b: Val) -> Val:
    """Emit the maximum or minimum of two floats of one shape; NaN wins.

    As a clamp with an infinite other end, which LLVM removes: YNNPACK would take a
    `maximum` beside a sum and lose its NaN.
    """
    bound = e.scalar(a.dtype, np.inf if word == "maximum" else -np.inf)
    first, last = (a, bound) if word == "maximum" else (bound, a)
    text = (
        f"stablehlo.clamp {first.name}, {b.name}, {last.name} : "
        f"({first.type}, {b.type}, {last.type}) -> {b.type}"
    )
    return e.op(text, b.dtype, b.shape)


def _plain(e: Emitter, v: Val, kind: ReduceKind, axes: Shape) -> Val:
    start = e.scalar(v.dtype, identity(kind, v.dtype))
    shape = _rest(v, axes)
    text = (
        f"stablehlo.reduce({v.name} init: {start.name}) applies "
        f"stablehlo.{WORDS[kind]} across dimensions = {ints(axes)} : "
        f"({v.type}, {start.type}) -> {tensor_type(v.dtype, shape)}"
    )
    return e.op(text, v.dtype, shape)


def _clamped(e: Emitter, v: Val, kind: ReduceKind, axes: Shape) -> Val:
    start = e.scalar(v.dtype, identity(kind, v.dtype))
    one: list[tuple[DType, Shape]] = [(v.dtype, ())]
    region = e.region(one * 2, lambda a, b: [extreme(e, WORDS[kind], a, b)])
    return _reduce(e, [v], [start], region, axes)[0]


def _extreme(e: Emitter, v: Val, kind: ReduceKind, axes: Shape) -> Val:
    last = max((i for i, n in enumerate(v.shape) if n != 1), default=0)
    if last in axes:
        return _watched(e, v, kind, axes)
    axis = max(axes, key=lambda i: v.shape[i])
    rows = v.shape[axis]
    if rows > _CUT * _TREE:
        v = _cut(e, v, kind, axis)
    elif rows > _TREE:
        while v.shape[axis] > 1:
            v = _cut(e, v, kind, axis)
    return _clamped(e, v, kind, axes)


def _cut(e: Emitter, v: Val, kind: ReduceKind, axis: int) -> Val:
    """Fold an axis to an eighth of its extent; the last slice may overlap."""
    rows = v.shape[axis]
    few = -(-rows // _CUT)
    starts = sorted({min(i * few, rows - few) for i in range(_CUT)})
    ones = (1,) * len(v.shape)
    parts: list[Val] = []
    for at in starts:
        first = tuple(at if i == axis else 0 for i in range(len(v.shape)))
        limit = tuple(at + few if i == axis else n for i, n in enumerate(v.shape))
        parts.append(e.slice(v, first, limit, ones))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2])
        left = parts[-1:] if len(parts) % 2 else []
        parts = [extreme(e, WORDS[kind], a, b) for a, b in pairs] + left
    return parts[0]


def _watched(e: Emitter, v: Val, kind: ReduceKind, axes: Shape) -> Val:
    """Reduce together with the bits of the magnitude: those of a NaN are largest."""
    word, width = (I64, 52) if v.dtype is F64 else (I32, 23)
    infinity = ((1 << (word.bits - 1 - width)) - 1) << width
    bits = e.bitcast(v, word, v.shape)
    mask = e.broadcast(e.scalar(word, top(word)), v.shape)
    text = f"stablehlo.and {bits.name}, {mask.name} : {bits.type}"
    size = e.op(text, word, v.shape)
    starts = [e.scalar(v.dtype, identity(kind, v.dtype)), e.scalar(word, 0)]
    scalars: list[tuple[DType, Shape]] = [(v.dtype, ()), (word, ())]

    def both(a: Val, m: Val, b: Val, n: Val) -> list[Val]:
        text = f"stablehlo.{WORDS[kind]} {a.name}, {b.name} : {a.type}"
        out = e.op(text, a.dtype, ())
        text = f"stablehlo.maximum {m.name}, {n.name} : {m.type}"
        return [out, e.op(text, word, ())]

    region = e.region(scalars * 2, both)
    best, largest = _reduce(e, [v, size], starts, region, axes)
    limit = e.broadcast(e.scalar(word, infinity), largest.shape)
    text = (
        f"stablehlo.compare GT, {largest.name}, {limit.name}, SIGNED : "
        f"({largest.type}, {limit.type}) -> {tensor_type(BOOL, largest.shape)}"
    )
    found = e.op(text, BOOL, largest.shape)
    nan = e.broadcast(e.scalar(v.dtype, np.nan), best.shape)
    text = (
        f"stablehlo.select {found.name}, {nan.name}, {best.name} : "
        f"{found.type}, {best.type}"
    )
    return e.op(text, v.dtype, best.shape)


def _reduce(
    e: Emitter, vals: Sequence[Val], starts: Sequence[Val], region: str, axes: Shape
) -> list[Val]:
    shape = _rest(vals[0], axes)
    outs = [(v.dtype, shape) for v in vals]
    attributes = f"dimensions = {i64s(axes)}"
    return e.regional("reduce", [*vals, *starts], attributes, [region], outs)


def _rest(v: Val, axes: Shape) -> Shape:
    return tuple(n for i, n in enumerate(v.shape) if i not in axes)
