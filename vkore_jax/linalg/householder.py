"""Reductions by Householder reflectors, stored as LAPACK stores them.

Reference: Golub and Van Loan, Matrix Computations, 4th ed., 5.1, 5.4.2, 7.4.3, 8.3.1;
storage as in LAPACK's xGEQP3, xGEHRD and xSYTRD / xHETRD.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from vkore_jax.linalg.common import (
    Array,
    adjoint,
    diagonal,
    eye_like,
    magnitude,
    norm,
    over,
    plain,
    real,
    square,
    unit,
)


def _reflector(column: Array, first: Array) -> tuple[Array, Array, Array]:
    """Return the reflector that leaves one element of a column (LAPACK's xLARFG).

    Args:
        column: (..., m, 1), zero above row `first`.
        first: index of the element that stays.

    Returns:
        v (..., m, 1) with 1 at row `first`, its factor tau and the real element beta
        that stays, both (..., 1, 1) in the dtype of `column`:
        ``(I - conj(tau) v v^H) column = beta e_first``.  tau is 0 where nothing is to
        be done.
    """
    at = jnp.arange(column.shape[-2])[:, None] == first
    scale = unit(magnitude(column).max(-2, keepdims=True))
    column = over(column, scale)
    alpha = jnp.where(at, column, 0).sum(-2, keepdims=True)
    tail = jnp.where(at, 0, column)
    rest = square(tail).sum(-2, keepdims=True)
    length = jnp.sqrt(rest + square(alpha))
    none = (rest == 0) & (alpha.imag == 0)
    beta = jnp.where(real(alpha) >= 0, -length, length)
    beta = jnp.where(none, real(alpha), beta)
    wide = beta.astype(column.dtype)
    tau = jnp.where(none, 0, over(wide - alpha, jnp.where(none, 1, beta)))
    v = tail / jnp.where(none, 1, alpha - wide) + at
    return v, tau, (beta * scale).astype(column.dtype)


def _reduce(a: Array) -> tuple[Array, Array]:
    """Bring square matrices to upper Hessenberg form, ``Q^H A Q``.

    Returns:
        The form, with the reflectors below its subdiagonal (..., n, n), and their
        factors (..., n - 1).
    """
    n = a.shape[-1]
    rows, cols = jnp.arange(n)[:, None], jnp.arange(n)
    count = max(n - 1, 0)
    taus = jnp.zeros((*a.shape[:-2], count), a.dtype)

    def step(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        x, packed, taus = state
        column = jnp.where(cols == j, x, 0).sum(-1, keepdims=True)
        below = jnp.where(rows > j, column, 0)
        v, tau, beta = _reflector(below, j + 1)
        x = x - tau.conj() * v * (v.conj() * x).sum(-2, keepdims=True)
        row = adjoint(v)
        x = x - tau * (x * v.swapaxes(-1, -2)).sum(-1, keepdims=True) * row
        # What the reflector makes zero is zero, and holds the reflector in storage.
        exact = jnp.where(rows == j + 1, beta, 0)
        x = jnp.where((cols == j) & (rows > j), exact, x)
        packed = jnp.where((cols == j) & (rows > j + 1), v, packed)
        return x, packed, jnp.where(jnp.arange(count) == j, tau[..., 0], taus)

    start = (a, jnp.zeros_like(a), taus)
    x, packed, taus = lax.fori_loop(0, count, step, start) if count else start
    return x + packed, taus


@plain
def hessenberg(a: Array) -> tuple[Array, Array]:
    """Upper Hessenberg form of square matrices, stored as xGEHRD does.

    Args:
        a: (..., n, n) float or complex.

    Returns:
        The form and the reflectors (..., n, n) and their factors (..., n - 1).
    """
    return _reduce(a)


@plain
def tridiagonal(a: Array, *, lower: bool = True) -> tuple[Array, ...]:
    """Tridiagonal form of Hermitian matrices, stored as xSYTRD and xHETRD do.

    Args:
        a: (..., n, n) float or complex; only one triangle is read.
        lower: which triangle.

    Returns:
        The form and the reflectors in the triangle, beside the other triangle as it
        was (..., n, n); diagonal (..., n) and subdiagonal (..., n - 1), both real; the
        reflectors' factors (..., n - 1).
    """
    if not lower:  # reversing both axes turns one triangle into the other
        packed, d, e, taus = tridiagonal(a[..., ::-1, ::-1], lower=True)
        return packed[..., ::-1, ::-1], d[..., ::-1], e[..., ::-1], taus[..., ::-1]
    strict = jnp.tril(a, -1)
    eye = jnp.eye(a.shape[-1], dtype=bool)
    whole = strict + adjoint(strict) + jnp.where(eye, real(a), 0)
    packed, taus = _reduce(whole)
    middle = real(diagonal(packed))
    e = real(diagonal(packed[..., 1:, :-1]))
    packed = jnp.where(eye, real(packed).astype(a.dtype), packed)
    return jnp.tril(packed) + jnp.triu(a, 1), middle, e, taus


@plain
def pivoted_qr(a: Array) -> tuple[Array, Array, Array]:
    """Householder QR with column pivoting, stored as LAPACK's xGEQP3 does.

    Args:
        a: (..., m, n) float or complex.

    Returns:
        R and the reflectors (..., m, n), the 1-based column order (..., n) and the
        reflectors' factors (..., min(m, n)).
    """
    m, n = a.shape[-2:]
    count = min(m, n)
    rows, cols = jnp.arange(m)[:, None], jnp.arange(n)
    order = jnp.broadcast_to(cols + 1, (*a.shape[:-2], n)).astype(jnp.int32)
    taus = jnp.zeros((*a.shape[:-2], count), a.dtype)

    def pick(x: Array, at: Array) -> Array:
        return jnp.where(at, x, 0).sum(-1, keepdims=True, dtype=x.dtype)

    def step(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        x, order, taus = state
        norms = norm(jnp.where(rows >= j, x, 0), -2)[..., 0, :]
        best = jnp.where(cols >= j, norms, -1).argmax(-1)[..., None]
        here, there = cols == j, cols == best
        swapped = jnp.where(there, pick(order, here), order)
        order = jnp.where(here, pick(order, there), swapped)
        column = pick(x, there[..., None, :])
        moved = jnp.where(there[..., None, :], pick(x, here), x)
        x = jnp.where(here, column, moved)
        v, tau, beta = _reflector(jnp.where(rows >= j, column, 0), j)
        product = (v.conj() * x).sum(-2, keepdims=True)
        updated = jnp.where(cols > j, x - tau.conj() * v * product, x)
        stored = jnp.where(rows == j, beta, v)
        stored = jnp.where(rows < j, column, stored)
        taus = jnp.where(jnp.arange(count) == j, tau[..., 0], taus)
        return jnp.where(here, stored, updated), order, taus

    return (
        lax.fori_loop(0, count, step, (a, order, taus)) if count else (a, order, taus)
    )


def unpacked_hessenberg(a: Array) -> tuple[Array, Array]:
    """Return H and Q (..., n, n) with ``A = Q H Q^H``, H upper Hessenberg."""
    n = a.shape[-1]
    packed, taus = _reduce(a)
    rows, cols = jnp.arange(n)[:, None], jnp.arange(n)
    form = jnp.where(rows <= cols + 1, packed, 0)

    def step(i: Array, q: Array) -> Array:
        j = n - 2 - i
        column = jnp.where(cols == j, packed, 0).sum(-1, keepdims=True)
        v = jnp.where(rows > j + 1, column, 0) + (rows == j + 1)
        tau = jnp.where(jnp.arange(n - 1) == j, taus, 0).sum(-1)[..., None, None]
        return q - tau * v * (v.conj() * q).sum(-2, keepdims=True)

    q = eye_like(a, n)
    return form, lax.fori_loop(0, n - 1, step, q) if n > 1 else q
