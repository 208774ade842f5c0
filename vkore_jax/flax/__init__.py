"""The primitives where Flax lets one plug them in.

Functions for the arguments `dot_general` and `attention_fn` of Flax's layers, and, in
`vkore_jax.flax.linen` and `vkore_jax.flax.nnx`, layers with the names, arguments and
parameters of Flax's own, so that checkpoints load.  For whole models there is
`vkore_jax.accelerate`, which needs no change to the model.
"""

from vkore_jax.flax import linen, nnx
from vkore_jax.flax.hooks import attention_fn, dot_general, strict_attention_fn

__all__ = ["attention_fn", "dot_general", "linen", "nnx", "strict_attention_fn"]
