"""64-bit types under JAX_ENABLE_X64: the CPU's values, never a silent narrowing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

RNG = np.random.default_rng(0)
X, Y, M = (RNG.standard_normal(s) for s in ((5, 7), (5, 7), (7, 5)))
POS, UNIT = np.abs(X) + 0.1, np.tanh(X)
EDGE = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e300, 2.0**53 + 2])
I = RNG.integers(-(2**62), 2**62, (5, 7))  # noqa: E741
J = np.where(RNG.integers(0, 2, (5, 7)) > 0, 3, -7)
U = I.astype(np.uint64)
Z = X + 1j * Y
KEY = np.array([1, 2], np.uint32)

Group = tuple[tuple[Any, ...], tuple[Callable[..., Any], ...]]
special = jax.scipy.special
GROUPS: dict[str, Group] = {
    "binary": (
        (X, Y),
        (jnp.add, jnp.subtract, jnp.multiply, jnp.divide, lax.rem, jnp.mod,
         jnp.floor_divide, jnp.arctan2, jnp.maximum, jnp.less, jnp.hypot,
         jnp.outer, jnp.nextafter),
    ),
    "unary": (
        (X,),
        (jnp.exp, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.sinh,
         jnp.arctan, jnp.arcsinh, jnp.cbrt, jnp.abs, jnp.sign, special.erf,
         special.erfc, jax.nn.sigmoid, jax.nn.softmax, jnp.frexp),
    ),
    "positive": (
        (POS,),
        (jnp.log, jnp.log1p, jnp.log2, jnp.sqrt, lax.rsqrt, special.gammaln,
         special.digamma, lambda x: x**2.5),
    ),
    "unit": ((UNIT,), (jnp.arcsin, jnp.arccos, jnp.arctanh, special.erfinv)),
    "edges": (
        (EDGE,),
        (jnp.floor, jnp.ceil, jnp.round, jnp.trunc, jnp.isnan, jnp.isinf,
         lambda x: x.astype(jnp.int64), lambda x: x.astype(jnp.uint64),
         lambda x: x.astype(jnp.float32), lambda x: jnp.maximum(x, x[::-1])),
    ),
    "reductions": (
        (X,),
        (lambda x: jnp.sum(x, 1), lambda x: jnp.prod(x, 0), jnp.mean, jnp.var,
         lambda x: jnp.argmax(x, 1), lambda x: jnp.cumsum(x, 1), jnp.median,
         lambda x: jnp.sort(x, 1), lambda x: lax.top_k(x, 3)),
    ),
    "products": (
        (X, M),
        (jnp.matmul, lambda x, m: jnp.einsum("ij,jk->ki", x, m),
         jax.grad(lambda x, m: jnp.sum(jnp.tanh(x) @ m)),
         lambda x, m: jnp.convolve(x[0], m[:3, 0])),
    ),
    "integers": (
        (I, J),
        (jnp.add, jnp.multiply, lax.div, lax.rem, jnp.floor_divide, jnp.bitwise_xor,
         lambda i, j: jnp.left_shift(i, jnp.abs(j)), jnp.less,
         lambda i, _: jnp.sum(i, 1), lambda i, _: jnp.max(i, 0),
         lambda i, _: jnp.sort(i, 1), lambda i, _: jnp.cumsum(i),
         lambda i, j: i @ j.T, lambda i, _: i.astype(jnp.float64),
         lambda i, _: i.astype(jnp.float32), lambda i, _: i.astype(jnp.int32),
         lambda i, _: jnp.argmax(i, 1)),
    ),
    "unsigned": (
        (U,),
        (lax.population_count, lax.clz, lambda u: u * u, lambda u: u // np.uint64(7),
         lambda u: u >> np.uint64(5), lambda u: u.astype(jnp.float64), jnp.min,
         lambda u: lax.bitcast_convert_type(u, jnp.float64)),
    ),
    "complex": (
        (Z,),
        (jnp.abs, lambda z: z * z, lambda z: z / (z + 1), jnp.exp, jnp.log, jnp.sqrt,
         lambda z: jnp.sum(z, 0), lambda z: z @ z.T, jnp.fft.fft),
    ),
    "random": (
        (KEY,),
        (lambda k: jax.random.bits(k, (5,), "uint64"),
         lambda k: jax.random.uniform(k, (5,)), lambda k: jax.random.normal(k, (5,)),
         lambda k: jax.random.randint(k, (5,), 0, 10**12)),
    ),
    "linalg": (
        (X[:, :5],),
        (lambda a: jnp.linalg.eigvalsh(a @ a.T), jnp.linalg.inv, jnp.linalg.det,
         lambda a: jnp.linalg.svd(a, compute_uv=False)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_values_of_the_cpu(name: str) -> None:
    args, functions = GROUPS[name]
    results = []
    with jax.enable_x64(True):
        for platform in ("cpu", "vkore"):
            with jax.default_device(jax.devices(platform)[0]):
                made = jax.jit(lambda *xs: [f(*xs) for f in functions])(*args)
                results.append([np.asarray(v) for v in jax.tree.leaves(made)])
    tolerance = 1e-12 if name == "linalg" else 2e-14
    for i, (wanted, found) in enumerate(zip(*results, strict=True)):
        assert found.dtype == wanted.dtype, i
        if wanted.dtype.kind in "biu":
            np.testing.assert_array_equal(found, wanted, err_msg=f"function {i}")
            continue
        rtol = 1e-6 if wanted.dtype.itemsize < 8 else tolerance
        finite = np.abs(wanted[np.isfinite(wanted)]).astype(float)
        scale = float(finite.max(initial=0))
        atol = tolerance * scale if scale < 1e200 else 0.0
        np.testing.assert_allclose(found, wanted, rtol, atol, err_msg=f"result {i}")
