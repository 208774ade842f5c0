"""The 8-bit and 4-bit floats through the plugin, against JAX on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

VKORE = jax.devices("vkore")[0]
CPU = jax.devices("cpu")[0]

NARROW = (
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e5m2fnuz"),
    *("float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
)
VALUES = np.array([3, -1e-9, 0, -2, np.nan, 1, 0.01, -0.01, -0.0, 1e-9], np.float32)

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda x, t: jnp.sort(x.astype(t)),
    "argsort": lambda x, t: jnp.argsort(x.astype(t)),
    "round_trip": lambda x, t: x.astype(t).astype(np.float32),
    "product": lambda x, t: x.astype(t) * (-x).astype(t),
}

STORAGE = ("float8_e8m0fnu", "float4_e2m1fn")
"""Moved, compared and converted, but not computed with (docs/ops.md)."""


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", NARROW)
def test_as_on_the_cpu(dtype: str, name: str) -> None:
    """A tiny negative number is -0 or 0, never NaN; NaN sorts as the CPU sorts it."""
    t = jnp.dtype(dtype)
    x = VALUES
    if dtype == "float4_e2m1fn":  # has no NaN
        x = np.nan_to_num(x)
    if dtype == "float8_e8m0fnu":  # has no zero and no sign
        x = np.abs(x[np.abs(x) > 1e-9])
    jitted = jax.jit(FUNCTIONS[name], static_argnums=1)
    if name == "product" and dtype in STORAGE:
        with pytest.raises(jax.errors.JaxRuntimeError, match="convert it first"):
            jitted(jax.device_put(x, VKORE), t)
        return
    want, found = (jitted(jax.device_put(x, d), t) for d in (CPU, VKORE))
    found, want = (np.asarray(a).astype(np.float32) for a in (found, want))
    np.testing.assert_array_equal(found, want)
