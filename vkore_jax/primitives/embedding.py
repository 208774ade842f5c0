"""Rows of a table by ids, with a gradient that is a GEMM.

    y_m = table[ids_m]

Shapes: table (v, c), ids (...) integer, y (..., c).  Residual: ids.  The chip has no
scatter-add, so the gradient multiplies a one-hot matrix, made on the fly for one
vocabulary tile at a time, with dy: ids that occur several times add up inside the GEMM.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from vkore_jax.primitives._common import (
    custom_vjp,
    einsum,
    over_blocks,
    precision_name,
    require,
    require_float,
    signed,
)
from vkore_jax.primitives._define import define


def embedding(
    table: jax.Array, ids: jax.Array, *, block: int = 1024, precision: Any = None
) -> jax.Array:
    """Look up rows.

    An id outside of [0, v) gives a row of zeros and no gradient, as the product with a
    one-hot row would.

    Args:
        table: (v, c), floating point.
        ids: any shape, integer.
        block: rows of the table in one tile of the backward.
        precision: of the backward's GEMM, as in `jnp.matmul`.

    Returns:
        (*ids.shape, c) in the table's type.

    Raises:
        InvalidArgument: if shapes or types do not fit.
    """
    require_float("embedding", table=table)
    require(
        table.ndim == 2 and min(*table.shape, block) > 0,
        f"embedding: table must be (v, c) and not empty, found {table.shape}",
    )
    require(
        jnp.issubdtype(ids.dtype, jnp.integer),
        f"embedding: ids must be integers, found {ids.dtype}",
    )
    params = (table.shape[0], int(block), precision_name(precision))
    y = _embedding(table, signed(ids).reshape(-1), params)
    return y.reshape(*ids.shape, table.shape[1])


def _fwd_reference(table: jax.Array, ids: jax.Array) -> tuple[jax.Array]:
    """(v, c), (m) -> y (m, c)."""
    found = jnp.take(table, ids, axis=0, mode="clip")
    inside = (ids >= 0) & (ids < table.shape[0])
    return (jnp.where(inside[:, None], found, 0),)


# With the one-hot matrix E (m, v), E_mv = [ids_m = v], y = E table is linear:
#   dtable = E^T dy
def _bwd_reference(
    dy: jax.Array, ids: jax.Array, *, vocab: int, block: int, precision: str | None
) -> tuple[jax.Array]:
    """(m, c), (m) -> dtable (v, c)."""

    def step(carry, first, parts):
        (row,) = parts
        one_hot = (row[:, None] == ids[None, :]).astype(dy.dtype)  # (block, m)
        tile = einsum("vm,mc->vc", one_hot, dy, precision)
        return carry, (tile.astype(dy.dtype),)

    every = jnp.arange(vocab, dtype=ids.dtype)
    _, (dtable,) = over_blocks(step, (), [every], vocab, block)
    return (dtable,)


embedding_p = define("embedding", _fwd_reference, (2, 1))
embedding_bwd_p = define("embedding_bwd", _bwd_reference, (2, 1))


@custom_vjp(2)
def _embedding(table, ids, params):
    return embedding_p.bind(table, ids)[0]


def _vjp_fwd(table, ids, params):
    return _embedding(table, ids, params), ids


def _vjp_bwd(params, ids, dy):
    vocab, block, precision = params
    (dtable,) = embedding_bwd_p.bind(
        dy, ids, vocab=vocab, block=block, precision=precision
    )
    return dtable, None


_embedding.defvjp(_vjp_fwd, _vjp_bwd)
