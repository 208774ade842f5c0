"""Operands of the scaled float strategies as f32 numbers that an XLA GEMM multiplies.

A scale is a power of two, so an operand rounded in scaled form and scaled back is an
f32 number again, and products of whole operands give the sums of the parts' products:
the segments cost an elementwise pass over each operand, not a GEMM each.

What the chip does otherwise stays inside the contract: the order of the sums, and such
a GEMM includes the products that the strategy leaves out, which are below the rounding
of the sum (`contract.LEFT_OUT`).  Integer slices are in `sliced`.

Elements that are not finite are passed on as they are, and IEEE arithmetic does the
rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vkore_jax.dtypes import BOOL, F32, I32, DType
from vkore_jax.isa import Strategy, strategies
from vkore_jax.isa.strategies import STRATEGIES as FACTS
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type

_FRACTION_BITS = 23
_INFINITY = 0xFF << _FRACTION_BITS
_MAGNITUDE = 0x7FFFFFFF
_BIAS = 127


class Operand(NamedTuple):
    """One side of a contraction.

    Attributes:
        val: its elements.
        axis: the contracted axis.
        run: elements of that axis after which segments start anew.
    """

    val: Val
    axis: int
    run: int


Round = Callable[[Emitter, Val], Val]
"""x * 2**(shift - e) -> the sum of its parts, in the same unit."""


def whole(e: Emitter, operand: Operand, strategy: Strategy) -> Val:
    """Return the operand as its parts add up, scaled back."""
    shift, rounding = _FORMATS[strategy]

    def make(at: Operand) -> Val:
        x, axis = segments(e, at, FACTS[strategy].segment)
        up, down = scales(e, x, axis, shift)
        made = rounding(e, binary(e, "multiply", x, e.broadcast(up, x.shape)))
        made = binary(e, "multiply", made, e.broadcast(down, x.shape))
        return _joined(e, select(e, finite(e, x), made, x), at)

    return below(e, operand, ("whole", strategy), make)


def half(e: Emitter, v: Val) -> Val:
    """Return an f32 value rounded to f16's normal numbers, infinities and zeros."""
    return e.below("f16", v, lambda x: e.reduce_precision(x, 5, 10))


# ------------------------------------------------------------------------------ formats


def _halves(parts: int) -> Round:
    def rounding(e: Emitter, scaled: Val) -> Val:
        total = rest = scaled
        for i in range(parts):
            part = e.reduce_precision(rest, 5, 10)
            value = times(e, part, 2.0 ** (-11 * i)) if i else part
            total = binary(e, "add", total, value) if i else value
            if i < parts - 1:
                rest = times(e, binary(e, "subtract", rest, part), 2.0**11)
        return _below_top(e, total, strategies.FP16_SHIFT)

    return rounding


def _eighths(e: Emitter, scaled: Val) -> Val:
    """e4m3: four significant bits, below 2**-6 multiples of 2**-9."""
    normal = e.reduce_precision(scaled, 8, 3)
    tiny = times(e, nearest(e, times(e, scaled, 2.0**9)), 2.0**-9)
    small = compare(e, "LT", _unary(e, "abs", scaled), constant(e, scaled, 2.0**-6))
    return _below_top(e, select(e, small, tiny, normal), strategies.FP8_SHIFT)


def _below_top(e: Emitter, v: Val, shift: int) -> Val:
    """Keep what was rounded up to 2**(shift + 1) one bit below it.

    Scaled back from the largest exponent it would be infinite, where the chip scales
    sums only; the bit is inside the accumulation bound.
    """
    return _clamp(e, v, float(np.nextafter(np.float32(2.0 ** (shift + 1)), 0)))


_FORMATS: dict[Strategy, tuple[int, Round]] = {
    Strategy.FP16X1: (strategies.FP16_SHIFT, _halves(1)),
    Strategy.FP16X2: (strategies.FP16_SHIFT, _halves(2)),
    Strategy.FP16X3: (strategies.FP16_SHIFT, _halves(3)),
    Strategy.FP8X1: (strategies.FP8_SHIFT, _eighths),
}
"""Strategy -> exponent of the scaled segment, and the rounding there."""


# ------------------------------------------------------------------------------- scales


def scales(e: Emitter, x: Val, axis: int, shift: int) -> tuple[Val, Val]:
    """Return 2**(shift - e) and 2**(e - shift) of segments that are a whole axis.

    Exponents are taken from the bits of the largest magnitude: a maximum of integers,
    which XLA:CPU vectorizes, and no logarithm.
    """

    def exponent() -> Val:
        bits = _binary_with(e, "and", e.bitcast(x, I32, x.shape), _MAGNITUDE)
        tame = compare(e, "LT", bits, constant(e, bits, _INFINITY))
        bits = select(e, tame, bits, constant(e, bits, 0))
        top = _binary_with(e, "and", _largest(e, bits, axis), _INFINITY)
        least = (strategies.LEAST_EXPONENT + _BIAS) << _FRACTION_BITS
        return _binary_with(e, "maximum", top, least)

    top = e.derive(("exponent", x.name, axis), x, exponent)
    # The exponent field of 2**(shift - e) is bias + shift - (field - bias).
    above = (2 * _BIAS + shift) << _FRACTION_BITS
    up = binary(e, "subtract", constant(e, top, _wrapped(above)), top)
    down = _binary_with(e, "subtract", top, shift << _FRACTION_BITS)
    return e.bitcast(up, F32, up.shape), e.bitcast(down, F32, down.shape)


def segments(e: Emitter, at: Operand, segment: int) -> tuple[Val, int]:
    """Return the value with the contracted axis as (segments, elements), zero-padded.

    Returns:
        The value and the axis of a segment's elements.
    """
    v, axis, run = at
    if segment >= run == v.shape[axis]:
        return v, axis
    before, after = v.shape[:axis], v.shape[axis + 1 :]
    step, runs = min(segment, run), v.shape[axis] // run
    if run % step:
        v = e.reshape(v, (*before, runs, run, *after))
        v = _padded(e, v, axis + 1, -(-run // step) * step)
    count = runs * -(-run // step)
    return e.reshape(v, (*before, count, step, *after)), axis + 1


def _joined(e: Emitter, v: Val, at: Operand) -> Val:
    """Undo `segments`."""
    shape, axis = at.val.shape, at.axis
    if v.shape == shape:
        return v
    before, after = shape[:axis], shape[axis + 1 :]
    runs = shape[axis] // at.run
    padded = math.prod(v.shape) // math.prod((*before, *after)) // runs
    v = e.reshape(v, (*before, runs, padded, *after))
    if padded != at.run:
        start = (0,) * len(v.shape)
        limit = (*before, runs, at.run, *after)
        v = e.slice(v, start, limit, (1,) * len(v.shape))
    return e.reshape(v.standing_for(v.shape), shape)


def below(
    e: Emitter, operand: Operand, key: object, make: Callable[[Operand], Val]
) -> Val:
    """Apply `make` below the transposes and repetitions that made the value.

    As `Emitter.below`, for code that knows the contracted axis, of which it may leave
    one element.
    """
    v, axis, run = operand
    move = e.move_of(v)
    if move is not None and move[0] == "transpose":
        _, source, order = move
        source = source.standing_for(source.shape)
        inner = below(e, Operand(source, order[axis], run), key, make)
        return e.transpose(inner, order).standing_for(v.logical)
    if move is not None and move[0] == "broadcast":
        _, source, shape = move
        if len(source.shape) == len(shape) and source.shape[axis] == shape[axis]:
            source = source.standing_for(source.shape)
            inner = below(e, Operand(source, axis, run), key, make)
            kept = tuple(
                inner.shape[i] if i == axis else n for i, n in enumerate(shape)
            )
            return e.broadcast(inner, kept).standing_for(v.logical)
    plain = e.convert(v.standing_for(v.shape), F32)
    at = Operand(plain, axis, run)
    made = e.derive((key, v.name, axis, run), plain, lambda: make(at))
    return made.standing_for(v.logical)


# -------------------------------------------------------------------------- operations


def binary(e: Emitter, word: str, a: Val, b: Val) -> Val:
    """Emit an elementwise operation of two values of one type."""
    return e.op(f"stablehlo.{word} {a.name}, {b.name} : {a.type}", a.dtype, a.shape)


def select(e: Emitter, p: Val, a: Val, b: Val) -> Val:
    """Emit `p ? a : b`."""
    text = f"stablehlo.select {p.name}, {a.name}, {b.name} : {p.type}, {a.type}"
    return e.op(text, a.dtype, a.shape)


def _unary(e: Emitter, word: str, a: Val) -> Val:
    return e.op(f"stablehlo.{word} {a.name} : {a.type}", a.dtype, a.shape)


def nearest(e: Emitter, v: Val) -> Val:
    return _unary(e, "round_nearest_even", v)


def finite(e: Emitter, v: Val) -> Val:
    """Emit the test whether elements are neither infinite nor NaN."""
    text = f"stablehlo.is_finite {v.name} : ({v.type}) -> "
    return e.op(text + tensor_type(BOOL, v.shape), BOOL, v.shape)


def all_finite(e: Emitter, v: Val) -> Val:
    """Emit the test whether no element is infinite or NaN."""
    fine = finite(e, v)
    yes = e.scalar(BOOL, True)
    axes = ", ".join(map(str, range(len(v.shape))))
    return e.op(
        f"stablehlo.reduce({fine.name} init: {yes.name}) applies stablehlo.and across "
        f"dimensions = [{axes}] : ({fine.type}, {yes.type}) -> {yes.type}",
        BOOL,
        (),
    )


def either(
    e: Emitter,
    test: Val,
    yes: Callable[[], list[Val]],
    no: Callable[[], list[Val]],
    dtype: DType,
    shape: Shape,
) -> Val:
    """Emit one of two ways to a value, which is chosen at run time."""
    regions = ", ".join(e.region([], f) for f in (yes, no))
    kind = tensor_type(dtype, shape)
    text = f'"stablehlo.if"({test.name}) ({regions}) : ({test.type}) -> {kind}'
    return e.op(text, dtype, shape)


def compare(e: Emitter, direction: str, a: Val, b: Val) -> Val:
    text = (
        f"stablehlo.compare {direction}, {a.name}, {b.name} : "
        f"({a.type}, {b.type}) -> {tensor_type(BOOL, a.shape)}"
    )
    return e.op(text, BOOL, a.shape)


def constant(e: Emitter, like: Val, value: float) -> Val:
    return e.broadcast(e.scalar(like.dtype, value), like.shape)


def _binary_with(e: Emitter, word: str, v: Val, value: float) -> Val:
    return binary(e, word, v, constant(e, v, value))


def times(e: Emitter, v: Val, factor: float) -> Val:
    return _binary_with(e, "multiply", v, factor)


def saturated(e: Emitter, v: Val, limit: int) -> Val:
    return _clamp(e, nearest(e, v), limit)


def _clamp(e: Emitter, x: Val, limit: float) -> Val:
    low, high = e.scalar(F32, -limit), e.scalar(F32, limit)
    text = (
        f"stablehlo.clamp {low.name}, {x.name}, {high.name} : "
        f"({low.type}, {x.type}, {high.type}) -> {x.type}"
    )
    return e.op(text, x.dtype, x.shape)


def _largest(e: Emitter, v: Val, axis: int) -> Val:
    """Return the largest of non-negative integers."""
    return _extreme(e, v, axis, "maximum", 0)


def least(e: Emitter, v: Val, axis: int) -> Val:
    """Return the least of integers along an axis, which keeps one element."""
    return _extreme(e, v, axis, "minimum", np.iinfo(v.dtype.numpy).max)


def _extreme(e: Emitter, v: Val, axis: int, word: str, neutral: int) -> Val:
    start = e.scalar(v.dtype, neutral)
    shape = tuple(n for i, n in enumerate(v.shape) if i != axis)
    text = (
        f"stablehlo.reduce({v.name} init: {start.name}) applies stablehlo.{word} "
        f"across dimensions = {ints((axis,))} : ({v.type}, {start.type}) -> "
        f"{tensor_type(v.dtype, shape)}"
    )
    kept = tuple(1 if i == axis else n for i, n in enumerate(v.shape))
    return e.reshape(e.op(text, v.dtype, shape), kept)


def _padded(e: Emitter, v: Val, axis: int, extent: int) -> Val:
    zero = e.scalar(v.dtype, 0)
    low = [0] * len(v.shape)
    high = [extent - n if i == axis else 0 for i, n in enumerate(v.shape)]
    shape = tuple(n + h for n, h in zip(v.shape, high))
    text = (
        f"stablehlo.pad {v.name}, {zero.name}, low = {ints(low)}, high = {ints(high)}, "
        f"interior = {ints(low)} : ({v.type}, {zero.type}) -> "
        f"{tensor_type(v.dtype, shape)}"
    )
    return e.op(text, v.dtype, shape)


def _wrapped(bits: int) -> int:
    """Return a 32-bit pattern as a signed number."""
    return int(np.array(bits, np.uint32).view(np.int32))
