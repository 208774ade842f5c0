"""What several references share: accumulation, precision, blocks, checks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from vkore_jax.errors import InvalidArgument

UNROLL = 2
"""Up to this many blocks are written out; more become a loop."""


def accumulator(dtype: Any) -> Any:
    """Return the type that sums of `dtype` are kept in: at least float32."""
    return jnp.promote_types(dtype, jnp.float32)


def wide(x: jax.Array) -> jax.Array:
    """Return `x` in its accumulation type."""
    return x.astype(accumulator(x.dtype))


def einsum(spec: str, a: jax.Array, b: jax.Array, precision: str | None) -> jax.Array:
    """Contract two operands of one type; the result is of the accumulation type."""
    return jnp.einsum(
        spec, a, b, precision=precision, preferred_element_type=accumulator(a.dtype)
    )


def precision_name(precision: Any) -> str | None:
    """Return a precision or named algorithm by its name; None takes JAX's default.

    Read here, when the user's function is traced: inside a lowering the context of
    `jax.default_matmul_precision` is gone.
    """
    config: Any = jax.config  # its options are not declared
    if precision is None:
        precision = config.jax_default_matmul_precision
    if precision is None or isinstance(precision, str):
        return precision
    if isinstance(precision, jax.lax.Precision):
        return precision.name.lower()
    name = getattr(precision, "name", None)
    if isinstance(name, str):
        return name
    raise InvalidArgument(
        f"precision must be one name or one jax.lax.Precision, not {precision!r}"
    )


def custom_vjp(*static: int) -> Callable[[Callable[..., Any]], Any]:
    """Make a `jax.custom_vjp` whose arguments at the positions `static` are values."""
    return functools.partial(jax.custom_vjp, nondiff_argnums=static)


def require(condition: bool, message: str) -> None:
    """Raise `InvalidArgument` with the message unless the condition holds."""
    if not condition:
        raise InvalidArgument(message)


def require_float(where: str, **arrays: Any) -> None:
    """Raise `InvalidArgument` unless every array is of a floating-point type."""
    for name, x in arrays.items():
        require(
            jnp.issubdtype(x.dtype, jnp.floating),
            f"{where}: {name} must be floating point, found {x.dtype}",
        )


def signed(ids: jax.Array) -> jax.Array:
    """Return ids in a type that holds -1 and every index: at least int32."""
    wide = jnp.int64 if ids.dtype.itemsize > 4 else jnp.int32
    return ids.astype(wide)


def rows(x: jax.Array) -> jax.Array:
    """Merge all axes but the last: (..., c) to (m, c)."""
    size = 1
    for n in x.shape[:-1]:
        size *= n
    return x.reshape(size, x.shape[-1])


Body = Callable[[Any, Any, Sequence[jax.Array]], tuple[Any, Sequence[jax.Array]]]


def over_blocks(
    body: Body, carry: Any, arrays: Sequence[jax.Array], length: int, block: int
) -> tuple[Any, list[jax.Array]]:
    """Walk along axis 0 in blocks; a shorter rest is a block of its own.

    Args:
        body: `body(carry, start, parts) -> (carry, outs)`; `start` is the first index
            of the block, parts and outs have the block's length along axis 0.
        carry: what the blocks hand on.
        arrays: each of `length` along axis 0.
        length: indices in all.
        block: indices of one step.

    Returns:
        The last carry, and the outs joined along axis 0.
    """
    block = max(1, min(block, length))
    full = length // block
    pieces: list[Sequence[jax.Array]] = []
    if full <= UNROLL:
        starts = list(range(0, length, block))
    else:
        whole = full * block

        def step(inner: Any, xs: Any) -> tuple[Any, Any]:
            start, parts = xs
            return body(inner, start, parts)

        stacked = [a[:whole].reshape(full, block, *a.shape[1:]) for a in arrays]
        first = jnp.arange(full, dtype=jnp.int32) * block
        carry, outs = jax.lax.scan(step, carry, (first, stacked))
        pieces.append([y.reshape(whole, *y.shape[2:]) for y in outs])
        starts = [whole] if whole < length else []
    for start in starts:
        carry, outs = body(carry, start, [a[start : start + block] for a in arrays])
        pieces.append(outs)
    if len(pieces) == 1:
        return carry, list(pieces[0])
    return carry, [jnp.concatenate(parts) for parts in zip(*pieces, strict=True)]
