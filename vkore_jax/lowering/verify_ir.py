"""The rules of the tensor IR, executable: what every pass must leave true."""

from __future__ import annotations

from vkore_jax.errors import InternalError, InvalidProgram
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.ir import (
    Case,
    Const,
    Gemm,
    Graph,
    Module,
    Move,
    Node,
    Reduce,
    Value,
    Vec,
    While,
)
from vkore_jax.lowering.plan import FusedGroup


def check(module: Module, after: str, views: Views | None = None) -> None:
    """Check a module.

    Args:
        module: what the pass returned.
        after: name of the pass.
        views: reads through moves, once the moves themselves are gone (fusion).

    Raises:
        InternalError: naming the pass, the node and the rule.
    """
    try:
        _graph(module.graph, set(), views or Views())
    except InternalError as e:
        raise e.with_context(f"after pass {after!r} of {module.name!r}") from None


def _graph(graph: Graph, outer: set[Value], views: Views) -> None:
    defined = outer | set(graph.params)
    for node in graph.nodes:
        for value in node.operands:
            if value not in defined and views.root(value) not in defined:
                raise _broken(node, f"operand {value} is not defined before it")
        problem = _node(node, defined)
        if problem:
            raise _broken(node, problem)
        if isinstance(node, FusedGroup):
            _members(node, defined)
        for nested in node.graphs:
            _graph(nested, defined, views)
        for value in node.results:
            if value in defined:
                raise _broken(node, f"result {value} is defined twice")
            defined.add(value)
    for value in graph.outputs:
        if value not in defined and views.root(value) not in defined:
            raise InternalError(f"graph output {value} is not defined")


def _members(node: FusedGroup, defined: set[Value]) -> None:
    """Members may read other members' results, also through moves behind the group."""
    made = {v for n in node.members for v in n.results}
    for member in node.members:
        problem = _node(member, defined)
        if problem:
            raise _broken(member, problem)
    for value in node.results:
        if value not in made:
            raise _broken(node, f"group result {value} is no member's result")


def _broken(node: Node, rule: str) -> InternalError:
    return InternalError(
        f"{type(node).__name__} ({node.loc}): {rule}; this is a bug in vkore_jax"
    )


def _node(node: Node, defined: set[Value]) -> str | None:
    if isinstance(node, Vec):
        return _vec(node)
    if isinstance(node, Move):
        return _move(node)
    if isinstance(node, Gemm):
        return _gemm(node)
    if isinstance(node, Reduce):
        return _reduce(node)
    if isinstance(node, While):
        return _loop(node)
    if isinstance(node, Const):
        v = node.result
        if node.data.shape != v.shape or node.data.dtype != v.dtype.numpy:
            return f"data {node.data.dtype}{node.data.shape} is not {v}"
    if isinstance(node, Case):
        for i, v in enumerate(node.results):
            for b in node.branches:
                if not _alike(b.outputs[i], v):
                    return f"branch gives {b.outputs[i]}, result is {v}"
    return None


def _alike(a: Value, b: Value) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape


def _vec(node: Vec) -> str | None:
    shape = node.results[0].shape
    for v in (*node.operands, *node.results):
        if v.shape != shape:
            return f"shape of {v} differs from {list(shape)}"
    if tuple(v.dtype for v in node.operands) != node.program.inputs:
        return "operand types differ from the program's inputs"
    try:
        types = node.program.output_types()
    except InvalidProgram as e:
        return str(e)
    if tuple(v.dtype for v in node.results) != types:
        return "result types differ from the program's outputs"
    return None


def _move(node: Move) -> str | None:
    (source,), result = node.operands, node.result
    if source.dtype is not result.dtype or len(node.strides) != len(result.shape):
        return f"{source} -> {result} with strides {node.strides}"
    if result.size == 0:
        return None
    low = high = node.offset
    for extent, stride in zip(result.shape, node.strides):
        reach = (extent - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    if low < 0 or high >= source.size:
        return f"reads elements {low}..{high} of {source}"
    return None


def _gemm(node: Gemm) -> str | None:
    lhs, rhs = (v.shape for v in node.operands)
    out = node.result.shape
    good = len(lhs) == len(rhs) == len(out) >= 2 and lhs[-1] == rhs[-2]
    good = good and out[-2:] == (lhs[-2], rhs[-1])
    good = good and all(
        {a, b} <= {1, c} and c == max(a, b)
        for a, b, c in zip(lhs[:-2], rhs[:-2], out[:-2])
    )
    return None if good else f"shapes {lhs} x {rhs} -> {out}"


def _reduce(node: Reduce) -> str | None:
    source = node.operands[0].shape
    kept = tuple(1 if a in node.axes else e for a, e in enumerate(source))
    if any(v.shape != kept for v in node.results):
        return f"{list(source)} over axes {node.axes} gives {list(kept)}"
    return None


def _loop(node: While) -> str | None:
    for i, v in enumerate(node.results):
        group = [node.operands[i], node.cond.params[i], node.body.params[i]]
        if not all(_alike(g, v) for g in [*group, node.body.outputs[i]]):
            return f"carry {i} changes its type: {[str(g) for g in group]}"
    return None
