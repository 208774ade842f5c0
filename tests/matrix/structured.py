"""Cells of reductions, contractions, transforms, factorisations, random bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.matrix.cells import (
    Cell,
    Make,
    real_of,
    small,
    special,
    tensor,
)
from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, C64, C128, F32, F64, U32, U64, DType
from vkore_jax.sim.contract import Bound, Tolerance, accumulate


def loose(t: DType, terms: int, magnitude: float) -> Tolerance:
    """Return the bound of a sum; integers and bools have none."""
    if t.kind not in "fc":
        return accumulate(terms, magnitude)
    wide = {F64: np.float64, C128: np.float64}.get(t, np.float32)
    return accumulate(terms, magnitude, wide)


def _region(t: DType, op: str) -> str:
    s = tensor(t)
    return f"""({{
      ^bb0(%x: {s}, %y: {s}):
        %z = stablehlo.{op} %x, %y : {s}
        stablehlo.return %z : {s}
      }})"""


def combiner(t: DType) -> str:
    return "add" if t.kind in "cf" else "or" if t.kind == "b" else "xor"


def reduce(t: DType) -> Cell:
    """Sum (floats, complex), or, xor; extremum of special values where ordered."""
    x = small(t, 5, 7)
    a, r, s = tensor(t, 5, 7), tensor(t, 5), tensor(t)
    zero = np.asarray(0, t.numpy)
    body = f"""%r0 = "stablehlo.reduce"(%a, %b) {_region(t, combiner(t))}
      {{dimensions = array<i64: 1>}} : ({a}, {s}) -> {r}"""
    inputs, results = (x, zero), (r,)
    if t.kind != "c":
        n = special(t).size
        wide = tensor(t, n, 4)
        body += f"""
      %r1 = "stablehlo.reduce"(%c, %d) {_region(t, "maximum")}
      {{dimensions = array<i64: 1>}} : ({wide}, {s}) -> {tensor(t, n)}"""
        tall = np.resize(np.roll(special(t), 3), (n, 4))
        tall[:, 0] = special(t)
        inputs += (tall, special(t)[:1].reshape(()))
        results += (tensor(t, n),)
    return Cell(body, inputs, results, loose(t, 7, 12.0))


def reduce_window(t: DType) -> Cell:
    a, r, s = tensor(t, 5, 7), tensor(t, 4, 3), tensor(t)
    body = f"""%r = "stablehlo.reduce_window"(%a, %b) {_region(t, combiner(t))}
      {{window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 1, 2>}} :
      ({a}, {s}) -> {r}"""
    zero = np.asarray(0, t.numpy)
    return Cell(body, (small(t, 5, 7), zero), (r,), loose(t, 6, 10.0))


def select_and_scatter(t: DType) -> Cell:
    a, u, s = tensor(t, 4, 6), tensor(t, 2, 3), tensor(t)
    kind = "UNSIGNED" if t.kind in "bu" else "FLOAT" if t.kind == "f" else "SIGNED"
    keep = f"%z = stablehlo.compare GE, %x, %y, {kind} : ({s}, {s}) -> {tensor(BOOL)}"
    if t.kind == "c":
        f = tensor(real_of(t))
        keep = f"""%u = stablehlo.real %x : ({s}) -> {f}
        %v = stablehlo.real %y : ({s}) -> {f}
        %z = stablehlo.compare GE, %u, %v, FLOAT : ({f}, {f}) -> {tensor(BOOL)}"""
    body = f"""%r = "stablehlo.select_and_scatter"(%a, %b, %c) ({{
      ^bb0(%x: {s}, %y: {s}):
        {keep}
        stablehlo.return %z : {tensor(BOOL)}
      }}, {{
      ^bb0(%p: {s}, %q: {s}):
        %w = stablehlo.{combiner(t)} %p, %q : {s}
        stablehlo.return %w : {s}
      }}) {{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}} :
      ({a}, {u}, {s}) -> {a}"""
    return Cell(body, (small(t, 4, 6), small(t, 2, 3, seed=1), np.asarray(0, t.numpy)),
                (a,))  # fmt: skip


def dot(t: DType) -> Cell:
    a, b, r = tensor(t, 4, 6), tensor(t, 6, 3), tensor(t, 4, 3)
    body = f"%r = stablehlo.dot %a, %b : ({a}, {b}) -> {r}"
    x, y = small(t, 4, 6), small(t, 6, 3, seed=1)
    want = (_products(x, y, t),) if t.bits == 2 else None
    return Cell(body, (x, y), (r,), loose(t, 6, 27.0), want=want)


def _products(x: np.ndarray, y: np.ndarray, out: DType) -> np.ndarray:
    """Return the product of integers that the stock CPU does not multiply."""
    return (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int8).astype(out.numpy)


def dot_general(t: DType) -> Cell:
    """The same type out; f32 and i32 out of narrow operands, too."""
    a, b, r = tensor(t, 2, 4, 6), tensor(t, 2, 6, 3), tensor(t, 2, 4, 3)
    outs = [t]
    if t.bits < 32:
        outs.append(F32 if t.kind == "f" else dtypes.I32)
    lines, types = [], []
    for i, out in enumerate(outs):
        r = tensor(out, 2, 4, 3)
        lines.append(
            f"%r{i} = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], "
            f"contracting_dims = [2] x [1] : ({a}, {b}) -> {r}"
        )
        types.append(r)
    x, y = small(t, 2, 4, 6), small(t, 2, 6, 3, seed=1)
    want = None
    if t.is_integer and t.bits < 8:
        want = tuple(_products(x, y, out) for out in outs)
    return Cell("\n".join(lines), (x, y), tuple(types), loose(t, 6, 27.0), want=want)


def convolution(t: DType) -> Cell:
    a, b, r = tensor(t, 2, 6, 5, 3), tensor(t, 3, 2, 3, 4), tensor(t, 2, 4, 4, 4)
    body = f"""%r = stablehlo.convolution(%a, %b)
      dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {{stride = [1, 1], pad = [[0, 0], [0, 0]]}}
      {{feature_group_count = 1 : i64, batch_group_count = 1 : i64}} :
      ({a}, {b}) -> {r}"""
    x, w = small(t, 2, 6, 5, 3), small(t, 3, 2, 3, 4, seed=1)
    want = None
    if t.bits == 2:
        seen = np.lib.stride_tricks.sliding_window_view(
            x.astype(np.int64), (3, 2), (1, 2)
        )
        sums = np.einsum("nhwcij,ijco->nhwo", seen, w.astype(np.int64))
        want = (sums.astype(np.int8).astype(t.numpy),)
    return Cell(body, (x, w), (r,), loose(t, 18, 100.0), want=want)


def fft(t: DType) -> Cell:
    out = {F32: C64, F64: C128}.get(t, t)
    if t.kind == "c":
        a = r = tensor(t, 4, 12)
        kind = "FFT"
    else:
        a, r, kind = tensor(t, 4, 12), tensor(out, 4, 7), "RFFT"
    body = f"%r = stablehlo.fft %a, type = {kind}, length = [12] : ({a}) -> {r}"
    return Cell(body, (small(t, 4, 12),), (r,), loose(t, 12, 40.0))


def rng_bit_generator(t: DType) -> Cell:
    names = ("THREE_FRY", "PHILOX", "DEFAULT") if t in (U32, U64) else ("THREE_FRY",)
    # XLA:CPU gives bits of any type as unsigned integers, whatever type is declared.
    unsigned = dtypes.by_short(f"ui{t.bits}") if t.kind in "iuf" else t
    return replace(_random_bits(t, names), reference=_random_bits(unsigned, names))


def _random_bits(t: DType, names: Sequence[str]) -> Cell:
    lines, types = [], []
    state, a = tensor(U64, 2), tensor(t, 5, 6)
    for i, name in enumerate(names):
        lines.append(
            f"%s{i}, %r{2 * i} = stablehlo.rng_bit_generator %a, algorithm = {name} : "
            f"({state}) -> ({state}, {a})\n"
            f"%r{2 * i + 1} = stablehlo.add %s{i}, %s{i} : {state}"
        )
        types += [a, state]
    return Cell("\n".join(lines), (np.array([7, 2**63 + 5], np.uint64),), tuple(types))


def positive(t: DType) -> np.ndarray:
    x = small(t, 2, 4, 4).astype(np.complex128 if t.kind == "c" else np.float64)
    return (x @ x.conj().swapaxes(-1, -2) + 4 * np.eye(4)).astype(t.numpy)


def factor(t: DType, size: float = 64.0) -> Tolerance:
    info = dtypes.by_numpy(t.numpy)
    ulps = 64 if info.bits >= 32 else 8
    return Tolerance(Bound.ULP, ulps=ulps, magnitude=size)


def cholesky(t: DType) -> Cell:
    a = tensor(t, 2, 4, 4)
    body = f"%r = stablehlo.cholesky %a, lower = true : {a}"
    return Cell(body, (positive(t),), (a,), factor(t, 8.0),
                ignore=lambda cell, x: np.triu(np.ones((4, 4), bool), 1))  # fmt: skip


def triangular_solve(t: DType) -> Cell:
    a, b = tensor(t, 2, 4, 4), tensor(t, 2, 4, 3)
    body = f"""%r = "stablehlo.triangular_solve"(%a, %b) {{left_side = true,
      lower = true, unit_diagonal = false,
      transpose_a = #stablehlo<transpose NO_TRANSPOSE>}} : ({a}, {b}) -> {b}"""
    x = np.tril(small(t, 2, 4, 4).astype(np.complex128 if t.kind == "c" else float))
    x = (x + 4 * np.eye(4)).astype(t.numpy)
    return Cell(body, (x, small(t, 2, 4, 3, seed=1)), (b,), factor(t, 4.0))


def _raw_qr(t: DType) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import scipy.linalg

    # Of the types that LAPACK lacks nothing is compared: they are refused.
    a = positive(t if t in (F32, F64, C64, C128) else F64)[0]
    raw: Any = scipy.linalg.qr(a, mode="raw")
    plain: Any = scipy.linalg.qr(a)
    packed, taus, full = *raw[0], plain[0]
    return (
        np.ascontiguousarray(packed, t.numpy),
        taus.astype(t.numpy),
        full.astype(t.numpy),
    )


def qr(t: DType) -> Cell:
    a, r = tensor(t, 4, 4), tensor(t, 4)
    body = f"%r:2 = stablehlo.custom_call @Qr(%a) : ({a}) -> ({a}, {r})"
    packed, taus, _ = _raw_qr(t)
    return Cell(body, (positive(t)[0],), (a, r), factor(t), want=(packed, taus))


def householder(t: DType) -> Cell:
    a, r = tensor(t, 4, 4), tensor(t, 4)
    name = "ProductOfElementaryHouseholderReflectors"
    body = f"%r = stablehlo.custom_call @{name}(%a, %b) : ({a}, {r}) -> {a}"
    packed, taus, full = _raw_qr(t)
    return Cell(body, (packed, taus), (a,), factor(t, 1.0), want=(full,))


CELLS: Mapping[str, Make] = {
    "stablehlo.reduce": reduce,
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
    "stablehlo.dot": dot,
    "stablehlo.dot_general": dot_general,
    "stablehlo.convolution": convolution,
    "stablehlo.fft": fft,
    "stablehlo.rng_bit_generator": rng_bit_generator,
    "stablehlo.cholesky": cholesky,
    "stablehlo.triangular_solve": triangular_solve,
    "custom_call:Qr": qr,
    "custom_call:ProductOfElementaryHouseholderReflectors": householder,
}
