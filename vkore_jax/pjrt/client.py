"""The Python half of the PJRT client: the methods that the C bridge calls."""

from __future__ import annotations

import dataclasses
import os
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
from jaxlib.mlir.dialects import stablehlo

from vkore_jax.chips import CHIPS, Chip, get_chip
from vkore_jax.errors import (
    InvalidArgument,
    NotYetImplemented,
    StatusCode,
    VkoreError,
    status_code,
)
from vkore_jax.pjrt import _bridge, backend, executable, inner
from vkore_jax.pjrt.options import CompileOptions, decode_options

# absl codes by name, as XLA prefixes its messages.
_ABSL_NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"),
    *("NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
    *("FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"),
    *("UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_STATUS = re.compile(r"^(" + "|".join(_ABSL_NAMES[1:]) + r"): ", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """What a client or a topology is made of.

    Attributes:
        chip: profile of every device.
        num_devices: emulated chips in this process.
        platform_version: text for `client.platform_version`; part of cache keys.
        topology_version: the same for a topology without a client (see device.c).
        device_kind: text for `device.device_kind`.
        serialized: text that identifies the topology.
        attributes: (name, str or int) pairs, attributes of every device.
    """

    chip: Chip
    num_devices: int
    platform_version: str
    topology_version: str
    device_kind: str
    serialized: str
    attributes: tuple[tuple[str, str | int], ...]

    @property
    def dram_bytes(self) -> int:
        """Memory of one chip."""
        return self.chip.dram_bytes


def configure(options: Mapping[str, Any]) -> ClientConfig:
    """Read client options, then the environment, then defaults.

    `VKORE_CHIP` names the profile (or its file), `VKORE_NUM_DEVICES` sets the number of
    chips, `VKORE_DRAM_BYTES` overrides the profile's memory.  The client options
    `chip`, `num_devices` and `dram_bytes` win over them.

    Raises:
        InvalidArgument: an unknown chip, a bad profile, or a number that is not a
            positive integer.
        NotYetImplemented: the process is one of several that JAX has joined.
    """

    def number(name: str, default: int) -> int:
        variable = f"VKORE_{name.upper()}"
        text = options.get(name, os.environ.get(variable) or default)
        try:
            value = int(text)
        except (TypeError, ValueError):
            value = 0
        if value < 1:
            raise InvalidArgument(
                f"{variable} (or the client option {name!r}) must be a positive "
                f"integer, got {text!r}"
            )
        return value

    # What JAX adds after `jax.distributed.initialize`.
    processes = options.get("num_nodes", 1)
    if processes != 1:
        raise NotYetImplemented(
            f"jax.distributed.initialize named {processes} processes: the chips of "
            "this backend belong to one process, there are no links between processes. "
            "Initialize with num_processes=1, start the processes without "
            "jax.distributed.initialize when they do not exchange arrays, or use "
            "VKORE_NUM_DEVICES for several chips in one process"
        )
    chip = get_chip(options.get("chip") or os.environ.get("VKORE_CHIP"))
    devices = number("num_devices", 1)
    dram = number("dram_bytes", chip.dram_bytes)
    # A profile of the user's own may change under its name: programs compiled for
    # another one are none of its.
    label = chip.name if chip.name in CHIPS else f"{chip.name} {chip.digest}"
    plain = "" if backend.kernels_wanted() else ", without kernels"
    version = f"vkore_jax {_version()} (chip {label}{plain})"
    return ClientConfig(
        chip=dataclasses.replace(chip, dram_bytes=dram),
        num_devices=devices,
        platform_version=version,
        topology_version=f"{version}, ahead of time",
        device_kind=chip.name,
        serialized=f"vkore {label} x{devices}",
        attributes=(
            ("chip", chip.name),
            ("clock_hz", chip.clock_hz),
            ("dram_bytes", dram),
            ("scratchpad_bytes", chip.scratchpad_bytes),
        ),
    )


class Hooks:
    """Everything that the bridge asks of Python.  Stateless but for the inner client.

    The methods run on any thread, often on one that Python did not create: they use no
    thread-local or context-local state of JAX.
    """

    def __init__(self) -> None:
        self._inner: inner.InnerClient | None = None

    def configure(self, options: dict[str, Any]) -> ClientConfig:
        return configure(options)

    def compile(
        self, config: ClientConfig | None, code: bytes, format_: str, options: bytes
    ) -> executable.Loaded:
        """Compile for a client, or (config None) ahead of time."""
        if format_ != "mlir":
            raise NotYetImplemented(f"programs in format {format_!r}; send 'mlir'")
        config = config or configure({})
        decoded = _checked(decode_options(options), config)
        if decoded.overrides:
            self._client(config).check_overrides(decoded.overrides)
        program = backend.compile_artifact(
            code, chip=config.chip, options=decoded, inner=self._client(config)
        )
        return executable.describe(program, decoded, self._client(config))

    def deserialize(
        self, config: ClientConfig, data: bytes, overridden: bytes
    ) -> executable.Loaded:
        stored, code = executable.unpack(data)
        decoded = _checked(decode_options(overridden or stored), config)
        program = backend.load_program(
            code, chip=config.chip, options=decoded, inner=self._client(config)
        )
        return executable.describe(program, decoded, self._client(config))

    def serialize(self, loaded: executable.Loaded) -> bytes:
        return executable.pack(loaded.options, loaded.program.serialize())

    def optimized_program(self, loaded: executable.Loaded) -> bytes:
        return loaded.program.optimized_mlir()

    def cost_analysis(self, loaded: executable.Loaded) -> dict[str, float]:
        return loaded.program.cost_analysis()

    def adopt(
        self,
        block: Any,
        pjrt_type: int,
        shape: tuple[int, ...],
        device_id: int,
        copy: bool,
    ) -> inner.Array:
        """Make an inner array of host bytes; see `InnerClient.adopt`."""
        client = self._any_client(device_id)
        return client.adopt(block, pjrt_type, shape, device_id, copy)

    def copy_array(self, array: inner.Array) -> inner.Array:
        return self._any_client(0).copy(array)

    def unpack(self, array: inner.Array) -> bytes:
        return inner.unpack(array)

    def describe_error(self, error: BaseException) -> tuple[int, str]:
        return describe_error(error)

    def _client(self, config: ClientConfig) -> inner.InnerClient:
        self._inner = inner.inner_client(config.num_devices)
        return self._inner

    def _any_client(self, device_id: int) -> inner.InnerClient:
        if self._inner is None or device_id >= len(self._inner.devices):
            self._inner = inner.inner_client(device_id + 1)
        return self._inner


def _checked(options: CompileOptions, config: ClientConfig) -> CompileOptions:
    """Return options that ask for what there is.

    Raises:
        NotYetImplemented: a program for several devices.
        InvalidArgument: a device that does not exist.
    """
    if options.num_devices > 1:
        raise NotYetImplemented(
            f"a program for {options.num_devices} devices "
            f"({options.num_replicas} replicas x {options.num_partitions} "
            "partitions): partitioned programs are not supported yet; run on one "
            "device, or place whole arrays on several devices"
        )
    if options.device_id >= config.num_devices:
        raise InvalidArgument(
            f"the program is for device {options.device_id}; there are "
            f"{config.num_devices} (VKORE_NUM_DEVICES sets their number)"
        )
    return options


def describe_error(error: BaseException) -> tuple[int, str]:
    """Return the PJRT status code and the message of an exception."""
    text = str(error)
    if isinstance(error, VkoreError):
        return int(status_code(error)), text
    if isinstance(error, jax.errors.JaxRuntimeError):
        # An error of the inner client: it already has a code, as a prefix.
        match = _STATUS.match(text)
        if match:
            return _ABSL_NAMES.index(match[1]), text[match.end() :]
        return int(StatusCode.INTERNAL), text
    code = status_code(error)
    where = ""
    frames = traceback.extract_tb(error.__traceback__)
    if code == StatusCode.INTERNAL:
        if frames:
            place = os.path.basename(frames[-1].filename)
            where = f" (at {place}:{frames[-1].lineno})"
        where += "; this is a bug in vkore_jax, please report it with this message"
    return int(code), f"{type(error).__name__}: {text}{where}"


def install() -> Any:
    """Connect the hooks to the bridge and return the PJRT_Api capsule."""
    version = tuple(int(x) for x in stablehlo.get_current_version().split("."))
    return _bridge.install(Hooks(), version)


def _version() -> str:
    try:
        return metadata.version("vkore-jax")
    except metadata.PackageNotFoundError:
        return "unknown"
