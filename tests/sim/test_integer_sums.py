"""The sliced int8 strategies against a model in NumPy's 64-bit integers.

The model is written from the text of docs/chips.md ("Slices", "Segments") and shares no
code with the package.  Both engines must give its numbers to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.sim.builder import ProgramBuilder, micro
from tests.sim.cases_core import conv_case
from tests.sim.conftest import Engine
from tests.sim.test_strategies import CONVS, KINDS, SLICED, product, run_all
from vkore_jax.chips import TINY
from vkore_jax.dtypes import F32, I32
from vkore_jax.isa import Strategy

PARTS = {s: int(s.name[-1]) for s in SLICED}


def model(a: np.ndarray, b: np.ndarray, parts: int, run: int = 0) -> np.ndarray:
    """(m, k) x (k, n) in f32: segments of 128 elements, anew after every `run`."""
    k = a.shape[1]
    total: np.ndarray | None = None
    for start in range(0, k, run or k or 1):
        for first in range(start, min(start + (run or k), k), 128):
            end = min(first + 128, start + (run or k), k)
            part = segment(a[:, first:end], b[first:end].T, parts)
            total = part if total is None else total + part
    assert total is not None
    return total


def segment(rows: np.ndarray, columns: np.ndarray, parts: int) -> np.ndarray:
    p, e = slices(rows, parts)
    q, f = slices(columns, parts)
    total = np.zeros((len(rows), len(columns)), np.float32)
    for level in reversed(range(parts)):
        whole = np.zeros(total.shape, np.int64)
        for i in range(level + 1):
            whole += p[i] @ q[level - i].T
        assert np.abs(whole).max(initial=0) < 2**24
        total = total + (whole.astype(np.float64) * 2.0 ** (-7 * level)).astype("f4")
    with np.errstate(over="ignore", under="ignore"):
        wide = total.astype(np.float64) * 2.0 ** (e[:, None] + f[None, :] - 12.0)
        return wide.astype(np.float32)


def slices(x: np.ndarray, parts: int) -> tuple[list[np.ndarray], np.ndarray]:
    wide = x.astype(np.float64)
    top = np.abs(wide).max(1, initial=0.0)
    e = np.floor(np.log2(np.maximum(top, 2.0**-98))).astype(int)
    left = wide / 2.0 ** (e[:, None] - 6.0)
    made = []
    for _ in range(parts):
        one = np.clip(np.round(left), -127, 127).astype(np.int64)
        made.append(one)
        left = (left - one) * 128
    return made, e


def same_bits(got: np.ndarray, want: np.ndarray, name: str) -> None:
    """Equal to the bit, signs of zeros included."""
    np.testing.assert_array_equal(got.view("i4"), want.view("i4"), err_msg=name)


SHAPES = [
    (6, 300, 4),  # three segments run in a loop
    (5, 1, 3),  # one term: XLA multiplies
    (1, 130, 1),
    (33, 1100, 65),
]
PRODUCTS = [
    pytest.param(
        strategy,
        shape,
        id=f"{strategy.name.lower()}-{shape}",
        marks=[pytest.mark.slow] if i and strategy is not Strategy.INT8X2 else [],
    )
    for strategy in SLICED
    for i, shape in enumerate(SHAPES)
]


@pytest.mark.parametrize(("strategy", "shape"), PRODUCTS)
def test_products(
    engines: Mapping[str, Engine], strategy: Strategy, shape: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(sum(shape))
    a, b = (np.stack(x) for x in zip(*(kind(rng, *shape) for kind in KINDS.values())))
    batch = (len(KINDS),)
    program = product(strategy, *shape, batch=(batch, batch))
    want = np.stack([model(x, y, PARTS[strategy]) for x, y in zip(a, b)])
    for name, out in run_all(engines, program, (a, b)).items():
        same_bits(out, want, name)


@pytest.mark.parametrize("strategy", [Strategy.INT8X2, Strategy.INT8X3])
def test_blocks_of_k_and_broadcast_batches(
    engines: Mapping[str, Engine], strategy: Strategy
) -> None:
    """Blocks of 256 elements hold two segments each, which are added one by one."""
    rng = np.random.default_rng(1)
    a, b = KINDS["heavy"](rng, 3, 700, 4)
    want = model(a, b, PARTS[strategy])
    program = product(strategy, 3, 700, 4, block=256)
    for name, out in run_all(engines, program, (a, b)).items():
        same_bits(out, want, name)
    batch = ((2, 1), (1, 3))
    a, b = (rng.normal(size=s).astype("f4") for s in ((2, 1, 3, 140), (1, 3, 140, 4)))
    program = product(strategy, 3, 140, 4, batch=batch)
    want = np.stack([[model(x[0], y, PARTS[strategy]) for y in b[0]] for x in a])
    for name, out in run_all(engines, program, (a, b)).items():
        same_bits(out, want, name)


@pytest.mark.parametrize("k", [256, 512])
def test_a_segment_overflows_alone(engines: Mapping[str, Engine], k: int) -> None:
    """-2^128 * 0.75 + 2^128 * 1.5: one rounding for both would stay finite."""
    a, b = np.zeros((2, k), "f4"), np.zeros((k, 2), "f4")
    a[:, [0, 128, 129]] = np.array([[-0.75], [2.0**-100]], "f4") * 2.0**61
    a[0, [128, 129]] *= -1
    b[[0, 128, 129]] = np.array([2.0**67, 2.0**-140], "f4")
    want = model(a, b, 2)
    assert want[0, 0] == np.inf
    assert np.isfinite(want[1, 1])
    for name, out in run_all(
        engines, product(Strategy.INT8X2, 2, k, 2), (a, b)
    ).items():
        same_bits(out, want, name)


@pytest.mark.parametrize("turned", ["left", "right", "both"])
def test_operands_of_a_backward_pass(
    engines: Mapping[str, Engine], turned: str
) -> None:
    """X^T and W^T: a scale belongs to a row of what is multiplied, not of the array."""
    rng = np.random.default_rng(2)
    a, b = KINDS["scales"](rng, 5, 200, 6)
    want = model(a, b, 2)
    inputs, tiles = [], []
    builder = ProgramBuilder(TINY)
    group = builder.group([])
    for side, x in (("left", a), ("right", b)):
        turn = turned in (side, "both")
        inputs.append(np.ascontiguousarray(x.T) if turn else x)
        tile = group.load(builder.arg(F32, inputs[-1].shape))
        tiles.append(group.transpose(tile) if turn else tile)
    out = group.gemm(tiles[0], tiles[1], F32, Strategy.INT8X2)
    group.store(builder.result(F32, want.shape), out)
    for name, found in run_all(engines, builder.build(), tuple(inputs)).items():
        same_bits(found, want, name)


@pytest.mark.parametrize("strategy", [Strategy.INT8X1, Strategy.INT8X2])
def test_gradient_of_a_lookup(
    engines: Mapping[str, Engine], strategy: Strategy
) -> None:
    """A product with a one-hot matrix, which the translator makes a scatter-add."""
    rng = np.random.default_rng(3)
    tokens, words = 300, 9
    ids = rng.integers(0, words + 2, (1, tokens)).astype("i4")
    _, y = KINDS["heavy"](rng, 1, tokens, 5)
    builder = ProgramBuilder(TINY)
    group = builder.group([])
    places = group.load(builder.arg(I32, ids.shape))
    rows = group.load(builder.arg(F32, y.shape))
    compare = micro(I32).iota(I32, 0).op("eq", 0, 1).op("convert", 2, dtype=F32)
    hot = group.vec(compare.out(), [places], shape=(words, tokens), axes=(None, None))
    out = group.gemm(hot, rows, F32, strategy)
    group.store(builder.result(F32, (words, 5)), out)
    matrix = (np.arange(words)[:, None] == ids).astype("f4")
    want = model(matrix, y, PARTS[strategy])
    for name, found in run_all(engines, builder.build(), (ids, y)).items():
        same_bits(found, want, name)


# -------------------------------------------------------------------------- convolution


def convolved(x: np.ndarray, w: np.ndarray, parts: int, case: dict[str, Any]) -> Any:
    """Every output place sees rows of taps * channels; runs are the taps'."""
    rank = x.ndim - 2
    ones = (1,) * rank
    low, high = (case.get(k, (0,) * rank) for k in ("low", "high"))
    dilation, strides = (case.get(k, ones) for k in ("lhs_dilation", "strides"))
    sizes = [(n - 1) * d + 1 for n, d in zip(x.shape[1:-1], dilation)]
    whole = [n + a + b for n, a, b in zip(sizes, low, high)]
    wide = np.zeros((x.shape[0], *whole, x.shape[-1]), "f4")
    inside = (slice(a, a + n, d) for a, n, d in zip(low, sizes, dilation))
    wide[(slice(None), *inside, slice(None))] = x
    window = w.shape[:-2]
    out = [(n - k) // s + 1 for n, k, s in zip(whole, window, strides)]
    feature_groups, batch_groups = case.get("groups", 1), case.get("batch_groups", 1)
    made = []
    depth, each = w.shape[-2], w.shape[-1] // (feature_groups * batch_groups)
    for group in range(feature_groups * batch_groups):
        samples = np.split(wide, batch_groups)[group if batch_groups > 1 else 0]
        share = group if feature_groups > 1 else 0
        seen = samples[..., share * depth : (share + 1) * depth]
        patches = np.stack(
            [
                seen[(slice(None), *(slice(t, t + (n - 1) * s + 1, s)
                                     for t, n, s in zip(at, out, strides)))]
                for at in np.ndindex(*window)
            ],
            -2,
        )  # fmt: skip
        kernel = w[..., group * each : (group + 1) * each].reshape(-1, each)
        flat = patches.reshape(-1, len(kernel))
        made.append(model(flat, kernel, parts, depth).reshape(-1, *out, each))
    return np.concatenate(made, -1)


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(engines: Mapping[str, Engine], name: str) -> None:
    case = conv_case(name, **CONVS[name], strategy=Strategy.INT8X2)
    rng = np.random.default_rng(4)
    x, w = case.inputs(rng)
    x = x * np.exp(2 * rng.normal(size=(*x.shape[:-1], 1))).astype("f4")
    want = convolved(x, w, 2, CONVS[name])
    program = case.build(TINY).encoded
    for engine, run in engines.items():
        same_bits(run(program, [x, w])[0], want, engine)
