"""Contractions: the precision strategies, in terms of XLA's f32 GEMM.

One f32 product of two bf16 numbers is exact (8 + 8 significand bits), so a bf16 GEMM
with f32 accumulation *is* an f32 GEMM on rounded operands, up to the order of the sum.

BF16X3: a = ah + al, b = bh + bl, the chip sums ah bh + ah bl + al bh.  bh + bl has at
most 17 significand bits, exact in f32, so the first two passes are one f32 GEMM
ah (bh + bl); its products have 8 + 17 bits and round once (relative 2^-24 each, inside
the accumulation bound of K terms).  Two GEMMs instead of three.

BF16X6: the parts add up to the f32 operand exactly, and the six products that the chip
sums differ from the full product by the three it leaves out, a1 b2 + a2 b1 + a2 b2, of
relative size at most 2^-25.  That is below the accumulation bound 2 K eps (eps = 2^-23)
for every K, so one f32 GEMM stands for six passes.

Non-finite values: the chip takes them from the leading parts alone.  An operand whose
bf16 rounding is not finite (f32 beyond the largest bf16 included) is replaced by that
rounding, and its lower parts are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, F32, I32, DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import Conv, Strategy
from vkore_jax.isa.rules import Rules
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type

Product = Callable[[Val, Val], Val]
"""Contract two values of one dtype; the result has that dtype."""

StrategyRule = Callable[[Emitter, Val, Val, Product, int], Val]
"""(emitter, lhs, rhs, product, number of terms) -> result."""

STRATEGIES: Rules[StrategyRule] = Rules("fast strategies", over=Strategy)


@STRATEGIES.rule(Strategy.BF16X1)
def bf16x1(e: Emitter, lhs: Val, rhs: Val, product: Product, terms: int) -> Val:
    return product(e.rounded(_f32(e, lhs)), e.rounded(_f32(e, rhs)))


@STRATEGIES.rule(Strategy.BF16X3)
def bf16x3(e: Emitter, lhs: Val, rhs: Val, product: Product, terms: int) -> Val:
    lhs, rhs = _f32(e, lhs), _f32(e, rhs)
    out = product(e.rounded(lhs), e.below("two", rhs, lambda v: _two(e, v)))
    if e.is_bf16(lhs):
        return out
    low = e.below("low", lhs, lambda v: _low(e, v))
    high = e.below("tame", rhs, lambda v: _tame(e, e.rounded(v)))
    return _binary(e, "add", out, product(low, high))


@STRATEGIES.rule(Strategy.BF16X6)
def bf16x6(e: Emitter, lhs: Val, rhs: Val, product: Product, terms: int) -> Val:
    lhs, rhs = (e.below("sane", _f32(e, v), lambda v: _sane(e, v)) for v in (lhs, rhs))
    return product(lhs, rhs)


@STRATEGIES.rule(Strategy.LANES)
def lanes(e: Emitter, lhs: Val, rhs: Val, product: Product, terms: int) -> Val:
    """Multiply in the operand type; 16-bit floats accumulate in f32."""
    if lhs.dtype.is_float and min(lhs.dtype.bits, rhs.dtype.bits) < 32:
        lhs, rhs = e.convert(lhs, F32), e.convert(rhs, F32)
    return product(lhs, rhs)


@STRATEGIES.rule(Strategy.INT8)
def int8(e: Emitter, lhs: Val, rhs: Val, product: Product, terms: int) -> Val:
    """Exact integer sums by f32 GEMMs over at most `int8_terms` terms."""
    if terms <= int8_terms(lhs.dtype, rhs.dtype):
        return e.convert(product(e.convert(lhs, F32), e.convert(rhs, F32)), I32)
    return product(e.convert(lhs, I32), e.convert(rhs, I32))


STRATEGIES.complete()


def int8_terms(lhs: DType, rhs: DType) -> int:
    """Return how many products of two 8-bit types an f32 sum holds exactly.

    Every partial sum is an integer of at most terms * max|a| max|b| <= 2^24.
    """
    largest = {"i": 128, "u": 255}
    return 2**24 // (largest[lhs.kind] * largest[rhs.kind])


def _f32(e: Emitter, v: Val) -> Val:
    """Return f32 or bf16 as it is, other floats in f32."""
    return v if v.dtype in (F32, dtypes.BF16) else e.convert(v, F32)


def _finite(e: Emitter, v: Val) -> Val:
    text = f"stablehlo.is_finite {v.name} : ({v.type}) -> "
    return e.op(text + tensor_type(BOOL, v.shape), BOOL, v.shape)


def _select(e: Emitter, p: Val, a: Val, b: Val) -> Val:
    text = f"stablehlo.select {p.name}, {a.name}, {b.name} : {p.type}, {a.type}"
    return e.op(text, a.dtype, a.shape)


def _binary(e: Emitter, word: str, a: Val, b: Val) -> Val:
    return e.op(f"stablehlo.{word} {a.name}, {b.name} : {a.type}", a.dtype, a.shape)


def _zero(e: Emitter, like: Val) -> Val:
    return e.broadcast(e.scalar(like.dtype, 0), like.shape)


def _sane(e: Emitter, v: Val) -> Val:
    """v, or its bf16 rounding where that is not finite."""
    if e.is_bf16(v):
        return e.rounded(v)
    high = e.rounded(v)
    return _select(e, _finite(e, high), v, high)


def _low(e: Emitter, v: Val) -> Val:
    """The second bf16 part; zero where the first is not finite."""
    high = e.rounded(v)
    low = e.reduce_precision(_binary(e, "subtract", v, high), 8, 7)
    return _select(e, _finite(e, high), low, _zero(e, v))


def _two(e: Emitter, v: Val) -> Val:
    """The sum of the two parts, exact in f32."""
    if e.is_bf16(v):
        return e.rounded(v)
    return _binary(e, "add", e.rounded(v), _low(e, v))


def _tame(e: Emitter, v: Val) -> Val:
    """v, or zero where it is not finite."""
    return _select(e, _finite(e, v), v, _zero(e, v))


# --------------------------------------------------------------------------------- gemm


def gemm(
    e: Emitter, lhs: Val, rhs: Val, strategy: Strategy, dtype: DType, shape: Shape
) -> Val:
    """Emit (..., m, k) x (..., k, n) with broadcasting batch axes.

    Args:
        e: where to write.
        lhs: left operand; logical rank r.
        rhs: right operand; logical rank r.
        strategy: precision strategy.
        dtype: element type of the result.
        shape: logical shape of the result.
    """
    rank = len(shape)
    lhs = _expanded(e, lhs, (rank - 2, rank - 1))
    rhs = _expanded(e, rhs, (rank - 2, rank - 1))
    terms = lhs.logical[-1]
    if math.prod(shape) == 0:
        return e.constant(dtype, shape, b"")
    if terms == 0:
        return e.scalar(dtype, 0).standing_for(shape)
    small = tuple(max(a, b) for a, b in zip(lhs.shape[:-2], rhs.shape[:-2]))
    small += shape[-2:]

    def product(a: Val, b: Val) -> Val:
        return _dot(e, a, b, small)

    limit = int8_terms(lhs.dtype, rhs.dtype) if strategy is Strategy.INT8 else terms
    parts = []
    for first in range(0, terms, limit):
        last = min(first + limit, terms)
        a, b = (
            _span(e, lhs, rank - 1, first, last),
            _span(e, rhs, rank - 2, first, last),
        )
        parts.append(STRATEGIES[strategy](e, a, b, product, last - first))
    out = parts[0]
    for part in parts[1:]:
        out = _binary(e, "add", out, part)
    return e.convert(out, dtype).standing_for(shape)


def _expanded(e: Emitter, v: Val, axes: tuple[int, ...]) -> Val:
    """Repeat along some axes, leave the others small; the value's logical shape."""
    rank = len(v.logical)
    base = v.shape if v.shape else (1,) * rank
    shape = tuple(v.logical[i] if i in axes else n for i, n in enumerate(base))
    return e.broadcast(v, shape)


def _span(e: Emitter, v: Val, axis: int, first: int, last: int) -> Val:
    if (first, last) == (0, v.shape[axis]):
        return v
    start = tuple(first if i == axis else 0 for i in range(len(v.shape)))
    limit = tuple(last if i == axis else n for i, n in enumerate(v.shape))
    return e.slice(v, start, limit, (1,) * len(v.shape))


def _dot(e: Emitter, lhs: Val, rhs: Val, out: Shape) -> Val:
    """Multiply; batch axes that only one side has become free axes of that side."""
    r = len(out) - 2
    both = [i for i in range(r) if lhs.shape[i] != 1 and rhs.shape[i] != 1]
    left = [i for i in range(r) if lhs.shape[i] != 1 and i not in both]
    right = [i for i in range(r) if rhs.shape[i] != 1 and i not in both]
    lhs, at_l = _without_units(e, lhs, [*both, *left])
    rhs, at_r = _without_units(e, rhs, [*both, *right])
    m, n = out[-2:]
    order = [*both, *left, r, *right, r + 1]
    extents = [out[i] if i < r else (m, n)[i - r] for i in order]
    batch = ""
    if both:
        batch = (
            f" batching_dims = {ints([at_l[i] for i in both])} x "
            f"{ints([at_r[i] for i in both])},"
        )
    shape = tuple(extents)
    text = (
        f"stablehlo.dot_general {lhs.name}, {rhs.name},{batch} contracting_dims = "
        f"[{len(lhs.shape) - 1}] x [{len(rhs.shape) - 2}] : ({lhs.type}, {rhs.type}) "
        f"-> {tensor_type(lhs.dtype, shape)}"
    )
    made = e.op(text, lhs.dtype, shape)
    axes = sorted(range(len(order)), key=lambda i: order[i])
    return e.reshape(e.transpose(made, axes), out)


def _without_units(e: Emitter, v: Val, kept: list[int]) -> tuple[Val, dict[int, int]]:
    """Drop the batch axes of extent 1; return where the kept ones went."""
    kept = sorted(kept)
    shape = tuple(v.shape[i] for i in kept) + v.shape[-2:]
    plain = v.standing_for(v.shape)
    return e.reshape(plain, shape), {axis: at for at, axis in enumerate(kept)}


# --------------------------------------------------------------------------------- conv


def conv(e: Emitter, cmd: Conv, lhs: Val, rhs: Val) -> Val:
    """Emit a convolution; the layouts are the ISA's (b01f, 01io, b01f)."""
    out_shape = cmd.dst.shape
    spatial = [str(i) for i in range(len(out_shape) - 2)]
    activation, window = (
        ", ".join(["b", *spatial, "f"]),
        ", ".join([*spatial, "i", "o"]),
    )
    pads = ", ".join(f"[{a}, {b}]" for a, b in zip(cmd.pad_low, cmd.pad_high))
    flips = ", ".join("true" if r else "false" for r in cmd.reversal)
    attributes = (
        f"dim_numbers = [{activation}]x[{window}]->[{activation}], "
        f"window = {{stride = {ints(cmd.strides)}, pad = [{pads}], "
        f"lhs_dilate = {ints(cmd.lhs_dilation)}, rhs_dilate = "
        f"{ints(cmd.rhs_dilation)}, reverse = [{flips}]}} "
        f"{{batch_group_count = {cmd.batch_groups} : i64, "
        f"feature_group_count = {cmd.feature_groups} : i64}}"
    )

    def product(a: Val, b: Val) -> Val:
        text = (
            f"stablehlo.convolution({a.name}, {b.name}) {attributes} : "
            f"({a.type}, {b.type}) -> {tensor_type(a.dtype, out_shape)}"
        )
        return e.op(text, a.dtype, out_shape)

    if lhs.dtype is not rhs.dtype and not (lhs.dtype.is_float and rhs.dtype.is_float):
        raise InvalidProgram(
            f"conv: operand types {lhs.dtype} and {rhs.dtype} do not go together"
        )
    terms = int(np.prod(cmd.rhs.shape[:-1], dtype=np.int64))
    lhs, rhs = e.full(lhs), e.full(rhs)
    out = STRATEGIES[cmd.strategy](e, lhs, rhs, product, terms)
    return e.convert(out, cmd.dst.dtype)
