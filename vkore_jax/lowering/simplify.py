"""Cleaning up the imported graph; nothing here changes a rounding.

One forward walk (moves compose, splat constants become immediates, equal nodes are
made once, loop-invariant carries become captures) and one backward walk (dead nodes,
dead carries).  Both handle nested graphs where they stand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkore_jax import dtypes
from vkore_jax.dtypes import DType
from vkore_jax.isa import MICRO_OPS, ReduceKind
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.ir import (
    Case,
    Const,
    Direct,
    Gemm,
    Graph,
    HostCall,
    Module,
    Move,
    Node,
    Reduce,
    Shape,
    Value,
    Vec,
    While,
)
from vkore_jax.lowering.micro import MicroBuilder
from vkore_jax.program import Location

Key = tuple[Any, ...]


def simplify(module: Module) -> Module:
    """Return an equivalent module without what need not be computed."""
    graph = _Forward().graph(module.graph, {})
    return dataclasses.replace(module, graph=prune(graph))


class _Forward:
    """The forward walk.  `seen` maps a node's structure to its results, by scope."""

    def __init__(self) -> None:
        self.env: dict[Value, Value] = {}
        self.views = Views()
        self.splats: dict[Value, bytes] = {}

    def graph(self, graph: Graph, seen: dict[Key, tuple[Value, ...]]) -> Graph:
        scope = _Scope(dict(seen))
        for node in graph.nodes:
            self.node(node, scope)
        outputs = tuple(self.env.get(v, v) for v in graph.outputs)
        return Graph(params=graph.params, nodes=tuple(scope.nodes), outputs=outputs)

    def node(self, node: Node, scope: _Scope) -> None:
        operands = tuple(self.env.get(v, v) for v in node.operands)
        if _is_pure(node) and all(v.size == 0 for v in node.results):
            for v in node.results:
                empty = np.zeros(v.shape, v.dtype.numpy)
                scope.nodes.append(Const(results=(v,), loc=node.loc, data=empty))
        elif isinstance(node, Const):
            self.const(node, scope)
        elif isinstance(node, Move):
            self.move(node, operands[0], scope)
        elif isinstance(node, Vec):
            self.vec(node, operands, scope)
        elif isinstance(node, Gemm | Reduce):
            self.contraction(node, operands, scope)
        elif isinstance(node, Direct):
            self.shared(dataclasses.replace(node, operands=operands), scope)
        elif isinstance(node, While):
            self.loop(node, operands, scope)
        elif isinstance(node, Case):
            branches = tuple(self.graph(b, scope.seen) for b in node.branches)
            scope.nodes.append(
                dataclasses.replace(node, operands=operands, branches=branches)
            )
        else:
            scope.nodes.append(dataclasses.replace(node, operands=operands))

    def contraction(
        self, node: Gemm | Reduce, operands: tuple[Value, ...], scope: _Scope
    ) -> None:
        """Contractions of nothing are constants, of one element nothing to do."""
        if any(v.size == 0 for v in operands):
            self.fill(node, scope)
            return
        if isinstance(node, Reduce):
            shape = operands[0].shape
            axes = tuple(a for a in node.axes if shape[a] != 1)
            if not axes:
                self.vec(_first(node), operands, scope)
                return
            node = dataclasses.replace(node, axes=axes)
        self.shared(dataclasses.replace(node, operands=operands), scope)

    def shared(self, node: Node, scope: _Scope) -> tuple[Value, ...]:
        """Append a node unless an equal one is in scope; record the replacement."""
        key = _key(node)
        if key is None:
            scope.nodes.append(node)
            return node.results
        found = scope.seen.get(key)
        if found is None:
            scope.seen[key] = node.results
            scope.nodes.append(node)
            return node.results
        for old, new in zip(node.results, found, strict=True):
            self.env[old] = new
        return found

    def const(self, node: Const, scope: _Scope) -> None:
        value = node.result
        element = node.splat
        if element is None or value.size == 1:
            (kept,) = self.shared(node, scope)
            if element is not None:
                self.splats[kept] = element
            return
        self.env[value] = self.splat(value.dtype, element, value.shape, node.loc, scope)

    def splat(
        self, dtype: DType, element: bytes, shape: Shape, loc: Location, scope: _Scope
    ) -> Value:
        """Return a repeated element: a scalar constant read with strides 0."""
        data = np.frombuffer(element, dtype.numpy).reshape(())
        (scalar,) = self.shared(
            Const(results=(Value(dtype, ()),), loc=loc, data=data), scope
        )
        self.splats[scalar] = element
        if not shape:
            return scalar
        view = Move(
            operands=(scalar,),
            results=(Value(dtype, shape),),
            loc=loc,
            offset=0,
            strides=(0,) * len(shape),
        )
        (value,) = self.shared(view, scope)
        self.views.define(view)
        return value

    def fill(self, node: Gemm | Reduce, scope: _Scope) -> None:
        """Replace a contraction of nothing by its neutral element."""
        kind = node.kind if isinstance(node, Reduce) else ReduceKind.SUM
        for i, v in enumerate(node.results):
            element = _neutral(kind if i == 0 else ReduceKind.SUM, v.dtype)
            self.env[v] = self.splat(v.dtype, element, v.shape, node.loc, scope)

    def move(self, node: Move, operand: Value, scope: _Scope) -> None:
        node = dataclasses.replace(node, operands=(operand,))
        access = self.views.define(node)
        if access is not None:
            same = access.is_alias and access.shape == access.value.shape
            if same:
                self.env[node.result] = access.value
                return
            strides = tuple(
                0 if e == 1 else s for e, s in zip(access.shape, access.strides)
            )
            node = dataclasses.replace(
                node, operands=(access.value,), offset=access.offset, strides=strides
            )
        self.shared(node, scope)

    def vec(self, node: Vec, operands: tuple[Value, ...], scope: _Scope) -> None:
        """Fold constants, share registers, drop operands that are not read."""
        build = MicroBuilder()
        registers: dict[Value, int] = {}
        order: list[Value] = []
        regs: list[int] = []
        for v in operands:
            element = self.splats.get(self.views.root(v))
            if element is not None:
                regs.append(build.imm(v.dtype, element))
                continue
            if v not in registers:
                registers[v] = build.input(v.dtype)
                order.append(v)
            regs.append(registers[v])
        axes: list[int | None] = [
            a if e != 1 else None for a, e in enumerate(node.results[0].shape)
        ]
        outs = build.inline(node.program, regs, axes)
        # Outputs that are inputs, constants or equal to another output leave here.
        keep: dict[int, Value] = {}
        for out, value in zip(outs, node.results, strict=True):
            if out < 0:
                self.env[value] = order[-out - 1]
            elif out in keep:
                self.env[value] = keep[out]
            elif build.insns[out].op.name == "imm":
                element = build.insns[out].imm
                self.env[value] = self.splat(
                    value.dtype, element, value.shape, node.loc, scope
                )
            else:
                keep[out] = value
        if not keep:
            return
        program, kept = build.finish(list(keep))
        self.shared(
            dataclasses.replace(
                node,
                operands=tuple(order[i] for i in kept),
                results=tuple(keep.values()),
                program=program,
            ),
            scope,
        )

    def loop(self, node: While, operands: Sequence[Value], scope: _Scope) -> None:
        """Turn carries that never change into captures, then walk the graphs."""
        fixed = [
            i
            for i, (p, o) in enumerate(zip(node.body.params, node.body.outputs))
            if p is o
        ]
        for i in fixed:
            self.env[node.cond.params[i]] = operands[i]
            self.env[node.body.params[i]] = operands[i]
            self.env[node.results[i]] = operands[i]
        left = [i for i in range(len(operands)) if i not in set(fixed)]

        def only(graph: Graph, outputs: tuple[Value, ...]) -> Graph:
            params = tuple(graph.params[i] for i in left)
            return Graph(params=params, nodes=graph.nodes, outputs=outputs)

        cond = only(node.cond, node.cond.outputs)
        body = only(node.body, tuple(node.body.outputs[i] for i in left))
        if not left and node.trips is not None and not _has_effect(node):
            return
        scope.nodes.append(
            dataclasses.replace(
                node,
                operands=tuple(operands[i] for i in left),
                results=tuple(node.results[i] for i in left),
                cond=self.graph(cond, scope.seen),
                body=self.graph(body, scope.seen),
            )
        )


class _Scope:
    """Nodes of the graph being rebuilt and what may be shared in it."""

    def __init__(self, seen: dict[Key, tuple[Value, ...]]) -> None:
        self.nodes: list[Node] = []
        self.seen = seen


def _key(node: Node) -> Key | None:
    """Return what makes two nodes equal, or None when they must stay apart."""
    if isinstance(node, Vec):
        shape = node.results[0].shape
        # Without operands or iota the shape is all that tells two programs apart.
        return ("vec", node.program, node.operands, shape, node.scope)
    if isinstance(node, Move):
        return ("move", node.operands, node.offset, node.strides, node.result.shape)
    if isinstance(node, Gemm):
        dtype = node.result.dtype
        return ("gemm", node.operands, node.strategy, dtype, node.scope)
    if isinstance(node, Reduce):
        types = tuple(v.dtype for v in node.results)
        return ("reduce", node.operands, node.kind, node.axes, types, node.scope)
    if isinstance(node, Const):
        data = np.ascontiguousarray(node.data)
        if data.nbytes > 1 << 16:
            return ("const", id(node.data), node.result.dtype, node.result.shape)
        return ("const", node.result.dtype, node.result.shape, data.tobytes())
    if isinstance(node, Direct):
        results = tuple((v.dtype, v.shape) for v in node.results)
        attrs = tuple(sorted(node.attrs.items()))
        counts = tuple(sorted(node.counts.items()))
        key = ("direct", node.command, node.operands, results, attrs, counts)
        try:
            hash(key)
        except TypeError:
            return None
        return key
    return None


def _neutral(kind: ReduceKind, dtype: DType) -> bytes:
    """Return the element that a reduction of nothing gives."""
    np_type = dtype.numpy
    if kind in (ReduceKind.SUM, ReduceKind.OR, ReduceKind.XOR):
        return np.zeros((), np_type).tobytes()
    if kind is ReduceKind.PROD:
        return np.ones((), np_type).tobytes()
    if kind is ReduceKind.AND:
        return (b"\x01" if dtype is dtypes.BOOL else b"\xff") * dtype.itemsize
    low = kind in (ReduceKind.MAX, ReduceKind.ARGMAX, ReduceKind.LOGSUMEXP)
    if dtype.is_float:
        return np.array(-np.inf if low else np.inf).astype(np_type).tobytes()
    if dtype is dtypes.BOOL:
        return np.array(not low).tobytes()
    top = dtype.bits - (dtype.kind == "i")
    bottom = -(1 << top) if dtype.kind == "i" else 0
    return np.array(bottom if low else (1 << top) - 1).astype(np_type).tobytes()


def _first(node: Reduce) -> Vec:
    """Return the reduction of one element: itself (converted), at index 0."""
    build = MicroBuilder()
    value = node.results[0]
    source = build.input(node.operands[0].dtype)
    outs = [build.emit(MICRO_OPS["convert"].code, value.dtype, (source,))]
    for index in node.results[1:]:
        outs.append(build.imm(index.dtype, bytes(index.dtype.itemsize)))
    program, _ = build.finish(outs)
    return Vec(
        operands=node.operands,
        results=node.results,
        loc=node.loc,
        program=program,
        scope=node.scope,
    )


def _is_pure(node: Node) -> bool:
    return not isinstance(node, HostCall | While | Case) and not _has_effect(node)


def _has_effect(node: Node) -> bool:
    if isinstance(node, HostCall):
        return node.effect
    return any(_has_effect(n) for g in node.graphs for n in g.nodes)


# ------------------------------------------------------------------------ dead code


def prune(graph: Graph) -> Graph:
    """Drop nodes whose results nobody reads, in nested graphs too."""
    return _prune(graph, graph.outputs)[0]


def _prune(graph: Graph, outputs: tuple[Value, ...]) -> tuple[Graph, set[Value]]:
    """Return the graph with these outputs only, and every value that it reads."""
    live: set[Value] = set(outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not any(v in live for v in node.results) and not _has_effect(node):
            continue
        if isinstance(node, While):
            node, reads = _prune_loop(node, live)
            live |= reads
        elif isinstance(node, Case):
            node, reads = _prune_case(node, live)
            live |= reads
        elif isinstance(node, Vec) and len(node.results) > 1:
            node = _prune_vec(node, live)
        live.update(node.operands)
        kept.append(node)
    kept.reverse()
    return Graph(params=graph.params, nodes=tuple(kept), outputs=outputs), live


def _prune_vec(node: Vec, live: set[Value]) -> Vec:
    left = [i for i, v in enumerate(node.results) if v in live]
    if len(left) == len(node.results):
        return node
    build = MicroBuilder()
    regs = [build.input(d) for d in node.program.inputs]
    outs = build.inline(node.program, regs)
    program, kept = build.finish([outs[i] for i in left])
    return dataclasses.replace(
        node,
        operands=tuple(node.operands[i] for i in kept),
        results=tuple(node.results[i] for i in left),
        program=program,
    )


def _prune_case(node: Case, live: set[Value]) -> tuple[Case, set[Value]]:
    left = [i for i, v in enumerate(node.results) if v in live]
    reads: set[Value] = set()
    branches: list[Graph] = []
    for branch in node.branches:
        small, inner = _prune(branch, tuple(branch.outputs[i] for i in left))
        branches.append(small)
        reads |= inner
    results = tuple(node.results[i] for i in left)
    return (
        dataclasses.replace(node, results=results, branches=tuple(branches)),
        reads,
    )


def _prune_loop(node: While, live: set[Value]) -> tuple[While, set[Value]]:
    """Drop carries that feed only themselves."""
    cond, reads = _prune(node.cond, node.cond.outputs)
    left = {
        i
        for i, (v, p) in enumerate(zip(node.results, node.cond.params))
        if v in live or (node.trips is None and p in reads)
    }
    while True:
        order = sorted(left)
        body, inner = _prune(node.body, tuple(node.body.outputs[i] for i in order))
        more = {i for i, p in enumerate(node.body.params) if p in inner} - left
        if not more:
            break
        left |= more

    def only(graph: Graph) -> Graph:
        params = tuple(graph.params[i] for i in order)
        return dataclasses.replace(graph, params=params)

    if node.trips is not None:
        # The condition is never run: keep none of its captures alive.
        cond = Graph(params=cond.params, nodes=(), outputs=())
        reads = set()
    return (
        dataclasses.replace(
            node,
            operands=tuple(node.operands[i] for i in order),
            results=tuple(node.results[i] for i in order),
            cond=only(cond),
            body=only(body),
        ),
        reads | inner,
    )
