"""Windowed commands: convolution, reduce_window, select_and_scatter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from vkore_jax.isa import Conv, ReduceWindow, SelectAndScatter
from vkore_jax.sim.golden import matrix, strategies
from vkore_jax.sim.golden.core import combine, scatter_in_order
from vkore_jax.sim.golden.machine import COMMAND_RULES, Machine
from vkore_jax.sim.golden.micro import evaluate
from vkore_jax.sim.golden.move import padded

# -------------------------------------------------------------------------- convolution


@COMMAND_RULES.rule(Conv)
def conv(m: Machine, cmd: Conv) -> None:
    """Convolution: patches of a block of positions times a block of features."""
    lhs, rhs = m.dram.read(cmd.lhs), m.dram.read(cmd.rhs)
    window = rhs.shape[:-2]
    rank = len(window)
    if rank:
        flips = tuple(i for i, r in enumerate(cmd.reversal) if r)
        rhs = np.flip(rhs, flips)
    patches = conv_patches(lhs, cmd, window)  # (n, *out, *window, c)
    samples, features = cmd.dst.shape[0], cmd.dst.shape[-1]
    m.dram.claim(cmd.dst)
    cuts = (
        _cut(features, cmd.block_o),
        _cut(samples, cmd.block_n),
        *map(_cut, cmd.dst.shape[1:-1], cmd.block_out),
    )
    for columns, rows, *box in itertools.product(*cuts):
        block = conv_block(patches, rhs, cmd, rows, box, columns)
        out = matrix.finish(block, cmd.dst.dtype)
        starts = (rows.start, *(r.start for r in box), columns.start)
        m.dram.write_block(cmd.dst, starts, out)


def _cut(extent: int, block: int) -> list[range]:
    return [range(i, min(i + block, extent)) for i in range(0, extent, block)]


def conv_patches(lhs: np.ndarray, cmd: Conv, window: Sequence[int]) -> np.ndarray:
    """Return what the window sees at every output position: (n, *out, *window, c)."""
    rank = len(window)
    if not rank:
        return lhs
    spatial = lhs.shape[1:-1]
    sizes = [
        (max(e, 1) - 1) * d + 1 + lo + hi if e else lo + hi
        for e, d, lo, hi in zip(spatial, cmd.lhs_dilation, cmd.pad_low, cmd.pad_high)
    ]
    x = padded(
        lhs,
        lhs.dtype.type(0),
        (0, *cmd.pad_low, 0),
        (lhs.shape[0], *sizes, lhs.shape[-1]),
        (0, *[d - 1 for d in cmd.lhs_dilation], 0),
    )
    # A view: patches of large windows need many times the memory of what they show.
    out = cmd.dst.shape[1:-1]
    step = x.strides[1:-1]
    view = np.lib.stride_tricks.as_strided(
        x.view(f"V{x.itemsize}"),  # NumPy does not know the narrow floats here
        (lhs.shape[0], *out, *window, lhs.shape[-1]),
        (
            x.strides[0],
            *(n * s for n, s in zip(step, cmd.strides)),
            *(n * d for n, d in zip(step, cmd.rhs_dilation)),
            x.strides[-1],
        ),
        writeable=False,
    )
    return view.view(x.dtype)


def conv_block(
    patches: np.ndarray,
    rhs: np.ndarray,
    cmd: Conv,
    rows: range,
    box: Sequence[range],
    columns: range,
) -> np.ndarray:
    """Return the sums of one block of samples, output positions and features.

    Output feature o belongs to feature group o // (O / feature_groups), which sees
    its share of the channels, and to batch group o // (O / batch_groups), which sees
    its share of the samples.
    """
    features, depth = rhs.shape[-1], rhs.shape[-2]
    rank = rhs.ndim - 2
    parts = []
    for o, group in _runs(columns, features, cmd):
        feature_group, batch_group = group
        first = batch_group * cmd.dst.shape[0]
        seen = patches[
            first + rows.start : first + rows.stop,
            *(slice(r.start, r.stop) for r in box),
            ...,
            feature_group * depth : (feature_group + 1) * depth,
        ]
        k = int(np.prod(rhs.shape[:-1]))
        out = seen.shape[: 1 + rank]
        a = np.ascontiguousarray(seen).reshape(int(np.prod(out)), k)
        b = np.ascontiguousarray(rhs[..., o.start : o.stop]).reshape(k, len(o))
        sums = strategies.multiply(a, b, cmd.strategy, depth)
        parts.append(sums.reshape(*out, len(o)))
    return np.concatenate(parts, -1)


def _runs(
    columns: range, features: int, cmd: Conv
) -> Iterator[tuple[range, tuple[int, int]]]:
    """Cut a range of output features into runs of one (feature, batch) group."""

    def group(o: int) -> tuple[int, int]:
        return (
            o // (features // cmd.feature_groups),
            o // (features // cmd.batch_groups),
        )

    for key, run in itertools.groupby(columns, group):
        members = list(run)
        yield range(members[0], members[-1] + 1), key


# ------------------------------------------------------------------------- window folds


def window_sources(
    shape: Sequence[int],
    out: Sequence[int],
    at: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the source index under window position `at` for every output.

    Returns:
        One index array per axis (clamped, broadcasting to `out`), and a mask that is
        false in the padding and between dilated elements.
    """
    rank = len(shape)
    index, valid = [], np.ones((1,) * rank, bool)
    for i in range(rank):
        place = (
            np.arange(out[i]) * strides[i] + at[i] * window_dilation[i] - low[i]
        ).reshape([-1 if j == i else 1 for j in range(rank)])
        source = place // base_dilation[i]
        ok = (place % base_dilation[i] == 0) & (source >= 0) & (source < shape[i])
        index.append(np.clip(source, 0, max(shape[i] - 1, 0)))
        valid = valid & ok
    return index, np.broadcast_to(valid, out)


@COMMAND_RULES.rule(ReduceWindow)
def reduce_window(m: Machine, cmd: ReduceWindow) -> None:
    """Fold the elements under each window, in row-major order, from init.

    Padding and the gaps of a dilated base are skipped (they would contribute init).
    """
    srcs = [m.dram.read(v) for v in cmd.srcs]
    out = cmd.dsts[0].shape
    totals = [
        np.broadcast_to(m.dram.read(v).reshape(()), out).copy() for v in cmd.inits
    ]
    for at in np.ndindex(*cmd.window):
        index, valid = window_sources(
            srcs[0].shape, out, at, cmd.strides, cmd.pad_low, cmd.base_dilation,
            cmd.window_dilation,
        )  # fmt: skip
        if not valid.any():
            continue
        values = [np.broadcast_to(x[tuple(index)], out) for x in srcs]
        new = combine(cmd.combiner, totals, values)
        totals = [np.where(valid, a, b) for a, b in zip(new, totals)]
    for dst, total in zip(cmd.dsts, totals):
        m.dram.write(dst, total)


@COMMAND_RULES.rule(SelectAndScatter)
def select_and_scatter(m: Machine, cmd: SelectAndScatter) -> None:
    """Give each window's source element to the element that the window selects.

    A window is scanned in row-major order; a candidate replaces the kept element
    when `select(kept, candidate)` is false.
    """
    operand, source = m.dram.read(cmd.operand), m.dram.read(cmd.source)
    shape, out = operand.shape, source.shape
    ones = (1,) * len(shape)
    best = np.zeros(out, np.int64)
    kept = np.zeros(out, operand.dtype)
    found = np.zeros(out, bool)
    for at in np.ndindex(*cmd.window):
        index, valid = window_sources(
            shape, out, at, cmd.strides, cmd.pad_low, ones, ones
        )
        if not valid.any():
            continue
        value = np.broadcast_to(operand[tuple(index)], out)
        place = np.zeros((1,) * len(shape), np.int64)
        for i, extent in zip(index, shape):
            place = place * extent + i
        stays = evaluate(cmd.select, [kept, value], out)[0] & found
        take = valid & ~stays
        best, kept = np.where(take, place, best), np.where(take, value, kept)
        found |= valid
    start = np.broadcast_to(m.dram.read(cmd.init).reshape(()), shape)
    chosen = found.reshape(-1)
    total = scatter_in_order(
        [start], best.reshape(-1)[chosen], [source.reshape(-1)[chosen]], cmd.combiner
    )
    m.dram.write(cmd.dst, total[0].reshape(shape))
