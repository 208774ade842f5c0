"""jnp.linalg on the chip: against NumPy and SciPy, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vkore_jax import linalg

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "f4") -> Any:
    x = RNG.standard_normal(shape)
    if dtype.startswith("c"):
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(dtype)


def hermitian(*shape: int, dtype: str = "f4") -> Any:
    x = normal(*shape, dtype=dtype)
    return x + x.swapaxes(-1, -2).conj()


LOW_RANK = (normal(9, 2).astype("f8") @ normal(2, 6)).astype("f4")
EIGH: dict[str, Any] = {
    "1": hermitian(1, 1),
    "2": hermitian(2, 2),
    "odd": hermitian(7, 7),
    "batch": hermitian(2, 3, 4, 4),
    "large": hermitian(40, 40),
    "complex": hermitian(5, 5, dtype="c8"),
    "equal_values": np.ones((6, 6), "f4"),
    "diagonal": np.diag(np.arange(5)).astype("f4"),
    "zero": np.zeros((3, 3), "f4"),
    "huge": hermitian(5, 5) * np.float32(1e30),
    "none": np.zeros((0, 0), "f4"),
}


@pytest.mark.parametrize("a", EIGH.values(), ids=EIGH)
def test_eigh(a: Any) -> None:
    v, w = (np.asarray(x) for x in jax.jit(linalg.eigh)(a))
    wide = a.astype("c16")
    scale = max(float(np.abs(wide).max(initial=0)), 1e-30) * max(1, a.shape[-1])
    np.testing.assert_allclose(w, np.linalg.eigvalsh(wide), atol=1e-6 * scale)
    unit = v.swapaxes(-1, -2).conj().astype("c16") @ v
    np.testing.assert_allclose(unit, np.broadcast_to(np.eye(a.shape[-1]), unit.shape),
                               atol=5e-6)  # fmt: skip
    np.testing.assert_allclose(wide @ v, v * w[..., None, :], atol=2e-6 * scale)


SVD: dict[str, Any] = {
    "1": normal(1, 1),
    "tall": normal(7, 3),
    "wide": normal(3, 7),
    "square": normal(8, 8),
    "batch": normal(2, 5, 4),
    "column": normal(5, 1),
    "low_rank": LOW_RANK,
    "zero": np.zeros((4, 3), "f4"),
    "graded": np.diag([1, 1e-4, 1e-12, 0]).astype("f4"),
    "complex": normal(5, 3, dtype="c8"),
    "none": np.zeros((3, 0), "f4"),
}


SVD_CASES = [
    pytest.param(
        a,
        full,
        id=f"{name}-{'full' if full else 'thin'}",
        marks=[pytest.mark.slow] if full and name not in ("tall", "complex") else [],
    )
    for name, a in SVD.items()
    for full in (False, True)
]


@pytest.mark.parametrize(("a", "full"), SVD_CASES)
def test_svd(a: Any, full: bool) -> None:
    def f(x: Any) -> Any:
        return linalg.svd(x, full_matrices=full)

    s, u, vh = (np.asarray(x) for x in jax.jit(f)(a))
    wide = a.astype("c16")
    u0, _, v0 = np.linalg.svd(wide, full_matrices=full)
    assert (u.shape, vh.shape) == (u0.shape, v0.shape)
    scale = max(1e-30, float(np.abs(wide).max(initial=0))) * max(a.shape)
    singular = np.linalg.svd(wide, compute_uv=False)
    np.testing.assert_allclose(s, singular, atol=1e-6 * scale)
    for q in (u, vh.swapaxes(-1, -2).conj()):
        unit = q.swapaxes(-1, -2).conj().astype("c16") @ q
        wanted = np.broadcast_to(np.eye(q.shape[-1]), unit.shape)
        np.testing.assert_allclose(unit, wanted, atol=5e-6)
    k = s.shape[-1]
    made = (u[..., :k].astype("c16") * s[..., None, :]) @ vh[..., :k, :]
    np.testing.assert_allclose(made, wide, atol=2e-6 * scale)


def test_not_finite() -> None:
    a = np.stack([hermitian(3, 3), np.full((3, 3), np.nan, "f4")])
    v, w = jax.jit(linalg.eigh)(a)
    assert np.isfinite(w[0]).all()
    assert np.isnan(w[1]).all()
    assert np.isnan(v[1]).all()
    s, u, _ = jax.jit(linalg.svd)(a)
    assert np.isfinite(s[0]).all()
    assert np.isnan(s[1]).all()
    assert np.isnan(u[1]).all()


SYSTEM, POSITIVE = normal(5, 5), np.cov(normal(5, 20)).astype("f4")
N = np.linalg
FUNCTIONS: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    ("eigvalsh", jnp.linalg.eigvalsh, N.eigvalsh, (POSITIVE,)),
    ("pinv", jnp.linalg.pinv, N.pinv, (normal(5, 3),)),
    (
        "lstsq",
        lambda a, b: jnp.linalg.lstsq(a, b)[0],
        lambda a, b: N.lstsq(a, b, rcond=None)[0],
        (normal(6, 3), normal(6)),
    ),
    ("rank", jnp.linalg.matrix_rank, N.matrix_rank, (LOW_RANK,)),
    ("cond", jnp.linalg.cond, N.cond, (SYSTEM,)),
    ("norm", lambda a: jnp.linalg.norm(a, 2), lambda a: N.norm(a, 2), (SYSTEM,)),
    ("det", jnp.linalg.det, N.det, (normal(2, 4, 4),)),
    (
        "slogdet",
        lambda a: tuple(jnp.linalg.slogdet(a)),
        lambda a: tuple(N.slogdet(a)),
        (SYSTEM,),
    ),
    ("inv", jnp.linalg.inv, N.inv, (SYSTEM,)),
    ("inv_complex", jnp.linalg.inv, N.inv, (normal(4, 4, dtype="c8"),)),
    ("solve", jnp.linalg.solve, N.solve, (SYSTEM, normal(5, 2))),
    ("cholesky", jnp.linalg.cholesky, N.cholesky, (POSITIVE,)),
    (
        "cholesky_complex",
        jnp.linalg.cholesky,
        N.cholesky,
        (hermitian(3, 3, dtype="c8") + 9 * np.eye(3, dtype="c8"),),
    ),
    (
        "qr_complex",
        lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
        lambda a: np.abs(N.qr(a)[1]),
        (normal(5, 3, dtype="c8"),),
    ),
]


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda r: r[0])
def test_functions(row: Any) -> None:
    _, f, reference, args = row
    found = jax.tree.leaves(jax.jit(f)(*args))
    wide = [a.astype("c16" if a.dtype.kind == "c" else "f8") for a in args]
    if row[0] == "rank":
        wide = list(args)
    wanted = jax.tree.leaves(reference(*wide))
    for a, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, w, rtol=2e-4, atol=2e-5)


def test_pivoted_qr() -> None:
    linalg_scipy = pytest.importorskip("scipy.linalg")
    for a in (normal(6, 4), normal(3, 5), normal(4, 3, dtype="c8")):
        q, r, p = jax.scipy.linalg.qr(a, pivoting=True, mode="economic")
        _, r0, p0 = linalg_scipy.qr(a, pivoting=True, mode="economic")
        np.testing.assert_array_equal(p, p0)
        np.testing.assert_allclose(np.abs(r), np.abs(r0), atol=1e-5)
        np.testing.assert_allclose(np.asarray(q) @ np.asarray(r), a[:, p0], atol=1e-5)


def test_users_promotion_rules_do_not_matter() -> None:
    a = hermitian(2, 3, 4, 4)
    plain = jnp.linalg.eigvalsh(a), jnp.linalg.svd(a, compute_uv=False)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        strict = jnp.linalg.eigvalsh(a), jnp.linalg.svd(a, compute_uv=False)
        jax.scipy.linalg.qr(a[0, 0], pivoting=True)
    for x, y in zip(plain, strict):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: jnp.linalg.solve(a, a[0]),
        jnp.linalg.eigh,
        jax.scipy.linalg.hessenberg,
    ],
    ids=["solve", "eigh", "hessenberg"],
)
def test_inside_shard_map(function: Callable[[Any], Any]) -> None:
    """Types that name mesh axes do not reach the loops of a factorisation."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("i")
    mapped = jax.shard_map(function, mesh=mesh, in_specs=rows, out_specs=rows)
    a = hermitian(4, 4)
    found, wanted = jax.jit(mapped)(a), jax.jit(function)(a)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(x, y)


def test_gradient() -> None:
    def f(a: Any) -> Any:
        return (jnp.linalg.svd(a, compute_uv=False) ** 2).sum()

    a = normal(4, 3)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(a), 2 * a, atol=1e-4)


def test_cholesky_of_a_matrix_that_is_not_positive_definite_is_nan() -> None:
    singular, negative = [[1.0, 2.0], [2.0, 4.0]], [[-1.0, 0.0], [0.0, 1.0]]
    fine = [[2.0, 1.0], [1.0, 3.0]]
    found = np.asarray(jax.lax.linalg.cholesky(jnp.array([singular, fine, negative])))
    lower = np.tril_indices(2)
    assert np.isnan(found[0][lower]).all()
    assert np.isnan(found[2][lower]).all()
    np.testing.assert_allclose(found[1], np.linalg.cholesky(fine), rtol=1e-6)


def test_half_precision_qr_is_refused() -> None:
    # JAX 0.12 says so itself.
    words = r"Unsupported dtype.*f16|does not accept dtype float16"
    with pytest.raises((jax.errors.JaxRuntimeError, TypeError), match=words):
        jnp.linalg.qr(np.ones((5, 6), np.float16))
