"""Schur form and eigenvalues of general matrices, written in jnp.

The QR algorithm on the Hessenberg form, bulge by bulge, with element code and row
reductions only: the array's bf16 products would ruin it.  A step costs O(n^2), so the
whole O(n^4) with a small constant; for matrices of up to some hundred rows.

References: Golub and Van Loan, Matrix Computations, 4th ed., 7.5 (implicit shifts) and
7.6.4 (eigenvectors); Francis, "The QR transformation II", Computer Journal 4 (1962);
deflation and exceptional shifts as in LAPACK's xLAHQR.
"""

from __future__ import annotations

from typing import Any

import jax
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
    square,
)
from vkore_jax.linalg.householder import unpacked_hessenberg

MAX_STEPS = 30
"""QR steps per row after which a matrix counts as failed (LAPACK's limit)."""


def _entry(x: Array, i: Array, j: Array) -> Array:
    """Return ``x[i, j]`` of one matrix; indices outside are clamped."""
    return lax.dynamic_slice(x, (i, j), (1, 1))[0, 0]


def _apply(x: Array, vectors: Array, v: Array) -> tuple[Array, Array]:
    """Apply ``P = I - 2 v v^H / (v^H v)`` as ``P x P`` and ``vectors P``."""
    size = square(v).sum()
    factor = jnp.where(size > 0, 2 / jnp.where(size > 0, size, 1), 0).astype(x.dtype)
    w = v * factor
    x = x - w[:, None] * (v.conj()[:, None] * x).sum(0)
    x = x - (x * v).sum(1, keepdims=True) * w.conj()
    return x, vectors - (vectors * v).sum(1, keepdims=True) * w.conj()


def _mirror(column: Array, first: Array) -> tuple[Array, Array]:
    """Return v of the reflection that turns a column into one element, and that."""
    size = magnitude(column).max()
    scaled = over(column, jnp.where(size > 0, size, 1))
    total = jnp.sqrt(square(scaled).sum())
    at = jnp.arange(column.shape[0]) == first
    alpha = jnp.where(at, scaled, 0).sum()
    length = jnp.abs(alpha)
    turn = over(alpha, jnp.where(length > 0, length, 1))
    phase = jnp.where(length > 0, turn, 1).astype(column.dtype)
    v = scaled + jnp.where(at, phase * total, 0)
    return v, -phase * total * size


def _block(x: Array, high: Array) -> tuple[Array, ...]:
    """Return the 2 x 2 block that ends at `high`, row by row."""
    at = high - 1, high
    return tuple(_entry(x, i, j) for i in at for j in at)


def _first_real(x: Array, low: Array, high: Array, steps: Array) -> Array:
    """First column of ``(X - s)(X - t)`` for the two shifts of a real step."""
    n = x.shape[0]
    h = _entry
    # The closing 2 x 2 block gives the shifts; every tenth step an exceptional one.
    a, b, c, d = _block(x, high)
    trace, det = a + d, a * d - b * c
    root = (a - d) ** 2 / 4 + b * c
    # Real shifts: the one next to the last element, twice.
    gap = jnp.sqrt(jnp.where(root > 0, root, 0))
    above, below = trace / 2 + gap, trace / 2 - gap
    near = jnp.where(jnp.abs(above - d) < jnp.abs(below - d), above, below)
    trace = jnp.where(root >= 0, 2 * near, trace)
    det = jnp.where(root >= 0, near * near, det)
    odd = jnp.abs(c) + jnp.abs(h(x, high - 1, jnp.maximum(high - 2, low)))
    strange = (steps % 10 == 9) & (odd > 0)
    shift = 0.75 * odd + d
    trace = jnp.where(strange, 2 * shift, trace)
    det = jnp.where(strange, shift * shift + 0.4375 * odd * odd, det)
    p, q, r = h(x, low, low), h(x, low, low + 1), h(x, low + 1, low)
    s, t = h(x, low + 1, low + 1), h(x, low + 2, low + 1)
    values = p * p + q * r - trace * p + det, r * (p + s - trace), r * t
    index = jnp.arange(n) - low
    zero = jnp.zeros((), x.dtype)
    return sum((jnp.where(index == i, v, zero) for i, v in enumerate(values)), zero)


def _first_complex(x: Array, low: Array, high: Array, steps: Array) -> Array:
    """First column of ``X - s`` for Wilkinson's shift."""
    h = _entry
    a, b, c, d = _block(x, high)
    half = (a - d) / 2
    root = jnp.sqrt(half * half + b * c)
    root = jnp.where((half.conj() * root).real < 0, -root, root)
    divisor = half + root
    none = divisor == 0
    shift = d - jnp.where(none, 0, b * c / jnp.where(none, 1, divisor))
    shift = jnp.where(steps % 10 == 9, d + 0.75 * jnp.abs(c), shift)
    index = jnp.arange(x.shape[0]) - low
    first = jnp.where(index == 0, h(x, low, low) - shift, 0)
    return jnp.where(index == 1, h(x, low + 1, low), first)


def _standard(x: Array, vectors: Array, low: Array) -> tuple[Array, Array]:
    """Bring a real 2 x 2 block to standard form (LAPACK's xLANV2).

    Real eigenvalues: upper triangular.  A complex pair: equal diagonal elements and
    off-diagonal elements of opposite sign.
    """
    n = x.shape[0]
    block = jnp.stack(_block(x, low + 1))
    size = jnp.abs(block).max()
    a, b, c, d = block / jnp.where(size > 0, size, 1)
    half = (a - d) / 2
    disc = half * half + b * c
    is_real = disc >= 0
    # Real: the rotation's first column is the eigenvector of the larger shift.
    root = jnp.sqrt(jnp.where(is_real, disc, 0))
    z = half + jnp.where(half < 0, -root, root)
    tau = jnp.hypot(c, z)
    safe = jnp.where(tau > 0, tau, 1)
    cos_r = jnp.where(tau > 0, z / safe, 1)
    sin_r = jnp.where(tau > 0, c / safe, 0)
    # Complex: the rotation that makes the diagonal elements equal.
    sigma = b + c
    length = jnp.hypot(sigma, a - d)
    ratio = jnp.abs(sigma) / jnp.where(length > 0, length, 1)
    cos_c = jnp.sqrt((1 + ratio) / 2)
    divisor = jnp.where(length > 0, length * cos_c, 1)
    sin_c = -(half / divisor) * jnp.where(sigma < 0, -1, 1)
    cosine = jnp.where(is_real, cos_r, jnp.where(length > 0, cos_c, 1))
    sine = jnp.where(is_real, sin_r, jnp.where(length > 0, sin_c, 0))
    cosine, sine = (jnp.where(c == 0, v, w) for v, w in ((1.0, cosine), (0.0, sine)))
    index = jnp.arange(n)
    first, second = index == low, index == low + 1

    def columns(y: Array) -> Array:
        u = jnp.where(first, y, 0).sum(1, keepdims=True)
        w = jnp.where(second, y, 0).sum(1, keepdims=True)
        y = jnp.where(first, cosine * u + sine * w, y)
        return jnp.where(second, cosine * w - sine * u, y)

    x = columns(columns(x.T).T)
    here = first[:, None] & first, second[:, None] & second
    middle = (_entry(x, low, low) + _entry(x, low + 1, low + 1)) / 2
    x = jnp.where((here[0] | here[1]) & ~is_real & (c != 0), middle, x)
    below = second[:, None] & first
    return jnp.where(below & is_real, 0, x), columns(vectors)


def _schur_one(x: Array, vectors: Array) -> tuple[Array, Array, Array]:
    """Schur form, vectors and "converged" of one Hessenberg matrix.

    Args:
        x: (n, n), n >= 2.
        vectors: (n, n), which the Schur vectors are multiplied to.
    """
    n = x.shape[-1]
    info = jnp.finfo(x.dtype)
    eps = info.eps
    least = info.tiny * (n / eps)  # as xLAHQR's smlnum; the norm is about 1
    is_real = not jnp.iscomplexobj(x)
    width = 3 if is_real else 2
    index = jnp.arange(n)
    under = index[:, None] == index + 1

    def step(state: Any) -> Any:
        high, steps, total, x, vectors = state
        # Deflate: subdiagonal elements that rounding hides are zero.
        size = jnp.abs(x)
        middle = diagonal(size)
        beside = middle + jnp.roll(middle, 1)
        whole = jnp.where(index > 0, jnp.where(under, size, 0).sum(1), 0)
        floor = jnp.where(beside > 0, beside, size.max())
        small = (whole <= jnp.maximum(eps * floor, least)) & (index > 0)
        x = jnp.where(under & small[:, None], 0, x)
        low = jnp.where((small | (index == 0)) & (index <= high), index, -1).max()
        single = low == high
        pair = (low == high - 1) & is_real

        def single_case(x: Array, vectors: Array) -> tuple[Array, Array]:
            return x, vectors

        def pair_case(x: Array, vectors: Array) -> tuple[Array, Array]:
            return _standard(x, vectors, low) if is_real else (x, vectors)

        def sweep_case(x: Array, vectors: Array) -> tuple[Array, Array]:
            first = _first_real if is_real else _first_complex
            # Squares of its elements must not vanish; the direction is what counts.
            inside = (index >= low) & (index <= high)
            scale = jnp.where(inside & inside[:, None], magnitude(x), 0).max()
            scale = jnp.where(scale > 0, scale, 1)
            start = first(over(x, scale), low, high, steps)

            def chase(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
                x, vectors = state
                ahead = jnp.where(index == k - 1, x, 0).sum(1)
                column = jnp.where(k == low, start, ahead)
                span = (index >= k) & (index < k + width) & (index <= high)
                v, left = _mirror(jnp.where(span, column, 0), k)
                x, vectors = _apply(x, vectors, v)
                done = (index == k - 1) & span[:, None] & (k > low)
                exact = jnp.where(index[:, None] == k, left, 0)
                return jnp.where(done, exact, x), vectors

            return lax.fori_loop(low, high, chase, (x, vectors))

        case = jnp.where(single, 0, jnp.where(pair, 1, 2))
        cases = [single_case, pair_case, sweep_case]
        x, vectors = lax.switch(case, cases, x, vectors)
        high = high - jnp.where(single, 1, jnp.where(pair, 2, 0))
        steps = jnp.where(single | pair, 0, steps + 1)
        return high, steps, total + (case == 2), x, vectors

    def going(state: Any) -> Any:
        high, _, total, *_ = state
        return (high > 0) & (total < MAX_STEPS * n)

    # Indices have the type of `jnp.arange`, which `jax_enable_x64` decides.
    zero = jnp.zeros((), index.dtype)
    start = (zero + (n - 1), zero, zero, x, vectors)
    high, _, _, x, vectors = lax.while_loop(going, step, start)
    keep = index[:, None] <= index + 1 if is_real else index[:, None] <= index
    return jnp.where(keep, x, 0), vectors, high <= 0


def _schur(x: Array, vectors: Array) -> tuple[Array, Array, Array]:
    """Schur form, vectors, converged (...,) of Hessenberg matrices."""
    *batch, n, _ = x.shape
    if x.size == 0 or n < 2:
        return x, vectors, jnp.ones(batch, bool)
    if not batch:
        return _schur_one(x, vectors)
    flat = x.reshape(-1, n, n), vectors.reshape(-1, n, n)
    form, vectors, good = jax.vmap(_schur_one)(*flat)
    return form.reshape(x.shape), vectors.reshape(x.shape), good.reshape(batch)


def _prepared(a: Array) -> tuple[Array, Array, Array, Array]:
    """Return finite, scale, and form and vectors of the scaled Hessenberg matrices."""
    finite = jnp.isfinite(a).all((-2, -1))
    size = magnitude(a).max((-2, -1), initial=0)
    scale = jnp.where((size > 0) & finite, size, 1)
    a = over(a, scale[..., None, None])
    a = jnp.where(finite[..., None, None], a, 0)
    return finite, scale, *unpacked_hessenberg(a)


def _or_nan(good: Array, x: Array, axes: int) -> Array:
    nan = complex(jnp.nan, jnp.nan) if jnp.iscomplexobj(x) else jnp.nan
    return jnp.where(good.reshape(*good.shape, *[1] * axes), x, nan)


@plain
def schur(a: Array, *, compute_schur_vectors: bool = True) -> tuple[Array, ...]:
    """Schur form T and unitary vectors Z of square matrices, ``A = Z T Z^H``.

    Args:
        a: (..., n, n) float or complex.
        compute_schur_vectors: Z too.

    Returns:
        ``(T,)`` or ``(T, Z)``.  T of a real matrix is real, with a standard 2 x 2
        block for every complex pair.  NaN for a matrix that is not finite.
    """
    finite, scale, form, vectors = _prepared(a)
    form, vectors, converged = _schur(form, vectors)
    good = finite & converged
    form = _or_nan(good, form * scale[..., None, None].astype(a.dtype), 2)
    if not compute_schur_vectors:
        return (form,)
    return form, _or_nan(good, vectors, 2)


def _real_pairs(form: Array) -> Array:
    """Eigenvalues (..., n), complex, of standard real Schur forms."""
    n = form.shape[-1]
    middle = diagonal(form)
    zero = jnp.zeros_like(middle[..., :1])
    under = jnp.concatenate([diagonal(form[..., 1:, :-1]), zero], -1)[..., :n]
    over = jnp.concatenate([diagonal(form[..., :-1, 1:]), zero], -1)[..., :n]
    size = jnp.sqrt(jnp.abs(under)) * jnp.sqrt(jnp.abs(over))
    first = jnp.where(under != 0, size, 0)
    second = jnp.concatenate([zero, first[..., :-1]], -1)[..., :n]
    return lax.complex(middle, first - second)


def _triangular_vectors(form: Array) -> Array:
    """Right eigenvectors, as columns, of upper triangular complex matrices."""
    n = form.shape[-1]
    rows, cols = jnp.arange(n)[:, None], jnp.arange(n)
    values = diagonal(form)
    eps = jnp.finfo(form.dtype).eps
    tiny = jnp.finfo(form.dtype).tiny
    size = jnp.abs(form).max((-2, -1), keepdims=True, initial=0)
    least = jnp.maximum(eps * size, tiny)
    upper = jnp.where(rows < cols, form, 0)

    def step(i: Array, x: Array) -> Array:
        j = n - 1 - i
        row = jnp.where(rows == j, upper, 0).sum(-2)[..., :, None]
        known = (row * x).sum(-2)
        gap = jnp.where(cols == j, values, 0).sum(-1, keepdims=True) - values
        narrow = jnp.abs(gap) < least[..., 0]
        gap = jnp.where(narrow, least[..., 0].astype(form.dtype), gap)
        solved = jnp.where(cols > j, -known / gap, 0)
        x = jnp.where((rows == j) & (cols > j), solved[..., None, :], x)
        # Nearly equal eigenvalues: the vector grows without bound; only its
        # direction matters.
        size = jnp.abs(x).max(-2, keepdims=True, initial=0)
        return over(x, jnp.where(size > 1 / eps, size, 1))

    return lax.fori_loop(0, n, step, eye_like(form, n))


def _normal(x: Array) -> Array:
    """Scale columns to length 1 with a real largest element, as xGEEV does."""
    if x.size == 0:
        return x
    size = magnitude(x).max(-2, keepdims=True)
    x = over(x, jnp.maximum(size, jnp.finfo(size.dtype).tiny))
    x = over(x, norm(x, -2))
    place = jnp.argmax(jnp.abs(x), axis=-2, keepdims=True)
    largest = jnp.arange(x.shape[-2])[:, None] == place
    pivot = jnp.where(largest, x, 0).sum(-2, keepdims=True)
    x = x * over(pivot.conj(), jnp.abs(pivot))
    return jnp.where(largest, x.real.astype(x.dtype), x)


@plain
def eig(
    a: Array,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors of general square matrices.

    Args:
        a: (..., n, n) float or complex.
        compute_left_eigenvectors: U with ``U^H A = diag(w) U^H``.
        compute_right_eigenvectors: V with ``A V = V diag(w)``.

    Returns:
        w (..., n), then U and V (..., n, n) as asked for, all complex; vectors have
        length 1 and a real largest element.  Complex eigenvalues of a real matrix come
        in exact pairs.  NaN for a matrix that is not finite.
    """
    finite, scale, form, vectors = _prepared(a)
    form, vectors, good = _schur(form, vectors)
    good = good & finite
    if jnp.iscomplexobj(a):
        values = diagonal(form)
    else:
        values = _real_pairs(form)
        if compute_left_eigenvectors or compute_right_eigenvectors:
            # Its 2 x 2 blocks are the only work left for the complex algorithm.
            wide = form.astype(values.dtype), vectors.astype(values.dtype)
            form, vectors, more = _schur(*wide)
            good = good & more
            sign = jnp.where(diagonal(form).imag < 0, -1, 1)
            imag = jnp.abs(values.imag) * sign
            values = lax.complex(values.real, imag)
            eye = jnp.eye(a.shape[-1], dtype=bool)
            form = jnp.where(eye, values[..., None, :], form)
    outputs = [_or_nan(good, values * scale[..., None], 1)]
    sides = []
    if compute_left_eigenvectors:
        turned = adjoint(form)[..., ::-1, ::-1]
        sides.append(_triangular_vectors(turned)[..., ::-1, ::-1])
    if compute_right_eigenvectors:
        sides.append(_triangular_vectors(form))
    for side in sides:
        whole = jnp.matmul(vectors, side, precision=lax.Precision.HIGHEST)
        outputs.append(_or_nan(good, _normal(whole), 2))
    return tuple(outputs)
