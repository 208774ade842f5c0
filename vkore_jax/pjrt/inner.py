"""The inner XLA:CPU client: where the bytes of device buffers live.

An emulated device keeps its buffers as arrays of a private XLA:CPU client, because the
fast engine runs executables of that client.  JAX never sees this client.  It works
synchronously: an array that exists is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

from vkore_jax import dtypes
from vkore_jax.pjrt.artifact import TOKEN_TYPE, TensorSpec

Array = Any
"""A single-device array of the inner client."""

Execute = Callable[[list[Array]], list[Array]]


class InnerClient:
    """A private XLA:CPU client with one device per emulated chip."""

    def __init__(self, num_devices: int) -> None:
        self.client: Any = xla_client.make_cpu_client(
            asynchronous=False, num_devices=num_devices
        )
        self.devices: list[Any] = list(self.client.devices())
        self._shardings = [jax.sharding.SingleDeviceSharding(d) for d in self.devices]

    def compile(
        self,
        module: Any,
        device_id: int,
        callbacks: Sequence[Callable[..., Any]] = (),
    ) -> Any:
        """Compile a StableHLO module (`jaxlib.mlir.ir.Module`) for one device.

        Args:
            module: the program; a `xla_ffi_python_cpu_callback` in it names an element
                of `callbacks` by its `index`.
            device_id: inner device to run on.
            callbacks: Python functions, NumPy arrays in, NumPy arrays out.
        """
        device = self.devices[device_id]
        options = _jax.CompileOptions()
        options.device_assignment = xla_client.DeviceAssignment.create(
            np.array([[device_id]])
        )
        arguments: dict[str, Any] = {"compile_options": options}
        if callbacks:
            arguments["host_callbacks"] = list(callbacks)
        return self.client.compile_and_load(
            module, _jax.DeviceList((device,)), **arguments
        )

    def caller(
        self,
        executable: Any,
        results: Sequence[TensorSpec],
        device_id: int,
        *,
        can_fail: bool,
    ) -> Execute:
        """Return the cheapest callable that runs an executable.

        Args:
            executable: from `compile`.
            results: what it returns.
            device_id: where it runs.
            can_fail: wait for the execution token, so that an error raised inside (by a
                callback, by a custom call) is raised here.  Costs about a microsecond.
        """
        run = executable.execute_sharded
        handlers = [self.handler(spec, device_id) for spec in results]
        if can_fail:

            def checked(arguments: list[Array]) -> list[Array]:
                outcome = run(arguments, True)
                outcome.consume_token().block_until_ready()
                return outcome.consume_with_handlers(handlers)

            return checked

        def unchecked(arguments: list[Array]) -> list[Array]:
            return run(arguments).consume_with_handlers(handlers)

        return unchecked

    def handler(self, spec: TensorSpec, device_id: int) -> Any:
        """Return the object that wraps one result; C++ for anything but tokens."""
        if spec.is_token:
            return _first
        aval, sharding = _aval(spec.pjrt_type, spec.shape), self._shardings[device_id]
        try:  # jaxlib 0.10: without this, every result is checked by Python code
            return _jax.array_result_handler(
                aval, sharding, committed=True, _skip_checks=True
            )
        except TypeError:  # newer jaxlib never checks
            return _jax.array_result_handler(aval, sharding, committed=True)

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
        # A token is passed as a boolean scalar, as JAX itself does.
        dtype = np.dtype(bool)
        if pjrt_type != TOKEN_TYPE:
            dtype = dtypes.by_pjrt(pjrt_type).numpy
        aval = _aval(pjrt_type, shape)
        if 0 in shape:
            values = np.empty(shape, dtype)
        else:
            values = np.frombuffer(block, np.uint8).view(dtype).reshape(shape)
        return self._put(aval, values, device_id, copy)

    def copy(self, array: Array) -> Array:
        """Return an array with the same contents in memory of its own."""
        device_id = next(iter(array.sharding.device_set)).id
        return self._put(array.aval, np.asarray(array), device_id, True)

    def _put(self, aval: Any, values: Any, device_id: int, copy: bool) -> Array:
        return _jax.batched_device_put(
            aval,
            self._shardings[device_id],
            [values],
            [self.devices[device_id]],
            force_copy=copy,
        )


def unpack(array: Array) -> bytes:
    """Return the contents with one byte per sub-byte element."""
    return np.asarray(array).tobytes()


@cache
def inner_client(num_devices: int) -> InnerClient:
    """Return the process's inner client of a size."""
    return InnerClient(num_devices)


@lru_cache(maxsize=4096)
def _aval(pjrt_type: int, shape: tuple[int, ...]) -> Any:
    dtype = np.dtype(bool)
    if pjrt_type != TOKEN_TYPE:
        dtype = dtypes.by_pjrt(pjrt_type).numpy
    return ShapedArray(shape, dtype)


def _first(arrays: Sequence[Array]) -> Array:
    return arrays[0]
