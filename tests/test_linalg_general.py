"""jnp.linalg on the chip: general eigenvalues, Schur form, tridiagonal systems."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vkore_jax import linalg
from vkore_jax.errors import UnsupportedOp

RNG = np.random.default_rng(1)


def normal(*shape: int, dtype: str = "f4") -> Any:
    x = RNG.standard_normal(shape)
    if dtype.startswith("c"):
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(dtype)


def adjoint(x: Any) -> Any:
    return np.swapaxes(x, -1, -2).conj()


CYCLE = np.roll(np.eye(6), 1, 0).astype("f4")
"""Eigenvalues on the unit circle: needs the exceptional shift."""

MATRICES: dict[str, Any] = {
    "1": normal(1, 1),
    "2": normal(2, 2),
    "rotation": np.array([[0, 1], [-1, 0]], "f4"),
    "real": normal(7, 7),
    "batch": normal(2, 3, 4, 4),
    "large": normal(30, 30),
    "complex": normal(6, 6, dtype="c8"),
    "cycle": CYCLE,
    "complex_cycle": CYCLE.astype("c8"),
    "zero": np.zeros((3, 3), "f4"),
    "jordan": (np.diag(np.ones(3), 1) + 2 * np.eye(4)).astype("f4"),
    "graded": np.diag([1e-20, 1.0, 1e10]).astype("f4"),
    "huge": normal(5, 5) * np.float32(1e30),
    "ones": np.ones((5, 5), "f4"),
    "none": np.zeros((0, 0), "f4"),
}


FAST = ("1", "real", "complex", "none")
CASES = [
    pytest.param(a, id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for name, a in MATRICES.items()
]


@pytest.mark.parametrize("a", CASES)
def test_schur(a: Any) -> None:
    form, vectors = (np.asarray(x) for x in jax.jit(linalg.schur)(a))
    wide = vectors.astype("c16")
    scale = max(float(np.abs(a).max(initial=0)), 1e-30) * max(1, a.shape[-1])
    np.testing.assert_allclose(wide @ form @ adjoint(wide), a, atol=1e-6 * scale)
    eye = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    np.testing.assert_allclose(wide @ adjoint(wide), eye, atol=1e-5)
    below = np.tril(form, -2 if a.dtype.kind == "f" else -1)
    np.testing.assert_array_equal(below, 0)
    if a.dtype.kind == "f" and a.shape[-1] > 1:
        # Standard blocks: no two in a row, equal diagonal, opposite signs.
        under = np.diagonal(form, -1, -2, -1)
        over, middle = np.diagonal(form, 1, -2, -1), np.diagonal(form, 0, -2, -1)
        block = under != 0
        assert not (block[..., 1:] & block[..., :-1]).any()
        assert (np.sign(under) * np.sign(over) <= 0)[block].all()
        assert (middle[..., 1:] == middle[..., :-1])[block].all()


@pytest.mark.parametrize("a", CASES)
def test_eig(a: Any) -> None:
    def f(x: Any) -> Any:
        return jax.lax.linalg.eig(
            x, compute_left_eigenvectors=True, compute_right_eigenvectors=True
        )

    w, left, right = (np.asarray(x) for x in jax.jit(f)(a))
    scale = max(float(np.abs(a).max(initial=0)), 1e-30) * max(1, a.shape[-1])
    wide = a.astype("c16")
    for matrix, values, v in ((wide, w, right), (adjoint(wide), w.conj(), left)):
        np.testing.assert_allclose(
            matrix @ v, v * values[..., None, :], atol=1e-6 * scale
        )
        np.testing.assert_allclose((np.abs(v) ** 2).sum(-2), 1, rtol=1e-5)
        size = np.abs(v)
        largest = size >= size.max(-2, keepdims=True, initial=0) * (1 - 1e-5)
        assert (largest & (np.imag(v) == 0)).any(-2).all()
    if a.dtype.kind == "f":  # exact pairs
        pairs = np.sort_complex(w.astype("c16"))
        mirrored = np.sort_complex(w.conj().astype("c16"))
        np.testing.assert_array_equal(pairs, mirrored)


@pytest.mark.slow
def test_eigvals_and_gradient() -> None:
    a = normal(5, 5)
    found = np.sort_complex(np.asarray(jax.jit(jnp.linalg.eigvals)(a)))
    np.testing.assert_allclose(
        found, np.sort_complex(np.linalg.eigvals(a.astype("f8"))), atol=1e-5
    )

    def trace_of_square(x: Any) -> Any:
        return (jnp.linalg.eigvals(x) ** 2).sum().real

    np.testing.assert_allclose(
        jax.jit(jax.grad(trace_of_square))(a), 2 * a.T, atol=1e-4
    )


@pytest.mark.slow
def test_not_finite() -> None:
    a = np.stack([normal(3, 3), np.full((3, 3), np.nan, "f4")])
    for outputs in (jax.jit(linalg.schur)(a), jax.jit(linalg.eig)(a)):
        for x in outputs:
            assert np.isfinite(x[0]).all()
            assert np.isnan(x[1]).all()


def test_sorting_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="sort_eig_vals"):
        jax.lax.linalg.schur(normal(3, 3), sort_eig_vals=True)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 4, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_hessenberg(shape: tuple[int, ...], dtype: str) -> None:
    scipy_linalg = pytest.importorskip("scipy.linalg")
    a = normal(*shape, dtype=dtype)
    h, q = (np.asarray(x) for x in jax.scipy.linalg.hessenberg(a, calc_q=True))
    np.testing.assert_allclose(q @ h @ adjoint(q), a, atol=1e-5)
    for one, found in zip(a.reshape(-1, *shape[-2:]), h.reshape(-1, *shape[-2:])):
        np.testing.assert_allclose(found, scipy_linalg.hessenberg(one), atol=1e-5)


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize(("dtype", "routine"), [("f4", "ssytrd"), ("c8", "chetrd")])
def test_tridiagonal(dtype: str, routine: str, lower: bool) -> None:
    lapack = pytest.importorskip("scipy.linalg.lapack")
    for n in (1, 2, 6):
        a = normal(n, n, dtype=dtype)
        *wanted, _ = getattr(lapack, routine)(a, lower=lower)
        found = jax.lax.linalg.tridiagonal(a, lower=lower)
        for x, y in zip(found, wanted, strict=True):
            # LAPACKs differ among themselves by as much.
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("perturb", [False, True], ids=["plain", "perturb"])
@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_tridiagonal_solve(m: int, perturb: bool) -> None:
    dl, d, du = normal(3, 4, m)
    d[0] = 0  # needs pivoting
    d[0, 0] = m == 1
    b = normal(4, m, 2)
    x = jax.lax.linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=perturb)
    for i in range(4):
        matrix = np.diag(d[i]) + np.diag(dl[i, 1:], -1) + np.diag(du[i, :-1], 1)
        wide = matrix.astype("f8")
        if np.linalg.cond(wide) > 1e6:
            continue
        limit = 1e-6 * np.linalg.cond(wide) * np.abs(b[i]).max()
        np.testing.assert_allclose(x[i], np.linalg.solve(wide, b[i]), atol=limit)


def test_singular_tridiagonal() -> None:
    zero, b = jnp.zeros(3), jnp.ones((3, 1))
    solve = jax.lax.linalg.tridiagonal_solve
    assert np.isnan(solve(zero, zero, zero, b)).all()
    perturbed = np.asarray(solve(zero, zero, zero, b, perturb_singular=True))
    assert np.isfinite(perturbed).all()
    assert (np.abs(perturbed) > 1e6).all()
