"""Layers of `flax.linen` that run on the primitives; parameters as there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
from flax import linen as nn

from vkore_jax.flax.hooks import attention_fn, dot_general
from vkore_jax.rewrite import accelerate


class _Layer(nn.Module):
    """Runs a method of Flax's layer, rewritten; creates parameters as it does.

    The rewriting traces, and a linen module must not create or read variables inside
    of another trace: the layer is applied as a pure function of its variables.
    """

    plain: ClassVar[type[nn.Module]]

    def _run(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.is_initializing():
            return method(self, *args, **kwargs)
        kept = {f.name for f in dataclasses.fields(self.plain) if f.init}
        kept -= {"parent", "name"}
        pure = self.plain(**{name: getattr(self, name) for name in kept}, parent=None)

        def call(variables: Any, *args: Any, **kwargs: Any) -> Any:
            return pure.apply(variables, *args, method=method, **kwargs)

        return accelerate(call)(self.variables, *args, **kwargs)


class Dense(_Layer, nn.Dense):
    """`flax.linen.Dense`."""

    plain = nn.Dense

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Apply to the last axis."""
        return self._run(nn.Dense.__call__, inputs)


class DenseGeneral(_Layer, nn.DenseGeneral):
    """`flax.linen.DenseGeneral`."""

    plain = nn.DenseGeneral

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Apply to the given axes."""
        return self._run(nn.DenseGeneral.__call__, inputs)


class LayerNorm(_Layer, nn.LayerNorm):
    """`flax.linen.LayerNorm`."""

    plain = nn.LayerNorm

    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """Normalise; over other axes than the last, or masked, as Flax does."""
        return self._run(nn.LayerNorm.__call__, x, mask=mask)


class RMSNorm(_Layer, nn.RMSNorm):
    """`flax.linen.RMSNorm`."""

    plain = nn.RMSNorm

    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """Normalise; over other axes than the last, or masked, as Flax does."""
        return self._run(nn.RMSNorm.__call__, x, mask=mask)


class Embed(_Layer, nn.Embed):
    """`flax.linen.Embed`."""

    plain = nn.Embed

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Look up rows."""
        return self._run(nn.Embed.__call__, inputs)

    def attend(self, query: jax.Array) -> jax.Array:
        """Multiply with the table, as an output projection."""
        return self._run(nn.Embed.attend, query)


class MultiHeadDotProductAttention(nn.MultiHeadDotProductAttention):
    """`flax.linen.MultiHeadDotProductAttention`; see `attention_fn` for its limits."""

    attention_fn: Callable[..., jax.Array] = attention_fn
    qkv_dot_general: Any = dot_general
    out_dot_general: Any = dot_general


MultiHeadAttention = MultiHeadDotProductAttention
