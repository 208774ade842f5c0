"""One AdamW step of one parameter, fused: four tensors read, three written.

    m' = b1 m + (1 - b1) g,                  v' = b2 v + (1 - b2) g^2
    p' = p - lr (m' c1 / (sqrt(v' c2) + eps) + decay p),   c_i = 1 / (1 - b_i^step)

Shapes: p, g, m, v and results of one shape; lr, step scalars.  Arithmetic is in p's
accumulation type; p', m', v' keep their operands' types, so that a float32 master
weight may meet bfloat16 gradients.  An optimizer step is not differentiated: there is
no VJP.  Source: Loshchilov & Hutter, arXiv 1711.05101; constants as `optax.adamw`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from vkore_jax.primitives._common import accumulator, require, require_float
from vkore_jax.primitives._define import define


def adamw_update(
    p: jax.Array,
    g: jax.Array,
    m: jax.Array,
    v: jax.Array,
    *,
    step: jax.Array | int,
    learning_rate: jax.Array | float,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the parameter and its moments after a step.

    Args:
        p: any shape, floating point: the (master) parameter.
        g: gradient, p's shape.
        m: first moment, p's shape.
        v: second moment, p's shape.
        step: number of this step, from 1; may be traced.
        learning_rate: may be traced.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.
        weight_decay: decoupled decay, multiplied with the learning rate.

    Returns:
        New p, m and v, in the types of the old ones.

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    require_float("adamw_update", p=p, g=g, m=m, v=v)
    require(
        p.shape == g.shape == m.shape == v.shape,
        f"adamw_update: p, g, m, v must have one shape, found {p.shape}, {g.shape}, "
        f"{m.shape}, {v.shape}",
    )
    acc: Any = accumulator(p.dtype)
    t = jnp.asarray(step).astype(acc)
    c1, c2 = (1 / (1 - jnp.asarray(b, acc) ** t) for b in (b1, b2))
    lr = jnp.asarray(learning_rate).astype(acc)
    new = adamw_update_p.bind(
        p,
        g,
        m,
        v,
        lr,
        c1,
        c2,
        b1=float(b1),
        b2=float(b2),
        eps=float(eps),
        weight_decay=float(weight_decay),
    )
    return new[0], new[1], new[2]


def _reference(
    p: jax.Array,
    g: jax.Array,
    m: jax.Array,
    v: jax.Array,
    lr: jax.Array,
    c1: jax.Array,
    c2: jax.Array,
    *,
    b1: float,
    b2: float,
    eps: float,
    weight_decay: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Four alike, three scalars -> new p, m, v."""
    acc = accumulator(p.dtype)
    p32, g32, m32, v32 = (a.astype(acc) for a in (p, g, m, v))
    m32 = b1 * m32 + (1 - b1) * g32
    v32 = b2 * v32 + (1 - b2) * g32 * g32
    update = m32 * c1 / (jnp.sqrt(v32 * c2) + eps) + weight_decay * p32
    p32 = p32 - lr * update
    return p32.astype(p.dtype), m32.astype(m.dtype), v32.astype(v.dtype)


adamw_update_p = define("adamw_update", _reference, (0,) * 7)
