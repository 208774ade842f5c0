"""The builder: what rules call to create IR nodes.

Owns shape inference, the folding of splat constants into element code, the composition
of views and the placement of loop-invariant nodes.  It knows nothing of StableHLO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BOOL, DType
from vkore_jax.errors import InternalError, UnsupportedOp
from vkore_jax.isa import (
    MICRO_OPS,
    Concat,
    MicroInsn,
    MicroProgram,
    Pad,
    ReduceKind,
    Strategy,
    row_major,
)
from vkore_jax.lowering import fold, ir
from vkore_jax.lowering.ir import Graph, Node, Shape, Value
from vkore_jax.lowering.op import TensorType
from vkore_jax.lowering.views import Layout
from vkore_jax.program import Location

N = TypeVar("N", bound=Node)
Array = np.ndarray[Any, Any]
Argument = DType | tuple[DType, bytes]


@lru_cache(maxsize=4096)
def _constant(dtype: DType, data: bytes) -> MicroInsn:
    return MicroInsn(MICRO_OPS["imm"].code, dtype, (), data)


@lru_cache(maxsize=8192)
def element_program(
    micro: str, result: DType, imm: bytes, arguments: tuple[Argument | int, ...]
) -> MicroProgram:
    """Return the program of one micro-op.

    Args:
        micro: name of the micro-op.
        result: its result type.
        imm: its immediate.
        arguments: for each operand a type (a new input), a (type, bytes) constant, or
            the number of an earlier input that is read again.
    """
    inputs = [a for a in arguments if isinstance(a, DType)]
    insns: list[MicroInsn] = []
    srcs: list[int] = []
    fresh = 0
    for a in arguments:
        if isinstance(a, int):
            srcs.append(a)
        elif isinstance(a, DType):
            srcs.append(fresh)
            fresh += 1
        else:
            srcs.append(len(inputs) + len(insns))
            insns.append(_constant(*a))
    insns.append(MicroInsn(MICRO_OPS[micro].code, result, tuple(srcs), imm))
    return MicroProgram(tuple(inputs), tuple(insns), (len(inputs) + len(insns) - 1,))


class _Shared:
    """What all builders of one import know about values."""

    def __init__(self) -> None:
        self.splats: dict[Value, bytes] = {}
        self.folded: list[Location] = []
        self.layouts: dict[Value, Layout] = {}
        self.producers: dict[Value, Node] = {}
        self.homes: dict[Value, Builder] = {}
        self.constants: dict[Any, Value] = {}
        self.captures: dict[Graph, tuple[frozenset[Value], bool]] = {}


class Builder:
    """Appends nodes to one graph; `loc` is the location that they get."""

    def __init__(
        self,
        chip: Chip,
        loc: Location,
        parent: Builder | None = None,
        loop: bool = False,
    ) -> None:
        self.chip = chip
        self.loc = loc
        self.nodes: list[Node] = []
        self.parent = parent
        self.loop = loop
        self.scope: ir.Scope | None = None
        self.root: Builder = parent.root if parent else self
        self.shared: _Shared = parent.shared if parent else _Shared()
        self._moves: dict[Layout, Value] = {}
        self._splats: dict[Any, Value] = {}

    # ------------------------------------------------------------------ graphs

    @contextmanager
    def scoped(self, name: str) -> Iterator[None]:
        """Ask that the arithmetic emitted meanwhile becomes one group."""
        outer, self.scope = self.scope, ir.Scope(name)
        try:
            yield
        finally:
            self.scope = outer

    def child(self, loop: bool = False) -> Builder:
        """Return a builder of a nested graph.

        Nodes of a `loop` body that read nothing of the body are placed outside it.
        """
        return Builder(self.chip, self.loc, self, loop)

    def params(self, types: Sequence[TensorType]) -> tuple[Value, ...]:
        """Create the parameters of this builder's graph."""
        values = tuple(Value(t.dtype, t.shape) for t in types)
        for v in values:
            self.shared.homes[v] = self
        return values

    def graph(self, params: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        """Close the graph: keep the nodes that outputs or effects need."""
        live: set[Value] = set(outputs)
        kept: list[Node] = []
        effect = False
        for node in reversed(self.nodes):
            acts = isinstance(node, ir.HostCall) and node.effect
            inner = [self.shared.captures[g] for g in node.graphs]
            acts = acts or any(e for _, e in inner)
            if not acts and not any(r in live for r in node.results):
                continue
            effect = effect or acts
            kept.append(node)
            live.update(node.operands)
            for captured, _ in inner:
                live.update(captured)
        kept.reverse()
        made = Graph(params=tuple(params), nodes=tuple(kept), outputs=tuple(outputs))
        own = set(made.params)
        for node in kept:
            own.update(node.results)
        self.shared.captures[made] = (frozenset(live - own), effect)
        return made

    # ------------------------------------------------------------------- nodes

    def emit(
        self,
        cls: type[N],
        operands: Sequence[Value],
        types: Sequence[tuple[DType, Shape]],
        **fields: Any,
    ) -> tuple[Value, ...]:
        """Append a node and return its results.

        A node whose results are all empty becomes empty constants, unless it may have
        effects.
        """
        acts = cls in (ir.HostCall, ir.While, ir.Case)
        if not acts and all(0 in shape for _, shape in types):
            return tuple(self.empty(d, s) for d, s in types)
        results = tuple(Value(d, s) for d, s in types)
        if cls in (ir.Vec, ir.Gemm, ir.Reduce):
            fields["scope"] = self.scope
        node = cls(operands=tuple(operands), results=results, loc=self.loc, **fields)
        home = self._home(node)
        home.nodes.append(node)
        shared = self.shared
        for r in results:
            shared.producers[r] = node
            shared.homes[r] = home
        return results

    def _home(self, node: Node) -> Builder:
        """Return the outermost loop level at which a node may be computed.

        Only nodes that do not grow their operands move out of a loop: keeping a
        broadcast alive over a whole loop costs more than repeating it.
        """
        at: Builder = self
        if not node.operands or not self.loop or node.scope is not None:
            return at
        if node.graphs or isinstance(node, ir.HostCall):
            return at
        if sum(r.nbytes for r in node.results) > sum(v.nbytes for v in node.operands):
            return at
        homes = [self.shared.homes[v] for v in node.operands]
        while at.loop and at.parent is not None and at not in homes:
            at = at.parent
        return at

    def direct(
        self,
        command: type,
        types: Sequence[tuple[DType, Shape]],
        operands: Sequence[Value],
        attrs: Mapping[str, Any],
        counts: Mapping[str, int] | None = None,
    ) -> tuple[Value, ...]:
        """Emit one ISA command (see `ir.Direct`)."""
        return self.emit(
            ir.Direct,
            operands,
            types,
            command=command,
            attrs=dict(attrs),
            counts=dict(counts or {}),
        )

    def producer(self, value: Value) -> Node | None:
        """Return the node that computes a value, None for parameters."""
        return self.shared.producers.get(value)

    # --------------------------------------------------------------- constants

    def constant(self, data: Array, dtype: DType | None = None) -> Value:
        """Return a constant; equal ones are one value."""
        dt = dtype or dtypes.by_numpy(data.dtype)
        shape = tuple(int(e) for e in data.shape)
        if data.size == 0:
            return self.empty(dt, shape)
        if all(s == 0 for s in data.strides):
            return self.splat(dt, data.reshape(-1)[:1].tobytes(), shape)
        raw = np.ascontiguousarray(data)
        if raw.size == 1:
            return self.splat(dt, raw.tobytes(), shape)
        first = raw.reshape(-1)[:1].tobytes()
        if raw.tobytes() == first * raw.size:
            return self.splat(dt, first, shape)
        return self._literal(dt, shape, raw)

    def _literal(self, dtype: DType, shape: Shape, data: Array) -> Value:
        # Literals live in the outermost graph, so that one copy serves every loop.
        key = (dtype, shape, data.tobytes())
        constants = self.shared.constants
        if key not in constants:
            value = Value(dtype, shape)
            node = ir.Const(results=(value,), loc=self.loc, data=data)
            self.root.nodes.append(node)
            self.shared.producers[value] = node
            self.shared.homes[value] = self.root
            constants[key] = value
        return constants[key]

    def scalar(self, dtype: DType, number: Any, shape: Shape = ()) -> Value:
        """Return a tensor with all elements equal to a Python or NumPy number."""
        return self.splat(dtype, np.array(number).astype(dtype.numpy).tobytes(), shape)

    def splat(self, dtype: DType, element: bytes, shape: Shape) -> Value:
        """Return a tensor with all elements equal, given the bytes of one."""
        if 0 in shape:
            return self.empty(dtype, shape)
        if not shape:
            data = np.frombuffer(element, dtype.numpy).reshape(())
            value = self._literal(dtype, (), data)
            self.shared.splats[value] = element
            return value
        key = (dtype, element, shape)
        at: Builder | None = self
        while at is not None:
            if key in at._splats:
                return at._splats[key]
            at = at.parent
        program = element_program("imm", dtype, element, ())
        scope, self.scope = self.scope, None
        (value,) = self.emit(ir.Vec, (), ((dtype, shape),), program=program)
        self.scope = scope
        self.shared.splats[value] = element
        self._splats[key] = value
        return value

    def empty(self, dtype: DType, shape: Shape) -> Value:
        """Return a tensor without elements."""
        return self._literal(dtype, shape, np.zeros(shape, dtype.numpy))

    def element(self, value: Value) -> bytes | None:
        """Return the bytes of the element when all are known to be equal."""
        return self.shared.splats.get(value)

    def known(self, value: Value) -> Any:
        """Return the element of a splat as a NumPy scalar, None when unknown."""
        raw = self.shared.splats.get(value)
        return None if raw is None else np.frombuffer(raw, value.dtype.numpy)[0]

    # ------------------------------------------------------------- element code

    def vec(
        self,
        micro: str,
        *operands: Value,
        dtype: DType | None = None,
        imm: bytes = b"",
        shape: Shape | None = None,
    ) -> Value:
        """Apply one micro-op to operands of one shape.

        Args:
            micro: name of the micro-op.
            operands: tensors of the result's shape; splats become immediates.
            dtype: result type where the micro-op does not determine it.
            imm: the micro-op's immediate.
            shape: result shape, for micro-ops without operands.
        """
        row = MICRO_OPS[micro]
        if row.result == "bool":
            result = BOOL
        elif dtype is not None:
            result = dtype
        else:
            result = operands[-1].dtype
        extents = operands[0].shape if shape is None else shape
        splats = self.shared.splats
        arguments: list[Argument | int] = []
        inputs: list[Value] = []
        for v in operands:
            if v.shape != extents:
                raise InternalError(f"{micro}: operand {v} must have shape {extents}")
            raw = splats.get(v)
            if raw is not None:
                arguments.append((v.dtype, raw))
            elif v in inputs:
                arguments.append(inputs.index(v))
            else:
                inputs.append(v)
                arguments.append(v.dtype)
        if not inputs and operands:
            folded = fold.integers(micro, result, imm, tuple(arguments))
            if folded is not None:
                self.shared.folded.append(self.loc)
                return self.splat(result, folded, extents)
        program = element_program(micro, result, imm, tuple(arguments))
        (value,) = self.emit(ir.Vec, inputs, ((result, extents),), program=program)
        return value

    def program(
        self, program: MicroProgram, operands: Sequence[Value], shape: Shape
    ) -> tuple[Value, ...]:
        """Apply a whole micro-program to operands of one shape."""
        types = [(t, shape) for t in program.output_types()]
        return self.emit(ir.Vec, operands, types, program=program)

    def iota(self, dtype: DType, shape: Shape, axis: int) -> Value:
        """Return a tensor that counts along an axis."""
        return self.vec("iota", dtype=dtype, imm=bytes((axis,)), shape=shape)

    def convert(self, x: Value, dtype: DType) -> Value:
        """Convert values; to bool is "differs from zero", complex drops its i part."""
        if x.dtype is dtype:
            return x
        if dtype is BOOL:
            return self.vec("ne", x, self.scalar(x.dtype, 0, x.shape))
        if dtype.kind == "c" and x.dtype.kind != "c":
            half = dtypes.F64 if dtype is dtypes.C128 else dtypes.F32
            re = self.convert(x, half)
            zero = self.scalar(half, 0, x.shape)
            return self.vec("complex", re, zero, dtype=dtype)
        if x.dtype.kind == "c" and dtype.kind != "c":
            half = dtypes.F64 if x.dtype is dtypes.C128 else dtypes.F32
            return self.convert(self.vec("real", x, dtype=half), dtype)
        return self.vec("convert", x, dtype=dtype)

    def select(self, pred: Value, on_true: Value, on_false: Value) -> Value:
        """Choose by a predicate of the same shape or a scalar."""
        if pred.shape != on_true.shape:
            pred = self.broadcast(pred, on_true.shape, ())
        return self.vec("select", pred, on_true, on_false)

    # ----------------------------------------------------------------- movement

    def layout(self, value: Value) -> Layout:
        """Return how a value reads the tensor that it is a view of."""
        return self.shared.layouts.get(value) or Layout.dense(value)

    def move(self, layout: Layout) -> Value:
        """Return the tensor that a layout reads; the base itself when it is that."""
        base, offset, shape, strides = layout
        if 0 in shape:
            return self.empty(base.dtype, shape)
        element = self.element(base)
        if element is not None:
            if base.shape == shape:
                return base
            return self.splat(base.dtype, element, shape)
        strides = tuple(0 if e == 1 else s for e, s in zip(shape, strides))
        if shape == base.shape and offset == 0:
            natural = row_major(shape)
            if all(e == 1 or s == n for e, s, n in zip(shape, strides, natural)):
                return base
        key = Layout(base, offset, shape, strides)
        at: Builder | None = self
        while at is not None:
            if key in at._moves:
                return at._moves[key]
            at = at.parent
        (value,) = self.emit(
            ir.Move, (base,), ((base.dtype, shape),), offset=offset, strides=strides
        )
        self.shared.layouts[value] = key
        self.shared.homes[value]._moves[key] = value
        return value

    def reshape(self, x: Value, shape: Shape) -> Value:
        """Reread the elements under other extents."""
        if x.shape == shape:
            return x
        if x.size == 0:
            return self.empty(x.dtype, shape)
        layout = self.layout(x).reshaped(shape)
        return self.move(layout or Layout(x, 0, shape, row_major(shape)))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Permute axes."""
        return self.move(self.layout(x).transposed(permutation))

    def slice(
        self, x: Value, start: Shape, limit: Shape, step: Shape | None = None
    ) -> Value:
        """Cut ``x[start:limit:step]`` on every axis."""
        steps = step or (1,) * len(x.shape)
        shape = tuple(max(0, -(-(e - s) // t)) for s, e, t in zip(start, limit, steps))
        return self.move(self.layout(x).sliced(start, steps, shape))

    def reverse(self, x: Value, axes: Sequence[int]) -> Value:
        """Run some axes backwards."""
        return self.move(self.layout(x).reversed(axes))

    def broadcast(self, x: Value, shape: Shape, dims: Sequence[int]) -> Value:
        """Place the axes of `x` at `dims` of the result and repeat along the others."""
        return self.move(self.layout(x).broadcast(shape, dims))

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Join tensors along an axis."""
        parts = [p for p in parts if p.size]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            raise InternalError("concatenation of empty tensors has no shape here")
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        types = ((parts[0].dtype, tuple(shape)),)
        attrs, counts = {"axis": axis}, {"srcs": len(parts)}
        (value,) = self.direct(Concat, types, parts, attrs, counts)
        return value

    def pad(
        self, x: Value, value: Value, low: Shape, high: Shape, interior: Shape
    ) -> Value:
        """Pad with a scalar; negative edges trim, `interior` spreads."""
        shape = tuple(
            lo + hi + e + max(0, e - 1) * i
            for e, lo, hi, i in zip(x.shape, low, high, interior)
        )
        if x.size == 0:
            return self.broadcast(value, shape, ())
        if not any(interior) and all(p <= 0 for p in low + high):
            limit = tuple(e + h for e, h in zip(x.shape, high))
            return self.slice(x, tuple(-p for p in low), limit)
        attrs = {"low": low, "interior": interior}
        (out,) = self.direct(Pad, ((x.dtype, shape),), (x, value), attrs)
        return out

    # -------------------------------------------------------------- contraction

    def gemm(self, lhs: Value, rhs: Value, dtype: DType, strategy: Strategy) -> Value:
        """Multiply (..., m, k) by (..., k, n); batch extents are equal or 1."""
        batch = tuple(
            max(a, b) if 0 not in (a, b) else 0
            for a, b in zip(lhs.shape[:-2], rhs.shape[:-2])
        )
        shape = (*batch, lhs.shape[-2], rhs.shape[-1])
        if lhs.shape[-1] == 0:
            return self.scalar(dtype, 0, shape)
        (out,) = self.emit(ir.Gemm, (lhs, rhs), ((dtype, shape),), strategy=strategy)
        return out

    def reduce(self, x: Value, kind: ReduceKind, axes: Sequence[int]) -> Value:
        """Reduce axes (they keep extent 1) of a tensor that is not empty."""
        if x.size == 0:
            raise UnsupportedOp(f"reduction {kind.name} of the empty tensor {x}")
        shape = tuple(1 if i in axes else e for i, e in enumerate(x.shape))
        axes = tuple(sorted(axes))
        if not axes:
            return x
        (out,) = self.emit(ir.Reduce, (x,), ((x.dtype, shape),), kind=kind, axes=axes)
        return out

    def arg_reduce(self, x: Value, kind: ReduceKind, axis: int) -> tuple[Value, Value]:
        """Return extremum and i32 index along an axis that keeps extent 1."""
        shape = tuple(1 if i == axis else e for i, e in enumerate(x.shape))
        types = ((x.dtype, shape), (dtypes.I32, shape))
        value, index = self.emit(ir.Reduce, (x,), types, kind=kind, axes=(axis,))
        return value, index
