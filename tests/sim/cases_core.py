"""The control core and the convolution: gather, scatter, sort, windows, reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.sim.builder import ProgramBuilder, binary, micro
from tests.sim.case import Arrays, SimCase, normals, on_cpu, pool, randoms
from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BF16, BOOL, F32, F64, I8, I32, I64, DType
from vkore_jax.isa import (
    Conv,
    Gather,
    MicroProgram,
    ReduceGeneric,
    ReduceWindow,
    Scatter,
    SelectAndScatter,
    Sort,
    Strategy,
)
from vkore_jax.program import Program
from vkore_jax.sim.contract import BITS, VALUES, Tolerance, accumulate, nan_open

# ---------------------------------------------------------------------- gather, scatter


def gather_case(
    id: str,
    operand: Sequence[int],
    indices: np.ndarray,
    slice_sizes: Sequence[int],
    *,
    offset: Sequence[int] = (),
    collapsed: Sequence[int] = (),
    operand_batch: Sequence[int] = (),
    index_batch: Sequence[int] = (),
    start: Sequence[int] = (0,),
) -> SimCase:
    """Gather with the index vector on the last axis, as JAX writes it."""
    batch = list(indices.shape[:-1])
    window = [
        s for i, s in enumerate(slice_sizes) if i not in (*collapsed, *operand_batch)
    ]
    rank = len(batch) + len(window)
    out = [window.pop(0) if i in offset else batch.pop(0) for i in range(rank)]

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, at = b.arg(F32, operand), b.arg(I32, indices.shape)
        b.emit(
            Gather(
                b.result(F32, out), x, at, tuple(offset), tuple(collapsed),
                tuple(operand_batch), tuple(index_batch), tuple(start),
                indices.ndim - 1, tuple(slice_sizes),
            )
        )  # fmt: skip
        return b.build()

    def reference(x: Any, at: Any) -> Any:
        import jax

        numbers = jax.lax.GatherDimensionNumbers(
            tuple(offset), tuple(collapsed), tuple(start), tuple(operand_batch),
            tuple(index_batch),
        )  # fmt: skip
        return jax.lax.gather(x, at, numbers, tuple(slice_sizes), mode="clip")

    return SimCase(
        id=f"gather/{id}",
        build=build,
        inputs=lambda rng: [randoms(rng, F32, operand), indices.astype(np.int32)],
        tolerance=BITS,
        oracle=on_cpu(reference),
    )


def scatter_case(
    id: str,
    operand: Sequence[int],
    indices: np.ndarray,
    updates: Sequence[int],
    *,
    window: Sequence[int] = (),
    inserted: Sequence[int] = (),
    operand_batch: Sequence[int] = (),
    index_batch: Sequence[int] = (),
    dims: Sequence[int] = (0,),
    op: str = "add",
    dtype: DType = F32,
    unique: bool = False,
) -> SimCase:
    """Scatter with the index vector on the last axis; op: jax.lax.scatter_*."""
    combiner = micro(dtype, dtype).out(1) if op == "set" else binary(op, dtype)

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, at, u = (
            b.arg(dtype, operand),
            b.arg(I32, indices.shape),
            b.arg(dtype, updates),
        )
        b.emit(
            Scatter(
                (b.result(dtype, operand),), (x,), at, (u,), tuple(window),
                tuple(inserted), tuple(operand_batch), tuple(index_batch),
                tuple(dims), indices.ndim - 1, unique, False, combiner,
            )
        )  # fmt: skip
        return b.build()

    def reference(x: Any, at: Any, u: Any) -> Any:
        import jax

        numbers = jax.lax.ScatterDimensionNumbers(
            tuple(window), tuple(inserted), tuple(dims), tuple(operand_batch),
            tuple(index_batch),
        )  # fmt: skip
        fn = jax.lax.scatter if op == "set" else getattr(jax.lax, f"scatter_{op}")
        return fn(x, at, u, numbers, mode="drop")

    exact = op != "add" or not dtype.is_float
    return SimCase(
        id=f"scatter/{id}",
        build=build,
        inputs=lambda rng: [
            normals(rng, dtype, operand),
            indices.astype(np.int32),
            normals(rng, dtype, updates),
        ],
        tolerance=VALUES if exact else accumulate(indices.size + 1, 20.0),
        oracle=on_cpu(reference),
    )


def _scatter_argmax(chip: Chip) -> Program:
    """Two operands with one combiner: keep the larger value and its tag."""
    b = ProgramBuilder(chip)
    x, t, at = b.arg(F32, (5,)), b.arg(I32, (5,)), b.arg(I32, (9, 1))
    u, v = b.arg(F32, (9,)), b.arg(I32, (9,))
    m = micro(F32, I32, F32, I32).op("ge", 0, 2)
    m.op("select", 4, 0, 2).op("select", 4, 1, 3)
    b.emit(
        Scatter(
            (b.result(F32, (5,)), b.result(I32, (5,))), (x, t), at, (u, v),
            (), (0,), (), (), (0,), 1, False, False, m.out(5, 6),
        )
    )  # fmt: skip
    return b.build()


def _scatter_argmax_oracle(x: Any, t: Any, at: Any, u: Any, v: Any) -> Any:
    x, t = x.copy(), t.copy()
    for i, a, b in zip(at[:, 0], u, v):
        if 0 <= i < 5 and not x[i] >= a:
            x[i], t[i] = a, b
    return [x, t]


# --------------------------------------------------------------------------------- sort


def sort_case(
    id: str,
    dtype: DType,
    shape: Sequence[int],
    axis: int,
    compare: str,
    *,
    payload: bool = False,
    specials: bool = False,
) -> SimCase:
    """Sort by the first operand; a payload of indices shows stability."""

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        srcs = [b.arg(dtype, shape)]
        types = [dtype, dtype]
        if payload:
            srcs.append(b.arg(I32, shape))
            types += [I32, I32]
        program = micro(*types).op(compare, 0, 1).out()
        dsts = tuple(b.results_of(srcs))
        b.emit(Sort(dsts, tuple(srcs), axis, True, program))
        return b.build()

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        size = int(np.prod(shape))
        x = pool(rng, dtype, size) if specials else normals(rng, dtype, (size,))
        if payload and not specials:
            x = np.round(x.astype(np.float64)).astype(dtype.numpy)
        x = rng.permutation(x).reshape(shape)
        tags = np.arange(size, dtype=np.int32).reshape(shape)
        return [x, tags] if payload else [x]

    def reference(*args: np.ndarray) -> list[np.ndarray]:
        x = args[0]
        key = x
        if specials and dtype.is_float:
            # Widening keeps the order; NaN of FNUZ has the sign bit: it comes first.
            y = x.astype(np.float32) if dtype.bits <= 8 else x
            n = y.view(f"i{y.dtype.itemsize}").astype(np.int64)
            key = np.where(n < 0, n ^ ((1 << (8 * y.dtype.itemsize - 1)) - 1), n)
        if compare.startswith("gt"):
            key = -key.astype(np.float64)
        order = np.argsort(key, axis, kind="stable")
        return [np.take_along_axis(a, order, axis) for a in args]

    return SimCase(
        id=f"sort/{id}",
        build=build,
        inputs=inputs,
        tolerance=BITS,
        oracle=reference,
    )


# ------------------------------------------------------------------------------ windows


def window_case(
    id: str,
    shape: Sequence[int],
    window: Sequence[int],
    op: str,
    init: Any,
    *,
    strides: Sequence[int] | None = None,
    base: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    low: Sequence[int] | None = None,
    high: Sequence[int] | None = None,
    dtype: DType = F32,
) -> SimCase:
    ones, zeros = (1,) * len(shape), (0,) * len(shape)
    strides, base = tuple(strides or ones), tuple(base or ones)
    dilation = tuple(dilation or ones)
    low, high = tuple(low or zeros), tuple(high or zeros)
    out = [
        max(0, ((e - 1) * b + 1 + p + q - ((w - 1) * d + 1)) // s + 1)
        for e, w, s, b, d, p, q in zip(
            shape, window, strides, base, dilation, low, high
        )
    ]

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(dtype, shape)
        start = b.const(np.asarray(init).astype(dtype.numpy), dtype)
        b.emit(
            ReduceWindow(
                (b.result(dtype, out),), (x,), (start,), tuple(window), strides,
                base, dilation, low, high, binary(op, dtype),
            )
        )  # fmt: skip
        return b.build()

    def reference(x: Any) -> Any:
        import jax

        fn = {"add": jax.lax.add, "max": jax.lax.max, "min": jax.lax.min}[op]
        if not window:  # XLA:CPU forgets the initial value of a scalar's only window
            return fn(x, np.asarray(init).astype(dtype.numpy))
        return jax.lax.reduce_window(
            x, np.asarray(init).astype(dtype.numpy), fn, tuple(window), strides,
            list(zip(low, high)), base, dilation,
        )  # fmt: skip

    size = int(np.prod(window))
    return SimCase(
        id=f"reduce_window/{id}",
        build=build,
        inputs=lambda rng: [normals(rng, dtype, shape)],
        tolerance=accumulate(size, 2.0 * size)
        if op == "add" and dtype.is_float
        else VALUES,
        oracle=on_cpu(reference),
    )


def select_and_scatter_case(
    id: str,
    shape: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    ties: bool = False,
) -> SimCase:
    out = [
        (e + p + q - w) // s + 1
        for e, w, s, p, q in zip(shape, window, strides, low, high)
    ]

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, s = b.arg(F32, shape), b.arg(F32, out)
        zero = b.const(np.float32(0))
        b.emit(
            SelectAndScatter(
                b.result(F32, shape), x, s, zero, tuple(window), tuple(strides),
                tuple(low), tuple(high), binary("ge", F32), binary("add", F32),
            )
        )  # fmt: skip
        return b.build()

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        x = normals(rng, F32, shape)
        return [np.round(x) if ties else x, normals(rng, F32, out)]

    def reference(x: np.ndarray, source: np.ndarray) -> list[np.ndarray]:
        """By the book, one window after another (ge: the first of equals stays)."""
        total = np.zeros(x.shape, np.float64)
        for at in np.ndindex(*out):
            best = None
            for w in np.ndindex(*window):
                i = tuple(a * s + v - p for a, s, v, p in zip(at, strides, w, low))
                if all(0 <= j < e for j, e in zip(i, x.shape)) and (
                    best is None or not x[best] >= x[i]
                ):
                    best = i
            assert best is not None
            total[best] += source[at]
        return [total.astype(np.float32)]

    return SimCase(
        id=f"select_and_scatter/{id}",
        build=build,
        inputs=inputs,
        tolerance=accumulate(9, 20.0),
        oracle=reference,
    )


# --------------------------------------------------------------------------- reductions


def _argmin_program() -> MicroProgram:
    """(acc value, acc index, value, index) -> the smaller value, ties to the left."""
    m = micro(F32, I32, F32, I32).op("le", 0, 2)
    return m.op("select", 4, 0, 2).op("select", 4, 1, 3).out(5, 6)


def _generic_argmin(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x, i = b.arg(F32, (3, 7, 5)), b.arg(I32, (3, 7, 5))
    inits = (b.const(np.float32(np.inf)), b.const(np.int32(0)))
    dsts = (b.result(F32, (3, 5)), b.result(I32, (3, 5)))
    b.emit(ReduceGeneric(dsts, (x, i), inits, (1,), _argmin_program()))
    return b.build()


def _generic_argmin_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    x = np.round(normals(rng, F32, (3, 7, 5)))
    i = np.broadcast_to(np.arange(7, dtype=np.int32)[None, :, None], x.shape)
    return [x, i.copy()]


def generic_case(
    id: str, dtype: DType, axes: Sequence[int], op: str, init: Any, oracle: Any
) -> SimCase:
    shape = (4, 6, 5)
    kept = [e for i, e in enumerate(shape) if i not in axes]

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(dtype, shape)
        start = b.const(np.asarray(init).astype(dtype.numpy), dtype)
        b.emit(
            ReduceGeneric(
                (b.result(dtype, kept),), (x,), (start,), tuple(axes), binary(op, dtype)
            )
        )
        return b.build()

    return SimCase(
        id=f"reduce_generic/{id}",
        build=build,
        inputs=lambda rng: [normals(rng, dtype, shape)],
        tolerance=accumulate(120, 150.0) if dtype.is_float and op == "add" else VALUES,
        oracle=oracle,
    )


# -------------------------------------------------------------------------- convolution


def conv_case(
    id: str,
    lhs: Sequence[int],
    rhs: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    low: Sequence[int] | None = None,
    high: Sequence[int] | None = None,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    reversal: Sequence[int] | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    strategy: Strategy = Strategy.BF16X1,
    blocks: tuple[int, int] = (2, 3),
    block_out: Sequence[int] | None = None,
    types: tuple[DType, DType, DType] = (F32, F32, F32),
    wild: bool = False,
) -> SimCase:
    """Channels-last convolution, lhs (n, *spatial, c), rhs (*window, c/g, o).

    Some weights of a wild one are not finite.
    """
    rank = len(lhs) - 2
    ones, zeros = (1,) * rank, (0,) * rank
    strides, low, high = strides or ones, low or zeros, high or zeros
    ldil, rdil, flips = lhs_dilation or ones, rhs_dilation or ones, reversal or zeros
    spatial = [
        max(
            0,
            ((e - 1) * a + 1 + p + q - ((w - 1) * d + 1)) // s + 1 if e else 0,
        )
        for e, w, s, p, q, a, d in zip(
            lhs[1:-1], rhs[:-2], strides, low, high, ldil, rdil
        )
    ]
    out = (lhs[0] // batch_groups, *spatial, rhs[-1])
    spatial_blocks = [max(1, n) for n in spatial]
    tl, tr, to = types

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, w = b.arg(tl, lhs), b.arg(tr, rhs)
        b.emit(
            Conv(
                b.result(to, out), x, w, tuple(strides), tuple(low), tuple(high),
                tuple(ldil), tuple(rdil), tuple(flips), groups, batch_groups,
                strategy, blocks[0], tuple(block_out or spatial_blocks), blocks[1],
            )
        )  # fmt: skip
        return b.build()

    def reference(x: np.ndarray, w: np.ndarray) -> Any:
        import ml_dtypes

        if strategy is Strategy.BF16X1:
            x, w = (a.astype(ml_dtypes.bfloat16).astype(np.float64) for a in (x, w))
        else:
            x, w = x.astype(np.float64), w.astype(np.float64)
        axes = tuple(i for i, f in enumerate(flips) if f)
        # Zeros that surround and separate elements are multiplied; XLA leaves them out.
        sizes = [(n - 1) * d + 1 if n else 0 for n, d in zip(x.shape[1:-1], ldil)]
        whole = [n + max(p, 0) + max(q, 0) for n, p, q in zip(sizes, low, high)]
        wide = np.zeros((x.shape[0], *whole, x.shape[-1]))
        inner = (
            slice(max(p, 0), max(p, 0) + n, d) for p, n, d in zip(low, sizes, ldil)
        )
        wide[(slice(None), *inner)] = x
        ends = [(max(-p, 0), n - max(-q, 0)) for p, q, n in zip(low, high, whole)]
        x = wide[(slice(None), *(slice(a, max(a, b)) for a, b in ends))]
        return on_cpu(call)(x, np.flip(w, axes) if axes else w)

    def call(x: Any, w: Any) -> Any:
        import jax

        letters = "DHW"[3 - rank :]
        numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
        y = jax.lax.conv_general_dilated(
            x, w, tuple(strides), "VALID", ones, tuple(rdil),
            numbers, groups, batch_groups, precision="highest",
        )  # fmt: skip
        return y.astype(to.numpy)

    def inputs(rng: np.random.Generator) -> Arrays:
        x, w = normals(rng, tl, lhs), normals(rng, tr, rhs)
        if wild:
            w[..., 0, 0], w[(0,) * (rank + 1) + (1,)] = np.inf, np.nan
            w[(-1,) * (rank + 1) + (2,)] = -np.inf
            x[(0,) * (rank + 1) + (1,)] = np.inf
        return [x, w]

    terms = int(np.prod(rhs[:-1]))
    exact = not tl.is_float
    loose = replace(
        accumulate(6 * terms, 2.0 * terms),
        nan_open=wild and nan_open(ldil, batch_groups),
    )
    return SimCase(
        id=f"conv/{id}",
        build=build,
        inputs=inputs,
        tolerance=VALUES if exact else loose,
        # XLA makes groups by zeros in a larger window.
        oracle=None if wild and groups > 1 else reference,
        oracle_tolerance=None
        if exact
        else Tolerance(
            accumulate(1, 0).bound,
            terms=6 * terms + (64 if strategy is not Strategy.BF16X1 else 0),
            magnitude=2.0 * terms,
        ),
    )


WILD: Mapping[str, Mapping[str, Any]] = {
    "padded": {},
    "padded-x3": {"strategy": Strategy.BF16X3},
    "padded-reversed": {"reversal": (1, 0)},
    "padded-f64": {"strategy": Strategy.LANES, "types": (F64, F64, F64)},
    "padded-depthwise": {"rhs": (3, 2, 1, 3), "groups": 3},
    "padded-groups": {"lhs": (2, 4, 5, 4), "rhs": (3, 2, 2, 4), "groups": 2},
    "batch-groups": {"batch_groups": 2, "low": (0, 0), "high": (0, 0)},
    "dilated-batch-groups": {"batch_groups": 2, "lhs_dilation": (2, 3)},
    "dilated": {"lhs_dilation": (2, 3)},
    "dilated-reversed": {"lhs_dilation": (1, 2), "reversal": (1, 0), "high": (1, -1)},
    "dilated-x6": {"lhs_dilation": (2, 3), "strategy": Strategy.BF16X6},
    "dilated-bf16": {"lhs_dilation": (2, 1), "strategy": Strategy.LANES,
                     "types": (BF16, BF16, F32)},
}  # fmt: skip
"""Convolutions with weights that are not finite: they meet padding and gaps."""

CASES = [
    gather_case(
        "rows", (7, 4), np.array([[3], [0], [6], [9], [-2]]), (1, 4),
        offset=(1,), collapsed=(0,),
    ),
    gather_case(
        "rows-2d-index", (7, 4), np.array([[[3], [0]], [[6], [1]]]), (1, 4),
        offset=(2,), collapsed=(0,),
    ),
    gather_case(
        "windows", (7, 6), np.array([[1, 2], [6, 5], [-1, 0]]), (3, 2),
        offset=(1, 2), start=(0, 1),
    ),
    gather_case(
        "windows-swapped-map", (7, 6), np.array([[1, 2], [5, 6]]), (3, 2),
        offset=(0, 2), start=(1, 0),
    ),
    gather_case(
        "elements", (7, 6), np.array([[1, 2], [5, 3], [6, 5], [99, 99]]), (1, 1),
        collapsed=(0, 1), start=(0, 1),
    ),
    gather_case("one-element", (7,), np.array([5]), (1,), collapsed=(0,)),
    gather_case(
        "batched", (3, 5, 4), np.array([[[1], [4]], [[0], [0]], [[2], [7]]]),
        (1, 1, 4), offset=(2,), collapsed=(1,), operand_batch=(0,), index_batch=(0,),
        start=(1,),
    ),
    scatter_case(
        "add-duplicates", (6, 4), np.array([[1], [3], [1], [1], [9], [-1], [0]]),
        (7, 4), window=(1,), inserted=(0,),
    ),
    scatter_case(
        "add-i32", (6,), np.array([[1], [3], [1], [5], [6]]), (5,), inserted=(0,),
        dtype=I32,
    ),
    scatter_case(
        "set-last-wins-unique", (6, 4), np.array([[4], [0], [2]]), (3, 4),
        window=(1,), inserted=(0,), op="set", unique=True,
    ),
    scatter_case(
        "max", (6,), np.array([[1], [1], [1], [5]]), (4,), inserted=(0,), op="max",
    ),
    scatter_case(
        "min-bf16", (6,), np.array([[1], [1], [2], [5]]), (4,), inserted=(0,),
        op="min", dtype=BF16,
    ),
    scatter_case("one-element", (6,), np.array([4]), (), inserted=(0,)),
    scatter_case(
        "mul", (6,), np.array([[1], [1], [2]]), (3,), inserted=(0,), op="mul",
        dtype=I32,
    ),
    scatter_case(
        "windows-partly-outside", (7, 6), np.array([[1, 2], [6, 5], [4, 4], [-1, 0]]),
        (4, 3, 2), window=(1, 2), dims=(0, 1),
    ),
    scatter_case(
        "window-leading", (5, 6), np.array([[2], [4], [2]]), (5, 3), window=(0,),
        inserted=(1,), dims=(1,),
    ),
    scatter_case(
        "batched", (3, 5), np.array([[[1], [1]], [[0], [4]], [[2], [7]]]), (3, 2),
        inserted=(1,), operand_batch=(0,), index_batch=(0,), dims=(1,),
    ),
    SimCase(
        id="scatter/two-operands",
        build=_scatter_argmax,
        inputs=lambda rng: [
            normals(rng, F32, (5,)),
            np.full(5, -1, np.int32),
            np.array([[0], [1], [0], [4], [4], [7], [1], [0], [4]], np.int32),
            normals(rng, F32, (9,)),
            np.arange(9, dtype=np.int32),
        ],
        tolerance=BITS,
        oracle=_scatter_argmax_oracle,
    ),
    sort_case("f32", F32, (37,), 0, "lt"),
    sort_case("f32-total-order", F32, (40,), 0, "lt_total", specials=True),
    *(
        sort_case(f"{t}-total-order", dtypes.by_short(t), (20,), 0, "lt_total",
                  specials=True, payload=True)
        for t in ("f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E8M0FNU", "f4E2M1FN")
    ),
    sort_case("bf16-total-order", BF16, (40,), 0, "lt_total", specials=True),
    sort_case("i32-descending", I32, (3, 17), 1, "gt", payload=True),
    sort_case("stable-payload", F32, (5, 33), 1, "lt", payload=True),
    sort_case("axis0", I8, (33, 4), 0, "lt", payload=True),
    sort_case("i64", I64, (2, 9, 3), 1, "lt"),
    sort_case("large", F32, (2, 3000), 1, "lt", payload=True),
    sort_case("one", F32, (4, 1), 1, "lt"),
    sort_case("empty", F32, (0, 3), 0, "lt"),
    window_case("scalar", (), (), "add", 2.5),
    window_case("sum-pool", (2, 7, 6, 3), (1, 2, 2, 1), "add", 0.0,
                strides=(1, 2, 2, 1)),
    window_case("max-pool-padded", (2, 7, 6, 3), (1, 3, 3, 1), "max", -np.inf,
                strides=(1, 2, 2, 1), low=(0, 1, 1, 0), high=(0, 1, 1, 0)),
    window_case("min-dilated", (9, 8), (2, 3), "min", np.inf, dilation=(3, 2)),
    window_case("base-dilated", (5, 4), (2, 2), "add", 0.0, base=(2, 3),
                low=(1, 0), high=(0, 2)),
    window_case("cumsum", (3, 20), (1, 20), "add", 0.0, low=(0, 19)),
    window_case("cumsum-i32", (3, 20), (1, 20), "add", 0, low=(0, 19), dtype=I32),
    window_case("negative-padding", (9,), (2,), "add", 0.0, low=(-1,), high=(-2,)),
    select_and_scatter_case("scalar", (), (), (), (), ()),
    select_and_scatter_case("max-pool", (2, 6, 6, 2), (1, 2, 2, 1), (1, 2, 2, 1),
                            (0, 0, 0, 0), (0, 0, 0, 0)),
    select_and_scatter_case("overlapping", (2, 7, 7, 2), (1, 3, 3, 1), (1, 2, 2, 1),
                            (0, 1, 1, 0), (0, 1, 1, 0)),
    select_and_scatter_case("ties", (1, 8), (1, 3), (1, 2), (0, 1), (0, 0), True),
    SimCase(
        id="reduce_generic/argmin",
        build=_generic_argmin,
        inputs=_generic_argmin_inputs,
        tolerance=BITS,
        oracle=lambda x, i: [x.min(1), x.argmin(1).astype(np.int32)],
    ),
    generic_case("add-f32", F32, (0, 2), "add", 1.5,
                 lambda x: [(x.astype(np.float64).sum((0, 2)) + 1.5).astype("f4")]),
    generic_case("add-i32-all", I32, (0, 1, 2), "add", 7,
                 lambda x: [x.sum(dtype=np.int32) + np.int32(7)]),
    generic_case("xor-i32", I32, (1,), "xor", 0,
                 lambda x: [np.bitwise_xor.reduce(x, 1)]),
    generic_case("and-bool", BOOL, (0,), "and", True, lambda x: [x.all(0)]),
    conv_case("1d", (3, 11, 4), (3, 4, 5)),
    conv_case("same", (3, 7, 6, 4), (3, 3, 4, 5), low=(1, 1), high=(1, 1)),
    conv_case("strided", (2, 8, 9, 3), (3, 2, 3, 4), strides=(2, 3)),
    conv_case("dilated", (2, 9, 9, 2), (3, 3, 2, 4), rhs_dilation=(2, 2)),
    conv_case("transposed", (2, 4, 5, 3), (3, 3, 3, 4), lhs_dilation=(2, 2),
              low=(2, 1), high=(1, 2), reversal=(1, 1)),
    conv_case("negative-padding", (2, 8, 8, 3), (3, 3, 3, 4), low=(-1, 1),
              high=(2, -2)),
    conv_case("feature-groups", (2, 5, 5, 6), (3, 3, 2, 9), groups=3),
    conv_case("depthwise", (2, 6, 6, 4), (3, 3, 1, 4), groups=4),
    conv_case("batch-groups", (6, 5, 5, 3), (3, 3, 3, 4), batch_groups=2),
    conv_case("rows", (3, 9, 6, 4), (3, 3, 4, 5), low=(1, 1), high=(1, 1),
              block_out=(2, 6)),
    conv_case("tiles", (2, 11, 9, 3), (3, 2, 3, 4), strides=(2, 1),
              rhs_dilation=(1, 2), block_out=(3, 4)),
    conv_case("tiles-transposed", (2, 4, 5, 3), (3, 3, 3, 4), lhs_dilation=(2, 3),
              low=(2, 1), high=(1, 2), block_out=(3, 5)),
    conv_case("tiles-groups", (2, 7, 5, 6), (3, 3, 2, 9), groups=3,
              block_out=(2, 2)),
    conv_case("tiles-batch-groups", (6, 5, 5, 3), (3, 3, 3, 4), batch_groups=2,
              block_out=(1, 2)),
    conv_case("3d", (2, 4, 5, 4, 2), (2, 2, 2, 2, 3)),
    conv_case("x3", (2, 6, 6, 3), (3, 3, 3, 4), strategy=Strategy.BF16X3),
    conv_case("x6", (2, 6, 6, 3), (3, 3, 3, 4), strategy=Strategy.BF16X6),
    conv_case("lanes", (2, 6, 6, 3), (3, 3, 3, 4), strategy=Strategy.LANES),
    conv_case("int8", (2, 6, 6, 3), (3, 3, 3, 4), strategy=Strategy.INT8,
              types=(I8, I8, I32)),
    conv_case("bf16-out", (2, 6, 6, 3), (3, 3, 3, 4), types=(BF16, BF16, BF16)),
    *(
        conv_case(f"wild-{name}", wild=True,
                  **{"lhs": (2, 4, 5, 3), "rhs": (3, 2, 3, 4), "low": (2, 1),
                     "high": (1, 2), **more})
        for name, more in WILD.items()
    ),
    conv_case("no-spatial", (5, 6), (6, 4)),
]  # fmt: skip
