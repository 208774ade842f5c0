"""Random jnp programs: values, steps, and how far two right answers may differ.

A program is a list of steps in single-assignment form.  Every step knows how an error
of its operands and its own roundings become an error of its result, so a program can be
held to the bound that its own magnitudes give.  Discontinuous steps (compare, sort by
key, round, convert to integers) read exact values only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.rules import Rule, largest, nearest, scaled

T = TypeVar("T")
Choose = Callable[[int], int]
"""Returns an integer in [0, n)."""
SIZES = (0, 1, 2, 3, 5, 8)
FLOATS = ("float32", "bfloat16", "float16", "float64")
COMPLEX = ("complex64", "complex128")
INEXACT = (*FLOATS, *COMPLEX)
INTEGERS = ("int32", "uint32", "int8", "uint8", "int16", "uint16", "int64", "uint64")
STORED = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2")
"""Types that programs move and convert but do not compute with."""
DTYPES = (*FLOATS[:3], *INTEGERS[:4], "bool")
RARE = (*INTEGERS[4:6], *STORED, "complex64")
WIDE = ("float64", "int64", "uint64", "complex128")
"""Types that exist under `jax.enable_x64`."""
INDEX = ("int32", "int8", "uint8", "int16", "uint16", "int64")
LARGE = 64.0
ROUNDING_ULPS = {
    "float64": 16,
    "float32": 16,
    "bfloat16": 8,
    "float16": 8,
    "complex64": 32,
    "complex128": 32,
}
"""Of one step: transcendental f32 functions, a few roundings to a 16-bit type."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)


@dataclass(frozen=True)
class Value:
    """What is known of a value before the program runs.

    Attributes:
        index: position among the program's values.
        shape: sizes, of one member of a batch.
        dtype: NumPy name of the element type.
        exact: no engine may differ in any value.
        size: bound of the magnitude of finite elements (floats).
    """

    index: int
    shape: tuple[int, ...]
    dtype: str
    exact: bool
    size: float

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS

    @property
    def integral(self) -> bool:
        return self.dtype in INTEGERS

    @property
    def complex(self) -> bool:
        return self.dtype in COMPLEX

    @property
    def inexact(self) -> bool:
        return self.dtype in INEXACT

    @property
    def stored(self) -> bool:
        return self.dtype in STORED


@dataclass(frozen=True)
class Step:
    """One application of a function to earlier values."""

    name: str
    function: Callable[..., Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    rules: tuple[Rule | None, ...]


@dataclass
class Program:
    """Inputs, steps and results."""

    inputs: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def run(self, *inputs: Any) -> dict[int, Any]:
        """Return every value of the program, by its index."""
        known: dict[int, Any] = dict(enumerate(inputs))
        for step in self.steps:
            out = step.function(*(known[i] for i in step.operands))
            results = out if isinstance(out, tuple) else (out,)
            known.update(zip(step.results, results, strict=True))
        return known

    def errors(self, known: Mapping[int, np.ndarray]) -> list[float]:
        """Return the bound of the absolute error of every value."""
        error = [0.0] * len(self.values)
        for step in self.steps:
            x = [known[i] for i in step.operands]
            e = [error[i] for i in step.operands]
            for i, rule in zip(step.results, step.rules, strict=True):
                if rule is None:
                    continue
                info = jnp.finfo(known[i].dtype)
                rounding = float(info.eps) * largest(known[i])
                rounding += float(info.smallest_normal)
                own = rule(x, e, known[i])
                error[i] = own + ROUNDING_ULPS[known[i].dtype.name] * rounding
        return error

    def listing(self) -> str:
        """Return the program as text, one value a line."""
        lines = [f"v{i} = input {v[1]}{v[0]}" for i, v in enumerate(self.inputs)]
        for s in self.steps:
            kinds = [f"{self.values[i].dtype}{self.values[i].shape}" for i in s.results]
            names = ", ".join(f"v{i}" for i in s.results)
            read = ", ".join(f"v{i}" for i in s.operands)
            lines.append(f"{names} = {s.name}({read}) -> {', '.join(kinds)}")
        return "\n".join([*lines, f"outputs {self.outputs}"])

    def needed(self, outputs: Sequence[int]) -> Program:
        """Return the program without the steps that these results do not need."""
        live = set(outputs)
        kept: list[Step] = []
        for s in reversed(self.steps):
            if live & set(s.results):
                kept.append(s)
                live |= set(s.operands)
        sub = Program(self.inputs, kept[::-1], self.values, list(outputs))
        return sub


class Generator:
    """Grows a program, choice by choice."""

    def __init__(
        self, choose: Choose, smooth: bool, special: bool, x64: bool = False
    ) -> None:
        self.choose = choose
        self.smooth = smooth
        self.x64 = x64
        self.program = Program()
        self.special = special

    # Choices

    def flip(self) -> bool:
        return bool(self.choose(2))

    def pick(self, items: Sequence[T]) -> T:
        return items[self.choose(len(items))]

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.choose(high - low + 1)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.choose(5) if rank is None else rank
        # Empty arrays are rare: nothing grows from them.
        sizes = SIZES if self.choose(12) == 0 else SIZES[1:]
        if rank >= 3:
            sizes = sizes[:-1]
        return tuple(self.pick(sizes) for _ in range(rank))

    def axes(self, v: Value) -> tuple[int, ...]:
        return tuple(i for i in range(v.rank) if self.flip())

    def permutation(self, n: int) -> tuple[int, ...]:
        left = list(range(n))
        return tuple(left.pop(self.choose(len(left))) for _ in range(n))

    # Values

    def input(self, shape: tuple[int, ...], dtype: str) -> Value:
        assert not self.program.steps
        self.program.inputs.append((shape, dtype))
        v = Value(len(self.program.values), shape, dtype, True, 4.0)
        self.program.values.append(v)
        return v

    def values(self, test: Callable[[Value], bool]) -> list[Value]:
        return [v for v in self.program.values if test(v)]

    def dtype(self) -> str:
        """Return an element type, rarely one that is rarely used."""
        if self.x64 and self.choose(3) == 0:
            return self.pick(WIDE[:3] if self.special else WIDE)
        rare = RARE[:-1] if self.special else RARE
        return self.pick(rare if self.choose(6) == 0 else DTYPES)

    def any(self, test: Callable[[Value], bool]) -> Value | None:
        """Return a value that passes, one of the newest more often than not."""
        found = self.values(test)
        if not found:
            return None
        return self.pick(found[-3:]) if self.choose(3) else self.pick(found)

    def add(
        self,
        name: str,
        function: Callable[..., Any],
        operands: Sequence[Value],
        *,
        rule: Rule | None = None,
        exact: bool = False,
        size: float | None = None,
    ) -> tuple[Value, ...]:
        """Append a step.

        Args:
            name: for the listing.
            function: of the operands' arrays; one array or a tuple of them.
            rule: error of its float results; `nearest` when exact.
            exact: it moves values; exact operands make exact results.
            size: bound of the float results' magnitude.
        """
        p = self.program
        args = [jax.ShapeDtypeStruct(v.shape, jnp.dtype(v.dtype)) for v in operands]
        out = jax.eval_shape(function, *args)
        found: list[Value] = []
        rules: list[Rule | None] = []
        bound = max((v.size for v in operands if v.inexact), default=4.0)
        for x in out if isinstance(out, tuple) else (out,):
            kind = jnp.dtype(x.dtype).name
            is_exact = kind not in INEXACT or (exact and all(v.exact for v in operands))
            v = Value(
                len(p.values), x.shape, kind, is_exact, bound if size is None else size
            )
            rules.append(None if is_exact else (rule or nearest))
            p.values.append(v)
            found.append(v)
        where = tuple(v.index for v in found)
        p.steps.append(
            Step(name, function, tuple(v.index for v in operands), where, tuple(rules))
        )
        last = found[0]
        if last.inexact and last.size > LARGE:
            found[0] = self.shrink(last)
        return tuple(found)

    def shrink(self, v: Value) -> Value:
        """Bring a large value back."""
        factor = float(2.0 ** -np.ceil(np.log2(v.size)))
        return self.add(
            f"times {factor}",
            lambda x: x * jnp.asarray(factor, x.dtype),
            [v],
            rule=scaled(factor),
            size=1.0,
        )[0]

    def like(
        self, v: Value, shape: tuple[int, ...], dtype: str, grow: bool = True
    ) -> Value | None:
        """Return a value of this type that depends on v, or None when none can."""
        if v.dtype != dtype:
            converted = self.convert(v, dtype)
            if converted is None:
                return None
            v = converted
        if v.shape == shape:
            return v
        n, m = int(np.prod(v.shape)), int(np.prod(shape))
        if n == 0 and m:
            return None

        def fit(x: Any) -> Any:
            return jnp.resize(x, shape) if m else jnp.zeros(shape, x.dtype)

        return self.add(f"resize {shape}", fit, [v], exact=True)[0]

    def convert(self, v: Value, dtype: str) -> Value | None:
        if dtype in INEXACT and v.integral:
            v = self.add("and 15", lambda x: x & jnp.asarray(15, x.dtype), [v])[0]
        small = v.size if v.inexact else LARGE if v.stored else 16.0
        if v.inexact and dtype not in INEXACT:
            if not v.exact or (self.special and not dtype.startswith("float8")):
                return None
            if v.complex and dtype != "bool":
                v = self.add("real", jnp.real, [v], exact=True)[0]
            if dtype.startswith("u"):
                v = self.add("abs", jnp.abs, [v], exact=True)[0]
        if v.complex and dtype in FLOATS:
            v = self.add("real", jnp.real, [v], exact=True)[0]
        # Narrow types: the CPU may keep the wider number until something needs it.
        wide = dtype not in ("bfloat16", "float16", *STORED)
        keeps = wide or not v.inexact or v.dtype == dtype
        return self.add(
            f"to {dtype}",
            lambda x: x.astype(dtype),
            [v],
            rule=nearest,
            exact=keeps,
            size=small,
        )[0]


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, special: bool
) -> np.ndarray:
    """Return an input: quarters in [-4, 4], small and extreme integers."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in COMPLEX:
        x = rng.integers(-16, 17, shape) + 1j * rng.integers(-16, 17, shape)
        return np.asarray(x / 4).astype(dtype)
    if dtype in FLOATS or dtype.startswith("float8"):
        x = rng.integers(-16, 17, shape) / 4
        if special:
            odd = rng.choice(SPECIAL, shape)
            x = np.where(rng.random(shape) < 0.2, odd, x)
        return np.asarray(x).astype(jnp.dtype(dtype))
    info = jnp.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    kind = np.uint64 if low == 0 else np.int64
    x = rng.integers(max(-9, low), min(9, high), shape, kind, endpoint=True)
    far = rng.integers(low, high, shape, kind, endpoint=True)
    edge = rng.choice(np.array([low, high], kind), shape)
    x = np.where(rng.random(shape) < 0.25, far, x)
    x = np.where(rng.random(shape) < 0.1, edge, x)
    return np.asarray(x).astype(jnp.dtype(dtype))
