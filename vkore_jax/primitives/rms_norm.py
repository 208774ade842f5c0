"""Root-mean-square normalisation.

    y = x * rstd * g,    rstd = 1 / sqrt(mean_c(x^2) + eps)

Shapes: x, y (..., c); g (c,); rstd (m,) in the accumulation type, m rows in all.
Residuals: x, g and rstd; the normalised x is recomputed, which costs one product and
saves a tensor.  Source: Zhang & Sennrich, arXiv 1910.07467.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vkore_jax.primitives._common import custom_vjp, require, require_float, rows, wide
from vkore_jax.primitives._define import define


def rms_norm(x: jax.Array, g: jax.Array, *, eps: float = 1e-6) -> jax.Array:
    """Normalise `x` over its last axis and scale it.

    Args:
        x: (..., c), floating point.
        g: (c,) scale; for the variant with (1 + g), pass 1 + g.
        eps: added to the mean square.

    Returns:
        (..., c) in x's type.

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    require_float("rms_norm", x=x, g=g)
    require(
        x.ndim >= 1 and g.shape == x.shape[-1:],
        f"rms_norm: g must be (c,) for x (..., c), found {g.shape} for {x.shape}",
    )
    return _rms_norm(rows(x), g, float(eps)).reshape(x.shape)


def _fwd_reference(
    x: jax.Array, g: jax.Array, *, eps: float
) -> tuple[jax.Array, jax.Array]:
    """(m, c), (c) -> y (m, c), rstd (m)."""
    x32 = wide(x)
    rstd = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1) + eps)
    return (x32 * rstd[:, None] * wide(g)).astype(x.dtype), rstd


# Let n = x rstd, so that y = n g.
#   dg_c = sum_m dy n                                              scale
#   dn   = dy g
# rstd depends on every x of its row: d rstd / dx_j = -rstd^3 x_j / C, hence
#   dx_j = dn_j rstd + sum_i dn_i x_i (-rstd^3 x_j / C)
#        = rstd (dn_j - n_j mean_i(dn_i n_i))                      direct - through rstd
# eps only enters rstd, which is a residual, so it is not needed again.
def _bwd_reference(
    dy: jax.Array, x: jax.Array, g: jax.Array, rstd: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(m, c), (m, c), (c), (m) -> dx (m, c), dg (c)."""
    dy32, n = wide(dy), wide(x) * rstd[:, None]
    dn = dy32 * wide(g)
    dx = rstd[:, None] * (dn - n * jnp.mean(dn * n, axis=-1, keepdims=True))
    return dx.astype(x.dtype), jnp.sum(dy32 * n, axis=0).astype(g.dtype)


rms_norm_p = define("rms_norm", _fwd_reference, (2, 1))
rms_norm_bwd_p = define("rms_norm_bwd", _bwd_reference, (2, 2, 1, 1))


@custom_vjp(2)
def _rms_norm(x: jax.Array, g: jax.Array, eps: float) -> jax.Array:
    return rms_norm_p.bind(x, g, eps=eps)[0]


def _vjp_fwd(x, g, eps):
    y, rstd = rms_norm_p.bind(x, g, eps=eps)
    return y, (x, g, rstd)


def _vjp_bwd(eps, res, dy):
    return tuple(rms_norm_bwd_p.bind(dy, *res))


_rms_norm.defvjp(_vjp_fwd, _vjp_bwd)
