"""The first bytes of what this plugin stores: a kind, a version, a checksum."""

from __future__ import annotations

import hashlib

from vkore_jax.errors import InvalidProgram, VersionMismatch

VERSION = 2
"""Of every container here; raised when any of them changes."""

_KIND_BYTES = 6


def seal(kind: bytes, body: bytes) -> bytes:
    """Store a body: six letters of kind, version, newline, sha256, body."""
    assert len(kind) == _KIND_BYTES
    return _head(kind) + hashlib.sha256(body).digest() + body


def unseal(kind: bytes, data: bytes) -> bytes:
    """Return the body of what `seal` stored.

    Raises:
        InvalidProgram: another kind of bytes, or they are damaged.
        VersionMismatch: another version; the message says both.
    """
    head = _head(kind)
    if not data.startswith(kind) or len(data) < len(head) + 32:
        raise InvalidProgram(
            f"not a stored vkore executable: it starts with {data[: len(head)]!r}, "
            f"{head!r} is required"
        )
    if not data.startswith(head):
        raise VersionMismatch(
            f"the stored executable has format version {data[_KIND_BYTES]}, this "
            f"package reads version {VERSION}: compile it again, or install the "
            "vkore_jax that stored it"
        )
    body = data[len(head) + 32 :]
    if hashlib.sha256(body).digest() != data[len(head) : len(head) + 32]:
        raise InvalidProgram(
            "checksum mismatch: the stored executable is damaged; compile it again"
        )
    return body


def _head(kind: bytes) -> bytes:
    return kind + bytes([VERSION]) + b"\n"
