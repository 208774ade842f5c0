"""Functions for `dot_general=` and `attention_fn=`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from vkore_jax import primitives
from vkore_jax.errors import UnsupportedOp
from vkore_jax.rewrite import accelerate


def dot_general(
    lhs: jax.Array,
    rhs: jax.Array,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    **options: Any,
) -> jax.Array:
    """Contract as `jax.lax.dot_general`, with the VJP rules of `linear`.

    Args:
        lhs: activations.
        rhs: weights.
        dimension_numbers: as in `jax.lax.dot_general`.
        precision: of the matrix unit.
        preferred_element_type: of the result.
        **options: what else `jax.lax.dot_general` takes.

    Returns:
        What `jax.lax.dot_general` returns.  It is called where `linear` does not
        compute the same: batch axes, operands of two types, not floating point or
        empty, a result wider than the operands, or options.
    """
    (left, right), (batch, _) = dimension_numbers
    covered = (
        not len(batch)
        and not any(v is not None for v in options.values())
        and lhs.dtype == rhs.dtype
        and jnp.issubdtype(lhs.dtype, jnp.floating)
        and 0 not in (*lhs.shape, *rhs.shape)
        and preferred_element_type in (None, lhs.dtype)
        and not isinstance(precision, tuple)
    )
    if not covered:
        return lax.dot_general(
            lhs, rhs, dimension_numbers, precision, preferred_element_type, **options
        )
    # In the order of the left operand's axes, which then is not transposed.
    pairs = sorted(zip(left, right, strict=True))
    left, right = [i for i, _ in pairs], [j for _, j in pairs]
    rows = [a for a in range(lhs.ndim) if a not in left]
    columns = [a for a in range(rhs.ndim) if a not in right]
    x = lhs.transpose(*rows, *left).reshape(*(lhs.shape[a] for a in rows), -1)
    w = rhs.transpose(*right, *columns).reshape(x.shape[-1], -1)
    y = primitives.linear(x, w, precision=precision)
    return y.reshape(*y.shape[:-1], *(rhs.shape[a] for a in columns))


def attention_fn(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: jax.Array | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Any = None,
    module: Any = None,
    force_fp32_for_softmax: bool = False,
    is_causal: bool = False,
) -> jax.Array:
    """Attend as `flax.linen.dot_product_attention`, by blocks and without scores.

    It takes what the attention layers of linen and of NNX hand to an `attention_fn`.
    Where the primitive does not cover what is asked for (dropout on the weights, a
    bias, weights that are sown), Flax's own function runs; `strict_attention_fn`
    refuses instead.

    Args:
        query: (..., t, h, d).
        key: (..., s, h, d).
        value: (..., s, h, e).
        bias: broadcasts to (..., h, t, s).
        mask: broadcasts to (..., h, t, s); a query sees a key where it is true.
        broadcast_dropout: as in Flax.
        dropout_rng: as in Flax.
        dropout_rate: of the attention weights.
        deterministic: switches dropout off.
        dtype: of the computation.
        precision: of the matrix unit.
        module: where Flax sows the weights.
        force_fp32_for_softmax: as in Flax; the primitive always does.
        is_causal: query i sees keys 0 to i only.

    Returns:
        (..., t, h, e).
    """
    options = {
        "broadcast_dropout": broadcast_dropout,
        "dropout_rng": dropout_rng,
        "dropout_rate": dropout_rate,
        "deterministic": deterministic,
        "dtype": dtype,
        "precision": precision,
        "force_fp32_for_softmax": force_fp32_for_softmax,
    }
    operands = (query, key, value, bias, mask)
    if module is not None:  # it would be written to from inside of a trace
        mask = _with_causal(query, key, mask, is_causal)
        return nn.dot_product_attention(*operands[:4], mask, module=module, **options)
    return accelerate(_reference)(*operands, is_causal, options)


def strict_attention_fn(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: jax.Array | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Any = None,
    precision: Any = None,
    module: Any = None,
    is_causal: bool = False,
) -> jax.Array:
    """Attend as `attention_fn`, or refuse.

    Raises:
        UnsupportedOp: if the primitive does not cover what is asked for; the message
            has the reason.
    """
    options = {
        "broadcast_dropout": broadcast_dropout,
        "dropout_rng": dropout_rng,
        "dropout_rate": dropout_rate,
        "deterministic": deterministic,
        "dtype": dtype,
        "precision": precision,
    }
    operands = (query, key, value, bias, mask, is_causal, options)
    fast = accelerate(_reference)
    found = fast.report(*operands)
    if module is not None or "vkore.attention" not in found.counts():
        reasons = {row.note for row in found.left if row.what == "dot_general"}
        if module is not None:
            reasons = {"the attention weights are sown"}
        raise UnsupportedOp(
            f"attention of q {query.shape}, k {key.shape}, v {value.shape}: "
            f"{'; '.join(sorted(reasons))}. Use attention_fn, which then calls Flax's"
        )
    return fast(*operands)


def _reference(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array | None,
    is_causal: bool,
    options: dict[str, Any],
) -> jax.Array:
    mask = _with_causal(query, key, mask, is_causal)
    return nn.dot_product_attention(query, key, value, bias, mask, **options)


def _with_causal(
    query: jax.Array, key: jax.Array, mask: jax.Array | None, is_causal: bool
) -> jax.Array | None:
    if not is_causal:
        return mask
    t, s = query.shape[-3], key.shape[-3]
    seen = jnp.arange(t)[:, None] >= jnp.arange(s)[None, :]
    seen = seen.reshape((1,) * (query.ndim - 2) + (t, s))
    return seen if mask is None else jnp.logical_and(mask, seen)
