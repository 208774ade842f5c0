"""Scaled dot-product attention by blocks, with an online softmax.

    y_i = sum_j p_ij v_j,    p_ij = exp(s_ij - lse_i),    s_ij = scale q_i k_j
    lse_i = log sum_j exp(s_ij),   j over the keys that query i sees

Shapes: q (..., t, h, d); k (..., s, g, d), v (..., s, g, e) with g key/value heads,
each serving r = h / g query heads (grouped-query attention); y (..., t, h, e);
lse (..., h, t) in the accumulation type.  No tensor has both t and s elements beyond
one block: keys are walked in blocks that carry the running maximum and sum.
Residuals: q, k, v, mask, y and lse; scores and probabilities are recomputed by blocks.
Sources: Milakov & Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from vkore_jax.primitives._common import (
    accumulator,
    custom_vjp,
    einsum,
    over_blocks,
    precision_name,
    require,
    require_float,
    wide,
)
from vkore_jax.primitives._define import define


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    block: int = 256,
    precision: Any = None,
) -> jax.Array:
    """Attend from `q` to `k`, `v`.

    A query that sees no key at all gets zeros, and gives zero gradients.

    Args:
        q: (..., t, h, d), floating point.
        k: (..., s, g, d), where g divides h.
        v: (..., s, g, e).
        mask: (..., 1 or h, t, s) bool, True where the query sees the key; its leading
            axes broadcast.
        causal: query i sees keys 0 to i only.
        scale: of the scores; 1 / sqrt(d) when None.
        block: queries and keys of one block.
        precision: of the matrix unit, as in `jnp.matmul`.

    Returns:
        (..., t, h, e) in q's type.

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    require_float("attention", q=q, k=k, v=v)
    shapes = f"found q {q.shape}, k {k.shape}, v {v.shape}"
    require(
        min(q.ndim, k.ndim, v.ndim) >= 3
        and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-3:-1] == v.shape[-3:-1]
        and q.shape[-2] % k.shape[-2] == 0,
        f"attention: needs q (..., t, h, d), k (..., s, g, d), v (..., s, g, e) with "
        f"equal leading axes and g dividing h; {shapes}",
    )
    require(
        q.dtype == k.dtype == v.dtype,
        f"attention: q, k, v must have one type, found {q.dtype}, {k.dtype}, {v.dtype}",
    )
    require(min(q.shape[-3], k.shape[-3], block) > 0, f"attention: empty; {shapes}")
    if mask is not None:
        t, h, s = *q.shape[-3:-1], k.shape[-3]
        require(
            mask.dtype == jnp.bool_
            and 3 <= mask.ndim <= q.ndim
            and mask.shape[-3:] in ((1, t, s), (h, t, s)),
            f"attention: mask must be bool (..., 1 or {h}, {t}, {s}), found "
            f"{mask.dtype}{mask.shape}",
        )
    params = (
        bool(causal),
        float(q.shape[-1] ** -0.5 if scale is None else scale),
        int(block),
        precision_name(precision),
    )
    return _attention(q, k, v, mask, params)


def _query_blocks(
    t: int, s: int, block: int, causal: bool
) -> Iterator[tuple[int, int, int]]:
    """Yield (first query, end, end of the keys that any of them sees)."""
    for start in range(0, t, block):
        end = min(start + block, t)
        yield start, end, min(s, end) if causal else s


def _grouped(x: jax.Array, g: int) -> jax.Array:
    """(t, h, d) -> (g, r, t, d)."""
    t, h, d = x.shape
    return x.reshape(t, g, h // g, d).transpose(1, 2, 0, 3)


def _ungrouped(x: jax.Array) -> jax.Array:
    """(g, r, t, d) -> (t, h, d)."""
    g, r, t, d = x.shape
    return x.transpose(2, 0, 1, 3).reshape(t, g * r, d)


def _keys_first(mask: jax.Array | None, g: int) -> list[jax.Array]:
    """(1 or h, t, s) -> [(s, 1 or g, 1 or r, t)], to be walked with the keys."""
    if mask is None:
        return []
    h, t, s = mask.shape
    groups = (1, 1) if h == 1 else (g, h // g)
    return [jnp.moveaxis(mask.reshape(*groups, t, s), -1, 0)]


def _scores(
    q: jax.Array,
    k: jax.Array,
    mask: list[jax.Array],
    first: tuple[Any, Any],
    causal: bool,
    scale: float,
    precision: str | None,
) -> jax.Array:
    """Scores (g, r, bq, bk) of a block, -inf where the query does not see the key.

    `first` holds the first query (int) and the first key (int or traced).
    """
    s = einsum("grqd,kgd->grqk", q, k, precision) * scale
    query, key = first
    if causal and not (isinstance(key, int) and key + k.shape[0] <= query + 1):
        i = query + jnp.arange(q.shape[2], dtype=jnp.int32)
        j = key + jnp.arange(k.shape[0], dtype=jnp.int32)
        s = jnp.where(i[:, None] >= j[None, :], s, -jnp.inf)
    for m in mask:
        s = jnp.where(jnp.moveaxis(m, 0, -1), s, -jnp.inf)
    return s


def _fwd_reference(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array | None = None,
    *,
    causal: bool,
    scale: float,
    block: int,
    precision: str | None,
) -> tuple[jax.Array, jax.Array]:
    """(t, h, d), (s, g, d), (s, g, e), [(1|h, t, s)] -> y (t, h, e), lse (h, t)."""
    (t, h, _), (s, g, e) = q.shape, v.shape
    acc = accumulator(q.dtype)
    grouped, masks = _grouped(q, g), _keys_first(mask, g)
    ys, lses = [], []
    for start, end, seen in _query_blocks(t, s, block, causal):
        qi = grouped[:, :, start:end]

        def step(carry, key, parts, qi=qi, start=start):
            top, total, out = carry
            kj, vj, *mj = parts
            scores = _scores(qi, kj, mj, (start, key), causal, scale, precision)
            new = jnp.maximum(top, jnp.max(scores, axis=-1))
            # Where nothing was seen yet, new is -inf, and -inf - -inf is not a number.
            base = jnp.where(new == -jnp.inf, 0, new)
            p = jnp.exp(scores - base[..., None])
            shrink = jnp.exp(top - base)
            total = total * shrink + jnp.sum(p, axis=-1)
            update = einsum("grqk,kge->grqe", p.astype(v.dtype), vj, precision)
            return (new, total, out * shrink[..., None] + update), ()

        rows = qi.shape[:-1]
        init = (
            jnp.full(rows, -jnp.inf, acc),
            jnp.zeros(rows, acc),
            jnp.zeros((*rows, e), acc),
        )
        arrays = [k[:seen], v[:seen], *(m[:seen, ..., start:end] for m in masks)]
        (top, total, out), _ = over_blocks(step, init, arrays, seen, block)
        blind = total == 0
        safe = jnp.where(blind, 1, total)
        ys.append(out / safe[..., None])
        # +inf makes every recomputed probability of a blind query zero.
        lses.append(jnp.where(blind, jnp.inf, top + jnp.log(safe)))
    y = _ungrouped(jnp.concatenate(ys, axis=2)).astype(q.dtype)
    return y, jnp.concatenate(lses, axis=2).reshape(h, t)


# With p_ij recomputed from lse_i:
#   y_i = sum_j p_ij v_j:         dv_j  = sum_i p_ij dy_i,    dp_ij = dy_i v_j
#   softmax:                      ds_ij = p_ij (dp_ij - sum_l p_il dp_il)
#     and sum_l p_il dp_il = dy_i sum_l p_il v_l = dy_i y_i =: delta_i, known per query
#   s_ij = scale q_i k_j:         dq_i  = scale sum_j ds_ij k_j
#                                 dk_j  = scale sum_i ds_ij q_i
# A key/value head serves r query heads: dk and dv also sum over those.
# For each block of queries the keys are walked once: dq is carried, the parts of dk
# and dv are summed over the query blocks.
def _bwd_reference(
    dy: jax.Array,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    y: jax.Array,
    lse: jax.Array,
    mask: jax.Array | None = None,
    *,
    causal: bool,
    scale: float,
    block: int,
    precision: str | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Cotangents dq (t, h, d), dk (s, g, d), dv (s, g, e)."""
    (t, _, _), (s, g, e) = q.shape, v.shape
    acc = accumulator(q.dtype)
    delta = jnp.sum(wide(_grouped(dy, g)) * wide(_grouped(y, g)), axis=-1)
    queries, cotangents = _grouped(q, g), _grouped(dy, g)
    lse, masks = lse.reshape(delta.shape), _keys_first(mask, g)
    dqs = []
    dk, dv = jnp.zeros(k.shape, acc), jnp.zeros((s, g, e), acc)
    for start, end, seen in _query_blocks(t, s, block, causal):
        qi, dyi, lsei, deltai = (
            a[:, :, start:end] for a in (queries, cotangents, lse, delta)
        )

        def step(
            dqi, key, parts, qi=qi, dyi=dyi, lsei=lsei, deltai=deltai, start=start
        ):
            kj, vj, *mj = parts
            scores = _scores(qi, kj, mj, (start, key), causal, scale, precision)
            p = jnp.exp(scores - lsei[..., None])
            dvj = einsum("grqk,grqe->kge", p.astype(v.dtype), dyi, precision)
            dp = einsum("grqe,kge->grqk", dyi, vj, precision)
            ds = (p * (dp - deltai[..., None]) * scale).astype(q.dtype)
            dkj = einsum("grqk,grqd->kgd", ds, qi, precision)
            return dqi + einsum("grqk,kgd->grqd", ds, kj, precision), (dkj, dvj)

        arrays = [k[:seen], v[:seen], *(m[:seen, ..., start:end] for m in masks)]
        dqi, parts = over_blocks(step, jnp.zeros(qi.shape, acc), arrays, seen, block)
        dqs.append(dqi)
        unseen = ((0, s - seen), (0, 0), (0, 0))
        dk, dv = dk + jnp.pad(parts[0], unseen), dv + jnp.pad(parts[1], unseen)
    dq = _ungrouped(jnp.concatenate(dqs, axis=2))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


attention_p = define("attention", _fwd_reference, (3, 3, 3, 3))
attention_bwd_p = define("attention_bwd", _bwd_reference, (3, 3, 3, 3, 3, 2, 3))


def _bind(primitive, operands, params):
    causal, scale, block, precision = params
    return primitive.bind(
        *operands, causal=causal, scale=scale, block=block, precision=precision
    )


@custom_vjp(4)
def _attention(q, k, v, mask, params):
    return _vjp_fwd(q, k, v, mask, params)[0]


def _vjp_fwd(q, k, v, mask, params):
    masks = () if mask is None else (mask,)
    y, lse = _bind(attention_p, (q, k, v, *masks), params)
    return y, (q, k, v, y, lse, *masks)


def _vjp_bwd(params, res, dy):
    dq, dk, dv = _bind(attention_bwd_p, (dy, *res), params)
    return dq, dk, dv, None


_attention.defvjp(_vjp_fwd, _vjp_bwd)
