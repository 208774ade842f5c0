"""Cases of the import tests: element code, moves, contractions, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def i32(*shape: int, low: int = -9, high: int = 9, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def positive(*shape: int) -> Any:
    return np.abs(f32(*shape)) + np.float32(0.1)


SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 3.5], np.float32)

UNARY: dict[str, tuple[Callable[..., Any], Any]] = {
    "abs": (jnp.abs, f32(7)),
    "neg": (jnp.negative, f32(7)),
    "sign": (jnp.sign, SPECIAL),
    "ceil": (jnp.ceil, SPECIAL),
    "floor": (jnp.floor, SPECIAL),
    "round_even": (jnp.round, SPECIAL),
    "round_away": (lambda x: lax.round(x), SPECIAL),
    "is_finite": (jnp.isfinite, SPECIAL),
    "isnan": (jnp.isnan, SPECIAL),
    "exp": (jnp.exp, f32(7)),
    "expm1": (jnp.expm1, f32(7)),
    "log": (jnp.log, positive(7)),
    "log1p": (jnp.log1p, positive(7)),
    "logistic": (jax.nn.sigmoid, f32(7)),
    "tanh": (jnp.tanh, f32(7)),
    "tan": (jnp.tan, f32(7)),
    "sin": (jnp.sin, f32(7)),
    "cos": (jnp.cos, f32(7)),
    "sqrt": (jnp.sqrt, positive(7)),
    "rsqrt": (lax.rsqrt, positive(7)),
    "cbrt": (jnp.cbrt, f32(7)),
    "erf": (jax.scipy.special.erf, f32(7)),
    "erf_inv": (jax.scipy.special.erfinv, np.tanh(f32(7))),
    "lgamma": (jax.scipy.special.gammaln, positive(7)),
    "digamma": (jax.scipy.special.digamma, positive(7)),
    "asin": (jnp.arcsin, np.tanh(f32(7))),
    "sinh": (jnp.sinh, f32(7)),
    "gelu": (jax.nn.gelu, f32(7)),
    "popcnt": (lax.population_count, i32(7)),
    "clz": (lax.clz, i32(7)),
    "not_int": (jnp.bitwise_not, i32(7)),
    "not_bool": (jnp.logical_not, f32(7) > 0),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 7), f32(7)),
    "neg_uint": (jnp.negative, i32(7).astype(np.uint32)),
    "scalar": (jnp.tanh, np.float32(0.5)),
    "rank8": (jnp.sin, f32(1, 2, 1, 2, 1, 2, 1, 2)),
    "empty": (jnp.sin, f32(0, 3)),
    "bf16_exp": (jnp.exp, f32(9).astype(jnp.bfloat16)),
    "f16_tanh": (jnp.tanh, f32(9).astype(np.float16)),
    "complex_parts": (
        lambda z: (jnp.real(z), jnp.imag(z), jnp.abs(z), jnp.conj(z), z * z),
        (f32(5) + 1j * f32(5, seed=1)).astype(np.complex64),
    ),
    "complex_exp": (jnp.exp, (f32(5) + 1j * f32(5, seed=1)).astype(np.complex64)),
}


def unary_cases() -> Iterator[Case]:
    for name, (f, x) in UNARY.items():
        yield name, f, (x,)


A, B = f32(5, 3), f32(5, 3, seed=1)
INT, INT2 = i32(5, 3), i32(5, 3, seed=1)
U, V = INT.astype(np.uint32), INT2.astype(np.uint32)
P, Q = A > 0, B > 0

BINARY: list[Case] = [
    ("add", jnp.add, (A, B)),
    ("sub", jnp.subtract, (A, B)),
    ("mul", jnp.multiply, (A, B)),
    ("div", jnp.divide, (A, B)),
    ("rem", lax.rem, (A, B)),
    ("pow", jnp.power, (np.abs(A), B)),
    ("atan2", jnp.arctan2, (A, B)),
    ("max_nan", jnp.maximum, (SPECIAL, SPECIAL[::-1].copy())),
    ("min_nan", jnp.minimum, (SPECIAL, SPECIAL[::-1].copy())),
    ("int_add", jnp.add, (INT, INT2)),
    ("int_div", lax.div, (INT, INT2)),
    ("int_rem", lax.rem, (INT, INT2)),
    ("int_floordiv", jnp.floor_divide, (INT, np.where(INT2 == 0, 3, INT2))),
    ("int_pow", lambda x: lax.integer_pow(x, 5), (INT,)),
    ("uint_div", lax.div, (U, V)),
    ("and", jnp.bitwise_and, (INT, INT2)),
    ("or", jnp.bitwise_or, (INT, INT2)),
    ("xor", jnp.bitwise_xor, (INT, INT2)),
    ("bool_and", jnp.logical_and, (P, Q)),
    ("bool_xor", jnp.logical_xor, (P, Q)),
    ("shl", lax.shift_left, (INT, np.abs(INT2))),
    ("shr_a", lax.shift_right_arithmetic, (INT, np.abs(INT2))),
    ("shr_l", lax.shift_right_logical, (INT, np.abs(INT2))),
    ("shift_over", lax.shift_left, (INT, np.full_like(INT, 40))),
    ("uint_less", jnp.less, (U, V)),
    ("bool_less", lambda p, q: (p < q, p == q, p != q), (P, Q)),
    ("total_order", lambda x, y: lax.lt_to_p.bind(x, y), (SPECIAL, SPECIAL[::-1] * 1)),
    ("compare", lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), (A, B)),
    ("where", jnp.where, (P, A, B)),
    ("where_scalar", lambda p, x, y: lax.select(p, x, y), (np.bool_(True), A, B)),
    ("clip", lambda x: jnp.clip(x, -0.5, 0.5), (A,)),
    ("clamp_tensor", lambda x, y: lax.clamp(-jnp.abs(y), x, jnp.abs(y)), (A, B)),
    ("clamp_int", lambda x: lax.clamp(-2, x, 3), (INT,)),
    ("complex", lax.complex, (A, B)),
    ("nextafter", jnp.nextafter, (A, B)),
    ("self_product", lambda x: x * x + x, (A,)),
    ("mixed_scalar", lambda x: 2 * x + 1 - x / 3, (A,)),
    ("logaddexp", jnp.logaddexp, (A, B)),
]

TYPES = ["int8", "uint8", "int16", "int32", "uint32", "float16", "bfloat16", "float32"]


def convert_cases() -> Iterator[Case]:
    data = np.array([-3.7, -1.0, 0.0, 0.4, 1.0, 2.5, 100.2])
    for source in [*TYPES, "bool"]:
        x = data.astype(bool) if source == "bool" else jnp.asarray(data, source)
        for target in [*TYPES, "bool"]:
            if target.startswith("uint") and source != "bool":
                x = jnp.abs(x) if source != "int8" else x
            name = f"convert_{source}_{target}"
            yield name, (lambda v, t=target: lax.convert_element_type(v, t)), (x,)
    fp8 = jnp.float8_e4m3fn
    yield "convert_fp8", lambda v: v.astype(fp8).astype(jnp.float32), (f32(9),)
    yield "convert_int4", lambda v: v.astype(jnp.int4).astype(jnp.int32), (i32(9),)
    yield "real_to_complex", lambda v: v.astype(jnp.complex64), (f32(4),)
    parts = np.array([0, 1, 1j, 1 + 1j], np.complex64)
    yield "complex_to_bool", lambda v: (v.astype(bool), v.real.astype(bool)), (parts,)
    yield "bitcast", lambda v: lax.bitcast_convert_type(v, jnp.int32), (A,)
    yield "bitcast_narrow", lambda v: lax.bitcast_convert_type(v, jnp.uint8), (A,)
    yield "bitcast_f16", lambda v: lax.bitcast_convert_type(v, jnp.bfloat16), (A,)
    wide = i32(5, 4).astype(np.int8)
    yield "bitcast_widen", lambda v: lax.bitcast_convert_type(v, jnp.float32), (wide,)
    yield (
        "bitcast_roundtrip",
        (
            lambda v: lax.bitcast_convert_type(
                lax.bitcast_convert_type(v, jnp.uint16), jnp.int32
            )
        ),
        (INT,),
    )


T = f32(2, 3, 4)
MOVES: list[Case] = [
    ("reshape", lambda x: x.reshape(6, 4), (T,)),
    ("transpose", lambda x: x.transpose(2, 0, 1), (T,)),
    ("transpose_reshape", lambda x: x.transpose(1, 0, 2).reshape(3, 8), (T,)),
    ("transpose_twice", lambda x: x.transpose(2, 0, 1).transpose(1, 2, 0) + 1, (T,)),
    ("broadcast", lambda x: jnp.broadcast_to(x, (5, 2, 3, 4)) + 1, (T,)),
    ("broadcast_middle", lambda x: x[:, None] * jnp.ones((3, 4, 5)), (f32(3, 5),)),
    ("broadcast_reshape", lambda x: jnp.broadcast_to(x, (3, 4)).reshape(12), (f32(4),)),
    ("slice", lambda x: x[:, 1:3, ::2], (T,)),
    ("slice_reshape", lambda x: x[:, 1].reshape(8), (T,)),
    ("reverse", lambda x: x[::-1, :, ::-1], (T,)),
    ("reverse_slice", lambda x: x[::-1, 1:, ::-2], (T,)),
    ("pad", lambda x: jnp.pad(x, ((1, 2), (0, 0), (3, 0))), (T,)),
    ("pad_interior", lambda x: lax.pad(x, 7.0, ((1, -1, 2), (0, 0, 1))), (f32(4, 3),)),
    (
        "pad_negative",
        lambda x: lax.pad(x, 7.0, ((-1, -1, 0), (0, -1, 0))),
        (f32(4, 3),),
    ),
    ("pad_empty", lambda x: lax.pad(x, 7.0, ((2, 1, 0),)), (f32(0),)),
    ("concatenate", lambda x, y: jnp.concatenate([x, y, x], 1), (A, B)),
    ("concat_empty", lambda x: jnp.concatenate([x, jnp.zeros((0, 3))]), (A,)),
    ("stack", lambda x, y: jnp.stack([x, y], -1), (A, B)),
    ("iota", lambda: (jnp.arange(5), lax.iota(jnp.float32, 4), jnp.eye(3)), ()),
    ("iota_bf16", lambda: lax.broadcasted_iota(jnp.bfloat16, (3, 4), 1), ()),
    ("tril", lambda x: jnp.tril(x), (f32(4, 4),)),
    ("roll", lambda x: jnp.roll(x, 2, 1), (T,)),
    ("repeat", lambda x: jnp.repeat(x, 3, 1), (A,)),
    ("tile", lambda x: jnp.tile(x, (2, 3)), (A,)),
    ("constant", lambda x: x + np.arange(15, dtype=np.float32).reshape(5, 3), (A,)),
    ("constant_bf16", lambda: jnp.asarray(np.arange(300), jnp.bfloat16) * 2, ()),
    ("constant_bool", lambda: ~jnp.asarray(np.arange(300) % 3 == 0), ()),
    ("constant_c64", lambda: jnp.asarray(np.arange(3) + 1j, jnp.complex64) * 2, ()),
    ("constant_big", lambda: jnp.asarray(f32(40, 30)) + 1, ()),
    ("squeeze", lambda x: jnp.squeeze(x[:, :1]), (A,)),
    ("diag", lambda x: jnp.diagonal(x), (f32(4, 4),)),
    ("barrier", lambda x: lax.optimization_barrier((x, x + 1)), (A,)),
]


def dot(spec: Any, precision: Any = None, out: Any = None) -> Callable[..., Any]:
    return lambda x, y: lax.dot_general(
        x, y, spec, precision=precision, preferred_element_type=out
    )


BF = jnp.bfloat16
DOTS: list[Case] = [
    ("matmul", jnp.matmul, (f32(4, 5), f32(5, 6))),
    ("matvec", jnp.matmul, (f32(4, 5), f32(5))),
    ("vecvec", jnp.matmul, (f32(5), f32(5))),
    ("batched", jnp.matmul, (f32(2, 3, 4, 5), f32(2, 3, 5, 6))),
    ("broadcast_batch", jnp.matmul, (f32(2, 3, 4, 5), f32(5, 6))),
    ("lhs_t", dot((((0,), (0,)), ((), ()))), (f32(5, 4), f32(5, 6))),
    ("rhs_t", dot((((1,), (1,)), ((), ()))), (f32(4, 5), f32(6, 5))),
    ("both_t", dot((((0,), (1,)), ((), ()))), (f32(5, 4), f32(6, 5))),
    ("two_k", dot((((1, 2), (0, 1)), ((), ()))), (f32(4, 5, 3), f32(5, 3, 6))),
    ("two_k_crossed", dot((((1, 2), (1, 0)), ((), ()))), (f32(4, 5, 3), f32(3, 5, 6))),
    ("batch_last", dot((((0,), (0,)), ((2,), (1,)))), (f32(5, 4, 3), f32(5, 3, 6))),
    ("outer", dot((((), ()), ((), ()))), (f32(4), f32(6))),
    ("k_zero", dot((((1,), (0,)), ((), ()))), (f32(4, 0), f32(0, 6))),
    ("m_zero", dot((((1,), (0,)), ((), ()))), (f32(0, 4), f32(4, 6))),
    (
        "int8",
        dot((((1,), (0,)), ((), ())), out=np.int32),
        (i32(4, 5).astype(np.int8), i32(5, 6).astype(np.int8)),
    ),
    (
        "int8_wrap",
        dot((((1,), (0,)), ((), ()))),
        (i32(4, 5, low=-99, high=99).astype(np.int8), i32(5, 6).astype(np.int8)),
    ),
    ("int32", jnp.matmul, (i32(4, 5), i32(5, 6))),
    ("uint8", jnp.matmul, (i32(4, 5).astype(np.uint8), i32(5, 6).astype(np.uint8))),
    ("bool", jnp.matmul, (f32(4, 5) > 0, f32(5, 6) > 0)),
    ("bf16", jnp.matmul, (f32(4, 5).astype(BF), f32(5, 6).astype(BF))),
    (
        "bf16_f32",
        dot((((1,), (0,)), ((), ())), out=np.float32),
        (f32(4, 5).astype(BF), f32(5, 6).astype(BF)),
    ),
    ("f16", jnp.matmul, (f32(4, 5).astype(np.float16), f32(5, 6).astype(np.float16))),
    (
        "int8_f32",
        dot((((1,), (0,)), ((), ())), out=np.float32),
        (i32(4, 5).astype(np.int8), i32(5, 6).astype(np.int8)),
    ),
    (
        "complex",
        jnp.matmul,
        ((f32(4, 5) + 1j).astype(np.complex64), (f32(5, 6) - 1j).astype(np.complex64)),
    ),
    (
        "attention",
        lambda q, k: jnp.einsum("bthd,bshd->bhts", q, k),
        (f32(2, 4, 3, 5), f32(2, 6, 3, 5)),
    ),
    (
        "attention_out",
        lambda p, v: jnp.einsum("bhts,bshd->bthd", p, v),
        (f32(2, 3, 4, 6), f32(2, 6, 3, 5)),
    ),
    (
        "heads",
        lambda x, w: jnp.einsum("btd,hde->bthe", x, w),
        (f32(2, 4, 3), f32(5, 3, 6)),
    ),
    (
        "repeated_kv",
        lambda q, k: jnp.einsum(
            "bhtd,bhsd->bhts", q, jnp.broadcast_to(k, (2, 4, 6, 5))
        ),
        (f32(2, 4, 3, 5), f32(2, 1, 6, 5)),
    ),
    ("transposed_operand", lambda x, w: x @ w.T, (f32(4, 5), f32(6, 5))),
    (
        "wide_transposed",
        lambda x, w: x @ w.T.astype(jnp.float32),
        (f32(4, 5), f32(6, 5).astype(BF)),
    ),
    (
        "grad",
        jax.grad(lambda x, w: jnp.sin(x @ w).sum(), (0, 1)),
        (f32(4, 5), f32(5, 6)),
    ),
    (
        "grad_attention",
        jax.grad(
            lambda q, k: jnp.sin(jnp.einsum("bthd,bshd->bhts", q, k)).sum(), (0, 1)
        ),
        (f32(2, 4, 3, 5), f32(2, 6, 3, 5)),
    ),
]

X1, X2 = f32(2, 3, 9, 8), f32(4, 3, 3, 2, seed=1)
NHWC = ("NHWC", "HWIO", "NHWC")


def conv(**kw: Any) -> Callable[..., Any]:
    kw = {"window_strides": (1, 1), "padding": "SAME", **kw}
    return lambda x, w: lax.conv_general_dilated(x, w, **kw)


CONVS: list[Case] = [
    ("nchw", conv(), (X1, X2)),
    ("nhwc", conv(dimension_numbers=NHWC), (f32(2, 6, 5, 3), f32(3, 2, 3, 4))),
    ("strided", conv(window_strides=(2, 3), padding="VALID"), (X1, X2)),
    ("padded", conv(padding=((2, 1), (0, 3))), (X1, X2)),
    (
        "dilated",
        conv(lhs_dilation=(2, 1), rhs_dilation=(1, 2), padding=((2, 1), (0, 3))),
        (X1, X2),
    ),
    ("groups", conv(feature_group_count=2), (f32(2, 4, 5, 5), f32(6, 2, 3, 3))),
    ("depthwise", conv(feature_group_count=3), (X1, f32(3, 1, 3, 3))),
    ("batch_groups", conv(batch_group_count=2), (f32(4, 3, 5, 5), f32(6, 3, 3, 3))),
    (
        "transpose",
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
        (f32(1, 4, 4, 3), f32(3, 3, 3, 2)),
    ),
    (
        "conv1d",
        lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME"),
        (f32(2, 3, 7), f32(4, 3, 3)),
    ),
    (
        "conv0d",
        lambda x, w: lax.conv_general_dilated(x, w, (), ()),
        (f32(2, 3), f32(4, 3)),
    ),
    (
        "grad",
        jax.grad(lambda x, w: jnp.sin(conv(window_strides=(2, 1))(x, w)).sum(), (0, 1)),
        (X1, X2),
    ),
    (
        "grad_groups",
        jax.grad(lambda x, w: jnp.sin(conv(feature_group_count=2)(x, w)).sum(), (0, 1)),
        (f32(2, 4, 5, 5), f32(6, 2, 3, 3)),
    ),
    ("bf16", conv(), (X1.astype(BF), X2.astype(BF))),
    (
        "int8",
        conv(preferred_element_type=np.int32),
        (i32(1, 2, 4, 4).astype(np.int8), i32(3, 2, 2, 2).astype(np.int8)),
    ),
]
