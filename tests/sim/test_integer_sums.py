"""The sliced int8 strategies against a model in NumPy's 64-bit integers.

The model is written from the text of docs/chips.md ("Slices", "Segments") and shares no
code with the package.  Both engines must give its numbers to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.sim.conftest import Engine
from tests.sim.test_strategies import (
    CONVS,
    KINDS,
    SLICED,
    conv_case,
    exact,
    product,
    run_all,
)
from vkore_jax.chips import TINY
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


SHAPES = [
    (5, 1, 3),  # one term: XLA multiplies
    (1, 130, 1),
    (4, 31, 6),
    (3, 128, 5),
    (6, 300, 4),
    (3, 1100, 5),  # more segments than are written one by one
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("strategy", SLICED, ids=lambda s: s.name.lower())
def test_products(
    engines: Mapping[str, Engine], strategy: Strategy, shape: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(sum(shape))
    a, b = (np.stack(x) for x in zip(*(kind(rng, *shape) for kind in KINDS.values())))
    batch = (len(KINDS),)
    program = product(strategy, *shape, batch=(batch, batch))
    want = np.stack([model(x, y, PARTS[strategy]) for x, y in zip(a, b)])
    for name, out in run_all(engines, program, (a, b)).items():
        np.testing.assert_array_equal(out, want, err_msg=name)
