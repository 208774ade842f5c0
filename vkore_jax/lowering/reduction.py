"""Reductions: monoids on the vector unit, everything else on the control core."""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, F32, I32, DType
from vkore_jax.isa import (
    MICRO_OPS,
    MicroProgram,
    ReduceGeneric,
    ReduceKind,
    ReduceWindow,
    SelectAndScatter,
)
from vkore_jax.lowering import ir
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.regions import COMBINE, Tree, identity, micro_program, monoid
from vkore_jax.lowering.regions import tree as expression
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import kinds

rules = RuleSet(__name__)


@rules.lowers("stablehlo.reduce", takes=kinds("biufc"))
def reduce(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """Reduction of one or several tensors with any region of element code."""
    count = len(operands) // 2
    srcs, inits = operands[:count], operands[count:]
    axes = op.ints("dimensions")
    shape = op.types[0].shape
    if srcs[0].size == 0:
        return tuple(b.broadcast(i, shape, ()) for i in inits)
    program = micro_program(b, op.regions[0])
    if not axes:
        starts = [b.broadcast(i, shape, ()) for i in inits]
        return b.program(program, (*starts, *srcs), shape)
    found = [monoid(program, i) for i in range(count)]
    kinds = [k for k in found if k is not None]
    if len(kinds) == count:
        rows = zip(srcs, inits, kinds)
        return tuple(_monoid(b, x, i, k, axes, shape) for x, i, k in rows)
    arg = _arg_kind(b, program, srcs, inits, axes)
    if arg is not None:
        return _arg(b, srcs[0], srcs[1].dtype, arg, axes[0], shape)
    types = [(x.dtype, shape) for x in srcs]
    attrs = {"axes": axes, "combiner": program}
    counts = {"srcs": count, "inits": count}
    return b.direct(ReduceGeneric, types, operands, attrs, counts)


def working_type(dtype: DType) -> DType:
    """Return the type to reduce in: sub-byte integers and float8 are storage only."""
    if dtype.kind in "iu" and dtype.bits < 8:
        return I32
    if dtype.kind == "f" and dtype.bits < 16:
        return F32
    return dtype


def _is_identity(b: Builder, value: Value, kind: ReduceKind) -> bool:
    if b.element(value) == identity(kind, value.dtype):
        return True
    zero = kind is ReduceKind.SUM and value.dtype.kind in "fc"
    known = b.known(value)
    return bool(zero and known is not None and known == 0)


def _monoid(
    b: Builder, x: Value, init: Value, kind: ReduceKind, axes: Shape, shape: Shape
) -> Value:
    work = working_type(x.dtype)
    out = b.reshape(b.reduce(b.convert(x, work), kind, axes), shape)
    out = b.convert(out, x.dtype)
    if _is_identity(b, init, kind):
        return out
    return b.vec(COMBINE[kind], b.broadcast(init, shape, ()), out)


def _arg_kind(
    b: Builder,
    program: MicroProgram,
    srcs: Sequence[Value],
    inits: Sequence[Value],
    axes: Shape,
) -> ReduceKind | None:
    """Recognise the reducer of jnp.argmax and jnp.argmin.

    Inputs are (acc, acc_i, x, x_i).  JAX keeps the accumulator when it compares better,
    or is NaN, or is equal with the smaller index; since the index operand counts along
    the axis, that is "first extremum, first NaN", the ISA's definition.
    """
    if len(srcs) != 2 or len(axes) != 1 or not _counts(b, srcs[1], axes[0]):
        return None
    dtype, index = srcs[0].dtype, srcs[1].dtype
    if dtype.kind not in "biuf" or b.known(inits[1]) != 0:
        return None
    found = tuple(expression(program, r) for r in program.outputs)
    for kind, compare in ((ReduceKind.ARGMAX, "gt"), (ReduceKind.ARGMIN, "lt")):
        monoid_kind = ReduceKind.MAX if kind is ReduceKind.ARGMAX else ReduceKind.MIN
        if b.element(inits[0]) != identity(monoid_kind, dtype):
            continue
        if found == _arg_trees(compare, dtype, index, True):
            return kind
        if dtype.kind != "f" and found == _arg_trees(compare, dtype, index, False):
            return kind
    return None


def _arg_trees(compare: str, dtype: DType, index: DType, nan: bool) -> tuple[Tree, ...]:
    def node(name: str, *args: Tree, of: DType = BOOL) -> Tree:
        ordered = sorted(args, key=repr) if name in ("or", "and", "eq", "ne") else args
        return (name, of.short, b"", *ordered)

    better = node(compare, 0, 2)
    keep = node("or", better, node("ne", 0, 0)) if nan else better
    first = node("and", node("eq", 0, 2), node("lt", 1, 3))
    return (
        node("select", keep, 0, 2, of=dtype),
        node("select", node("or", keep, first), 1, 3, of=index),
    )


def _counts(b: Builder, value: Value, axis: int) -> bool:
    """True when a tensor is known to hold the index along `axis`."""
    layout = b.layout(value)
    node = b.producer(layout.base)
    if not isinstance(node, ir.Vec) or len(node.program.insns) != 1:
        return False
    insn = node.program.insns[0]
    if insn.code != MICRO_OPS["iota"].code:
        return False
    if layout.base is value:
        return insn.imm[0] == axis
    walk = tuple(1 if i == axis else 0 for i in range(len(value.shape)))
    return len(layout.base.shape) == 1 and layout[1:] == (0, value.shape, walk)


def _arg(
    b: Builder, x: Value, index: DType, kind: ReduceKind, axis: int, shape: Shape
) -> tuple[Value, ...]:
    work = dtypes.I8 if x.dtype is BOOL else working_type(x.dtype)
    value, position = b.arg_reduce(b.convert(x, work), kind, axis)
    value = b.convert(b.reshape(value, shape), x.dtype)
    return value, b.convert(b.reshape(position, shape), index)


# ---------------------------------------------------------------------------- windows


@rules.lowers("stablehlo.reduce_window", takes=kinds("biufc"))
def reduce_window(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """Sliding reduction; cumulative sums and the like in log2(n) vector steps."""
    count = len(operands) // 2
    srcs, inits = operands[:count], operands[count:]
    rank = len(srcs[0].shape)
    ones = (1,) * rank
    low, high = op.pairs("padding", rank)
    program = micro_program(b, op.regions[0])
    attrs = {
        "window": op.ints("window_dimensions"),
        "strides": op.ints("window_strides", ones),
        "base_dilation": op.ints("base_dilations", ones),
        "window_dilation": op.ints("window_dilations", ones),
        "pad_low": low,
        "pad_high": high,
        "combiner": program,
    }
    shape = op.types[0].shape
    if srcs[0].size == 0 and 0 not in shape and count == 1:
        return (b.broadcast(inits[0], shape, ()),)
    kind = monoid(program)
    plain = all(
        attrs[k] == ones for k in ("strides", "base_dilation", "window_dilation")
    )
    wide = [i for i, w in enumerate(op.ints("window_dimensions")) if w != 1]
    if count == 1 and kind is not None and plain and len(wide) == 1 and srcs[0].size:
        (axis,) = wide
        extent = srcs[0].shape[axis]
        spans = op.ints("window_dimensions")[axis] == extent
        edges = {(low, high), (high, low)}
        reach = tuple(extent - 1 if i == axis else 0 for i in range(rank))
        if spans and (reach, (0,) * rank) in edges:
            backwards = high == reach
            out = cumulate(b, srcs[0], kind, axis, backwards)
            if not _is_identity(b, inits[0], kind):
                out = b.vec(COMBINE[kind], b.broadcast(inits[0], shape, ()), out)
            return (out,)
    types = [(x.dtype, shape) for x in srcs]
    counts = {"srcs": count, "inits": count}
    return b.direct(ReduceWindow, types, operands, attrs, counts)


def cumulate(
    b: Builder, x: Value, kind: ReduceKind, axis: int, backwards: bool
) -> Value:
    """Return the running reduction along an axis (Hillis and Steele, CACM 1986).

    Step s combines each element with the one `s` before it, s = 1, 2, 4, ...; elements
    before the start are the identity.  16-bit floats are summed in f32.
    """
    dtype = x.dtype
    short = dtype.kind == "f" and dtype.bits <= 16
    x = b.convert(x, F32 if short else working_type(dtype))
    edge = b.splat(x.dtype, identity(kind, x.dtype), ())
    extent, reach = x.shape[axis], 1
    none = (0,) * len(x.shape)
    while reach < extent:
        shift = tuple(reach if i == axis else 0 for i in range(len(x.shape)))
        trim = tuple(-s for s in shift)
        low, high = (trim, shift) if backwards else (shift, trim)
        x = b.vec(COMBINE[kind], b.pad(x, edge, low, high, none), x)
        reach *= 2
    return b.convert(x, dtype)


@rules.lowers("stablehlo.select_and_scatter", takes=kinds("biufc"))
def select_and_scatter(
    b: Builder, op: Op, operand: Value, source: Value, init: Value
) -> Value:
    """Scatter to the selected element of each window (gradient of pooling)."""
    rank = len(operand.shape)
    low, high = op.pairs("padding", rank)
    if source.size == 0:
        return b.broadcast(init, operand.shape, ())
    attrs = {
        "window": op.ints("window_dimensions", (1,) * rank),
        "strides": op.ints("window_strides", (1,) * rank),
        "pad_low": low,
        "pad_high": high,
        "select": micro_program(b, op.regions[0]),
        "combiner": micro_program(b, op.regions[1]),
    }
    types = ((operand.dtype, operand.shape),)
    (out,) = b.direct(SelectAndScatter, types, (operand, source, init), attrs)
    return out
