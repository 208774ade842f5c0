"""What the bridge reads of a compiled program, and the container it is stored in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vkore_jax.errors import InvalidProgram
from vkore_jax.pjrt.artifact import MEMORY_KINDS, TensorSpec
from vkore_jax.pjrt.backend import LoadedProgram
from vkore_jax.pjrt.container import seal, unseal
from vkore_jax.pjrt.inner import Array, Execute, InnerClient, Launch
from vkore_jax.pjrt.options import CompileOptions, encode_assignment

_KIND = b"VKEXEC"

Row = tuple[int, int, tuple[int, ...], str, bytes]
"""PJRT type, memory kind, shape, layout text, serialized OpSharding (replicated)."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Plain data for the bridge; it reads the attributes once, by name.

    With a `launch` the bridge never calls `execute`.  Small parameters and results go
    through a table whose address is the first argument (`vkore_jax.sim.fast.small`).
    A program that `calls_host` fails when it is executed, any other when a result is
    needed.
    """

    program: LoadedProgram
    execute: Execute
    launch: Launch | None
    handlers: list[Any]
    token: Array | None
    name: str
    fingerprint: str
    options: bytes
    assignment: bytes
    device_id: int
    calls_host: bool
    temp_bytes: int
    code_bytes: int
    params: tuple[Row, ...]
    results: tuple[Row, ...]
    donated: tuple[int, ...]
    consumed: tuple[int, ...]
    small_params: tuple[int, ...]
    small_results: tuple[int, ...]


def describe(
    program: LoadedProgram, options: CompileOptions, inner: InnerClient
) -> Loaded:
    """Collect what the bridge needs to know of a program."""
    ordered = any(spec.is_token for spec in program.params)
    return Loaded(
        program=program,
        execute=program.execute,
        launch=program.launch,
        handlers=program.handlers,
        token=inner.token(options.device_id) if ordered else None,
        name=program.name,
        fingerprint=program.fingerprint,
        options=options.serialized,
        assignment=encode_assignment((options.device_id,)),
        device_id=options.device_id,
        calls_host=program.calls_host,
        temp_bytes=program.temp_bytes,
        code_bytes=program.code_bytes,
        params=tuple(_row(spec) for spec in program.params),
        results=tuple(_row(spec) for spec in program.results),
        donated=tuple(program.donated),
        consumed=tuple(program.consumed),
        small_params=program.small.params,
        small_results=program.small.results,
    )


def pack(options: bytes, program: bytes) -> bytes:
    """Store compile options and program: two length-prefixed fields."""
    body = b"".join(len(x).to_bytes(8, "little") + x for x in (options, program))
    return seal(_KIND, body)


def unpack(data: bytes) -> tuple[bytes, bytes]:
    """Return (compile options, program).

    Raises:
        InvalidProgram: the bytes are something else, or damaged.
        VersionMismatch: another version stored them.
    """
    body = unseal(_KIND, data)
    fields: list[bytes] = []
    position = 0
    for _ in range(2):
        size = int.from_bytes(body[position : position + 8], "little")
        fields.append(body[position + 8 : position + 8 + size])
        position += 8 + size
    if position != len(body):
        raise InvalidProgram("the stored executable has a wrong length")
    return fields[0], fields[1]


def _row(spec: TensorSpec) -> Row:
    kind = MEMORY_KINDS.index(spec.memory_kind)
    return (spec.pjrt_type, kind, tuple(spec.shape), spec.layout, b"")
