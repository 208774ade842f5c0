"""The table of what XLA:CPU gets wrong names code and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.sim.cases import CASES
from vkore_jax.sim.fast import hazards

ROOT = Path(__file__).parents[2]
FAST = Path(hazards.__file__).parent


def _functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize("row", hazards.HAZARDS, ids=lambda row: row.what[:40])
def test_row(row: hazards.Hazard) -> None:
    assert row.what.endswith(".")
    assert row.avoided.endswith(".")
    assert row.seen
    assert all(re.fullmatch(r"0\.\d+\.\d+", v) for v in row.seen)
    for place in row.code:
        file, _, name = place.partition(":")
        assert name in _functions(FAST / file), place
    assert row.tests
    for test in row.tests:
        path, _, rest = test.partition("::")
        name, _, case = rest.removesuffix("]").partition("[")
        assert name in _functions(ROOT / path), test
        if path == "tests/sim/test_engines.py":
            assert case in {c.id for c in CASES}, test


def test_no_row_twice() -> None:
    whats = [row.what for row in hazards.HAZARDS]
    assert len(set(whats)) == len(whats)
    assert len(hazards.table().splitlines()) == len(whats) + 2
