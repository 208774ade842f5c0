"""The control core: gather, scatter, sort and reductions with any combiner."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vkore_jax.callbacks import callback_error
from vkore_jax.errors import HostCallbackError, InvalidArgument
from vkore_jax.isa import (
    Fft,
    FftKind,
    Gather,
    Host,
    MicroProgram,
    ReduceGeneric,
    Scatter,
    Sort,
    View,
)
from vkore_jax.sim.golden.machine import COMMAND_RULES, Machine
from vkore_jax.sim.golden.micro import evaluate

Arrays = list[np.ndarray]


def combine(
    program: MicroProgram, left: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> Arrays:
    """Run a combiner (left_0.., right_0..) on arrays of one shape."""
    return evaluate(program, [*left, *right], left[0].shape)


# ---------------------------------------------------------------------- gather, scatter


def window_starts(
    indices: np.ndarray,
    vector_dim: int,
    rank: int,
    index_map: Sequence[int],
    operand_batch: Sequence[int],
    index_batch: Sequence[int],
) -> np.ndarray:
    """Return the operand index where each window starts, shape (*batch, rank).

    StableHLO `gather` (full_start_index + full_batching_index): components of the
    index vector go to the axes of `index_map`, batching axes count with the index
    axis that they are tied to, all other axes start at 0.
    """
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    vectors = np.moveaxis(indices, vector_dim, -1)
    if vectors.dtype == np.uint64:
        vectors = np.minimum(vectors, np.uint64(np.iinfo(np.int64).max))
    batch = vectors.shape[:-1]
    starts = np.zeros((*batch, rank), np.int64)
    starts[..., list(index_map)] = vectors.astype(np.int64)
    for axis, tied in zip(operand_batch, index_batch):
        position = tied if tied < vector_dim else tied - 1
        shape = [1] * len(batch)
        shape[position] = batch[position]
        starts[..., axis] = np.arange(batch[position]).reshape(shape)
    return starts


def window_elements(
    starts: np.ndarray, sizes: Sequence[int], kept: Sequence[int]
) -> tuple[np.ndarray, ...]:
    """Return per operand axis the index of each window element.

    Args:
        starts: (*batch, rank).
        sizes: window extent on each operand axis (1 on axes not kept).
        kept: operand axes that the window has, in order.

    Returns:
        One array for each operand axis, all broadcasting to (*batch, *window).
    """
    batch = starts.ndim - 1
    out = []
    for axis in range(starts.shape[-1]):
        index = starts[..., axis].reshape((*starts.shape[:-1], *[1] * len(kept)))
        if axis in kept:
            shape = [1] * (batch + len(kept))
            shape[batch + kept.index(axis)] = sizes[axis]
            index = index + np.arange(sizes[axis]).reshape(shape)
        out.append(index)
    return tuple(out)


def _others(rank: int, axes: Sequence[int]) -> list[int]:
    return [i for i in range(rank) if i not in axes]


@COMMAND_RULES.rule(Gather)
def gather(m: Machine, cmd: Gather) -> None:
    """Dst = windows of the operand at clamped start indices."""
    operand, indices = m.dram.read(cmd.operand), m.dram.read(cmd.indices)
    starts = window_starts(
        indices,
        cmd.index_vector_dim,
        operand.ndim,
        cmd.start_index_map,
        cmd.operand_batching_dims,
        cmd.indices_batching_dims,
    )
    highest = np.array(operand.shape, np.int64) - np.array(cmd.slice_sizes, np.int64)
    starts = np.clip(starts, 0, highest)
    dropped = (*cmd.collapsed_dims, *cmd.operand_batching_dims)
    kept = _others(operand.ndim, dropped)
    out_batch = _others(len(cmd.dst.shape), cmd.offset_dims)
    values = np.empty(
        [cmd.dst.shape[i] for i in (*out_batch, *cmd.offset_dims)], operand.dtype
    )
    if values.size:
        values[...] = operand[window_elements(starts, cmd.slice_sizes, kept)]
    order = np.argsort([*out_batch, *cmd.offset_dims])
    m.dram.write(cmd.dst, values.transpose(order))


@COMMAND_RULES.rule(Scatter)
def scatter(m: Machine, cmd: Scatter) -> None:
    """Dsts = operands with windows of updates combined in, in index order."""
    operands = [m.dram.read(v) for v in cmd.operands]
    shape = operands[0].shape
    rank = len(shape)
    starts = window_starts(
        m.dram.read(cmd.indices),
        cmd.index_vector_dim,
        rank,
        cmd.scatter_dims,
        cmd.operand_batching_dims,
        cmd.indices_batching_dims,
    )
    kept = _others(rank, (*cmd.inserted_dims, *cmd.operand_batching_dims))
    update_batch = _others(len(cmd.updates[0].shape), cmd.update_window_dims)
    sizes = [1] * rank
    for axis, dim in zip(kept, cmd.update_window_dims):
        sizes[axis] = cmd.updates[0].shape[dim]
    inside = ((starts >= 0) & (starts + sizes <= shape)).all(-1)
    grid = np.broadcast_arrays(*window_elements(starts, sizes, kept)) if rank else []
    window = (*inside.shape, *[sizes[a] for a in kept])
    valid = np.broadcast_to(
        inside.reshape((*inside.shape, *[1] * len(kept))), window
    ).reshape(-1)
    flat = np.zeros(valid.shape, np.int64)
    for index, extent in zip(grid, shape):
        flat = flat * extent + index.reshape(-1)
    updates = [
        m.dram.read(v).transpose(*update_batch, *cmd.update_window_dims).reshape(-1)
        for v in cmd.updates
    ]
    out = scatter_in_order(
        operands, flat[valid], [u[valid] for u in updates], cmd.combiner
    )
    for dst, value in zip(cmd.dsts, out):
        m.dram.write(dst, value.reshape(dst.shape))


def scatter_in_order(
    targets: Sequence[np.ndarray],
    places: np.ndarray,
    updates: Sequence[np.ndarray],
    combiner: MicroProgram,
) -> Arrays:
    """Apply updates to flat places one after another; duplicates see each other.

    Round r applies the r-th update of every place at once: places are independent,
    so this is the sequential order.
    """
    out = [np.array(t).reshape(-1) for t in targets]
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.searchsorted(ordered, ordered, "left")
    turn = np.arange(len(ordered)) - first
    for r in range(int(turn.max(initial=-1)) + 1):
        now = order[turn == r]
        at = places[now]
        new = combine(combiner, [t[at] for t in out], [u[now] for u in updates])
        for t, value in zip(out, new):
            t[at] = value
    return out


# --------------------------------------------------------------------------------- sort


@COMMAND_RULES.rule(Sort)
def sort(m: Machine, cmd: Sort) -> None:
    """Dsts = srcs in the comparator's order along an axis; always stable."""
    arrays = [np.moveaxis(m.dram.read(v), cmd.axis, -1) for v in cmd.srcs]
    count, length = math.prod(arrays[0].shape[:-1]), arrays[0].shape[-1]
    rows = [a.reshape(count, length) for a in arrays]
    order = sorted_order(rows, cmd.comparator)
    for dst, a, row in zip(cmd.dsts, arrays, rows):
        value = np.take_along_axis(row, order, 1).reshape(a.shape)
        m.dram.write(dst, np.moveaxis(value, -1, cmd.axis))


def sorted_order(rows: Sequence[np.ndarray], comparator: MicroProgram) -> np.ndarray:
    """Return the positions that sort each row: a bitonic network of comparisons.

    Position breaks ties, which makes the order strict and the sort stable; rows are
    filled up to a power of two with elements that follow all others.

    Args:
        rows: arrays (number of rows, length) sorted together.
        comparator: takes (a_0, b_0, a_1, b_1, ..), true when a precedes b.
    """
    count, length = rows[0].shape
    size = 1 << max(0, length - 1).bit_length()
    order = np.broadcast_to(np.arange(size), (count, size)).copy()
    if count == 0 or length < 2:
        return order[:, :length]

    def asks(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        operands = []
        for row in rows:
            operands += [
                np.take_along_axis(row, np.minimum(k, length - 1), 1) for k in (i, j)
            ]
        return evaluate(comparator, operands, i.shape)[0]

    def precedes(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        real = asks(i, j) | (~asks(j, i) & (i < j))
        return np.where((i < length) & (j < length), real, i < j)

    places = np.arange(size)
    span = 2
    while span <= size:
        reach = span // 2
        while reach:
            low = places[(places & reach) == 0]
            high = low | reach
            a, b = order[:, low], order[:, high]
            swap = precedes(b, a) == ((low & span) == 0)
            order[:, low], order[:, high] = np.where(swap, b, a), np.where(swap, a, b)
            reach //= 2
        span *= 2
    return order[:, :length]


# --------------------------------------------------------------------------- reductions


@COMMAND_RULES.rule(ReduceGeneric)
def reduce_generic(m: Machine, cmd: ReduceGeneric) -> None:
    """Dsts = init combined with the elements, neighbours first (a balanced tree)."""
    rank = len(cmd.srcs[0].shape)
    kept = _others(rank, cmd.axes)
    values = []
    for v in cmd.srcs:
        x = m.dram.read(v).transpose(*sorted(cmd.axes), *kept)
        values.append(x.reshape(-1, *[v.shape[i] for i in kept]))
    while len(values[0]) > 1:
        pairs = len(values[0]) // 2 * 2
        head = combine(
            cmd.combiner,
            [x[0:pairs:2] for x in values],
            [x[1:pairs:2] for x in values],
        )
        values = [np.concatenate([h, x[pairs:]]) for h, x in zip(head, values)]
    out = [
        np.broadcast_to(i, d.shape) for i, d in zip(_scalars(m, cmd.inits), cmd.dsts)
    ]
    if len(values[0]):
        out = combine(cmd.combiner, out, [x[0] for x in values])
    for dst, value in zip(cmd.dsts, out):
        m.dram.write(dst, value)


def _scalars(m: Machine, views: Sequence[View]) -> Arrays:
    return [m.dram.read(v).reshape(()) for v in views]


# --------------------------------------------------------------------------- transforms


@COMMAND_RULES.rule(Fft)
def fft(m: Machine, cmd: Fft) -> None:
    """Dst = the transform in double precision, rounded once."""
    functions = {
        FftKind.FFT: np.fft.fftn,
        FftKind.IFFT: np.fft.ifftn,
        FftKind.RFFT: np.fft.rfftn,
        FftKind.IRFFT: np.fft.irfftn,
    }
    x = m.dram.read(cmd.src)
    x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    axes = tuple(range(-len(cmd.lengths), 0))
    if x.size == 0:
        out = np.zeros(cmd.dst.shape)
    else:
        out = functions[cmd.kind](x, s=cmd.lengths, axes=axes)
    m.dram.write(cmd.dst, out.astype(cmd.dst.dtype.numpy))


# --------------------------------------------------------------------------------- host


@COMMAND_RULES.rule(Host)
def host(m: Machine, cmd: Host) -> None:
    """Dsts = what the user's Python function returns."""
    if cmd.callback not in m.callbacks:
        raise InvalidArgument(
            f"host callback {cmd.callback} ({cmd.kind}) is not registered: a program "
            f"with callbacks runs only in the process that compiled it"
        )
    try:
        out = m.callbacks[cmd.callback](*[m.dram.read(v) for v in cmd.srcs])
    except BaseException as e:
        raise callback_error(e) from e
    values = [] if out is None else list(out)
    if len(values) != len(cmd.dsts):
        raise HostCallbackError(
            f"the user's {cmd.kind} returned {len(values)} values, "
            f"{len(cmd.dsts)} are needed"
        )
    for i, (dst, value) in enumerate(zip(cmd.dsts, values)):
        value = np.asarray(value)
        if value.dtype != dst.dtype.numpy or value.shape != dst.shape:
            raise HostCallbackError(
                f"the user's {cmd.kind} returned {value.dtype}{list(value.shape)} as "
                f"value {i}, {dst.dtype}{list(dst.shape)} is needed"
            )
        m.dram.write(dst, value)
