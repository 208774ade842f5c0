"""Cells of the element by element operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.matrix.cells import (
    Cell,
    Make,
    Skip,
    crossed,
    every,
    not_finite,
    real_of,
    small,
    subnormal,
    tensor,
)
from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, DType
from vkore_jax.lowering.elementwise import NARY
from vkore_jax.sim.contract import (
    TRANSCENDENTAL_ULPS,
    VALUES,
    Bound,
    Tolerance,
    transcendental,
)


def tolerance(micro: str, t: DType) -> Tolerance:
    if micro in TRANSCENDENTAL_ULPS:
        found = transcendental(micro, t)
        # Complex functions are sums of real ones, which may cancel.
        size = 4.0 if micro == "atan2" else 1.0
        ulps = {"pow": 4 * found.ulps, "log": 64.0, "log1p": 512.0}.get(
            micro, found.ulps
        )
        wide = replace(found, magnitude=size, ulps=ulps)
        return wide if t.kind == "c" else found
    if t.kind == "c" and micro in ("mul", "div", "sqrt", "abs", "sign"):
        return Tolerance(Bound.ULP, ulps=16)
    return VALUES


def on_the_cut(cell: Cell, want: np.ndarray) -> np.ndarray:
    """Return also where the sign of a zero decides between pi and -pi."""
    with np.errstate(all="ignore"):
        cut = np.abs(np.abs(np.real(want)) - np.pi) < 1e-3
    return cut | not_finite(cell, want)


def unpromised(micro: str, t: DType) -> Skip | None:
    if t.kind == "c":
        return on_the_cut if micro == "atan2" else not_finite
    return subnormal if micro in TRANSCENDENTAL_ULPS else None


def ignored(micro: str, t: DType) -> Skip | None:
    """The CPU makes anything of a subnormal (cbrt: -5.6e-16), the chip a zero."""
    return subnormal if t.kind == "f" and micro in TRANSCENDENTAL_ULPS else None


TRUTH: Mapping[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "tan": np.tan,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
}


def truth(micro: str, t: DType, x: np.ndarray) -> np.ndarray | None:
    """Return the exact results of a narrow float (XLA:CPU rounds some twice)."""
    if micro not in TRUTH or t.kind != "f" or t.bits >= 32:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(TRUTH[micro](x.astype(np.float64)))


def unary(op: str, micro: str) -> Make:
    def make(t: DType) -> Cell:
        x = every(t)
        out = t
        if micro in ("abs", "real", "imag"):
            out = real_of(t)
        if micro == "is_finite":
            out = BOOL
        a, r = tensor(t, x.size), tensor(out, x.size)
        want = None
        if micro == "popcnt" and t.short == "i4":  # XLA:CPU counts eight bits
            bits = (x.astype(np.int16) & 15).tolist()
            want = (np.array([b.bit_count() for b in bits]).astype(t.numpy),)
        kind = a if out is t else f"({a}) -> {r}"
        return Cell(
            f"%r = {op} %a : {kind}",
            (x,),
            (r,),
            tolerance(micro, t),
            want=want,
            ignore=ignored(micro, t),
            unpromised=unpromised(micro, t),
            truth=truth(micro, t, x),
        )

    return make


def binary(op: str, micro: str) -> Make:
    def make(t: DType) -> Cell:
        x, y = crossed(t)
        a = tensor(t, x.size)
        want = None
        if micro == "pow" and t.is_integer:
            want = (_power(x, y),)  # XLA:CPU reads six bits of the exponent
        return Cell(
            f"%r = {op} %a, %b : {a}",
            (x, y),
            (a,),
            tolerance(micro, t),
            want=want,
            ignore=ignored(micro, t),
            unpromised=unpromised(micro, t),
        )

    return make


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    t = dtypes.by_numpy(x.dtype)
    modulus = 1 << t.bits
    found = []
    for a, b in zip(x.tolist(), y.tolist()):
        a, b = int(a), int(b)
        if b < 0:
            value = a ** (b % 2) if abs(a) == 1 else 0
        else:
            value = pow(a, b, modulus)
        value %= modulus
        if t.kind == "i" and value >= modulus // 2:
            value -= modulus
        found.append(value)
    return (
        np.array(found, object)
        .astype(np.uint64 if t.kind == "u" else np.int64)
        .astype(x.dtype)
    )


def compare(t: DType) -> Cell:
    x, y = crossed(t)
    a, r = tensor(t, x.size), tensor(BOOL, x.size)
    kind = "FLOAT" if t.kind in "fc" else "UNSIGNED" if t.kind in "bu" else "SIGNED"
    lines, parts = [], []
    total = [("TOTALORDER", "LT"), ("TOTALORDER", "EQ")] if t.kind == "f" else []
    order = ("EQ", "NE") if t.kind == "c" else ("EQ", "NE", "LT", "LE", "GT", "GE")
    for i, (k, way) in enumerate([*((kind, w) for w in order), *total]):
        lines.append(
            f"%p{i} = stablehlo.compare {way}, %a, %b, {k} : ({a}, {a}) -> {r}"
        )
        parts.append(f"%p{i}")
    n = len(parts)
    lines.append(
        f"%r = stablehlo.concatenate {', '.join(parts)}, dim = 0 : "
        f"({', '.join([r] * n)}) -> {tensor(BOOL, n * x.size)}"
    )
    return Cell("\n".join(lines), (x, y), (tensor(BOOL, n * x.size),))


def select(t: DType) -> Cell:
    x, y = crossed(t)
    p = np.arange(x.size) % 3 == 0
    a = tensor(t, x.size)
    body = f"%r = stablehlo.select %a, %b, %c : {tensor(BOOL, x.size)}, {a}"
    return Cell(body, (p, x, y), (a,))


def clamp(t: DType) -> Cell:
    x = every(t)[:4096]
    some = small(t, 4)
    low, high = np.sort(some)[0], np.sort(some)[-1]
    a, s = tensor(t, x.size), tensor(t)
    body = f"%r = stablehlo.clamp %a, %b, %c : ({s}, {a}, {s}) -> {a}"
    return Cell(body, (np.asarray(low), x, np.asarray(high)), (a,))


def complex_(t: DType) -> Cell:
    x, y = crossed(t)
    out = {dtypes.F32: dtypes.C64}.get(t, dtypes.C128)
    return Cell(f"%r = stablehlo.complex %a, %b : {tensor(out, x.size)}", (x, y),
                (tensor(out, x.size),))  # fmt: skip


def reduce_precision(t: DType) -> Cell:
    x = every(t)
    a = tensor(t, x.size)
    return Cell(f"%r = stablehlo.reduce_precision %a, format = e4m3 : {a}", (x,), (a,))


COMMON = ("i1", "i8", "i32", "ui8", "f32", "bf16", "f8E4M3FN")


def convert(t: DType) -> Cell:
    """From some types to every type, from the others to some."""
    x = every(t)[:4096]
    lines, types = [], []
    some = [dtypes.by_short(name) for name in COMMON]
    for i, out in enumerate(dtypes.ALL if t in (dtypes.F32, dtypes.I32) else some):
        lines.append(
            f"%r{i} = stablehlo.convert %a : ({tensor(t, x.size)}) -> "
            f"{tensor(out, x.size)}"
        )
        types.append(tensor(out, x.size))
    want = None
    if t.short == "f4E2M1FN":  # XLA:CPU makes -128 of -6
        with np.errstate(all="ignore"):
            whole = x.astype(np.float32)
            want = tuple(
                (np.maximum(whole, 0) if u.kind == "u" else whole).astype(u.numpy)
                for u in some
            )
    # 2 ** -127 is subnormal in f32, through which the CPU converts it.  Subnormals of
    # f32 and of bf16, which is lifted to it, are zeros on the machine; whether they are
    # on the CPU depends on its version and on what is fused.
    flushed = t in (dtypes.BF16, dtypes.F32, dtypes.F64) or t.short == "f8E8M0FNU"
    return Cell(
        "\n".join(lines), (x,), tuple(types), want=want,
        ignore=subnormal if flushed else None, unpromised=subnormal,
    )  # fmt: skip


WIDTHS = ("ui4", "ui8", "f32")


def bitcast(t: DType) -> Cell:
    """To every type of the same width, and to some of other widths."""
    x = small(t, 4, 64 // t.bits if t.bits < 64 else 2)
    x = every(t)[: x.size].reshape(x.shape) if every(t).size >= x.size else x
    lines, types = [], []
    for out in dtypes.ALL:
        if ({out.kind, t.kind} & set("bc")) and out is not t:
            continue
        if out.bits != t.bits and out.short not in WIDTHS:
            continue
        if out.bits == t.bits:
            shape = x.shape
        elif out.bits < t.bits:
            shape = (*x.shape, t.bits // out.bits)
        elif x.shape[-1] * t.bits == out.bits:
            shape = x.shape[:-1]
        else:
            continue
        lines.append(
            f"%r{len(types)} = stablehlo.bitcast_convert %a : "
            f"({tensor(t, *x.shape)}) -> {tensor(out, *shape)}"
        )
        types.append(tensor(out, *shape))
    return Cell("\n".join(lines), (x,), tuple(types))


def map_(t: DType) -> Cell:
    x, y = crossed(t)
    a, s = tensor(t, x.size), tensor(t)
    op = "maximum" if t.kind != "c" else "subtract"
    body = f"""%r = "stablehlo.map"(%a, %b) ({{
      ^bb0(%x: {s}, %y: {s}):
        %z = stablehlo.{op} %x, %y : {s}
        stablehlo.return %z : {s}
    }}) {{dimensions = array<i64: 0>}} : ({a}, {a}) -> {a}"""
    return Cell(body, (x, y), (a,))


def iota(t: DType) -> Cell:
    a = tensor(t, 3, 5)
    return Cell(f"%r = stablehlo.iota dim = 1 : {a}", (), (a,))


UNARY_ARITY = {
    "neg", "sign", "not", "ceil", "floor", "round_even", "round_away", "is_finite",
    "popcnt", "clz", "exp", "expm1", "log", "log1p", "logistic", "tanh", "tan", "sin",
    "cos", "sqrt", "rsqrt", "cbrt",
}  # fmt: skip

CELLS: Mapping[str, Make] = {
    **{
        op: unary(op, micro) if micro in UNARY_ARITY else binary(op, micro)
        for op, micro in NARY.items()
    },
    "stablehlo.abs": unary("stablehlo.abs", "abs"),
    "stablehlo.real": unary("stablehlo.real", "real"),
    "stablehlo.imag": unary("stablehlo.imag", "imag"),
    "stablehlo.complex": complex_,
    "stablehlo.compare": compare,
    "stablehlo.select": select,
    "stablehlo.clamp": clamp,
    "stablehlo.reduce_precision": reduce_precision,
    "stablehlo.convert": convert,
    "stablehlo.bitcast_convert": bitcast,
    "stablehlo.map": map_,
    "stablehlo.iota": iota,
}
