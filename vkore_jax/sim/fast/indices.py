"""Run-time indices: clamped here, since XLA may forget to.

XLA (jaxlib 0.10.2) makes one slice of a slice of a slice by adding the starts, and
clamps the sum only.  Starts that need no clamping add up.  A gather at a single index
becomes a slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from vkore_jax.dtypes import I32, I64
from vkore_jax.isa import Gather, View
from vkore_jax.sim.fast.emitter import Emitter, Val
from vkore_jax.sim.fast.state import State


def starts(
    s: State, views: Sequence[View], extents: Sequence[int], sizes: Sequence[int]
) -> list[Val]:
    """Return the start indices of a window in one signed type, as StableHLO requires.

    Args:
        s: the translation.
        views: one integer for each axis.
        extents: of the tensor.
        sizes: of the window.
    """
    narrow = all(v.dtype.kind == "i" and v.dtype.bits <= 32 for v in views)
    word = I32 if narrow else I64
    return [
        s.e.convert(clamped(s.e, s.scalar(v), [extent - size], 0), word)
        for v, extent, size in zip(views, extents, sizes)
    ]


def gathered(s: State, cmd: Gather) -> Val:
    """Return the indices of a gather, clamped if there is one window only."""
    indices = s.full(cmd.indices)
    components = len(cmd.start_index_map)
    if math.prod(indices.shape) != components or not components:
        return indices
    highest = [cmd.operand.shape[a] - cmd.slice_sizes[a] for a in cmd.start_index_map]
    return clamped(s.e, indices, highest, cmd.index_vector_dim)


def clamped(e: Emitter, v: Val, highest: Sequence[int], axis: int) -> Val:
    """Clamp to [0, highest], which differs along an axis."""
    top = int(ml_dtypes.iinfo(v.dtype.numpy).max)
    bounds = np.array([min(n, top) for n in highest], v.dtype.numpy)
    shape = tuple(n if i == axis else 1 for i, n in enumerate(v.shape))
    high = e.full(e.constant(v.dtype, shape, bounds.tobytes()).standing_for(v.shape))
    low = e.full(e.scalar(v.dtype, 0).standing_for(v.shape))
    text = f"stablehlo.clamp {low.name}, {v.name}, {high.name} : {v.type}"
    return e.op(text, v.dtype, v.shape)
