"""Every micro-op in every kind of type, on corner values, in ragged blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.sim.builder import MicroBuilder, ProgramBuilder, micro, nary
from tests.sim.case import SimCase, on_cpu, pool, randoms, specials
from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.dtypes import (
    BF16,
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from vkore_jax.isa import MicroProgram
from vkore_jax.program import Program
from vkore_jax.sim.contract import (
    BITS,
    TRANSCENDENTAL_ULPS,
    VALUES,
    Bound,
    Tolerance,
    chain,
    transcendental,
)

I4, U4 = dtypes.by_short("i4"), dtypes.by_short("ui4")
F8E5, F8E4 = dtypes.by_short("f8E5M2"), dtypes.by_short("f8E4M3FN")
SIGNED = (I8, I32, I64)
INTS = (*SIGNED, U8, U32, U64)
FLOATS = (F32, BF16, F16, F64)
NUMBERS = (*INTS, *FLOATS, C64)


def vec_program(
    program: MicroProgram, size: int, block: int = 37
) -> Callable[[Chip], Program]:
    """Return the factory of a one-axis group that runs a micro-program."""

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        args = [b.arg(t, (size,)) for t in program.inputs]
        g = b.group([(size, block)])
        tiles = [g.load(a, (0,), slots=2) for a in args]
        outs = g.vec(program, tiles, shape=(size,), axes=(0,))
        outs = outs if isinstance(outs, tuple) else (outs,)
        for t, tile in zip(program.output_types(), outs):
            g.store(b.result(t, (size,)), tile)
        return b.build()

    return build


def vec_case(
    id: str,
    program: MicroProgram,
    inputs: Callable[[np.random.Generator], list[np.ndarray]],
    tolerance: Tolerance = VALUES,
    oracle: Any = None,
    oracle_tolerance: Tolerance | None = None,
) -> SimCase:
    size = inputs(np.random.default_rng(0))[0].size if program.inputs else 100
    return SimCase(
        id=f"micro/{id}",
        build=vec_program(program, size),
        inputs=inputs,
        tolerance=tolerance,
        oracle=oracle,
        oracle_tolerance=oracle_tolerance,
    )


def pairs(dtype: DType, arity: int = 2) -> Callable[..., list[np.ndarray]]:
    """All pairs of corner values (at most 24 of them), then random values."""

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        corners = specials(dtype)
        if arity == 1:
            return [np.concatenate([corners, randoms(rng, dtype, (150,))])]
        grid = np.meshgrid(*[np.arange(min(24, len(corners)))] * 2, indexing="ij")
        rest = [randoms(rng, dtype, (100,)) for _ in range(2)]
        return [np.concatenate([corners[g.ravel()], r]) for g, r in zip(grid, rest)]

    return inputs


def lax(name: str) -> Any:
    """Return an oracle that calls a function of jax.lax by name."""

    def call(*args: Any) -> Any:
        import jax

        return getattr(jax.lax, name)(*args)

    return on_cpu(call)


def total(compare: Callable[[Any, Any], Any], width: int) -> Any:
    def key(x: np.ndarray) -> np.ndarray:
        n = x.view(f"i{width}").astype(np.int64)
        return np.where(n < 0, n ^ ((1 << (8 * width - 1)) - 1), n)

    return lambda a, b: [compare(key(a), key(b))]


def _row(
    name: str, dtype: DType, oracle: Any, tolerance: Tolerance = VALUES, arity: int = 2
) -> SimCase:
    program = nary(name, *[dtype] * arity)
    return vec_case(f"{name}-{dtype}", program, pairs(dtype, arity), tolerance, oracle)


# Two-operand arithmetic with a lax oracle: op, lax name, types.
_BINARY: tuple[tuple[str, str, Sequence[DType]], ...] = (
    ("add", "add", (*NUMBERS, I16, U16)),
    ("sub", "sub", NUMBERS),
    ("mul", "mul", (*INTS, *FLOATS, I16)),
    ("div", "div", (*INTS, *FLOATS)),
    ("rem", "rem", (*INTS, *FLOATS)),
    ("max", "max", (*INTS, *FLOATS)),
    ("min", "min", (*INTS, *FLOATS)),
    ("and", "bitwise_and", (BOOL, *INTS)),
    ("or", "bitwise_or", (BOOL, *INTS)),
    ("xor", "bitwise_xor", (BOOL, *INTS)),
    ("shl", "shift_left", INTS),
    ("shr_a", "shift_right_arithmetic", INTS),
    ("shr_l", "shift_right_logical", INTS),
    ("eq", "eq", (BOOL, I32, U32, F32, BF16, F16, F64, C64)),
    ("ne", "ne", (BOOL, I32, U32, F32, BF16, F16, F64, C64)),
    ("lt", "lt", (BOOL, *INTS, *FLOATS)),
    ("le", "le", (I32, U32, F32, BF16)),
    ("gt", "gt", (I32, U32, F32, BF16)),
    ("ge", "ge", (I32, U32, F32, BF16)),
)

# One-operand operations that are exact or correctly rounded.
_UNARY: tuple[tuple[str, str, Sequence[DType]], ...] = (
    ("neg", "neg", NUMBERS),
    ("abs", "abs", (*SIGNED, *FLOATS)),
    ("sign", "sign", (*SIGNED, *FLOATS)),
    ("not", "bitwise_not", (BOOL, *INTS)),
    ("ceil", "ceil", FLOATS),
    ("floor", "floor", FLOATS),
    ("is_finite", "is_finite", FLOATS),
    ("popcnt", "population_count", INTS),
    ("clz", "clz", INTS),
    ("sqrt", "sqrt", (F32, BF16, F64)),
)

_TRANSCENDENTAL = (
    *("exp", "expm1", "log", "log1p", "logistic", "tanh"),
    *("tan", "sin", "cos", "rsqrt", "cbrt"),
)


def _moderate(rng: np.random.Generator, dtype: DType) -> list[np.ndarray]:
    return [np.concatenate([pool(rng, dtype, 22), randoms(rng, dtype, (200,), 2.0)])]


def _positive(rng: np.random.Generator, dtype: DType) -> list[np.ndarray]:
    """Bases and exponents: positive finite, plus the classic corner pairs."""
    x = np.abs(randoms(rng, dtype, (100,))) + 0.01
    y = randoms(rng, dtype, (100,))
    corner_x = [0.0, 0.0, 1.0, -1.0, -2.0, -2.0, np.inf, np.inf, -np.inf, np.nan, 1.0]
    corner_y = [0.0, 2.0, np.nan, 3.0, 3.0, 0.5, 0.5, -1.0, 3.0, 0.0, np.inf]
    return [
        np.concatenate([np.array(c), a]).astype(dtype.numpy)
        for c, a in ((corner_x, x), (corner_y, y))
    ]


def _complex_plain(rng: np.random.Generator, dtype: DType) -> list[np.ndarray]:
    z = rng.standard_normal(120) + 1j * rng.standard_normal(120)
    return [z.astype(dtype.numpy)]


def _two_complex(dtype: DType) -> Callable[..., list[np.ndarray]]:
    return lambda rng: [_complex_plain(rng, dtype)[0] for _ in range(2)]


def _moved_tolerance(name: str) -> Tolerance:
    return BITS if name in ("neg", "abs") else VALUES


def _int_pow(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    def one(a: int, b: int) -> int:
        if b < 0:
            return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        return pow(a, b, 1 << 32)

    out = [one(int(a), int(b)) & 0xFFFFFFFF for a, b in zip(x, y)]
    return [np.array(out, np.uint32).view(np.int32)]


def _chain(m: MicroBuilder) -> MicroProgram:
    """A gelu-like chain: 0.5 x (1 + tanh(c (x + 0.044715 x^3)))."""
    m.op("mul", 0, 0).op("mul", 1, 0).imm(F32, 0.044715).op("mul", 2, 3)
    m.op("add", 0, 4).imm(F32, 0.7978845608).op("mul", 5, 6).op("tanh", 7)
    return (
        m.imm(F32, 1.0)
        .op("add", 8, 9)
        .op("mul", 0, 10)
        .imm(F32, 0.5)
        .op("mul", 11, 12)
        .out()
    )


def _gelu(x: np.ndarray) -> list[np.ndarray]:
    x64 = x.astype(np.float64)
    y = 0.5 * x64 * (1 + np.tanh(0.7978845608 * (x64 + 0.044715 * x64**3)))
    return [y.astype(np.float32)]


_CONVERTED = (
    *(BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64),
    *(C64, C128, I4, U4, F8E5, F8E4),
)


def _convert(src: DType) -> SimCase:
    targets = [t for t in _CONVERTED if src.kind != "c" or t.kind in "fc"]
    if src in (F8E5, F8E4, I4, U4):
        targets = [F32, I32, BOOL, BF16, F16]
    m = micro(src)
    for t in targets:
        m.op("convert", 0, dtype=t)

    def jax_convert(x: Any) -> Any:
        import jax

        part = jax.lax.real(x) if src.kind == "c" else x
        return [
            jax.lax.convert_element_type(x if t.kind == "c" else part, t.numpy)
            for t in targets
        ]

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        x = pairs(src, 1)(rng)[0]
        if src.kind == "c":
            return [np.real(x).astype(x.dtype)]
        if src.kind == "f" and src.bits >= 32:
            ties = np.array([1.00390625, 2049.0, 2051.0, 1e5, -3e9, 3e9, 1e20, 300.5])
            return [np.concatenate([x, ties.astype(src.numpy)])]
        return [x]

    return vec_case(
        f"convert-{src}",
        m.out(*range(1, 1 + len(targets))),
        inputs,
        VALUES,
        on_cpu(jax_convert),
    )


def _round(name: str, method: str, dtype: DType) -> SimCase:
    def call(x: Any) -> Any:
        import jax

        return jax.lax.round(x, getattr(jax.lax.RoundingMethod, method))

    return _row(name, dtype, on_cpu(call), arity=1)


def _reduce_precision(dtype: DType, exponent: int, mantissa: int) -> SimCase:
    def call(x: Any) -> Any:
        import jax

        return jax.lax.reduce_precision(x, exponent, mantissa)

    program = (
        micro(dtype).op("reduce_precision", 0, imm=bytes((exponent, mantissa))).out()
    )
    return vec_case(
        f"reduce_precision-{dtype}-e{exponent}m{mantissa}",
        program,
        lambda rng: _moderate(rng, dtype),
        VALUES,
        on_cpu(call),
    )


def _select_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    x = pool(rng, F32, 100)
    x[5:8] = np.array([0x7FC12345, 0xFF800001, 0x00000001], np.uint32).view(np.float32)
    return [rng.random(100) < 0.5, x, pool(rng, F32, 100)[::-1].copy()]


def _clamp(dtype: DType) -> SimCase:
    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        a, b = (randoms(rng, dtype, (100,)) for _ in range(2))
        return [np.minimum(a, b), pool(rng, dtype, 100), np.maximum(a, b)]

    return vec_case(
        f"clamp-{dtype}", nary("clamp", *[dtype] * 3), inputs, VALUES, lax("clamp")
    )


def _constant(dtype: DType, value: Any) -> SimCase:
    return vec_case(
        f"imm-{dtype}",
        micro().imm(dtype, value).out(),
        lambda rng: [],
        BITS,
        lambda: [np.full(100, np.asarray(value).astype(dtype.numpy), dtype.numpy)],
    )


def _iota(dtype: DType) -> SimCase:
    return vec_case(
        f"iota-{dtype}",
        micro().iota(dtype, 0).out(),
        lambda rng: [],
        VALUES,
        lambda: [np.arange(100).astype(dtype.numpy)],
    )


def _cases() -> list[SimCase]:
    cases = [_row(name, t, lax(fn)) for name, fn, types in _BINARY for t in types]
    cases += [
        _row(name, t, lax(fn), _moved_tolerance(name), arity=1)
        for name, fn, types in _UNARY
        for t in types
    ]
    cases += [
        _row("add", BOOL, lambda a, b: [a | b]),
        _row("mul", BOOL, lambda a, b: [a & b]),
        _row("max", BOOL, lambda a, b: [a | b]),
        _row("min", BOOL, lambda a, b: [a & b]),
        _row("add", F8E4, lax("add")),
        _row("mul", F8E5, lax("mul")),
        _row("add", I4, lambda a, b: [(a.astype(np.int8) + b).astype(a.dtype)]),
        _row("mul", U4, lambda a, b: [(a.astype(np.uint8) * b).astype(a.dtype)]),
        _round("round_even", "TO_NEAREST_EVEN", F32),
        _round("round_even", "TO_NEAREST_EVEN", BF16),
        _round("round_away", "AWAY_FROM_ZERO", F32),
        _round("round_away", "AWAY_FROM_ZERO", F64),
        _reduce_precision(F32, 8, 7),
        _reduce_precision(F32, 5, 10),
        _reduce_precision(F32, 4, 3),
        _reduce_precision(F64, 8, 23),
        _reduce_precision(BF16, 5, 3),
        vec_case(
            "pow-i32",
            nary("pow", I32, I32),
            lambda rng: [
                np.array([2, 0, 1, -1, -1, 3, 0, -2, 7, 0], np.int32),
                np.array([-1, -1, -2, -3, -2, 3, 0, 31, 12, 5], np.int32),
            ],
            VALUES,
            _int_pow,
        ),
        vec_case(
            "select-f32-nan-payloads",
            nary("select", BOOL, F32, F32),
            _select_inputs,
            BITS,
            lambda p, a, b: [np.where(p, a.view("u4"), b.view("u4")).view("f4")],
        ),
        vec_case(
            "bitcast",
            micro(F32)
            .op("bitcast", 0, dtype=U32)
            .op("bitcast", 0, dtype=I32)
            .out(1, 2),
            lambda rng: _select_inputs(rng)[1:2],
            BITS,
            lambda x: [x.view(np.uint32), x.view(np.int32)],
        ),
        vec_case(
            "complex-parts",
            micro(F32, F32)
            .op("complex", 0, 1, dtype=C64)
            .op("real", 2, dtype=F32)
            .op("imag", 2, dtype=F32)
            .out(2, 3, 4),
            pairs(F32),
            VALUES,
            lambda a, b: [_complex(a, b), a, b],
        ),
        vec_case(
            "abs-complex<f32>",
            nary("abs", C64, dtype=F32),
            lambda rng: _complex_plain(rng, C64),
            Tolerance(Bound.ULP, ulps=4),
            lax("abs"),
        ),
        vec_case(
            "gelu-chain",
            _chain(micro(F32)),
            lambda rng: [randoms(rng, F32, (200,), 0.5)],
            chain(13, 8.0),
            _gelu,
        ),
        vec_case(
            "subnormals-flush",
            nary("mul", F32, F32),
            lambda rng: [
                np.array([1e-40, -1e-40, 1.5e-38, 1e-20, -1e-20], np.float32),
                np.array([1.0, 1.0, 0.5, 1e-20, 1e-20], np.float32),
            ],
            VALUES,
            lax("mul"),
        ),
    ]
    cases += [_clamp(t) for t in (I32, U8, F32, BF16)]
    cases += [_constant(F32, 1.25), _constant(BF16, -3.0), _constant(I64, -5)]
    cases += [_constant(BOOL, True), _constant(C64, 1 - 2j)]
    cases += [_iota(t) for t in (I32, U8, F32, BF16, C64, I64)]
    cases += [_convert(t) for t in _CONVERTED]
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        for t in (F32, F64, F16, BF16):
            fn = {"eq": np.equal, "ne": np.not_equal, "lt": np.less}.get(op) or {
                "le": np.less_equal,
                "gt": np.greater,
                "ge": np.greater_equal,
            }[op]
            if t in (F32, BF16) or op == "lt":
                cases.append(_row(f"{op}_total", t, total(fn, t.itemsize)))
    for op in _TRANSCENDENTAL:
        for t in FLOATS:
            cases.append(
                vec_case(
                    f"{op}-{t}",
                    nary(op, t),
                    lambda rng, t=t: _moderate(rng, t),
                    transcendental(op, t),
                    lax(op),
                    # JAX's CPU client computes some of them in the 16-bit type.
                    Tolerance(Bound.ULP, ulps=2) if t.bits == 16 else None,
                )
            )
    cases += [
        vec_case(
            f"{op}-{C64}",
            nary(op, C64),
            lambda rng: _complex_plain(rng, C64),
            transcendental(op if op != "sqrt" else "rsqrt", C64),
            lax(op),
        )
        for op in (
            "exp",
            "log",
            "log1p",
            "expm1",
            "tanh",
            "sin",
            "cos",
            "tan",
            "sqrt",
            "rsqrt",
            "logistic",
        )
    ]
    for op in ("pow", "atan2"):
        cases += [
            vec_case(
                f"{op}-{t}",
                nary(op, t, t),
                (lambda rng, t=t: _positive(rng, t)) if op == "pow" else pairs(t),
                transcendental(op, t),
                lax(op),
            )
            for t in (F32, BF16, F64)
        ]
    cases += [
        vec_case(
            f"{op}-{C64}",
            nary(op, C64, C64),
            _two_complex(C64),
            transcendental("pow", C64),
            lax(op),
        )
        for op in ("mul", "div", "pow")
    ]
    cases.append(
        vec_case(
            "sign-complex<f32>",
            nary("sign", C64),
            lambda rng: _complex_plain(rng, C64),
            Tolerance(Bound.ULP, ulps=8),
            lax("sign"),
        )
    )
    return cases


def _complex(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty(a.shape, np.complex64)
    out.real, out.imag = a, b
    return out


assert set(TRANSCENDENTAL_ULPS) >= set(_TRANSCENDENTAL)
CASES = _cases()
