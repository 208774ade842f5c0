"""What the factorisations share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Trace under JAX's default promotion rules, whatever the user has set."""

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            return function(*args, **kwargs)

    return traced


def real(x: Array) -> Array:
    """Return the real part, of real arrays too."""
    return x.real if jnp.iscomplexobj(x) else x


def diagonal(x: Array) -> Array:
    """Return the diagonal of the last two axes without a gather."""
    eye = jnp.eye(x.shape[-1], dtype=bool)
    return jnp.where(eye, x, 0).sum(-1)


def eye_like(x: Array, n: int) -> Array:
    """Return identity matrices (..., n, n) in the batch and dtype of `x`."""
    return jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), (*x.shape[:-2], n, n))


def adjoint(x: Array) -> Array:
    """Return the conjugate transpose of the last two axes."""
    return x.swapaxes(-1, -2).conj()
