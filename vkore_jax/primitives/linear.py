"""Matrix product with bias and activation in the epilogue.

    y = f(h),    h = x w + b

Shapes: x (..., k), w (k, n), b (n,), y (..., n); m rows in all.  f is a row of
`_activations.ACTIVATIONS`, or none.  Residuals: x, w, and h (in y's type) where there
is an f.  The backward is two kernels, one for each GEMM, so that a frozen input or a
frozen weight costs nothing, and each plans its own layouts: dX reads w transposed, dW
reads x transposed.  Both apply f' as a prologue.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from vkore_jax.primitives._activations import ACTIVATIONS
from vkore_jax.primitives._common import (
    custom_vjp,
    einsum,
    precision_name,
    require,
    require_float,
    rows,
    wide,
)
from vkore_jax.primitives._define import define


def linear(
    x: jax.Array,
    w: jax.Array,
    b: jax.Array | None = None,
    *,
    activation: str | None = None,
    precision: Any = None,
) -> jax.Array:
    """Return `activation(x @ w + b)`, rounded once.

    Under `vmap` with a shared `w`, dW is made for each mapped element and then summed
    by JAX; passing the batch as leading axes of `x` sums inside the kernel.

    Args:
        x: (..., k), floating point.
        w: (k, n).
        b: (n,), or None.
        activation: None, "gelu", "gelu_erf", "relu" or "silu".
        precision: of the matrix unit, as in `jnp.matmul`, for forward and backward.

    Returns:
        (..., n) in the common type of the operands.

    Raises:
        InvalidArgument: if shapes, types or the activation do not fit.
    """
    given = (x, w) if b is None else (x, w, b)
    require_float("linear", **dict(zip("xwb", given, strict=False)))
    require(
        x.ndim >= 1 and w.ndim == 2 and x.shape[-1] == w.shape[0],
        f"linear: x (..., k) and w (k, n) must agree in k, found {x.shape}, {w.shape}",
    )
    if b is not None:
        require(
            b.shape == w.shape[1:],
            f"linear: b must be (n,) = {w.shape[1:]}, found {b.shape}",
        )
    require(
        activation is None or activation in ACTIVATIONS,
        f"linear: activation must be None or one of {sorted(ACTIVATIONS)}, found "
        f"{activation!r}",
    )
    dtype = jnp.result_type(*given)
    operands = [a.astype(dtype) for a in given]
    operands[0] = rows(operands[0])
    y = _linear(tuple(operands), activation, precision_name(precision))
    return y.reshape(*x.shape[:-1], w.shape[1])


def _fwd_reference(
    x: jax.Array,
    w: jax.Array,
    b: jax.Array | None = None,
    *,
    activation: str | None,
    keep: bool,
    precision: str | None,
) -> tuple[jax.Array, ...]:
    """(m, k), (k, n), [(n)] -> y (m, n), and h (m, n) if `keep`."""
    h = einsum("mk,kn->mn", x, w, precision)
    if b is not None:
        h = h + wide(b)
    if activation is None:
        return (h.astype(x.dtype),)
    y = ACTIVATIONS[activation].value(h).astype(x.dtype)
    return (y, h.astype(x.dtype)) if keep else (y,)


# y = f(h) elementwise:      dh = dy f'(h)            (prologue of both kernels)
# h = x w + b, bilinear:     dx = dh w^T              (m, n) x (n, k)
#                            dw = x^T dh              (k, m) x (m, n)
#                            db = sum_m dh
# dh is rounded to the operands' type, as the matrix unit reads it.
def _dh(dy: jax.Array, h: jax.Array | None, activation: str | None) -> jax.Array:
    if h is None or activation is None:
        return dy
    return (wide(dy) * ACTIVATIONS[activation].slope(wide(h))).astype(dy.dtype)


def _dx_reference(
    dy: jax.Array,
    w: jax.Array,
    h: jax.Array | None = None,
    *,
    activation: str | None,
    precision: str | None,
) -> tuple[jax.Array]:
    """(m, n), (k, n), [(m, n)] -> dx (m, k)."""
    dx = einsum("mn,kn->mk", _dh(dy, h, activation), w, precision)
    return (dx.astype(dy.dtype),)


def _dw_reference(
    dy: jax.Array,
    x: jax.Array,
    h: jax.Array | None = None,
    *,
    activation: str | None,
    bias: bool,
    precision: str | None,
) -> tuple[jax.Array, ...]:
    """(m, n), (m, k), [(m, n)] -> dw (k, n), and db (n) if `bias`."""
    dh = _dh(dy, h, activation)
    dw = einsum("mk,mn->kn", x, dh, precision).astype(x.dtype)
    return (dw, jnp.sum(wide(dh), axis=0).astype(x.dtype)) if bias else (dw,)


linear_p = define("linear", _fwd_reference, (2, 2, 1))
linear_dx_p = define("linear_dx", _dx_reference, (2, 2, 2))
linear_dw_p = define("linear_dw", _dw_reference, (2, 2, 2))


@custom_vjp(1, 2)
def _linear(operands, activation, precision):
    return linear_p.bind(
        *operands, activation=activation, keep=False, precision=precision
    )[0]


def _vjp_fwd(operands, activation, precision):
    y, *h = linear_p.bind(
        *operands, activation=activation, keep=True, precision=precision
    )
    return y, (operands[:2], tuple(h), operands[2:])


def _vjp_bwd(activation, precision, res, dy):
    (x, w), h, bias = res
    params = {"activation": activation, "precision": precision}
    (dx,) = linear_dx_p.bind(dy, w, *h, **params)
    # b itself is not read: where the backward runs later, JAX drops it.
    grads = linear_dw_p.bind(dy, x, *h, bias=bool(bias), **params)
    return ((dx, *grads),)


_linear.defvjp(_vjp_fwd, _vjp_bwd)
