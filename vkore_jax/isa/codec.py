"""Binary codecs and the record decorator: a class declares fields, all else derives.

A record is a frozen dataclass whose fields carry a codec and a sentence of
documentation.  Encoding, decoding, assembly text and the ISA manual are all read from
that one declaration.  Everything is little-endian and byte-packed; every bit pattern
that no field value produces is rejected on decode, so `encode(decode(b)) == b`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar, dataclass_transform

from vkore_jax import dtypes
from vkore_jax.errors import InvalidProgram

T = TypeVar("T")


class Codec:
    """How one field is laid out; `name` is its type in the manual."""

    name: str = "?"

    def pack(self, value: Any, out: bytearray) -> None:
        """Append the encoding of `value`.  Raises InvalidProgram when out of range."""
        raise NotImplementedError

    def unpack(self, data: bytes, pos: int) -> tuple[Any, int]:
        """Decode one value at `pos`; return it with the position behind it."""
        raise NotImplementedError


class Scalar(Codec):
    """A fixed-width number."""

    def __init__(self, name: str, fmt: str) -> None:
        self.name = name
        self._struct = struct.Struct("<" + fmt)

    def pack(self, value: Any, out: bytearray) -> None:
        try:
            out += self._struct.pack(value)
        except struct.error as e:
            raise InvalidProgram(f"{value!r} does not fit a {self.name}: {e}") from None

    def unpack(self, data: bytes, pos: int) -> tuple[Any, int]:
        try:
            return self._struct.unpack_from(data, pos)[0], pos + self._struct.size
        except struct.error:
            raise InvalidProgram(
                f"stream ends inside a {self.name} at byte {pos}"
            ) from None


class Flag(Codec):
    """One byte that is 0 or 1."""

    name = "flag"

    def pack(self, value: Any, out: bytearray) -> None:
        out.append(1 if value else 0)

    def unpack(self, data: bytes, pos: int) -> tuple[bool, int]:
        value, end = U8.unpack(data, pos)
        if value > 1:
            raise InvalidProgram(f"flag at byte {pos} must be 0 or 1, found {value}")
        return bool(value), end


class Enum(Codec):
    """One byte that names a member of an IntEnum."""

    def __init__(self, cls: type[IntEnum]) -> None:
        self.cls = cls
        self.name = cls.__name__
        self._members = {int(m): m for m in cls}

    def pack(self, value: Any, out: bytearray) -> None:
        out.append(int(value))

    def unpack(self, data: bytes, pos: int) -> tuple[IntEnum, int]:
        value, end = U8.unpack(data, pos)
        if value not in self._members:
            raise InvalidProgram(f"byte {pos}: {value} is not a {self.name} code")
        return self._members[value], end


class DTypeCode(Codec):
    """One byte: the code of an element type."""

    name = "dtype"

    def pack(self, value: Any, out: bytearray) -> None:
        out.append(value.code)

    def unpack(self, data: bytes, pos: int) -> tuple[dtypes.DType, int]:
        code, end = U8.unpack(data, pos)
        try:
            return dtypes.by_code(code), end
        except Exception:
            raise InvalidProgram(f"byte {pos}: {code} is not a dtype code") from None


class Seq(Codec):
    """A u32 count and that many items; a tuple in Python."""

    def __init__(self, item: Codec) -> None:
        self.item = item
        self.name = f"{item.name}[]"

    def pack(self, value: Any, out: bytearray) -> None:
        U32.pack(len(value), out)
        for v in value:
            self.item.pack(v, out)

    def unpack(self, data: bytes, pos: int) -> tuple[tuple[Any, ...], int]:
        count, pos = U32.unpack(data, pos)
        if count > len(data) - pos:
            raise InvalidProgram(f"count {count} at byte {pos - 4} exceeds the stream")
        items: list[Any] = []
        for _ in range(count):
            item, pos = self.item.unpack(data, pos)
            items.append(item)
        return tuple(items), pos


class Ints(Codec):
    """A u32 count and that many i64; a tuple of ints (the common Seq, faster)."""

    name = "i64[]"

    def pack(self, value: Any, out: bytearray) -> None:
        try:
            out += struct.pack(f"<I{len(value)}q", len(value), *value)
        except struct.error as e:
            raise InvalidProgram(f"{value!r} is not a list of i64: {e}") from None

    def unpack(self, data: bytes, pos: int) -> tuple[tuple[int, ...], int]:
        count, pos = U32.unpack(data, pos)
        if 8 * count > len(data) - pos:
            raise InvalidProgram(f"count {count} at byte {pos - 4} exceeds the stream")
        return struct.unpack_from(f"<{count}q", data, pos), pos + 8 * count


class Bytes(Codec):
    """A u32 count and that many raw bytes."""

    name = "bytes"

    def pack(self, value: Any, out: bytearray) -> None:
        U32.pack(len(value), out)
        out += value

    def unpack(self, data: bytes, pos: int) -> tuple[bytes, int]:
        count, pos = U32.unpack(data, pos)
        if count > len(data) - pos:
            raise InvalidProgram(f"count {count} at byte {pos - 4} exceeds the stream")
        return bytes(data[pos : pos + count]), pos + count


class Text(Bytes):
    """UTF-8 text."""

    name = "text"

    def pack(self, value: Any, out: bytearray) -> None:
        super().pack(value.encode(), out)

    def unpack(self, data: bytes, pos: int) -> tuple[str, int]:  # type: ignore[override]
        raw, end = super().unpack(data, pos)
        try:
            return raw.decode(), end
        except UnicodeDecodeError as e:
            raise InvalidProgram(f"byte {pos}: text is not UTF-8: {e}") from None


class Struct(Codec):
    """An inline record without opcode."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.name = cls.__name__

    def pack(self, value: Any, out: bytearray) -> None:
        pack_fields(value, out)

    def unpack(self, data: bytes, pos: int) -> tuple[Any, int]:
        return unpack_fields(self.cls, data, pos)


U8, U16, U32 = Scalar("u8", "B"), Scalar("u16", "H"), Scalar("u32", "I")
U64, I64, F64 = Scalar("u64", "Q"), Scalar("i64", "q"), Scalar("f64", "d")
FLAG, DTYPE, INTS, BYTES, TEXT = Flag(), DTypeCode(), Ints(), Bytes(), Text()


def f(codec: Codec, doc: str, **kwargs: Any) -> Any:
    """Declare a record field: its codec and its sentence in the manual."""
    return dataclasses.field(metadata={"codec": codec, "doc": doc}, **kwargs)


@dataclass(frozen=True)
class FieldInfo:
    """A declared field, as the encoder and the manual see it."""

    name: str
    codec: Codec
    doc: str


@dataclass_transform(frozen_default=True, field_specifiers=(f,))
def record(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of declared fields; `FIELDS` lists them."""
    made = dataclass(frozen=True)(cls)
    fields = tuple(
        FieldInfo(x.name, x.metadata["codec"], x.metadata["doc"])
        for x in dataclasses.fields(made)  # type: ignore[arg-type]
    )
    made.FIELDS = fields  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]


def pack_fields(value: Any, out: bytearray) -> None:
    """Append every field of a record in declaration order."""
    for x in type(value).FIELDS:
        try:
            x.codec.pack(getattr(value, x.name), out)
        except InvalidProgram as e:
            raise e.with_context(f"in {type(value).__name__}.{x.name}") from None


def unpack_fields(cls: Callable[..., T], data: bytes, pos: int) -> tuple[T, int]:
    """Decode a record of class `cls` at `pos`."""
    values: list[Any] = []
    for x in cls.FIELDS:  # type: ignore[attr-defined]
        try:
            value, pos = x.codec.unpack(data, pos)
        except InvalidProgram as e:
            raise e.with_context(f"in {cls.__name__}.{x.name}") from None
        values.append(value)
    return cls(*values), pos
