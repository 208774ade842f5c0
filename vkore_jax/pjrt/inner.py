"""The inner XLA:CPU client: where the bytes of device buffers live.

An emulated device keeps its buffers as arrays of a private XLA:CPU client, because the
fast engine runs executables of that client.  JAX never sees this client.  It works
synchronously: an array that exists is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import jax
import jax.ffi
import numpy as np
from jax.core import ShapedArray
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

from vkore_jax import dtypes
from vkore_jax.pjrt import _bridge
from vkore_jax.pjrt.artifact import TOKEN_TYPE
from vkore_jax.sim.fast.code_cache import CodeCache

Array = Any
"""A single-device array of the inner client."""

Execute = Callable[[list[Array]], list[Array]]

Launch = Callable[[list[Array]], Any]
"""As `Execute`, but what it returns still has to be taken apart into arrays, by its
method `consume_with_handlers(handlers)`."""

CACHE_VARIABLE = "VKORE_CACHE_DIR"
"""Names the folder for code that other processes may use; none when unset."""

_MAX_RECIPES = 4096

_NOTHING = b"module { func.func public @main() { return } }"


_CLIENTS: WeakSet[InnerClient] = WeakSet()


class InnerClient:
    """A private XLA:CPU client with one device per emulated chip.

    Attributes:
        client: the client.
        devices: its devices, by number of the chip.
        code: machine code that programs of this client share.
    """

    def __init__(self, num_devices: int) -> None:
        _register_functions()
        self.client: Any = xla_client.make_cpu_client(
            asynchronous=False, num_devices=num_devices
        )
        self.devices: list[Any] = list(self.client.devices())
        self._shardings = [jax.sharding.SingleDeviceSharding(d) for d in self.devices]
        self._recipes: dict[tuple[int, tuple[int, ...], int], Any] = {}
        self._known_overrides: set[bytes] = set()
        self.code = CodeCache(_code_folder())
        _CLIENTS.add(self)

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

    def check_overrides(self, overrides: bytes) -> None:
        """Refuse compiler options that do not exist or have a wrong value.

        The options of `jax.jit(compiler_options=...)` are XLA's.  This compiler has
        none of its own and lets XLA's pass without effect, but only XLA knows their
        names: it is asked by the compilation of nothing.

        Args:
            overrides: a `CompileOptionsProto` with overrides only.

        Raises:
            JaxRuntimeError: XLA's own message, such as "No such compile option".
        """
        if overrides in self._known_overrides:
            return
        options = _jax.CompileOptions()
        parsed = _jax.CompileOptions.ParseFromString(overrides)
        options.env_option_overrides = parsed.env_option_overrides
        self.client.compile_and_load(
            _NOTHING, _jax.DeviceList((self.devices[0],)), compile_options=options
        )
        if len(self._known_overrides) >= _MAX_RECIPES:
            self._known_overrides.clear()
        self._known_overrides.add(overrides)

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


def _code_folder() -> Path | None:
    """Return the folder that the environment or JAX's own cache names.

    Who asks JAX to keep executables wants no second compilation: JAX stores the
    Program there, its machine code goes into a folder beside it.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    enabled: bool = getattr(jax.config, "jax_enable_compilation_cache")  # noqa: B009
    folder: str | None = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
    if not enabled or not folder or "://" in folder:
        return None
    return Path(folder).expanduser() / "vkore-code"


@cache
def _register_functions() -> None:
    """Make the functions known that move small arrays (`csrc/table.c`)."""
    for name, function in _bridge.functions().items():
        jax.ffi.register_ffi_target(name, function, platform="cpu")


def clear_code() -> None:
    """Forget the code that clients keep in memory; what is loaded stays loaded."""
    for client in list(_CLIENTS):
        client.code.clear()


@cache
def inner_client(num_devices: int) -> InnerClient:
    """Return the process's inner client of a size."""
    return InnerClient(num_devices)


def _aval(pjrt_type: int, shape: tuple[int, ...]) -> Any:
    dtype = np.dtype(bool)  # a token is passed as a boolean scalar, as JAX itself does
    if pjrt_type != TOKEN_TYPE:
        dtype = dtypes.by_pjrt(pjrt_type).numpy
    return ShapedArray(shape, dtype)
