"""Cells: a StableHLO snippet, its inputs and how its results are judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax import dtypes
from vkore_jax.dtypes import C64, C128, F32, F64, DType
from vkore_jax.sim.contract import VALUES, Tolerance

Array = np.ndarray[Any, Any]
Skip = Callable[..., Array]
"""(cell, the CPU's result) -> mask of the elements that are not compared."""
FILE, LINE = "model.py", 7
"""Where the user's program is said to hold the operator of a cell."""


@dataclass(frozen=True)
class Cell:
    """A program of one operator in one element type.

    Attributes:
        body: StableHLO; inputs are %a, %b, ..., results %r (or %r#0, %r#1 ...).
        inputs: values of %a, %b, ...
        results: types of the results.
        tolerance: how far vkore may be from the stock CPU.
        want: results, where the stock CPU cannot be asked.
        reference: what the stock CPU is asked instead; its results have the same bits.
        ignore: elements that are not compared (no platform promises them).
        unpromised: elements in which the golden engine may differ from the CPU.
        truth: the exact results, in f64: as good as the CPU's.
        preamble: module-level text, such as a mesh.
    """

    body: str
    inputs: tuple[Array, ...]
    results: tuple[str, ...]
    tolerance: Tolerance = VALUES
    want: tuple[Array, ...] | None = None
    reference: Cell | None = None
    ignore: Skip | None = None
    unpromised: Skip | None = None
    truth: Array | None = None
    preamble: str = ""


def subnormal(cell: Cell, want: Array) -> Array:
    """Return where an operand is subnormal: a function may take it for zero."""
    found = np.zeros(want.shape, bool)
    for x in cell.inputs:
        if dtypes.by_numpy(x.dtype).kind == "f" and x.shape == want.shape:
            tiny = float(ml_dtypes.finfo(x.dtype).smallest_normal)
            wide = np.abs(x.astype(np.float64))
            found |= (wide < max(tiny, 2.0**-126)) & (wide > 0)
    return found


def not_finite(cell: Cell, want: Array) -> Array:
    """Return where a complex operand is infinite, NaN or just below the real axis.

    C99 and XLA differ there, and so do XLA's own back ends.
    """
    found = ~np.isfinite(want)
    for x in cell.inputs:
        if x.dtype.kind == "c" and x.shape == want.shape:
            found |= ~np.isfinite(x) | ((x.imag == 0) & np.signbit(x.imag))
    return found


Make = Callable[[DType], Cell]


def tensor(t: DType, *shape: int) -> str:
    """Return the MLIR type."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{t.short}>"


def element(kind: str) -> np.dtype[Any]:
    """Return the NumPy element type of an MLIR type."""
    short = re.sub(r"^tensor<(\d+x)*(.*)>$", r"\2", kind)
    return dtypes.by_short(short).numpy


def of(x: Array) -> str:
    """Return the MLIR type of an array."""
    return tensor(dtypes.by_numpy(x.dtype), *x.shape)


def real_of(t: DType) -> DType:
    """Return the type of the magnitude."""
    return {C64: F32, C128: F64}.get(t, t)


def _renamed(text: str, k: int) -> str:
    return re.sub(r"%(?=[a-z])", f"%c{k}_", text)


def _names(cell: Cell) -> list[str]:
    count = len(cell.results)
    if "%r:" in cell.body:
        return [f"%r#{i}" for i in range(count)]
    if "%r =" in cell.body:
        return ["%r"]
    return [f"%r{i}" for i in range(count)]


def module(cells: Sequence[Cell]) -> str:
    """Return one module with the results of all cells."""
    args, lines, outs, types = [], [], [], []
    for k, cell in enumerate(cells):
        for letter, x in zip("abcdefgh", cell.inputs):
            args.append(f"%c{k}_{letter}: {of(x)}")
        lines += _renamed(cell.body, k).strip("\n").split("\n")
        outs += [_renamed(n, k) for n in _names(cell)]
        types += cell.results
    body = "\n".join(lines)
    returned = f"{', '.join(outs)} : {', '.join(types)}" if outs else ""
    preamble = cells[0].preamble if cells else ""
    return (
        f"module @matrix {{\n{preamble}\n"
        f"func.func public @main({', '.join(args)}) -> ({', '.join(types)}) {{\n"
        f"{body}\nreturn {returned}\n}}\n}}\n"
    )


def located(cell: Cell) -> str:
    """Return the module of one cell whose operators stand in the user's line."""
    place = f' loc("{FILE}":{LINE}:3)'
    operators = re.split(r"(?m)^(?= {0,6}%[a-z])", cell.body)
    body = "\n".join(o.rstrip() + place for o in operators if o.strip())
    return module([replace(cell, body=body)])


# ------------------------------------------------------------------------------- inputs


@cache
def patterns(t: DType) -> Array:
    """Return every value of a type of 8 bits or less, bit patterns in order."""
    if t.kind == "b":
        return np.array([False, True])
    if t.is_integer:
        low = 0 if t.kind == "u" else -(1 << (t.bits - 1))
        return np.arange(low, low + (1 << t.bits)).astype(t.numpy)
    return np.arange(1 << t.bits).astype(np.uint8).view(t.numpy)


@cache
def special(t: DType) -> Array:
    """Return the values where operators go wrong, a few dozen."""
    if t.kind == "b":
        return np.array([False, True, True, False])
    if t.is_integer:
        info = ml_dtypes.iinfo(t.numpy)
        low, high = int(info.min), int(info.max)
        some = [0, 1, 2, 3, 7, -1, -2, -5, low, low + 1, high, high - 1, 13, 31, 64]
        kept = list(dict.fromkeys(v for v in some if low <= v <= high))
        return (
            np.array(kept, object)
            .astype(np.int64 if low else np.uint64)
            .astype(t.numpy)
        )
    if t.kind == "c":
        parts = np.array(
            [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 20.0, 1e-3, np.inf, -np.inf, np.nan]
        )
        a, b = np.repeat(parts, parts.size), np.tile(parts, parts.size)
        out = np.empty(a.shape, t.numpy)
        out.real, out.imag = a, b
        return out
    if t.bits <= 8:
        return patterns(t)[:: max(1, (1 << t.bits) // 32)]
    info = ml_dtypes.finfo(t.numpy)
    tiny, least, most = info.smallest_normal, info.smallest_subnormal, info.max
    some = [
        *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.7, -7.25, 0.1),
        *(100.0, 30.0, -30.0, 1e-3, -1e-5, 1000.0, -1000.0, 1 + float(info.eps)),
        *(np.inf, -np.inf, np.nan, tiny, -tiny, least, -least, most, -most),
        float(tiny) / 2,
    ]
    return np.array([np.float64(v) for v in some]).astype(t.numpy)


@cache
def every(t: DType) -> Array:
    """Return all values up to 16 bits, else the special and some thousand others."""
    if t.bits <= 8 and t.kind != "c":
        return patterns(t)
    if t.bits == 16:
        return np.arange(1 << 16).astype(np.uint16).view(t.numpy)
    more = spread(t, 2000)
    return np.concatenate([special(t), more])


@cache
def spread(t: DType, count: int) -> Array:
    """Return numbers of all magnitudes (uniform in the exponent)."""
    rng = np.random.default_rng(7)
    if t.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if t.is_integer:
        raw = rng.integers(0, 1 << 63, count, np.uint64)
        raw >>= rng.integers(0, 63, count, np.uint64)
        return raw.astype(np.int64).astype(t.numpy)
    if t.kind == "c":
        parts = rng.standard_normal((2, count)) * np.exp2(
            rng.uniform(-4, 4, (2, count))
        )
        return (parts[0] + 1j * parts[1]).astype(t.numpy)
    limit = 7 if t.bits <= 8 else 14 if t.bits == 16 else 60
    sign = rng.choice([-1.0, 1.0], count)
    return (sign * np.exp2(rng.uniform(-limit, limit, count))).astype(t.numpy)


def crossed(t: DType) -> tuple[Array, Array]:
    """Return all pairs of special values."""
    x = special(t)
    if t.kind == "c":
        x = np.concatenate([x[::7], spread(t, 12)])
    return np.repeat(x, x.size), np.tile(x, x.size)


def small(t: DType, *shape: int, seed: int = 0) -> Array:
    """Return small exact numbers: integers, halves in floats."""
    rng = np.random.default_rng(seed)
    if t.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if t.kind == "u" or t.short == "f8E8M0FNU" else -3
    high = 1 if t.bits == 2 else 3
    low = max(low, -2) if t.bits == 2 else low
    x = rng.integers(low, high + 1, shape).astype(np.float64)
    if t.kind == "f" and t.bits > 8:
        x = x / 2
    if t.kind == "c":
        x = x + 1j * rng.integers(-3, 4, shape)
    if t.is_integer or t.kind == "f":
        return x.astype(np.int64).astype(t.numpy) if t.is_integer else x.astype(t.numpy)
    return x.astype(t.numpy)


def where_special(t: DType, *shape: int) -> Array:
    """Return a tensor that walks through the special values."""
    x = special(t)
    return np.resize(x, shape)


I32 = dtypes.I32
