"""Small arrays go through a table: every type, every origin, many threads."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.artifacts import artifact
from tests.pjrt.process import run_python
from vkore_jax import dtypes, lowering
from vkore_jax.chips import CHIPS
from vkore_jax.program import TensorSpec
from vkore_jax.sim.fast.small import MAX_BYTES, is_small, small_arrays
from vkore_jax.sim.fast.translate import translate_program

VKORE = jax.devices("vkore")[0]
TYPES = [d for d in dtypes.ALL if d.bits >= 8 or d.kind == "b"]


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


LARGE = np.arange(3000, dtype=np.float32)


def values(dtype: Any, count: int) -> np.ndarray:
    return (np.arange(count) % 2).astype(dtype)


def put(x: Any) -> jax.Array:
    return jax.device_put(x, VKORE)


@pytest.mark.parametrize(
    ("dtype", "shape", "kind", "small"),
    [
        (dtypes.F32, (), "", True),
        (dtypes.F32, (MAX_BYTES // 4,), "device", True),
        (dtypes.F32, (MAX_BYTES // 4 + 1,), "", False),
        (dtypes.F32, (3, 0), "", False),
        (dtypes.BOOL, (7,), "", True),
        (dtypes.by_numpy(np.dtype(jnp.int4)), (8,), "", False),
        (dtypes.F32, (3,), "pinned_host", False),
    ],
)
def test_what_is_small(dtype: Any, shape: Any, kind: str, small: bool) -> None:
    assert is_small(TensorSpec(0, dtype, shape, kind)) == small


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(dtype: Any) -> None:
    """Moved with what is large, among results of both kinds."""
    with jax.enable_x64(True):
        a, b = values(dtype.numpy, 6).reshape(2, 3), values(dtype.numpy, 40_000)

        @jax.jit
        def f(x: Any, y: Any) -> Any:
            return jnp.concatenate([x, x]), y[::-1], y[:5], x.T, y.reshape(2, -1)

        found = f(put(a), put(b))
        wanted = np.concatenate([a, a]), b[::-1], b[:5], a.T, b.reshape(2, -1)
        for x, w in zip(found, wanted, strict=True):
            assert x.dtype == w.dtype
            np.testing.assert_array_equal(
                np.asarray(x).view(np.uint8), np.ascontiguousarray(w).view(np.uint8)
            )


def test_small_arrays_are_not_reshaped() -> None:
    """Groups read and write what is dense flat, and the table knows sizes only."""
    xs = [np.ones((4, n), np.float32) for n in range(2, 12)]
    code = artifact(lambda xs: [x * 2 for x in xs], xs)
    decoded = lowering.compile(code, CHIPS["vk1"])
    text = translate_program(decoded, small_arrays(decoded)).text
    assert text.count("stablehlo.multiply") == len(xs)
    assert "stablehlo.reshape" not in text


@jax.jit
def both(x: Any, y: Any) -> Any:
    return x + 1, y + x[0], x * 2


def test_every_origin() -> None:
    """From the host, from a program with and without a table, from a large array."""
    host = put(f32(1, 2, 3))
    one = jax.jit(lambda x: x[:3] + 1)(put(LARGE))
    two, large, _ = both(host, put(LARGE))
    for small in (host, one, two, large[:3], jnp.zeros(3, device=VKORE)):
        x = np.asarray(small)
        for _ in range(2):
            found = both(small, large)
            for a, w in zip(found, (x + 1, np.asarray(large) + x[0], x * 2)):
                np.testing.assert_array_equal(a, w)


def test_donation_and_deletion() -> None:
    f = jax.jit(lambda x, y: (y.sum(), x + 1, y + x[0]), donate_argnums=(0, 1))
    x, y = put(f32(1, 2)), put(LARGE)
    for step in range(4):
        old = x, y
        _, x, y = f(x, y)
        assert all(a.is_deleted() for a in old)
        np.testing.assert_array_equal(x, f32(2, 3) + step)
    np.testing.assert_array_equal(y, LARGE + 1 + 2 + 3 + 4)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        jax.block_until_ready(f(x, y))
    assert not y.is_deleted()


def test_views_outlive_the_array() -> None:
    out = both(put(f32(5, 6)), put(LARGE))[0]
    view = np.asarray(out)
    out.delete()
    both(put(f32(7, 8)), put(LARGE))
    np.testing.assert_array_equal(view, [6, 7])


def test_threads_have_tables_of_their_own() -> None:
    """Each call sees its own arguments: a chain of matrix products takes a while."""

    @jax.jit
    def f(x: Any, y: Any) -> Any:
        for _ in range(6):
            y = y @ y / 64
        return x * 2, y.sum() + x[0], x + 1

    y = put(np.ones((64, 64), np.float32))
    wrong: list[Any] = []

    def work(number: int) -> None:
        for i in range(40):
            x = f32(number * 1000 + i, i)
            a, b, c = f(put(x), y)
            if not (
                np.array_equal(a, x * 2)
                and np.array_equal(c, x + 1)
                and float(b) == 64 * 64 + x[0]
            ):
                wrong.append((number, i, a, b, c))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_many_programs_come_and_go() -> None:
    for i in range(20):
        f = jax.jit(lambda x, i=i: (x + i, x * i))
        np.testing.assert_array_equal(f(put(f32(1, 2)))[0], [1 + i, 2 + i])


WRONG = """
from vkore_jax.pjrt.inner import inner_client
x = jnp.arange(6.)
cache = inner_client(1).code
real, codes = cache.get, []
def get(*args):
    codes.append(real(*args))
    return codes[0]
cache.get = get
def told(f, *args):
    try: jax.block_until_ready(jax.jit(f)(*args)); sys.exit(3)
    except jax.errors.JaxRuntimeError as e:
        assert 'does not belong to this program' in str(e), e
assert jax.jit(lambda a: a + 1)(x).tolist() == [1, 2, 3, 4, 5, 6]
told(lambda a: (a + 1, a * 2), x)                # more results
told(lambda a, b: a + b, x, x)                   # more parameters
told(lambda a: a[:3] + 1, x)                     # a smaller result
told(lambda a: a.sum() + 1, x[:2])               # a smaller parameter
assert jax.jit(lambda a: a * 3 + 1)(x).tolist() == [1, 2, 3, 4, 5, 6]  # fits, alas
"""


def test_code_of_another_program_copies_nothing() -> None:
    """The caches bind code to its program; the bridge does not rely on it."""
    run_python(WRONG)
