"""Ops that only move elements: views, padding, joining."""

from __future__ import annotations

from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import RuleSet, identity_rows

rules = RuleSet(__name__)

identity_rows(
    rules,
    ("stablehlo.optimization_barrier",),
    "Passes its operands on; equal views on both sides of it may become one.",
)


@rules.lowers("stablehlo.reshape")
def reshape(b: Builder, op: Op, x: Value) -> Value:
    """The same elements under other extents."""
    return b.reshape(x, op.type.shape)


@rules.lowers("stablehlo.transpose")
def transpose(b: Builder, op: Op, x: Value) -> Value:
    """Permutation of axes."""
    return b.transpose(x, op.ints("permutation"))


@rules.lowers("stablehlo.broadcast_in_dim")
def broadcast_in_dim(b: Builder, op: Op, x: Value) -> Value:
    """Repetition along new or size-1 axes."""
    return b.broadcast(x, op.type.shape, op.ints("broadcast_dimensions"))


@rules.lowers("stablehlo.broadcast")
def broadcast(b: Builder, op: Op, x: Value) -> Value:
    """Repetition along new leading axes."""
    new = len(op.type.shape) - len(x.shape)
    return b.broadcast(x, op.type.shape, range(new, len(op.type.shape)))


@rules.lowers("stablehlo.slice")
def slice_(b: Builder, op: Op, x: Value) -> Value:
    """Static strided slice."""
    start, limit = op.ints("start_indices"), op.ints("limit_indices")
    return b.slice(x, start, limit, op.ints("strides", (1,) * len(start)))


@rules.lowers("stablehlo.reverse")
def reverse(b: Builder, op: Op, x: Value) -> Value:
    """Reversal along axes."""
    return b.reverse(x, op.ints("dimensions"))


@rules.lowers("stablehlo.pad")
def pad(b: Builder, op: Op, x: Value, value: Value) -> Value:
    """Padding with a scalar: edges (negative trims) and interior."""
    low, high = op.ints("edge_padding_low"), op.ints("edge_padding_high")
    return b.pad(x, value, low, high, op.ints("interior_padding"))


@rules.lowers("stablehlo.concatenate")
def concatenate(b: Builder, op: Op, *parts: Value) -> Value:
    """Joining along an axis."""
    if 0 in op.type.shape:
        return b.empty(op.type.dtype, op.type.shape)
    return b.concatenate(parts, op.int("dimension"))


@rules.lowers("stablehlo.get_dimension_size")
def get_dimension_size(b: Builder, op: Op, x: Value) -> Value:
    """Extent of an axis, a constant here."""
    return b.scalar(op.type.dtype, x.shape[op.int("dimension")])


for _op in (
    "dynamic_reshape",
    "dynamic_broadcast_in_dim",
    "dynamic_iota",
    "dynamic_pad",
    "dynamic_conv",
    "dynamic_gather",
    "real_dynamic_slice",
    "set_dimension_size",
):
    rules.unsupported(
        f"stablehlo.{_op}",
        "the chip runs programs of static shape only",
        "jit the function for concrete shapes (no symbolic dimensions in jax.export)",
    )
for _op in ("infeed", "outfeed", "send", "recv"):
    rules.unsupported(
        f"stablehlo.{_op}",
        "the chip has no channel to the host besides callbacks",
        "use jax.experimental.io_callback",
    )
