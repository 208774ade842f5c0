"""The tensor-level IR between StableHLO import and command emission.

Static single assignment on dense row-major tensors.  Nodes are immutable and carry no
meaning of their own: import rules create them, passes map a graph to a graph, `emit`
turns them into commands.  A graph may read values of the graphs around it (capture).

    Param, Const             leaves
    Vec                      element micro-program; all operands have the result shape
    Move                     strided read: reshape, transpose, slice, broadcast, reverse
    Gemm, Reduce             what the array and the vector unit contract
    Direct                   any other ISA command, with its operands and attributes
    Loop, While, Case        structured control flow over nested graphs
    HostCall                 a user's callback
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkore_jax.dtypes import DType
from vkore_jax.isa import MicroProgram, ReduceKind, Strategy
from vkore_jax.program import Location

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One tensor.  Compared by identity; its producer is the node that lists it."""

    dtype: DType
    shape: Shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in DRAM."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.short}{list(self.shape)}"


@dataclass(frozen=True, eq=False, slots=True)
class Scope:
    """A hint of an import rule: these nodes belong into one group.

    Compared by identity.  Nodes of a scope are not shared with others, so that what is
    cheap to compute again (the scores of an attention) is not kept in DRAM instead.
    """

    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Base of the nodes: operands in, results out, where it came from."""

    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...]
    loc: Location
    scope: Scope | None = None
    """Of Vec, Gemm and Reduce nodes only."""

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Nested graphs, for control flow."""
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Const(Node):
    """A constant; `data` has the result's shape and NumPy dtype."""

    data: np.ndarray[Any, Any]

    @property
    def splat(self) -> bytes | None:
        """Bytes of the element when all elements are bitwise equal, else None."""
        flat = np.ascontiguousarray(self.data).reshape(-1)
        if flat.size == 0:
            return None
        raw = flat.view(np.uint8).reshape(flat.size, -1)
        return raw[0].tobytes() if (raw == raw[0]).all() else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Vec(Node):
    """Element code on operands of the result shape; one result per program output.

    `iota` in the program counts along an axis of the result shape.
    """

    program: MicroProgram


@dataclass(frozen=True, eq=False, kw_only=True)
class Move(Node):
    """result[i...] = flat(operand)[offset + sum(i * strides)], as an ISA view."""

    offset: int
    strides: Shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Gemm(Node):
    """(..., m, k) x (..., k, n) -> (..., m, n); equal ranks, batch extents equal or 1.

    The result dtype is what leaves the accumulators (f32, or narrower; i32 for INT8).
    """

    strategy: Strategy


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Node):
    """Monoid reduction; reduced axes keep extent 1.  ARG kinds give (value, index)."""

    kind: ReduceKind
    axes: Shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Direct(Node):
    """One ISA command of class `command`.

    Its fields `dst`/`dsts` are the results; its other View fields, flattened in
    declaration order, are the operands (`counts` says how many each list field has);
    every other field is in `attrs` under the field's name.  Conv leaves the schedule
    fields (`block_n`, `block_out`, `block_o`) to the tile pass.
    """

    command: type
    attrs: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """A block: parameters, nodes in order, outputs (params, nodes' or outer values)."""

    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class While(Node):
    """operands = initial carries; cond(carries) -> i1 scalar; body(carries)->carries.

    With `trips` not None the trip count is known and `cond` must not be executed.
    """

    cond: Graph
    body: Graph
    trips: int | None = None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.cond, self.body)


@dataclass(frozen=True, eq=False, kw_only=True)
class Case(Node):
    """operands = (i32 index,); branches take no parameters and capture what they read.

    An index out of range runs the last branch.
    """

    branches: tuple[Graph, ...]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.branches


@dataclass(frozen=True, eq=False, kw_only=True)
class HostCall(Node):
    """A user's callback; nodes with `effect` keep their order and are never dropped."""

    callback: int
    kind: str
    effect: bool


@dataclass(frozen=True, kw_only=True)
class Module:
    """A whole program before emission."""

    name: str
    graph: Graph
    donated: tuple[int, ...] = ()
    result_memory_kinds: tuple[str, ...] = ()
    folded: tuple[Location, ...] = ()
    """Where the importer computed integers itself, once for each."""


def to_text(graph: Graph, indent: str = "") -> str:
    """Return a readable listing of a graph, one node a line."""
    names: dict[Value, str] = {}
    return "\n".join(_lines(graph, names, indent))


def _lines(graph: Graph, names: dict[Value, str], indent: str) -> list[str]:
    def name(v: Value) -> str:
        return names.setdefault(v, f"%{len(names)}")

    lines = [f"{indent}params " + ", ".join(f"{name(v)}: {v}" for v in graph.params)]
    for node in graph.nodes:
        skip = {"operands", "results", "loc", "cond", "body", "branches", "data"}
        skip.add("scope")
        attrs = {
            k: v for k, v in vars(node).items() if k not in skip and v not in ((), {})
        }
        what = type(node).__name__.lower()
        if isinstance(node, Direct):
            what = getattr(node.command, "MNEMONIC", what)
            attrs = dict(node.attrs)
        if isinstance(node, Vec):
            attrs = {"ops": "+".join(i.op.name for i in node.program.insns)}
        outs = ", ".join(f"{name(v)}: {v}" for v in node.results)
        args = ", ".join(name(v) for v in node.operands)
        extra = " ".join(f"{k}={v}" for k, v in attrs.items())
        lines.append(f"{indent}{outs} = {what}({args}) {extra}".rstrip())
        for g in node.graphs:
            lines += _lines(g, names, indent + "    ")
    lines.append(f"{indent}return " + ", ".join(name(v) for v in graph.outputs))
    return lines
