"""Executables in JAX's compilation cache, bound to the key they are stored under.

JAX finds an entry by the name of its file alone.  What is stored here holds a digest of
its key, so that an entry under another's name is an error and never a result.
"""

from __future__ import annotations

import hashlib
from typing import Any

from vkore_jax.errors import InvalidProgram
from vkore_jax.pjrt import container

_CACHED = b"VKCACH"


class Executable:
    """An executable whose stored form is bound to its key in JAX's cache."""

    def __init__(self, executable: Any, key: str) -> None:
        self._executable, self._key = executable, key

    def serialize(self) -> bytes:
        """Return what `Client` reads."""
        return container.seal(
            _CACHED, _digest(self._key) + self._executable.serialize()
        )


class Client:
    """A client that loads what is stored under one key of JAX's cache, nothing else."""

    def __init__(self, backend: Any, key: str) -> None:
        self._backend, self._key = backend, key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def deserialize_executable(self, data: bytes, *args: Any) -> Any:
        """Load an executable.

        Raises:
            InvalidProgram: the bytes are damaged, or were stored under another key.
        """
        body = container.unseal(_CACHED, data)
        digest = _digest(self._key)
        if not body.startswith(digest):
            raise InvalidProgram(
                f"the entry {self._key} of JAX's compilation cache was stored under "
                "another key: it is another program's; remove the file"
            )
        return self._backend.deserialize_executable(body[len(digest) :], *args)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
