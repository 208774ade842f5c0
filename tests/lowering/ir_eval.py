"""A plain NumPy evaluator of the tensor IR: the oracle of the import tests.

It follows the docstrings of `lowering.ir` and of the ISA commands literally and shares
no code with the engines.  Contractions are computed in the operand type without the
rounding of a precision strategy: that is a matter of the engines, not of the import.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax import isa
from vkore_jax.dtypes import DType
from vkore_jax.isa import MicroProgram, ReduceKind
from vkore_jax.lowering import ir

Array = np.ndarray[Any, Any]
Env = dict[ir.Value, Array]


def evaluate(module: ir.Module, args: Sequence[Any], calls: Any = None) -> list[Array]:
    """Run a module; `calls(callback, *operands)` answers host calls."""
    return graph(module.graph, [np.asarray(a) for a in args], {}, calls)


def graph(g: ir.Graph, args: Sequence[Array], outer: Env, calls: Any) -> list[Array]:
    """Run one graph; it may read the values of `outer`."""
    env = dict(outer)
    for p, a in zip(g.params, args, strict=True):
        check(p, a)
        env[p] = a
    for node in g.nodes:
        operands = [env[v] for v in node.operands]
        with np.errstate(all="ignore"):
            results = run(node, operands, env, calls)
        for v, a in zip(node.results, results, strict=True):
            check(v, a)
            env[v] = a
    return [env[v] for v in g.outputs]


def check(value: ir.Value, array: Array) -> None:
    """Assert that an array has a value's type."""
    assert array.dtype == value.dtype.numpy, (str(value), array.dtype)
    assert array.shape == value.shape, (str(value), array.shape)


def run(node: ir.Node, ops: list[Array], env: Env, calls: Any) -> Sequence[Array]:
    """Evaluate one node."""
    if isinstance(node, ir.Const):
        return [np.array(node.data)]
    if isinstance(node, ir.Vec):
        shape = node.results[0].shape
        assert all(o.shape == shape for o in ops)
        return micro(node.program, ops, shape)
    if isinstance(node, ir.Move):
        return [read_view(ops[0], node.result.shape, node.offset, node.strides)]
    if isinstance(node, ir.Gemm):
        return [gemm(ops[0], ops[1], node.result.dtype.numpy)]
    if isinstance(node, ir.Reduce):
        return reduce(node, ops[0])
    if isinstance(node, ir.While):
        return loop(node, ops, env, calls)
    if isinstance(node, ir.Case):
        index = int(ops[0])
        last = len(node.branches) - 1
        branch = node.branches[index if 0 <= index <= last else last]
        return graph(branch, [], env, calls)
    if isinstance(node, ir.HostCall):
        return [np.asarray(a) for a in calls(node.callback, *ops)]
    assert isinstance(node, ir.Direct)
    return DIRECT[node.command](node, ops)


def loop(node: ir.While, carry: list[Array], env: Env, calls: Any) -> list[Array]:
    if node.trips is not None:
        for _ in range(node.trips):
            carry = graph(node.body, carry, env, calls)
        return carry
    while bool(graph(node.cond, carry, env, calls)[0]):
        carry = graph(node.body, carry, env, calls)
    return carry


def read_view(x: Array, shape: Any, offset: int, strides: Any) -> Array:
    index = np.full(shape, offset, np.int64)
    for axis, stride in enumerate(strides):
        walk = np.arange(shape[axis]) * stride
        index = index + walk.reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
    assert index.min() >= 0, "view out of bounds"
    assert index.max() < x.size, "view out of bounds"
    return x.reshape(-1)[index]


def gemm(lhs: Array, rhs: Array, out: Any) -> Array:
    wide: Any = np.float64
    if lhs.dtype.kind in "iu":
        wide = np.int64 if lhs.dtype.kind == "i" else np.uint64
    if lhs.dtype.kind == "c":
        wide = np.complex128
    assert lhs.dtype == rhs.dtype
    assert lhs.ndim == rhs.ndim
    return np.matmul(lhs.astype(wide), rhs.astype(wide)).astype(out)


def reduce(node: ir.Reduce, x: Array) -> list[Array]:
    kind, axes, dtype = node.kind, tuple(node.axes), x.dtype
    if kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN):
        (axis,) = axes
        nan = np.isnan(x.astype(np.float64)) if dtype.kind not in "iub" else None
        key = x.astype(np.float64) if dtype.kind not in "iub" else x
        pick = np.argmax if kind is ReduceKind.ARGMAX else np.argmin
        index = pick(key, axis=axis)
        if nan is not None:
            index = np.where(nan.any(axis), np.argmax(nan, axis), index)
        index = np.expand_dims(index, axis)
        return [np.take_along_axis(x, index, axis), index.astype(np.int32)]
    wide = np.float64 if node.results[0].dtype.kind == "f" else dtype
    functions = {
        ReduceKind.SUM: np.add,
        ReduceKind.PROD: np.multiply,
        ReduceKind.MAX: np.maximum,
        ReduceKind.MIN: np.minimum,
        ReduceKind.AND: np.bitwise_and,
        ReduceKind.OR: np.bitwise_or,
        ReduceKind.XOR: np.bitwise_xor,
    }
    function = functions[kind]
    out = x.astype(wide)
    for axis in axes:
        out = function.reduce(out, axis=axis, keepdims=True, dtype=wide)
    return [out.astype(dtype)]


# ------------------------------------------------------------------------ element code


def micro(program: MicroProgram, ops: Sequence[Array], shape: Any) -> list[Array]:
    """Run element code on arrays of one shape."""
    types = program.types()
    regs: list[Array] = []
    for t, a in zip(program.inputs, ops, strict=True):
        assert a.dtype == t.numpy, (a.dtype, t)
        regs.append(np.asarray(a))
    for insn in program.insns:
        args = [regs[s] for s in insn.srcs]
        t = insn.dtype.numpy
        name = insn.op.name
        if name == "imm":
            out = np.broadcast_to(np.frombuffer(insn.imm, t)[0], shape)
        elif name == "iota":
            axis = insn.imm[0]
            dims = [-1 if i == axis else 1 for i in range(len(shape))]
            out = np.broadcast_to(np.arange(shape[axis]).reshape(dims), shape).astype(t)
        elif name == "convert":
            out = convert(args[0], insn.dtype)
        elif name == "bitcast":
            out = np.array(args[0], order="C").view(t)
        elif name == "reduce_precision":
            out = reduce_precision(args[0], *insn.imm)
        elif name == "complex":
            out = args[0] + 1j * args[1]
        else:
            out = MICRO[name](*args)
        regs.append(np.asarray(out).astype(t))
    assert len(regs) == len(types)
    return [np.broadcast_to(regs[r], shape) for r in program.outputs]


def convert(x: Array, dtype: DType) -> Array:
    if dtype.kind in "iu" and x.dtype.kind not in "iubc":
        wide = x.astype(np.float64)
        info: Any = np.iinfo if dtype.bits >= 8 else ml_dtypes.iinfo
        limits = info(dtype.numpy)
        low, high = int(limits.min), int(limits.max)
        clipped = np.clip(np.trunc(np.nan_to_num(wide, nan=0.0)), low, high)
        out = [min(max(int(v), low), high) for v in clipped.reshape(-1)]
        return np.array(out, dtype.numpy).reshape(x.shape)
    return x.astype(dtype.numpy)


def reduce_precision(x: Array, exponent: int, mantissa: int) -> Array:
    assert x.dtype == np.float32, "the oracle rounds f32 only"
    bits = x.view(np.uint32).copy()
    drop = 23 - mantissa
    if drop > 0:
        last = (bits >> drop) & 1
        bits = bits + (((1 << (drop - 1)) - 1) + last).astype(np.uint32)
        bits &= ~np.uint32((1 << drop) - 1)
    out = bits.view(np.float32)
    if exponent < 8:
        bias = (1 << (exponent - 1)) - 1
        top = np.float64(2.0) ** bias * (2 - 2.0**-mantissa)
        out = np.where(np.abs(out) > top, np.copysign(np.inf, out), out)
        out = np.where(np.abs(out) < 2.0 ** (1 - bias), np.copysign(0.0, out), out)
    return np.where(np.isfinite(x), out, x).astype(np.float32)


def via(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute 16-bit and narrower floats in float64, the others in their type."""

    def apply(*args: Array) -> Array:
        kinds = [a.dtype.kind for a in args]
        if all(k == "f" and a.dtype.itemsize >= 4 for k, a in zip(kinds, args)):
            return function(*[a.astype(np.float64) for a in args])
        if any(k in "Vf" for k in kinds):
            return function(*[a.astype(np.float64) for a in args])
        return function(*args)

    return apply


def divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return a / b
    zero = b == 0
    safe = np.where(zero, np.ones_like(b), b)
    return np.where(zero, np.array(-1).astype(a.dtype), exact_div(a, safe))


def exact_div(a: Array, b: Array) -> Array:
    q = np.abs(a.astype(object)) // np.abs(b.astype(object))
    negative = (a < 0) != (b < 0)
    return wrap(np.where(negative, -q, q), a.dtype)


def remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    zero = b == 0
    safe = np.where(zero, np.ones_like(b), b)
    q = exact_div(a, safe).astype(object)
    return np.where(zero, a, wrap(a.astype(object) - q * safe.astype(object), a.dtype))


def wrap(x: Array, dtype: Any) -> Array:
    bits = 8 * dtype.itemsize
    flat = [int(v) % (1 << bits) for v in np.asarray(x, object).reshape(-1)]
    return np.array(flat, f"u{dtype.itemsize}").view(dtype).reshape(np.shape(x))


def power(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    out = []
    for x, y in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist()):
        if y >= 0:
            out.append(x**y)
        else:
            out.append(1 if x == 1 else (1 if y % 2 == 0 else -1) if x == -1 else 0)
    return wrap(np.array(out, object).reshape(a.shape), a.dtype)


def shift(kind: str) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        bits = 8 * a.dtype.itemsize
        count = b.astype(np.uint64)
        over = count >= bits
        safe = np.where(over, 0, count).astype(a.dtype)
        if kind == "shl":
            return np.where(over, 0, np.left_shift(a, safe)).astype(a.dtype)
        if kind == "shr_l":
            u = a.view(f"u{a.dtype.itemsize}")
            out = np.where(over, 0, np.right_shift(u, safe.astype(u.dtype)))
            return out.astype(u.dtype).view(a.dtype)
        return np.right_shift(a, np.where(over, bits - 1, safe).astype(a.dtype))

    return apply


def total(x: Array) -> Array:
    """Map floats to integers that order as IEEE total order does."""
    signed = np.array(x, order="C").view(f"i{x.dtype.itemsize}").astype(np.int64)
    bits = 8 * x.dtype.itemsize
    return np.where(signed < 0, -(signed + (1 << (bits - 1))) - 1, signed)


def ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(total(a), total(b))


def bit_count(x: Array) -> Array:
    return np.array([bin(int(v)).count("1") for v in unsigned(x)]).reshape(x.shape)


def leading_zeros(x: Array) -> Array:
    bits = 8 * x.dtype.itemsize
    counts = [bits - int(v).bit_length() for v in unsigned(x)]
    return np.array(counts).reshape(x.shape)


def unsigned(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(-1)


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def sign(x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    return np.where(x == 0, x, np.sign(x))


def away(x: Array) -> Array:
    return np.trunc(x + np.copysign(0.5, x))


def minmax(function: Callable[..., Any], reducer: Any) -> Callable[..., Any]:
    def apply(a: Array, b: Array) -> Array:
        if a.dtype.kind == "V":
            return function(a.astype(np.float64), b.astype(np.float64))
        return function(a, b)

    return apply


MICRO: dict[str, Callable[..., Any]] = {
    "select": np.where,
    "clamp": lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
    "real": np.real,
    "imag": np.imag,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": divide,
    "rem": remainder,
    "max": minmax(np.maximum, None),
    "min": minmax(np.minimum, None),
    "pow": power,
    "atan2": via(np.arctan2),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": shift("shl"),
    "shr_a": shift("shr_a"),
    "shr_l": shift("shr_l"),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq_total": ordered(np.equal),
    "ne_total": ordered(np.not_equal),
    "lt_total": ordered(np.less),
    "le_total": ordered(np.less_equal),
    "gt_total": ordered(np.greater),
    "ge_total": ordered(np.greater_equal),
    "abs": np.abs,
    "neg": np.negative,
    "sign": sign,
    "not": np.bitwise_not,
    "ceil": np.ceil,
    "floor": np.floor,
    "round_even": np.rint,
    "round_away": away,
    "is_finite": np.isfinite,
    "popcnt": bit_count,
    "clz": leading_zeros,
    "exp": via(np.exp),
    "expm1": via(np.expm1),
    "log": via(np.log),
    "log1p": via(np.log1p),
    "logistic": via(logistic),
    "tanh": via(np.tanh),
    "tan": via(np.tan),
    "sin": via(np.sin),
    "cos": via(np.cos),
    "sqrt": via(np.sqrt),
    "rsqrt": via(lambda x: 1 / np.sqrt(x)),
    "cbrt": via(np.cbrt),
}


def scalar(program: MicroProgram, *args: Any) -> list[Any]:
    """Run element code on scalars."""
    inputs = [np.asarray(a, t.numpy) for a, t in zip(args, program.inputs, strict=True)]
    return [r[()] for r in micro(program, inputs, ())]


# --------------------------------------------------------------------- direct commands


def split(node: ir.Direct, ops: list[Array], *fields: str) -> list[list[Array]]:
    """Cut the operands into the list fields named."""
    out, rest = [], list(ops)
    for f in fields:
        count = node.counts.get(f, 1)
        out.append(rest[:count])
        rest = rest[count:]
    assert not rest
    return out


def concat(node: ir.Direct, ops: list[Array]) -> list[Array]:
    return [np.concatenate(ops, node.attrs["axis"])]


def pad(node: ir.Direct, ops: list[Array]) -> list[Array]:
    x, value = ops
    shape = node.result.shape
    out = np.full(shape, value)
    low, interior = node.attrs["low"], node.attrs["interior"]
    for index in np.ndindex(*x.shape):
        at = tuple(lo + i * (g + 1) for i, lo, g in zip(index, low, interior))
        if all(0 <= a < e for a, e in zip(at, shape)):
            out[at] = x[index]
    return [out]


def starts_of(starts: list[Array], full: Any, window: Any) -> tuple[slice, ...]:
    return tuple(
        slice(k, k + w)
        for k, w in (
            (min(max(int(s), 0), e - w), w) for s, e, w in zip(starts, full, window)
        )
    )


def dynamic_slice(node: ir.Direct, ops: list[Array]) -> list[Array]:
    (x,), starts = split(node, ops, "src", "starts")
    return [x[starts_of(starts, x.shape, node.result.shape)].copy()]


def dynamic_update(node: ir.Direct, ops: list[Array]) -> list[Array]:
    (x,), (update,), starts = split(node, ops, "src", "update", "starts")
    out = x.copy()
    out[starts_of(starts, x.shape, update.shape)] = update
    return [out]


def start_vector(indices: Array, at: Sequence[int], axis: int) -> Array:
    if axis == indices.ndim:
        return indices[tuple(at)].reshape(1)
    place: list[Any] = list(at)
    place.insert(axis, slice(None))
    return indices[tuple(place)]


def gather(node: ir.Direct, ops: list[Array]) -> list[Array]:
    operand, indices = ops
    a = node.attrs
    shape = node.result.shape
    out = np.zeros(shape, operand.dtype)
    batch = [i for i in range(len(shape)) if i not in a["offset_dims"]]
    window = [
        i
        for i in range(operand.ndim)
        if i not in a["collapsed_dims"] and i not in a["operand_batching_dims"]
    ]
    axis = a["index_vector_dim"]
    for index in np.ndindex(*shape):
        at = [index[i] for i in batch]
        start = start_vector(indices, at, axis)
        full = [0] * operand.ndim
        for d, s in zip(a["start_index_map"], start, strict=True):
            full[d] = min(max(int(s), 0), operand.shape[d] - a["slice_sizes"][d])
        for d, i in zip(a["operand_batching_dims"], a["indices_batching_dims"]):
            full[d] = at[i - (1 if axis < i else 0)]
        for d, o in zip(window, a["offset_dims"], strict=True):
            full[d] += index[o]
        out[index] = operand[tuple(full)]
    return [out]


def scatter(node: ir.Direct, ops: list[Array]) -> list[Array]:
    operands, (indices,), updates = split(node, ops, "operands", "indices", "updates")
    a = node.attrs
    outs = [o.copy() for o in operands]
    rank = operands[0].ndim
    shape = updates[0].shape
    windows = a["update_window_dims"]
    spread = [i for i in range(len(shape)) if i not in windows]
    kept = [
        i
        for i in range(rank)
        if i not in a["inserted_dims"] and i not in a["operand_batching_dims"]
    ]
    axis = a["index_vector_dim"]
    extents = [1] * rank
    for d, w in zip(kept, windows, strict=True):
        extents[d] = shape[w]
    for at in itertools.product(*(range(shape[i]) for i in spread)):
        start = start_vector(indices, at, axis)
        full = [0] * rank
        for d, s in zip(a["scatter_dims"], start, strict=True):
            full[d] = int(s)
        for d, i in zip(a["operand_batching_dims"], a["indices_batching_dims"]):
            full[d] = at[i - (1 if axis < i else 0)]
        inside = (
            f >= 0 and f + e <= n for f, e, n in zip(full, extents, outs[0].shape)
        )
        if not all(inside):
            continue
        for offset in itertools.product(*(range(shape[w]) for w in windows)):
            source = [0] * len(shape)
            for i, v in zip(spread, at):
                source[i] = v
            place = list(full)
            for w, d, o in zip(windows, kept, offset):
                source[w] = o
                place[d] += o
            now = [o[tuple(place)] for o in outs]
            new = scalar(a["combiner"], *now, *(u[tuple(source)] for u in updates))
            for o, v in zip(outs, new):
                o[tuple(place)] = v
    return outs


def sort(node: ir.Direct, ops: list[Array]) -> list[Array]:
    axis, comparator = node.attrs["axis"], node.attrs["comparator"]
    moved = [np.moveaxis(x, axis, -1).copy() for x in ops]
    for lane in np.ndindex(*moved[0].shape[:-1]):
        rows = [m[lane] for m in moved]
        order: list[int] = []
        for i in range(len(rows[0])):
            place = len(order)
            while place > 0:
                pairs = [v for r in rows for v in (r[i], r[order[place - 1]])]
                if not scalar(comparator, *pairs)[0]:
                    break
                place -= 1
            order.insert(place, i)
        for m, r in zip(moved, [r[order].copy() for r in rows]):
            m[lane] = r
    return [np.moveaxis(m, -1, axis) for m in moved]


def window_reads(attrs: Any, shape: Any, at: Any, extents: Any) -> Any:
    """Yield the input index of each window element at an output position."""
    rank = len(shape)
    base = attrs.get("base_dilation", (1,) * rank)
    dilation = attrs.get("window_dilation", (1,) * rank)
    for w in itertools.product(*(range(e) for e in attrs["window"])):
        place = []
        for i in range(rank):
            p = at[i] * attrs["strides"][i] + w[i] * dilation[i] - attrs["pad_low"][i]
            if p < 0 or p % base[i] or p // base[i] >= shape[i]:
                break
            place.append(p // base[i])
        else:
            yield tuple(place)


def reduce_window(node: ir.Direct, ops: list[Array]) -> list[Array]:
    srcs, inits = split(node, ops, "srcs", "inits")
    outs = [np.zeros(r.shape, r.dtype.numpy) for r in node.results]
    for at in np.ndindex(*outs[0].shape):
        acc = [i[()] for i in inits]
        for place in window_reads(node.attrs, srcs[0].shape, at, None):
            acc = scalar(node.attrs["combiner"], *acc, *(s[place] for s in srcs))
        for o, v in zip(outs, acc):
            o[at] = v
    return outs


def select_and_scatter(node: ir.Direct, ops: list[Array]) -> list[Array]:
    operand, source, init = ops
    out = np.full(operand.shape, init)
    for at in np.ndindex(*source.shape):
        best: Any = None
        for place in window_reads(node.attrs, operand.shape, at, None):
            pair = (operand[place if best is None else best], operand[place])
            if best is None or not scalar(node.attrs["select"], *pair)[0]:
                best = place
        if best is not None:
            out[best] = scalar(node.attrs["combiner"], out[best], source[at])[0]
    return [out]


def reduce_generic(node: ir.Direct, ops: list[Array]) -> list[Array]:
    srcs, inits = split(node, ops, "srcs", "inits")
    axes = node.attrs["axes"]
    outs = [np.zeros(r.shape, r.dtype.numpy) for r in node.results]
    kept = [i for i in range(srcs[0].ndim) if i not in axes]
    for at in np.ndindex(*outs[0].shape):
        acc = [i.reshape(())[()] for i in inits]
        for inner in itertools.product(*(range(srcs[0].shape[a]) for a in axes)):
            place = [0] * srcs[0].ndim
            for k, v in zip(kept, at):
                place[k] = v
            for k, v in zip(axes, inner):
                place[k] = v
            values = (s[tuple(place)] for s in srcs)
            acc = scalar(node.attrs["combiner"], *acc, *values)
        for o, v in zip(outs, acc):
            o[at] = v
    return outs


def conv(node: ir.Direct, ops: list[Array]) -> list[Array]:
    a = node.attrs
    wide = np.int64 if ops[0].dtype.kind in "iu" else np.float64
    if ops[0].dtype.kind == "c":
        wide = np.complex128
    lhs, rhs = (o.astype(wide) for o in ops)
    rank = lhs.ndim - 2
    shape = node.result.shape
    flips = tuple(slice(None, None, -1 if r else 1) for r in a["reversal"])
    rhs = rhs[flips]
    n, features = lhs.shape[0], rhs.shape[-1]
    groups, batches = a["feature_groups"], a["batch_groups"]
    out = np.zeros(shape, wide)
    per = rhs.shape[-2]
    for at in itertools.product(*(range(e) for e in shape[1:-1])):
        for w in itertools.product(*(range(e) for e in rhs.shape[:rank])):
            place = []
            for i in range(rank):
                p = at[i] * a["strides"][i] + w[i] * a["rhs_dilation"][i]
                p -= a["pad_low"][i]
                d = a["lhs_dilation"][i]
                if p < 0 or p % d or p // d >= lhs.shape[1 + i]:
                    break
                place.append(p // d)
            else:
                image = lhs[(slice(None), *place)]
                taps = rhs[w]
                for o in range(features):
                    g = o * groups // features
                    part = image[:, g * per : (g + 1) * per]
                    bg = o * batches // features
                    size = n // batches
                    rows = part[bg * size : (bg + 1) * size]
                    out[(slice(None), *at, o)] += rows @ taps[:, o]
    return [out.astype(node.result.dtype.numpy)]


def fft(node: ir.Direct, ops: list[Array]) -> list[Array]:
    names = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}
    lengths = node.attrs["lengths"]
    function = getattr(np.fft, names[node.attrs["kind"].name])
    out = function(ops[0], s=lengths, axes=range(-len(lengths), 0))
    return [out.astype(node.result.dtype.numpy)]


DIRECT: dict[type, Callable[[ir.Direct, list[Array]], Sequence[Array]]] = {
    isa.Concat: concat,
    isa.Pad: pad,
    isa.DynamicSlice: dynamic_slice,
    isa.DynamicUpdate: dynamic_update,
    isa.Gather: gather,
    isa.Scatter: scatter,
    isa.Sort: sort,
    isa.ReduceWindow: reduce_window,
    isa.SelectAndScatter: select_and_scatter,
    isa.ReduceGeneric: reduce_generic,
    isa.Conv: conv,
    isa.Fft: fft,
}
