"""Rotary position embedding, half-split channel order.

    y_l = x_l cos - x_r sin,    y_r = x_r cos + x_l sin

where l and r are the first and second half of the channels (the order of Llama ports:
two slices, where interleaved pairs need strided reads).

Shapes: x, y (..., t, h, d); cos, sin (..., t, d/2), whose leading axes broadcast to
x's.  Residuals: cos and sin; x only where the tables themselves are differentiated.
Source: Su et al., arXiv 2104.09864.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vkore_jax.primitives._common import require, require_float, wide
from vkore_jax.primitives._define import define


def rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Turn the channel pairs (i, i + d/2) of `x` by the angles of their positions.

    Args:
        x: (..., t, h, d), d even.
        cos: (..., t, d/2) cosines of the angles.
        sin: (..., t, d/2) sines.

    Returns:
        (..., t, h, d) in x's type.

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    require_float("rope", x=x, cos=cos, sin=sin)
    require(
        x.ndim >= 3 and x.shape[-1] % 2 == 0,
        f"rope: x must be (..., t, h, d) with d even, found {x.shape}",
    )
    core = (x.shape[-3], x.shape[-1] // 2)
    for name, table in (("cos", cos), ("sin", sin)):
        require(
            table.shape[-2:] == core and table.ndim < x.ndim,
            f"rope: {name} must be (..., t, d/2) = (..., {core[0]}, {core[1]}) for x "
            f"{x.shape}, found {table.shape}",
        )
    return _rope(x, cos, sin)


def _fwd_reference(x: jax.Array, cos: jax.Array, sin: jax.Array) -> tuple[jax.Array]:
    """(t, h, d), (t, d/2), (t, d/2) -> y (t, h, d)."""
    left, right = jnp.split(wide(x), 2, axis=-1)
    cos, sin = wide(cos)[:, None], wide(sin)[:, None]
    y = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    return (y.astype(x.dtype),)


# A rotation's transpose is the rotation back:
#   dx_l = dy_l cos + dy_r sin,   dx_r = dy_r cos - dy_l sin
# which is the forward kernel with -sin, so dx has no reference of its own.
# The tables enter linearly:
#   dcos = sum_h (dy_l x_l + dy_r x_r),   dsin = sum_h (dy_r x_l - dy_l x_r)
def _tables_bwd_reference(dy: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(t, h, d), (t, h, d) -> dcos (t, d/2), dsin (t, d/2), accumulation type."""
    dl, dr = jnp.split(wide(dy), 2, axis=-1)
    left, right = jnp.split(wide(x), 2, axis=-1)
    dcos = jnp.sum(dl * left + dr * right, axis=1)
    return dcos, jnp.sum(dr * left - dl * right, axis=1)


rope_p = define("rope", _fwd_reference, (3, 2, 2))
rope_tables_bwd_p = define("rope_tables_bwd", _tables_bwd_reference, (3, 3))


@jax.custom_vjp
def _rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    return rope_p.bind(x, cos, sin)[0]


def _vjp_fwd(x, cos, sin):
    return _rope(x, cos, sin), (x, cos, sin)


def _vjp_bwd(res, dy):
    x, cos, sin = res
    (dx,) = rope_p.bind(dy, cos, -sin)
    # Under jit, JAX drops this equation (and the residual x) where nobody asks.
    dcos, dsin = rope_tables_bwd_p.bind(dy, x)
    # Over x's leading axes that a table does not have, its cotangent is a sum.
    return dx, _sum_to(dcos, cos), _sum_to(dsin, sin)


def _sum_to(ct: jax.Array, like: jax.Array) -> jax.Array:
    """Undo broadcasting: sum `ct` to the shape and type of `like`."""
    ct = jnp.sum(ct, axis=tuple(range(ct.ndim - like.ndim)))
    pairs = enumerate(zip(ct.shape, like.shape, strict=True))
    shared = tuple(i for i, (n, one) in pairs if n != one)
    return jnp.sum(ct, axis=shared, keepdims=True).astype(like.dtype)


_rope.defvjp(_vjp_fwd, _vjp_bwd)
