"""Arrays on the device: dtypes, copies, views, donation, memory."""

from __future__ import annotations

import gc
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.pjrt.process import run_python
from vkore_jax import dtypes
from vkore_jax.pjrt import _bridge

DEVICE = jax.devices("vkore")[0]
NARROW = [d for d in dtypes.ALL if not d.is_wide and d.short != "complex<f64>"]
WIDE = [d for d in dtypes.ALL if d not in NARROW]
SHAPES = [(), (5,), (2, 3), (0, 3), (2, 1, 4)]


def _sample(dtype: dtypes.DType, shape: tuple[int, ...]) -> np.ndarray:
    values = np.arange(int(np.prod(shape))).reshape(shape) % 2
    if dtype.short == "f8E8M0FNU":  # powers of two, without zero
        values = values + 1
    return values.astype(dtype.numpy)


def put(value: object) -> jax.Array:
    return jax.device_put(value, DEVICE)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_round_trip(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    host = _sample(dtype, shape)
    array = put(host)
    assert array.dtype == dtype.numpy
    back = np.asarray(array)
    assert back.dtype == dtype.numpy
    assert back.tobytes() == host.tobytes()


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_round_trip_of_wide_types(dtype: dtypes.DType) -> None:
    with jax.enable_x64(True):
        host = _sample(dtype, (2, 3))
        array = put(host)
        assert array.dtype == dtype.numpy
        assert np.asarray(array).tobytes() == host.tobytes()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: a.transpose(1, 0, 2),
        lambda a: np.broadcast_to(a[0], (5, 3, 4)),
        lambda a: a[1:, 1:2, ::3],
    ],
)
def test_strided_host_arrays(view: object) -> None:
    host = view(np.arange(24, dtype=np.float32).reshape(2, 3, 4))  # type: ignore[operator]
    np.testing.assert_array_equal(np.asarray(put(host)), host)


def test_asarray_copies_from_the_device_and_views_the_host() -> None:
    for array in (put(np.arange(10.0, dtype=np.float32)), put(np.ones(9)) + 1):
        copy = np.asarray(array)
        assert copy.ctypes.data != array.unsafe_buffer_pointer()
        assert not copy.flags.writeable
        here = array.sharding.with_memory_kind("pinned_host")
        array = jax.device_put(array, here)
        view = np.asarray(array)
        assert view.ctypes.data == array.unsafe_buffer_pointer()
        assert not view.flags.writeable


def test_transfer_guards_see_reads() -> None:
    array = put(np.ones(9, np.float32)) + 1
    with jax.transfer_guard_device_to_host("disallow"):
        with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed"):
            np.asarray(array)
        jax.device_get(array)  # explicit
    assert np.asarray(array).sum() == 18


def test_device_put_copies() -> None:
    host = np.arange(16, dtype=np.float32)
    array = put(host)
    host[:] = -1
    assert float(array.sum()) == 120


def test_view_outlives_its_array() -> None:
    array = put(np.arange(1000, dtype=np.float32)) * 2
    view = np.asarray(array)
    array.delete()
    del array
    gc.collect()
    noise = [put(np.full(1000, i, np.float32)) + 1 for i in range(20)]
    assert view[999] == 1998
    assert len(noise) == 20


def test_deleted_array() -> None:
    array = put(np.ones(3))
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        jnp.sin(array)


@pytest.mark.parametrize("computed", [False, True])
def test_donation(computed: bool) -> None:
    step = jax.jit(lambda a: a + 1, donate_argnums=0)
    array = put(np.ones(100, np.float32))
    if computed:
        array = array + 0
    result = step(array)
    assert array.is_deleted()
    assert float(result.sum()) == 200
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        jnp.sin(array)


def test_donation_leaves_views_alone() -> None:
    step = jax.jit(lambda a: a + 1, donate_argnums=0)
    array = put(np.ones(1000, np.float32)) + 0
    view = np.asarray(array)
    result = step(array)
    assert array.is_deleted()
    assert view.sum() == 1000
    assert float(result.sum()) == 2000


def test_donating_one_buffer_twice() -> None:
    step = jax.jit(lambda a, b: a + b, donate_argnums=0)
    array = put(np.ones(10, np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT.*donated"):
        step(array, array).block_until_ready()


def test_no_warning_for_donation() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda a: a * 2, donate_argnums=0)(put(np.ones(7, np.float32)))


def _in_use() -> int:
    gc.collect()
    _bridge.drain()
    stats = DEVICE.memory_stats()
    assert stats is not None
    return stats["bytes_in_use"]


def test_memory_is_counted() -> None:
    start = _in_use()
    array = put(np.zeros(1 << 18, np.float32))
    assert _in_use() - start == 1 << 20
    twice = array + array
    assert _in_use() - start == 2 << 20
    del array
    assert _in_use() - start == 1 << 20
    twice.delete()
    assert _in_use() == start
    stats = DEVICE.memory_stats()
    assert stats is not None
    assert stats["peak_bytes_in_use"] >= start + (2 << 20)
    assert stats["bytes_limit"] > 0


def test_out_of_memory_says_how_much() -> None:
    run_python(
        """
        limit = 1 << 20
        x = jax.device_put(np.zeros(1 << 17, np.float32))  # half of it
        y = jax.device_put(np.zeros(1 << 15, np.float32))
        def refused(f):
            try: f().block_until_ready()
            except jax.errors.JaxRuntimeError as e:
                text = str(e)
                assert 'RESOURCE_EXHAUSTED' in text and str(limit) in text, text
                assert str(1 << 19) in text, text
                assert 'f32[131072] 524288 bytes' in text, text
                assert 'donate' in text and 'VKORE_DRAM_BYTES' in text, text
            else: raise AssertionError('fitted')
        refused(lambda: jax.device_put(np.zeros(1 << 18, np.float32)))
        half = jax.jit(lambda a: jnp.tile(a, 4))  # fits, were it not for x
        refused(lambda: half(y))
        refused(lambda: jax.jit(lambda a: a[:3])(half(y)))
        try: jax.jit(lambda a: jnp.tile(a, 2)).lower(x).compile()
        except jax.errors.JaxRuntimeError as e: assert '1,048,576: ' in str(e), e
        else: raise AssertionError('compiled')
        step = jax.jit(lambda a: a + 1, donate_argnums=0)
        x.delete()
        x = jax.device_put(np.zeros(150_000, np.float32))  # a copy does not fit
        for _ in range(5): x = step(x)
        assert x[:2].tolist() == [5, 5]
        """,
        VKORE_DRAM_BYTES=str(1 << 20),
    )


def test_a_chip_with_more_memory_than_its_host() -> None:
    """Linux would grant it and kill the process once it is written to."""
    run_python(
        """
        x = jnp.ones(8)
        tile = jax.jit(lambda a: jnp.tile(a, (1 << 37, 1)))
        try: tile(x).block_until_ready(); sys.exit(3)
        except jax.errors.JaxRuntimeError as e: text = str(e)
        assert 'RESOURCE_EXHAUSTED' in text and str(1 << 42) in text, text
        assert 'host has only' in text and 'NUM_DEVICES' in text, text
        assert float(x.sum()) == 8
        """,
        VKORE_DRAM_BYTES=str(1 << 43),
    )


def test_a_failed_callback_fails_the_call_and_nothing_else() -> None:
    def fail(_: object) -> object:
        raise ValueError("from the callback")

    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    bad = jax.jit(lambda a: jax.pure_callback(fail, shape, a))
    for _ in range(3):  # the first call goes another way through JAX than the rest
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="callback"):
            bad(put(np.ones(3, np.float32)))
    assert float((put(np.ones(3)) + 1).sum()) == 6
