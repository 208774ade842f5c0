"""What the engines promise each other: the bounds of their agreement, as data.

Golden is the specification; another engine agrees when every result is within the
bound of the command that made it:

- BITS: data movement (copy, pad, gather, sort, select, bitcast, loop carries).  All
  bits, NaN payloads included.
- VALUES: integer and boolean arithmetic, comparisons, conversions, rounding, and one
  IEEE operation per result (add, mul, div, sqrt ...), also max/min reductions.  Equal
  values, signs of zeros included; any NaN equals any NaN; f32 and f64 subnormals may
  have been flushed (the vector unit flushes them in arithmetic, the golden engine
  too; an engine may simplify an identity such as x + 0 and keep one).
- ULP: transcendental functions (`TRANSCENDENTAL_ULPS`) and chains of float arithmetic
  (`CHAIN_ULPS` per operation: an engine may contract a * b + c into one rounding), in
  units in the last place of the result, or of the largest intermediate where the case
  says so (cancellation makes the result smaller than what was rounded).
- ACCUMULATE: contractions and sums of K terms in any order:
  |difference| <= 2 K eps sum |a||b|, eps of the accumulator, plus one ulp of the result
  type; operand roundings (bf16 parts, scales, slices) are not part of the bound, they
  are exact rules.  An engine may form the products that a strategy of `LEFT_OUT` leaves
  out, which are below the rounding of its sum (`contraction`).

Zeros that a convolution multiplies besides elements of its operands count, as all do:
0 times an infinite or NaN weight is NaN, in padding, too.  Open is one thing, where
either engine's element is NaN (`nan_open`): the zeros that `lhs_dilation` puts between
elements may be skipped, and groups of samples may be made by zeros in a larger window,
which carry what is not finite from one group to the others.  Both ways are exact for
finite operands; a test at run time would make such a program's compilation half as
long again.

These are bounds of single commands.  They do not compose: a last-bit difference may
flip the bf16 rounding of a later operand, which is 2^-8 of it, and what follows
amplifies that.  So there is no bound of a whole program in terms of them; single
elements of train steps were seen to differ by 1 % of the largest one.  What does hold
is relative to the program's own sensitivity: the engines differ no more than
`PROGRAM_FACTOR` times as golden does from itself when only the order of its sums
changes (another schedule) or its inputs move by one unit in the last place
(`program_distance`).  `program_disagreement` is a net for gross faults on the small
programs of the tests, `PROGRAM_RELATIVE_RMS` of the difference against the golden
result's and `PROGRAM_RELATIVE_MAX` against its largest element; it promises nothing
about other programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax import dtypes
from vkore_jax.isa import Strategy
from vkore_jax.isa.strategies import LEAST_EXPONENT, STRATEGIES, runs

CHAIN_ULPS = 4.0
"""Bound per operation of a chain of float arithmetic, at the intermediate's size."""

TRANSCENDENTAL_ULPS: Mapping[str, float] = MappingProxyType(
    {
        "exp": 4,
        "expm1": 8,
        "log": 4,
        "log1p": 8,
        "logistic": 8,
        "tanh": 12,
        "tan": 8,
        "sin": 4,
        "cos": 4,
        "rsqrt": 4,
        "cbrt": 4,
        "pow": 16,
        "atan2": 8,
    }
)
"""Bound for f32; 16-bit results are computed in f32 and rounded (1 ulp), f64 results
have the same number of ulps (but see `F64_ULPS`), complex ones four times as many,
counted at the magnitude of the number."""

F64_ULPS: Mapping[str, float] = MappingProxyType({"log1p": 512})
"""Bounds for f64 where they differ (XLA's log1p loses bits near 0)."""

LEFT_OUT: Mapping[Strategy, float] = MappingProxyType(
    {
        s: STRATEGIES[s].left_out
        for s in (
            Strategy.BF16X6,
            Strategy.FP16X2,
            Strategy.FP16X3,
        )
    }
)
"""Strategies whose left-out products an engine may add, and their size a term relative
to the largest magnitudes of the two segments."""

PROGRAM_RELATIVE_RMS = 2e-3
PROGRAM_RELATIVE_MAX = 3e-2
PROGRAM_FACTOR = 4.0
"""How much larger than golden's distance from itself that of an engine may be; both are
the largest of a few seeds."""
PROGRAM_FLOOR = 2e-7
"""Distance below which a program is not sensitive: one or two units of f32."""


class Bound(Enum):
    """The four kinds of agreement, from strict to loose."""

    BITS = "bits"
    VALUES = "values"
    ULP = "ulp"
    ACCUMULATE = "accumulate"


@dataclass(frozen=True)
class Tolerance:
    """How far two engines may differ on one result.

    Attributes:
        bound: kind of agreement.
        ulps: allowed units in the last place (ULP).
        terms: number of terms of the longest sum (ACCUMULATE).
        magnitude: for ULP the size of the largest intermediate (0: the result's own);
            for ACCUMULATE an upper bound of sum |a||b|.  A number or an array.
        accumulator: NumPy dtype of the accumulator (ACCUMULATE).
        nan_open: elements that are NaN in either result are not compared.
    """

    bound: Bound
    ulps: float = 0.0
    terms: int = 0
    magnitude: Any = 0.0
    accumulator: Any = np.float32
    nan_open: bool = False


BITS = Tolerance(Bound.BITS)
VALUES = Tolerance(Bound.VALUES)


def transcendental(op: str, dtype: dtypes.DType) -> Tolerance:
    """Return the bound of one transcendental micro-op in a type."""
    ulps = TRANSCENDENTAL_ULPS[op]
    if dtype.bits == 64 and dtype.kind == "f":
        return Tolerance(Bound.ULP, ulps=F64_ULPS.get(op, ulps))
    if dtype.kind == "c":
        return Tolerance(Bound.ULP, ulps=4 * ulps)
    return Tolerance(Bound.ULP, ulps=ulps if dtype.bits >= 32 else 1)


def chain(operations: int, magnitude: Any = 0.0) -> Tolerance:
    """Return the bound of `operations` dependent float operations."""
    return Tolerance(Bound.ULP, ulps=CHAIN_ULPS * operations, magnitude=magnitude)


def accumulate(terms: int, magnitude: Any, accumulator: Any = np.float32) -> Tolerance:
    """Return the bound of sums of `terms` products whose |.| add up to `magnitude`."""
    return Tolerance(
        Bound.ACCUMULATE, terms=terms, magnitude=magnitude, accumulator=accumulator
    )


def nan_open(lhs_dilation: Sequence[int], batch_groups: int) -> bool:
    """Return whether engines may differ in the NaNs of a convolution."""
    return batch_groups > 1 or any(d > 1 for d in lhs_dilation)


def contraction(
    strategy: Strategy, lhs: np.ndarray, rhs: np.ndarray, run: int = 0
) -> Tolerance:
    """Return the bound between engines of one product of matrices, element by element.

    Args:
        strategy: how products are formed.
        lhs: (.., m, k).
        rhs: (.., k, n).
        run: elements of k after which segments start anew, 0 for none.
    """
    a, b = _magnitude(lhs), _magnitude(rhs)
    terms = max(a.shape[-1], 1) * STRATEGIES[strategy].passes
    size = np.matmul(a, b)
    extra = LEFT_OUT.get(strategy, 0.0)
    if extra:
        top = _tops(a, -1, run, strategy), _tops(b, -2, run, strategy)
        unit = 2 * terms * float(np.finfo(np.float32).eps)
        size = size + extra / unit * np.matmul(*top)
    return accumulate(terms, size)


def strategy_error(
    strategy: Strategy, lhs: np.ndarray, rhs: np.ndarray, run: int = 0
) -> np.ndarray:
    """Return how far a strategy's f32 result may be from the exact product.

    Operand errors, products left out, and the rounding of the sum; arguments as of
    `contraction`, finite elements.  See `vkore_jax.isa.strategies`.
    """
    facts = STRATEGIES[strategy]
    a, b = _magnitude(lhs), _magnitude(rhs)
    top_a, top_b = _tops(a, -1, run, strategy), _tops(b, -2, run, strategy)
    info = np.finfo(np.float32)
    tiny = float(info.smallest_normal)  # subnormal operands and parts are flushed
    wrong_a = facts.relative * a + facts.floor * top_a + tiny
    wrong_b = facts.relative * b + facts.floor * top_b + tiny
    most = np.matmul(a + wrong_a, b + wrong_b)
    operands = most - np.matmul(a, b)
    terms = max(a.shape[-1], 1) * facts.passes
    rounding = 2 * terms * float(info.eps) * most + tiny
    return operands + facts.left_out * np.matmul(top_a, top_b) + rounding


def _magnitude(x: np.ndarray) -> np.ndarray:
    """Return finite magnitudes in f64, zero elsewhere."""
    wide = np.abs(np.asarray(x).astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0.0)


def _tops(x: np.ndarray, axis: int, run: int, strategy: Strategy) -> np.ndarray:
    """Return for every element the largest magnitude of its segment."""
    extent = x.shape[axis]
    segment = STRATEGIES[strategy].segment
    parts = []
    for first, end in runs(extent, run or extent, segment):
        piece = np.take(x, range(first, end), axis)
        top = np.max(piece, axis, keepdims=True, initial=2.0**LEAST_EXPONENT)
        parts.append(np.broadcast_to(top, piece.shape))
    return np.concatenate(parts, axis)


def disagreement(
    golden: np.ndarray, other: np.ndarray, tolerance: Tolerance
) -> str | None:
    """Compare a result with the specification.

    Returns:
        None when they agree, else a sentence with the worst element.
    """
    if golden.shape != other.shape or golden.dtype != other.dtype:
        return (
            f"golden is {golden.dtype}{golden.shape}, "
            f"other is {other.dtype}{other.shape}"
        )
    if golden.size == 0:
        return None
    if tolerance.nan_open:
        both = ~(np.isnan(_wide(golden)) | np.isnan(_wide(other)))
        size = np.broadcast_to(tolerance.magnitude, golden.shape)[both]
        rest = replace(tolerance, magnitude=size, nan_open=False)
        return disagreement(golden[both], other[both], rest)
    if tolerance.bound is Bound.BITS:
        return _different_bits(golden, other)
    if dtypes.by_numpy(golden.dtype).kind not in "fc":
        return _worst(golden, other, golden != other)
    if tolerance.bound is Bound.VALUES:
        return _worst(golden, other, ~_same_value(golden, other))
    slack = _slack(golden, tolerance)
    g, o = _wide(golden), _wide(other)
    with np.errstate(all="ignore"):
        near = np.abs(g - o) <= slack
    return _worst(golden, other, ~(near | _same_value(golden, other)))


def program_disagreement(golden: np.ndarray, other: np.ndarray) -> str | None:
    """Compare a result of a whole program (see the module's docstring)."""
    if golden.shape != other.shape or golden.dtype != other.dtype:
        return (
            f"golden is {golden.dtype}{golden.shape}, "
            f"other is {other.dtype}{other.shape}"
        )
    if golden.size == 0:
        return None
    if dtypes.by_numpy(golden.dtype).kind not in "fc":
        return _worst(golden, other, golden != other)
    g, o = _wide(golden), _wide(other)
    finite = np.isfinite(g)
    if (finite != np.isfinite(o)).any():
        return _worst(golden, other, finite != np.isfinite(o))
    g, o = g[finite], o[finite]
    error, g = np.abs(g - o), np.abs(g)
    if not g.size:
        return None
    rms = float(np.sqrt(np.mean(error**2)))
    if rms > PROGRAM_RELATIVE_RMS * float(np.sqrt(np.mean(g**2))) + 1e-30:
        return f"rms difference {rms:.3g}, rms of golden {np.sqrt(np.mean(g**2)):.3g}"
    if error.max() > PROGRAM_RELATIVE_MAX * g.max() + 1e-30:
        return f"largest difference {error.max():.3g}, largest golden {g.max():.3g}"
    return None


def program_distance(
    golden: Sequence[np.ndarray], other: Sequence[np.ndarray]
) -> float:
    """Return the largest relative rms difference of float results, rms by rms."""
    worst = 0.0
    for g, o in zip(golden, other, strict=True):
        if dtypes.by_numpy(g.dtype).kind in "fc" and g.size:
            wide = _wide(g)
            size = float(np.sqrt(np.mean(np.abs(wide) ** 2)))
            error = float(np.sqrt(np.mean(np.abs(wide - _wide(o)) ** 2)))
            worst = max(worst, error / max(size, 1e-30))
    return worst


def ulp(magnitude: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the spacing of a float type's numbers at a magnitude (as f64)."""
    info = _finfo(dtype)
    size = np.clip(
        np.abs(np.asarray(magnitude, np.float64)),
        float(info.smallest_normal),
        float(info.max),
    )
    return float(info.eps) * np.exp2(np.floor(np.log2(size)))


def _slack(golden: np.ndarray, tolerance: Tolerance) -> np.ndarray:
    size = np.abs(_wide(golden))
    size = np.where(np.isfinite(size), size, 0.0)
    info = _finfo(golden.dtype)
    flushed = float(info.smallest_normal)
    if tolerance.bound is Bound.ULP:
        size = np.maximum(size, np.asarray(tolerance.magnitude, np.float64))
        return tolerance.ulps * ulp(size, golden.dtype) + flushed
    eps = float(_finfo(np.dtype(tolerance.accumulator)).eps)
    bound = 2 * tolerance.terms * eps * np.asarray(tolerance.magnitude, np.float64)
    return bound + ulp(size + bound, golden.dtype) + flushed


def _finfo(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "c":
        dtype = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    return ml_dtypes.finfo(dtype)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _same_value(golden: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Equal values with equal signs of zero, both NaN, or both below the normals."""
    if golden.dtype.kind == "c":
        return _same_value(np.real(golden), np.real(other)) & _same_value(
            np.imag(golden), np.imag(other)
        )
    g, o = _wide(golden), _wide(other)
    tiny = float(_finfo(golden.dtype).smallest_normal)
    signs = np.signbit(g) == np.signbit(o)
    flushed = (np.abs(g) < tiny) & (np.abs(o) < tiny) & ((g != 0) ^ (o != 0))
    return ((g == o) & signs) | (np.isnan(g) & np.isnan(o)) | (flushed & signs)


def _different_bits(golden: np.ndarray, other: np.ndarray) -> str | None:
    size = golden.dtype.itemsize
    a = np.ascontiguousarray(golden).view(np.uint8).reshape(-1, size)
    b = np.ascontiguousarray(other).view(np.uint8).reshape(-1, size)
    return _worst(golden, other, (a != b).any(1).reshape(golden.shape))


def _worst(golden: np.ndarray, other: np.ndarray, bad: np.ndarray) -> str | None:
    if not bad.any():
        return None
    error = np.zeros(golden.shape)
    if golden.dtype != np.bool_:
        with np.errstate(all="ignore"):
            error = np.abs(_wide(golden) - _wide(other))
    error = np.where(bad, np.where(np.isnan(error), np.inf, error), -1.0)
    at = np.unravel_index(int(np.argmax(error)), golden.shape)
    place = tuple(int(i) for i in at)
    return (
        f"{int(bad.sum())} of {bad.size} elements differ; at {place} golden "
        f"{golden[at]!r}, other {other[at]!r}"
    )
