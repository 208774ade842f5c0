"""Rounding to bfloat16, and what it loses: the arithmetic of this room.

Owns the error-free splits and the random bits; knows no optimizer.  Every rounding
goes through `jax.lax.reduce_precision`: a compiler may drop the pair of conversions
f32 -> bf16 -> f32 ("excess precision"), and with it the error that is to be kept.

RN rounds to nearest, ties to even; u = 2**-8 is its unit roundoff in bfloat16, whose
bits are the upper half of a float32.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

NARROW = jnp.bfloat16
_EXPONENT_BITS, _MANTISSA_BITS = 8, 7


class Pair(NamedTuple):
    """A number as the unevaluated sum of two bfloat16; the shapes are equal."""

    hi: jax.Array  # RN(x)
    lo: jax.Array  # RN(x - hi)


def widen(x: jax.Array) -> jax.Array:
    """Return `x` in float32: exact."""
    return x.astype(jnp.float32)


def nearest(x: jax.Array) -> jax.Array:
    """Return RN(x) in bfloat16; `x` is float32 or bfloat16."""
    if x.dtype == NARROW:
        return x
    return jax.lax.reduce_precision(x, _EXPONENT_BITS, _MANTISSA_BITS).astype(NARROW)


def split(x: jax.Array) -> Pair:
    """Cut a float32 `x` into hi + lo.

    x - hi is exact in float32, so that the only error is lo's rounding:
    |x - (hi + lo)| <= u |x - hi| <= u**2 |x|, where lo is a normal number.  A hi that
    is infinite or NaN has lo = 0.
    """
    hi = nearest(x)
    return Pair(hi, residual(x, hi))


def residual(x: jax.Array, hi: jax.Array) -> jax.Array:
    """Return RN(x - hi), 0 where hi is not finite."""
    return nearest(jnp.where(jnp.isfinite(hi), x - widen(hi), 0))


def join(pair: Pair) -> jax.Array:
    """Return hi + lo in float32."""
    return widen(pair.hi) + widen(pair.lo)


def kahan_add(
    total: jax.Array, rest: jax.Array, term: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Add a float32 `term` to total + rest, which are bfloat16.

        y = RN(term + rest),  s = RN(total + y),  rest' = y - (s - total)

    Every value is rounded: an adder of 16 bits does the same.  s is subtracted from
    the larger of the two summands, with which rest' is exact for any magnitudes
    (Neumaier's form of Kahan's sum).  Source: Kahan, CACM 8(1), 1965; for weights:
    Zamirai et al., arXiv 2010.06192.  `rest` has the sign of a pair's low part, which
    is the opposite of Kahan's c.

    Returns:
        s and rest'.
    """
    step = widen(nearest(term + widen(rest)))
    old = widen(total)
    s = nearest(old + step)
    large = jnp.abs(old) >= jnp.abs(step)
    first, second = jnp.where(large, old, step), jnp.where(large, step, old)
    lost = second - widen(nearest(widen(s) - first))
    return s, nearest(jnp.where(jnp.isfinite(s), lost, 0))


def stochastic(x: jax.Array, bits: jax.Array) -> jax.Array:
    """Round a float32 `x` up or down to bfloat16, so that the mean over `bits` is x.

    Between neighbours a < x < b the result is b with probability (x - a) / (b - a):
    the bits below bfloat16's are that fraction in units of 2**-16, and adding uniform
    bits carries with it.  What bfloat16 holds, infinities and NaN stay as they are;
    beyond its largest number the result may be infinite, as with RN.

    Args:
        x: float32, any shape.
        bits: uint16 of x's shape, uniform.
    """
    word = jax.lax.bitcast_convert_type(x, jnp.uint32)
    word = (word + bits.astype(jnp.uint32)) & jnp.uint32(0xFFFF0000)
    drawn = jax.lax.bitcast_convert_type(word, jnp.float32)
    return nearest(jnp.where(jnp.isfinite(x), drawn, x))


def leaf_bits(key: jax.Array, path: Any, shape: tuple[int, ...]) -> jax.Array:
    """Return uint16 bits for the leaf at `path`: a function of key, path and index.

    The path, not the position in the tree: another leaf more or less changes nothing.
    With JAX's partitionable threefry the bits do not depend on the sharding either.
    """
    name = zlib.crc32(jax.tree_util.keystr(path).encode())
    return jax.random.bits(jax.random.fold_in(key, name), shape, jnp.uint16)
