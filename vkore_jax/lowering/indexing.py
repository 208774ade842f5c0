"""Ops whose indices are run-time values: gather, scatter, dynamic slices, sort."""

from __future__ import annotations

import numpy as np

from vkore_jax.dtypes import BOOL
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import (
    MICRO_OPS,
    DynamicSlice,
    DynamicUpdate,
    Gather,
    MicroInsn,
    MicroProgram,
    Scatter,
    Sort,
)
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.custom_calls import PREFIX
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.regions import micro_program
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import at, kinds

rules = RuleSet(__name__)


def _known_starts(
    b: Builder, starts: tuple[Value, ...], full: Shape, window: Shape
) -> Shape | None:
    """Return clamped start indices when all are constants."""
    known = [b.known(s) for s in starts]
    if any(k is None for k in known):
        return None
    return tuple(min(max(int(k), 0), e - w) for k, e, w in zip(known, full, window))


@rules.lowers("stablehlo.dynamic_slice", takes=at(0))
def dynamic_slice(b: Builder, op: Op, x: Value, *starts: Value) -> Value:
    """Window at run-time start indices, clamped into range."""
    sizes = op.ints("slice_sizes")
    if sizes == x.shape:
        return x
    element = b.element(x)
    if element is not None:
        return b.splat(x.dtype, element, sizes)
    known = _known_starts(b, starts, x.shape, sizes)
    if known is not None:
        return b.slice(x, known, tuple(k + s for k, s in zip(known, sizes)))
    counts = {"starts": len(starts)}
    (out,) = b.direct(DynamicSlice, ((x.dtype, sizes),), (x, *starts), {}, counts)
    return out


@rules.lowers("stablehlo.dynamic_update_slice", takes=at(0))
def dynamic_update_slice(
    b: Builder, op: Op, x: Value, update: Value, *starts: Value
) -> Value:
    """Replacement of a window at run-time start indices, clamped into range."""
    if update.size == 0:
        return x
    if update.shape == x.shape:
        return update
    operands = (x, update, *starts)
    counts = {"starts": len(starts)}
    (out,) = b.direct(DynamicUpdate, ((x.dtype, x.shape),), operands, {}, counts)
    return out


@rules.lowers("stablehlo.gather", takes=at(0))
def gather(b: Builder, op: Op, operand: Value, indices: Value) -> Value:
    """Gather of windows; start indices are clamped into range."""
    element = b.element(operand)
    if element is not None:
        return b.splat(operand.dtype, element, op.type.shape)
    fields = op.fields("dimension_numbers")
    attrs = {
        "offset_dims": fields.get("offset_dims", ()),
        "collapsed_dims": fields.get("collapsed_slice_dims", ()),
        "operand_batching_dims": fields.get("operand_batching_dims", ()),
        "indices_batching_dims": fields.get("start_indices_batching_dims", ()),
        "start_index_map": fields.get("start_index_map", ()),
        "index_vector_dim": fields.get("index_vector_dim", 0),
        "slice_sizes": op.ints("slice_sizes"),
    }
    (out,) = b.direct(Gather, (op.type,), (operand, indices), attrs)
    return out


@rules.lowers("stablehlo.scatter", takes=at(0))
def scatter(b: Builder, op: Op, *values: Value) -> tuple[Value, ...]:
    """Scatter with any combiner; bad windows are skipped, duplicates combine."""
    count = (len(values) - 1) // 2
    operands, updates = values[:count], values[count + 1 :]
    if updates[0].size == 0:
        return operands
    fields = op.fields("scatter_dimension_numbers")
    attrs = {
        "update_window_dims": fields.get("update_window_dims", ()),
        "inserted_dims": fields.get("inserted_window_dims", ()),
        "operand_batching_dims": fields.get("input_batching_dims", ()),
        "indices_batching_dims": fields.get("scatter_indices_batching_dims", ()),
        "scatter_dims": fields.get("scatter_dims_to_operand_dims", ()),
        "index_vector_dim": fields.get("index_vector_dim", 0),
        "unique": op.flag("unique_indices"),
        "sorted": op.flag("indices_are_sorted"),
        "combiner": micro_program(b, op.regions[0]),
    }
    types = [(v.dtype, v.shape) for v in operands]
    counts = {"operands": count, "updates": count}
    return b.direct(Scatter, types, values, attrs, counts)


@rules.lowers("stablehlo.sort")
def sort(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """Sort of one or several tensors along an axis with any comparator."""
    axis = op.int("dimension", -1) % max(1, len(operands[0].shape))
    if not operands[0].shape or operands[0].shape[axis] <= 1:
        return operands
    attrs = {
        "axis": axis,
        "stable": op.flag("is_stable"),
        "comparator": micro_program(b, op.regions[0]),
    }
    types = [(v.dtype, v.shape) for v in operands]
    return b.direct(Sort, types, operands, attrs, {"srcs": len(operands)})


@rules.lowers(PREFIX + "ApproxTopK", takes=kinds("f", 0, least_bits=16))
def approx_top_k(
    b: Builder, op: Op, x: Value, index: Value, worst: Value, _: Value
) -> tuple[Value, ...]:
    """Largest or smallest elements and their places, exactly: a sort, cut short.

    What JAX's own fallback computes: without aggregation the result is longer than k
    (its shape says how long) and holds the best elements in order.  The first initial
    value, an infinity, says which end is asked for.
    """
    limit = b.known(worst)
    if limit is None or not np.isinf(limit):
        raise UnsupportedOp(
            f"the initial value of an approximate top-k must be an infinity, found "
            f"{limit}; call jax.lax.approx_max_k or approx_min_k"
        )
    fields = op.fields("mhlo.backend_config") or op.fields("backend_config")
    axis, kept = fields.get("reduction_dim", -1), op.types[0].shape
    if not 0 <= axis < len(kept) or kept[axis] > x.shape[axis]:
        raise UnsupportedOp(f"top-k of {x} along axis {axis} cannot give {op.types[0]}")
    compare = MICRO_OPS["gt" if limit < 0 else "lt"].code
    comparator = MicroProgram(
        (x.dtype, x.dtype, index.dtype, index.dtype),
        (MicroInsn(compare, BOOL, (0, 1)),),
        (4,),
    )
    attrs = {"axis": axis, "stable": True, "comparator": comparator}
    types = [(v.dtype, v.shape) for v in (x, index)]
    found = b.direct(Sort, types, (x, index), attrs, {"srcs": 2})
    return tuple(b.slice(v, (0,) * len(kept), kept) for v in found)
