"""The registry: duplicates raise, gaps are rows, the union covers StableHLO."""

from __future__ import annotations

from typing import Any

import pytest
from jaxlib.mlir.dialects import stablehlo

from vkore_jax.errors import InternalError, NotYetImplemented, UnsupportedOp
from vkore_jax.lowering.importer import CALLS, RETURNS, RULES
from vkore_jax.lowering.op import parse_fields
from vkore_jax.lowering.registry import RuleSet

WALKED = {"stablehlo.constant", "stablehlo.composite", "stablehlo.custom_call"}
"""Ops that the importer itself handles."""


def operations() -> set[str]:
    """Return the names of all StableHLO ops of this jaxlib."""
    found: set[str] = set()
    for item in vars(stablehlo).values():
        name = getattr(item, "OPERATION_NAME", None)
        if isinstance(name, str) and name.startswith("stablehlo."):
            found.add(name)
    return found


def test_every_stablehlo_op_is_a_rule_or_a_known_gap() -> None:
    known = {rule.op for rule in RULES} | WALKED | set(CALLS) | set(RETURNS)
    assert operations() - known == set()


def test_every_row_documents_itself() -> None:
    for rule in RULES:
        if rule.gap is not None:
            assert rule.gap.reason, rule.op
            assert issubclass(rule.gap.error, (UnsupportedOp, NotYetImplemented))
        else:
            assert rule.doc, rule.op
            assert rule.function is not None
        for requirement in rule.requires:
            assert requirement.__doc__, rule.op


def test_duplicates_raise() -> None:
    rules = RuleSet("a")
    rules.missing("stablehlo.x", "not yet")
    with pytest.raises(InternalError, match=r"stablehlo\.x"):
        rules.unsupported("stablehlo.x", "never")
    other = RuleSet("b")

    @other.lowers("stablehlo.x")
    def rule(b: Any, op: Any) -> None:
        """A rule."""

    with pytest.raises(InternalError, match=r"stablehlo\.x"):
        RuleSet.union(rules, other)


def test_rows_are_sorted_by_name() -> None:
    names = [rule.op for rule in RULES]
    assert names == sorted(names)
    assert len(names) == len(RULES)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "#stablehlo.gather<offset_dims = [1, 2], index_vector_dim = 1>",
            {"offset_dims": (1, 2), "index_vector_dim": 1},
        ),
        (
            "#stablehlo.dot_algorithm<lhs_precision_type = bf16, "
            "allow_imprecise_accumulation = false>",
            {"lhs_precision_type": "bf16", "allow_imprecise_accumulation": "false"},
        ),
        ("#stablehlo.dot<>", {}),
    ],
)
def test_structured_attributes_are_parsed(text: str, fields: dict[str, Any]) -> None:
    assert parse_fields(text) == fields
