"""Philox-4x32-10 on the integer lanes, with XLA's layout of state and results.

Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  The
state is a u64 key, then the 128-bit counter, low word first; where the state has no
room for the counter's high word, that is the key.
"""

from __future__ import annotations

import math

from vkore_jax.dtypes import U32, U64, DType
from vkore_jax.lowering.bits import join, split
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
Block = tuple[Value, Value, Value, Value]


def _words(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return the low and the high half of u64 elements."""
    high = b.vec("shr_l", x, b.scalar(U64, 32, x.shape))
    return b.convert(x, U32), b.convert(high, U32)


def _product(b: Builder, x: Value, number: int) -> tuple[Value, Value]:
    """Return the low and the high word of u32 elements times a number."""
    wide = b.convert(x, U64)
    return _words(b, b.vec("mul", wide, b.scalar(U64, number, x.shape)))


def philox(b: Builder, counter: Block, key: tuple[Value, Value]) -> Block:
    """Return ten rounds of the cipher on u32 tensors of one shape."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for turn in range(ROUNDS):
        if turn:
            k0 = b.vec("add", k0, b.scalar(U32, WEYL[0], k0.shape))
            k1 = b.vec("add", k1, b.scalar(U32, WEYL[1], k1.shape))
        low0, high0 = _product(b, x0, MULTIPLIERS[0])
        low1, high1 = _product(b, x2, MULTIPLIERS[1])
        x0 = b.vec("xor", b.vec("xor", high1, x1), k0)
        x2 = b.vec("xor", b.vec("xor", high0, x3), k1)
        x1, x3 = low1, low0
    return x0, x1, x2, x3


def _advance(b: Builder, low: Value, high: Value, step: Value) -> tuple[Value, Value]:
    """Add a u64 to a 128-bit number."""
    total = b.vec("add", low, step)
    carry = b.convert(b.vec("lt", total, low), U64)
    return total, b.vec("add", high, carry)


def bits(b: Builder, state: Value, dtype: DType, shape: Shape) -> tuple[Value, Value]:
    """Draw bits.

    Args:
        b: where to emit.
        state: u64, 2 or 3 elements.
        dtype: unsigned type of the bits; narrow ones keep the low bits of a u32.
        shape: shape of the bits.

    Returns:
        The advanced state and the bits.
    """
    count = math.prod(shape)
    if count == 0:
        return state, b.empty(dtype, shape)
    words = [
        b.reshape(b.slice(state, (i,), (i + 1,)), ()) for i in range(state.shape[0])
    ]
    key, low, high = words if len(words) == 3 else (*words, words[0])
    blocks = -(-count * max(1, dtype.bits // 32) // 4)
    spread = [b.broadcast(v, (blocks,), ()) for v in (low, high)]
    now = _advance(b, spread[0], spread[1], b.iota(U64, (blocks,), 0))
    keys = [b.broadcast(v, (blocks,), ()) for v in _words(b, key)]
    counter = (*_words(b, now[0]), *_words(b, now[1]))
    drawn = philox(b, counter, (keys[0], keys[1]))
    out = b.concatenate([b.reshape(v, (blocks, 1)) for v in drawn], 1)
    if dtype is U64:
        out = join(b, b.reshape(out, (2 * blocks, 2)), U64)
    out = b.slice(b.reshape(out, (out.size,)), (0,), (count,))
    after = (key, *_advance(b, low, high, b.scalar(U64, blocks)))[: len(words)]
    advanced = b.concatenate([b.reshape(v, (1,)) for v in after], 0)
    return advanced, b.convert(b.reshape(out, shape), dtype)


def as_u64(b: Builder, state: Value) -> Value:
    """Return a state of u32 pairs (low word first) as u64."""
    if state.dtype is U64:
        return b.reshape(state, (state.size,))
    return join(b, b.reshape(state, (state.size // 2, 2)), U64)


def like(b: Builder, state: Value, original: Value) -> Value:
    """Return a u64 state in the type and shape of another one."""
    if original.dtype is not U64:
        state = split(b, state, U32)
    return b.reshape(state, original.shape)
