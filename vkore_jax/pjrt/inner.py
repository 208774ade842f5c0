"""The inner XLA:CPU client: where the bytes of device buffers live.

An emulated device keeps its buffers as arrays of a private XLA:CPU client, because the
fast engine runs executables of that client.  JAX never sees this client.  It works
synchronously: an array that exists is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

from vkore_jax import dtypes
from vkore_jax.pjrt.artifact import TOKEN_TYPE

Array = Any
"""A single-device array of the inner client."""

Execute = Callable[[list[Array]], list[Array]]

_MAX_RECIPES = 4096


class InnerClient:
    """A private XLA:CPU client with one device per emulated chip."""

    def __init__(self, num_devices: int) -> None:
        self.client: Any = xla_client.make_cpu_client(
            asynchronous=False, num_devices=num_devices
        )
        self.devices: list[Any] = list(self.client.devices())
        self._shardings = [jax.sharding.SingleDeviceSharding(d) for d in self.devices]
        self._recipes: dict[tuple[int, tuple[int, ...], int], Any] = {}

    def adopt(
        self,
        block: Any,
        pjrt_type: int,
        shape: tuple[int, ...],
        device_id: int,
        copy: bool,
    ) -> Array:
        """Make an array of a block of host bytes.

        Args:
            block: exports the bytes (`_bridge.Block`), 64-byte aligned, row major.
            pjrt_type: element type.
            shape: extents.
            device_id: inner device.
            copy: own the memory rather than alias the block.
        """
        key = (pjrt_type, shape, device_id)
        recipe = self._recipes.get(key)
        if recipe is None:
            recipe = self._recipe(*key)
            if len(self._recipes) >= _MAX_RECIPES:
                self._recipes.clear()
            self._recipes[key] = recipe
        aval, dtype, sharding, devices = recipe
        values = np.ndarray(shape, dtype, block)
        return _put(aval, sharding, values, devices, copy)

    def token(self, device_id: int) -> Array:
        """Return the scalar that engines get for an ordering token."""
        return self.adopt(bytes(1), TOKEN_TYPE, (), device_id, True)

    def copy(self, array: Array) -> Array:
        """Return an array with the same contents in memory of its own."""
        (device,) = array.sharding.device_set
        return _put(array.aval, array.sharding, np.asarray(array), [device], True)

    def _recipe(self, pjrt_type: int, shape: tuple[int, ...], device_id: int) -> Any:
        aval = _aval(pjrt_type, shape)
        return aval, aval.dtype, self._shardings[device_id], [self.devices[device_id]]


def _put(aval: Any, sharding: Any, values: Any, devices: list[Any], copy: bool) -> Any:
    # Without enable_x64 the inner client narrows 64-bit elements when JAX's own flag
    # is off; a program may hold such elements all the same.
    return _jax.batched_device_put(
        aval, sharding, [values], devices, True, copy, enable_x64=True
    )


def unpack(array: Array) -> bytes:
    """Return the contents with one byte per sub-byte element."""
    return np.asarray(array).tobytes()


@cache
def inner_client(num_devices: int) -> InnerClient:
    """Return the process's inner client of a size."""
    return InnerClient(num_devices)


def _aval(pjrt_type: int, shape: tuple[int, ...]) -> Any:
    dtype = np.dtype(bool)  # a token is passed as a boolean scalar, as JAX itself does
    if pjrt_type != TOKEN_TYPE:
        dtype = dtypes.by_pjrt(pjrt_type).numpy
    return ShapedArray(shape, dtype)
