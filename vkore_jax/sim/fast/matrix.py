"""Contractions as XLA operations: GEMM with broadcasting batch axes, and CONV."""

from __future__ import annotations

import math

import numpy as np

from vkore_jax.dtypes import F16, F32, DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import Conv, Strategy
from vkore_jax.sim.contract import nan_open
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type
from vkore_jax.sim.fast.padding import cut
from vkore_jax.sim.fast.scaled import Operand, all_finite, binary, either
from vkore_jax.sim.fast.sliced import SLICED
from vkore_jax.sim.fast.strategies import STRATEGIES, int8_terms

# --------------------------------------------------------------------------------- gemm


def gemm(
    e: Emitter, lhs: Val, rhs: Val, strategy: Strategy, dtype: DType, shape: Shape
) -> Val:
    """Emit (..., m, k) x (..., k, n) with broadcasting batch axes.

    Args:
        e: where to write.
        lhs: left operand; logical rank r.
        rhs: right operand; logical rank r.
        strategy: precision strategy.
        dtype: element type of the result.
        shape: logical shape of the result.
    """
    rank = len(shape)
    lhs = _expanded(e, lhs, (rank - 2, rank - 1))
    rhs = _expanded(e, rhs, (rank - 2, rank - 1))
    terms = lhs.logical[-1]
    if math.prod(shape) == 0:
        return e.constant(dtype, shape, b"")
    if terms == 0:
        return e.scalar(dtype, 0).standing_for(shape)
    small = tuple(max(a, b) for a, b in zip(lhs.shape[:-2], rhs.shape[:-2]))
    small += shape[-2:]

    def product(a: Val, b: Val) -> Val:
        return _dot(e, a, b, small)

    limit = int8_terms(lhs.dtype, rhs.dtype) if strategy is Strategy.INT8 else terms
    parts = []
    for first in range(0, terms, limit):
        last = min(first + limit, terms)
        a, b = (
            _span(e, lhs, rank - 1, first, last),
            _span(e, rhs, rank - 2, first, last),
        )
        left, right = (
            Operand(a, rank - 1, last - first),
            Operand(b, rank - 2, last - first),
        )
        parts.append(STRATEGIES[strategy](e, left, right, product, last - first))
    out = parts[0]
    for part in parts[1:]:
        out = binary(e, "add", out, part)
    return e.convert(out, dtype).standing_for(shape)


def _expanded(e: Emitter, v: Val, axes: tuple[int, ...]) -> Val:
    """Repeat along some axes, leave the others small; the value's logical shape."""
    rank = len(v.logical)
    base = v.shape if v.shape else (1,) * rank
    shape = tuple(v.logical[i] if i in axes else n for i, n in enumerate(base))
    return e.broadcast(v, shape)


def _span(e: Emitter, v: Val, axis: int, first: int, last: int) -> Val:
    if (first, last) == (0, v.shape[axis]):
        return v
    start = tuple(first if i == axis else 0 for i in range(len(v.shape)))
    limit = tuple(last if i == axis else n for i, n in enumerate(v.shape))
    return e.slice(v, start, limit, (1,) * len(v.shape))


def _dot(e: Emitter, lhs: Val, rhs: Val, out: Shape) -> Val:
    """Multiply; batch axes that only one side has become free axes of that side."""
    r = len(out) - 2
    both = [i for i in range(r) if lhs.shape[i] != 1 and rhs.shape[i] != 1]
    left = [i for i in range(r) if lhs.shape[i] != 1 and i not in both]
    right = [i for i in range(r) if rhs.shape[i] != 1 and i not in both]
    lhs, at_l = _without_units(e, lhs, [*both, *left])
    rhs, at_r = _without_units(e, rhs, [*both, *right])
    m, n = out[-2:]
    order = [*both, *left, r, *right, r + 1]
    extents = [out[i] if i < r else (m, n)[i - r] for i in order]
    batch = ""
    if both:
        batch = (
            f" batching_dims = {ints([at_l[i] for i in both])} x "
            f"{ints([at_r[i] for i in both])},"
        )
    shape = tuple(extents)
    text = (
        f"stablehlo.dot_general {lhs.name}, {rhs.name},{batch} contracting_dims = "
        f"[{len(lhs.shape) - 1}] x [{len(rhs.shape) - 2}] : ({lhs.type}, {rhs.type}) "
        f"-> {tensor_type(lhs.dtype, shape)}"
    )
    made = e.op(text, lhs.dtype, shape)
    axes = sorted(range(len(order)), key=lambda i: order[i])
    return e.reshape(e.transpose(made, axes), out)


def _without_units(e: Emitter, v: Val, kept: list[int]) -> tuple[Val, dict[int, int]]:
    """Drop the batch axes of extent 1; return where the kept ones went."""
    kept = sorted(kept)
    shape = tuple(v.shape[i] for i in kept) + v.shape[-2:]
    plain = v.standing_for(v.shape)
    return e.reshape(plain, shape), {axis: at for at, axis in enumerate(kept)}


# --------------------------------------------------------------------------------- conv


def conv(e: Emitter, cmd: Conv, lhs: Val, rhs: Val) -> Val:
    """Emit a convolution; the layouts are the ISA's (b01f, 01io, b01f)."""
    out_shape = cmd.dst.shape
    if math.prod(out_shape) == 0:
        return e.constant(cmd.dst.dtype, out_shape, b"")
    if lhs.dtype is not rhs.dtype and not (lhs.dtype.is_float and rhs.dtype.is_float):
        raise InvalidProgram(
            f"conv: operand types {lhs.dtype} and {rhs.dtype} do not go together"
        )
    lhs, rhs = e.full(lhs), e.full(rhs)
    if cmd.strategy in SLICED and math.prod(cmd.rhs.shape):
        return e.convert(_sliced_conv(e, cmd, lhs, rhs), cmd.dst.dtype)
    spatial = [str(i) for i in range(len(out_shape) - 2)]
    activation, window = (
        ", ".join(["b", *spatial, "f"]),
        ", ".join([*spatial, "i", "o"]),
    )
    lhs, low, high, dilation = _padded(e, cmd, lhs)
    flips = ", ".join("true" if r else "false" for r in cmd.reversal)

    def over(a: Val, b: Val, low: Shape, high: Shape) -> Val:
        pads = ", ".join(f"[{p}, {q}]" for p, q in zip(low, high))
        text = (
            f"stablehlo.convolution({a.name}, {b.name}) "
            f"dim_numbers = [{activation}]x[{window}]->[{activation}], "
            f"window = {{stride = {ints(cmd.strides)}, pad = [{pads}], "
            f"lhs_dilate = {ints(dilation)}, rhs_dilate = "
            f"{ints(cmd.rhs_dilation)}, reverse = [{flips}]}} "
            f"{{batch_group_count = {cmd.batch_groups} : i64, "
            f"feature_group_count = {cmd.feature_groups} : i64}} : "
            f"({a.type}, {b.type}) -> {tensor_type(a.dtype, out_shape)}"
        )
        return e.op(text, a.dtype, out_shape)

    def product(a: Val, b: Val) -> Val:
        if not _skips_padding(cmd, a, (*low, *high)):
            return over(a, b, low, high)
        none = (0,) * len(low)
        return either(
            e,
            all_finite(e, b),
            lambda: [over(a, b, low, high)],
            lambda: [over(_spread(e, a, low, high, (1,) * len(low)), b, none, none)],
            a.dtype,
            out_shape,
        )

    terms = int(np.prod(cmd.rhs.shape[:-1], dtype=np.int64))
    channels = cmd.rhs.shape[-2]
    rank = len(out_shape)
    left, right = Operand(lhs, rank - 1, channels), Operand(rhs, rank - 2, channels)
    out = STRATEGIES[cmd.strategy](e, left, right, product, terms)
    return e.convert(out, cmd.dst.dtype)


def _padded(e: Emitter, cmd: Conv, lhs: Val) -> tuple[Val, Shape, Shape, Shape]:
    """Return an input whose padding is not negative, its padding and its dilation."""
    low, high = (0, *cmd.pad_low, 0), (0, *cmd.pad_high, 0)
    dilation = (1, *cmd.lhs_dilation, 1)
    rest = cut(lhs.shape, low, high, dilation)
    if not rest.empty:
        return rest.of(e, lhs), rest.low[1:-1], rest.high[1:-1], cmd.lhs_dilation
    rank = len(cmd.pad_low)
    zeros = e.full(e.scalar(lhs.dtype, 0).standing_for(rest.extents))
    return zeros, (0,) * rank, (0,) * rank, (1,) * rank


def _skips_padding(cmd: Conv, v: Val, padding: Shape) -> bool:
    """True when XLA leaves out padding, which the machine multiplies.

    Times an infinite or NaN weight it is NaN.  Eigen's convolution, which XLA takes for
    most, multiplies it; the loops that XLA writes do not.  What the contract leaves
    open (`contract.nan_open`) needs no second form.
    """
    if not v.dtype.is_float or nan_open(cmd.lhs_dilation, cmd.batch_groups):
        return False
    rank = len(padding) // 2
    eigen = v.dtype in (F32, F16) and rank <= 3 and not any(cmd.reversal)
    return any(padding) and not eigen


def _spread(e: Emitter, v: Val, low: Shape, high: Shape, dilation: Shape) -> Val:
    """Put zeros around an activation and between its elements."""
    low, high = (0, *low, 0), (0, *high, 0)
    inner = (0, *(d - 1 for d in dilation), 0)
    shape = tuple(
        a + n + max(n - 1, 0) * i + b for a, n, i, b in zip(low, v.shape, inner, high)
    )
    zero = e.scalar(v.dtype, 0)
    text = (
        f"stablehlo.pad {v.name}, {zero.name}, low = {ints(low)}, "
        f"high = {ints(high)}, interior = {ints(inner)} : "
        f"({v.type}, {zero.type}) -> {tensor_type(v.dtype, shape)}"
    )
    return e.op(text, v.dtype, shape)


def _sliced_conv(e: Emitter, cmd: Conv, lhs: Val, rhs: Val) -> Val:
    """Emit a convolution as a product with patches, whose segments are the taps'.

    Groups are a batch axis: (g, positions, taps * depth) x (g, taps * depth, o).
    """
    window, (depth, features) = cmd.rhs.shape[:-2], cmd.rhs.shape[-2:]
    flips = [i for i, r in enumerate(cmd.reversal) if r]
    weights = e.reverse(e.convert(rhs, F32), flips)
    patches = _patches(e, cmd, e.convert(lhs, F32), window)
    groups = cmd.feature_groups * cmd.batch_groups
    out, taps = cmd.dst.shape[:-1], math.prod(window)
    places, each = math.prod(out), features // groups
    # (samples, places of a sample, taps, channels) -> (g, positions, taps * depth)
    sizes = (cmd.batch_groups, places, taps, cmd.feature_groups, depth)
    seen = e.transpose(e.reshape(patches, sizes), (0, 3, 1, 2, 4))
    seen = e.reshape(seen, (groups, places, taps * depth))
    weights = e.reshape(weights, (taps * depth, groups, each))
    weights = e.transpose(weights, (1, 0, 2))
    left, right = Operand(seen, 2, depth), Operand(weights, 1, depth)
    shape = (groups, places, each)
    made = STRATEGIES[cmd.strategy](
        e, left, right, lambda a, b: _dot(e, a, b, shape), taps * depth
    )
    made = e.transpose(made, (1, 0, 2))
    return e.reshape(made, cmd.dst.shape)


def _patches(e: Emitter, cmd: Conv, x: Val, window: Shape) -> Val:
    """Return what the window sees: (samples, *out, taps, channels)."""
    rank, out = len(window), cmd.dst.shape[1:-1]
    samples, channels = x.shape[0], x.shape[-1]
    if not rank:
        return e.reshape(x, (samples, 1, channels))
    # A tap reads from place w d on, at most (out - 1) s further.
    reach = [
        (w - 1) * d + (n - 1) * s + 1
        for w, d, n, s in zip(window, cmd.rhs_dilation, out, cmd.strides)
    ]
    x = _laid_out(e, cmd, x, reach)
    taps = []
    for at in np.ndindex(*window):
        first = [int(w) * d for w, d in zip(at, cmd.rhs_dilation)]
        end = [f + (n - 1) * s + 1 for f, n, s in zip(first, out, cmd.strides)]
        tap = e.slice(
            x, (0, *first, 0), (samples, *end, channels), (1, *cmd.strides, 1)
        )
        taps.append(e.reshape(tap, (samples, *out, 1, channels)))
    if len(taps) == 1:
        return taps[0]
    shape = (samples, *out, len(taps), channels)
    names, types = (", ".join(getattr(t, a) for t in taps) for a in ("name", "type"))
    text = f"stablehlo.concatenate {names}, dim = {rank + 1} : ({types}) -> "
    return e.op(text + tensor_type(x.dtype, shape), x.dtype, shape)


def _laid_out(e: Emitter, cmd: Conv, x: Val, reach: list[int]) -> Val:
    """Return the padded and dilated activation, `reach` elements of each axis.

    Padding is never negative: what the window does not see is sliced off.
    """
    rank = len(reach)
    sizes = [
        (n - 1) * a + 1 if n else 0 for n, a in zip(x.shape[1:-1], cmd.lhs_dilation)
    ]
    low = [max(p, 0) for p in cmd.pad_low]
    high = [max(r - n - p, 0) for r, n, p in zip(reach, sizes, cmd.pad_low)]
    if any((*low, *high)) or sizes != [*x.shape[1:-1]]:
        x = _spread(e, x, tuple(low), tuple(high), cmd.lhs_dilation)
    first = (0, *(max(-p, 0) for p in cmd.pad_low), 0)
    end = (x.shape[0], *(f + r for f, r in zip(first[1:-1], reach)), x.shape[-1])
    return e.slice(x, first, end, (1,) * (rank + 2))
