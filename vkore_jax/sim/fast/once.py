"""A scatter with one window: a slice, the combiner, and an update.

XLA:CPU (jaxlib 0.10.2) makes the same of it, but relies on the clamping of the slice
for a window out of range, and forgets that when the operand is a slice, too (see
`indices`): it then writes a foreign element.  Here the start is clamped, and out of
range the elements that are there stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vkore_jax.dtypes import BOOL, I64
from vkore_jax.isa import Scatter
from vkore_jax.sim.fast import micro
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type
from vkore_jax.sim.fast.indices import clamped


def has_one_window(cmd: Scatter) -> bool:
    """Return whether a scatter is one update."""
    extents = enumerate(cmd.indices.shape)
    return math.prod(n for i, n in extents if i != cmd.index_vector_dim) == 1


def scattered(
    e: Emitter,
    cmd: Scatter,
    targets: Sequence[Val],
    operands: Sequence[Val],
    indices: Val,
    updates: Sequence[Val],
) -> list[Val]:
    """Emit the update.

    Args:
        e: where to write.
        cmd: a scatter with one window.
        targets: what is updated.
        operands: the same values, to read from.
        indices: one index vector.
        updates: one window for each target.
    """
    shape = operands[0].shape
    window = iter(updates[0].shape[i] for i in cmd.update_window_dims)
    single = (*cmd.inserted_dims, *cmd.operand_batching_dims)
    sizes = tuple(1 if i in single else next(window) for i in range(len(shape)))
    starts, inside = _starts(e, cmd, indices, shape, sizes)
    now = [_slice(e, v, starts, sizes) for v in operands]
    new = [e.reshape(v, sizes) for v in updates]
    kept = e.full(inside.standing_for(sizes))
    out = []
    made = micro.run(e, cmd.combiner, [*now, *new], sizes)
    for target, old, value in zip(targets, now, made):
        full = e.full(value)
        text = f"stablehlo.select {kept.name}, {full.name}, {old.name} : "
        part = e.op(f"{text}{kept.type}, {old.type}", old.dtype, sizes)
        vals = [target, part, *starts]
        text = f"stablehlo.dynamic_update_slice {', '.join(v.name for v in vals)} : "
        text += f"({', '.join(v.type for v in vals)}) -> {target.type}"
        out.append(e.op(text, target.dtype, shape))
    return out


def _starts(
    e: Emitter, cmd: Scatter, indices: Val, shape: Shape, sizes: Shape
) -> tuple[list[Val], Val]:
    """Return the clamped start on each axis, and whether nothing had to be clamped."""
    flat = e.reshape(indices, (indices.size,))
    starts = [e.scalar(I64, 0)] * len(shape)
    inside = e.scalar(BOOL, True)
    for place, axis in enumerate(cmd.scatter_dims):
        one = e.reshape(e.slice(flat, (place,), (place + 1,), (1,)), ())
        within = clamped(e, one, [shape[axis] - sizes[axis]], 0)
        same = e.op(
            f"stablehlo.compare EQ, {one.name}, {within.name} : "
            f"({one.type}, {within.type}) -> {inside.type}",
            BOOL,
            (),
        )
        text = f"stablehlo.and {inside.name}, {same.name} : {inside.type}"
        inside = e.op(text, BOOL, ())
        starts[axis] = e.convert(within, I64)
    return starts, inside


def _slice(e: Emitter, v: Val, starts: Sequence[Val], sizes: Shape) -> Val:
    names = ", ".join(x.name for x in (v, *starts))
    types = ", ".join(x.type for x in (v, *starts))
    text = f"stablehlo.dynamic_slice {names}, sizes = {ints(sizes)} : ({types}) -> "
    return e.op(text + tensor_type(v.dtype, sizes), v.dtype, sizes)
