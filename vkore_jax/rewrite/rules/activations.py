"""Activation functions as patterns of their argument, and gated products of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vkore_jax import primitives
from vkore_jax._jax_compat import function_name, in_jax
from vkore_jax.rewrite.algebra import Cap, Const, Env, Inv, Pattern, alt, op
from vkore_jax.rewrite.graph import Read
from vkore_jax.rewrite.rule import (
    ARITHMETIC,
    CASTS,
    Match,
    Plan,
    Rule,
    common_type,
    fills,
    is_float,
    values,
)
from vkore_jax.rewrite.terms import product, total
from vkore_jax.rewrite.views import View, peel, realise


@dataclass(frozen=True)
class FromJax:
    """A `jax.custom_jvp` function of JAX's own, by name.

    The name alone would not do: a function of the user's may have the same, and a
    derivative of its own.
    """

    name: str
    pattern: Pattern

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match the only argument."""
        view = peel(view)
        node = view.node
        if node is None or node.name != "custom_jvp_call" or len(node.inputs) != 1:
            return
        body = node.params["call_jaxpr"].jaxpr
        if function_name(body) == self.name and in_jax(body):
            yield from self.pattern.match(view.of(node.inputs[0]), env)


def cube(x: Pattern) -> Pattern:
    """Of one value."""
    return alt(op("integer_pow", x, y=3), product(x, x, x), op("pow", x, Const(3.0)))


def logistic(x: Pattern) -> Pattern:
    """1 / (1 + exp(-x)), as a factor."""
    return alt(
        op("logistic", x), Inv(total(op("exp", product(x, times=-1.0)), plus=1.0))
    )


def relu(x: Pattern) -> Pattern:
    """`jnp.maximum(x, 0)` is none: half of its gradient passes at zero."""
    return alt(
        FromJax("relu", x), op("select_n", op("gt", x, Const(0.0)), Const(0.0), x)
    )


def silu(x: Pattern) -> Pattern:
    """X logistic(x)."""
    return product(x, logistic(x))


def gelu(x: Pattern) -> Pattern:
    """The tanh form."""
    c, k = math.sqrt(2 / math.pi), 0.044715
    cubic = alt(
        total(x, product(cube(x), times=k)), total(x, product(x, x, x, times=k))
    )
    return product(x, total(op("tanh", product(cubic, times=c)), plus=1.0), times=0.5)


def gelu_erf(x: Pattern) -> Pattern:
    """The exact form."""
    r = math.sqrt(0.5)
    return alt(
        product(x, op("erfc", product(x, times=-r)), times=0.5),
        product(x, total(op("erf", product(x, times=r)), plus=1.0), times=0.5),
    )


ACTIVATIONS: Mapping[str, Callable[[Pattern], Pattern]] = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": relu,
    "silu": silu,
}
"""By the names of the table in `vkore_jax.primitives`."""

ROOTS = (*ARITHMETIC, *CASTS, "custom_jvp_call", "select_n")
X = Cap("x")


def _guard(match: Match) -> str | None:
    found = values(match.env, "gate", "x")
    if not is_float(match.root, *found):
        return "not floating point"
    if not all(fills(match, n) for n in ("gate", "x") if match.has(n)):
        return "an operand is broadcast"
    return None


def _gelu_plan(form: str) -> Callable[[Match], Plan]:
    def plan(match: Match) -> Plan:
        inputs = values(match.env, "x")
        dtype = common_type(match.root, inputs)

        def run(read: Read) -> Any:
            x = realise(match.view("x"), read).astype(dtype)
            return primitives.gelu(x, approximate=form == "gelu")

        return Plan(inputs, run)

    return plan


def _swiglu_plan(match: Match) -> Plan:
    inputs = values(match.env, "gate", "x")
    dtype = common_type(match.root, inputs)

    def run(read: Read) -> Any:
        gate, x = (realise(match.view(n), read).astype(dtype) for n in ("gate", "x"))
        return primitives.swiglu(gate, x)

    return Plan(inputs, run)


GATE = Cap("gate")
SWIGLU = Rule(
    "swiglu",
    (*ARITHMETIC, *CASTS),
    product(GATE, logistic(GATE), X),
    _swiglu_plan,
    _guard,
    takes=frozenset(),
)
GELU = tuple(
    Rule("gelu", ROOTS, ACTIVATIONS[form](X), _gelu_plan(form), _guard)
    for form in ("gelu", "gelu_erf")
)
