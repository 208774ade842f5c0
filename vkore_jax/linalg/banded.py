"""Tridiagonal systems, by elimination with partial pivoting.

Reference: Golub and Van Loan, Matrix Computations, 4th ed., 4.3.4; LAPACK's xGTSV and,
for perturbed pivots, xLAGTF / xLAGTS.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from vkore_jax.linalg.common import Array, plain


def _eliminate(dl: Array, d: Array, du: Array, b: Array) -> tuple[Array, ...]:
    """Return the three diagonals of U (m, ...) and the right-hand side, row by row."""

    def step(now: tuple[Array, ...], below: tuple[Array, ...]) -> tuple:
        p, q, rhs = now
        low, middle, high, rhs_below = below
        swap = jnp.abs(low) > jnp.abs(p)
        big, small = jnp.where(swap, low, p), jnp.where(swap, p, low)
        factor = jnp.where(small == 0, 0, small / big)
        wide = factor[..., None]
        kept = (
            big,
            jnp.where(swap, middle, q),
            jnp.where(swap, high, 0),
            jnp.where(swap[..., None], rhs_below, rhs),
        )
        after = (
            jnp.where(swap, q - factor * middle, middle - factor * q),
            jnp.where(swap, -factor * high, high),
            jnp.where(swap[..., None], rhs - wide * rhs_below, rhs_below - wide * rhs),
        )
        return after, kept

    first = d[0], du[0], b[0]
    (p, q, rhs), kept = lax.scan(step, first, (dl[1:], d[1:], du[1:], b[1:]))
    last = p, jnp.zeros_like(q), jnp.zeros_like(q), rhs
    return tuple(jnp.concatenate([x, y[None]]) for x, y in zip(kept, last, strict=True))


@plain
def tridiagonal_solve(
    dl: Array, d: Array, du: Array, b: Array, *, perturb_singular: bool = False
) -> Array:
    """Solution of tridiagonal systems.

    Args:
        dl: (..., m) lower diagonal; its first element is not read.
        d: (..., m) diagonal.
        du: (..., m) upper diagonal; its last element is not read.
        b: (..., m, k) right-hand sides.
        perturb_singular: replace pivots smaller than the rounding of U by that
            rounding, so that the result is finite for singular matrices.

    Returns:
        (..., m, k); NaN for a matrix that is exactly singular, unless perturbed.
    """
    if b.size == 0:
        return b
    rows = [jnp.moveaxis(x, -1, 0) for x in (dl, d, du)]
    rows[2] = rows[2].at[-1].set(0)
    p, q, r, rhs = _eliminate(rows[0], rows[1], rows[2], jnp.moveaxis(b, -2, 0))
    if perturb_singular:
        info = jnp.finfo(p.dtype)
        size = jnp.maximum(jnp.abs(jnp.stack([p, q, r])).max((0, 1)), info.tiny)
        least = jnp.maximum(size * info.eps, info.tiny / info.eps)
        sign = jnp.where(p.real < 0, -1, 1)
        p = jnp.where(jnp.abs(p) < least, (sign * least).astype(p.dtype), p)
    singular = (p == 0).any(0)

    def back(after: tuple[Array, Array], row: tuple[Array, ...]) -> tuple:
        x1, x2 = after
        p, q, r, rhs = row
        x = (rhs - q[..., None] * x1 - r[..., None] * x2) / p[..., None]
        return (x, x1), x

    zero = jnp.zeros_like(rhs[0])
    _, x = lax.scan(back, (zero, zero), (p, q, r, rhs), reverse=True)
    x = jnp.moveaxis(x, 0, -2)
    return jnp.where(singular[..., None, None], jnp.nan, x)
