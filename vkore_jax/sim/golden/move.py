"""Data movement on whole tensors: copy, concat, pad, dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vkore_jax.isa import Concat, Copy, DynamicSlice, DynamicUpdate, Pad
from vkore_jax.sim.golden.machine import COMMAND_RULES, Machine


@COMMAND_RULES.rule(Copy)
def copy(m: Machine, cmd: Copy) -> None:
    """Dst = src."""
    m.dram.write(cmd.dst, m.dram.read(cmd.src))


@COMMAND_RULES.rule(Concat)
def concat(m: Machine, cmd: Concat) -> None:
    """Dst = the sources one after another."""
    m.dram.write(cmd.dst, np.concatenate([m.dram.read(v) for v in cmd.srcs], cmd.axis))


@COMMAND_RULES.rule(Pad)
def pad(m: Machine, cmd: Pad) -> None:
    """Dst = src within edges of a value."""
    value = m.dram.read(cmd.value).reshape(())
    m.dram.write(
        cmd.dst,
        padded(m.dram.read(cmd.src), value, cmd.low, cmd.dst.shape, cmd.interior),
    )


def padded(
    x: np.ndarray,
    value: Any,
    low: Sequence[int],
    shape: Sequence[int],
    interior: Sequence[int],
) -> np.ndarray:
    """Return a tensor of `shape` filled with `value`, x spread over it.

    Element i of an axis lands at low + i (interior + 1); what falls outside is
    dropped.
    """
    out = np.full(shape, value, x.dtype)
    source, target = [], []
    for extent, size, lo, gap in zip(x.shape, shape, low, interior):
        step = gap + 1
        first = max(0, -(lo // step)) if lo < 0 else 0
        last = min(extent, max(first, -(-(size - lo) // step)))
        source.append(slice(first, last))
        at = lo + first * step
        target.append(slice(at, at + max(0, (last - first - 1) * step + 1), step))
        if last <= first:
            return out
    out[tuple(target)] = x[tuple(source)]
    return out


def starts(
    m: Machine, views: Sequence[Any], extents: Sequence[int], sizes: Sequence[int]
) -> list[int]:
    """Return run-time start indices, clamped so that the window lies inside."""
    return [
        min(max(int(m.dram.read(v).reshape(())), 0), extent - size)
        for v, extent, size in zip(views, extents, sizes)
    ]


@COMMAND_RULES.rule(DynamicSlice)
def dynamic_slice(m: Machine, cmd: DynamicSlice) -> None:
    """Dst = window of src."""
    at = starts(m, cmd.starts, cmd.src.shape, cmd.dst.shape)
    box = tuple(slice(a, a + n) for a, n in zip(at, cmd.dst.shape))
    m.dram.write(cmd.dst, m.dram.read(cmd.src)[box])


@COMMAND_RULES.rule(DynamicUpdate)
def dynamic_update(m: Machine, cmd: DynamicUpdate) -> None:
    """Dst = src with a window replaced."""
    at = starts(m, cmd.starts, cmd.src.shape, cmd.update.shape)
    out = m.dram.read(cmd.src)
    box = tuple(slice(a, a + n) for a, n in zip(at, cmd.update.shape))
    out[box] = m.dram.read(cmd.update)
    m.dram.write(cmd.dst, out)
