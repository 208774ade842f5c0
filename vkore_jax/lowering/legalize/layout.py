"""Layout: which moves a consumer reads through and which the layout engine makes.

After this pass every `Move` is a view that all its readers can take: it costs nothing.
Every other movement is an explicit COPY, made once and shared by all its readers; but a
matrix operand that has contiguous rows the other way round is turned in the scratchpad.
Graph outputs that must own their buffer (results, loop carries) do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from vkore_jax import isa
from vkore_jax.lowering.access import Access, Views, walk
from vkore_jax.lowering.ir import (
    Case,
    Const,
    Direct,
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
from vkore_jax.lowering.micro import MicroBuilder, identity
from vkore_jax.program import Location

ANY_SOURCE = (isa.Copy, isa.Concat, isa.Pad, isa.DynamicSlice, isa.DynamicUpdate)
"""Commands of the DMA engine: they read any strided view."""

UNKNOWN = Location(op="copy", file="", line=0, function="")


def layout(module: Module) -> Module:
    """Return the module with every data movement decided."""
    pass_ = _Layout(module.graph)
    return dataclasses.replace(module, graph=pass_.main(module.graph))


class _Layout:
    """Demands are collected first, so that a copy serves readers in nested graphs."""

    def __init__(self, graph: Graph) -> None:
        self.views = Views()
        self.copies: dict[Value, Value] = {}
        """Move result -> the dense copy that replaces it where a view cannot serve."""
        self.cores: dict[Value, tuple[Move, Move]] = {}
        """Move result -> copy of its core and the repeating view of that copy."""
        self._shared: dict[tuple[Graph, Access], Move] = {}
        self.moves: dict[Value, Move] = {}
        self.home: dict[Value, Graph] = {}
        self.splats: dict[Value, bytes] = {}
        self._find(graph)
        for node in walk(graph):
            if isinstance(node, Move):
                self._view(node)
        for node in walk(graph):
            for value in node.operands:
                self._demand(node, value)
            if isinstance(node, While):
                for g in node.graphs:
                    self._demand_dense(g.outputs)
            elif isinstance(node, Case):
                for g in node.branches:
                    self._demand_dense(g.outputs)
        self._demand_outputs(graph.outputs)

    def _find(self, graph: Graph) -> None:
        for node in graph.nodes:
            if isinstance(node, Move):
                self.moves[node.result] = node
                self.home[node.result] = graph
            elif isinstance(node, Const) and node.result.size == 1:
                self.splats[node.result] = node.data.tobytes()
            for nested in node.graphs:
                self._find(nested)

    # ------------------------------------------------------------------ demands

    def _view(self, move: Move) -> None:
        """Define a move as a view; the move it reads is copied when it must be."""
        if self.views.define(move) is None:
            self.copies[move.operands[0]] = Value(
                move.operands[0].dtype, move.operands[0].shape
            )
            self.views.set(move.operands[0], self._whole_copy(move.operands[0]))
            self.views.define(move)

    def _whole_copy(self, value: Value) -> Access:
        return Access.whole(self.copies[value])

    def _demand(self, node: Node, value: Value) -> None:
        if value not in self.moves or isinstance(node, Move):
            return
        access = self.views[value]
        if isinstance(node, Vec | Reduce):
            if not access.core().has_contiguous_rows:
                self._copy_core(value, access)
        elif isinstance(node, Gemm):
            if turned_rows(access):
                return  # the group turns its blocks on the chip
            if _rows_repeat(access):
                self._demand_copy(value)
            elif not access.core().has_contiguous_rows:
                self._copy_core(value, access)
        elif not _takes(node, access):
            self._demand_copy(value)

    def _demand_dense(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self.moves and not self.views[value].is_dense:
                self._demand_copy(value)

    def _demand_outputs(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self.moves and not self.views[value].is_alias:
                self._demand_copy(value)

    def _demand_copy(self, value: Value) -> None:
        if value not in self.copies:
            self.copies[value] = Value(value.dtype, value.shape)

    def _copy_core(self, value: Value, access: Access) -> None:
        """Plan a copy of the part that does not repeat, and a view that repeats it."""
        core = access.core()
        if core is access:
            self._demand_copy(value)
            return
        if value in self.cores:
            return
        # A copy serves the graph that makes it; nested graphs could be skipped over.
        place = (self.home[value], core)
        compact = self._shared.get(place)
        move = self.moves[value]
        if compact is None:
            compact = Move(
                operands=(access.value,),
                results=(Value(value.dtype, core.shape),),
                loc=move.loc,
                offset=core.offset,
                strides=core.strides,
            )
            self._shared[place] = compact
            self.copies[compact.result] = Value(value.dtype, core.shape)
        owner = self.copies[compact.result]
        step = isa.row_major(core.shape)
        repeat = Move(
            operands=(owner,),
            results=(Value(value.dtype, value.shape),),
            loc=move.loc,
            offset=0,
            strides=tuple(
                0 if e == 1 else s for e, s in zip(core.shape, step, strict=True)
            ),
        )
        self.views.define(compact)
        self.views.define(repeat)
        self.cores[value] = (compact, repeat)

    # ------------------------------------------------------------------ rewriting

    def main(self, graph: Graph) -> Graph:
        nodes = self._nodes(graph)
        return self._owning(graph, nodes)

    def _owning(self, graph: Graph, nodes: list[Node]) -> Graph:
        """Finish a graph whose outputs must be alone in buffers that it writes."""
        owned = {v for n in nodes if not isinstance(n, Const | Move) for v in n.results}
        taken: set[Value] = set()
        outputs: list[Value] = []
        for value in graph.outputs:
            value = self._readable(value)
            root = self.views.root(value)
            if self.views.alias(value) is None or root not in owned or root in taken:
                root = Value(value.dtype, value.shape)
                nodes.append(self._made(value, root, _location(nodes)))
                value = root
            taken.add(root)
            outputs.append(value)
        return Graph(params=graph.params, nodes=tuple(nodes), outputs=tuple(outputs))

    def _readable(self, value: Value) -> Value:
        """Return what stands for a value where a dense one is needed."""
        made = self.copies.get(value)
        if made is None:
            return value
        if self.views.root(value) is made or not self.views[value].is_dense:
            return made
        return value

    def _nodes(self, graph: Graph) -> list[Node]:
        nodes: list[Node] = []
        placed: set[Value] = set()
        for node in graph.nodes:
            if isinstance(node, Move):
                self._place_move(node, nodes, placed)
                continue
            if node.operands:
                operands = tuple(self._operand(node, v) for v in node.operands)
                if operands != node.operands:
                    node = dataclasses.replace(node, operands=operands)
            if isinstance(node, Reduce):
                node = self._spread(node, nodes)
            if isinstance(node, While):
                node = dataclasses.replace(
                    node,
                    cond=self._owning(node.cond, self._nodes(node.cond)),
                    body=self._dense(node.body),
                )
            elif isinstance(node, Case):
                branches = tuple(self._dense(b) for b in node.branches)
                node = dataclasses.replace(node, branches=branches)
            nodes.append(node)
        return nodes

    def _made(self, source: Value, made: Value, loc: Location) -> Node:
        """Return the command that writes `made`: a copy, or a fill for a constant."""
        access = self.views[source]
        element = self.splats.get(access.value)
        if element is None:
            return _copy(source, made, loc)
        build = MicroBuilder()
        program, _ = build.finish([build.imm(made.dtype, element)])
        return Vec(operands=(), results=(made,), loc=loc, program=program)

    def _place_move(self, node: Move, nodes: list[Node], placed: set[Value]) -> None:
        source = node.operands[0]
        if source in self.copies and self.views.root(source) is self.copies[source]:
            node = dataclasses.replace(node, operands=(self.copies[source],))
        nodes.append(node)
        if node.result in self.copies:
            nodes.append(self._made(node.result, self.copies[node.result], node.loc))
        if node.result in self.cores:
            compact, repeat = self.cores[node.result]
            if compact.result not in placed:
                placed.add(compact.result)
                made = self.copies[compact.result]
                nodes += [compact, _copy(compact.result, made, compact.loc)]
            nodes.append(repeat)

    def _operand(self, node: Node, value: Value) -> Value:
        if value not in self.moves:
            return value
        access = self.views[value]
        if isinstance(node, Vec | Reduce | Gemm):
            if isinstance(node, Gemm) and _rows_repeat(access):
                return self._readable(value)
            if value in self.cores:
                return self.cores[value][1].result
            made = self.copies.get(value)
            if made is not None and (
                access.value is made or not access.core().has_contiguous_rows
            ):
                return made
            return value
        if _takes(node, access) and access.value is not self.copies.get(value):
            return value
        return self._readable(value)

    def _spread(self, node: Reduce, nodes: list[Node]) -> Reduce:
        """Repeat a broadcast operand in the scratchpad: a reduction reads all of it."""
        (value,) = node.operands
        if not self.views[value].repeats:
            return node
        full = Value(value.dtype, value.shape)
        nodes.append(
            Vec(
                operands=(value,),
                results=(full,),
                loc=node.loc,
                program=identity(value.dtype),
            )
        )
        return dataclasses.replace(node, operands=(full,))

    def _dense(self, graph: Graph) -> Graph:
        """Rewrite a branch or loop body: outputs are dense, but may be anybody's."""
        nodes = self._nodes(graph)
        outputs = tuple(self._readable(v) for v in graph.outputs)
        return Graph(params=graph.params, nodes=tuple(nodes), outputs=outputs)


def _takes(node: Node, access: Access) -> bool:
    """True when a command that is no stage of a group can read a view."""
    if isinstance(node, Direct) and node.command in ANY_SOURCE:
        return True
    if isinstance(node, Direct) and node.command is isa.Conv:
        return access.has_contiguous_rows
    return access.is_dense


def turned_rows(access: Access) -> bool:
    """True when a matrix operand has contiguous rows once its axes are exchanged."""
    return not _rows_repeat(access) and access.swapped().core().has_contiguous_rows


def _rows_repeat(access: Access) -> bool:
    """True when a matrix operand repeats along its rows or columns."""
    return any(e > 1 and s == 0 for e, s in zip(access.shape[-2:], access.strides[-2:]))


def _copy(source: Value, made: Value, loc: Location) -> Direct:
    return Direct(operands=(source,), results=(made,), loc=loc, command=isa.Copy)


def _location(nodes: list[Node]) -> Location:
    return nodes[-1].loc if nodes else UNKNOWN
