"""Reader of the compile options that jaxlib sends with a program.

They arrive as a serialized `CompileOptionsProto`.  Only six fields matter here, so a
small decoder of the protobuf wire format is enough and no generated code is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vkore_jax.errors import InvalidArgument

# Field numbers of xla/pjrt/proto/compile_options.proto and xla_data.proto.
_BUILD_OPTIONS, _OVERRIDES = 3, 7
_NUM_REPLICAS, _NUM_PARTITIONS, _USE_SPMD, _DEVICE_ASSIGNMENT = 4, 5, 6, 9
_USE_SHARDY = 19
_REPLICA_COUNT, _COMPUTATION_COUNT, _COMPUTATION_DEVICES = 1, 2, 3
_REPLICA_DEVICE_IDS = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """What the caller asked for.

    Attributes:
        num_replicas: copies of the program that run side by side.
        num_partitions: devices that one copy is split over.
        device_ids: devices in order replica-major, partition-minor; empty when the
            caller left the choice to the backend.
        use_shardy: shardings come as `sdy` attributes rather than HLO strings.
        overrides: the caller's ``compiler_options``, undecoded: a message with nothing
            else in it.
        serialized: the options as they came, for `GetCompileOptions`.
    """

    num_replicas: int = 1
    num_partitions: int = 1
    device_ids: tuple[int, ...] = ()
    use_spmd: bool = False
    use_shardy: bool = False
    overrides: bytes = b""
    serialized: bytes = b""

    @property
    def num_devices(self) -> int:
        """Devices that one execution needs."""
        return self.num_replicas * self.num_partitions

    @property
    def device_id(self) -> int:
        """The first (for a single-device program: the only) device."""
        return self.device_ids[0] if self.device_ids else 0


def decode_options(data: bytes) -> CompileOptions:
    """Decode a `CompileOptionsProto`.

    Raises:
        InvalidArgument: when the bytes are not a well-formed message.
    """
    build: dict[int, int] = {}
    ids: tuple[int, ...] = ()
    overrides = bytearray()
    for number, value in _fields(data):
        if number == _OVERRIDES and isinstance(value, bytes):
            overrides += _tag(number, _BYTES) + _varint(len(value)) + value
        if number != _BUILD_OPTIONS or not isinstance(value, bytes):
            continue
        for key, item in _fields(value):
            if isinstance(item, int):
                build[key] = item
            elif key == _DEVICE_ASSIGNMENT:
                ids = _device_ids(item)
    return CompileOptions(
        num_replicas=max(1, build.get(_NUM_REPLICAS, 1)),
        num_partitions=max(1, build.get(_NUM_PARTITIONS, 1)),
        device_ids=ids,
        use_spmd=bool(build.get(_USE_SPMD, 0)),
        use_shardy=bool(build.get(_USE_SHARDY, 0)),
        overrides=bytes(overrides),
        serialized=data,
    )


def encode_assignment(device_ids: tuple[int, ...]) -> bytes:
    """Encode a `DeviceAssignmentProto`: one replica, one partition per device."""
    out = bytearray()
    out += _tag(_REPLICA_COUNT, _VARINT) + _varint(1)
    out += _tag(_COMPUTATION_COUNT, _VARINT) + _varint(len(device_ids))
    for device in device_ids:
        packed = _varint(device)
        row = _tag(_REPLICA_DEVICE_IDS, _BYTES) + _varint(len(packed)) + packed
        out += _tag(_COMPUTATION_DEVICES, _BYTES) + _varint(len(row)) + row
    return bytes(out)


def _device_ids(data: bytes) -> tuple[int, ...]:
    """Return ids replica-major from rows that hold one partition's replicas each."""
    rows: list[list[int]] = []
    for number, value in _fields(data):
        if number != _COMPUTATION_DEVICES or not isinstance(value, bytes):
            continue
        row: list[int] = []
        for key, item in _fields(value):
            if key != _REPLICA_DEVICE_IDS:
                continue
            row.extend(_varints(item) if isinstance(item, bytes) else [item])
        rows.append(row)
    if len({len(row) for row in rows}) > 1:
        raise InvalidArgument(
            "compile options: the device assignment has partitions with "
            f"{sorted({len(row) for row in rows})} replicas"
        )
    return tuple(i for replica in zip(*rows, strict=True) for i in replica)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _read_varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise InvalidArgument(f"compile options: unknown wire type {kind}")
        if position + size > len(data):
            raise InvalidArgument(
                f"compile options: field {number} has {size} bytes, "
                f"{len(data) - position} are left"
            )
        yield number, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise InvalidArgument("compile options: a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7


def _varints(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _read_varint(data, position)
        yield value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)
