"""Engines against independent oracles (NumPy, stock JAX on the CPU), case by case."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.case import SimCase
from tests.sim.cases import CASES
from tests.sim.conftest import Engine
from vkore_jax.chips import TINY
from vkore_jax.sim.contract import disagreement


def oracle_cases() -> list[SimCase]:
    return [c for c in CASES if c.oracle is not None]


@pytest.mark.parametrize("case", oracle_cases(), ids=lambda c: c.id)
def test_oracle(engine: Engine, case: SimCase) -> None:
    inputs = case.inputs(np.random.default_rng(0))
    assert case.oracle is not None
    with np.errstate(all="ignore"):
        expected = case.oracle(*inputs)
        bound = case.oracle_tolerance or case.bound(inputs)
    found = engine(case.build(TINY).encoded, inputs)
    assert len(found) == len(expected)
    for i, (want, have) in enumerate(zip(expected, found)):
        problem = disagreement(np.asarray(want), have, bound)
        assert problem is None, f"result {i}: {problem}"
