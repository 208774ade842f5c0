"""Dtype and shape rules of every command but its place in the stream.

References are to the StableHLO specification's operations of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkore_jax import dtypes
from vkore_jax.errors import InvalidProgram, ResourceExhausted
from vkore_jax.isa import (
    COMMANDS,
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
    Group,
    Host,
    Loop,
    Pad,
    ReduceGeneric,
    ReduceWindow,
    Scatter,
    SelectAndScatter,
    Sort,
    View,
    While,
    room,
)
from vkore_jax.isa.limits import TRIPS
from vkore_jax.isa.rules import Rules
from vkore_jax.verify.checks import (
    Context,
    at_least,
    lengths,
    same,
    same_dtype,
    scalar_code,
)
from vkore_jax.verify.group import GroupCheck

RULES: Rules[Callable[..., None]] = Rules("verify commands", over=COMMANDS.values())


@RULES.rule(Group)
def _group(ctx: Context, cmd: Group) -> None:
    GroupCheck(ctx, cmd).run()


# ------------------------------------------------------------------------ data movement


@RULES.rule(Copy)
def _copy(ctx: Context, cmd: Copy) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.view(cmd.src, "src")
    same(cmd.dst, cmd.src, "dst and src")


@RULES.rule(Concat)
def _concat(ctx: Context, cmd: Concat) -> None:
    ctx.whole(cmd.dst, "dst")
    shape = list(cmd.dst.shape)
    if cmd.axis >= len(shape):
        raise InvalidProgram(f"axis {cmd.axis} does not exist in shape {cmd.dst.shape}")
    if not cmd.srcs:
        raise InvalidProgram("a concat must have a source")
    total = 0
    for i, v in enumerate(cmd.srcs):
        ctx.view(v, f"source {i}")
        same_dtype(cmd.dst, v, f"dst and source {i}")
        if len(v.shape) != len(shape):
            raise InvalidProgram(
                f"source {i} has rank {len(v.shape)}, not {len(shape)}"
            )
        total += v.shape[cmd.axis]
        if any(e != f for a, (e, f) in enumerate(zip(v.shape, shape)) if a != cmd.axis):
            raise InvalidProgram(
                f"source {i} has shape {v.shape}; all axes but {cmd.axis} must be as "
                f"in {cmd.dst.shape}"
            )
    if total != shape[cmd.axis]:
        raise InvalidProgram(
            f"sources fill {total} of axis {cmd.axis}, dst has {shape[cmd.axis]}"
        )


@RULES.rule(Pad)
def _pad(ctx: Context, cmd: Pad) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.view(cmd.src, "src")
    same_dtype(cmd.dst, cmd.src, "dst and src")
    ctx.scalar(cmd.value, cmd.dst.dtype, "value")
    lengths(len(cmd.dst.shape), src=cmd.src.shape, low=cmd.low, interior=cmd.interior)
    at_least(0, interior=cmd.interior)
    high = [
        size - spread(extent, low, 0, gap + 1)
        for size, extent, low, gap in zip(
            cmd.dst.shape, cmd.src.shape, cmd.low, cmd.interior
        )
    ]
    ctx.fits(
        "src with its edges and gaps",
        _untrimmed(cmd.src.shape, cmd.low, high, [g + 1 for g in cmd.interior]),
        cmd.dst.dtype,
    )


def spread(extent: int, low: int, high: int, dilation: int) -> int:
    """Return an axis's extent with gaps between its elements and edges around them."""
    return low + high + ((extent - 1) * dilation + 1 if extent else 0)


def _untrimmed(
    shape: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Return the extents with gaps and edges before negative edges trim them."""
    return [
        spread(e, max(lo, 0), max(hi, 0), d)
        for e, lo, hi, d in zip(shape, low, high, dilation)
    ]


def _reach(window: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the extents of a window with its gaps."""
    return [spread(w, 0, 0, d) for w, d in zip(window, dilation)]


def _windows_fit(
    ctx: Context,
    v: View,
    window: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> None:
    """Check what windows are slid over, and the windows themselves."""
    edged = _untrimmed(v.shape, low, high, base_dilation)
    ctx.fits("the tensor with its edges and gaps", edged, v.dtype)
    ctx.fits("the window with its gaps", _reach(window, window_dilation), v.dtype)


def _window(src: View, window: View, starts: Sequence[View], ctx: Context) -> None:
    same_dtype(src, window, "src and window")
    if len(window.shape) != len(src.shape) or len(starts) != len(src.shape):
        raise InvalidProgram(
            f"src has rank {len(src.shape)}, window {len(window.shape)}, and there "
            f"are {len(starts)} start indices; they must be equal"
        )
    if any(w > e for w, e in zip(window.shape, src.shape)):
        raise InvalidProgram(f"window {window.shape} is larger than {src.shape}")
    for i, v in enumerate(starts):
        ctx.index(v, f"start index {i}")


@RULES.rule(DynamicSlice)
def _dynamic_slice(ctx: Context, cmd: DynamicSlice) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.view(cmd.src, "src")
    _window(cmd.src, cmd.dst, cmd.starts, ctx)


@RULES.rule(DynamicUpdate)
def _dynamic_update(ctx: Context, cmd: DynamicUpdate) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.view(cmd.src, "src")
    ctx.view(cmd.update, "update")
    same(cmd.dst, cmd.src, "dst and src")
    _window(cmd.src, cmd.update, cmd.starts, ctx)


# -------------------------------------------------------------------------- convolution


@RULES.rule(Conv)
def _conv(ctx: Context, cmd: Conv) -> None:
    ctx.whole(cmd.dst, "dst")
    for v, what in ((cmd.lhs, "lhs"), (cmd.rhs, "rhs")):
        ctx.view(v, what)
        if not v.has_contiguous_rows:
            raise InvalidProgram(
                f"{what} must have contiguous rows, found strides {v.strides}; COPY it "
                f"through the layout engine first"
            )
    ctx.product(cmd.lhs.dtype, cmd.rhs.dtype, cmd.dst.dtype, cmd.strategy)
    lhs, rhs, dst = cmd.lhs.shape, cmd.rhs.shape, cmd.dst.shape
    if len(lhs) < 2 or not len(lhs) == len(rhs) == len(dst):
        raise InvalidProgram(
            f"lhs, rhs and dst must have one rank >= 2, found {lhs}, {rhs}, {dst}"
        )
    lengths(
        len(lhs) - 2,
        strides=cmd.strides,
        pad_low=cmd.pad_low,
        pad_high=cmd.pad_high,
        lhs_dilation=cmd.lhs_dilation,
        rhs_dilation=cmd.rhs_dilation,
        reversal=cmd.reversal,
        block_out=cmd.block_out,
    )
    at_least(
        1,
        strides=cmd.strides,
        dilations=(*cmd.lhs_dilation, *cmd.rhs_dilation),
        groups=(cmd.feature_groups, cmd.batch_groups),
        blocks=(cmd.block_n, *cmd.block_out, cmd.block_o),
    )
    if any(r not in (0, 1) for r in cmd.reversal):
        raise InvalidProgram(f"reversal must be 0 or 1, found {cmd.reversal}")
    edged = _untrimmed(lhs[1:-1], cmd.pad_low, cmd.pad_high, cmd.lhs_dilation)
    ctx.fits("lhs with its edges and gaps", (lhs[0], *edged, lhs[-1]), cmd.lhs.dtype)
    reach = _reach(rhs[:-2], cmd.rhs_dilation)
    ctx.fits("the window with its gaps", (*reach, *rhs[-2:]), cmd.rhs.dtype)
    if cmd.feature_groups > 1 and cmd.batch_groups > 1:
        raise InvalidProgram("only one of feature_groups and batch_groups may exceed 1")
    spatial = tuple(
        windows(e, w, s, lo, hi, a, d)
        for e, w, s, lo, hi, a, d in zip(
            lhs[1:-1], rhs[:-2], cmd.strides, cmd.pad_low, cmd.pad_high,
            cmd.lhs_dilation, cmd.rhs_dilation,
        )
    )  # fmt: skip
    wanted = (lhs[0] // cmd.batch_groups, *spatial, rhs[-1])
    if (
        dst != wanted
        or lhs[-1] != rhs[-2] * cmd.feature_groups
        or lhs[0] % cmd.batch_groups
        or rhs[-1] % (cmd.feature_groups * cmd.batch_groups)
    ):
        raise InvalidProgram(
            f"lhs (n, *spatial, c) {lhs} and rhs (*window, c / groups, o) {rhs} with "
            f"{cmd.feature_groups} feature and {cmd.batch_groups} batch groups give "
            f"{wanted}, dst is {dst}"
        )
    _conv_capacity(ctx, cmd)


def _conv_capacity(ctx: Context, cmd: Conv) -> None:
    staged = room.conv_staged_bytes(cmd.blocks, ctx.pad_align)
    blocks = (
        f"blocks of {cmd.block_n} samples, {'x'.join(map(str, cmd.block_out)) or '1'} "
        f"positions and {cmd.block_o} features"
    )
    if staged > ctx.chip.scratchpad_bytes:
        raise ResourceExhausted(
            f"{blocks} need {staged} bytes of scratchpad, chip {ctx.chip.name!r} has "
            f"{ctx.chip.scratchpad_bytes}: use smaller blocks"
        )
    sums = room.conv_sum_bytes(cmd.blocks, cmd.strategy)
    if sums > ctx.chip.accumulator_bytes:
        raise ResourceExhausted(
            f"{blocks} need {sums} bytes of accumulators, chip {ctx.chip.name!r} has "
            f"{ctx.chip.accumulator_bytes}: use smaller blocks"
        )


def windows(
    extent: int,
    window: int,
    stride: int = 1,
    low: int = 0,
    high: int = 0,
    base_dilation: int = 1,
    window_dilation: int = 1,
) -> int:
    """Return the number of window positions on an axis (StableHLO `num_windows`)."""
    padded = spread(extent, low, high, base_dilation)
    reach = spread(window, 0, 0, window_dilation)
    if padded <= 0 or reach > padded:
        return 0
    return (padded - reach) // stride + 1


# ---------------------------------------------------------------------- gather, scatter


def _axes(rank: int, what: str, *parts: Sequence[int]) -> None:
    """Check that axis lists name existing axes and do not share one."""
    all_axes = [a for part in parts for a in part]
    if len(set(all_axes)) != len(all_axes):
        raise InvalidProgram(f"{what}: axes {all_axes} must be distinct")
    if not all(0 <= a < rank for a in all_axes):
        raise InvalidProgram(f"{what}: axes {all_axes} do not exist in rank {rank}")
    for part in parts[1:]:
        if list(part) != sorted(part):
            raise InvalidProgram(f"{what}: axes {tuple(part)} must be ascending")


def _index_batch(
    indices: View, vector_dim: int, components: int, batching: Sequence[int]
) -> list[int]:
    """Check the index tensor; return the extents of its batch axes."""
    rank = len(indices.shape)
    if not indices.dtype.is_integer:
        raise InvalidProgram(f"indices must be integers, found {indices.dtype}")
    if vector_dim > rank:
        raise InvalidProgram(f"index_vector_dim {vector_dim} exceeds rank {rank}")
    have = 1 if vector_dim == rank else indices.shape[vector_dim]
    if have != components:
        raise InvalidProgram(
            f"index vectors have {have} components, {components} axes are mapped"
        )
    if vector_dim in batching:
        raise InvalidProgram("the index vector's axis cannot be a batching axis")
    _axes(rank, "indices_batching_dims", batching)
    return [e for i, e in enumerate(indices.shape) if i != vector_dim]


def _tied(
    operand: View, indices: View, operand_batch: Sequence[int], tied: Sequence[int]
) -> None:
    if len(operand_batch) != len(tied):
        raise InvalidProgram(
            f"{len(operand_batch)} operand and {len(tied)} index batching axes"
        )
    for a, b in zip(operand_batch, tied):
        if operand.shape[a] != indices.shape[b]:
            raise InvalidProgram(
                f"batching axes {a} and {b} have extents {operand.shape[a]} and "
                f"{indices.shape[b]}"
            )


@RULES.rule(Gather)
def _gather(ctx: Context, cmd: Gather) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.dense(cmd.operand, "operand")
    ctx.dense(cmd.indices, "indices")
    same_dtype(cmd.dst, cmd.operand, "dst and operand")
    shape = cmd.operand.shape
    lengths(len(shape), slice_sizes=cmd.slice_sizes)
    dropped = (*cmd.collapsed_dims, *cmd.operand_batching_dims)
    _axes(len(shape), "collapsed and batching dims", (), *_pair(cmd))
    _axes(
        len(shape),
        "start_index_map",
        (*cmd.start_index_map,),
        cmd.operand_batching_dims,
    )
    batch = _index_batch(
        cmd.indices,
        cmd.index_vector_dim,
        len(cmd.start_index_map),
        cmd.indices_batching_dims,
    )
    _tied(
        cmd.operand, cmd.indices, cmd.operand_batching_dims, cmd.indices_batching_dims
    )
    for a, (size, extent) in enumerate(zip(cmd.slice_sizes, shape)):
        if not 0 <= size <= extent or (a in dropped and size != 1):
            raise InvalidProgram(
                f"slice_sizes {cmd.slice_sizes} do not fit {shape}; those of collapsed "
                f"and batching axes must be 1"
            )
    window = [s for a, s in enumerate(cmd.slice_sizes) if a not in dropped]
    rank = len(batch) + len(window)
    _axes(rank, "offset_dims", (), cmd.offset_dims)
    if len(cmd.offset_dims) != len(window):
        raise InvalidProgram(
            f"{len(cmd.offset_dims)} offset_dims for a window of rank {len(window)}"
        )
    wanted = tuple(
        window.pop(0) if i in cmd.offset_dims else batch.pop(0) for i in range(rank)
    )
    if cmd.dst.shape != wanted:
        raise InvalidProgram(f"the gather gives {wanted}, dst is {cmd.dst.shape}")


def _pair(cmd: Gather) -> tuple[Sequence[int], Sequence[int]]:
    return cmd.collapsed_dims, cmd.operand_batching_dims


@RULES.rule(Scatter)
def _scatter(ctx: Context, cmd: Scatter) -> None:
    ctx.dense(cmd.indices, "indices")
    if not cmd.operands or not (len(cmd.dsts) == len(cmd.operands) == len(cmd.updates)):
        raise InvalidProgram(
            f"{len(cmd.dsts)} dsts, {len(cmd.operands)} operands and "
            f"{len(cmd.updates)} updates; equal numbers >= 1 are needed"
        )
    for i, (d, o, u) in enumerate(zip(cmd.dsts, cmd.operands, cmd.updates)):
        ctx.whole(d, f"dst {i}")
        ctx.dense(o, f"operand {i}")
        ctx.dense(u, f"updates {i}")
        same(d, o, f"dst and operand {i}")
        same_dtype(d, u, f"dst and updates {i}")
        if d.shape != cmd.dsts[0].shape or u.shape != cmd.updates[0].shape:
            raise InvalidProgram("all operands (all updates) must have one shape")
    shape, update = cmd.operands[0].shape, cmd.updates[0].shape
    _axes(
        len(shape), "inserted and batching dims", (), cmd.inserted_dims,
        cmd.operand_batching_dims,
    )  # fmt: skip
    _axes(len(shape), "scatter_dims", (*cmd.scatter_dims,), cmd.operand_batching_dims)
    batch = _index_batch(
        cmd.indices,
        cmd.index_vector_dim,
        len(cmd.scatter_dims),
        cmd.indices_batching_dims,
    )
    _tied(
        cmd.operands[0],
        cmd.indices,
        cmd.operand_batching_dims,
        cmd.indices_batching_dims,
    )
    _axes(len(update), "update_window_dims", (), cmd.update_window_dims)
    dropped = (*cmd.inserted_dims, *cmd.operand_batching_dims)
    kept = [e for a, e in enumerate(shape) if a not in dropped]
    window = [update[d] for d in cmd.update_window_dims]
    scattered = [e for d, e in enumerate(update) if d not in cmd.update_window_dims]
    if (
        scattered != batch
        or len(window) != len(kept)
        or any(w > e for w, e in zip(window, kept))
    ):
        raise InvalidProgram(
            f"updates {update} must be index batch {tuple(batch)} and a window of at "
            f"most {tuple(kept)} along update_window_dims {cmd.update_window_dims}"
        )
    types = [v.dtype for v in cmd.operands]
    scalar_code(cmd.combiner, [*types, *types], types, "combiner")


# ---------------------------------------------------------------- sort, windows, reduce


def _folded(
    ctx: Context,
    dsts: Sequence[View],
    srcs: Sequence[View],
    inits: Sequence[View] | None,
) -> None:
    """Check tensors that are worked on together: equal counts, shapes, types."""
    if not srcs or len(dsts) != len(srcs):
        raise InvalidProgram(f"{len(dsts)} results of {len(srcs)} sources")
    if inits is not None and len(inits) != len(srcs):
        raise InvalidProgram(f"{len(inits)} initial values of {len(srcs)} sources")
    for i, (d, s) in enumerate(zip(dsts, srcs)):
        ctx.whole(d, f"dst {i}")
        ctx.dense(s, f"source {i}")
        same_dtype(d, s, f"dst and source {i}")
        if s.shape != srcs[0].shape or d.shape != dsts[0].shape:
            raise InvalidProgram("all sources (all results) must have one shape")
        if inits is not None:
            ctx.scalar(inits[i], s.dtype, f"initial value {i}")


@RULES.rule(Sort)
def _sort(ctx: Context, cmd: Sort) -> None:
    _folded(ctx, cmd.dsts, cmd.srcs, None)
    same(cmd.dsts[0], cmd.srcs[0], "dst and source")
    if cmd.axis >= len(cmd.srcs[0].shape):
        raise InvalidProgram(f"axis {cmd.axis} does not exist in {cmd.srcs[0].shape}")
    types = [t for v in cmd.srcs for t in (v.dtype, v.dtype)]
    scalar_code(cmd.comparator, types, [dtypes.BOOL], "comparator")


_HALF = {dtypes.C64: dtypes.F32, dtypes.C128: dtypes.F64}


@RULES.rule(Fft)
def _fft(ctx: Context, cmd: Fft) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.dense(cmd.src, "src")
    axes, kind = len(cmd.lengths), cmd.kind
    if not 1 <= axes <= min(3, len(cmd.src.shape)):
        raise InvalidProgram(
            f"a transform has 1 to 3 axes of its operand, found lengths {cmd.lengths} "
            f"for shape {cmd.src.shape}"
        )
    at_least(1, lengths=cmd.lengths)
    spectrum = cmd.src if kind is FftKind.IRFFT else cmd.dst
    points = cmd.dst if kind is FftKind.IRFFT else cmd.src
    real = kind in (FftKind.RFFT, FftKind.IRFFT)
    half = _HALF.get(spectrum.dtype)
    if half is None or points.dtype is not (half if real else spectrum.dtype):
        raise InvalidProgram(
            f"{kind.name} takes complex<f32> with f32 or complex<f64> with f64, found "
            f"{cmd.src.dtype} -> {cmd.dst.dtype}"
        )
    batch = points.shape[:-axes]
    last = cmd.lengths[-1]
    wanted = (*batch, *cmd.lengths[:-1], last // 2 + 1 if real else last)
    if points.shape != (*batch, *cmd.lengths) or spectrum.shape != wanted:
        raise InvalidProgram(
            f"{kind.name} of lengths {cmd.lengths} joins points "
            f"{(*batch, *cmd.lengths)} and a spectrum {wanted}; found "
            f"{cmd.src.shape} -> {cmd.dst.shape}"
        )


@RULES.rule(ReduceWindow)
def _reduce_window(ctx: Context, cmd: ReduceWindow) -> None:
    _folded(ctx, cmd.dsts, cmd.srcs, cmd.inits)
    shape = cmd.srcs[0].shape
    fields = {
        "window": cmd.window,
        "strides": cmd.strides,
        "base_dilation": cmd.base_dilation,
        "window_dilation": cmd.window_dilation,
    }
    lengths(len(shape), **fields, pad_low=cmd.pad_low, pad_high=cmd.pad_high)
    at_least(1, **fields)
    wanted = tuple(
        map(
            windows, shape, cmd.window, cmd.strides, cmd.pad_low, cmd.pad_high,
            cmd.base_dilation, cmd.window_dilation,
        )
    )  # fmt: skip
    if cmd.dsts[0].shape != wanted:
        raise InvalidProgram(f"the windows give {wanted}, dst is {cmd.dsts[0].shape}")
    for v in cmd.srcs:
        _windows_fit(
            ctx, v, cmd.window, cmd.pad_low, cmd.pad_high, cmd.base_dilation,
            cmd.window_dilation,
        )  # fmt: skip
    types = [v.dtype for v in cmd.srcs]
    scalar_code(cmd.combiner, [*types, *types], types, "combiner")


@RULES.rule(SelectAndScatter)
def _select_and_scatter(ctx: Context, cmd: SelectAndScatter) -> None:
    ctx.whole(cmd.dst, "dst")
    ctx.dense(cmd.operand, "operand")
    ctx.dense(cmd.source, "source")
    same(cmd.dst, cmd.operand, "dst and operand")
    same_dtype(cmd.dst, cmd.source, "dst and source")
    ctx.scalar(cmd.init, cmd.dst.dtype, "init")
    fields = {"window": cmd.window, "strides": cmd.strides}
    shape = cmd.operand.shape
    lengths(len(shape), **fields, pad_low=cmd.pad_low, pad_high=cmd.pad_high)
    at_least(1, **fields)
    wanted = tuple(
        map(windows, shape, cmd.window, cmd.strides, cmd.pad_low, cmd.pad_high)
    )
    if cmd.source.shape != wanted:
        raise InvalidProgram(
            f"the windows number {wanted}, source is {cmd.source.shape}"
        )
    ones = (1,) * len(shape)
    _windows_fit(ctx, cmd.operand, cmd.window, cmd.pad_low, cmd.pad_high, ones, ones)
    t = cmd.dst.dtype
    scalar_code(cmd.select, [t, t], [dtypes.BOOL], "select")
    scalar_code(cmd.combiner, [t, t], [t], "combiner")


@RULES.rule(ReduceGeneric)
def _reduce_generic(ctx: Context, cmd: ReduceGeneric) -> None:
    _folded(ctx, cmd.dsts, cmd.srcs, cmd.inits)
    shape = cmd.srcs[0].shape
    _axes(len(shape), "axes", cmd.axes)
    wanted = tuple(e for i, e in enumerate(shape) if i not in cmd.axes)
    if cmd.dsts[0].shape != wanted:
        raise InvalidProgram(f"the reduction gives {wanted}, not {cmd.dsts[0].shape}")
    types = [v.dtype for v in cmd.srcs]
    scalar_code(cmd.combiner, [*types, *types], types, "combiner")


# ------------------------------------------------------------------- control flow, host


def _carries(ctx: Context, carries: Sequence[Carry]) -> None:
    for i, k in enumerate(carries):
        ctx.dense(k.enter, f"carry {i}: enter")
        ctx.whole(k.current, f"carry {i}: current")
        ctx.dense(k.next, f"carry {i}: next")
        ctx.whole(k.leave, f"carry {i}: leave")
        same(k.enter, k.current, f"carry {i}: enter and current")
        same(k.next, k.current, f"carry {i}: next and current")
        same(k.leave, k.current, f"carry {i}: leave and current")


@RULES.rule(Loop)
def _loop(ctx: Context, cmd: Loop) -> None:
    if cmd.trips > TRIPS:
        raise InvalidProgram(f"trips must be at most {TRIPS}, found {cmd.trips}")
    _carries(ctx, cmd.carries)


@RULES.rule(While)
def _while(ctx: Context, cmd: While) -> None:
    _carries(ctx, cmd.carries)
    ctx.scalar(cmd.predicate, dtypes.BOOL, "predicate")


@RULES.rule(Case)
def _case(ctx: Context, cmd: Case) -> None:
    ctx.scalar(cmd.index, dtypes.I32, "index")
    if not cmd.branches:
        raise InvalidProgram("a case must have a branch")
    for i, merge in enumerate(cmd.merges):
        ctx.whole(merge.dst, f"merge {i}: dst")
        if len(merge.srcs) != len(cmd.branches):
            raise InvalidProgram(
                f"merge {i} has {len(merge.srcs)} sources for {len(cmd.branches)} "
                f"branches"
            )
        for j, v in enumerate(merge.srcs):
            ctx.dense(v, f"merge {i}: source {j}")
            same(merge.dst, v, f"merge {i}: dst and source {j}")


@RULES.rule(Host)
def _host(ctx: Context, cmd: Host) -> None:
    for i, v in enumerate(cmd.dsts):
        ctx.whole(v, f"dst {i}")
    for i, v in enumerate(cmd.srcs):
        ctx.dense(v, f"operand {i}")


RULES.complete()
