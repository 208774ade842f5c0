"""Every lowering rule, forward and backward, against the stock CPU client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.lowering.artifacts import lower
from tests.lowering.ir_eval import evaluate
from tests.lowering.op_cases import (
    BF,
    BINARY,
    CONVS,
    DOTS,
    INT,
    INT2,
    MOVES,
    SPECIAL,
    UNARY,
    X1,
    X2,
    A,
    B,
    Case,
    P,
    T,
    U,
    conv,
    convert_cases,
    f32,
    i32,
    unary_cases,
)
from tests.lowering.oracle import compare, same


def arg_both(f: Callable[..., Any], axis: int | None) -> Callable[..., Any]:
    return lambda x: f(x, axis=axis)


def cumulative(x: Any, init: float, combine: Callable[..., Any]) -> Any:
    pad = [(x.shape[0] - 1, 0)]
    return lax.reduce_window(x, np.float32(init), combine, x.shape, (1,), pad)


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
    ("prod_init", lambda x: lax.reduce(x, np.float32(3), lax.mul, (0,)), (A,)),
    ("cumprod_init", lambda x: cumulative(x, 3.0, lax.mul), (f32(5),)),
    ("cummax_init", lambda x: cumulative(x, 0.1, lax.max), (f32(5),)),
    ("top_k_ties", lambda x: lax.approx_max_k(jnp.round(x), 3), (f32(9),)),
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
    ("approx_max_k", lambda x: lax.approx_max_k(x, 4), (f32(3, 9),)),
    ("approx_min_k", lambda x: lax.approx_min_k(x, 2, 0), (f32(9, 3).astype(BF),)),
    (
        "approx_partial",
        lambda x: lax.approx_max_k(x, 3, aggregate_to_topk=False),
        (f32(2, 300),),
    ),
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


def rng(dtype: Any, shape: Any, name: str = "THREE_FRY") -> Callable[..., Any]:
    algorithm = lax.RandomAlgorithm[f"RNG_{name}"]
    return lambda k: lax.rng_bit_generator(k, shape, dtype, algorithm)


def rbg(seed: Any, name: str = "rbg") -> Any:
    return jax.random.key(seed[0], impl=name)


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
    ("threefry_all_odd", rng(np.uint32, (3, 5, 1)), (K4,)),
    ("philox_u32", rng(np.uint32, (5, 3), "PHILOX"), (K4,)),
    ("philox_scalar", rng(np.uint32, (), "PHILOX"), (K4,)),
    ("philox_u8", rng(np.uint8, (2, 5), "PHILOX"), (K4,)),
    ("default_u16", rng(np.uint16, (7,), "DEFAULT"), (K4,)),
    ("default_none", rng(np.uint32, (0, 2), "DEFAULT"), (K4,)),
    ("philox_carry", rng(np.uint32, (9,), "PHILOX"), (~K4[[0, 3, 3, 3]],)),
    ("rbg_bits", lambda k: jax.random.bits(rbg(k), (5, 3)), (KEY,)),
    ("rbg_split", lambda k: jax.random.key_data(jax.random.split(rbg(k))), (KEY,)),
    ("unsafe_rbg", lambda k: jax.random.uniform(rbg(k, "unsafe_rbg"), (5,)), (KEY,)),
    (
        "rbg_normal",
        jax.vmap(lambda k: jax.random.normal(rbg(k), (3,))),
        (KEY[:, None],),
    ),
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
