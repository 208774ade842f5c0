"""What the factorisations share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

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


def magnitude(x: Array) -> Array:
    """Return |x|, or the larger of the two parts of a complex x: no overflow."""
    if not jnp.iscomplexobj(x):
        return jnp.abs(x)
    return jnp.maximum(jnp.abs(x.real), jnp.abs(x.imag))


def square(x: Array) -> Array:
    """Return ``|x|^2``, real."""
    if not jnp.iscomplexobj(x):
        return x * x
    return x.real * x.real + x.imag * x.imag


def over(x: Array, divisor: Array) -> Array:
    """Divide by real numbers, part by part: as exact as a real division."""
    if not jnp.iscomplexobj(x):
        return x / divisor
    return lax.complex(x.real / divisor, x.imag / divisor)


def unit(size: Array) -> Array:
    """Return a power of two such that ``(size / unit)^2`` neither over- nor underflows.

    1 for all but very small and very large numbers, so that dividing by it changes no
    bit of ordinary results (the idea of LAPACK's xNRM2 and safmin in xLARFG).
    """
    exponent = jnp.finfo(size.dtype).maxexp // 3
    small, large = 2.0**-exponent, 2.0**exponent
    power = jnp.where(size > large, large * large, 1).astype(size.dtype)
    return jnp.where(size < small, small * small, power).astype(size.dtype)


def norm(x: Array, axis: int) -> Array:
    """Euclidean norm along an axis, which keeps extent 1, of elements of any size."""
    scale = unit(magnitude(x).max(axis, keepdims=True, initial=0))
    return jnp.sqrt(square(over(x, scale)).sum(axis, keepdims=True)) * scale


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
