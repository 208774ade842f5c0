"""Whatever the compiler emits, on any chip, the verifier takes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.lowering import any_chip
from vkore_jax.chips import get_chip


def check(data: st.DataObject) -> None:
    def choose(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    function, given_, what = any_chip.program(choose)
    module = any_chip.artifact(function, given_)
    if module is not None:
        on = any_chip.chip(choose)
        found = any_chip.problem(module, on)
        assert not found, f"{what}\n{on}\n{found}"


@pytest.mark.slow
@settings(
    max_examples=60,
    phases=(Phase.generate,),
    suppress_health_check=tuple(HealthCheck),
)
@given(st.data())
def test_random_programs_on_random_chips(data: st.DataObject) -> None:
    check(data)


FOUND: dict[str, tuple[Any, tuple[int, ...]]] = {
    "argmax": (lambda x: jnp.argmax(x, 0), (1000, 450)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 0), (400, 4096)),
}


@pytest.mark.parametrize("name", FOUND)
def test_accumulators_of_pairs(name: str) -> None:
    function, shape = FOUND[name]
    module = any_chip.artifact(function, jax.ShapeDtypeStruct(shape, "f4"))
    assert module is not None
    assert not any_chip.problem(module, get_chip("tiny"))
