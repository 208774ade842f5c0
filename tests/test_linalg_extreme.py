"""Factorisations of very small, very large and rank-deficient matrices, in all types.

Squares of elements below 1e-19 (f32) or 1e-154 (f64) vanish and those of their
inverses overflow: whatever squares must scale first.  All matrices of one shape and
type are a batch, so that a row costs one program.
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vkore_jax import linalg

SCALES = {
    "f": (1e-35, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e20, 1e37),
    "d": (1e-300, 1e-160, 1e-155, 1e-100, 1.0, 1e100, 1e160, 1e300),
}
TYPES = {"f4": "f", "f8": "d", "c8": "f", "c16": "d"}
SHAPES = [(3, 3), (6, 3), (3, 5), (1, 1)]


def cases(shapes: Any, quick: Any) -> Any:
    """Return every shape with every type; all but the quick ones are slow."""
    return [
        pytest.param(
            s, t, id=f"{s}-{t}", marks=[] if (s, t) in quick else pytest.mark.slow
        )
        for s in shapes
        for t in TYPES
    ]


def matrices(shape: tuple[int, int], dtype: str) -> Any:
    """Return finite matrices (batch, m, n): scaled, graded and rank-deficient ones."""
    m, n = shape
    rng = np.random.default_rng(m * n)
    scales = SCALES[TYPES[dtype]]

    def normal() -> Any:
        x = rng.standard_normal(shape)
        return x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x

    many = [normal() * s for s in scales]
    many.append(normal() * np.resize(scales[::3], n))
    many.append(normal() * np.resize(scales[::3], m)[:, None])
    for s in (scales[1], 1.0, scales[-2]):
        zero_row, zero_column, equal = normal() * s, normal() * s, normal() * s
        zero_row[-1] = 0
        zero_column[:, 0] = 0
        equal[:] = equal[:, :1]
        many += [zero_row, zero_column, equal, np.outer(equal[:, 0], np.ones(n))]
        many.append(np.eye(m, n) * s)
    many.append(np.zeros(shape))
    return np.array(many).astype(dtype)


def context(dtype: str) -> Any:
    wide = TYPES[dtype] == "d"
    return jax.enable_x64(True) if wide else contextlib.nullcontext()


def adjoint(x: Any) -> Any:
    return np.swapaxes(x, -1, -2).conj()


def near(found: Any, wanted: Any, scale: Any, dtype: str) -> None:
    """Compare two arrays, in units of `scale`, a number for a matrix or column."""
    info = np.finfo(dtype)
    scale = np.maximum(scale, info.tiny / info.eps).astype("f8")
    parts = [np.stack([x.real, x.imag]).astype("f8") for x in (found, wanted)]
    a, b = (p / scale for p in parts)
    assert np.isfinite(a).all()
    np.testing.assert_allclose(a, b, rtol=0, atol=40 * info.eps)


def orthonormal(q: Any, dtype: str) -> None:
    eye = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2))
    wide = q.astype("c16")
    near(adjoint(wide) @ wide, eye, np.float64(1), dtype)


def unit_columns(a: Any) -> tuple[Any, Any]:
    """Return columns scaled by powers of two and the scales (..., 1, n)."""
    size = np.maximum(abs(a.real), abs(a.imag)).max(-2, keepdims=True)
    exponent = np.frexp(size.astype("f8"))[1]
    half = exponent // 2
    parts = [np.ldexp(np.ldexp(p.astype("f8"), -half), half - exponent)
             for p in (a.real, a.imag)]  # fmt: skip
    return parts[0] + 1j * parts[1], exponent


QUICK = [((3, 3), t) for t in ("f4", "c8", "c16")]


@pytest.mark.parametrize(("shape", "dtype"), cases(SHAPES, QUICK))
def test_qr(shape: tuple[int, int], dtype: str) -> None:
    """Every column is reproduced to its own rounding, and Q is orthonormal."""
    a = matrices(shape, dtype)
    with context(dtype):
        q, r = (np.asarray(x) for x in jnp.linalg.qr(a, mode="complete"))
        assert q.dtype == r.dtype == a.dtype
    orthonormal(q, dtype)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    scaled, exponent = unit_columns(a)
    half = exponent // 2
    parts = [np.ldexp(np.ldexp(p.astype("f8"), -half), half - exponent)
             for p in (r.real, r.imag)]  # fmt: skip
    made = q.astype("c16") @ (parts[0] + 1j * parts[1])
    # Columns whose elements are subnormal have no digits to keep.
    keep = np.broadcast_to(exponent > np.finfo(dtype).minexp + 30, made.shape)
    near(np.where(keep, made, 0), np.where(keep, scaled, 0), np.float64(1), dtype)


@pytest.mark.parametrize(("shape", "dtype"), cases([(3, 3), (4, 2)], [((3, 3), "f4")]))
def test_pivoted_qr(shape: tuple[int, int], dtype: str) -> None:
    """Pivots descend, whatever the scale: their norms are taken without squares."""
    a = matrices(shape, dtype)
    with context(dtype):
        packed, order, _ = (np.asarray(x) for x in jax.jit(linalg.pivoted_qr)(a))
    pivots = abs(np.diagonal(packed, 0, -2, -1))
    slack = 1 + 40 * np.finfo(dtype).eps
    assert (pivots[:, 1:] <= pivots[:, :-1] * slack + np.finfo(dtype).tiny).all()
    first = np.take_along_axis(a, order[:, None, :1] - 1, -1)[..., 0]
    norms, exponent = unit_columns(first[..., None])
    length = np.sqrt((abs(norms) ** 2).sum(-2))[..., 0]
    near(np.ldexp(pivots[:, 0].astype("f8"), -exponent[:, 0, 0]) + 0j, length,
         np.float64(1), dtype)  # fmt: skip


@pytest.mark.parametrize(("shape", "dtype"), cases([(3, 3), (5, 3)], [((3, 3), "c8")]))
def test_svd(shape: tuple[int, int], dtype: str) -> None:
    """U and V are orthonormal and U S V^H is the matrix, to its norm's rounding."""
    a = matrices(shape, dtype)
    with context(dtype):
        u, s, vh = (np.asarray(x) for x in jnp.linalg.svd(a, full_matrices=False))
    orthonormal(u, dtype)
    orthonormal(adjoint(vh), dtype)
    size = np.maximum(abs(a.real), abs(a.imag)).max((-2, -1), keepdims=True)
    size = np.where(size > 0, size, 1).astype("f8")
    made = (u.astype("c16") * (s[:, None, :] / size)) @ vh
    wide = a.real / size + 1j * (a.imag / size)
    near(made, wide, np.float64(1), dtype)


@pytest.mark.parametrize(("shape", "dtype"), cases([(3, 3)], [((3, 3), "c16")]))
def test_least_squares_of_rank_deficient_matrices(
    shape: tuple[int, int], dtype: str
) -> None:
    """The residual is orthogonal to the columns, and nothing is NaN."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal((20, *shape)) + 1j * rng.standard_normal((20, *shape))
    a = (a if dtype[0] == "c" else a.real).astype(dtype)
    a[:10, 2] = 0  # a zero row; the others have two equal columns
    a[10:, :, 2] = a[10:, :, 1]
    b = a[:, 0] + 1
    with context(dtype):
        solve = jax.jit(jax.vmap(lambda a, b: jnp.linalg.lstsq(a, b)[0]))
        x = np.asarray(solve(a, b))
    wanted = np.stack([np.linalg.lstsq(m, v, rcond=1e-5)[0] for m, v in zip(a, b)])
    np.testing.assert_allclose(x, wanted, rtol=0, atol=2000 * np.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_general_eigenvalues_and_schur_form(dtype: str) -> None:
    a = matrices((3, 3), dtype)
    size = np.maximum(abs(a.real), abs(a.imag)).max((-2, -1), keepdims=True)
    size = np.where(size > 0, size, 1).astype("f8")
    wide = a.real / size + 1j * (a.imag / size)
    with context(dtype):
        form, z = (np.asarray(x) for x in jax.jit(linalg.schur)(a))
        w, v = (np.asarray(x) for x in jnp.linalg.eig(a))
        values, vectors = np.asarray(jnp.linalg.eigvals(a)), v.astype("c16")
    orthonormal(z, dtype)
    form = form.real / size + 1j * (form.imag / size)
    z = z.astype("c16")
    near(z @ form @ adjoint(z), wide, np.float64(1), dtype)
    assert np.isfinite(values).all()
    scaled = w.real / size[..., 0] + 1j * (w.imag / size[..., 0])
    near(wide @ vectors, vectors * scaled[:, None, :], np.float64(1), dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_not_a_number_stays_one(dtype: str) -> None:
    a = np.eye(3, dtype=dtype)
    a[1, 1] = np.nan
    with context(dtype):
        _, r = jnp.linalg.qr(a)
        assert np.isnan(np.asarray(r)).any()


TRACED = {
    name: getattr(linalg, name)
    for name in linalg.__all__
    if name != "tridiagonal_solve"
} | {
    "sqrtm": jax.scipy.linalg.sqrtm,
    "roots": lambda a: jnp.roots(a[0], strip_zeros=False),
    "rsf2csf": lambda a: jax.scipy.linalg.rsf2csf(a, a),
}


@pytest.mark.parametrize(
    ("name", "dtype"), cases(TRACED, [(name, "f8") for name in TRACED])
)
def test_index_types_do_not_matter(name: str, dtype: str) -> None:
    """`jax_enable_x64` changes the types of indices, which loops carry."""
    with jax.enable_x64(True):
        traced = jax.jit(TRACED[name]).trace(jax.ShapeDtypeStruct((3, 3), dtype))
        traced.lower(lowering_platforms=("vkore",))
        outs = (jnp.dtype(x.dtype) for x in jax.tree.leaves(traced.out_info))
        widths = {jnp.finfo(x).bits for x in outs if jnp.issubdtype(x, jnp.inexact)}
    assert widths == {jnp.finfo(dtype).bits}


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_general_matrices_of_wide_types(dtype: str, n: int) -> None:
    """`jax_enable_x64` changes the types of indices, which loops carry."""
    rng = np.random.default_rng(n)
    a = rng.standard_normal((2, n, n))
    a = (a + 1j * rng.standard_normal(a.shape) if dtype == "c16" else a).astype(dtype)
    with jax.enable_x64(True):
        form, z = (np.asarray(x) for x in jax.jit(linalg.schur)(a))
        w, _, v = (np.asarray(x) for x in jax.jit(linalg.eig)(a))
    assert (form.dtype, z.dtype, w.dtype, v.dtype) == (a.dtype, a.dtype, "c16", "c16")
    np.testing.assert_allclose(z @ form @ adjoint(z), a, atol=1e-13)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_functions_of_scipy_in_wide_types(dtype: str) -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((4, 4))
    a = (a + 1j * rng.standard_normal(a.shape) if dtype == "c16" else a).astype(dtype)
    with jax.enable_x64(True):
        root = np.asarray(jax.scipy.linalg.sqrtm(a))
        form, z = jax.scipy.linalg.schur(a)
        t, y = (np.asarray(x) for x in jax.scipy.linalg.rsf2csf(form, z))
        zeros = np.asarray(jnp.roots(a[0], strip_zeros=False))
    np.testing.assert_allclose(root @ root, a, atol=1e-12)
    np.testing.assert_allclose(y @ t @ adjoint(y), a, atol=1e-12)
    np.testing.assert_array_equal(np.tril(t, -1), 0)
    np.testing.assert_allclose(np.polyval(a[0], zeros), 0, atol=1e-12)
