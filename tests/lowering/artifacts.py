"""Artifacts as a plugin receives them, without any plugin being registered."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

import jax
from jaxlib.mlir.dialects import stablehlo

from vkore_jax.chips import VK1, Chip
from vkore_jax.lowering import ir
from vkore_jax.lowering.importer import import_artifact

_jax: Any = importlib.import_module("jaxlib._jax")  # has no type stubs

PLATFORM = "vkore"


def artifact(f: Callable[..., Any], *args: Any, **jit: Any) -> bytes:
    """Return the portable artifact of a function, lowered for the vkore platform.

    The C++ serializer is the one that JAX's PJRT client uses: it turns CHLO ops into
    composites or plain ops.
    """
    lowered = jax.jit(f, **jit).trace(*args).lower(lowering_platforms=(PLATFORM,))
    module: Any = lowered.compiler_ir()
    out = io.BytesIO()
    module.operation.write_bytecode(out)
    version = stablehlo.get_current_version()
    return _jax.mlir.serialize_portable_artifact(out.getvalue(), version)


def lower(f: Callable[..., Any], *args: Any, chip: Chip = VK1, **jit: Any) -> ir.Module:
    """Import a function for example arguments."""
    return import_artifact(artifact(f, *args, **jit), chip)
