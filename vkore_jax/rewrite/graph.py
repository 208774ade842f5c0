"""A jaxpr as a def-use graph that can be matched, edited and run.

Plain `jit` calls are inlined, so that a pattern does not care which helper computed
what; every other call stays one node.  Values are in single assignment: a node owns its
outputs, and editing means to give an output another node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal

from vkore_jax._jax_compat import equation_context, equation_place, in_jax

Read = Callable[["Value"], Any]

INLINED: Mapping[str, str] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
}
"""Calls that mean their body, and the param that holds it."""

_SHARDINGS = ("in_shardings", "out_shardings", "in_layouts", "out_layouts")


@dataclass(eq=False)
class Value:
    """An array of the traced function.

    Attributes:
        aval: its abstract value.
        node: what computes it; None for arguments and constants.
        const: the array (a tracer of an outer trace, perhaps) of a constant.
        uses: nodes that read it, once for each operand; outputs do not count.
    """

    aval: Any
    node: Node | None = None
    const: Any = None
    uses: list[Node] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape."""
        return tuple(self.aval.shape)

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self.aval.dtype

    def concrete(self) -> np.ndarray | None:
        """Return the elements if they are known while tracing."""
        if self.const is None or isinstance(self.const, Tracer):
            return None
        try:
            return np.asarray(self.const)
        except TypeError:  # a PRNG key has no elements to show
            return None


@dataclass(eq=False)
class Node:
    """One application of a primitive, or what replaced it.

    Attributes:
        name: of the primitive; of a replacement, the vkore primitive's name.
        params: of the primitive.
        inputs: operands.
        outputs: results.
        eqn: the traced equation: primitive, source and context.
        run: of a replacement, computes the results; None for primitives.
    """

    name: str
    params: Mapping[str, Any]
    inputs: list[Value]
    outputs: list[Value]
    eqn: Any  # a JaxprEqn; Any, since its class declares too little
    run: Callable[[Read], Sequence[Any]] | None = None

    @property
    def place(self) -> str:
        """User's file and line, "" when unknown."""
        return equation_place(self.eqn)

    def compute(self, read: Read) -> Sequence[Any]:
        """Evaluate; source and context are those of the equation."""
        with equation_context(self.eqn):
            if self.run is not None:
                return self.run(read)
            primitive = self.eqn.primitive
            params = primitive.get_bind_params(dict(self.params))
            out = primitive.bind(*map(read, self.inputs), **params)
            return out if primitive.multiple_results else [out]


@dataclass(eq=False)
class Graph:
    """Arguments, nodes in an order of evaluation, results."""

    inputs: list[Value]
    nodes: list[Node]
    outputs: list[Value]

    def live(self, instead: Mapping[Node, Iterable[Value]] = {}) -> set[Node]:
        """Return the nodes that the results or an effect need.

        Args:
            instead: for a node, the operands to assume in place of its own.
        """
        found: set[Node] = set()
        wanted = [v.node for v in self.outputs]
        wanted += [n for n in self.nodes if n.eqn.effects and n.run is None]
        while wanted:
            node = wanted.pop()
            if node is not None and node not in found:
                found.add(node)
                wanted += [v.node for v in instead.get(node, node.inputs)]
        return found

    def replace(self, old: Node, new: Node) -> None:
        """Let `new` compute the outputs of `old`."""
        self.nodes[self.nodes.index(old)] = new
        new.outputs = old.outputs
        for value in old.outputs:
            value.node = new
        for value in old.inputs:
            value.uses.remove(old)
        for value in new.inputs:
            value.uses.append(new)

    def prune(self) -> None:
        """Forget the nodes that nobody needs."""
        live = self.live()
        for node in self.nodes:
            if node not in live:
                for value in node.inputs:
                    value.uses.remove(node)
        self.nodes = [node for node in self.nodes if node in live]

    def evaluate(self, args: Sequence[Any]) -> list[Any]:
        """Run the graph on arrays or tracers."""
        env: dict[Value, Any] = dict(zip(self.inputs, args, strict=True))
        left = {v: len(v.uses) for n in self.nodes for v in n.inputs}
        kept = set(self.outputs)

        def read(value: Value) -> Any:
            return value.const if value.const is not None else env[value]

        for node in self.nodes:
            env.update(zip(node.outputs, node.compute(read), strict=True))
            for value in node.inputs:
                left[value] -= 1
                if not left[value] and value not in kept:
                    env.pop(value, None)
        return [read(v) for v in self.outputs]


def from_jaxpr(closed: ClosedJaxpr) -> Graph:
    """Build the graph of a traced function."""
    jaxpr = closed.jaxpr
    inputs = [Value(v.aval) for v in jaxpr.invars]
    nodes: list[Node] = []
    outputs = _walk(closed, inputs, nodes, None, {})
    for node in nodes:
        for value in node.inputs:
            value.uses.append(node)
    return Graph(inputs, nodes, outputs)


def _walk(
    closed: ClosedJaxpr,
    args: Sequence[Value],
    nodes: list[Node],
    call: Any,
    known: dict[Any, list[Value]],
) -> list[Value]:
    """Append the nodes of a jaxpr.

    Args:
        closed: what to append.
        args: its arguments.
        nodes: appended to.
        call: the equation to blame, if not its own.
        known: results by what computed them: who writes `jnp.exp(x)` twice means one
            value, and patterns compare values.
    """
    jaxpr = closed.jaxpr
    env: dict[Any, Value] = dict(zip(jaxpr.invars, args, strict=True))
    for var, const in zip(jaxpr.constvars, closed.consts, strict=True):
        env[var] = Value(var.aval, const=const)

    def read(atom: Any) -> Value:
        if isinstance(atom, Literal):
            return Value(atom.aval, const=atom.val)
        return env[atom]

    for eqn in jaxpr.eqns:
        operands = [read(a) for a in eqn.invars]
        if _is_plain_call(eqn):
            body = eqn.params[INLINED[eqn.primitive.name]]
            if not isinstance(body, ClosedJaxpr):
                body = ClosedJaxpr(body, ())
            # Bodies of JAX's helpers are traced once and keep the place of that time.
            blame = call or (eqn if in_jax(body.jaxpr) else None)
            env.update(zip(eqn.outvars, _walk(body, operands, nodes, blame, known)))
            continue
        key = _key(eqn, operands)
        if key is not None and key in known:
            env.update(zip(eqn.outvars, known[key], strict=True))
            continue
        source = eqn if call is None else eqn.replace(source_info=call.source_info)
        node = Node(eqn.primitive.name, eqn.params, operands, [], source)
        node.outputs = [Value(v.aval, node) for v in eqn.outvars]
        nodes.append(node)
        if key is not None:
            known[key] = node.outputs
        env.update(zip(eqn.outvars, node.outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _key(eqn: Any, operands: Sequence[Value]) -> Any:
    """Return what says that two equations compute the same, None if nothing does."""
    if eqn.effects:
        return None
    inputs = []
    for value in operands:
        small = value.concrete() if value.node is None and not value.shape else None
        if small is None:
            inputs.append(value)
        else:
            weak = getattr(value.aval, "weak_type", False)
            inputs.append((small.tobytes(), value.dtype, weak))
    try:
        key = (eqn.primitive, frozenset(eqn.params.items()), tuple(inputs), eqn.ctx)
        hash(key)
    except TypeError:
        return None
    return key


def _is_plain_call(eqn: Any) -> bool:
    """A call that carries nothing but its body."""
    if eqn.primitive.name not in INLINED or eqn.effects:
        return False
    given = [x for key in _SHARDINGS for x in eqn.params.get(key) or ()]
    options = eqn.params.get("compiler_options_kvs")
    # What says "unspecified" is a private class, and the default layout is None.
    return not options and all(
        x is None or type(x).__name__ == "UnspecifiedValue" for x in given
    )
