"""Updates of a tensor by what is read from it: XLA:CPU must not write before it reads.

A fusion whose root is a dynamic-update-slice writes into the buffer of its operand.
When the operand is seen through a bitcast (a reshape, or a transpose that moves unit
axes only), XLA:CPU of jaxlib 0.10.2 does not notice that the same fusion reads that
buffer elsewhere, too, and lets the reads see what was written.  A scatter at a single
index becomes such an update.  Optimization barriers do not help: they are expanded
before instructions are fused.

An operand that is computed inside the fusion cannot be its buffer.  So the operand goes
through a `select` of which only LLVM, which comes later, sees that it always takes the
same side: (n | 1) != 0.  XLA copies the operand in any case, since both values live.
"""

from __future__ import annotations

from collections.abc import Iterable

from vkore_jax.dtypes import BOOL, F32, F64, I32
from vkore_jax.sim.fast.emitter import Emitter, Val, tensor_type


def apart(e: Emitter, target: Val, others: Iterable[Val]) -> Val:
    """Return an operand of an update that is not overwritten before it is read.

    Args:
        e: where to write.
        target: what is updated, whole.
        others: everything else that the update reads.
    """
    if target.size == 0 or not any(_overtakes(e, target, v) for v in others):
        return target
    zero = e.full(e.scalar(target.dtype, 0).standing_for(target.shape))
    always = e.full(_always(e, target).standing_for(target.shape))
    text = (
        f"stablehlo.select {always.name}, {target.name}, {zero.name} : "
        f"{always.type}, {target.type}"
    )
    return e.op(text, target.dtype, target.shape)


def _overtakes(e: Emitter, target: Val, other: Val) -> bool:
    """True when `other` comes from the tensor of `target` and one of them moved it."""
    origin = e.origin(target.name)
    itself, moved = e.sees(other, origin)
    return moved or (itself and target.name != origin)


def _always(e: Emitter, v: Val) -> Val:
    """Return true, in a form that XLA does not fold."""
    rank = len(v.shape)
    one = e.reshape(e.slice(v, (0,) * rank, (1,) * rank, (1,) * rank), ())
    if one.dtype.kind == "c":
        half = F32 if one.dtype.itemsize == 8 else F64
        text = f"stablehlo.real {one.name} : ({one.type}) -> {tensor_type(half, ())}"
        one = e.op(text, half, ())
    n, low = e.convert(one, I32), e.scalar(I32, 1)
    odd = e.op(f"stablehlo.or {n.name}, {low.name} : {n.type}", I32, ())
    zero = e.scalar(I32, 0)
    text = f"stablehlo.compare NE, {odd.name}, {zero.name}, SIGNED : "
    text += f"({odd.type}, {zero.type}) -> {tensor_type(BOOL, ())}"
    return e.op(text, BOOL, ())
