"""Bytes -> MLIR module: StableHLO portable artifacts, plain bytecode, text."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir as mlir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import sdy, stablehlo

from vkore_jax.errors import InvalidArgument

_BYTECODE = b"ML\xefR"
_PRODUCER = b"StableHLO_v"
"""Producer name in the header of a portable artifact's bytecode."""
_HEADER_BYTES = 64
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
"""A byte of a string in MLIR text."""

_SHARED_BYTES = 1 << 20
"""Bytes of modules that one context reads before it is replaced."""


class _Contexts:
    """Contexts for artifacts.

    Making and freeing one takes 2 ms, a third of what compiling an eager operation
    takes beside XLA, so small modules share; but a context never frees the constants
    that it has seen, so only so many share, and a large module has its own.
    """

    def __init__(self) -> None:
        self._shared: Any = None
        self._left = 0
        self._lock = threading.Lock()

    def get(self, size: int) -> Any:
        """Return a context for a module that is `size` bytes long."""
        if size > _SHARED_BYTES // 16:
            return _new_context()
        with self._lock:
            self._left -= size
            if self._left < 0:
                self._shared, self._left = _new_context(), _SHARED_BYTES - size
            return self._shared

    def clear(self) -> None:
        """Forget the shared context."""
        with self._lock:
            self._shared, self._left = None, 0


_CONTEXTS = _Contexts()


def _new_context() -> Any:
    context = mlir.Context()
    stablehlo.register_dialect(context, load=True)
    sdy.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context


def read_module(artifact: bytes) -> Any:
    """Parse a program.

    Args:
        artifact: StableHLO portable artifact (what JAX sends a plugin), MLIR bytecode
            or MLIR text.

    Returns:
        The module (`jaxlib.mlir.ir.Module`).

    Raises:
        InvalidArgument: when it is none of these.
    """
    try:
        # jaxlib crashes when it is asked to read other bytecode as an artifact.
        head = artifact[:_HEADER_BYTES]
        if head.startswith(_BYTECODE) and _PRODUCER in head:
            context = _CONTEXTS.get(len(artifact))
            return stablehlo.deserialize_portable_artifact(context, artifact)
        if not head.startswith(_BYTECODE):
            # The bindings end the process over a message that is not UTF-8.
            _ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()), artifact).decode()
        # An artifact brings its dialects along; a module needs `func` and others.
        context = _new_context()
        registry = mlir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        context.append_dialect_registry(registry)
        return mlir.Module.parse(artifact, context)
    except (mlir.MLIRError, ValueError, TypeError) as error:
        lines = [line.strip() for line in str(error).split("\n")]
        reason = next((x for x in lines if x.startswith("error:")), lines[0])
        raise InvalidArgument(
            f"neither a StableHLO portable artifact nor an MLIR module: {reason}"
        ) from None


_UNREADABLE = (AttributeError, TypeError, ValueError, LookupError, RuntimeError)
"""What the MLIR bindings raise for an attribute of another type than expected, and for
text that is not UTF-8."""


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what the bindings raise while parts of a module are read into our error.

    For code that only reads: a mistake of the compiler must not be called the user's.

    Raises:
        InvalidArgument: it names what was read.
    """
    try:
        yield
    except RecursionError:
        raise
    except _UNREADABLE as error:
        raise InvalidArgument(
            f"{what} of the module cannot be read: {type(error).__name__}: {error}; "
            "the module is damaged, or was not made by JAX: write it anew"
        ) from None
