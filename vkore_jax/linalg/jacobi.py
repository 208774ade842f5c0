"""Eigenvalues and singular values for a chip without LAPACK, written in jnp.

Jacobi methods: nothing but element code, row reductions and rotations of axes, which
the vector unit does in the operand's own precision (the array's bf16 products would
ruin them), n / 2 rotations at a time.  They are the most accurate methods known for
these problems and cost O(n^3) per sweep; matrices of more than some hundred rows are
better factorised elsewhere.

References: Golub and Van Loan, Matrix Computations, 4th ed., 8.5 (Jacobi, parallel
ordering) and 8.6.3 (one-sided Jacobi); Brent and Luk, "The solution of singular-value
and symmetric eigenvalue problems on multiprocessor arrays", SIAM J. Sci. Stat. Comput.
6 (1985); Demmel and Veselic, "Jacobi's method is more accurate than QR", SIAM J.
Matrix Anal. Appl. 13 (1992).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from vkore_jax.linalg.common import (
    Array,
    diagonal,
    eye_like,
    magnitude,
    norm,
    over,
    plain,
    real,
    square,
)

MAX_SWEEPS = 30
"""Sweeps after which a method stops; 6 to 10 suffice up to a thousand rows."""

Range = tuple[int, int]


def _shift(x: Array, axis: int) -> Array:
    """Pass every index but the first on to its next partner (Brent and Luk).

    With the upper half of the axis holding the first and the lower half the second
    members of the pairs, n - 1 shifts pair every index with every other one and return
    to the start.
    """
    n = x.shape[axis]
    half = n // 2
    if n <= 2:
        return x

    def cut(start: int, stop: int) -> Array:
        return lax.slice_in_dim(x, start, stop, axis=axis)

    parts = [cut(0, 1), cut(half, half + 1), cut(1, half - 1), cut(half + 1, n)]
    return jnp.concatenate([*parts, cut(half - 1, half)], axis)


def _rotation(a: Array, b: Array, c: Array, active: Array) -> tuple[Array, ...]:
    """Return the Jacobi rotation that makes ``[[a, c], [conj(c), b]]`` diagonal.

    Args:
        a: real, any shape.
        b: real.
        c: real or complex.
        active: where to rotate; elsewhere the rotation is the identity.

    Returns:
        Sine and tangent of the half angle (real), and phase p; with c = cos, s = sin
        the new first vector is ``c x - s conj(p) y``, the second one
        ``s x + c conj(p) y``.
    """
    size = jnp.abs(c)
    safe = jnp.where(active, size, 1)
    tau = (b - a) / (2 * safe)
    sign = jnp.where(tau < 0, -1, 1).astype(a.dtype)
    tangent = sign / (jnp.abs(tau) + jnp.sqrt(1 + tau * tau))
    tangent = jnp.where(active, tangent, 0)
    cosine = 1 / jnp.sqrt(1 + tangent * tangent)
    sine = tangent * cosine
    phase = jnp.where(active, over(c, safe), jnp.ones_like(c))
    return sine, sine / (1 + cosine), phase


def _turn(x: Array, axis: int, sine: Array, half_angle: Array, phase: Array) -> Array:
    """Rotate the first half of an axis (-1 or -2) against the second half.

    As differences to the vectors (Rutishauser): rounding errors of cosines, which are
    near 1, would add up over thousands of rotations.
    """
    half = x.shape[axis] // 2
    first = lax.slice_in_dim(x, 0, half, axis=axis)
    second = lax.slice_in_dim(x, half, 2 * half, axis=axis)
    column = axis == -2
    turn = (sine, half_angle, phase)
    sine, half_angle, phase = (
        (v[..., None] if column else v[..., None, :]).astype(x.dtype) for v in turn
    )
    second = phase * second
    top = first - sine * (second + half_angle * first)
    bottom = second + sine * (first - half_angle * second)
    return jnp.concatenate([top, bottom], axis)


def _sweeps(
    rows: int, step: Callable[..., Any], start: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Repeat sweeps of `step(*carry) -> (carry, error)` until none has an error left.

    The error of a round is a boolean: something had to be rotated.
    """

    def sweep(state: Any) -> Any:
        count, _, carry = state

        def round_(_: Any, inner: Any) -> Any:
            busy, carry = inner
            carry, found = step(*carry)
            return busy | found, carry

        busy, carry = lax.fori_loop(0, rows - 1, round_, (jnp.bool_(False), carry))
        return count + 1, busy, carry

    def going(state: Any) -> Any:
        count, busy, _ = state
        return busy & (count < MAX_SWEEPS)

    return lax.while_loop(going, sweep, (0, jnp.bool_(True), start))[2]


def _padded(x: Array, rows: int, cols: int) -> Array:
    edges = [(0, 0)] * (x.ndim - 2)
    return jnp.pad(x, [*edges, (0, rows), (0, cols)])


def _unit(x: Array) -> Array:
    """Scale columns to length 1."""
    return over(x, norm(x, -2))


@plain
def eigh(
    a: Array, *, lower: bool = True, subset_by_index: Range | None = None
) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues of Hermitian matrices, eigenvalues ascending.

    Args:
        a: (..., n, n) float or complex; only one triangle is read.
        lower: which triangle.
        subset_by_index: half-open range of eigenvalues wanted.

    Returns:
        Vectors (..., n, k) and values (..., k); NaN for a matrix that is not finite.
    """
    n = a.shape[-1]
    triangle = jnp.tril(a) if lower else jnp.triu(a)
    other = triangle.swapaxes(-1, -2).conj()
    eye = jnp.eye(n, dtype=bool)
    middle = jnp.where(eye, real(triangle).astype(a.dtype), 0)
    a = jnp.where(eye, middle, triangle + other)
    finite = jnp.isfinite(a).all((-2, -1))
    size = magnitude(a).max((-2, -1), initial=0)
    scale = jnp.where((size > 0) & finite, size, 1)
    a = over(a, scale[..., None, None])
    vectors = _jacobi(a)
    # Rayleigh quotients: the diagonal has seen the rounding of every rotation.
    product = jnp.matmul(a, vectors, precision=lax.Precision.HIGHEST)
    values = real((vectors.conj() * product).sum(-2))
    order = jnp.argsort(values, axis=-1)
    start, stop = subset_by_index or (0, n)
    order = order[..., start:stop]
    values = jnp.take_along_axis(values, order, -1) * scale[..., None]
    vectors = jnp.take_along_axis(vectors, order[..., None, :], -1)
    bad = ~finite[..., None]
    return (
        jnp.where(bad[..., None], jnp.nan, vectors),
        jnp.where(bad, jnp.nan, values),
    )


def _jacobi(a: Array) -> Array:
    """Eigenvectors of Hermitian matrices of norm about 1, by two-sided Jacobi."""
    n = a.shape[-1]
    if n < 2:
        return jnp.ones_like(a)
    odd = n % 2
    work, vectors = _padded(a, odd, odd), eye_like(a, n + odd)
    half = (n + odd) // 2
    eps = jnp.finfo(a.dtype).eps
    # A pair is done when its product cannot move a value by more than the rounding of
    # the whole matrix does.
    limit = eps / 2 * jnp.sqrt(square(work).sum((-2, -1)) / n)[..., None]
    corner = jnp.eye(half, dtype=bool)
    zero = jnp.zeros_like(corner)
    pairs = jnp.block([[zero, corner], [corner, zero]])

    def step(work: Array, vectors: Array) -> Any:
        values = real(diagonal(work))
        cross = diagonal(work[..., :half, half:])
        active = jnp.abs(cross) > limit
        first, second = values[..., :half], values[..., half:]
        sine, angle, phase = _rotation(first, second, cross, active)
        work = _turn(work, -1, sine, angle, phase.conj())
        work = _turn(work, -2, sine, angle, phase)
        done = pairs & jnp.tile(active, 2)[..., None, :]
        work = jnp.where(done, 0, work)
        vectors = _turn(vectors, -1, sine, angle, phase.conj())
        work = _shift(_shift(work, -1), -2)
        return (work, _shift(vectors, -1)), active.any()

    return _unit(_sweeps(n + odd, step, (work, vectors))[1][..., :n, :n])


@plain
def svd(
    a: Array,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: Range | None = None,
) -> tuple[Array, ...]:
    """Singular values, descending, and vectors of (..., m, n) matrices.

    Args:
        a: float or complex.
        full_matrices: square U (m, m) and V^H (n, n).
        compute_uv: vectors too.
        subset_by_index: half-open range of singular values wanted.

    Returns:
        ``(s,)`` or ``(s, u, vh)``; NaN for a matrix that is not finite.
    """
    m, n = a.shape[-2:]
    if m < n:
        flipped = a.swapaxes(-1, -2).conj()
        s, *rest = svd(
            flipped,
            full_matrices=full_matrices,
            compute_uv=compute_uv,
            subset_by_index=subset_by_index,
        )
        if not rest:
            return (s,)
        u, vh = rest
        return s, vh.swapaxes(-1, -2).conj(), u.swapaxes(-1, -2).conj()
    if n == 0:
        s = jnp.zeros((*a.shape[:-2], 0), real(a).dtype)
        u = eye_like(a, m)[..., : m if full_matrices else 0]
        return (s, u, eye_like(a, 0)) if compute_uv else (s,)
    finite = jnp.isfinite(a).all((-2, -1))
    size = magnitude(a).max((-2, -1), initial=0)
    scale = jnp.where((size > 0) & finite, size, 1)
    work = over(a, scale[..., None, None])
    left = None
    if m > n:
        left, work = jnp.linalg.qr(
            work, mode="complete" if full_matrices else "reduced"
        )
        work = work[..., :n, :]
    columns, right = _one_sided(work)
    s = norm(columns, -2)[..., 0, :]
    order = jnp.argsort(-s, axis=-1)
    s = jnp.take_along_axis(s, order, -1) * scale[..., None]
    bad = ~finite[..., None]
    s = jnp.where(bad, jnp.nan, s)
    start, stop = subset_by_index or (0, n)
    if not compute_uv:
        return (s[..., start:stop],)
    columns = jnp.take_along_axis(columns, order[..., None, :], -1)
    right = jnp.take_along_axis(right, order[..., None, :], -1)
    # The columns are orthogonal; QR makes them orthonormal and completes the basis
    # where a singular value is zero.
    u, r = jnp.linalg.qr(columns)
    pivot = real(diagonal(r))
    u = u * jnp.where(pivot < 0, -1, 1).astype(u.dtype)[..., None, :]
    if left is not None:
        thin = jnp.matmul(left[..., :n], u, precision=lax.Precision.HIGHEST)
        u = jnp.concatenate([thin, left[..., n:]], -1)
    vh = right.swapaxes(-1, -2).conj()
    if subset_by_index is not None:
        s, u, vh = s[..., start:stop], u[..., start:stop], vh[..., start:stop, :]
    return (
        s,
        jnp.where(bad[..., None], jnp.nan, u),
        jnp.where(bad[..., None], jnp.nan, vh),
    )


def _one_sided(a: Array) -> tuple[Array, Array]:
    """Return ``(a v, v)`` with orthogonal columns ``a v``, for square `a`."""
    n = a.shape[-1]
    if n == 1:
        return a, jnp.ones_like(a)
    odd = n % 2
    half = (n + odd) // 2
    work, right = _padded(a, 0, odd), eye_like(a, n + odd)
    limit = jnp.finfo(a.dtype).eps * (n**0.5)

    def step(work: Array, right: Array) -> Any:
        first, second = work[..., :half], work[..., half:]
        norms = square(work).sum(-2)
        p, q = norms[..., :half], norms[..., half:]
        cross = (first.conj() * second).sum(-2)
        # Columns whose squares underflow count as the least that has a square.
        least = jnp.sqrt(jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))
        active = jnp.abs(cross) > limit * least[..., :half] * least[..., half:]
        sine, angle, phase = _rotation(p, q, cross, active)
        work = _turn(work, -1, sine, angle, phase.conj())
        right = _turn(right, -1, sine, angle, phase.conj())
        return (_shift(work, -1), _shift(right, -1)), active.any()

    work, right = _sweeps(n + odd, step, (work, right))
    return work[..., :n], _unit(right[..., :n, :n])
