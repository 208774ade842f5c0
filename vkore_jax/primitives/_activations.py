"""Activation functions and their derivatives, as a table of elementwise code.

Both act on the accumulation type.  `gelu` is the tanh form (JAX's and Flax's default),
`gelu_erf` the exact one.  Source: Hendrycks & Gimpel, arXiv 1606.08415.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

_C = math.sqrt(2 / math.pi)
_K = 0.044715


class Activation(NamedTuple):
    """A function and its derivative, elementwise."""

    value: Callable[[jax.Array], jax.Array]
    slope: Callable[[jax.Array], jax.Array]


def _gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1 + jnp.tanh(_C * (x + _K * x * x * x)))


def _gelu_slope(x: jax.Array) -> jax.Array:
    # With u = C (x + K x^3):  (1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2
    t = jnp.tanh(_C * (x + _K * x * x * x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _C * (1 + 3 * _K * x * x)


def _gelu_erf(x: jax.Array) -> jax.Array:
    return 0.5 * x * jax.lax.erfc(-x * math.sqrt(0.5))


def _gelu_erf_slope(x: jax.Array) -> jax.Array:
    # Phi(x) + x phi(x)
    density = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * jax.lax.erfc(-x * math.sqrt(0.5)) + x * density


def _silu(x: jax.Array) -> jax.Array:
    return x * jax.lax.logistic(x)


def _silu_slope(x: jax.Array) -> jax.Array:
    # With s = logistic(x), s' = s (1 - s):  s + x s'
    s = jax.lax.logistic(x)
    return s * (1 + x * (1 - s))


def _relu(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, 0)


def _relu_slope(x: jax.Array) -> jax.Array:
    return (x > 0).astype(x.dtype)


ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": Activation(_gelu, _gelu_slope),
    "gelu_erf": Activation(_gelu_erf, _gelu_erf_slope),
    "relu": Activation(_relu, _relu_slope),
    "silu": Activation(_silu, _silu_slope),
}
"""By the name that primitives take as a param."""
