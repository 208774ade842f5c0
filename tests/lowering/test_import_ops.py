"""Every lowering rule, forward and backward, against the stock CPU client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.lowering.artifacts import lower
from tests.lowering.ir_eval import evaluate
from tests.lowering.oracle import compare, same

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


def arg_both(f: Callable[..., Any], axis: int | None) -> Callable[..., Any]:
    return lambda x: f(x, axis=axis)


TIES = np.array([[1, 3, 3, 2], [5, 5, 1, 0]], np.float32)
NANS = np.array([[1, np.nan, 3, np.nan], [5, 2, 1, 0]], np.float32)
REDUCTIONS: list[Case] = [
    ("sum", lambda x: jnp.sum(x, (0, 2)), (T,)),
    ("sum_all", jnp.sum, (T,)),
    ("sum_bf16", lambda x: jnp.sum(x, 1), (T.astype(BF),)),
    ("sum_int", lambda x: jnp.sum(x, 1), (INT,)),
    ("prod", lambda x: jnp.prod(x, 1), (T,)),
    ("max", lambda x: jnp.max(x, -1), (T,)),
    ("min_int", lambda x: jnp.min(x, 0), (INT,)),
    ("max_nan", lambda x: jnp.max(x, 1), (NANS,)),
    ("max_uint8", lambda x: jnp.max(x, 1), (U.astype(np.uint8),)),
    ("all_any", lambda x: (jnp.all(x, 1), jnp.any(x, 0)), (P,)),
    ("max_bool", lambda x: jnp.max(x, 1), (P,)),
    ("xor", lambda x: lax.reduce_xor_p.bind(x, axes=(1,)), (INT,)),
    ("max_initial", lambda x: jnp.max(x, 1, initial=0.5), (T,)),
    ("sum_empty", lambda x: jnp.sum(x, 0), (f32(0, 3),)),
    ("mean_var", lambda x: (jnp.mean(x, 1), jnp.var(x, -1)), (T,)),
    ("softmax", lambda x: jax.nn.softmax(x, -1), (T,)),
    ("logsumexp", lambda x: jax.nn.logsumexp(x, 1), (T,)),
    ("argmax", arg_both(jnp.argmax, 1), (TIES,)),
    ("argmax_nan", arg_both(jnp.argmax, 1), (NANS,)),
    ("argmin_nan", arg_both(jnp.argmin, 0), (NANS,)),
    ("argmax_all", arg_both(jnp.argmax, None), (T,)),
    ("argmin_int", arg_both(jnp.argmin, 1), (INT,)),
    ("argmax_bool", arg_both(jnp.argmax, 1), (P,)),
    ("argmax_bf16", arg_both(jnp.argmax, 1), (TIES.astype(BF),)),
    ("generic", lambda x: lax.reduce(x, 1.0, lambda a, c: a * c + 0.5, (1,)), (A,)),
    (
        "variadic",
        lambda x, y: lax.reduce(
            (x, y),
            (0.0, -np.inf),
            lambda a, c: (a[0] + c[0], jnp.maximum(a[1], c[1])),
            (0,),
        ),
        (A, B),
    ),
    (
        "variadic_mixed",
        lambda x, y: lax.reduce(
            (x, y), (0.0, 1.0), lambda a, c: (a[0] + c[0] * c[1], a[1] * c[1]), (0,)
        ),
        (A, B),
    ),
    ("no_axes", lambda x: lax.reduce(x, 0.0, lax.add, ()), (A,)),
    ("sum_complex", jnp.sum, ((A + 1j * B).astype(np.complex64),)),
    ("grad_max", jax.grad(lambda x: (jnp.max(x, 1) ** 2).sum()), (T,)),
    ("grad_prod", jax.grad(lambda x: jnp.prod(x, 1).sum()), (A,)),
    ("cumsum", lambda x: jnp.cumsum(x, 1), (f32(3, 11),)),
    ("cumsum_reverse", lambda x: lax.cumsum(x, 0, reverse=True), (f32(7, 2),)),
    ("cumsum_bf16", lambda x: jnp.cumsum(x, 0), (f32(6).astype(BF),)),
    ("cumsum_int", lambda x: jnp.cumsum(x, 0), (INT,)),
    ("cumprod", lambda x: jnp.cumprod(x, 0), (A,)),
    ("cummax", lambda x: lax.cummax(x, 0), (A,)),
    ("cummin", lambda x: lax.cummin(x, 1, reverse=True), (A,)),
    ("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 0), (A,)),
    ("grad_cumsum", jax.grad(lambda x: jnp.sin(jnp.cumsum(x, 1)).sum()), (A,)),
    (
        "max_pool",
        lambda x: lax.reduce_window(
            x, -np.inf, lax.max, (1, 2, 3, 1), (1, 2, 2, 1), "SAME"
        ),
        (f32(2, 5, 6, 2),),
    ),
    (
        "avg_pool",
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 2, 1), "VALID"
        ),
        (f32(2, 5, 6, 2),),
    ),
    (
        "window_dilated",
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3,), (1,), ((2, 1),), (2,), (2,)),
        (f32(9),),
    ),
    (
        "grad_max_pool",
        jax.grad(
            lambda x: jnp.sin(
                lax.reduce_window(
                    x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"
                )
            ).sum()
        ),
        (f32(2, 5, 6, 2),),
    ),
    (
        "grad_avg_pool",
        jax.grad(
            lambda x: jnp.sin(
                lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
            ).sum()
        ),
        (f32(2, 5, 6, 2),),
    ),
]

DUP = np.array([1, 3, 1, 1, 7, -1], np.int32)
INDEXING: list[Case] = [
    ("take", lambda x, i: x[i], (f32(5, 3), np.array([4, 0, 2, 2], np.int32))),
    ("take_negative", lambda x, i: x[i], (f32(5, 3), np.array([-1, -5], np.int32))),
    ("take_clip", lambda x, i: jnp.take(x, i, 0, mode="clip"), (f32(5, 3), DUP)),
    ("take_fill", lambda x, i: jnp.take(x, i, 0, mode="fill"), (f32(5, 3), DUP)),
    ("take_axis1", lambda x, i: x[:, i], (f32(5, 9), DUP)),
    ("take_pairs", lambda x, i: x[i, i], (f32(9, 9), np.abs(DUP))),
    (
        "take_along",
        lambda x, i: jnp.take_along_axis(x, i, 1),
        (f32(4, 5), i32(4, 3, low=0, high=5)),
    ),
    (
        "batched_gather",
        jax.vmap(lambda x, i: x[i]),
        (f32(4, 5, 2), i32(4, 3, low=0, high=5)),
    ),
    (
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 2)),
        (f32(5, 4), np.int32(9)),
    ),
    (
        "dynamic_slice_known",
        lambda x: lax.dynamic_slice(x, (7, -1), (2, 2)),
        (f32(5, 4),),
    ),
    (
        "dynamic_update",
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)),
        (f32(5, 4), f32(2, 2), np.int32(-3)),
    ),
    ("scatter_set", lambda x, i: x.at[i].set(2.0), (f32(5, 3), DUP[:2])),
    ("scatter_add", lambda x, i, u: x.at[i].add(u), (f32(5, 3), DUP, f32(6, 3))),
    ("scatter_max", lambda x, i, u: x.at[i].max(u), (f32(5, 3), DUP, f32(6, 3))),
    ("scatter_mul", lambda x, i, u: x.at[i].multiply(u), (f32(5, 3), DUP, f32(6, 3))),
    ("scatter_apply", lambda x, i: x.at[i].apply(jnp.tanh), (f32(5, 3), DUP[:2])),
    ("scatter_2d", lambda x, i, u: x.at[i, i].add(u), (f32(8, 8), DUP, f32(6))),
    ("scatter_slice", lambda x, u: x.at[1:3, ::2].set(u), (f32(5, 4), f32(2, 2))),
    (
        "batched_scatter",
        jax.vmap(lambda x, i, u: x.at[i].add(u)),
        (f32(3, 5), i32(3, 4, low=0, high=5), f32(3, 4)),
    ),
    ("grad_take", jax.grad(lambda x, i: jnp.sin(x[i]).sum()), (f32(5, 3), DUP)),
    (
        "grad_take_along",
        jax.grad(lambda x, i: jnp.sin(jnp.take_along_axis(x, i, 1)).sum()),
        (f32(4, 5), i32(4, 3, low=0, high=5)),
    ),
    ("one_hot", lambda i: jax.nn.one_hot(i, 5), (np.abs(DUP),)),
    ("bincount", lambda i: jnp.bincount(i, length=5), (np.abs(DUP),)),
    ("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 4), (f32(6, 2), DUP)),
    ("sort", lambda x: jnp.sort(x, 0), (f32(6, 3),)),
    ("sort_special", jnp.sort, (np.tile(SPECIAL, 2),)),
    ("argsort", lambda x: jnp.argsort(x, 1, descending=True), (f32(3, 6),)),
    ("sort_int", jnp.sort, (INT,)),
    ("lexsort", lambda x, y: lax.sort((x, y), num_keys=2), (INT[:, 0], INT2[:, 0])),
    ("top_k", lambda x: lax.top_k(x, 3), (f32(3, 9),)),
    ("top_k_grad", jax.grad(lambda x: jnp.sin(lax.top_k(x, 3)[0]).sum()), (f32(9),)),
    (
        "searchsorted",
        lambda a, v: jnp.searchsorted(a, v),
        (np.sort(f32(9)), f32(4, seed=3)),
    ),
    ("unique", lambda x: jnp.unique(x, size=5), (INT[:, 0],)),
    ("median", jnp.median, (f32(7),)),
    ("nonzero", lambda x: jnp.nonzero(x, size=4, fill_value=0), (INT[:, 0],)),
    ("set_index", lambda x: x.at[2].set(0.0)[1], (f32(4, 3),)),
]


def collatz(n: Any) -> Any:
    return lax.while_loop(
        lambda s: s[0] != 1,
        lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
        (n, 0),
    )[1]


FLOW: list[Case] = [
    ("while", collatz, (np.int32(27),)),
    ("fori", lambda x: lax.fori_loop(0, 5, lambda i, v: v * x + i, x), (f32(3),)),
    (
        "fori_dynamic",
        lambda n, x: lax.fori_loop(0, n, lambda i, v: v + x, x),
        (np.int32(4), f32(3)),
    ),
    ("fori_none", lambda x: lax.fori_loop(3, 3, lambda i, v: v * 2, x), (f32(3),)),
    ("fori_once", lambda x: lax.fori_loop(0, 1, lambda i, v: v * 2 + i, x), (f32(3),)),
    (
        "fori_down",
        lambda x: lax.while_loop(
            lambda s: s[0] > -3, lambda s: (s[0] - 2, s[1] * 1.5), (6, x)
        ),
        (f32(3),),
    ),
    (
        "scan",
        lambda x: lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(3), x),
        (f32(5, 3),),
    ),
    (
        "scan_reverse",
        lambda x: lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(3), x, reverse=True),
        (f32(5, 3),),
    ),
    (
        "scan_matmul",
        lambda x, w: lax.scan(lambda c, v: (jnp.tanh(c @ w + v), c), jnp.zeros(3), x),
        (f32(4, 3), f32(3, 3)),
    ),
    (
        "grad_scan",
        jax.grad(
            lambda x, w: lax.scan(
                lambda c, v: (jnp.tanh(c @ w.T + v), None), jnp.zeros(3), x
            )[0].sum(),
            (0, 1),
        ),
        (f32(4, 3), f32(3, 3)),
    ),
    (
        "remat_scan",
        jax.grad(
            lambda x, w: lax.scan(
                jax.checkpoint(lambda c, v: (jnp.tanh(c @ w + v), None)),
                jnp.zeros(3),
                x,
            )[0].sum(),
            (0, 1),
        ),
        (f32(4, 3), f32(3, 3)),
    ),
    (
        "nested_scan",
        lambda x: lax.scan(
            lambda c, v: lax.scan(lambda d, u: (d * u, d), c, v), 1.0, x
        ),
        (f32(3, 4),),
    ),
    (
        "cond",
        lambda p, x: lax.cond(p, jnp.sin, lambda v: v * 2, x),
        (np.bool_(False), f32(3)),
    ),
    ("cond_known", lambda x: lax.cond(True, jnp.sin, lambda v: v * 2, x), (f32(3),)),
    (
        "switch",
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x),
        (np.int32(7), f32(3)),
    ),
    (
        "grad_cond",
        jax.grad(lambda x, p: lax.cond(p, jnp.sin, jnp.cos, x).sum()),
        (f32(3), np.bool_(True)),
    ),
    (
        "cond_in_scan",
        lambda x: lax.scan(
            lambda c, v: (lax.cond(v > 0, lambda a: a + v, lambda a: a * 2, c), c),
            1.0,
            x,
        ),
        (f32(6),),
    ),
    ("vmap_while", jax.vmap(collatz), (np.array([3, 7, 1], np.int32),)),
    ("map", lambda x: lax.map(lambda v: v @ v.T, x), (f32(3, 2, 4),)),
    ("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x), (f32(7),)),
    (
        "while_invariant_cond",
        lambda x: lax.while_loop(
            lambda s: (s[0] < 3) & (s[1] > -9.0), lambda s: (s[0] + 1, s[1]), (0, x)
        ),
        (np.float32(1.0),),
    ),
]

KEY = np.array([7, 9], np.uint32)


def rng(dtype: Any, shape: Any) -> Callable[..., Any]:
    algorithm = lax.RandomAlgorithm.RNG_THREE_FRY
    return lambda k: lax.rng_bit_generator(k, shape, dtype, algorithm)


K4 = np.array([1, 2, 0xFFFFFFFE, 4], np.uint32)
RANDOM: list[Case] = [
    ("bits", lambda k: jax.random.bits(k, (5, 3)), (KEY,)),
    ("bits8", lambda k: jax.random.bits(k, (7,), np.uint8), (KEY,)),
    ("split", lambda k: jax.random.split(k, 3), (KEY,)),
    ("fold_in", lambda k: jax.random.fold_in(k, 5), (KEY,)),
    ("uniform", lambda k: jax.random.uniform(k, (5,)), (KEY,)),
    ("normal", lambda k: jax.random.normal(k, (5, 2)), (KEY,)),
    ("randint", lambda k: jax.random.randint(k, (9,), -5, 99), (KEY,)),
    ("permutation", lambda k: jax.random.permutation(k, 9), (KEY,)),
    ("categorical", lambda k, x: jax.random.categorical(k, x), (KEY, f32(4, 6))),
    ("bernoulli", lambda k: jax.random.bernoulli(k, 0.3, (9,)), (KEY,)),
    ("truncated", lambda k: jax.random.truncated_normal(k, -2, 2, (9,)), (KEY,)),
    ("threefry_u32", rng(np.uint32, (4, 3)), (K4,)),
    ("threefry_odd", rng(np.uint32, (5, 3)), (K4,)),
    ("threefry_scalar", rng(np.uint32, ()), (K4,)),
    ("threefry_u16", rng(np.uint16, (6,)), (K4,)),
]

SPD = (lambda m: m @ m.swapaxes(-1, -2) + 3 * np.eye(4, dtype=np.float32))(f32(2, 4, 4))


def solve(**kw: Any) -> Callable[..., Any]:
    return lambda a, b: lax.linalg.triangular_solve(a, b, **kw)


LINALG: list[Case] = [
    ("qr_tall", jnp.linalg.qr, (f32(5, 3),)),
    ("qr_wide", jnp.linalg.qr, (f32(2, 3, 4),)),
    ("qr_zero_column", jnp.linalg.qr, (f32(4, 3) * np.array([1, 0, 1], np.float32),)),
    ("qr_full", lambda x: jnp.linalg.qr(x, mode="complete"), (f32(4, 2),)),
    ("orthogonal", lambda k: jax.nn.initializers.orthogonal()(k, (4, 6)), (KEY,)),
    ("cholesky", jnp.linalg.cholesky, (SPD,)),
    ("cholesky_upper", lambda x: jnp.linalg.cholesky(x, upper=True), (SPD,)),
    ("cholesky_nan", jnp.linalg.cholesky, (-SPD[0],)),
    ("solve_left", solve(left_side=True, lower=True), (SPD, f32(2, 4, 3))),
    ("solve_upper", solve(left_side=True, lower=False), (SPD, f32(2, 4, 3))),
    ("solve_right", solve(left_side=False, lower=True), (SPD, f32(2, 3, 4))),
    (
        "solve_transposed",
        solve(left_side=True, lower=True, transpose_a=True),
        (SPD, f32(2, 4, 3)),
    ),
    (
        "solve_right_transposed",
        solve(left_side=False, lower=False, transpose_a=True),
        (SPD, f32(2, 3, 4)),
    ),
    (
        "solve_unit",
        solve(left_side=True, lower=True, unit_diagonal=True),
        (SPD, f32(2, 4, 3)),
    ),
    ("solve", jnp.linalg.solve, (SPD, f32(2, 4, 3))),
    ("inv", jnp.linalg.inv, (SPD[0],)),
    ("grad_cholesky", jax.grad(lambda x: jnp.linalg.cholesky(x).sum()), (SPD[0],)),
    ("norm", jnp.linalg.norm, (A,)),
    ("outer", jnp.outer, (A[0], B[0])),
    ("kron", jnp.kron, (f32(2, 2), f32(3, 2))),
    ("cross", jnp.cross, (A, B)),
    ("trace", jnp.trace, (f32(4, 4),)),
    ("det2", jnp.linalg.det, (f32(2, 2),)),
    ("matrix_power", lambda x: jnp.linalg.matrix_power(x, 3), (f32(3, 3),)),
    ("lu", lambda x: lax.linalg.lu(x)[0], (f32(4, 4),)),
    ("det", jnp.linalg.det, (f32(4, 4),)),
    ("polyval", jnp.polyval, (f32(4), f32(3))),
    ("interp", jnp.interp, (f32(4), np.sort(f32(5)), f32(5, seed=2))),
]

TABLES: dict[str, list[Case]] = {
    "unary": list(unary_cases()),
    "binary": BINARY,
    "convert": list(convert_cases()),
    "move": MOVES,
    "dot": DOTS,
    "conv": CONVS,
    "reduce": REDUCTIONS,
    "index": INDEXING,
    "flow": FLOW,
    "random": RANDOM,
    "linalg": LINALG,
}
CASES = [(f"{t}-{name}", f, a) for t, rows in TABLES.items() for name, f, a in rows]


@pytest.mark.parametrize(
    ("f", "args"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_import_matches_cpu(f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    with jax.default_matmul_precision("highest"):
        compare(f, *args)


def test_convolution_with_negative_padding() -> None:
    """The reference trims explicitly: XLA:CPU reads out of bounds here."""
    with jax.default_matmul_precision("highest"):
        module = lower(conv(padding=((-1, 1), (0, -1))), X1, X2)
        trimmed = X1[:, :, 1:, :-1]
        wanted = conv(padding=((0, 1), (0, 0)))(trimmed, X2)
    (found,) = evaluate(module, [X1, X2])
    same(found, np.asarray(wanted))


GRADS = ["exp", "tanh", "logistic", "sin", "sqrt", "log", "rsqrt", "erf", "gelu"]


@pytest.mark.parametrize("name", GRADS)
def test_gradient_matches_cpu(name: str) -> None:
    f, x = UNARY[name]
    compare(jax.grad(lambda v: f(v).sum()), x)
