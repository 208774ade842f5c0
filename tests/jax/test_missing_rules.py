"""Primitives that JAX lowers elsewhere only: our own error, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas
from jax.experimental.sparse.linalg import spsolve
from jax.extend.core import Primitive

from vkore_jax import _jax_compat
from vkore_jax.errors import UnsupportedPrimitive

FOREIGN = Primitive("foreign")
FOREIGN.def_abstract_eval(lambda x: x)


def kernel(source: Any, target: Any) -> None:
    target[...] = source[...] + 1


def call(**options: Any) -> Callable[[Any], Any]:
    return pallas.pallas_call(kernel, jax.ShapeDtypeStruct((3,), "f4"), **options)


ROWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pallas_call": (call(), "interpret=True"),
    "spsolve": (lambda x: spsolve(x, jnp.arange(3), jnp.arange(4), x), "jnp.linalg"),
    "foreign": (lambda x: FOREIGN.bind(x), "register_lowering"),
}


@pytest.mark.parametrize("name", ROWS)
def test_message(name: str) -> None:
    function, instead = ROWS[name]
    pattern = f"(?s)'{name}' has no lowering rule.*{instead}.*float32\\[3\\]"
    with pytest.raises(UnsupportedPrimitive, match=pattern):
        jax.jit(lambda x: function(x * 2))(jnp.ones(3))
    assert issubclass(UnsupportedPrimitive, NotImplementedError)


@pytest.mark.slow
def test_interpreted_kernels_run() -> None:
    assert call(interpret=True)(jnp.ones(3)).tolist() == [2, 2, 2]


def test_rules_of_the_cpu_are_accounted_for() -> None:
    """A primitive with a rule for the CPU has one here, or a row that says why not."""
    from jax._src.interpreters import mlir as private

    rules = private._platform_specific_lowerings
    have = set(private._lowerings) | set(rules["vkore"])
    lacking = {p.name for p in rules["cpu"] if p not in have} - {"foreign"}
    assert lacking <= set(_jax_compat.INSTEAD)
