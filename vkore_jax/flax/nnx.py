"""Layers of `flax.nnx` that run on the primitives; parameters as there."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from vkore_jax.flax.hooks import attention_fn, dot_general
from vkore_jax.rewrite import accelerate


class Linear(nnx.Linear):
    """`flax.nnx.Linear`."""

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Apply to the last axis."""
        return accelerate(super().__call__)(*args, **kwargs)


class LinearGeneral(nnx.LinearGeneral):
    """`flax.nnx.LinearGeneral`."""

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Apply to the given axes."""
        return accelerate(super().__call__)(*args, **kwargs)


class LayerNorm(nnx.LayerNorm):
    """`flax.nnx.LayerNorm`."""

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Normalise; over other axes than the last, or masked, as Flax does."""
        return accelerate(super().__call__)(*args, **kwargs)


class RMSNorm(nnx.RMSNorm):
    """`flax.nnx.RMSNorm`."""

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Normalise; over other axes than the last, or masked, as Flax does."""
        return accelerate(super().__call__)(*args, **kwargs)


class Embed(nnx.Embed):
    """`flax.nnx.Embed`."""

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Look up rows."""
        return accelerate(super().__call__)(*args, **kwargs)

    def attend(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Multiply with the table, as an output projection."""
        return accelerate(super().attend)(*args, **kwargs)


class MultiHeadAttention(nnx.MultiHeadAttention):
    """`flax.nnx.MultiHeadAttention`; see `attention_fn` for its limits."""

    def __init__(self, *args: Any, **kwargs: Any):
        """As Flax's, with other defaults for the functions it calls."""
        given = {
            "attention_fn": attention_fn,
            "qkv_dot_general": dot_general,
            "out_dot_general": dot_general,
        }
        super().__init__(*args, **{**given, **kwargs})
