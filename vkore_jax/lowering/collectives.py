"""Collectives of programs for one device: every group has one member."""

from __future__ import annotations

from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import UNTYPED, RuleSet, identity_rows

rules = RuleSet(__name__)

identity_rows(
    rules,
    (
        "stablehlo.all_reduce",
        "stablehlo.all_gather",
        "stablehlo.all_to_all",
        "stablehlo.reduce_scatter",
    ),
    "Passes its operands on (one device).",
)


@rules.lowers("stablehlo.partition_id", "stablehlo.replica_id", takes=UNTYPED)
def device_id(b: Builder, op: Op) -> Value:
    """Zero (one device)."""
    return b.scalar(op.type.dtype, 0)


@rules.lowers("stablehlo.collective_permute")
def collective_permute(b: Builder, op: Op, x: Value) -> Value:
    """Its operand when device 0 sends to itself, else zeros (one device)."""
    sources, _ = op.pairs("source_target_pairs", 0)
    return x if sources else b.scalar(x.dtype, 0, x.shape)


@rules.lowers("stablehlo.collective_broadcast")
def collective_broadcast(b: Builder, op: Op, x: Value) -> Value:
    """Its operand when device 0 is in a group, else zeros (one device)."""
    member = 0 in op.ints("replica_groups")
    return x if member else b.scalar(x.dtype, 0, x.shape)
