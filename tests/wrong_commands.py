"""Commands that are right but for one field: a base, and rows of changes.

Each base is a valid command (a test holds that); a row replaces fields of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.sim.builder import ProgramBuilder, binary, unary
from tests.wrong_programs import Wrong
from vkore_jax.chips import TINY
from vkore_jax.dtypes import BF16, BOOL, C64, F32, F64, I32, U8, DType
from vkore_jax.errors import InvalidProgram, ResourceExhausted, VkoreError
from vkore_jax.isa import (
    Carry,
    Case,
    Concat,
    Conv,
    Copy,
    DynamicSlice,
    DynamicUpdate,
    Fft,
    FftKind,
    Gather,
    Host,
    Loop,
    Merge,
    Pad,
    ReduceGeneric,
    ReduceWindow,
    Scatter,
    SelectAndScatter,
    Sort,
    Strategy,
    View,
    While,
    row_major,
)

Base = Callable[[ProgramBuilder], Any]
BASES: list[Base] = []
WRONG_COMMANDS: list[Wrong] = []


def base(make: Base) -> Base:
    """Register a valid command."""
    BASES.append(make)
    return make


def wrong(
    make: Base,
    id: str,
    says: str,
    error: type[VkoreError] = InvalidProgram,
    **fields: Any,
) -> None:
    """Register a base with fields replaced; a callable gets builder and command."""

    def build(b: ProgramBuilder) -> None:
        cmd = make(b)
        new = {k: v(b, cmd) if callable(v) else v for k, v in fields.items()}
        b.emit(replace(cmd, **new))

    WRONG_COMMANDS.append(Wrong(f"{make.__name__}-{id}", build, error, says))


def field(make: Base, id: str, says: str, name: str, value: Any) -> None:
    """Register a base with one field replaced."""
    wrong(make, id, says, **{name: value})


def arg(dtype: DType, *shape: int) -> Callable[..., View]:
    """Return a maker of a new parameter."""
    return lambda b, cmd: b.arg(dtype, shape)


def args(*makers: Callable[..., View]) -> Callable[..., tuple[View, ...]]:
    """Return a maker of several."""
    return lambda b, cmd: tuple(m(b, cmd) for m in makers)


def result(dtype: DType, *shape: int) -> Callable[..., View]:
    """Return a maker of a new result."""
    return lambda b, cmd: b.result(dtype, shape)


def results(*makers: Callable[..., View]) -> Callable[..., tuple[View, ...]]:
    """Return a maker of several."""
    return args(*makers)


def strided(field: str) -> Callable[..., View]:
    """Return a maker of a view of the field's buffer that begins at its second element.

    It has one element less along axis 0, which some rules say first: their rows name
    that.
    """

    def make(b: ProgramBuilder, cmd: Any) -> View:
        v = getattr(cmd, field)
        return replace(v, strides=tuple(-s for s in v.strides), offset=v.size - 1)

    return make


def beyond(field: str) -> Callable[..., View]:
    """Return a maker of a view that leaves the field's buffer."""
    return lambda b, cmd: replace(getattr(cmd, field), offset=1 << 20)


def shifted(field: str) -> Callable[..., View]:
    """Return a maker of a view like the field's that begins at element 1."""

    def make(b: ProgramBuilder, cmd: Any) -> View:
        v = getattr(cmd, field)
        return replace(v, buffer=b.arg(v.dtype, (v.size + 1,)).buffer, offset=1)

    return make


def turned(field: str) -> Callable[..., View]:
    """Return a maker of a view like the field's that walks columns."""

    def make(b: ProgramBuilder, cmd: Any) -> View:
        v = getattr(cmd, field)
        columns = row_major(v.shape[::-1])[::-1]
        return replace(v, strides=columns)

    return make


DENSE = "must be dense"
OUTSIDE = "view touches elements"

# -------------------------------------------------------------------------- movement


@base
def copy(b: ProgramBuilder) -> Copy:
    return Copy(b.result(F32, (2, 3)), b.arg(F32, (2, 3)))


wrong(copy, "src-outside", OUTSIDE, src=beyond("src"))
wrong(copy, "dst-strided", DENSE, dst=strided("dst"))
wrong(
    copy,
    "empty-shifted",
    DENSE,
    src=arg(F32, 0),
    dst=lambda b, c: replace(b.result(F32, (0,)), offset=1),
)
wrong(copy, "shape", "must have one dtype and shape", src=arg(F32, 3, 2))


@base
def concat(b: ProgramBuilder) -> Concat:
    srcs = (b.arg(F32, (4, 2)), b.arg(F32, (3, 2)))
    return Concat(b.result(F32, (7, 2)), srcs, 0)


wrong(concat, "axis", "axis 2 does not exist", axis=2)
wrong(concat, "empty", "must have a source", srcs=(), dst=result(F32, 0, 2))
wrong(concat, "type", "types must agree", srcs=args(arg(F32, 4, 2), arg(I32, 3, 2)))
wrong(concat, "rank", "source 1 has rank 1", srcs=args(arg(F32, 4, 2), arg(F32, 3)))
wrong(concat, "other", "all axes but 0", srcs=args(arg(F32, 4, 2), arg(F32, 3, 3)))
wrong(
    concat,
    "outside",
    OUTSIDE,
    srcs=lambda b, c: (c.srcs[0], replace(c.srcs[1], offset=99)),
)
wrong(concat, "dst", DENSE, dst=strided("dst"))


@base
def pad(b: ProgramBuilder) -> Pad:
    x, v = b.arg(F32, (2, 3)), b.arg(F32, ())
    return Pad(b.result(F32, (4, 7)), x, v, (1, 1), (0, 1))


wrong(pad, "type", "types must agree", src=arg(I32, 2, 3))
wrong(pad, "value", "value: must be one f32", value=arg(I32))
wrong(pad, "values", "value: must be one f32", value=arg(F32, 2))
wrong(pad, "rank", "src must have 2 entries", src=arg(F32, 6))
wrong(pad, "low", "low must have 2 entries", low=(1,))
wrong(pad, "gaps", "interior must have 2 entries", interior=(0, 1, 0))
wrong(pad, "outside", OUTSIDE, src=beyond("src"))
wrong(pad, "dst", DENSE, dst=strided("dst"))


@base
def dynamic_slice(b: ProgramBuilder) -> DynamicSlice:
    starts = (b.arg(I32, ()), b.arg(U8, ()))
    return DynamicSlice(b.result(F32, (2, 3)), b.arg(F32, (4, 3)), starts)


wrong(dynamic_slice, "type", "types must agree", src=arg(I32, 4, 3))
wrong(dynamic_slice, "rank", "src has rank 1", src=arg(F32, 12))
wrong(dynamic_slice, "starts", "are 1 start indices", starts=args(arg(I32)))
wrong(dynamic_slice, "two", "must be one integer", starts=args(arg(I32, 2), arg(I32)))
wrong(
    dynamic_slice,
    "start-outside",
    OUTSIDE,
    starts=lambda b, c: (c.starts[0], replace(c.starts[1], offset=8)),
)
wrong(dynamic_slice, "outside", OUTSIDE, src=beyond("src"))
wrong(dynamic_slice, "dst", DENSE, dst=strided("dst"))


@base
def dynamic_update(b: ProgramBuilder) -> DynamicUpdate:
    x, u = b.arg(F32, (4, 3)), b.arg(F32, (2, 3))
    return DynamicUpdate(b.result(F32, (4, 3)), x, u, (b.arg(I32, ()), b.arg(I32, ())))


wrong(dynamic_update, "src", "must have one dtype and shape", src=arg(F32, 5, 3))
wrong(dynamic_update, "type", "src and window", update=arg(I32, 2, 3))
wrong(dynamic_update, "large", "is larger than", update=arg(F32, 5, 3))
wrong(dynamic_update, "outside", OUTSIDE, update=beyond("update"))
wrong(dynamic_update, "src-outside", OUTSIDE, src=beyond("src"))
wrong(dynamic_update, "dst", DENSE, dst=strided("dst"))

# ----------------------------------------------------------------------- convolution


@base
def conv(b: ProgramBuilder) -> Conv:
    one, none = (1,), (0,)
    return Conv(
        b.result(F32, (2, 3, 4)), b.arg(F32, (2, 5, 3)), b.arg(F32, (3, 3, 4)), one,
        none, none, one, one, none, 1, 1, Strategy.BF16X1, 1, (1,), 1,
    )  # fmt: skip


for _name in (
    "strides", "pad_low", "pad_high", "lhs_dilation", "rhs_dilation", "reversal",
    "block_out",
):  # fmt: skip
    field(conv, _name, f"{_name} must have 1 entries", _name, (1, 1))
for _name, _value, _group in (
    ("strides", (0,), "strides"),
    ("lhs_dilation", (0,), "dilations"),
    ("rhs_dilation", (0,), "dilations"),
    ("feature_groups", 0, "groups"),
    ("batch_groups", 0, "groups"),
    ("block_n", 0, "blocks"),
    ("block_out", (0,), "blocks"),
    ("block_o", 0, "blocks"),
):
    _says = f"{_group} must be at least 1"
    field(conv, f"{_name}-least", _says, _name, _value)
wrong(conv, "outside", OUTSIDE, lhs=beyond("lhs"))
wrong(conv, "rhs-outside", OUTSIDE, rhs=beyond("rhs"))
wrong(conv, "rows", "lhs must have contiguous rows", lhs=strided("lhs"))
wrong(conv, "types", "at most 32 bits", lhs=arg(F64, 2, 5, 3))
wrong(conv, "rank", "one rank >= 2", lhs=arg(F32, 2, 15))
wrong(conv, "dst", DENSE, dst=strided("dst"))
wrong(conv, "reversed", "reversal must be 0 or 1", reversal=(2,))
wrong(conv, "groups", "may exceed 1", feature_groups=2, batch_groups=2)
wrong(conv, "samples", "dst is", dst=result(F32, 1, 3, 4))
wrong(conv, "channels", "feature and", lhs=arg(F32, 2, 5, 6))
wrong(conv, "features", "feature and", feature_groups=3, lhs=arg(F32, 2, 5, 9))
wrong(
    conv,
    "batches",
    "feature and",
    batch_groups=2,
    lhs=arg(F32, 5, 5, 3),
)
wrong(
    conv,
    "staged",
    "bytes of scratchpad",
    ResourceExhausted,
    lhs=arg(F32, 2, 5, 600),
    rhs=arg(F32, 3, 600, 4),
    block_o=4,
)
wrong(
    conv,
    "sums",
    "bytes of accumulators",
    ResourceExhausted,
    lhs=arg(F32, 2, 1202, 1),
    rhs=arg(F32, 3, 1, 1),
    dst=result(BF16, 2, 1200, 1),
    block_out=(1200,),
)


@base
def plain_conv(b: ProgramBuilder) -> Conv:
    """No spatial axes: a product."""
    return Conv(
        b.result(F32, (2, 4)), b.arg(F32, (2, 3)), b.arg(F32, (3, 4)), (), (), (), (),
        (), (), 1, 1, Strategy.BF16X1, 1, (), 1,
    )  # fmt: skip


wrong(
    plain_conv,
    "rank",
    "one rank >= 2",
    lhs=arg(F32, 2),
    rhs=arg(F32, 2),
    dst=result(F32, 2),
)

# ------------------------------------------------------------------- gather, scatter


@base
def gather(b: ProgramBuilder) -> Gather:
    """Batched: dst[b, i, w] = operand[b, indices[b, i], w]."""
    x, i = b.arg(F32, (2, 7, 4)), b.arg(I32, (2, 3, 1))
    dst = b.result(F32, (2, 3, 4))
    return Gather(dst, x, i, (2,), (1,), (0,), (0,), (1,), 2, (1, 1, 4))


def _gathered(id: str, says: str, **fields: Any) -> None:
    wrong(gather, id, says, **fields)


_gathered("type", "types must agree", dst=result(I32, 2, 3, 4))
_gathered("dst", DENSE, dst=strided("dst"))
_gathered("operand", DENSE, operand=strided("operand"))
_gathered("operand-shifted", DENSE, operand=shifted("operand"))
_gathered("operand-turned", DENSE, operand=turned("operand"))
_gathered("operand-outside", OUTSIDE, operand=beyond("operand"))
_gathered("dst-turned", DENSE, dst=turned("dst"))
_gathered("indices-view", DENSE, indices=strided("indices"))
_gathered("sizes", "slice_sizes must have 3 entries", slice_sizes=(1, 1))
_gathered("dropped-twice", "must be distinct", collapsed_dims=(0,))
_gathered("dropped-unknown", "do not exist in rank 3", collapsed_dims=(3,))
_gathered("mapped-twice", "start_index_map: axes", start_index_map=(0,))
_gathered("mapped-unknown", "start_index_map: axes", start_index_map=(3,))
_gathered("index-type", "indices must be integers", indices=arg(F32, 2, 3, 1))
_gathered("vector", "index_vector_dim 4 exceeds rank 3", index_vector_dim=4)
_gathered("components", "have 3 components", index_vector_dim=1)
_gathered(
    "vector-batched",
    "cannot be a batching axis",
    indices_batching_dims=(2,),
)
_gathered("batched-unknown", "indices_batching_dims", indices_batching_dims=(-1,))
_gathered("tied", "0 index batching axes", indices_batching_dims=())
_gathered("tied-extents", "batching axes 0 and 1", indices_batching_dims=(1,))
_gathered("large", "do not fit", slice_sizes=(1, 1, 5))
_gathered("negative", "do not fit", slice_sizes=(1, 1, -1))
_gathered("collapsed-0", "must be 1", slice_sizes=(1, 0, 4))
_gathered("collapsed-2", "must be 1", slice_sizes=(1, 2, 4))
_gathered("offset-unknown", "offset_dims: axes", offset_dims=(3,))
_gathered("offset-count", "2 offset_dims for a window", offset_dims=(1, 2))
_gathered("shape", "the gather gives (2, 3, 4)", dst=result(F32, 2, 4, 3))


@base
def gather_two(b: ProgramBuilder) -> Gather:
    """Two collapsed axes, two window axes, a whole index tensor per component."""
    x, i = b.arg(F32, (2, 3, 4, 5)), b.arg(I32, (6, 2))
    dst = b.result(F32, (6, 4, 5))
    return Gather(dst, x, i, (1, 2), (0, 1), (), (), (0, 1), 1, (1, 1, 4, 5))


wrong(gather_two, "collapsed-order", "must be ascending", collapsed_dims=(1, 0))
wrong(gather_two, "offset-order", "must be ascending", offset_dims=(2, 1))
wrong(gather_two, "no-vector", "have 1 components", index_vector_dim=2)


@base
def scatter(b: ProgramBuilder) -> Scatter:
    x, i, u = b.arg(F32, (2, 7, 4)), b.arg(I32, (2, 3, 1)), b.arg(F32, (2, 3, 4))
    return Scatter(
        (b.result(F32, (2, 7, 4)),), (x,), i, (u,), (2,), (1,), (0,), (0,), (1,), 2,
        False, False, binary("add", F32),
    )  # fmt: skip


def _scattered(id: str, says: str, **fields: Any) -> None:
    wrong(scatter, id, says, **fields)


_scattered("none", "equal numbers >= 1", operands=(), dsts=(), updates=())
_scattered("updates", "equal numbers >= 1", updates=lambda b, c: (*c.updates,) * 2)
_scattered("dsts", "equal numbers >= 1", dsts=())
_scattered("dst", DENSE, dsts=lambda b, c: (_turned(c.dsts[0]),))
_scattered("operand", DENSE, operands=lambda b, c: (_turned(c.operands[0]),))
_scattered("update", DENSE, updates=lambda b, c: (_turned(c.updates[0]),))
_scattered("indices-view", DENSE, indices=strided("indices"))
_scattered("shape", "dst and operand 0", operands=args(arg(F32, 2, 7, 5)))
_scattered("type", "dst and updates 0", updates=args(arg(I32, 2, 3, 4)))
_scattered("inserted", "inserted and batching dims", inserted_dims=(0,))
_scattered("mapped", "scatter_dims: axes", scatter_dims=(0,))
_scattered("index-type", "indices must be integers", indices=arg(F32, 2, 3, 1))
_scattered("tied", "batching axes 0 and 1", indices_batching_dims=(1,))
_scattered("window-unknown", "update_window_dims: axes", update_window_dims=(3,))
_scattered("window-count", "updates (2, 3, 4)", update_window_dims=())
_scattered("window-large", "updates (2, 3, 5)", updates=args(arg(F32, 2, 3, 5)))
_scattered("batch", "updates (2, 4, 4)", updates=args(arg(F32, 2, 4, 4)))
_scattered("combiner", "combiner: inputs must be", combiner=binary("add", I32))
_scattered("combined", "combiner: outputs must be", combiner=binary("lt", F32))


def _turned(v: View) -> View:
    return replace(v, strides=tuple(-s for s in v.strides), offset=v.size - 1)


def _next(v: View) -> View:
    return replace(v, offset=v.size)


@base
def scatter_window(b: ProgramBuilder) -> Scatter:
    """The whole operand is the window: its axes in order."""
    x, i, u = b.arg(F32, (3, 4)), b.arg(I32, (1,)), b.arg(F32, (2, 4))
    return Scatter(
        (b.result(F32, (3, 4)),), (x,), i, (u,), (0, 1), (), (), (), (0,), 0, False,
        False, binary("add", F32),
    )  # fmt: skip


wrong(scatter_window, "order", "must be ascending", update_window_dims=(1, 0))


@base
def scatter_pair(b: ProgramBuilder) -> Scatter:
    """Two operands with one set of indices."""
    pair = [b.arg(F32, (5,)) for _ in range(2)]
    i, us = b.arg(I32, (3, 1)), [b.arg(F32, (3,)) for _ in range(2)]
    add = binary("add", F32)
    both = replace(add, inputs=(F32,) * 4, insns=(add.insns[0],) * 2, outputs=(4, 5))
    return Scatter(
        tuple(b.result(F32, (5,)) for _ in pair), tuple(pair), i, tuple(us), (), (0,),
        (), (), (0,), 1, False, False, both,
    )  # fmt: skip


wrong(
    scatter_pair,
    "updates",
    "must have one shape",
    updates=args(arg(F32, 3), arg(F32, 4)),
)
wrong(
    scatter_pair,
    "operands",
    "must have one shape",
    operands=args(arg(F32, 5), arg(F32, 6)),
    dsts=results(result(F32, 5), result(F32, 6)),
)

# ------------------------------------------------------------------ sort, folds, fft


@base
def sort(b: ProgramBuilder) -> Sort:
    x = b.arg(F32, (3, 4))
    return Sort((b.result(F32, (3, 4)),), (x,), 1, True, binary("lt", F32))


wrong(sort, "axis", "axis 2 does not exist", axis=2)
wrong(sort, "none", "0 results of 0 sources", dsts=(), srcs=())
wrong(sort, "results", "0 results of 1 sources", dsts=())
wrong(sort, "shape", "dst and source: must", srcs=args(arg(F32, 4, 3)))
wrong(sort, "type", "dst and source 0: types", srcs=args(arg(I32, 3, 4)))
wrong(sort, "src", DENSE, srcs=lambda b, c: (_turned(c.srcs[0]),))
wrong(sort, "dst", DENSE, dsts=lambda b, c: (_turned(c.dsts[0]),))
wrong(sort, "inputs", "comparator: inputs must be", comparator=unary("neg", F32))


@base
def reduce_generic(b: ProgramBuilder) -> ReduceGeneric:
    x, zero = b.arg(F32, (3, 4)), b.const(np.float32(0))
    return ReduceGeneric(
        (b.result(F32, (3,)),), (x,), (zero,), (1,), binary("add", F32)
    )


@base
def reduce_pair(b: ProgramBuilder) -> ReduceGeneric:
    x, y, zero = b.arg(F32, (3, 4)), b.arg(F32, (3, 4)), b.const(np.float32(0))
    add = binary("add", F32)
    both = replace(add, inputs=(F32,) * 4, insns=(add.insns[0],) * 2, outputs=(4, 5))
    dsts = (b.result(F32, (3,)), b.result(F32, (3,)))
    return ReduceGeneric(dsts, (x, y), (zero, zero), (1,), both)


wrong(reduce_generic, "inits", "0 initial values", inits=())
wrong(reduce_generic, "axis", "axes: axes [2] do not exist", axes=(2,))
wrong(reduce_generic, "shape", "the reduction gives (4,)", axes=(0,))
wrong(reduce_generic, "combiner", "combiner: inputs", combiner=unary("neg", F32))
wrong(
    reduce_pair,
    "sources",
    "must have one shape",
    srcs=args(arg(F32, 3, 4), arg(F32, 3, 5)),
)
wrong(
    reduce_pair,
    "results",
    "must have one shape",
    dsts=results(result(F32, 3), result(F32, 4)),
)


@base
def reduce_window(b: ProgramBuilder) -> ReduceWindow:
    x, zero = b.arg(F32, (6,)), b.const(np.float32(0))
    return ReduceWindow(
        (b.result(F32, (4,)),), (x,), (zero,), (3,), (1,), (1,), (1,), (0,), (0,),
        binary("add", F32),
    )  # fmt: skip


@base
def select_and_scatter(b: ProgramBuilder) -> SelectAndScatter:
    x, s, zero = b.arg(F32, (6,)), b.arg(F32, (4,)), b.const(np.float32(0))
    return SelectAndScatter(
        b.result(F32, (6,)), x, s, zero, (3,), (1,), (0,), (0,), binary("ge", F32),
        binary("add", F32),
    )  # fmt: skip


for _base in (reduce_window, select_and_scatter):
    for _name in ("window", "strides", "pad_low", "pad_high"):
        field(_base, _name, f"{_name} must have 1 entries", _name, (1, 1))
    for _name in ("window", "strides"):
        field(_base, f"{_name}-0", f"{_name} must be at least 1", _name, (0,))
    wrong(_base, "combiner", "combiner: inputs", combiner=unary("neg", F32))
wrong(reduce_window, "inits", "0 initial values of 1", inits=())
wrong(reduce_window, "type", "dst and source 0", srcs=args(arg(I32, 6)))
wrong(reduce_window, "init-outside", OUTSIDE, inits=lambda b, c: (_next(c.inits[0]),))
for _name in ("base_dilation", "window_dilation"):
    field(reduce_window, _name, f"{_name} must have 1 entries", _name, ())
    field(reduce_window, f"{_name}-0", "must be at least 1", _name, (0,))
wrong(select_and_scatter, "shape", "the windows number (4,)", source=arg(F32, 3))
wrong(select_and_scatter, "type", "dst and source", source=arg(I32, 4))
wrong(select_and_scatter, "operand", "dst and operand", operand=arg(F32, 7))
wrong(select_and_scatter, "init", "init: must be one f32", init=arg(I32))
wrong(select_and_scatter, "inits", "init: must be one f32", init=arg(F32, 2))
wrong(select_and_scatter, "dst", DENSE, dst=strided("dst"))
wrong(select_and_scatter, "operand-view", DENSE, operand=strided("operand"))
wrong(select_and_scatter, "source-view", DENSE, source=strided("source"))


@base
def fft(b: ProgramBuilder) -> Fft:
    return Fft(b.result(C64, (2, 8)), b.arg(C64, (2, 8)), FftKind.FFT, (8,))


@base
def irfft(b: ProgramBuilder) -> Fft:
    return Fft(b.result(F32, (2, 8)), b.arg(C64, (2, 5)), FftKind.IRFFT, (8,))


wrong(fft, "none", "1 to 3 axes", lengths=())
wrong(fft, "four", "1 to 3 axes", lengths=(1, 1, 2, 8))
wrong(fft, "zero", "lengths must be at least 1", lengths=(0,))
wrong(fft, "length", "joins points (2, 7)", lengths=(7,))
wrong(fft, "dst-shape", "joins points", dst=result(C64, 2, 7))
wrong(fft, "type", "found f32 -> complex<f32>", src=arg(F32, 2, 8))
wrong(fft, "src", DENSE, src=strided("src"))
wrong(fft, "dst", DENSE, dst=strided("dst"))
wrong(irfft, "half", "joins points (2, 8)", src=arg(C64, 2, 8))

# --------------------------------------------------------------- control flow, host


@base
def loop(b: ProgramBuilder) -> Loop:
    x, current = b.arg(F32, (4,)), b.temp(F32, (4,))
    return Loop(2, (Carry(x, current, current, b.result(F32, (4,))),), ())


def _carry(field: str, make: Callable[..., View]) -> Callable[..., tuple[Carry, ...]]:
    return lambda b, c: (replace(c.carries[0], **{field: make(b, c)}),)


def _part(field: str) -> Callable[..., View]:
    return lambda b, c: _turned(getattr(c.carries[0], field))


for _name in ("enter", "current", "next", "leave"):
    wrong(loop, f"{_name}-view", DENSE, carries=_carry(_name, _part(_name)))
wrong(loop, "enter", "enter and current", carries=_carry("enter", arg(I32, 4)))
wrong(loop, "next", "next and current", carries=_carry("next", arg(F32, 5)))
wrong(loop, "leave", "leave and current", carries=_carry("leave", result(F32, 5)))


@base
def while_(b: ProgramBuilder) -> While:
    x, current = b.arg(F32, (4,)), b.temp(F32, (4,))
    carry = Carry(x, current, current, b.result(F32, (4,)))
    return While((carry,), (), b.arg(BOOL, ()), ())


wrong(while_, "carry", "next and current", carries=_carry("next", arg(F32, 5)))
wrong(while_, "predicates", "predicate: must be one i1", predicate=arg(BOOL, 2))


@base
def case(b: ProgramBuilder) -> Case:
    x, y = b.arg(F32, (4,)), b.arg(F32, (4,))
    merge = Merge(b.result(F32, (4,)), (x, y))
    return Case(b.arg(I32, ()), ((), ()), (merge,))


def _merge(**fields: Any) -> Callable[..., tuple[Merge, ...]]:
    return lambda b, c: (
        replace(c.merges[0], **{k: v(b, c.merges[0]) for k, v in fields.items()}),
    )


wrong(case, "none", "must have a branch", branches=(), merges=())
wrong(case, "dst", DENSE, merges=_merge(dst=strided("dst")))
wrong(
    case,
    "shape",
    "dst and source 1",
    merges=_merge(srcs=args(arg(F32, 4), arg(F32, 5))),
)
wrong(
    case,
    "src",
    DENSE,
    merges=_merge(srcs=lambda b, m: (m.srcs[0], _turned(m.srcs[1]))),
)


@base
def host(b: ProgramBuilder) -> Host:
    return Host((b.result(F32, (4,)),), (b.arg(F32, (4,)),), 0, "callback", False)


wrong(host, "dst", DENSE, dsts=lambda b, c: (_turned(c.dsts[0]),))
wrong(host, "src", DENSE, srcs=lambda b, c: (_turned(c.srcs[0]),))


def valid(make: Base) -> ProgramBuilder:
    """Return a builder with a base in it."""
    b = ProgramBuilder(TINY)
    b.emit(make(b))
    return b
