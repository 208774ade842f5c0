"""The compiler: StableHLO artifact or tensor IR in, Program out.

import -> simplify -> layout -> fuse -> tile -> allocate -> emit
"""

from __future__ import annotations

from typing import Any

from vkore_jax.chips import Chip
from vkore_jax.lowering import ir
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.allocate import allocate
from vkore_jax.lowering.artifact import read_module, reading
from vkore_jax.lowering.emit import emit
from vkore_jax.lowering.fuse import fuse, split
from vkore_jax.lowering.legalize.layout import layout
from vkore_jax.lowering.options import Options
from vkore_jax.lowering.simplify import simplify
from vkore_jax.lowering.tile import tile
from vkore_jax.lowering.verify_ir import check
from vkore_jax.program import Program

__all__ = ["Options", "compile", "compile_module", "read_module", "reading"]

DEFAULT = Options()


def compile(artifact: Any, chip: Chip, options: Options = DEFAULT) -> Program:
    """Compile a StableHLO program.

    Args:
        artifact: portable artifact, MLIR bytecode or text, or the module that
            `read_module` made of one.
        chip: profile to compile for.
        options: choices that never change a result.

    Raises:
        InvalidArgument: the bytes are no StableHLO module.
        UnsupportedOp, NotYetImplemented: the chip or this compiler cannot do an op.
        ResourceExhausted: it does not fit the chip's memories.
    """
    from vkore_jax.lowering.importer import import_module

    if isinstance(artifact, bytes):
        artifact = read_module(artifact)
    module = import_module(artifact, chip, kernels=options.kernels)
    return compile_module(module, chip, options)


def compile_module(
    module: ir.Module, chip: Chip, options: Options = DEFAULT
) -> Program:
    """Compile a module of tensor IR: every pass of the compiler, in order."""

    def checked(m: ir.Module, after: str, views: Views | None = None) -> ir.Module:
        if options.verify:
            check(m, after, views)
        return m

    module = checked(module, "import")
    module = checked(simplify(module), "simplify")
    module = checked(layout(module), "layout")
    views = Views.of(module.graph)
    module = checked(fuse(module, chip, options, views), "fuse", views)
    module = tile(module, chip, views, lambda g: split(g, chip, views))
    allocation = allocate(module, chip, views)
    return emit(module, chip, views, allocation)
