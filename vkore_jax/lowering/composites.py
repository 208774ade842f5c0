"""Composites with a lowering of their own, and ops that only order or annotate.

An unknown composite never gets here: the importer lowers its decomposition.
"""

from __future__ import annotations

from vkore_jax.dtypes import BOOL
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import RuleSet, identity_rows

rules = RuleSet(__name__)

PREFIX = "composite:"
"""Rules of composites are keyed by this prefix and the composite's name."""

identity_rows(
    rules,
    ("sdy.sharding_constraint",),
    "An annotation: passes its operand on (one device).",
)


@rules.lowers("stablehlo.create_token", "stablehlo.after_all")
def token(b: Builder, op: Op, *tokens: Value) -> Value:
    """A token; order is kept by the order of the nodes with effects."""
    return b.scalar(BOOL, False)


@rules.lowers("sdy.manual_computation")
def manual_computation(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """The body of a shard_map over one device."""
    return op.regions[0].inline(b, operands)
