"""Layer normalisation.

    y = n * g + b,    n = (x - mean_c(x)) * rstd,    rstd = 1 / sqrt(var_c(x) + eps)

Shapes: x, y (..., c); g, b (c,); mean, rstd (m,) in the accumulation type, m rows.
Residuals: x, g, mean, rstd; n is recomputed.  Source: Ba et al., arXiv 1607.06450.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vkore_jax.primitives._common import custom_vjp, require, require_float, rows, wide
from vkore_jax.primitives._define import define


def layer_norm(
    x: jax.Array, g: jax.Array, b: jax.Array | None = None, *, eps: float = 1e-6
) -> jax.Array:
    """Centre and normalise `x` over its last axis, then scale and shift it.

    Args:
        x: (..., c), floating point.
        g: (c,) scale.
        b: (c,) shift, or None.
        eps: added to the variance.

    Returns:
        (..., c) in x's type.

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    require_float("layer_norm", x=x, g=g, **({} if b is None else {"b": b}))
    for name, p in (("g", g), ("b", b)):
        require(
            x.ndim >= 1 and (p is None or p.shape == x.shape[-1:]),
            f"layer_norm: {name} must be (c,) for x (..., c), found "
            f"{None if p is None else p.shape} for {x.shape}",
        )
    return _layer_norm(rows(x), g, b, float(eps)).reshape(x.shape)


def _fwd_reference(
    x: jax.Array, g: jax.Array, b: jax.Array | None = None, *, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(m, c), (c), [(c)] -> y (m, c), mean (m), rstd (m)."""
    x32 = wide(x)
    mean = jnp.mean(x32, axis=-1)
    centred = x32 - mean[:, None]
    # Two passes: mean(x^2) - mean(x)^2 cancels where the mean is large.
    rstd = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1) + eps)
    y = centred * rstd[:, None] * wide(g)
    if b is not None:
        y = y + wide(b)
    return y.astype(x.dtype), mean, rstd


# y = n g + b:
#   db_c = sum_m dy,   dg_c = sum_m dy n,   dn = dy g
# n depends on x directly, through the mean (dn_i/dmean = -rstd) and through rstd
# (d rstd / dx_j = -rstd^2 n_j / C, as in rms_norm, since sum_i n_i = 0):
#   dx_j = rstd (dn_j - mean_i(dn_i) - n_j mean_i(dn_i n_i))
# b does not enter, hence is no residual.
def _bwd_reference(
    dy: jax.Array, x: jax.Array, g: jax.Array, mean: jax.Array, rstd: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(m, c), (m, c), (c), (m), (m) -> dx (m, c), dg (c), db (c)."""
    dy32 = wide(dy)
    n = (wide(x) - mean[:, None]) * rstd[:, None]
    dn = dy32 * wide(g)
    through_mean = jnp.mean(dn, axis=-1, keepdims=True)
    through_rstd = n * jnp.mean(dn * n, axis=-1, keepdims=True)
    dx = rstd[:, None] * (dn - through_mean - through_rstd)
    dg = jnp.sum(dy32 * n, axis=0)
    return dx.astype(x.dtype), dg.astype(g.dtype), jnp.sum(dy32, axis=0)


layer_norm_p = define("layer_norm", _fwd_reference, (2, 1, 1))
layer_norm_bwd_p = define("layer_norm_bwd", _bwd_reference, (2, 2, 1, 1, 1))


@custom_vjp(3)
def _layer_norm(x, g, b, eps):
    return _vjp_fwd(x, g, b, eps)[0]


def _vjp_fwd(x, g, b, eps):
    shift = () if b is None else (b,)
    y, mean, rstd = layer_norm_p.bind(x, g, *shift, eps=eps)
    # An empty slice carries b's type to the backward, without keeping b.
    return y, ((x, g, mean, rstd), None if b is None else b[:0])


def _vjp_bwd(eps, res, dy):
    kept, shift = res
    dx, dg, db = layer_norm_bwd_p.bind(dy, *kept)
    return dx, dg, None if shift is None else db.astype(shift.dtype)


_layer_norm.defvjp(_vjp_fwd, _vjp_bwd)
