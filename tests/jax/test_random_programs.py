"""Random jnp programs: fast engine, golden engine and stock CPU give the same values.

The suite runs a fixed few.  For a long run on fresh programs:
`VKORE_RANDOM_PROGRAMS=5000 pytest tests/jax/test_random_programs.py`
or, without stopping at the first that fails, `python -m tests.jax.search`.
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.jax import harness, search

LONG = int(os.environ.get("VKORE_RANDOM_PROGRAMS", "0"))
PHASES = (Phase.explicit, Phase.generate, Phase.shrink) if LONG else (Phase.generate,)


def case(data: st.DataObject) -> harness.Case:
    """Return a random program and how it is used."""

    def choose(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    return search.draw(choose)


@pytest.mark.slow
@settings(
    max_examples=LONG or 20,
    derandomize=not LONG,
    phases=PHASES,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
@given(st.data())
def test_random_program(data: st.DataObject) -> None:
    c = case(data)
    note(c.program.listing())
    note(f"batch {c.batch}, grad {c.grad}, chip {c.chip}")
    found = harness.problems(c)
    assert not found, "\n".join(found)


def test_axes_cut_elsewhere() -> None:
    """Two reads of one array in a group, the second with its middle axes swapped."""

    def f(a: jax.Array) -> jax.Array:
        turned = jnp.tanh(a.transpose(0, 2, 1, 3)).sum((1, 2, 3))
        return turned + jnp.tanh(a * 2).sum((1, 2, 3))

    a = np.random.default_rng(0).standard_normal((3, 5, 3, 4)).astype(np.float32)
    want = harness.on_cpu(f, [a])
    found = np.asarray(jax.jit(f)(jax.device_put(a, harness.VKORE)))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
