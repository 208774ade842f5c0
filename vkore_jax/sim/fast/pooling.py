"""select_and_scatter: the windows are scanned position by position.

XLA:CPU (jaxlib 0.10.2) selects with a reduce_window, which visits the elements of a
padded window in another order than row by row; of equal elements, or with NaN, another
one is selected then.  And what belongs to a window without elements, all padding, it
gives to the first element.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from vkore_jax.dtypes import BOOL, I32, I64
from vkore_jax.isa import SelectAndScatter
from vkore_jax.sim.fast import micro
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type
from vkore_jax.sim.fast.padding import cut, surrounded, windows_inside
from vkore_jax.sim.fast.scaled import binary, select

Step = Callable[[Val, Val, Val, Val], tuple[Val, Val]]

UNROLLED = 64
"""Positions of a window up to which each has code of its own; then there is a loop."""


def scattered(e: Emitter, cmd: SelectAndScatter, v: Val, source: Val, init: Val) -> Val:
    """Give each window's source element to the element that the window selects.

    Args:
        e: where to write.
        cmd: windows, select and combiner.
        v: what is selected from, whole.
        source: one element for each window, whole.
        init: what elements that no window selects get, and others begin with.
    """
    seen = windows_inside(cmd)
    rest = cut(v.shape, seen.low, seen.high, (1,) * len(v.shape))
    if rest.empty or seen.empty:
        return init.standing_for(v.shape)
    left, given = rest.of(e, v), seen.of(e, source)
    count = given.size
    word = I32 if left.size < 2**31 else I64
    places = e.reshape(e.iota(word, (left.size,), 0), left.shape)
    data = [
        surrounded(e, left, e.scalar(v.dtype, 0), rest.low, rest.high),
        surrounded(e, places, e.scalar(word, -1), rest.low, rest.high),
    ]
    best = e.reshape(_scanned(e, cmd, data, given.shape), (count,))
    flat = e.full(init.standing_for((left.size,)))
    region = e.region(
        [(v.dtype, ()), (v.dtype, ())], lambda *x: micro.run(e, cmd.combiner, x, ())
    )
    updates = e.reshape(given, (count,))
    text = (
        f'"stablehlo.scatter"({flat.name}, {best.name}, {updates.name}) <{{'
        "indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        f"index_vector_dim = 1>, unique_indices = false}}> ({region}) : "
        f"({flat.type}, {best.type}, {updates.type}) -> {flat.type}"
    )
    made = e.reshape(e.op(text, v.dtype, flat.shape), left.shape)
    return rest.undo(e, made, init, v.shape)


def _scanned(e: Emitter, cmd: SelectAndScatter, data: Sequence[Val], out: Shape) -> Val:
    """Return the place of the element that each window selects.

    Args:
        e: where to write.
        cmd: windows and select.
        data: the padded elements, and their places; -1 where there is padding.
        out: number of windows on each axis.
    """
    span = tuple((n - 1) * s + 1 for n, s in zip(out, cmd.strides))
    zero, none = (e.scalar(x.dtype, n) for x, n in zip(data, (0, -1)))
    start = [e.full(x.standing_for(out)) for x in (zero, none)]

    def step(kept: Val, best: Val, value: Val, place: Val) -> tuple[Val, Val]:
        """Look at one more element of every window."""
        nothing = e.full(none.standing_for(out))
        (stays,) = micro.run(e, cmd.select, [kept, value], out)
        first = _compare(e, "EQ", best, nothing)
        text = f"stablehlo.not {e.full(stays).name} : {first.type}"
        take = binary(e, "or", first, e.op(text, BOOL, out))
        real = _compare(e, "NE", place, nothing)
        take = binary(e, "and", take, real)
        return select(e, take, value, kept), select(e, take, place, best)

    if math.prod(cmd.window) <= UNROLLED:
        kept, best = start
        for at in itertools.product(*map(range, cmd.window)):
            limit = tuple(a + n for a, n in zip(at, span))
            kept, best = step(
                kept, best, *(e.slice(x, at, limit, cmd.strides) for x in data)
            )
        return best
    return _looped(e, cmd, data, start, span, step)


def _looped(
    e: Emitter,
    cmd: SelectAndScatter,
    data: Sequence[Val],
    start: Sequence[Val],
    span: Shape,
    step: Step,
) -> Val:
    """Look at the positions in a loop whose counter says where the next one is."""
    zero, one = e.scalar(I32, 0), e.scalar(I32, 1)
    positions = math.prod(cmd.window)
    inits = [zero, *start]
    types = [(x.dtype, x.shape) for x in inits]

    def condition(index: Val, *rest: Val) -> list[Val]:
        return [_compare(e, "LT", index, e.scalar(I32, positions))]

    def body(index: Val, kept: Val, best: Val) -> list[Val]:
        at, left = [], index
        for i in range(len(span)):
            inner = e.scalar(I32, math.prod(cmd.window[i + 1 :]))
            at.append(binary(e, "divide", left, inner))
            left = binary(e, "remainder", left, inner)
        parts = [_strided(e, x, at, span, cmd.strides) for x in data]
        return [binary(e, "add", index, one), *step(kept, best, *parts)]

    regions = f"{e.region(types, condition)}, {e.region(types, body)}"
    names = ", ".join(v.name for v in inits)
    spelled = ", ".join(v.type for v in inits)
    text = f'"stablehlo.while"({names}) ({regions}) : ({spelled}) -> ({spelled})'
    return e.ops(text, types)[2]


def _strided(
    e: Emitter, v: Val, at: Sequence[Val], span: Shape, strides: Sequence[int]
) -> Val:
    names = ", ".join(x.name for x in (v, *at))
    types = ", ".join(x.type for x in (v, *at))
    text = f"stablehlo.dynamic_slice {names}, sizes = {ints(span)} : ({types}) -> "
    box = e.op(text + tensor_type(v.dtype, span), v.dtype, span)
    return e.slice(box, (0,) * len(span), span, strides)


def _compare(e: Emitter, direction: str, a: Val, b: Val) -> Val:
    """Compare signed integers."""
    text = (
        f"stablehlo.compare {direction}, {a.name}, {b.name}, SIGNED : "
        f"({a.type}, {b.type}) -> {tensor_type(BOOL, a.shape)}"
    )
    return e.op(text, BOOL, a.shape)
