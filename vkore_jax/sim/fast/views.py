"""Reading a view: a strided descriptor as slice, reverse, transpose, broadcast.

A buffer is kept in the shape in which it was produced; a view that fits that shape
costs nothing, and the reshapes of the others move no data.
"""

from __future__ import annotations

import math

from vkore_jax.dtypes import I32, I64
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import Decomposition, View, decompose
from vkore_jax.sim.fast.emitter import Emitter, Val, i64s, tensor_type


def read(e: Emitter, source: Val, view: View) -> Val:
    """Return what a view of a buffer shows.

    Args:
        e: where to write.
        source: value of the whole buffer.
        view: descriptor on it, of the same dtype or of another reading of its bytes.

    Raises:
        InvalidProgram: the view reaches outside the buffer's value.
    """
    if source.dtype is not view.dtype:
        source = _reinterpret(e, source, view)
    if source.logical == view.shape and view.is_dense:
        return source
    if view.size == source.size and view.is_dense:
        return e.reshape(source, view.shape)
    low, high = view.bounds()
    if low < 0 or high >= source.size:
        raise InvalidProgram(
            f"view of buffer {view.buffer} touches elements {low}..{high}, the value "
            f"written there has {source.size}"
        )
    if view.size == 0:
        return e.constant(view.dtype, view.shape, b"")
    if source.shape == ():
        return source.standing_for(view.shape)
    whole = e.full(source)
    steps = decompose(view, whole.size)
    if steps is None:
        return _by_address(e, whole, view)
    return _by_structure(e, whole, view, steps)


def _by_structure(e: Emitter, v: Val, view: View, d: Decomposition) -> Val:
    used = math.prod(d.base)
    if used != v.size:
        v = e.slice(e.reshape(v, (v.size,)), (0,), (used,), (1,))
    v = e.reshape(v, d.base)
    v = e.slice(v, d.start, d.limit, d.step)
    v = e.reverse(v, d.reverse)
    owner = dict(zip(d.permutation, d.dims))
    kept = [i for i in range(len(d.base)) if owner[i] >= 0]
    v = e.reshape(v, tuple(v.shape[i] for i in kept))
    order = sorted(range(len(kept)), key=lambda i: owner[kept[i]])
    v = e.transpose(v, order)
    walked = set(d.dims)
    small = tuple(n if i in walked else 1 for i, n in enumerate(view.shape))
    return e.reshape(v, small).standing_for(view.shape)


def _by_address(e: Emitter, v: Val, view: View) -> Val:
    """Gather element offset + sum(i * stride): diagonals and overlapping windows."""
    word = I32 if v.size < 2**31 else I64
    address = e.scalar(word, view.offset)
    for axis, stride in enumerate(view.strides):
        if stride == 0 or view.shape[axis] == 1:
            continue
        index = e.broadcast(e.iota(word, view.shape, axis), view.shape)
        step = e.broadcast(e.scalar(word, stride), view.shape)
        part = e.op(
            f"stablehlo.multiply {index.name}, {step.name} : {index.type}",
            word,
            view.shape,
        )
        address = e.broadcast(address, view.shape)
        address = e.op(
            f"stablehlo.add {address.name}, {part.name} : {part.type}",
            word,
            view.shape,
        )
    rank = len(view.shape)
    flat = e.reshape(v, (v.size,))
    numbers = (
        "#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = {rank}>"
    )
    text = (
        f'"stablehlo.gather"({flat.name}, {address.name}) <{{'
        f"dimension_numbers = {numbers}, indices_are_sorted = false, "
        f"slice_sizes = {i64s((1,))}}}> : ({flat.type}, {address.type}) -> "
        f"{tensor_type(v.dtype, view.shape)}"
    )
    return e.op(text, v.dtype, view.shape)


def _reinterpret(e: Emitter, v: Val, view: View) -> Val:
    """Read a buffer's bytes as another type, flat."""
    old, new = v.dtype, view.dtype
    if old.kind in "bc" or new.kind in "bc" or min(old.bits, new.bits) < 8:
        raise InvalidProgram(
            f"buffer {view.buffer} was written as {old} and is read as {new}; only "
            "real types of 8 bits or more can be reinterpreted"
        )
    # In full: one element is kept as a scalar, of which a cast makes another rank.
    flat = e.full(e.reshape(e.full(v), (v.size,)))
    if old.itemsize == new.itemsize:
        return e.bitcast(flat, new, flat.shape)
    if old.itemsize > new.itemsize:
        ratio = old.itemsize // new.itemsize
        return e.reshape(e.bitcast(flat, new, (v.size, ratio)), (v.size * ratio,))
    ratio = new.itemsize // old.itemsize
    rows = v.size // ratio
    if rows * ratio != v.size:
        flat = e.slice(flat, (0,), (rows * ratio,), (1,))
    return e.bitcast(e.full(e.reshape(flat, (rows, ratio))), new, (rows,))
