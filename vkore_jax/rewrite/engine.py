"""Apply the rules to a graph, and to the bodies of its loops and calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from vkore_jax._jax_compat import function_name
from vkore_jax.rewrite.graph import Graph, Node, Value, from_jaxpr
from vkore_jax.rewrite.report import Report, Row
from vkore_jax.rewrite.rule import Match, Plan, Rule
from vkore_jax.rewrite.rules.attention import explain
from vkore_jax.rewrite.views import View

BODIES: Mapping[str, tuple[str, ...]] = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
    "checkpoint": ("jaxpr",),
    "remat": ("jaxpr",),
    "remat2": ("jaxpr",),
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
    "custom_vjp_call_jaxpr": ("fun_jaxpr",),
}
"""Params that hold what a primitive runs, and whose result is only what they return."""

OWN_RULE = "has a derivative of its own"
_TRIES = 16
"""Matches of one root that are looked at; they differ in what was called what."""


def _dot(node: Node) -> str:
    if node.params["dimension_numbers"][1][0]:
        return explain(node)
    return "no rule fits"


NOTABLE: Mapping[str, Callable[[Node], str]] = {
    "dot_general": _dot,
    "ragged_dot_general": lambda _: "no primitive",
    "conv_general_dilated": lambda _: "convolution: no primitive",
    "gather": lambda _: "not rows of a table",
    "rsqrt": lambda _: "part of no normalisation that has a primitive",
    "logistic": lambda _: "no linear before it and no product after it",
    "tanh": lambda _: "part of no activation that has a primitive",
    "erf": lambda _: "part of no activation that has a primitive",
    "erfc": lambda _: "part of no activation that has a primitive",
    "exp": lambda _: "part of no attention or cross-entropy that has a primitive",
    "custom_jvp_call": lambda n: OWN_RULE,
    "shard_map": lambda _: "its body is not looked into",
}
"""What the report lists if it is left, with the reason if no rule gave one."""


@dataclass
class Log:
    """Collects the rows of a report."""

    replaced: list[Row] = field(default_factory=list)
    left: list[Row] = field(default_factory=list)

    def report(self) -> Report:
        """Return what was collected."""
        return Report(tuple(self.replaced), tuple(self.left))


def rewrite(
    closed: ClosedJaxpr, rules: tuple[Rule, ...], log: Log, within: tuple[str, ...] = ()
) -> Graph:
    """Return the graph of a jaxpr with the rules applied."""
    graph = from_jaxpr(closed)
    graph.prune()
    reasons: dict[Node, str] = {}
    done: dict[Node, Row] = {}
    for rule in rules:
        for node in reversed(tuple(graph.nodes)):
            root = node.outputs[0] if len(node.outputs) == 1 else None
            if node.name not in rule.roots or node.run is not None or root is None:
                continue
            if root.node is not node or node not in graph.nodes:
                continue  # replaced, or no longer needed
            plan = _plan(rule, node, root, graph, reasons)
            if plan is not None:
                new = _replacement(rule, node, root, plan)
                done[new] = Row(new.name, _shape(root), node.place, plan.note, within)
                graph.replace(node, new)
                graph.prune()
    for node in graph.nodes:
        if node in done:
            log.replaced.append(done[node])
        elif node.name in BODIES and node.run is None:
            _rewrite_bodies(node, rules, log, within)
        if node not in done and node.name in NOTABLE:
            reason = reasons.get(node) or NOTABLE[node.name](node)
            log.left.append(
                Row(_called(node), _shape(node.outputs[0]), node.place, reason, within)
            )
        elif node.name.startswith("custom_vjp_call"):
            shape = _shape(node.outputs[0])
            row = Row(_called(node), shape, node.place, OWN_RULE, within)
            log.left.append(row)
    return graph


def _shape(value: Value) -> str:
    return value.aval.str_short(short_dtypes=True)


def _plan(
    rule: Rule, node: Node, root: Value, graph: Graph, reasons: dict[Node, str]
) -> Plan | None:
    """Return the first match's plan that may be used; note why others may not."""
    start = rule.frame(root)
    if not start.axes:  # nothing that the primitives compute is a scalar
        return None
    matches = rule.pattern.match(start, {})
    for env in itertools.islice(matches, _TRIES):
        match = Match(root, env)
        reason = rule.guard(match)
        if reason is None:
            plan = rule.plan(match)
            reason = _partitioned(root, *plan.inputs)
            reason = reason or _taken_elsewhere(rule, node, plan, graph)
            if reason is None:
                return plan
        for inner in _cone(node, _captured(match)) if reason else ():
            if inner.name in NOTABLE:
                reasons.setdefault(inner, f"{rule.name}: {reason}")
    return None


def _partitioned(*values: Value) -> str | None:
    """Say whether types carry shardings, which the primitives' types do not."""
    for value in values:
        spec = getattr(getattr(value.aval, "sharding", None), "spec", ())
        if any(axis is not None for axis in spec):
            return f"its type has an explicit sharding: {value.aval.str_short()}"
    return None


def _captured(match: Match) -> set[Value]:
    """Return the values that a match ends at."""
    ends = [v for name, v in match.env.items() if not name.startswith("_")]
    return {v.value for v in ends if isinstance(v, View)} - {match.root}


def _cone(root: Node, stop: set[Value]) -> set[Node]:
    """Return the nodes between a root and some values; captured products included."""
    found: set[Node] = set()
    queue = [root]
    while queue:
        node = queue.pop()
        if node in found:
            continue
        found.add(node)
        for value in node.inputs:
            if value.node is None:
                continue
            if value not in stop:
                queue.append(value.node)
            elif value.node.name == "dot_general":
                found.add(value.node)
    return found


def _taken_elsewhere(rule: Rule, node: Node, plan: Plan, graph: Graph) -> str | None:
    inside = _cone(node, set(plan.inputs)) - {v.node for v in plan.inputs} - {node}
    heavy = [n for n in inside if n.name in rule.takes]
    if not heavy:
        return None
    live = graph.live({node: plan.inputs})
    for other in heavy:
        if other in live:
            where = f" ({other.place})" if other.place else ""
            return f"a product inside it{where} is used elsewhere, too"
    return None


def _replacement(rule: Rule, node: Node, root: Value, plan: Plan) -> Node:
    def run(read: Callable[[Value], Any]) -> list[Any]:
        return [plan.run(read).reshape(root.shape).astype(root.dtype)]

    name = f"vkore.{rule.name}"
    return Node(name, {}, list(plan.inputs), [], node.eqn, run)


def _rewrite_bodies(
    node: Node, rules: tuple[Rule, ...], log: Log, within: tuple[str, ...]
) -> None:
    """Rewrite the functions that a node runs, if that keeps their types."""
    params = dict(node.params)
    for key in BODIES[node.name]:
        given = params.get(key)
        if given is None:
            continue
        several = isinstance(given, (tuple, list))
        new = [
            _rewrite_body(body, rules, log, (*within, _called(node)))
            for body in (given if several else (given,))
        ]
        params[key] = tuple(new) if several else new[0]
    node.params = params


def _called(node: Node) -> str:
    name = node.params.get("name") or ""
    if "call_jaxpr" in node.params:
        name = function_name(node.params["call_jaxpr"].jaxpr)
    return f"{node.name}[{name}]" if name else node.name


def _rewrite_body(
    body: Any, rules: tuple[Rule, ...], log: Log, within: tuple[str, ...]
) -> Any:
    closed = body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())
    found = Log()
    graph = rewrite(closed, rules, found, within)
    log.left += found.left
    if not found.replaced:
        return body
    avals = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
        if hasattr(a, "weak_type")
        else a
        for a in closed.in_avals
    ]
    new = jax.make_jaxpr(lambda *args: graph.evaluate(args))(*avals)
    same = [str(a) for a in new.out_avals] == [str(a) for a in closed.out_avals]
    if not same or (isinstance(body, Jaxpr) and new.consts):
        log.left += [
            Row(r.what, r.shape, r.place, "the body's types would change", within)
            for r in found.replaced
        ]
        return body
    log.replaced += found.replaced
    return new if isinstance(body, ClosedJaxpr) else new.jaxpr
