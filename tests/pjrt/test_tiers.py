"""Programs that only move data: no bit depends on how often they ran."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vkore_jax import dtypes
from vkore_jax.pjrt import tiers
from vkore_jax.sim import golden

DEVICE = jax.devices("vkore")[0]

MOVES: dict[str, Callable[[jax.Array], Any]] = {
    "transpose": lambda x: x.T,
    "reverse": lambda x: x[::-1, ::2],
    "concatenate": lambda x: jnp.concatenate([x, x[:2]], 0),
    "pad": lambda x: jax.lax.pad(x, x[0, 0], [(1, 2, 1), (-1, 0, 0)]),
    "dynamic_slice": lambda x: jax.lax.dynamic_slice(x, (1, 2), (2, 3)),
    "dynamic_update": lambda x: jax.lax.dynamic_update_slice(x, x[:2, :2], (1, 3)),
    "broadcast": lambda x: jnp.broadcast_to(x[:, :1], (4, 6)),
    "several": lambda x: (x.T, x[1], jnp.stack([x, x])),
    "gather": lambda x: jax.lax.gather(
        x,
        np.array([[3], [0], [2]], np.int32),
        jax.lax.GatherDimensionNumbers((1,), (0,), (0,)),
        (1, 6),
    ),
}

COMPUTES: dict[str, Callable[[jax.Array], Any]] = {
    "add": lambda x: x + x,
    "sum": lambda x: x.sum(),
    "sort": lambda x: jnp.sort(x),
    "convert": lambda x: x.astype(jnp.int32),
    "both": lambda x: x.T * 2,
}


@pytest.fixture
def golden_loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Programs that were loaded on the golden engine."""
    loaded: list[Any] = []
    original = golden.GoldenProgram

    def load(data: bytes) -> Any:
        loaded.append(original(data))
        return loaded[-1]

    monkeypatch.setattr(golden, "GoldenProgram", load)
    return loaded


def _bits(dtype: dtypes.DType) -> np.ndarray:
    """Return (4, 6) elements with every kind of bits: NaN payloads, subnormals, -0."""
    random = np.random.default_rng(3)
    if dtype.kind == "b":
        return random.integers(0, 2, (4, 6)).astype(bool)
    if dtype.bits < 8:
        return random.integers(0, 2, (4, 6)).astype(dtype.numpy)
    raw = random.integers(0, 256, (4, 6, dtype.itemsize), np.uint8)
    raw[0, :3] = 0  # zero, a subnormal, minus zero
    raw[0, 1, 0] = 1
    raw[0, 2, -1] = 128
    raw[0, 3:] = 255  # a NaN with a payload
    return np.ascontiguousarray(raw).view(dtype.numpy)[..., 0]


def _same(function: Callable[[jax.Array], Any], x: np.ndarray) -> None:
    compiled = jax.jit(lambda a: function(a))
    array = jax.device_put(x, DEVICE)
    seen = {
        tuple(np.asarray(r).tobytes() for r in jax.tree.leaves(compiled(array)))
        for _ in range(tiers.RUNS + 3)
    }
    assert len(seen) == 1
    if not tiers.keeps_bits(dtypes.by_numpy(x.dtype)):
        return
    wanted = jax.tree.leaves(
        jax.jit(function)(jax.device_put(x, jax.devices("cpu")[0]))
    )
    assert seen == {tuple(np.asarray(r).tobytes() for r in wanted)}


@pytest.mark.parametrize("name", MOVES)
def test_movements(name: str, golden_loads: list[Any]) -> None:
    _same(MOVES[name], _bits(dtypes.F32))
    assert len(golden_loads) == 1
    page = golden_loads[0].ledger
    assert page.executions >= tiers.RUNS + 3


NARROW = [d for d in dtypes.ALL if not d.is_wide and d.short != "complex<f64>"]
WIDE = [d for d in dtypes.ALL if d not in NARROW]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_types(dtype: dtypes.DType, golden_loads: list[Any]) -> None:
    _same(lambda x: jnp.concatenate([x.T, x[:, ::-1].T], 1), _bits(dtype))
    assert len(golden_loads) == tiers.keeps_bits(dtype)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_wide_types(dtype: dtypes.DType, golden_loads: list[Any]) -> None:
    with jax.enable_x64(True):
        _same(lambda x: jnp.concatenate([x.T, x[:, ::-1].T], 1), _bits(dtype))
    assert len(golden_loads) == 1


@pytest.mark.parametrize("name", COMPUTES)
def test_computation_is_never_tiered(name: str, golden_loads: list[Any]) -> None:
    jax.jit(lambda a: COMPUTES[name](a))(jax.device_put(_bits(dtypes.F32), DEVICE))
    assert not golden_loads


def test_large_movements_are_not_tiered(golden_loads: list[Any]) -> None:
    jax.jit(lambda a: a.T)(jax.device_put(np.zeros((100, 100), np.float32), DEVICE))
    assert not golden_loads


def test_donation() -> None:
    step = jax.jit(lambda a: a[::-1], donate_argnums=0)
    x = jax.device_put(np.arange(5, dtype=np.float32), DEVICE)
    view = np.array(x)
    for number in range(2 * tiers.RUNS):
        old, x = x, step(x)
        assert old.is_deleted()
        wanted = view if number % 2 else view[::-1]
        np.testing.assert_array_equal(np.asarray(x), wanted)


def test_threads() -> None:
    function = jax.jit(lambda a: jnp.concatenate([a[2:], a[:2]]))
    x = jax.device_put(np.arange(6, dtype=np.int32), DEVICE)
    found: list[bytes] = []

    def work() -> None:
        found.extend(np.asarray(function(x)).tobytes() for _ in range(tiers.RUNS))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {np.array([2, 3, 4, 5, 0, 1], np.int32).tobytes()}
    assert len(found) == 4 * tiers.RUNS
