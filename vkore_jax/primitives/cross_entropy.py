"""Output projection and softmax cross-entropy in one, over vocabulary tiles.

    loss_m = lse_m - z_m,target(m) + z_loss lse_m^2,
    z = x w^T + b,    lse_m = log sum_v exp(z_mv)

Shapes: x (..., c); w (v, c), or (c, v) with `vocab_axis=1`; b (v,); targets (...)
integer; loss (...) in the accumulation type; m positions in all.  The logits z exist
for one tile of the vocabulary at a time, in the accumulation type, in the forward and
again in the backward.  Residuals: x, w, b, targets and lse.
Sources: online softmax, Milakov & Gimelshein, arXiv 1805.02867; z-loss, Chowdhery et
al., arXiv 2204.02311, section 5.
"""

from __future__ import annotations

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
    rows,
    signed,
    wide,
)
from vkore_jax.primitives._define import define


def softmax_cross_entropy(
    x: jax.Array,
    w: jax.Array,
    targets: jax.Array,
    b: jax.Array | None = None,
    *,
    vocab_axis: int = 0,
    z_loss: float = 0.0,
    ignore_index: int | None = None,
    block: int = 1024,
    precision: Any = None,
) -> jax.Array:
    """Return the negative log-likelihood of `targets` under the logits `x w^T + b`.

    A target outside of [0, v) that is not `ignore_index` gives NaN.

    Args:
        x: (..., c) hidden states, floating point.
        w: (v, c), as an embedding table, or (c, v), as a dense layer's kernel.
        targets: (...) integer ids.
        b: (v,), or None.
        vocab_axis: which axis of `w` is the vocabulary, 0 or 1.
        z_loss: weight of lse^2, which keeps the logits from drifting.
        ignore_index: targets of this value have loss 0 and no gradient.
        block: vocabulary entries of one tile.
        precision: of the matrix unit, as in `jnp.matmul`.

    Returns:
        (...) nats for each position, float32 (float64 for float64 operands).

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    given = (x, w) if b is None else (x, w, b)
    where = "softmax_cross_entropy"
    require_float(where, **dict(zip("xwb", given, strict=False)))
    require(vocab_axis in (0, 1), f"{where}: vocab_axis is 0 or 1, not {vocab_axis!r}")
    require(
        x.ndim >= 1
        and w.ndim == 2
        and w.shape[1 - vocab_axis] == x.shape[-1]
        and (b is None or b.shape == (w.shape[vocab_axis],))
        and min(w.shape[vocab_axis], block) > 0,
        f"{where}: needs x (..., c), w (v, c) or (c, v) by vocab_axis, b (v,); found "
        f"{[a.shape for a in given]} with vocab_axis={vocab_axis}",
    )
    require(
        jnp.issubdtype(targets.dtype, jnp.integer) and targets.shape == x.shape[:-1],
        f"{where}: targets must be integers {x.shape[:-1]}, found "
        f"{targets.dtype}{targets.shape}",
    )
    dtype = jnp.result_type(*given)
    x32, w32, *bias = (a.astype(dtype) for a in given)
    params = (
        ("vocab_axis", int(vocab_axis)),
        ("z_loss", float(z_loss)),
        ("ignore_index", None if ignore_index is None else int(ignore_index)),
        ("block", int(block)),
        ("precision", precision_name(precision)),
    )
    loss = _cross_entropy((rows(x32), w32, *bias), signed(targets).reshape(-1), params)
    return loss.reshape(targets.shape)


def _targets(
    targets: jax.Array, vocab: int, ignore_index: int | None
) -> tuple[jax.Array, jax.Array]:
    """Return which targets count, and which of those are outside the vocabulary."""
    counts = jnp.ones(targets.shape, bool)
    if ignore_index is not None:
        counts = targets != ignore_index
    return counts, counts & ((targets < 0) | (targets >= vocab))


def _tiles(
    w: jax.Array, targets: jax.Array, bias: tuple[jax.Array, ...], vocab_axis: int
) -> list[jax.Array]:
    """Return what is walked along the vocabulary: ids, w as (v, c), and b."""
    w = w if vocab_axis == 0 else w.T
    return [jnp.arange(w.shape[0], dtype=targets.dtype), w, *bias]


def _logits(x, w, bias, precision):
    """(m, c), (block, c), [(block)] -> (m, block)."""
    z = einsum("mc,vc->mv", x, w, precision)
    return z + wide(bias[0]) if bias else z


def _fwd_reference(
    x: jax.Array,
    w: jax.Array,
    targets: jax.Array,
    *bias: jax.Array,
    vocab_axis: int,
    z_loss: float,
    ignore_index: int | None,
    block: int,
    precision: str | None,
) -> tuple[jax.Array, jax.Array]:
    """(m, c), (v, c), (m), [(v)] -> loss (m), lse (m)."""

    def step(carry, first, parts):
        top, total, picked = carry
        ids, wj, *bj = parts
        z = _logits(x, wj, bj, precision)
        new = jnp.maximum(top, jnp.max(z, axis=-1))
        total = total * jnp.exp(top - new) + jnp.sum(jnp.exp(z - new[:, None]), axis=-1)
        hit = targets[:, None] == ids[None, :]
        return (new, total, picked + jnp.sum(jnp.where(hit, z, 0), axis=-1)), ()

    acc, m, vocab = accumulator(x.dtype), x.shape[0], w.shape[vocab_axis]
    init = (jnp.full(m, -jnp.inf, acc), jnp.zeros(m, acc), jnp.zeros(m, acc))
    arrays = _tiles(w, targets, bias, vocab_axis)
    (top, total, picked), _ = over_blocks(step, init, arrays, vocab, block)
    lse = top + jnp.log(total)
    loss = lse - picked
    if z_loss:
        loss = loss + z_loss * lse * lse
    counts, wrong = _targets(targets, vocab, ignore_index)
    return jnp.where(wrong, jnp.nan, jnp.where(counts, loss, 0)), lse


# With p_mv = exp(z_mv - lse_m) and d lse_m / d z_mv = p_mv:
#   dz_mv = dloss_m (p_mv (1 + 2 z_loss lse_m) - [v = target_m])
# and z = x w^T + b, bilinear:
#   dx = dz w,   dw = dz^T x,   db = sum_m dz
# Each tile recomputes its logits, adds its part to dx and finishes its rows of dw, db.
# dz is rounded to the operands' type, as the matrix unit reads it.
def _bwd_reference(
    dloss: jax.Array,
    x: jax.Array,
    w: jax.Array,
    targets: jax.Array,
    lse: jax.Array,
    *bias: jax.Array,
    vocab_axis: int,
    z_loss: float,
    ignore_index: int | None,
    block: int,
    precision: str | None,
) -> tuple[jax.Array, ...]:
    """(m), (m, c), (v, c), (m), (m), [(v)] -> dx (m, c), dw (v, c), [db (v)]."""
    vocab = w.shape[vocab_axis]
    counts, wrong = _targets(targets, vocab, ignore_index)
    g = jnp.where(wrong, jnp.nan, jnp.where(counts, dloss, 0))
    weight = g * (1 + 2 * z_loss * lse)

    def step(dx, first, parts):
        ids, wj, *bj = parts
        p = jnp.exp(_logits(x, wj, bj, precision) - lse[:, None])
        hit = targets[:, None] == ids[None, :]
        dz32 = p * weight[:, None] - jnp.where(hit, g[:, None], 0)
        dz = dz32.astype(x.dtype)
        dwj = einsum("mv,mc->vc", dz, x, precision).astype(w.dtype)
        dbj = [jnp.sum(dz32, axis=0).astype(b.dtype) for b in bj]
        return dx + einsum("mv,vc->mc", dz, wj, precision), (dwj, *dbj)

    arrays = _tiles(w, targets, bias, vocab_axis)
    init = jnp.zeros(x.shape, accumulator(x.dtype))
    dx, (dw, *db) = over_blocks(step, init, arrays, vocab, block)
    return (dx.astype(x.dtype), dw if vocab_axis == 0 else dw.T, *db)


cross_entropy_p = define("softmax_cross_entropy", _fwd_reference, (2, 2, 1, 1))
cross_entropy_bwd_p = define(
    "softmax_cross_entropy_bwd", _bwd_reference, (1, 2, 2, 1, 1, 1)
)


@custom_vjp(2)
def _cross_entropy(operands, targets, params):
    return _vjp_fwd(operands, targets, params)[0]


def _vjp_fwd(operands, targets, params):
    x, w, *bias = operands
    loss, lse = cross_entropy_p.bind(x, w, targets, *bias, **dict(params))
    return loss, (x, w, targets, lse, *bias)


def _vjp_bwd(params, res, dloss):
    return tuple(cross_entropy_bwd_p.bind(dloss, *res, **dict(params))), None


_cross_entropy.defvjp(_vjp_fwd, _vjp_bwd)
