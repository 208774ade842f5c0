"""Runs cells on the stock CPU and on the engines, and compares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import sdy, stablehlo

from tests.matrix.cells import Array, Cell, element, module
from vkore_jax.program import Program
from vkore_jax.sim.contract import disagreement, ulp
from vkore_jax.sim.fast.translate import translate_program

NEWER = (
    ("xla_backend_optimization_level", "0"),
    ("xla_allow_excess_precision", "False"),
)
OLDER = (*NEWER, ("xla_cpu_use_fusion_emitters", "False"))
"""XLA's older emitters compile in a third of the time; so do eager operations.  jaxlib
0.12 no longer has them."""
NOT_OLDER = ("power", "cbrt", "FNUZ", "custom_call")
"""What the older emitters get wrong (`vkore_jax.sim.fast.load`)."""


@cache
def context() -> Any:
    made = ir.Context()
    stablehlo.register_dialect(made, load=True)
    sdy.register_dialect(made)
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made.append_dialect_registry(registry)
    made.allow_unregistered_dialects = True
    return made


def parse(text: str) -> Any:
    """Return the module; raises MLIRError when it is not StableHLO."""
    return ir.Module.parse(text, context())


def refused(cell: Cell) -> str | None:
    """Return why StableHLO itself refuses a cell."""
    try:
        parse(module([cell]))
    except ir.MLIRError as error:
        return str(error)
    return None


def run(text: str, inputs: Sequence[Array], device: Any, options: Any) -> list[Array]:
    """Compile a module for a device of a JAX client and run it."""
    made = _jax.CompileOptions()
    made.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    made.env_option_overrides = list(options)
    executable = device.client.compile_and_load(
        parse(text), _jax.DeviceList((device,)), compile_options=made
    )
    with jax.enable_x64(True):
        args = [jax.device_put(x, device) for x in inputs]
    found = executable.execute_sharded(args).disassemble_into_single_device_arrays()
    return [np.asarray(x[0]) for x in found]


@cache
def has_older() -> bool:
    """True when this XLA has the older emitters, and the switch."""
    try:
        run(module([]), (), jax.devices("cpu")[0], OLDER)
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True


def on_cpu(text: str, inputs: Sequence[Array]) -> list[Array]:
    """Run a module on the stock CPU."""
    newer = any(word in text for word in NOT_OLDER) or not has_older()
    return run(text, inputs, jax.devices("cpu")[0], NEWER if newer else OLDER)


def on_vkore(cells: Sequence[Cell]) -> list[Array]:
    """Run cells through PJRT, as a user's program."""
    inputs = [x for c in cells for x in c.inputs]
    return run(module(cells), inputs, jax.devices("vkore")[0], ())


def translated(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """Run a program through the fast engine's translation."""
    return on_cpu(translate_program(program).text, inputs)


def split(cells: Sequence[Cell], flat: Sequence[Array]) -> list[tuple[Array, ...]]:
    """Return the results of each cell."""
    found, at = [], 0
    for cell in cells:
        found.append(tuple(flat[at : at + len(cell.results)]))
        at += len(cell.results)
    return found


def wanted(cells: Sequence[Cell]) -> list[tuple[Array, ...]]:
    """Return what the stock CPU gives, or what the cell says instead."""
    asked = [c for c in cells if c.want is None]
    flat: list[Array] = []
    if asked:
        instead = [c.reference or c for c in asked]
        flat = on_cpu(module(instead), [x for c in instead for x in c.inputs])
        names = [n for c in asked for n in c.results]
        flat = [x.view(element(n)) for x, n in zip(flat, names, strict=True)]
    answers = iter(split(asked, flat))
    return [c.want if c.want is not None else next(answers) for c in cells]


@np.errstate(all="ignore")
def wrong(
    cell: Cell, want: Sequence[Array], have: Any, ignore: Any = None
) -> str | None:
    """Return the first difference beyond the cell's tolerance.

    Args:
        cell: says how far a result may be from the CPU's, or from the exact value.
        want: the CPU's results.
        have: the engine's.
        ignore: returns the elements (cell, CPU's result) that are not compared.
    """
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        h = np.asarray(h)
        skip = [f(cell, w) for f in (cell.ignore, ignore) if f is not None]
        if cell.truth is not None and h.shape == cell.truth.shape:
            skip.append(_near(h, cell.truth, cell.tolerance.ulps))
        for mask in skip:
            h = np.where(np.broadcast_to(mask, h.shape), w, h)
        text = disagreement(w, h, cell.tolerance)
        if text:
            return f"result {i}: {text.replace('golden', 'CPU')}"
    return None


def _near(have: Array, truth: Array, ulps: float) -> Array:
    """Return where a result is within some ulps of the exact value."""
    wide = have.astype(np.float64)
    rounded = truth.astype(have.dtype).astype(np.float64)
    close = np.abs(wide - truth) <= ulps * ulp(truth, have.dtype)
    return close | (wide == rounded)
