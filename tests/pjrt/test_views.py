"""Arrays of the chip in other libraries' hands: DLPack, the buffer protocol."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

VKORE = jax.devices("vkore")[0]
CPU = jax.devices("cpu")[0]

READERS: dict[str, Callable[[Any], Any]] = {
    "dlpack": np.from_dlpack,
    "dlpack of a copy": lambda x: np.from_dlpack(x, copy=True),
    "memoryview": lambda x: np.asarray(memoryview(x)),
    "asarray": np.asarray,
    "array": lambda x: np.array(x, copy=True),
    "__array__": lambda x: x.__array__(),
    "jax": jnp.from_dlpack,
}
TYPES = ("float32", "float16", "int8", "int32", "uint16", "bool", "complex64")


def put(values: np.ndarray) -> jax.Array:
    return jax.device_put(values, VKORE)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 3), (40, 50)], ids=str)
def test_values(reader: str, shape: tuple[int, ...]) -> None:
    for dtype in TYPES:
        values = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
        found = READERS[reader](put(values))
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)


def test_bytes() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = put(values)
    assert bytes(x) == io.BytesIO(x).getvalue() == values.tobytes()
    view = memoryview(x)
    assert (view.format, view.shape, view.readonly) == ("f", (2, 3), True)
    assert view.tolist() == values.tolist()
    with pytest.raises((BufferError, ValueError)):
        np.frombuffer(bytearray(4), np.uint8)[:] = memoryview(x).cast("B")[:5]
    del x
    assert view.tolist() == values.tolist()


def test_what_a_consumer_writes_is_its_own() -> None:
    values = np.arange(6, dtype=np.float32)
    x = put(values)
    np.asarray(x)  # JAX keeps this copy
    capsule = x.__dlpack__()
    shared = np.from_dlpack(_Producer(capsule))
    ctypes.memset(shared.ctypes.data, 255, shared.nbytes)  # as torch might
    assert np.isnan(shared).all()
    np.testing.assert_array_equal(x, values)
    np.testing.assert_array_equal(jax.jit(lambda a: a + 1)(x), values + 1)


class _Producer:
    """Hands out one capsule, as a library of another kind would."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_types_that_numpy_lacks() -> None:
    """JAX's own DLPack has bf16, the buffer protocol has not."""
    x = put(np.ones(3, jnp.bfloat16))
    found = jnp.from_dlpack(x)
    assert (found.dtype, found.tolist()) == (jnp.bfloat16, [1, 1, 1])
    for dtype in (jnp.bfloat16, jnp.int4, jnp.float8_e5m2):
        y = put(np.ones(3, dtype))
        with pytest.raises(BufferError, match="no code for"):
            memoryview(y)
        assert np.asarray(y).dtype == dtype
    with jax.enable_x64(True):
        wide = put(np.arange(3.0))
    assert np.from_dlpack(wide).dtype == np.float64


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"copy": False}, "takes a copy"), ({"dl_device": (2, 0)}, "into host memory")],
)
def test_what_cannot_be_shared(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BufferError, match=problem):
        put(np.ones(3, np.float32)).__dlpack__(**options)


@pytest.mark.parametrize("reader", READERS)
def test_deleted_arrays_and_guards(reader: str) -> None:
    x = put(np.ones(3, np.float32)) + 1
    with (
        jax.transfer_guard_device_to_host("disallow"),
        pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed device-to-host"),
    ):
        READERS[reader](x)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        READERS[reader](x)


def test_arrays_of_the_cpu_are_shared_as_before() -> None:
    x = jax.device_put(np.arange(4, dtype=np.float32), CPU)
    address = x.unsafe_buffer_pointer()
    assert np.from_dlpack(x).ctypes.data == address
    assert np.asarray(x).ctypes.data == address
    assert np.from_dlpack(x, copy=True).ctypes.data != address
