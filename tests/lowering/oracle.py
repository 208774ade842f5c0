"""Compare an imported function, evaluated by `ir_eval`, with the stock CPU client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tests.lowering import artifacts, ir_eval
from vkore_jax.chips import VK1, Chip
from vkore_jax.lowering import ir

QUICK: Any = {"xla_backend_optimization_level": 0}
TOLERANCE = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
}


def compare(
    f: Callable[..., Any], *args: Any, chip: Chip = VK1, tol: float | None = None
) -> ir.Module:
    """Import `f`, evaluate it, compare with the CPU, return the module.

    Integers and booleans must be equal, floats within the tolerance of their type.
    """
    args = jax.tree.map(np.asarray, args)
    module = artifacts.lower(f, *args, chip=chip)
    given = [np.asarray(x) for x in jax.tree.leaves(args)]
    found = ir_eval.evaluate(module, given)
    wanted = [np.asarray(x) for x in jax.tree.leaves(on_cpu(f, *args))]
    assert len(found) == len(wanted)
    for a, w in zip(found, wanted):
        same(a, w, tol)
    return module


def on_cpu(f: Callable[..., Any], *args: Any) -> Any:
    """Run a function once on the default device; not worth optimising."""
    return jax.jit(f).lower(*args).compile(QUICK)(*args)


def same(found: Any, wanted: Any, tol: float | None = None) -> None:
    """Assert equality, or closeness for floats."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    limit = TOLERANCE.get(wanted.dtype.name)
    if limit is None and wanted.dtype.kind not in "V":
        np.testing.assert_array_equal(found, wanted)
        return
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, w = found.astype(wide), wanted.astype(wide)
    rtol = tol if tol is not None else limit if limit is not None else 0.13
    finite = w[np.isfinite(w)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(a, w, rtol=rtol, atol=rtol * max(scale, 1e-4))


def nodes(graph: ir.Graph) -> list[ir.Node]:
    """Return all nodes of a graph and of the graphs in it."""
    out: list[ir.Node] = []
    for node in graph.nodes:
        out.append(node)
        for inner in node.graphs:
            out.extend(nodes(inner))
    return out
