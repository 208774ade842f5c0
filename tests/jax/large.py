"""Random programs on large arrays, on which two engines must agree to the last bit.

XLA:CPU compiles arrays of 4,096 elements and more in other ways than small ones.  The
numbers are few multiples of a power of two, so sums and products are exact in any order
and the contract leaves no slack; what is not exact (exp ...) is only moved afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.generate import FLOATS, Choose, Program, Step, T, Value
from vkore_jax.sim.contract import BITS, VALUES, Bound, Tolerance

SMALLEST, LARGEST = 4096, 70_000
"""Elements of an array, unless a step makes it smaller."""

TYPES = (*("float32",) * 6, "bfloat16", "float16", "int32", "int32", "bool")
RARE = ("uint8", "int8", "uint32", "int16", "uint16")
WIDE = ("float64", "int64", "uint64")
ODD = (np.nan, np.inf, -np.inf, -0.0, 0.0)
SCALARS = (-(2**31), -70_000, -9, -1, 0, 1, 2, 3, 7, 40, 5000, 70_000, 2**31 - 1)


@dataclass(frozen=True)
class Known(Value):
    """What is known of a value.

    Attributes:
        grain: finite elements are multiples of this (floats), at most `size` large.
        moved: only data movement made it: all bits must agree.
        ulps: how far engines may differ where it is not exact.
    """

    grain: float = 0.25
    moved: bool = False
    ulps: float = 0.0

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def sums(self, terms: int, size: float, grain: float) -> bool:
        """True when sums of so many terms are exact in f32 (or f64)."""
        bits = 53 if self.dtype == "float64" else 24
        return self.exact and terms * size / grain < 2.0**bits

    @property
    def tolerance(self) -> Tolerance:
        if self.moved:
            return BITS
        if self.exact or not self.ulps:
            return VALUES
        return Tolerance(Bound.ULP, ulps=self.ulps)


class Grower:
    """Grows a program, choice by choice."""

    def __init__(self, choose: Choose, x64: bool, odd: bool, tiny: bool) -> None:
        self.choose = choose
        self.x64 = x64
        self.odd = odd
        self.tiny = tiny
        self.program = Program()

    # Choices

    def flip(self) -> bool:
        return bool(self.choose(2))

    def pick(self, items: Sequence[T]) -> T:
        return items[self.choose(len(items))]

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.choose(high - low + 1)

    def shape(self) -> tuple[int, ...]:
        """Return a shape of `SMALLEST` to `LARGEST` elements, unit axes among them."""
        rank = self.pick((1, 2, 2, 3, 3, 4, 4))
        left = self.between(SMALLEST, self.pick((2 * SMALLEST, LARGEST)))
        out = []
        for i in range(rank - 1):
            ideal = max(1, round(left ** (1 / (rank - i))))
            n = self.pick((1, 2, 3, 8, ideal, ideal, max(1, ideal // 2), 2 * ideal))
            n = max(1, min(n, left))
            out.append(n)
            left = max(1, -(-left // n))
        out.append(max(left, -(-SMALLEST // max(1, math.prod(out)))))
        return tuple(self.shuffled(out))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        left = list(items)
        return [left.pop(self.choose(len(left))) for _ in range(len(left))]

    def dtype(self) -> str:
        if self.x64 and self.flip():
            return self.pick(WIDE)
        return self.pick(RARE if self.choose(6) == 0 else TYPES)

    # Values

    def input(self, shape: tuple[int, ...], dtype: str) -> Known:
        values = self.program.values
        self.program.inputs.append((shape, dtype))
        v = Known(len(values), shape, dtype, True, 4.0, 0.25, True)
        values.append(v)
        return v

    def any(self, test: Callable[[Known], bool]) -> Known | None:
        """Return a value that passes, one of the newest more often than not."""
        found: list[Any] = [v for v in self.program.values if test(v)]  # type: ignore
        if not found:
            return None
        return self.pick(found[-2:]) if self.choose(3) else self.pick(found)

    def newest(self) -> Known:
        last = self.program.values[-1]
        assert isinstance(last, Known)
        return last

    def large(self, test: Callable[[Known], bool] = lambda v: True) -> Known | None:
        return self.any(lambda v: v.rank > 0 and v.count >= 512 and test(v))

    def scalar(self) -> Known:
        """Return an integer of rank 0 that only the run knows."""
        found = self.any(lambda v: v.rank == 0 and v.integral)
        assert found is not None
        return found

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        operands: Sequence[Known],
        *,
        moves: bool = False,
        exact: bool = True,
        size: float | None = None,
        grain: float | None = None,
        ulps: float = 0.0,
    ) -> tuple[Known, ...]:
        """Append a step.

        Args:
            name: for the listing.
            function: of the operands' arrays; one array or a tuple of them.
            operands: earlier values.
            moves: it moves elements; their bits stay.
            exact: exact operands make exact results.
            size: bound of the finite results' magnitude.
            grain: what they are multiples of.
            ulps: how far they may differ where they are not exact.
        """
        p = self.program
        args = [jax.ShapeDtypeStruct(v.shape, jnp.dtype(v.dtype)) for v in operands]
        out = jax.eval_shape(function, *args)
        floats = [v for v in operands if v.floating]
        size = max((v.size for v in floats), default=16.0) if size is None else size
        least = min((v.grain for v in floats), default=1.0)
        ulps = max([ulps, *(v.ulps for v in operands)])
        found: list[Known] = []
        for x in out if isinstance(out, tuple) else (out,):
            kind = jnp.dtype(x.dtype).name
            right = kind not in FLOATS or (exact and all(v.exact for v in operands))
            still = moves and all(v.moved for v in operands)
            found.append(
                Known(len(p.values), x.shape, kind, right, size,
                      least if grain is None else grain, still, ulps)
            )  # fmt: skip
            p.values.append(found[-1])
        where = tuple(v.index for v in found)
        reads = tuple(v.index for v in operands)
        p.steps.append(Step(name, function, reads, where, ()))
        return tuple(found)


def numbers(
    rng: np.random.Generator, v: Value, lead: tuple[int, ...], odd: bool, tiny: bool
) -> np.ndarray:
    """Return an input: quarters in [-4, 4] with many ties, small and extreme integers.

    Args:
        rng: source of the numbers.
        v: the input.
        lead: axes of a batch.
        odd: there are NaN, infinities and negative zeros.
        tiny: there are subnormal numbers.
    """
    shape, kind = lead + v.shape, jnp.dtype(v.dtype)
    if v.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if v.floating:
        x = rng.integers(-16, 17, shape) / 4
        if odd:
            share = rng.choice([0.3, 0.001])
            x = np.where(rng.random(shape) < share, rng.choice(ODD, shape), x)
        out = np.asarray(x).astype(kind)
        if tiny:
            least = np.asarray(jnp.finfo(kind).smallest_subnormal, kind)
            few = (rng.random(shape) < 0.05) & np.isfinite(x)
            out = np.where(few, least * rng.integers(-3, 4, shape).astype(kind), out)
        return out
    info = jnp.iinfo(kind)
    if not v.shape:
        near = rng.choice([s for s in SCALARS if info.min <= s <= info.max], shape)
        return np.asarray(near).astype(kind)
    wide = np.uint64 if info.min == 0 else np.int64
    x = rng.integers(max(-9, info.min), 9, shape, wide, endpoint=True)
    far = rng.integers(info.min, info.max, shape, wide, endpoint=True)
    return np.where(rng.random(shape) < 0.1, far, x).astype(kind)
