"""Bytes -> MLIR module: StableHLO portable artifacts, plain bytecode, text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir as mlir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import sdy, stablehlo

from vkore_jax.contexts import Contexts
from vkore_jax.errors import InvalidArgument

_BYTECODE = b"ML\xefR"
_PRODUCER = b"StableHLO_v"
"""Producer name in the header of a portable artifact's bytecode."""
_HEADER_BYTES = 64
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
"""A byte of a string in MLIR text."""


def _new_context() -> Any:
    context = mlir.Context()
    stablehlo.register_dialect(context, load=True)
    sdy.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context


_CONTEXTS = Contexts(_new_context)


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


def is_donated(attributes: Any) -> bool:
    """Tell whether a parameter's attributes let the program take over its buffer.

    `tf.aliasing_output = k` pairs it with result k; `jax.buffer_donor = true` gives it
    away without a partner.  Both mean the same to a chip that does not alias: the
    buffer is free after the call.
    """
    if "tf.aliasing_output" in attributes:
        return True
    donor = "jax.buffer_donor"
    return donor in attributes and bool(mlir.BoolAttr(attributes[donor]).value)


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
