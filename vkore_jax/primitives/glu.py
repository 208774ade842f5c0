"""GELU, and the gated SwiGLU.

    gelu(x)         = x Phi(x), or its tanh form
    swiglu(u, x)    = silu(u) * x,    silu(u) = u / (1 + exp(-u))

Shapes: any; u (the gate) and x of one shape.  Residuals: the inputs; everything else
is recomputed, being elementwise.  Sources: arXiv 1606.08415; Shazeer, arXiv 2002.05202.
"""

from __future__ import annotations

import jax

from vkore_jax.primitives._activations import ACTIVATIONS
from vkore_jax.primitives._common import custom_vjp, require, require_float, wide
from vkore_jax.primitives._define import define


def gelu(x: jax.Array, *, approximate: bool = True) -> jax.Array:
    """Apply GELU elementwise.

    Args:
        x: any shape, floating point.
        approximate: the tanh form (default, as in `jax.nn.gelu`) or the exact one.

    Returns:
        x's shape and type.

    Raises:
        InvalidArgument: if x is not floating point.
    """
    require_float("gelu", x=x)
    return _gelu(x, "gelu" if approximate else "gelu_erf")


def swiglu(gate: jax.Array, x: jax.Array) -> jax.Array:
    """Return `silu(gate) * x`.

    Args:
        gate: any shape, floating point.
        x: the gate's shape and type.

    Returns:
        The same shape and type.

    Raises:
        InvalidArgument: if shapes or types differ.
    """
    require_float("swiglu", gate=gate, x=x)
    require(
        gate.shape == x.shape and gate.dtype == x.dtype,
        f"swiglu: gate and x must be alike, found {gate.dtype}{gate.shape} and "
        f"{x.dtype}{x.shape}",
    )
    return _swiglu(gate, x)


def _gelu_reference(x: jax.Array, *, form: str) -> tuple[jax.Array]:
    return (ACTIVATIONS[form].value(wide(x)).astype(x.dtype),)


# dx = dy f'(x); the slopes are derived in the table of activations.
def _gelu_bwd_reference(dy: jax.Array, x: jax.Array, *, form: str) -> tuple[jax.Array]:
    return ((wide(dy) * ACTIVATIONS[form].slope(wide(x))).astype(x.dtype),)


def _swiglu_reference(gate: jax.Array, x: jax.Array) -> tuple[jax.Array]:
    return ((ACTIVATIONS["silu"].value(wide(gate)) * wide(x)).astype(x.dtype),)


# A product of two functions:  dgate = dy x silu'(gate),   dx = dy silu(gate)
def _swiglu_bwd_reference(
    dy: jax.Array, gate: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    silu, dy32, gate32 = ACTIVATIONS["silu"], wide(dy), wide(gate)
    dgate = dy32 * wide(x) * silu.slope(gate32)
    return dgate.astype(gate.dtype), (dy32 * silu.value(gate32)).astype(x.dtype)


gelu_p = define("gelu", _gelu_reference, (0,))
gelu_bwd_p = define("gelu_bwd", _gelu_bwd_reference, (0, 0))
swiglu_p = define("swiglu", _swiglu_reference, (0, 0))
swiglu_bwd_p = define("swiglu_bwd", _swiglu_bwd_reference, (0, 0, 0))


@custom_vjp(1)
def _gelu(x: jax.Array, form: str) -> jax.Array:
    return gelu_p.bind(x, form=form)[0]


def _gelu_vjp_bwd(form, x, dy):
    return tuple(gelu_bwd_p.bind(dy, x, form=form))


_gelu.defvjp(lambda x, form: (_gelu(x, form), x), _gelu_vjp_bwd)


@jax.custom_vjp
def _swiglu(gate: jax.Array, x: jax.Array) -> jax.Array:
    return swiglu_p.bind(gate, x)[0]


def _swiglu_vjp_bwd(res, dy):
    return tuple(swiglu_bwd_p.bind(dy, *res))


_swiglu.defvjp(lambda gate, x: (_swiglu(gate, x), (gate, x)), _swiglu_vjp_bwd)
