"""Writing IR graphs by hand, for the compiler's tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, F32, I32, DType
from vkore_jax.isa import MICRO_OPS, ReduceKind, Strategy, row_major
from vkore_jax.lowering import ir
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.micro import MicroBuilder
from vkore_jax.program import Location

LOC = Location(op="test", file="", line=0, function="")


class GraphBuilder:
    """Writes graphs as a user would write NumPy."""

    def __init__(self, *params: Value) -> None:
        self.params = params
        self.nodes: list[ir.Node] = []

    def done(self, *outputs: Value) -> ir.Graph:
        return ir.Graph(
            params=self.params, nodes=tuple(self.nodes), outputs=tuple(outputs)
        )

    def add(self, node: ir.Node) -> tuple[Value, ...]:
        self.nodes.append(node)
        return node.results

    def const(self, data: Any) -> Value:
        data = np.asarray(data)
        value = Value(dtypes.by_numpy(data.dtype), data.shape)
        return self.add(ir.Const(results=(value,), loc=LOC, data=data))[0]

    def op(
        self, name: str, *args: Value, dtype: DType | None = None, imm: bytes = b""
    ) -> Value:
        """Append a Vec of one instruction; operands of one shape."""
        made = dtype or args[-1].dtype
        if MICRO_OPS[name].result == "bool":
            made = BOOL
        build = MicroBuilder()
        regs = tuple(build.input(a.dtype) for a in args)
        out = build.emit(MICRO_OPS[name].code, made, regs, imm)
        program, kept = build.finish([out])
        return self.add(
            ir.Vec(
                operands=tuple(args[i] for i in kept),
                results=(Value(made, args[0].shape),),
                loc=LOC,
                program=program,
            )
        )[0]

    def iota(self, dtype: DType, shape: tuple[int, ...], axis: int) -> Value:
        build = MicroBuilder()
        out = build.emit(MICRO_OPS["iota"].code, dtype, (), bytes((axis,)))
        program, _ = build.finish([out])
        return self.add(
            ir.Vec(results=(Value(dtype, shape),), loc=LOC, program=program)
        )[0]

    def move(
        self, x: Value, shape: Sequence[int], strides: Sequence[int], offset: int = 0
    ) -> Value:
        return self.add(
            ir.Move(
                operands=(x,),
                results=(Value(x.dtype, tuple(shape)),),
                loc=LOC,
                offset=offset,
                strides=tuple(strides),
            )
        )[0]

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.move(x, shape, row_major(shape))

    def transpose(self, x: Value, *perm: int) -> Value:
        steps = row_major(x.shape)
        return self.move(x, [x.shape[p] for p in perm], [steps[p] for p in perm])

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """StableHLO's broadcast_in_dim."""
        steps = row_major(x.shape)
        strides = [0] * len(shape)
        for axis, dim in enumerate(dims):
            if x.shape[axis] != 1:
                strides[dim] = steps[axis]
        return self.move(x, shape, strides)

    def reduce(self, kind: ReduceKind, x: Value, *axes: int) -> Value:
        """Reduce; the reduced axes go."""
        kept = tuple(1 if a in axes else e for a, e in enumerate(x.shape))
        (out,) = self.add(
            ir.Reduce(
                operands=(x,),
                results=(Value(x.dtype, kept),),
                loc=LOC,
                kind=kind,
                axes=axes,
            )
        )
        return self.reshape(out, *(e for a, e in enumerate(x.shape) if a not in axes))

    def sum(self, x: Value, *axes: int) -> Value:
        return self.reduce(ReduceKind.SUM, x, *axes)

    def max(self, x: Value, *axes: int) -> Value:
        return self.reduce(ReduceKind.MAX, x, *axes)

    def gemm(self, a: Value, b: Value, strategy: Strategy = Strategy.BF16X6) -> Value:
        batch = tuple(max(x, y) for x, y in zip(a.shape[:-2], b.shape[:-2]))
        shape = (*batch, a.shape[-2], b.shape[-1])
        return self.add(
            ir.Gemm(
                operands=(a, b),
                results=(Value(F32, shape),),
                loc=LOC,
                strategy=strategy,
            )
        )[0]

    def full(self, value: float, shape: Sequence[int], dtype: DType = F32) -> Value:
        return self.broadcast(self.const(np.asarray(value, dtype.numpy)), shape, ())

    def direct(
        self, command: type, args: Sequence[Value], result: Value, **attrs: Any
    ) -> Value:
        counts = {k[2:]: attrs.pop(k) for k in list(attrs) if k.startswith("n_")}
        return self.add(
            ir.Direct(
                operands=tuple(args),
                results=(result,),
                loc=LOC,
                command=command,
                attrs=attrs,
                counts=counts,
            )
        )[0]


def f32(*shape: int) -> Value:
    """A new float32 value."""
    return Value(F32, shape)


def i32(*shape: int) -> Value:
    """A new int32 value."""
    return Value(I32, shape)


def module(graph: ir.Graph, name: str = "test") -> ir.Module:
    return ir.Module(name=name, graph=graph)


def softmax(b: GraphBuilder, x: Value) -> Value:
    """Softmax over the last axis, as JAX writes it."""
    axis = len(x.shape) - 1
    lead = tuple(range(axis))
    top = b.broadcast(b.max(x, axis), x.shape, lead)
    e = b.op("exp", b.op("sub", x, top))
    total = b.broadcast(b.sum(e, axis), x.shape, lead)
    return b.op("div", e, total)


def layer_norm(b: GraphBuilder, x: Value, gain: Value, bias: Value) -> Value:
    axis = len(x.shape) - 1
    lead = tuple(range(axis))
    n = x.shape[-1]
    rows = x.shape[:-1]
    mean = b.op("div", b.sum(x, axis), b.full(n, rows))
    centred = b.op("sub", x, b.broadcast(mean, x.shape, lead))
    var = b.op("div", b.sum(b.op("mul", centred, centred), axis), b.full(n, rows))
    rstd = b.op("rsqrt", b.op("add", var, b.full(1e-5, rows)))
    y = b.op("mul", centred, b.broadcast(rstd, x.shape, lead))
    y = b.op("mul", y, b.broadcast(gain, x.shape, (axis,)))
    return b.op("add", y, b.broadcast(bias, x.shape, (axis,)))


def gelu(b: GraphBuilder, x: Value) -> Value:
    """The tanh form."""
    cube = b.op("mul", b.op("mul", x, x), x)
    inner = b.op("add", x, b.op("mul", cube, b.full(0.044715, x.shape)))
    t = b.op("tanh", b.op("mul", inner, b.full(math.sqrt(2 / math.pi), x.shape)))
    half = b.op("mul", x, b.full(0.5, x.shape))
    return b.op("mul", half, b.op("add", t, b.full(1.0, x.shape)))
