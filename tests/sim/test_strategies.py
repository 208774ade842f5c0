"""Precision strategies: their error, the agreement of the engines, corner values."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.sim.builder import ProgramBuilder
from tests.sim.cases_core import conv_case
from tests.sim.conftest import Engine
from vkore_jax.chips import TINY
from vkore_jax.dtypes import BF16, F16, F32, DType, by_short
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import Phase, Strategy
from vkore_jax.isa.strategies import LEAST_EXPONENT, STRATEGIES, runs
from vkore_jax.program import Program
from vkore_jax.sim.contract import contraction, disagreement, strategy_error
from vkore_jax.verify import verify

NATIVE = (Strategy.LANES, Strategy.INT8, Strategy.FP8)
FLOATS = [s for s in Strategy if s not in NATIVE]
SCALED = [s for s in FLOATS if STRATEGIES[s].segment]
SLICED = [s for s in SCALED if STRATEGIES[s].needs == "i8"]
ROOMY = dataclasses.replace(TINY, name="tiny", scratchpad_bytes=1 << 22)
Inputs = tuple[np.ndarray, np.ndarray]


def product(
    strategy: Strategy,
    m: int,
    k: int,
    n: int,
    block: int | None = None,
    types: tuple[DType, DType, DType] = (F32, F32, F32),
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
) -> Program:
    """One matrix product; `block` cuts k."""
    b = ProgramBuilder(TINY)
    x, y = b.arg(types[0], (*batch[0], m, k)), b.arg(types[1], (*batch[1], k, n))
    cut = 0 if block else None
    g = b.group([(k, block)] if block else [], 0 if block else 255)
    rank = max(len(batch[0]), len(batch[1]))
    tx = g.load(x, (*[None] * rank, None, cut))
    ty = g.load(y, (*[None] * rank, cut, None))
    out = g.gemm(tx, ty, types[2], strategy)
    shape = (*np.broadcast_shapes(*batch), m, n)
    g.store(b.result(types[2], shape), out, Phase.TAIL if block else Phase.BODY)
    return b.build()


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.matmul(a.astype(np.float64), b.astype(np.float64))


def run_all(
    engines: Mapping[str, Engine], program: Program, inputs: Inputs
) -> dict[str, np.ndarray]:
    """Run every engine on one scratchpad that holds the whole product."""
    roomy = dataclasses.replace(program, chip=TINY.name)
    return {
        name: run(roomy.encoded, list(inputs), chip=ROOMY)[0]
        for name, run in engines.items()
    }


# ---------------------------------------------------------------------- error and bound


def _normal(rng: np.random.Generator, m: int, k: int, n: int) -> Inputs:
    return rng.normal(size=(m, k)).astype("f4"), rng.normal(size=(k, n)).astype("f4")


def _heavy(rng: np.random.Generator, m: int, k: int, n: int) -> Inputs:
    """Magnitudes over many powers of two within a row."""
    a, b = _normal(rng, m, k, n)
    return (
        a * np.exp(4 * rng.normal(size=a.shape)).astype("f4"),
        b * np.exp(4 * rng.normal(size=b.shape)).astype("f4"),
    )


def _scales(rng: np.random.Generator, m: int, k: int, n: int) -> Inputs:
    """Rows and columns of very different size: what a scale of the tensor loses."""
    a, b = _normal(rng, m, k, n)
    rows = 10.0 ** rng.integers(-25, 12, (m, 1))
    columns = 10.0 ** rng.integers(-8, 12, (1, n))
    return (a * rows).astype("f4"), (b * columns).astype("f4")


def _edges(rng: np.random.Generator, m: int, k: int, n: int) -> Inputs:
    """Just below powers of two, where the first slice saturates; zeros, zero rows."""
    a = rng.choice([2 - 2.0**-20, 2 - 2.0**-9, 1.0, 0.0, -1.9999999], (m, k))
    b = rng.choice([2 - 2.0**-12, -(2 - 2.0**-23), 2.0**-20, 0.0], (k, n))
    a[0] = 0
    return a.astype("f4"), b.astype("f4")


def _tiny(rng: np.random.Generator, m: int, k: int, n: int) -> Inputs:
    """Rows near and below the least scale, columns that bring them back."""
    a, b = _normal(rng, m, k, n)
    rows = 2.0 ** rng.integers(LEAST_EXPONENT - 20, LEAST_EXPONENT + 10, (m, 1))
    return (a * rows).astype("f4"), (b * 2.0**90).astype("f4")


def _huge(rng: np.random.Generator, m: int, k: int, n: int) -> Inputs:
    a, b = _normal(rng, m, k, n)
    return np.clip(a, -3.3, 3.3) * np.float32(1e38), b * np.float32(1e-30)


KINDS: Mapping[str, Callable[..., Inputs]] = {
    "normal": _normal,
    "heavy": _heavy,
    "scales": _scales,
    "edges": _edges,
    "tiny": _tiny,
    "huge": _huge,
}
SHAPES = [(5, 1, 3), (4, 31, 6), (3, 128, 5), (6, 300, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("strategy", FLOATS, ids=lambda s: s.name.lower())
def test_error_and_agreement(
    engines: Mapping[str, Engine], strategy: Strategy, shape: tuple[int, int, int]
) -> None:
    """Every engine within the strategy's bound of the exact product, and of golden."""
    # Plain f16 is for operands in its range.
    kinds = ("normal", "edges") if strategy is Strategy.FP16 else tuple(KINDS)
    rng = np.random.default_rng(sum(shape))
    a, b = (np.stack(x) for x in zip(*(KINDS[kind](rng, *shape) for kind in kinds)))
    batch = (len(kinds),)
    found = run_all(engines, product(strategy, *shape, batch=(batch, batch)), (a, b))
    want, bound = exact(a, b), strategy_error(strategy, a, b)
    if strategy is Strategy.FP16:  # what is below f16's normal numbers is 0
        sums = np.abs(a).sum(-1, keepdims=True) + np.abs(b).sum(-2, keepdims=True)
        bound = bound + 2.0**-14 * sums
    tolerance = contraction(strategy, a, b)
    for name, out in found.items():
        excess = (np.abs(out - want) - bound).max((1, 2))
        assert (excess <= 0).all(), f"{name}: {dict(zip(kinds, excess))}"
        problem = disagreement(found["specification"], out, tolerance)
        assert problem is None, f"{name}: {problem}"


@pytest.mark.parametrize(
    ("coarse", "fine", "ratio"),
    [
        (Strategy.INT8X1, Strategy.INT8X2, 50),
        (Strategy.INT8X2, Strategy.INT8X3, 50),
        (Strategy.INT8X3, Strategy.INT8X4, 5),
        (Strategy.FP16X1, Strategy.FP16X2, 500),
        (Strategy.BF16X1, Strategy.FP16X1, 4),
        (Strategy.BF16X1, Strategy.INT8X2, 10),
        (Strategy.FP8X1, Strategy.BF16X1, 8),
    ],
    ids=lambda v: v.name.lower() if isinstance(v, Strategy) else "",
)
def test_more_parts_are_worth_their_passes(
    engine: Engine, coarse: Strategy, fine: Strategy, ratio: float
) -> None:
    a, b = _normal(np.random.default_rng(5), 16, 64, 16)
    want = exact(a, b)

    def error(s: Strategy) -> float:
        out = engine(product(s, 16, 64, 16).encoded, [a, b])[0]
        return float(np.sqrt(np.mean((out - want) ** 2)))

    assert error(coarse) > ratio * error(fine)


def test_four_slices_are_as_good_as_f32(engine: Engine) -> None:
    a, b = _normal(np.random.default_rng(6), 8, 128, 8)
    out = engine(product(Strategy.INT8X4, 8, 128, 8).encoded, [a, b])[0]
    plain = np.abs(np.matmul(a, b) - exact(a, b)).max()
    assert np.abs(out - exact(a, b)).max() <= 4 * plain


# ----------------------------------------------------------------- schedules and shapes


@pytest.mark.parametrize("strategy", SCALED, ids=lambda s: s.name.lower())
def test_k_steps_change_nothing_but_the_order(
    engine: Engine, strategy: Strategy
) -> None:
    a, b = _heavy(np.random.default_rng(1), 3, 300, 4)
    whole = engine(product(strategy, 3, 300, 4).encoded, [a, b])[0]
    block = STRATEGIES[strategy].segment
    cut = engine(product(strategy, 3, 300, 4, block).encoded, [a, b])[0]
    assert disagreement(whole, cut, contraction(strategy, a, b)) is None


@pytest.mark.parametrize("strategy", SCALED, ids=lambda s: s.name.lower())
def test_k_is_cut_between_segments_only(strategy: Strategy) -> None:
    segment = STRATEGIES[strategy].segment
    program = product(strategy, 3, 300, 4, segment + segment // 2)
    with pytest.raises(InvalidProgram, match="multiples of it, found blocks of"):
        verify(program, TINY)
    verify(product(strategy, 3, 300, 4, segment), TINY)


@pytest.mark.parametrize("strategy", FLOATS, ids=lambda s: s.name.lower())
def test_batches_broadcast(engines: Mapping[str, Engine], strategy: Strategy) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=(2, 1, 3, 20)).astype("f4")
    b = rng.normal(size=(1, 3, 20, 4)).astype("f4")
    program = product(strategy, 3, 20, 4, batch=((2, 1), (1, 3)))
    golden, other = run_all(engines, program, (a, b)).values()
    bound = strategy_error(strategy, a, b) + 2.0**-10 * (strategy is Strategy.FP16)
    assert (np.abs(golden - exact(a, b)) <= bound).all()
    assert disagreement(golden, other, contraction(strategy, a, b)) is None


@pytest.mark.parametrize("strategy", SCALED, ids=lambda s: s.name.lower())
@pytest.mark.parametrize("types", [(BF16, F32, F32), (F16, F16, F16), (BF16,) * 3])
def test_narrow_operands_and_results(
    engines: Mapping[str, Engine], strategy: Strategy, types: tuple[DType, DType, DType]
) -> None:
    a, b = _normal(np.random.default_rng(3), 4, 40, 5)
    a, b = a.astype(types[0].numpy), b.astype(types[1].numpy)
    found = run_all(engines, product(strategy, 4, 40, 5, types=types), (a, b))
    bound = strategy_error(strategy, a, b)
    bound = bound + float(ml_dtypes.finfo(types[2].numpy).eps) * np.abs(exact(a, b))
    golden, other = found.values()
    assert (np.abs(golden.astype("f8") - exact(a, b)) <= bound).all()
    assert disagreement(golden, other, contraction(strategy, a, b)) is None


@pytest.mark.parametrize("strategy", FLOATS, ids=lambda s: s.name.lower())
def test_nothing_to_sum_is_zero(engine: Engine, strategy: Strategy) -> None:
    a, b = np.zeros((3, 0), "f4"), np.zeros((0, 2), "f4")
    (out,) = engine(product(strategy, 3, 0, 2).encoded, [a, b])
    np.testing.assert_array_equal(out, np.zeros((3, 2), "f4"))


def test_runs() -> None:
    assert runs(0, 0, 128) == ((0, 0),)
    assert runs(300, 300, 0) == ((0, 300),)
    assert runs(300, 300, 128) == ((0, 128), (128, 256), (256, 300))
    assert runs(6, 3, 2) == ((0, 2), (2, 3), (3, 5), (5, 6))
    assert runs(6, 3, 128) == ((0, 3), (3, 6))


# ---------------------------------------------------------------------------- specials


def _specials(rng: np.random.Generator) -> Inputs:
    a, b = _normal(rng, 7, 140, 5)
    b = np.abs(b) + np.float32(0.5)
    a[0, 0], a[1, 1], a[2, 2] = np.inf, -np.inf, np.nan
    a[3, 0], a[3, 139] = np.inf, -np.inf
    b[5, 1], b[130, 2] = np.inf, np.nan
    a[:, 5] = np.abs(a[:, 5]) + np.float32(0.5)
    a[4, 5] = 0
    return a, b


@pytest.mark.parametrize("strategy", SCALED, ids=lambda s: s.name.lower())
def test_infinities_and_nans_are_not_hidden_by_a_scale(
    engines: Mapping[str, Engine], strategy: Strategy
) -> None:
    """They give what IEEE arithmetic gives; rows and columns without them are fine."""
    a, b = _specials(np.random.default_rng(4))
    with np.errstate(all="ignore"):
        want = np.matmul(a, b)
    for name, out in run_all(engines, product(strategy, 7, 140, 5), (a, b)).items():
        wild = ~np.isfinite(want)
        np.testing.assert_array_equal(out[wild], want[wild], err_msg=name)
        error = np.abs(out[~wild] - want[~wild])
        assert (error <= strategy_error(strategy, a, b)[~wild]).all(), name


def test_plain_f16_overflows_and_scaled_f16_does_not(engine: Engine) -> None:
    a, b = np.full((1, 4), 1e6, "f4"), np.full((4, 1), 1e-9, "f4")
    inputs = [a, b]
    plain = engine(product(Strategy.FP16, 1, 4, 1).encoded, inputs)[0]
    scaled = engine(product(Strategy.FP16X1, 1, 4, 1).encoded, inputs)[0]
    assert not np.isfinite(plain).all()  # inf * 0: the gradient underflows, too
    np.testing.assert_allclose(scaled, [[4e-3]], rtol=1e-3)


def test_float8_operands_are_taken_as_they_are(engines: Mapping[str, Engine]) -> None:
    for short in ("f8E4M3FN", "f8E5M2"):
        t = by_short(short)
        a, b = (x.astype(t.numpy) for x in _normal(np.random.default_rng(7), 5, 33, 4))
        program = product(Strategy.FP8, 5, 33, 4, types=(t, t, F32))
        for out in run_all(engines, program, (a, b)).values():
            np.testing.assert_allclose(out, exact(a, b), rtol=1e-5, atol=1e-5)


def test_float8_strategy_takes_float8_only() -> None:
    with pytest.raises(InvalidProgram, match="takes float8 operands among bf16, f16"):
        verify(product(Strategy.FP8, 4, 4, 4), TINY)


# -------------------------------------------------------------------------- convolution

CONVS: Mapping[str, dict[str, Any]] = {
    "plain": {"lhs": (2, 6, 6, 3), "rhs": (3, 3, 3, 4)},
    "strided": {"lhs": (2, 7, 5), "rhs": (3, 5, 6), "strides": (2,), "low": (1,)},
    "dilated": {"lhs": (1, 5, 4), "rhs": (3, 4, 3), "lhs_dilation": (2,)},
    "groups": {"lhs": (2, 5, 6), "rhs": (2, 3, 4), "groups": 2, "blocks": (1, 2)},
    "batch-groups": {
        "lhs": (4, 5, 3),
        "rhs": (2, 3, 4),
        "batch_groups": 2,
        "blocks": (1, 2),
    },
    "deep": {"lhs": (1, 3, 150), "rhs": (2, 150, 3), "high": (1,)},
}


CONV_CASES = [
    pytest.param(
        strategy,
        name,
        id=f"{strategy.name.lower()}-{name}",
        # Every strategy and every geometry at least once in the quick suite.
        marks=[pytest.mark.slow] if i % len(CONVS) and i >= len(CONVS) else [],
    )
    for i, (strategy, name) in enumerate(itertools.product(SCALED, CONVS))
]


@pytest.mark.parametrize(("strategy", "name"), CONV_CASES)
def test_convolution(
    engines: Mapping[str, Engine], strategy: Strategy, name: str
) -> None:
    """A scale for each pixel and tap: the bound of the largest product of a segment."""
    case = conv_case(name, **CONVS[name], strategy=strategy)
    rng = np.random.default_rng(8)
    x, w = case.inputs(rng)
    # Pixels of very different brightness must not share a scale.
    x = x * np.exp(2 * rng.normal(size=(*x.shape[:-1], 1))).astype("f4")
    program = case.build(TINY)
    found = {n: run(program.encoded, [x, w])[0] for n, run in engines.items()}
    assert case.oracle is not None
    (want,) = case.oracle(x, w)
    facts = STRATEGIES[strategy]
    terms = float(np.prod(w.shape[:-1]))
    unit = 2 * (facts.relative + facts.floor) + facts.left_out + 4 * terms * 2.0**-23
    largest = np.abs(x).max() * np.abs(w).max()
    golden, other = found.values()
    assert np.abs(golden - want).max() <= terms * unit * largest
    slack = 4 * terms * 2.0**-23 * terms * largest
    np.testing.assert_allclose(other, golden, rtol=0, atol=slack)
