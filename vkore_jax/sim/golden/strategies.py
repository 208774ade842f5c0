"""The meaning of the precision strategies: partial sums of one contraction.

`multiply` cuts the contracted axis into the strategy's segments and adds their sums in
order.  A scaled strategy works in three steps: the exponent of every row (column) of
the segment, the operands' parts in the array's number format, and the sums of the
parts' products, which are exact integers for slices and f32 for floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import ml_dtypes
import numpy as np

from vkore_jax import dtypes
from vkore_jax.isa import Strategy, strategies
from vkore_jax.isa.rules import Rules
from vkore_jax.isa.strategies import STRATEGIES as FACTS
from vkore_jax.sim.golden.matrix import add
from vkore_jax.sim.golden.numbers import flush, lift, reduce_precision, type_of

Array = np.ndarray
Multiply = Callable[[Array, Array], Array]
Cut = Callable[[Array, int], list[Array]]
"""(operand times 2**(shift - exponent), parts) -> parts in the array's format."""

RULES: Rules[Multiply] = Rules("golden strategies", over=Strategy)


def multiply(
    lhs: Array,
    rhs: Array,
    strategy: Strategy,
    run: int = 0,
    total: Array | None = None,
) -> Array:
    """Return partial sums of (.., m, k) x (.., k, n) in the accumulator's type.

    Args:
        lhs: left operand.
        rhs: right operand.
        strategy: how products are formed.
        run: elements of k after which segments start anew (a convolution's channels);
            0 for none.
        total: what earlier blocks of k left in the accumulators.  Every segment is
            added there, so blocks of whole segments do not change the order.
    """
    k = lhs.shape[-1]
    segments = strategies.runs(k, run or k, FACTS[strategy].segment)
    with np.errstate(all="ignore"):
        for first, end in segments:
            part = RULES[strategy](lhs[..., first:end], rhs[..., first:end, :])
            total = part if total is None else add(total, part)
    assert total is not None
    return total


@RULES.rule(Strategy.LANES)
def lanes(lhs: Array, rhs: Array) -> Array:
    """Multiply-add in the operand type; 16-bit and narrower floats in f32."""
    t = type_of(lhs)
    if t.is_integer and t.bits < 8:
        wide = np.matmul(lhs.astype(np.int64), rhs.astype(np.int64))
        return wide.astype(lift(lhs).dtype).astype(t.numpy)
    return np.matmul(lift(lhs), lift(rhs))


@RULES.rule(Strategy.INT8)
def int8(lhs: Array, rhs: Array) -> Array:
    """i8 products summed in i32, wrapping."""
    return np.matmul(lhs.astype(np.int32), rhs.astype(np.int32))


@RULES.rule(Strategy.FP8)
def fp8(lhs: Array, rhs: Array) -> Array:
    """float8 products, exact in f32, summed in f32."""
    return np.matmul(lift(lhs), lift(rhs))


@RULES.rule(Strategy.FP16)
def fp16(lhs: Array, rhs: Array) -> Array:
    """f16 operands as they are, wider ones rounded; products summed in f32."""

    def rounded(x: Array) -> Array:
        if type_of(x) is dtypes.F16:
            return lift(x)
        return reduce_precision(_single(x), 5, 10)

    return np.matmul(rounded(lhs), rounded(rhs))


def _single(x: Array) -> Array:
    """Return an operand as the feeder sees it: f32 without subnormals."""
    return flush(lift(x)).astype(np.float32)


# ------------------------------------------------------------------------- bf16 parts


def split(x: Array, parts: int) -> list[Array]:
    """Cut f32 into bf16 parts, largest first, each held in f32.

    part_i = bf16(x - part_0 - ... - part_{i-1}), every difference in f32 (exact, but
    subnormal ones are 0).  A value whose first part is not finite is not split: its
    further parts are 0.
    """
    rest = _single(x)
    out: list[Array] = []
    finite = np.ones(x.shape, bool)
    for i in range(parts):
        part = rest.astype(dtypes.BF16.numpy).astype(np.float32)
        if i == 0:
            finite = np.isfinite(part)
        out.append(part)
        rest = flush(np.where(finite, rest - part, np.float32(0)))
    return out


def _bf16(strategy: Strategy, lhs: Array, rhs: Array) -> Array:
    """Sum the products of bf16 parts in f32, in the order of the table.

    In products other than the first parts' a non-finite first part counts as 0: an
    infinite operand gives what a single pass gives, not inf * 0 = NaN.
    """
    facts = FACTS[strategy]
    p, q = split(lhs, facts.parts), split(rhs, facts.parts)
    total: Array | None = None
    for i, j in facts.products:
        whole = (i, j) == (0, 0)
        a, b = (p[0], q[0]) if whole else (_tame(p[i]), _tame(q[j]))
        part = np.matmul(a, b)
        total = part if total is None else total + part
    assert total is not None
    return total


def _tame(x: Array) -> Array:
    return np.where(np.isfinite(x), x, np.float32(0))


# ----------------------------------------------------------------------- scaled parts


def exponents(x: Array, axis: int) -> Array:
    """Return e of 2**e <= max |x| < 2**(e+1) along an axis, finite elements only."""
    top = np.max(np.abs(_tame(x)), axis, keepdims=True, initial=0.0)
    return np.maximum(np.frexp(top)[1] - 1, strategies.LEAST_EXPONENT)


def slices(scaled: Array, parts: int) -> list[Array]:
    """Cut numbers below 2**7 into i8 slices, each worth 2**-7 of the one before."""
    out: list[Array] = []
    for _ in range(parts):
        part = np.clip(np.rint(scaled), -127, 127)
        out.append(part)
        scaled = (scaled - part) * np.float32(2**7)
    return out


def halves(scaled: Array, parts: int) -> list[Array]:
    """Cut into f16 parts, each worth 2**-11; below f16's normal numbers is 0."""
    out: list[Array] = []
    for _ in range(parts):
        part = reduce_precision(scaled, 5, 10)
        out.append(part)
        scaled = (scaled - part) * np.float32(2**11)
    return out


def eighths(scaled: Array, parts: int) -> list[Array]:
    """Round to e4m3, subnormals kept."""
    return [scaled.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)]


def _scaled(
    strategy: Strategy, cut: Cut, shift: int, step: int, lhs: Array, rhs: Array
) -> Array:
    """Return the sums of one segment.

    Args:
        strategy: whose parts and products.
        cut: makes the parts of x * 2**(shift - exponent).
        shift: see `cut`.
        step: part i is worth 2**(-step * i).
        lhs: (.., m, k), k one segment.
        rhs: (.., k, n).
    """
    facts = FACTS[strategy]
    a, b = _single(lhs), _single(rhs)
    ea, eb = exponents(a, -1), exponents(b, -2)
    p = cut(np.ldexp(_tame(a), shift - ea), facts.parts)
    q = cut(np.ldexp(_tame(b), shift - eb), facts.parts)
    # f64 holds the integer sums of a segment exactly, as the i32 accumulators do.
    unit = np.float64 if facts.needs == "i8" else np.float32
    total: Array | None = None
    for level, pairs in groupby(facts.products, key=sum):
        products = [np.matmul(p[i].astype(unit), q[j].astype(unit)) for i, j in pairs]
        exact = np.add.reduce(products)
        part = np.ldexp(exact.astype(np.float32), -step * level)
        total = part if total is None else total + part
    assert total is not None
    out = np.ldexp(total, ea + eb - 2 * shift)
    signs = facts.needs == "i8"
    return _with_specials(out, (a, p, shift - ea), (b, q, shift - eb), step, signs)


def _with_specials(
    out: Array,
    left: tuple[Array, list[Array], Array],
    right: tuple[Array, list[Array], Array],
    step: int,
    signs: bool,
) -> Array:
    """Replace the rows and columns with non-finite elements by IEEE's results.

    With `signs` finite operands count by their sign: integer sums do not overflow, so
    only what multiplies an infinity decides.
    """
    wild = [~np.isfinite(x) for x, _, _ in (left, right)]
    if not any(w.any() for w in wild):
        return out
    whole = []
    for (x, parts, up), special in zip((left, right), wild):
        value = sum(np.ldexp(part, -up - step * i) for i, part in enumerate(parts))
        whole.append(np.where(special, x, np.sign(value) if signs else value))
    hit = wild[0].any(-1, keepdims=True) | wild[1].any(-2, keepdims=True)
    return np.where(hit, np.matmul(whole[0], whole[1]), out)


RULES.update(
    {s: partial(_bf16, s) for s in (Strategy.BF16X1, Strategy.BF16X3, Strategy.BF16X6)}
)
RULES.update(
    {
        s: partial(_scaled, s, slices, strategies.INT8_SHIFT, 7)
        for s in (
            Strategy.INT8X1,
            Strategy.INT8X2,
            Strategy.INT8X3,
            Strategy.INT8X4,
        )
    }
)
RULES.update(
    {
        s: partial(_scaled, s, halves, strategies.FP16_SHIFT, 11)
        for s in (Strategy.FP16X1, Strategy.FP16X2, Strategy.FP16X3)
    }
)
RULES.update(
    {Strategy.FP8X1: partial(_scaled, Strategy.FP8X1, eighths, strategies.FP8_SHIFT, 0)}
)
RULES.complete()
