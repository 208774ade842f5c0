"""The precision strategies in terms of XLA's f32 GEMM.

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

The scaled strategies are in `scaled` and, exact, in `sliced`.
"""

from __future__ import annotations

from collections.abc import Callable

from vkore_jax import dtypes
from vkore_jax.dtypes import F16, F32, I32, DType
from vkore_jax.isa import Strategy
from vkore_jax.isa.rules import Rules
from vkore_jax.isa.strategies import STRATEGIES as FACTS
from vkore_jax.sim.fast import sliced
from vkore_jax.sim.fast.emitter import Emitter, Val
from vkore_jax.sim.fast.scaled import (
    Operand,
    binary,
    finite,
    half,
    select,
    whole,
)
from vkore_jax.sim.fast.sliced import SLICED

Product = Callable[[Val, Val], Val]
"""Contract two values of one dtype; the result has that dtype.  For the sliced
strategies also the same span of both contracted axes."""

StrategyRule = Callable[[Emitter, Operand, Operand, Product, int], Val]
"""(emitter, left, right, product, terms of a sum) -> result."""

STRATEGIES: Rules[StrategyRule] = Rules("fast strategies", over=Strategy)


@STRATEGIES.rule(Strategy.BF16X1)
def bf16x1(
    e: Emitter, left: Operand, right: Operand, product: Product, terms: int
) -> Val:
    return product(e.rounded(_f32(e, left.val)), e.rounded(_f32(e, right.val)))


@STRATEGIES.rule(Strategy.BF16X3)
def bf16x3(
    e: Emitter, left: Operand, right: Operand, product: Product, terms: int
) -> Val:
    lhs, rhs = _f32(e, left.val), _f32(e, right.val)
    out = product(e.rounded(lhs), e.below("two", rhs, lambda v: _two(e, v)))
    if e.is_bf16(lhs):
        return out
    low = e.below("low", lhs, lambda v: _low(e, v))
    high = e.below("tame", rhs, lambda v: _tame(e, e.rounded(v)))
    return binary(e, "add", out, product(low, high))


@STRATEGIES.rule(Strategy.BF16X6)
def bf16x6(
    e: Emitter, left: Operand, right: Operand, product: Product, terms: int
) -> Val:
    vals = (left.val, right.val)
    lhs, rhs = (e.below("sane", _f32(e, v), lambda v: _sane(e, v)) for v in vals)
    return product(lhs, rhs)


@STRATEGIES.rule(Strategy.LANES)
def lanes(
    e: Emitter, left: Operand, right: Operand, product: Product, terms: int
) -> Val:
    """Multiply in the operand type; 16-bit floats accumulate in f32."""
    lhs, rhs = left.val, right.val
    if lhs.dtype.is_float and min(lhs.dtype.bits, rhs.dtype.bits) < 32:
        lhs, rhs = e.convert(lhs, F32), e.convert(rhs, F32)
    return product(lhs, rhs)


@STRATEGIES.rule(Strategy.INT8)
def int8(
    e: Emitter, left: Operand, right: Operand, product: Product, terms: int
) -> Val:
    """Exact integer sums by f32 GEMMs over at most `int8_terms` terms."""
    lhs, rhs = left.val, right.val
    if terms <= int8_terms(lhs.dtype, rhs.dtype):
        return e.convert(product(e.convert(lhs, F32), e.convert(rhs, F32)), I32)
    return product(e.convert(lhs, I32), e.convert(rhs, I32))


@STRATEGIES.rule(Strategy.FP16)
def fp16(
    e: Emitter, left: Operand, right: Operand, product: Product, terms: int
) -> Val:
    """One f32 product of two f16 numbers is exact."""
    vals = (left.val, right.val)
    lhs, rhs = (_f32(e, v) if v.dtype is F16 else half(e, _f32(e, v)) for v in vals)
    return product(e.convert(lhs, F32), e.convert(rhs, F32))


@STRATEGIES.rule(Strategy.FP8)
def fp8(e: Emitter, left: Operand, right: Operand, product: Product, terms: int) -> Val:
    return product(e.convert(left.val, F32), e.convert(right.val, F32))


def _scaled(strategy: Strategy) -> StrategyRule:
    def rule(
        e: Emitter, left: Operand, right: Operand, product: Product, terms: int
    ) -> Val:
        return product(whole(e, left, strategy), whole(e, right, strategy))

    return rule


def _sliced(strategy: Strategy) -> StrategyRule:
    def rule(
        e: Emitter, left: Operand, right: Operand, product: Product, terms: int
    ) -> Val:
        return sliced.contract(e, left, right, strategy, product)

    return rule


STRATEGIES.update({s: _sliced(s) for s in SLICED})
STRATEGIES.update(
    {s: _scaled(s) for s in Strategy if FACTS[s].segment and s not in SLICED}
)
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


def _zero(e: Emitter, like: Val) -> Val:
    return e.broadcast(e.scalar(like.dtype, 0), like.shape)


def _sane(e: Emitter, v: Val) -> Val:
    """v, or its bf16 rounding where that is not finite."""
    if e.is_bf16(v):
        return e.rounded(v)
    high = e.rounded(v)
    return select(e, finite(e, high), v, high)


def _low(e: Emitter, v: Val) -> Val:
    """The second bf16 part; zero where the first is not finite."""
    high = e.rounded(v)
    low = e.reduce_precision(binary(e, "subtract", v, high), 8, 7)
    return select(e, finite(e, high), low, _zero(e, v))


def _two(e: Emitter, v: Val) -> Val:
    """The sum of the two parts, exact in f32."""
    if e.is_bf16(v):
        return e.rounded(v)
    return binary(e, "add", e.rounded(v), _low(e, v))


def _tame(e: Emitter, v: Val) -> Val:
    """v, or zero where it is not finite."""
    return select(e, finite(e, v), v, _zero(e, v))
