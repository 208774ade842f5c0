"""Groups: tiling, ragged blocks, K loops, strategies, epilogues, reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.sim.builder import ProgramBuilder, binary, micro, unary
from tests.sim.case import SimCase, normals, on_cpu
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BF16, BOOL, C64, F16, F32, F64, I8, I16, I32, U32, DType
from vkore_jax.isa import Phase, ReduceKind, Strategy, View
from vkore_jax.program import Program
from vkore_jax.sim.contract import (
    BITS,
    VALUES,
    Bound,
    Tolerance,
    accumulate,
    chain,
)

TAIL = Phase.TAIL
Shape = Sequence[int]


def feed(*specs: tuple[DType, Shape]) -> Callable[[np.random.Generator], list[Any]]:
    """Return an input factory of standard normal tensors."""
    return lambda rng: [normals(rng, t, s) for t, s in specs]


# ------------------------------------------------------------------------- contractions


def split(x: np.ndarray, parts: int) -> list[np.ndarray]:
    """Cut finite f32 into bf16 parts (as f64)."""
    out, rest = [], x.astype(np.float32)
    for _ in range(parts):
        part = rest.astype(ml_dtypes.bfloat16).astype(np.float32)
        out.append(part.astype(np.float64))
        rest = rest - part
    return out


def gemm_reference(strategy: Strategy, out: DType) -> Callable[..., list[np.ndarray]]:
    """Return the exact (f64 or int64) value of the partial products of a strategy."""

    def reference(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        if a.dtype.kind in "iu" and a.dtype != ml_dtypes.bfloat16:
            wide = np.matmul(a.astype(np.int64), b.astype(np.int64))
            unit = np.int32 if strategy is Strategy.INT8 else a.dtype
            return [wide.astype(unit).astype(out.numpy)]
        if a.dtype == np.bool_:
            return [np.matmul(a, b)]
        if strategy is Strategy.LANES:
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            return [np.matmul(a.astype(wide), b.astype(wide)).astype(out.numpy)]
        n = {Strategy.BF16X1: 1, Strategy.BF16X3: 2, Strategy.BF16X6: 3}[strategy]
        p, q = split(a, n), split(b, n)
        total = sum(p[i] @ q[j] for i in range(n) for j in range(n) if i + j < n)
        return [np.asarray(total).astype(np.float32).astype(out.numpy)]

    return reference


def gemm_bound(inputs: Sequence[np.ndarray]) -> Tolerance:
    a, b = (np.abs(x).astype(np.float64) for x in inputs[:2])
    return accumulate(6 * a.shape[-1], np.matmul(a, b).max(initial=0.0))


def gemm_case(
    id: str,
    types: tuple[DType, DType, DType],
    strategy: Strategy,
    m: int = 10,
    n: int = 9,
    k: int = 23,
    blocks: tuple[int, int, int | None] = (4, 4, 8),
    batch: tuple[Shape, Shape] = ((), ()),
    tolerance: Any = gemm_bound,
    inputs: Any = None,
    oracle: Any = None,
) -> SimCase:
    """One matrix product; block None for k means no K axis."""
    lhs, rhs, out = types
    lead = tuple(np.broadcast_shapes(*batch))
    rank = len(lead)

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, y = b.arg(lhs, (*batch[0], m, k)), b.arg(rhs, (*batch[1], k, n))
        grid = [(e, 1) for e in lead] + [(m, blocks[0]), (n, blocks[1])]
        k_axis = None if blocks[2] is None else rank + 2
        if blocks[2] is not None:
            grid.append((k, blocks[2]))
        g = b.group(grid, k_axis if k_axis is not None else 255)

        def cut(shape: Shape) -> list[int | None]:
            return [None if e == 1 else i for i, e in enumerate(shape)]

        rows, columns = (None if e == 1 else rank + i for i, e in enumerate((m, n)))
        tx = g.load(x, [*cut(batch[0]), rows, k_axis], slots=2)
        ty = g.load(y, [*cut(batch[1]), k_axis, columns], slots=2)
        g.store(b.result(out, (*lead, m, n)), g.gemm(tx, ty, out, strategy), TAIL)
        return b.build()

    return SimCase(
        id=f"gemm/{id}",
        build=build,
        inputs=inputs or feed((lhs, (*batch[0], m, k)), (rhs, (*batch[1], k, n))),
        tolerance=tolerance,
        oracle=oracle or gemm_reference(strategy, out),
    )


def _nonfinite(rng: np.random.Generator) -> list[np.ndarray]:
    a, b = normals(rng, F32, (10, 23)), normals(rng, F32, (23, 9))
    a[0, 0], a[1, 1], a[2, 2], a[3, 3] = np.inf, -np.inf, np.nan, 3.4028e38
    b[0, 0], b[5, 1], b[6, 2], b[7, 7] = 0.0, np.inf, 1e-42, -np.inf
    b[1], b[3] = 1.0, 1.0
    return [a, b]


def _nonfinite_oracle(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    def high(x: np.ndarray) -> np.ndarray:
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)

    with np.errstate(all="ignore"):
        exact = np.matmul(high(a), high(b))
        fine = np.where(np.isfinite(a), a, 0).astype(np.float64)
        fine_b = np.where(np.isfinite(b), b, 0).astype(np.float64)
        out = np.where(np.isfinite(exact), fine @ fine_b, exact).astype(np.float32)
    return [out]


def _lookup_gradient(chip: Chip) -> Program:
    """[word = ids] x rows, which the translator makes additions if all is finite."""
    b = ProgramBuilder(chip)
    g = b.group([])
    ids, rows = g.load(b.arg(I32, (1, 6))), g.load(b.arg(F32, (6, 4)))
    compare = micro(I32).iota(I32, 0).op("eq", 0, 1).op("convert", 2, dtype=F32)
    hot = g.vec(compare.out(), [ids], shape=(5, 6), axes=(None, None))
    g.store(b.result(F32, (5, 4)), g.gemm(hot, rows, F32, Strategy.BF16X1))
    return b.build()


def _lookup_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    rows = rng.integers(-8, 8, (6, 4)).astype("f4")
    rows[1, 0], rows[2, 1], rows[4, 3] = np.nan, np.inf, -np.inf
    return [np.array([[3, 0, 3, 1, 9, 0]], "i4"), rows]


def _lookup_oracle(ids: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Zero times what is not finite is NaN, in the rows of all words."""
    hot = (np.arange(5)[:, None] == ids).astype("f4")
    with np.errstate(all="ignore"):
        return [(hot[:, :, None] * rows).sum(1)]


def _extreme_i8(rng: np.random.Generator) -> list[np.ndarray]:
    a, b = (
        rng.choice([-128, -127, 127], s).astype(np.int8) for s in [(6, 40), (40, 5)]
    )
    return [a, b]


# ---------------------------------------------------------------------------- epilogues


def _linear(chip: Chip) -> Program:
    """relu(x @ w + bias) in bf16 out: bias and activation leave with the tile."""
    b = ProgramBuilder(chip)
    x, w, bias = b.arg(F32, (13, 22)), b.arg(F32, (22, 11)), b.arg(F32, (1, 11))
    g = b.group([(13, 4), (11, 4), (22, 8)], 2)
    acc = g.gemm(g.load(x, (0, 2), slots=2), g.load(w, (2, 1), slots=2))
    tb = g.load(bias, (None, 1), phase=TAIL)
    m = micro(F32, F32).op("add", 0, 1).imm(F32, 0.0).op("max", 2, 3)
    y = g.vec(m.op("convert", 4, dtype=BF16).out(), [acc, tb], phase=TAIL)
    g.store(b.result(BF16, (13, 11)), y, TAIL)
    return b.build()


def _linear_oracle(x: Any, w: Any, bias: Any) -> list[np.ndarray]:
    y = gemm_reference(Strategy.BF16X1, F32)(x, w)[0] + bias
    return [np.maximum(y, 0).astype(ml_dtypes.bfloat16)]


def _softmax(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x = b.arg(F32, (9, 30))
    g = b.group([(9, 2)])
    t = g.load(x, (0, None), slots=2)
    top = g.reduce(t, ReduceKind.MAX, (1,))
    e = g.vec(micro(F32, F32).op("sub", 0, 1).op("exp", 2).out(), [t, top])
    total = g.reduce(e, ReduceKind.SUM, (1,))
    g.store(b.result(F32, (9, 30)), g.vec(binary("div", F32), [e, total]))
    return b.build()


def _softmax_oracle(x: np.ndarray) -> list[np.ndarray]:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return [(e / e.sum(1, keepdims=True)).astype(np.float32)]


def _layer_norm(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x, gain, shift = b.arg(F32, (7, 24)), b.arg(F32, (1, 24)), b.arg(F32, (1, 24))
    g = b.group([(7, 3)])
    t = g.load(x, (0, None))
    total = g.reduce(t, ReduceKind.SUM, (1,))
    m = micro(F32, F32).imm(F32, 1 / 24).op("mul", 1, 2).op("sub", 0, 3)
    centred, squares = g.vec(m.op("mul", 4, 4).out(4, 5), [t, total])
    var = g.reduce(squares, ReduceKind.SUM, (1,))
    m = micro(F32, F32, F32, F32).imm(F32, 1 / 24).op("mul", 1, 4).imm(F32, 1e-5)
    m.op("add", 5, 6).op("rsqrt", 7).op("mul", 0, 8).op("mul", 9, 2).op("add", 10, 3)
    y = g.vec(m.out(), [centred, var, g.load(gain), g.load(shift)])
    g.store(b.result(F32, (7, 24)), y)
    return b.build()


def _layer_norm_oracle(x: Any, gain: Any, shift: Any) -> list[np.ndarray]:
    x = x.astype(np.float64)
    c = x - x.mean(1, keepdims=True)
    y = c / np.sqrt((c**2).mean(1, keepdims=True) + 1e-5) * gain + shift
    return [y.astype(np.float32)]


def _attention(chip: Chip) -> Program:
    """softmax(q k) v for two heads: two products and a softmax in one group."""
    b = ProgramBuilder(chip)
    q, k, v = b.arg(F32, (2, 10, 8)), b.arg(F32, (2, 8, 12)), b.arg(F32, (2, 12, 8))
    g = b.group([(2, 1), (10, 4)])
    s = g.gemm(g.load(q, (0, 1, None)), g.load(k, (0, None, None)))
    top = g.reduce(s, ReduceKind.MAX, (2,))
    e = g.vec(micro(F32, F32).op("sub", 0, 1).op("exp", 2).out(), [s, top])
    total = g.reduce(e, ReduceKind.SUM, (2,))
    o = g.gemm(e, g.load(v, (0, None, None)))
    g.store(b.result(F32, (2, 10, 8)), g.vec(binary("div", F32), [o, total]))
    return b.build()


def _attention_oracle(q: Any, k: Any, v: Any) -> list[np.ndarray]:
    s = gemm_reference(Strategy.BF16X1, F32)(q, k)[0].astype(np.float64)
    e = np.exp(s - s.max(2, keepdims=True)).astype(np.float32)
    o = gemm_reference(Strategy.BF16X1, F32)(e, v)[0].astype(np.float64)
    return [(o / e.astype(np.float64).sum(2, keepdims=True)).astype(np.float32)]


def _turned(chip: Chip) -> Program:
    """x x^T and, over blocks of rows that K walks, relu(x)^T x: turned on the chip."""
    b = ProgramBuilder(chip)
    x = b.arg(F32, (2, 10, 6))
    g = b.group([(2, 1), (10, 4)], 1)
    rows = g.load(x, (0, 1, None), slots=2)
    whole = g.load(x, (0, None, None))
    g.store(b.result(F32, (2, 10, 10)), g.gemm(rows, g.transpose(whole)))
    m = micro(F32).imm(F32, 0.0).op("max", 0, 1)
    kept = g.vec(m.out(), [rows])
    g.store(b.result(F32, (2, 6, 6)), g.gemm(g.transpose(kept), rows), TAIL)
    return b.build()


def _turned_oracle(x: np.ndarray) -> list[np.ndarray]:
    product = gemm_reference(Strategy.BF16X1, F32)
    t = x.swapaxes(1, 2)
    return [product(x, t)[0], product(np.maximum(t, 0), x)[0]]


# --------------------------------------------------------------------------- reductions


def reduce_case(
    kind: ReduceKind,
    dtype: DType,
    oracle: Callable[[np.ndarray], Sequence[Any]],
    *,
    k_block: int | None = None,
    axes: Sequence[int] = (1,),
    specials: bool = False,
    tolerance: Any = VALUES,
    out: DType | None = None,
) -> SimCase:
    """Reduce a (6, 29) tensor, rows by blocks of 4; `k_block` cuts the columns."""

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(dtype, (6, 29))
        grid, cut, k = [(6, 4)], [0, None], 255
        if k_block:
            grid, cut, k = [(6, 4), (29, k_block)], [0, 1], 1
        if 0 in axes:
            grid, cut = [], [None, None]
        g = b.group(grid, k)
        outs = g.reduce(g.load(x, cut, slots=2), kind, axes, dtype=out)
        for tile in outs if isinstance(outs, tuple) else (outs,):
            t = g.tiles[tile]
            g.store(b.result(t.dtype, t.shape), tile, TAIL)
        return b.build()

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        x = normals(rng, dtype, (6, 29))
        if specials and dtype.is_float:
            x[0, 3:5] = x[0].max() + 1
            x[1, [5, 9]] = np.nan
            x[2], x[2, 4] = -0.0, 0.0
            x[3], x[4, 28] = -np.inf, np.inf
        return [x]

    how = "-k" if k_block else ""
    return SimCase(
        id=f"reduce/{kind.name.lower()}-{dtype}-axes{''.join(map(str, axes))}{how}",
        build=build,
        inputs=inputs,
        tolerance=tolerance,
        oracle=oracle,
    )


def _sum(x: np.ndarray) -> list[np.ndarray]:
    if x.dtype.kind in "iu" and x.dtype != ml_dtypes.bfloat16:
        return [x.sum(1, keepdims=True, dtype=x.dtype)]
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    return [x.astype(wide).sum(1, keepdims=True).astype(x.dtype)]


def _prod(x: np.ndarray) -> list[np.ndarray]:
    if x.dtype.kind in "iu" and x.dtype != ml_dtypes.bfloat16:
        return [x.prod(1, keepdims=True, dtype=x.dtype)]
    return [x.astype(np.float64).prod(1, keepdims=True).astype(x.dtype)]


def _logsumexp(x: np.ndarray) -> list[np.ndarray]:
    wide = x.astype(np.float64)
    return [np.logaddexp.reduce(wide, 1, keepdims=True).astype(x.dtype)]


def _arg(fn: Callable[..., Any]) -> Callable[[np.ndarray], list[np.ndarray]]:
    def oracle(x: np.ndarray) -> list[np.ndarray]:
        x32 = x.astype(np.float32) if x.dtype.kind not in "iu" else x
        index = fn(x32, axis=1)[:, None]  # NumPy too lets the first NaN win
        return [np.take_along_axis(x, index, 1), index.astype(np.int32)]

    return oracle


def _sum_bound(inputs: Sequence[np.ndarray]) -> Tolerance:
    return accumulate(29, np.abs(inputs[0]).astype(np.float64).sum(1).max())


def _f64_bound(inputs: Sequence[np.ndarray]) -> Tolerance:
    return accumulate(29, np.abs(inputs[0]).astype(np.float64).sum(1).max(), np.float64)


def _lax_reduce(name: str) -> Any:
    def call(x: Any) -> Any:
        import jax

        return jax.lax.expand_dims(getattr(jax.lax, name)(x, (1,)), (1,))

    return on_cpu(call)


# --------------------------------------------------------------------------- odd shapes


def _broadcast_views(chip: Chip) -> Program:
    """Loads of repeated rows (stride 0) and of windows (overlapping rows)."""
    b = ProgramBuilder(chip)
    row, seq = b.arg(F32, (9,)), b.arg(F32, (14,))
    g = b.group([(6, 4), (9, 4)])
    a = g.load(View(row.buffer, F32, 0, (6, 9), (0, 1)), (0, 1))
    w = g.load(View(seq.buffer, F32, 0, (6, 9), (1, 1)), (0, 1))
    g.store(b.result(F32, (6, 9)), g.vec(binary("add", F32), [a, w]))
    return b.build()


def _rank3_broadcast(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x, y, z = b.arg(F32, (3, 1, 5)), b.arg(F32, (1, 4, 5)), b.arg(F32, (1, 1, 1))
    g = b.group([(3, 2), (4, 3), (5, 2)])
    tiles = [
        g.load(x, (0, None, 2)),
        g.load(y, (None, 1, 2)),
        g.load(z, (None, None, None)),
    ]
    m = micro(F32, F32, F32).op("add", 0, 1).op("mul", 3, 2)
    g.store(b.result(F32, (3, 4, 5)), g.vec(m.out(), tiles))
    return b.build()


def _two_outputs(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x, y = b.arg(I32, (11,)), b.arg(I32, (11,))
    g = b.group([(11, 4)])
    m = micro(I32, I32).op("add", 0, 1).op("lt", 0, 1).op("max", 0, 1)
    outs = g.vec(m.out(2, 3, 4, 0), [g.load(x, (0,)), g.load(y, (0,))])
    for t, tile in zip((I32, BOOL, I32, I32), outs):
        g.store(b.result(t, (11,)), tile)
    return b.build()


def _iota_blocks(chip: Chip) -> Program:
    """A causal mask: indices are those of the whole tensor in every ragged block."""
    b = ProgramBuilder(chip)
    g = b.group([(7, 3), (9, 4)])
    m = micro().iota(I32, 0).iota(I32, 1).op("ge", 0, 1)
    rows, mask = g.vec(m.out(0, 2), [], shape=(7, 9), axes=(0, 1))
    g.store(b.result(I32, (7, 9)), rows)
    g.store(b.result(BOOL, (7, 9)), mask)
    return b.build()


def _iota_oracle() -> list[np.ndarray]:
    rows = np.broadcast_to(np.arange(7, dtype=np.int32)[:, None], (7, 9))
    return [rows.copy(), rows >= np.arange(9)]


def _scalar(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x = b.arg(F32, ())
    b.elementwise(unary("neg", F32), [b.result(F32, ())], [x])
    return b.build()


def _zero_size(chip: Chip) -> Program:
    """Empty tensors: an elementwise group, a product over nothing, an empty sum."""
    b = ProgramBuilder(chip)
    x, p, q = b.arg(F32, (0, 4)), b.arg(F32, (3, 0)), b.arg(F32, (0, 2))
    g = b.group([(0, 4), (4, 4)])
    g.store(b.result(F32, (0, 4)), g.vec(unary("neg", F32), [g.load(x, (0, 1))]))
    g = b.group([(3, 2), (2, 2), (0, 4)], 2)
    g.store(b.result(F32, (3, 2)), g.gemm(g.load(p, (0, 2)), g.load(q, (2, 1))), TAIL)
    g = b.group([(4, 4)])
    g.store(
        b.result(F32, (1, 4)),
        g.reduce(g.load(x, (None, 0)), ReduceKind.MAX, (0,)),
    )
    return b.build()


def _shared_addresses(chip: Chip) -> Program:
    """Tiles that reuse each other's bytes once they are dead."""
    b = ProgramBuilder(chip)
    x = b.arg(F32, (12, 6))
    g = b.group([(12, 5)])
    a = g.load(x, (0, None), at=0)
    c = g.vec(unary("neg", F32), [a], at=1024)
    d = g.vec(unary("abs", F32), [c], at=0)
    e = g.vec(unary("floor", F32), [d], at=1024)
    g.store(b.result(F32, (12, 6)), e)
    return b.build()


def _cases() -> list[SimCase]:
    s = Strategy
    cases = [
        gemm_case("x1-k-loop", (F32, F32, F32), s.BF16X1),
        gemm_case("x1-whole-k", (F32, F32, F32), s.BF16X1, blocks=(4, 4, None)),
        gemm_case("x1-one-block", (F32, F32, F32), s.BF16X1, blocks=(16, 16, 32)),
        gemm_case("x1-bf16-out", (F32, BF16, BF16), s.BF16X1),
        gemm_case("x1-f16-in", (F16, F16, F16), s.BF16X1),
        gemm_case("x3", (F32, F32, F32), s.BF16X3),
        gemm_case("x6", (F32, F32, F32), s.BF16X6),
        gemm_case("x6-bf16-out", (F32, F32, BF16), s.BF16X6),
        gemm_case("lanes-f32", (F32, F32, F32), s.LANES),
        gemm_case("lanes-f16", (F16, F16, F16), s.LANES),
        gemm_case("lanes-bf16-f32", (BF16, BF16, F32), s.LANES),
        gemm_case("lanes-f64", (F64, F64, F64), s.LANES),
        gemm_case("lanes-complex", (C64, C64, C64), s.LANES),
        gemm_case("lanes-i32", (I32, I32, I32), s.LANES, tolerance=VALUES),
        gemm_case("lanes-u32", (U32, U32, U32), s.LANES, tolerance=VALUES),
        gemm_case("lanes-i16-i32", (I16, I16, I32), s.LANES, tolerance=VALUES),
        gemm_case("int8", (I8, I8, I32), s.INT8, tolerance=VALUES),
        gemm_case(
            "int8-extremes",
            (I8, I8, I32),
            s.INT8,
            6,
            5,
            40,
            tolerance=VALUES,
            inputs=_extreme_i8,
        ),
        gemm_case("batch", (F32, F32, F32), s.BF16X1, 5, 6, 7, batch=((3,), (3,))),
        gemm_case(
            "batch-broadcast",
            (F32, F32, F32),
            s.BF16X1,
            5,
            6,
            7,
            batch=((2, 1), (1, 3)),
        ),
        gemm_case("vector", (F32, F32, F32), s.BF16X1, 1, 9, 23, (1, 4, 8)),
    ]
    x1 = gemm_reference(s.BF16X1, F32)
    for strategy in (s.BF16X1, s.BF16X3, s.BF16X6):
        cases.append(
            gemm_case(
                f"nonfinite-{strategy.name.lower()}",
                (F32, F32, F32),
                strategy,
                inputs=_nonfinite,
                oracle=_nonfinite_oracle if strategy is not s.BF16X1 else x1,
                tolerance=Tolerance(Bound.ACCUMULATE, terms=23 * 6, magnitude=100.0),
            )
        )
    cases.append(
        SimCase(
            id="gemm/lookup-gradient-nonfinite",
            build=_lookup_gradient,
            inputs=_lookup_inputs,
            oracle=_lookup_oracle,
        )
    )
    f32 = (F32, F32)
    for name, build, specs, oracle, tol in (
        (
            "linear-relu",
            _linear,
            [(F32, (13, 22)), (F32, (22, 11)), (F32, (1, 11))],
            _linear_oracle,
            accumulate(22, 30.0),
        ),
        ("softmax", _softmax, [(F32, (9, 30))], _softmax_oracle, chain(8, 0.1)),
        (
            "layer-norm",
            _layer_norm,
            [(F32, (7, 24)), (F32, (1, 24)), (F32, (1, 24))],
            _layer_norm_oracle,
            chain(30, 4.0),
        ),
        # The exponentials' last bits may flip a bf16 rounding of the second product.
        (
            "attention",
            _attention,
            [(F32, (2, 10, 8)), (F32, (2, 8, 12)), (F32, (2, 12, 8))],
            _attention_oracle,
            Tolerance(Bound.ULP, ulps=2.0**15, magnitude=2.0),
        ),
        (
            "turned",
            _turned,
            [(F32, (2, 10, 6))],
            _turned_oracle,
            accumulate(10, 40.0),
        ),
        (
            "broadcast-views",
            _broadcast_views,
            [(F32, (9,)), (F32, (14,))],
            lambda r, s: [r[None] + np.lib.stride_tricks.sliding_window_view(s, 9)],
            VALUES,
        ),
        (
            "rank3-broadcast",
            _rank3_broadcast,
            [(F32, (3, 1, 5)), (F32, (1, 4, 5)), (F32, (1, 1, 1))],
            lambda x, y, z: [(x + y) * z],
            VALUES,
        ),
        (
            "two-outputs",
            _two_outputs,
            [(I32, (11,)), (I32, (11,))],
            lambda x, y: [x + y, x < y, np.maximum(x, y), x],
            VALUES,
        ),
        ("iota-blocks", _iota_blocks, [], _iota_oracle, VALUES),
        ("scalar", _scalar, [(F32, ())], lambda x: [-x], BITS),
        (
            "zero-size",
            _zero_size,
            [(F32, (0, 4)), (F32, (3, 0)), (F32, (0, 2))],
            lambda x, p, q: [x, np.zeros((3, 2), "f4"), np.full((1, 4), -np.inf, "f4")],
            VALUES,
        ),
        (
            "shared-addresses",
            _shared_addresses,
            [(F32, (12, 6))],
            lambda x: [np.floor(np.abs(x))],
            VALUES,
        ),
    ):
        cases.append(
            SimCase(
                id=f"group/{name}",
                build=build,
                inputs=feed(*specs),
                tolerance=tol,
                oracle=oracle,
            )
        )
    del f32
    k = ReduceKind
    for block in (None, 8):
        cases += [
            reduce_case(k.SUM, F32, _sum, k_block=block, tolerance=_sum_bound),
            reduce_case(k.SUM, BF16, _sum, k_block=block, tolerance=_sum_bound),
            reduce_case(k.SUM, F64, _sum, k_block=block, tolerance=_f64_bound),
            reduce_case(k.SUM, I32, _sum, k_block=block),
            reduce_case(k.SUM, I8, _sum, k_block=block),
            reduce_case(k.SUM, C64, _sum, k_block=block, tolerance=_sum_bound),
            *(
                reduce_case(
                    k.LOGSUMEXP,
                    t,
                    _logsumexp,
                    k_block=block,
                    specials=True,
                    # log of a sum near 1 of at most 29 terms from the largest element
                    tolerance=chain(29, 4.0),
                )
                for t in (F32, BF16, F64)
            ),
            reduce_case(
                k.PROD,
                F32,
                _prod,
                k_block=block,
                tolerance=Tolerance(Bound.ULP, ulps=64),
            ),
            reduce_case(k.PROD, I32, _prod, k_block=block),
            reduce_case(k.MAX, I8, lambda x: [x.max(1, keepdims=True)], k_block=block),
            reduce_case(
                k.AND,
                I32,
                lambda x: [np.bitwise_and.reduce(x, 1, keepdims=True)],
                k_block=block,
            ),
            reduce_case(k.OR, BOOL, lambda x: [x.any(1, keepdims=True)], k_block=block),
            reduce_case(
                k.AND, BOOL, lambda x: [x.all(1, keepdims=True)], k_block=block
            ),
            reduce_case(
                k.XOR,
                U32,
                lambda x: [np.bitwise_xor.reduce(x, 1, keepdims=True)],
                k_block=block,
            ),
        ]
        for t in (F32, BF16, F16):
            cases += [
                reduce_case(
                    k.MAX, t, _lax_reduce("reduce_max"), k_block=block, specials=True
                ),
                reduce_case(
                    k.MIN, t, _lax_reduce("reduce_min"), k_block=block, specials=True
                ),
            ]
        for t in (F32, BF16, I32):
            cases += [
                reduce_case(k.ARGMAX, t, _arg(np.argmax), k_block=block, specials=True),
                reduce_case(k.ARGMIN, t, _arg(np.argmin), k_block=block, specials=True),
            ]
    cases += [
        reduce_case(
            k.SUM,
            F32,
            lambda x: [x.astype(np.float64).sum(0, keepdims=True).astype("f4")],
            axes=(0,),
            tolerance=_sum_bound,
        ),
        reduce_case(
            k.SUM,
            F32,
            lambda x: [x.astype(np.float64).sum(keepdims=True).astype("f4")],
            axes=(0, 1),
            tolerance=accumulate(174, 174.0),
        ),
    ]
    return cases


CASES = _cases()
