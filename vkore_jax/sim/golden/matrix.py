"""The accumulators and the row reductions: partial sums, their types and their order.

A contraction is `strategies.multiply` on each K block, `add` of partial sums in block
order, and `finish`, which converts what leaves the accumulators to the result's type.
A reduction is `reduce_block`, `combine` and `leave` likewise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vkore_jax.dtypes import DType
from vkore_jax.isa import ReduceKind
from vkore_jax.isa.rules import Rules
from vkore_jax.sim.golden.numbers import convert, lift, operand

Array = np.ndarray

# ------------------------------------------------------------------------- contractions


def add(total: Array, part: Array) -> Array:
    """Add partial sums in the accumulators (or of bool; integers wrap)."""
    with np.errstate(all="ignore"):
        return total | part if total.dtype == np.bool_ else total + part


def finish(total: Array, dtype: DType) -> Array:
    """Convert sums that leave the accumulators to the result's type."""
    with np.errstate(all="ignore"):
        return convert(total, dtype)


# --------------------------------------------------------------------------- reductions

ARGS = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
Fold = Callable[[Array, tuple[int, ...]], Array]


def _largest(x: Array, axes: tuple[int, ...]) -> Array:
    """Maximum; NaN wins, +0 is larger than -0; -inf (the least value) of nothing."""
    least = -np.inf if x.dtype.kind == "f" else _limit(x.dtype, False)
    top = np.max(x, axes, keepdims=True, initial=least)
    if x.dtype.kind != "f":
        return top
    plus = ((x == 0) & ~np.signbit(x)).any(axes, keepdims=True)
    return np.where(top == 0, np.where(plus, 0.0, -0.0), top).astype(x.dtype)


def _smallest(x: Array, axes: tuple[int, ...]) -> Array:
    """Minimum; NaN wins, -0 is smaller than +0; inf (the largest value) of nothing."""
    if x.dtype.kind == "f":
        return -_largest(-x, axes)
    return np.min(x, axes, keepdims=True, initial=_limit(x.dtype, True))


def _limit(dtype: np.dtype, high: bool) -> int | bool:
    if dtype == np.bool_:
        return high
    info = np.iinfo(dtype)
    return info.max if high else info.min


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    if x.dtype == np.bool_:
        return np.any(x, axes, keepdims=True)
    return np.sum(x, axes, dtype=x.dtype, keepdims=True)


def _product(x: Array, axes: tuple[int, ...]) -> Array:
    if x.dtype == np.bool_:
        return np.all(x, axes, keepdims=True)
    return np.prod(x, axes, dtype=x.dtype, keepdims=True)


def _bitwise(function: np.ufunc) -> Fold:
    return lambda x, axes: function.reduce(x, axes, keepdims=True)


PAIRS = (*ARGS, ReduceKind.LOGSUMEXP)
"""Kinds whose partial results are pairs."""

FOLDS: Rules[Fold] = Rules(
    "golden monoids", over=[k for k in ReduceKind if k not in PAIRS]
)
FOLDS.update(
    {
        ReduceKind.SUM: _sum,
        ReduceKind.PROD: _product,
        ReduceKind.MAX: _largest,
        ReduceKind.MIN: _smallest,
        ReduceKind.AND: _bitwise(np.bitwise_and),
        ReduceKind.OR: _bitwise(np.bitwise_or),
        ReduceKind.XOR: _bitwise(np.bitwise_xor),
    }
)
FOLDS.complete()


def reduce_block(
    kind: ReduceKind, x: Array, axes: tuple[int, ...], origin: int
) -> tuple[Array, ...]:
    """Reduce a block: (partial result,), or a pair: (value, index) for the ARG kinds,
    (maximum, sum) for LOGSUMEXP.

    Args:
        kind: the monoid.
        x: block of the source.
        axes: reduced axes; they keep extent 1.
        origin: index of the block's first element on the reduced axis (ARG kinds).
    """
    with np.errstate(all="ignore"):
        if kind is ReduceKind.LOGSUMEXP:
            wide = lift(x)
            top = _largest(wide, axes)
            return top, _sum(np.exp(wide - _base(top)), axes)
        if kind not in ARGS:
            return (FOLDS[kind](lift(x), axes),)
        key = _order_key(kind, x)
        index = np.expand_dims(np.argmax(key, axes[0]), axes[0])
        value = np.take_along_axis(x, index, axes[0])
        return value, index.astype(np.int64) + origin


def combine(
    kind: ReduceKind, total: tuple[Array, ...], part: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Combine the partial results of two K blocks, the earlier one first."""
    with np.errstate(all="ignore"):
        if kind is ReduceKind.LOGSUMEXP:
            top = _largest(np.stack([total[0], part[0]]), (0,))[0]
            base = _base(top)
            # A part's sum counts from its own base, which is 0 where it saw only -inf.
            return top, _moved(total, base) + _moved(part, base)
        if kind not in ARGS:
            pair = np.stack([total[0], part[0]])
            return (FOLDS[kind](pair, (0,))[0],)
        old, new = _order_key(kind, total[0]), _order_key(kind, part[0])
        better = new > old
        if old.dtype.kind == "f":
            better |= np.isnan(new) & ~np.isnan(old)
        return tuple(np.where(better, b, a) for a, b in zip(total, part))


def leave(kind: ReduceKind, part: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return what leaves the accumulators for a partial result."""
    if kind is not ReduceKind.LOGSUMEXP:
        return part
    top, total = part
    with np.errstate(all="ignore"):
        return (_base(top) + np.log(total),)


def _base(top: Array) -> Array:
    """What LOGSUMEXP subtracts: the maximum, 0 where it is infinite."""
    return np.where(np.isinf(top), np.zeros((), top.dtype), top)


def _moved(part: tuple[Array, ...], base: Array) -> Array:
    """Return a part's sum of exponentials counted from another base."""
    top, total = part
    return np.where(total == 0, total, total * np.exp(_base(top) - base))


def _order_key(kind: ReduceKind, x: Array) -> Array:
    """Values whose first maximum (or first NaN) is the element wanted."""
    key = operand(x)
    if kind is ReduceKind.ARGMAX:
        return key.astype(np.int8) if key.dtype == np.bool_ else key
    return -key if key.dtype.kind == "f" else np.invert(key)
