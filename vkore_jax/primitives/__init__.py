"""Kernels of training with explicit VJP rules, for any backend of JAX.

Each public function is a pair of JAX primitives, forward and backward, whose meaning is
a jnp reference.  They lower to `stablehlo.composite` ops named `vkore.…`: a compiler
that knows a name may use its kernel, every other inlines the reference, so the same
script is its own CPU or GPU reference.  All work under jit, grad, vmap, scan and
jax.checkpoint; forward-mode differentiation is out of scope.
"""

from jax.extend.core import Primitive

from vkore_jax.primitives._define import PREFIX, VERSION
from vkore_jax.primitives.adamw import adamw_update, adamw_update_p
from vkore_jax.primitives.attention import attention, attention_bwd_p, attention_p
from vkore_jax.primitives.cross_entropy import (
    cross_entropy_bwd_p,
    cross_entropy_p,
    softmax_cross_entropy,
)
from vkore_jax.primitives.embedding import embedding, embedding_bwd_p, embedding_p
from vkore_jax.primitives.glu import (
    gelu,
    gelu_bwd_p,
    gelu_p,
    swiglu,
    swiglu_bwd_p,
    swiglu_p,
)
from vkore_jax.primitives.layer_norm import layer_norm, layer_norm_bwd_p, layer_norm_p
from vkore_jax.primitives.linear import linear, linear_dw_p, linear_dx_p, linear_p
from vkore_jax.primitives.rms_norm import rms_norm, rms_norm_bwd_p, rms_norm_p
from vkore_jax.primitives.rope import rope, rope_p, rope_tables_bwd_p

ALL: tuple[Primitive, ...] = (
    linear_p,
    linear_dx_p,
    linear_dw_p,
    attention_p,
    attention_bwd_p,
    rms_norm_p,
    rms_norm_bwd_p,
    layer_norm_p,
    layer_norm_bwd_p,
    rope_p,
    rope_tables_bwd_p,
    gelu_p,
    gelu_bwd_p,
    swiglu_p,
    swiglu_bwd_p,
    embedding_p,
    embedding_bwd_p,
    cross_entropy_p,
    cross_entropy_bwd_p,
    adamw_update_p,
)
"""Every primitive; a primitive's name is its composite's."""

__all__ = [
    "ALL",
    "PREFIX",
    "VERSION",
    "adamw_update",
    "attention",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "rms_norm",
    "rope",
    "softmax_cross_entropy",
    "swiglu",
]
