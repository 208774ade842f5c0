"""The Program container: the one interface between compiler and engines.

Binary layout (little-endian):

    bytes 0..7    magic "VKPROG\\r\\n"
    bytes 8..11   u32 format version
    bytes 12..15  u32 reserved, zero
    bytes 16..47  sha256 of everything from byte 48 on
    bytes 48..    the fields of `Program`, in declaration order (see `isa.codec`)

A program is self-contained: it can be saved, inspected and executed without the
compiler.  Constants are stored inside; a HOST command refers to a callback of the
process that compiled it and makes a program bound to that process.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property

from vkore_jax.dtypes import DType
from vkore_jax.errors import InvalidProgram, VersionMismatch
from vkore_jax.isa.access import accesses
from vkore_jax.isa.codec import (
    BYTES,
    DTYPE,
    INTS,
    TEXT,
    U32,
    U64,
    Codec,
    Enum,
    Seq,
    Struct,
    f,
    pack_fields,
    record,
    unpack_fields,
)
from vkore_jax.isa.commands import BLOCK, COMMANDS, Block
from vkore_jax.isa.enums import Segment
from vkore_jax.isa.limits import NESTING
from vkore_jax.isa.view import View

MAGIC = b"VKPROG\r\n"
FORMAT_VERSION = 3
_HEADER = 48


@record
class Buffer:
    """One row of the buffer table: a byte range of a DRAM segment."""

    segment: Segment = f(Enum(Segment), "segment")
    offset: int = f(U64, "byte offset in the segment, aligned")
    nbytes: int = f(U64, "size in bytes")


@record
class TensorSpec:
    """A parameter or result: which buffer, and what the caller sees."""

    buffer: int = f(U32, "index into the buffer table")
    dtype: DType = f(DTYPE, "element type")
    shape: tuple[int, ...] = f(INTS, "extents")
    memory_kind: str = f(TEXT, "JAX memory kind; empty for the default")

    @property
    def view(self) -> View:
        """Dense view of the whole tensor."""
        return View.dense(self.buffer, self.dtype, self.shape)


@record
class Location:
    """Provenance: the StableHLO op and the user's Python line behind commands."""

    op: str = f(TEXT, "StableHLO op or JAX primitive name path")
    file: str = f(TEXT, "the user's source file; empty when unknown")
    line: int = f(U32, "line; 0 when unknown")
    function: str = f(TEXT, "the user's function; empty when unknown")

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else "?"
        inside = f" ({self.function})" if self.function else ""
        return f"{self.op} at {place}{inside}"


_FOLDED = re.compile(r"folded (\d+) of ")


def folded_at(place: Location, count: int) -> Location:
    """Return the provenance of values that no command makes.

    The compiler computes some integers from constants (`vkore_jax/lowering/fold.py`).
    A row of the location table says how many and where; no command refers to it.
    """
    return Location(
        f"folded {count} of {place.op}", place.file, place.line, place.function
    )


@record
class Program:
    """A compiled program: buffer table, constants, command stream, provenance."""

    name: str = f(TEXT, "name of the jitted function")
    chip: str = f(TEXT, "profile that it was compiled for")
    scratchpad_bytes: int = f(U64, "scratchpad that the schedules need")
    arena_bytes: int = f(U64, "DRAM arena that the intermediates need")
    buffers: tuple[Buffer, ...] = f(Seq(Struct(Buffer)), "buffer table")
    constants: bytes = f(BYTES, "contents of the constant segment")
    params: tuple[TensorSpec, ...] = f(Seq(Struct(TensorSpec)), "parameters")
    results: tuple[TensorSpec, ...] = f(Seq(Struct(TensorSpec)), "results")
    donated: tuple[int, ...] = f(INTS, "parameters that a call consumes")
    locations: tuple[Location, ...] = f(Seq(Struct(Location)), "provenance table")
    block: Block = f(BLOCK, "command stream")

    @cached_property
    def encoded(self) -> bytes:
        """The program as bytes: header, checksum, fields."""
        body = bytearray()
        pack_fields(self, body)
        head = MAGIC + FORMAT_VERSION.to_bytes(4, "little") + b"\0\0\0\0"
        return head + hashlib.sha256(body).digest() + bytes(body)

    @property
    def folded(self) -> int:
        """Integers that the compiler computed from constants (`folded_at`)."""
        found = (_FOLDED.match(place.op) for place in self.locations)
        return sum(int(m[1]) for m in found if m)

    @property
    def fingerprint(self) -> str:
        """Hex sha256 of the contents; stable across processes."""
        return self.encoded[16:_HEADER].hex()


def dram_bytes(
    *, arguments: int, results: int, constants: int, arena: int, donated: int
) -> int:
    """Return the DRAM that a call needs when nothing else is on the chip.

    All in bytes.  Donated arguments make room for results and intermediates.  When it
    is called, what is alive on the chip counts instead (`pjrt/csrc/execute.c`).
    """
    return arguments + constants + max(0, results + arena - donated)


def _holds_blocks(codec: Codec) -> bool:
    return codec is BLOCK or (isinstance(codec, Seq) and _holds_blocks(codec.item))


_HOLDERS = {
    cls
    for cls in COMMANDS.values()
    if any(_holds_blocks(x.codec) for x in getattr(cls, "FIELDS"))  # noqa: B009
}
"""Commands with blocks inside."""


def check_nesting(block: Block) -> None:
    """Check how deep blocks are nested (`isa.limits`), without recursion.

    Raises:
        InvalidProgram: deeper than walks of a program can follow.
    """
    level, depth = [block], 0
    while level := [
        inner
        for b in level
        for x in b
        if type(x.cmd) in _HOLDERS
        for _, inner in accesses(x.cmd).blocks
    ]:
        depth += 1
        if depth > NESTING:
            raise InvalidProgram(f"blocks are nested more than {NESTING} deep")


def decode(data: bytes) -> Program:
    """Decode a program.

    Raises:
        InvalidProgram: wrong magic, checksum, reserved bits, codes or lengths.
        VersionMismatch: another format version; the message says both.
    """
    if len(data) < _HEADER or data[:8] != MAGIC:
        raise InvalidProgram(f"not a vkore program: starts with {bytes(data[:8])!r}")
    version = int.from_bytes(data[8:12], "little")
    if version != FORMAT_VERSION:
        raise VersionMismatch(
            f"program has format version {version}; this package reads version "
            f"{FORMAT_VERSION}: compile it again"
        )
    if data[12:16] != b"\0\0\0\0":
        raise InvalidProgram("reserved header bits must be zero")
    body = bytes(data[_HEADER:])
    if hashlib.sha256(body).digest() != bytes(data[16:_HEADER]):
        raise InvalidProgram("checksum mismatch: the program is damaged")
    try:
        program, end = unpack_fields(Program, body, 0)
    except RecursionError:
        raise InvalidProgram("blocks are nested too deeply to decode") from None
    if end != len(body):
        raise InvalidProgram(f"{len(body) - end} bytes behind the program")
    check_nesting(program.block)
    program.__dict__["encoded"] = bytes(data)
    return program
