"""Random bits: ThreeFry-2x32 and Philox as XLA expands them, on the integer lanes.

Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011);
layout of counters and results as in XLA's `prng.cc`, so that bits are equal.
"""

from __future__ import annotations

import math

from vkore_jax import dtypes
from vkore_jax.dtypes import U32, U64, DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.lowering import philox
from vkore_jax.lowering.bits import UNSIGNED, cast_bits, join, split
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import attribute_in, only

rules = RuleSet(__name__)

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
Pair = tuple[Value, Value]


def _add(b: Builder, x: Value, number: int) -> Value:
    return b.vec("add", x, b.scalar(U32, number, x.shape))


def _rotate(b: Builder, x: Value, distance: int) -> Value:
    left = b.vec("shl", x, b.scalar(U32, distance, x.shape))
    right = b.vec("shr_l", x, b.scalar(U32, 32 - distance, x.shape))
    return b.vec("or", left, right)


def threefry(b: Builder, key: Pair, counter: Pair) -> Pair:
    """Return ThreeFry-2x32 (20 rounds) of counters under a key; all u32, one shape."""
    k0, k1 = key
    k2 = b.vec("xor", b.vec("xor", k0, k1), b.scalar(U32, PARITY, k0.shape))
    schedule = (k0, k1, k2)
    x0, x1 = b.vec("add", counter[0], k0), b.vec("add", counter[1], k1)
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x0 = b.vec("add", x0, x1)
            x1 = b.vec("xor", x0, _rotate(b, x1, distance))
        x0 = b.vec("add", x0, schedule[(group + 1) % 3])
        x1 = _add(b, b.vec("add", x1, schedule[(group + 2) % 3]), group + 1)
    return x0, x1


def _words(b: Builder, state: Value) -> list[Value]:
    """Return the state as u32 scalars: key low, key high, counter low, counter high."""
    flat = b.reshape(split(b, state, U32) if state.dtype is U64 else state, (4,))
    return [b.reshape(b.slice(flat, (i,), (i + 1,)), ()) for i in range(4)]


def _halves(shape: Shape) -> tuple[Shape, int]:
    """Split an axis in two: the first even one, else the first of the longest."""
    if not shape:
        return (1,), 0
    even = [i for i, e in enumerate(shape) if e % 2 == 0]
    axis = even[0] if even else shape.index(max(shape))
    return tuple(-(-e // 2) if i == axis else e for i, e in enumerate(shape)), axis


def _check_count(count: int) -> None:
    if count >= 1 << 32:
        raise UnsupportedOp(f"{count} random numbers in one operation; ask for less")


def _offset(b: Builder, low: Value, high: Value, shape: Shape) -> Pair:
    """Return the 64-bit counters ``state + column-major-like index`` as word pairs.

    XLA's index counts the last axis fastest.
    """
    _check_count(math.prod(shape))
    index = b.scalar(U32, 0, shape)
    step = 1
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] > 1:
            walk = b.iota(U32, shape, axis)
            index = b.vec("add", index, b.vec("mul", walk, b.scalar(U32, step, shape)))
            step *= shape[axis]
    first = b.broadcast(low, shape, ())
    total = b.vec("add", first, index)
    carry = b.convert(b.vec("lt", total, index), U32)
    return total, b.vec("add", b.broadcast(high, shape, ()), carry)


@rules.lowers(
    "stablehlo.rng_bit_generator",
    takes=only((t for t in dtypes.ALL if t.kind in "iuf"), results=(1,)),
    requires=(
        attribute_in("rng_algorithm", ("DEFAULT", "THREE_FRY", "PHILOX"), "DEFAULT"),
    ),
)
def rng_bit_generator(b: Builder, op: Op, state: Value) -> tuple[Value, Value]:
    """Random bits and the advanced state; DEFAULT is Philox, as on XLA:CPU."""
    dtype, shape = op.types[1]
    wanted = (128,)
    name = op.word("rng_algorithm", "DEFAULT")
    if name != "THREE_FRY":
        wanted = (128, 192)
    if state.dtype not in (U32, U64) or state.size * state.dtype.bits not in wanted:
        raise UnsupportedOp(
            f"{name} needs {' or '.join(map(str, wanted))} bits of state in ui64 or "
            f"ui32, found {state}; make states with jax.random.key"
        )
    unsigned = UNSIGNED.get(dtype.bits)
    if unsigned is None or dtype.kind == "c":
        raise UnsupportedOp(f"random bits of type {dtype}")
    make = _threefry if name == "THREE_FRY" else _philox
    advanced, bits = make(b, state, unsigned, shape)
    return advanced, bits if dtype is unsigned else cast_bits(b, bits, dtype)


def _philox(
    b: Builder, state: Value, dtype: DType, shape: Shape
) -> tuple[Value, Value]:
    _check_count(math.prod(shape))
    advanced, bits = philox.bits(b, philox.as_u64(b, state), dtype, shape)
    return philox.like(b, advanced, state), bits


def _threefry(
    b: Builder, state: Value, dtype: DType, shape: Shape
) -> tuple[Value, Value]:
    k0, k1, low, high = _words(b, state)
    bits, used = _draw(b, (k0, k1), (low, high), dtype, shape)
    advanced = b.vec("add", low, b.scalar(U32, used, ()))
    carry = b.convert(b.vec("lt", advanced, low), U32)
    words = (k0, k1, advanced, b.vec("add", high, carry))
    flat = b.concatenate([b.reshape(w, (1,)) for w in words], 0)
    if state.dtype is U64:
        flat = join(b, b.reshape(flat, (2, 2)), U64)
    return b.reshape(flat, state.shape), bits


def _draw(
    b: Builder, key: Pair, state: Pair, dtype: DType, shape: Shape
) -> tuple[Value, int]:
    """Return bits of an unsigned type and how many counters they took."""
    if 0 in shape:
        return b.empty(dtype, shape), 0
    if dtype.bits == 64:
        low, high = _cipher(b, key, state, shape)
        last = len(shape)
        pair = b.concatenate([b.reshape(v, (*shape, 1)) for v in (low, high)], last)
        return join(b, pair, U64), math.prod(shape)
    half, axis = _halves(shape)
    first, second = _cipher(b, key, state, half)
    cut = (*half[: axis + 1], 1, *half[axis + 1 :])
    both = b.concatenate([b.reshape(v, cut) for v in (first, second)], axis + 1)
    even = tuple(2 * e if i == axis else e for i, e in enumerate(half))
    out = b.reshape(both, even)
    if shape:
        out = b.slice(out, (0,) * len(shape), shape)
    else:
        out = b.reshape(b.slice(out, (0,), (1,)), ())
    return b.convert(out, dtype), math.prod(half)


def _cipher(b: Builder, key: Pair, state: Pair, shape: Shape) -> Pair:
    counter = _offset(b, *state, shape)
    k0, k1 = (b.broadcast(k, shape, ()) for k in key)
    return threefry(b, (k0, k1), counter)


rules.missing(
    "stablehlo.rng",
    "the legacy op `rng` draws from a seed that the program does not name",
    "use jax.random, whose keys are arguments",
)
