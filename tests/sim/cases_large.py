"""From 4,096 elements on XLA:CPU computes otherwise: reductions and their neighbours.

NaN, infinities, zeros of both signs; what stands beside a reduction; windows with an
initial value, padding and dilation; algebra that must not be simplified; subnormals.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.sim.builder import ProgramBuilder, binary, micro, nary, unary
from tests.sim.case import SimCase, normals
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, U8, DType
from vkore_jax.isa import (
    MicroProgram,
    ReduceGeneric,
    ReduceKind,
    ReduceWindow,
    Sort,
)
from vkore_jax.program import Program
from vkore_jax.sim.contract import BITS, VALUES, Bound, Tolerance, accumulate, chain

Arrays = list[np.ndarray]

# --------------------------------------------------------------------------- reductions


def special(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Return normal values with NaN, infinities and zeros in some rows and columns."""
    x = normals(rng, dtype, shape)
    flat = x.reshape(-1, shape[-1])
    flat[3, 5], flat[4, 6] = np.nan, -np.nan
    flat[7], flat[7, 9] = -np.inf, np.inf
    flat[8], flat[8, -1] = -0.0, 0.0
    flat[9], flat[9, 0] = np.inf, np.nan
    return x


def extreme(a: Any, b: Any) -> Any:
    """Maximum; NumPy does not order zeros."""
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def least(a: Any, b: Any) -> Any:
    return -extreme(-a, -b)


def fold_case(
    kind: ReduceKind, dtype: DType, shape: Sequence[int], axes: Sequence[int]
) -> SimCase:
    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        whole = next((i for i in range(len(shape)) if i not in axes), None)
        cut: list[int | None] = [0 if i == whole else None for i in range(len(shape))]
        g = b.group([] if whole is None else [(shape[whole], 8)])
        outs = g.reduce(g.load(b.arg(dtype, shape), cut), kind, axes)
        for tile in outs if isinstance(outs, tuple) else (outs,):
            g.store(b.result(g.tiles[tile].dtype, g.tiles[tile].shape), tile)
        return b.build()

    def oracle(x: np.ndarray) -> list[np.ndarray]:
        wide = x.astype(np.float64)
        if kind is ReduceKind.ARGMAX or kind is ReduceKind.ARGMIN:
            find = np.argmax if kind is ReduceKind.ARGMAX else np.argmin
            index = find(wide, axes[0], keepdims=True)
            return [np.take_along_axis(x, index, axes[0]), index.astype(np.int32)]
        fold = extreme if kind is ReduceKind.MAX else least
        made = x.astype(np.float64)
        for axis in axes:
            parts = np.split(made, made.shape[axis], axis)
            made = functools.reduce(fold, parts)
        return [made.astype(x.dtype)]

    name = f"{kind.name.lower()}-{dtype}-{'x'.join(map(str, shape))}"
    return SimCase(
        id=f"large/{name}-axes{''.join(map(str, axes))}",
        build=build,
        inputs=lambda rng: [special(rng, dtype, shape)],
        tolerance=chain(4) if kind is ReduceKind.LOGSUMEXP else VALUES,
        oracle=oracle if kind is not ReduceKind.LOGSUMEXP else None,
    )


FOLDS = [
    fold_case(kind, dtype, shape, axes)
    for kind, dtype, shape, axes in (
        (ReduceKind.MAX, F32, (64, 128), (1,)),
        (ReduceKind.MIN, F32, (64, 128), (1,)),
        (ReduceKind.MAX, F32, (64, 128), (0,)),
        (ReduceKind.MIN, F32, (300, 16), (0,)),
        (ReduceKind.MAX, BF16, (64, 100), (0, 1)),
        (ReduceKind.MIN, F32, (16, 20, 24), (1,)),
        (ReduceKind.MAX, F64, (64, 128), (1,)),
        (ReduceKind.MIN, F64, (64, 128), (0,)),
        (ReduceKind.MAX, BF16, (64, 128), (1,)),
        (ReduceKind.MIN, F16, (64, 128), (0,)),
        (ReduceKind.ARGMAX, F32, (64, 128), (1,)),
        (ReduceKind.ARGMIN, BF16, (64, 128), (1,)),
        (ReduceKind.ARGMIN, F32, (64, 128), (0,)),
        (ReduceKind.LOGSUMEXP, F32, (64, 128), (1,)),
    )
]


# ------------------------------------------------------------------ beside a reduction


def beside(
    id: str,
    kind: ReduceKind,
    before: Sequence[MicroProgram] = (),
    after: Sequence[MicroProgram] = (),
    values: Sequence[float] = (),
    tolerance: Tolerance = VALUES,
) -> SimCase:
    """Reduce the rows of f(x), and g of a sum of two rows with 4,096 columns.

    Every operation has a reduction of its own: one with two readers stands alone.
    """

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        for f in before:
            g = b.group([(64, 8)])
            ins = [g.load(b.arg(t, (64, 64)), [0, None]) for t in f.inputs]
            tile = g.vec(f, ins)
            if g.tiles[tile].dtype in (I8, U8):
                tile = g.vec(nary("convert", g.tiles[tile].dtype, dtype=I32), [tile])
            out = g.reduce(tile, ReduceKind.SUM, (1,))
            g.store(b.result(g.tiles[out].dtype, (64, 1)), out)
        for f in after:
            g = b.group([(4096, 256)])
            first, *rest = f.inputs
            total = g.reduce(g.load(b.arg(first, (2, 4096)), [None, 0]), kind, (0,))
            tile = g.vec(
                f, [total, *(g.load(b.arg(t, (1, 4096)), [None, 0]) for t in rest)]
            )
            g.store(b.result(g.tiles[tile].dtype, (1, 4096)), tile)
        return b.build()

    def inputs(rng: np.random.Generator) -> Arrays:
        made = []
        for f in before:
            for t in f.inputs:
                x = np.zeros((64, 64), t.numpy)
                x[:, 5] = np.resize(np.array(values).astype(t.numpy), 64)
                made.append(x)
        for f in after:
            for n, t in enumerate(f.inputs):
                x = np.zeros((1 if n else 2, 4096), t.numpy)
                x[0] = rng.permutation(
                    np.resize(np.array(values).astype(t.numpy), 4096)
                )
                if kind is ReduceKind.MAX and not n:
                    x[1] = x[0]
                made.append(x)
        return made

    return SimCase(id=f"beside/{id}", build=build, inputs=inputs, tolerance=tolerance)


def _ints(t: DType) -> list[MicroProgram]:
    ops = ("add", "sub", "mul", "div", "max", "pow")
    return [*(binary(n, t) for n in ops), *(unary(n, t) for n in ("neg", "abs"))]


SPECIAL = (0.0, -0.0, 1.0, -2.5, 2.7, -0.5, 1.5, 127.6, -300.0, np.nan, np.inf, -np.inf)
BYTES = (0, 1, -1, 100, -128, 127, 77, -76, 3, -3, 5, 64)
BESIDE = [
    beside(
        f"extremes-{t}", ReduceKind.SUM, [binary(n, t) for n in ("max", "min")],
        [binary(n, t) for n in ("max", "min")], SPECIAL,
    )
    for t in (F32, F64)
] + [
    beside(
        "conversions", ReduceKind.SUM,
        [nary("convert", F32, dtype=t) for t in (I8, U8)],
        [nary("convert", t, dtype=u) for t in (F32, F64) for u in (I8, U8)], SPECIAL,
    ),
    beside("negation", ReduceKind.SUM, [], [unary("neg", F32)], SPECIAL),
    beside(
        "exponentials", ReduceKind.SUM, [unary("exp", F32)],
        [unary("exp", F32), unary("expm1", F32), unary("expm1", F64)],
        (88.5, 88.7, 89.0, 709.6, 710.0, -1.0, np.nan), Tolerance(Bound.ULP, ulps=8),
    ),
    beside("i8", ReduceKind.MAX, _ints(I8)[:3], _ints(I8), BYTES),
]  # fmt: skip


# ------------------------------------------------------------------------------ windows


def numpy_window(cmd: ReduceWindow, step: Callable[..., Any], init: Any) -> Any:
    """Return an oracle: what is there, in order, from the initial value."""

    def oracle(x: np.ndarray) -> Arrays:
        out = np.full(cmd.dsts[0].shape, init, x.dtype)
        for at in np.ndindex(*out.shape):
            for w in itertools.product(*map(range, cmd.window)):
                place = [
                    i * s + k * d - p
                    for i, s, k, d, p in zip(
                        at, cmd.strides, w, cmd.window_dilation, cmd.pad_low
                    )
                ]
                found = [divmod(p, b) for p, b in zip(place, cmd.base_dilation)]
                inside = (0 <= q < n for (q, _), n in zip(found, x.shape))
                if all(inside) and not any(r for _, r in found):
                    out[at] = step(out[at], x[tuple(q for q, _ in found)])
        return [out]

    return oracle


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": extreme,
    "min": least,
    "affine": lambda a, b: 2 * a - b,
}


def _combiner(op: str, t: DType) -> MicroProgram:
    if op != "affine":
        return binary(op, t)
    return micro(t, t).op("add", 0, 0).op("sub", 2, 1).out()


def window_case(
    id: str,
    shape: Sequence[int],
    window: Sequence[int],
    op: str = "add",
    init: Any = 5,
    *,
    dtype: DType = I32,
    values: Callable[..., np.ndarray] = normals,
    constant: bool = True,
    **more: Sequence[int],
) -> SimCase:
    ones, zeros = (1,) * len(shape), (0,) * len(shape)
    strides, base = tuple(more.get("strides", ones)), tuple(more.get("base", ones))
    dilation = tuple(more.get("dilation", ones))
    low, high = tuple(more.get("low", zeros)), tuple(more.get("high", zeros))
    out = [
        max(0, ((e - 1) * b + 1 + p + q - ((w - 1) * d + 1)) // s + 1)
        for e, w, s, b, d, p, q in zip(
            shape, window, strides, base, dilation, low, high
        )
    ]

    def command(b: ProgramBuilder) -> ReduceWindow:
        x = b.arg(dtype, shape)
        value = np.asarray(init).astype(dtype.numpy)
        start = b.const(value, dtype) if constant else b.arg(dtype, ())
        return ReduceWindow(
            (b.result(dtype, out),), (x,), (start,), tuple(window), strides, base,
            dilation, low, high, _combiner(op, dtype),
        )  # fmt: skip

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        b.emit(command(b))
        return b.build()

    def inputs(rng: np.random.Generator) -> Arrays:
        x = values(rng, dtype, shape)
        return [x] if constant else [x, np.asarray(init).astype(dtype.numpy)]

    reference = numpy_window(command(ProgramBuilder()), STEPS[op], init)
    terms = int(np.prod(window))
    sums = accumulate(terms + 1, 5.0 * (terms + 1))
    return SimCase(
        id=f"large-window/{id}",
        build=build,
        inputs=inputs,
        tolerance=sums if dtype.is_float and op == "add" else VALUES,
        oracle=lambda x, *_: reference(x),
    )


WINDOWS = [
    window_case("cumulative-from-5", (3, 40), (1, 40), low=(0, 39)),
    window_case("cumulative-from-5-f32", (3, 40), (1, 40), low=(0, 39), dtype=F32),
    window_case("from-an-argument", (3, 40), (1, 40), low=(0, 39), constant=False),
    window_case("product-from-3", (40,), (4,), "mul", 3, low=(3,)),
    window_case("affine", (64, 65), (1, 3), "affine", 7, low=(0, 2), strides=(1, 2)),
    window_case("affine-cumulative", (30,), (30,), "affine", 7, low=(29,)),
    window_case("affine-negative", (9,), (2,), "affine", 7, low=(-1,), base=(2,)),
    window_case("ones-cropped", (5, 4), (1, 1), low=(-1, 0)),
    window_case("ones-cropped-f32", (5, 4), (1, 1), init=0, low=(-1, 0), dtype=F32),
    window_case("ones-padded", (5, 4), (1, 1), low=(2, -1), high=(1, 3), base=(2, 1)),
    window_case("ones-strided", (5, 4), (1, 1), "affine", strides=(2, 3), low=(1, 0)),
    window_case("base", (128, 40), (2, 1), init=0, base=(1, 2), strides=(2, 1),
                dtype=F32),
    window_case("base-max", (128, 40), (2, 1), "max", -np.inf, base=(1, 2),
                strides=(2, 1), dtype=F32, values=special),
    window_case("pool", (64, 128), (2, 2), "max", -np.inf, strides=(2, 2), dtype=F32,
                values=special),
    window_case("pool-min", (64, 128), (2, 2), "min", 0.5, strides=(2, 2), dtype=F32,
                values=special),
    window_case("pool-padded", (63, 127), (2, 2), init=0, strides=(2, 2), dtype=F32,
                low=(1, 0), high=(0, 1)),
    window_case("unit-axis", (1, 80), (1, 2), init=0, low=(-2, 0), high=(5, 0),
                base=(3, 1), dtype=F32),
]  # fmt: skip


def _from_value(dtype: DType, shape: Sequence[int], op: str, init: Any) -> SimCase:
    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, start = b.arg(dtype, shape), b.const(np.asarray(init, dtype.numpy), dtype)
        code = binary(op, dtype)
        b.emit(ReduceGeneric((b.result(dtype, ()),), (x,), (start,), (0, 1), code))
        return b.build()

    return SimCase(
        id=f"large-reduce/{op}-{dtype}-from-{init}",
        build=build,
        inputs=lambda rng: [normals(rng, dtype, shape)],
        tolerance=accumulate(5000, 10000.0) if dtype.is_float else VALUES,
    )


# ------------------------------------------------------------------ algebra, subnormals


def _chain(
    name: str, program: MicroProgram, values: Sequence[float], ulps: float = 8
) -> SimCase:
    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(program.inputs[0], (len(values),))
        (t,) = program.output_types()
        b.elementwise(program, [b.result(t, (len(values),))], [x])
        return b.build()

    return SimCase(
        id=f"algebra/{name}",
        build=build,
        inputs=lambda rng: [np.array(values).astype(program.inputs[0].numpy)],
        tolerance=Tolerance(Bound.ULP, ulps=ulps),
    )


def _steps(*names: str) -> MicroProgram:
    m = micro(F32)
    for name in names:
        m.op(name, m.last)
    return m.out()


def _with(value: float, *steps: str) -> MicroProgram:
    """Apply two-operand operations with one constant as the second operand."""
    m = micro(F32).imm(F32, value)
    last = 0
    for name in steps:
        m.op(name, last, 1)
        last = m.last
    return m.out()


WIDE = (89.0, 1e20, -1e20, 1e-20, 100.0, -100.0, 0.3, -0.7, 3e38, 7.0)
TINY = (1e-40, -1e-40, 1e-38, 1e-45, 0.0, -0.0, 2e-38, 1.0)
ALGEBRA = [
    _chain("log-exp", _steps("exp", "log"), WIDE),
    _chain("sqrt-square", micro(F32).op("mul", 0, 0).op("sqrt", 1).out(), WIDE),
    _chain("log-power", micro(F32).op("pow", 0, 0).op("log", 1).out(), WIDE),
    _chain("log-rsqrt", _steps("rsqrt", "log"), (0.0, -0.0, np.inf, 4.0)),
    _chain("by-three", _with(3.0, "div"), WIDE, 0.25),
    _chain("twice", _with(1e30, "mul", "div", "div"), WIDE, 0.25),
    _chain("add-sub", _with(1e8, "add", "sub"), WIDE, 0.25),
    _chain("mul-mul", _with(1e25, "mul", "mul"), WIDE, 0.25),
    _chain(
        "plus-zero",
        micro(F32).imm(F32, 0.0).op("add", 0, 1).op("rsqrt", 2).out(),
        (0.0, -0.0, 4.0),
    ),
    _chain("eighth", _with(-8.0, "div"), (*WIDE, np.nan, 0.0, -0.0), 0.25),
    *(_chain(f"tiny-{n}", _steps(n), TINY) for n in ("log", "cbrt", "rsqrt", "sqrt")),
    _chain("tiny-pow", micro(F32).imm(F32, 0.0).op("pow", 1, 0).out(), TINY),
    _chain("tiny-atan2", micro(F32).imm(F32, 0.0).op("atan2", 0, 1).out(), TINY),
    _chain("tiny-constant", micro(F32).imm(F32, 1e-40).op("div", 1, 1).out(), TINY),
    _chain("tiny-sign", micro(F32).op("neg", 0).out(), TINY, 0.0),
    _chain("tiny-bool", nary("convert", BF16, dtype=BOOL), TINY),
]


def _never(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x = b.arg(F32, (6, 1))
    b.emit(
        Sort(
            (b.result(F32, (6, 1)),),
            (x,),
            0,
            True,
            micro(F32, F32).op("lt", 1, 1).out(),
        )
    )
    return b.build()


CASES: tuple[SimCase, ...] = (
    *FOLDS,
    *BESIDE,
    *WINDOWS,
    _from_value(I32, (40, 128), "add", 5),
    _from_value(F32, (40, 128), "add", 5.0),
    *ALGEBRA,
    SimCase(
        id="sort/all-equal",
        build=_never,
        inputs=lambda rng: [normals(rng, F32, (6, 1))],
        tolerance=BITS,
        oracle=lambda x: [x],
    ),
)
