"""The sliced int8 strategies, exact to the bit, by XLA's f32 GEMMs.

The chip sums products of slices in i32.  A slice is an integer of at most 127, so an
f32 GEMM over the 128 terms of a segment holds every partial sum exactly, in any order:
it stays below 2^24.  There is one GEMM for each segment and pair of slices.  The sums
of a level (pairs whose slice numbers add up to the same) are integers below 2^24
together; levels are added from the least one on, then the two scales are applied, then
the segment is added to those before it.  That is golden's order of roundings, and the
only roundings there are.

The sums of a segment are t 2^r 2^c, with t zero or within 2^-21 and 2^24, r and c
within -104 and 121.  Multiplied by the smaller power first, they overflow or underflow
only where the result does.

Elements that are not finite meet the signs of the others (`golden.strategies`).  They
stand in the pair of first slices alone; there an operand whose first slice is 0 but
not the whole has 2^-60 of its sum of slices: rounded off the sums afterwards, but
enough to give an infinity its sign.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from vkore_jax.dtypes import BOOL, F32, I32
from vkore_jax.isa import Strategy, strategies
from vkore_jax.isa.strategies import STRATEGIES as FACTS
from vkore_jax.sim.fast import scaled
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, ints, tensor_type
from vkore_jax.sim.fast.scaled import (
    Operand,
    below,
    binary,
    compare,
    constant,
    finite,
    nearest,
    select,
    times,
)

SLICED = tuple(s for s, f in FACTS.items() if f.needs == "i8" and f.segment)

UNROLLED = 2
"""Segments that are written one by one; more than that run in a loop: as fast where it
was measured, and the module does not grow."""

_BITS = 7
_FAINT = 2.0**-60

Product = Callable[[Val, Val], Val]


def contract(
    e: Emitter, left: Operand, right: Operand, strategy: Strategy, product: Product
) -> Val:
    """Emit the sums of one contraction in f32.

    Args:
        e: where to write.
        left: (.., m, k), contracted on the last axis.
        right: (.., k, n), contracted on the last but one.
        strategy: one of `SLICED`.
        product: contracts spans of k.
    """
    spans = strategies.runs(left.val.shape[left.axis], left.run, _length(strategy))
    if len(spans) > UNROLLED:
        return _loop(e, left, right, strategy, product)
    total: Val | None = None
    for first, end in spans:
        a, b = span(e, left, first, end), span(e, right, first, end)
        part = _segment(e, a, b, strategy, product)
        total = part if total is None else binary(e, "add", total, part)
    assert total is not None
    return total


def _level_sums(
    e: Emitter,
    strategy: Strategy,
    pair: Callable[[int, int, bool], Val],
    single: bool = False,
) -> Val:
    """Add the sums of all pairs, in units of the first slices' product.

    Args:
        e: where to write.
        strategy: one of `SLICED`.
        pair: (slice of the left, slice of the right, whether they lead) -> sum.
        single: the left operand has a first slice alone.
    """
    facts = FACTS[strategy]
    products = [p for p in facts.products if not (single and p[0])]
    total: Val | None = None
    for level, pairs in groupby(products, key=sum):
        made = [pair(i, j, level == 0) for i, j in pairs]
        part = made[0]
        for other in made[1:]:
            part = binary(e, "add", part, other)
        if level:
            part = times(e, part, 2.0 ** (-_BITS * level))
        elif facts.parts > 1:
            part = nearest(e, part)
        total = part if total is None else binary(e, "add", total, part)
    assert total is not None
    return total


def _length(strategy: Strategy) -> int:
    return FACTS[strategy].segment


def _segment(
    e: Emitter, a: Operand, b: Operand, strategy: Strategy, product: Product
) -> Val:
    count = FACTS[strategy].parts

    def pair(i: int, j: int, leading: bool) -> Val:
        if leading:
            return product(first_slice(e, a, count), first_slice(e, b, count))
        return product(slice_of(e, a, i), slice_of(e, b, j))

    total = _level_sums(e, strategy, pair)
    rows, columns = (
        e.broadcast(v.standing_for(v.shape), total.shape)
        for v in (scale(e, a), scale(e, b))
    )
    low = binary(e, "minimum", rows, columns)
    high = binary(e, "maximum", rows, columns)
    made = binary(e, "multiply", binary(e, "multiply", total, low), high)
    return _apart(e, total, made)


def _apart(e: Emitter, total: Val, made: Val) -> Val:
    """Return scaled sums, 0 where the sums are.

    A product and the addition after it would be contracted into one rounding, which
    overflows less than two.  And where a segment is one element XLA makes -0 of a sum
    that is +0.
    """
    zero = constant(e, total, 0)
    return select(e, compare(e, "EQ", total, zero), zero, made)


def sums_of_equals(e: Emitter, ids: Val, right: Operand, strategy: Strategy) -> Val:
    """Emit the segments' sums of rows that have the same number, one for each row.

    The sum stands where a number appears first in its segment, other rows are 0.

    Args:
        e: where to write.
        ids: (1, k) integers.
        right: (.., k, n) finite numbers, without batch axes.
        strategy: one of `SLICED`.
    """
    k, n = right.val.shape[-2:]
    flat = Operand(e.reshape(right.val, (k, n)), 0, k)
    stack = segmented(e, Operand(e.convert(flat.val, F32), 0, k), strategy)
    count, length, _ = stack.shape
    numbers = segmented(e, Operand(ids, 1, k), strategy)
    numbers = e.reshape(numbers, (count, length))
    square = (count, length, length)
    across = e.broadcast(e.reshape(numbers, (count, 1, length)), square)
    down = e.broadcast(e.reshape(numbers, (count, length, 1)), square)
    same = compare(e, "EQ", down, across)
    place, other = (e.full(e.iota(I32, square, axis)) for axis in (1, 2))
    never = constant(e, place, length)
    # The first place of each number is the least one that is equal.
    seen = select(e, same, other, never)
    first = e.broadcast(scaled.least(e, seen, 2), square)
    here = binary(e, "and", same, compare(e, "EQ", place, first))
    matrix = e.convert(here, F32)
    at = Operand(stack, 1, length)

    def pair(i: int, j: int, leading: bool) -> Val:
        rows = slice_of(e, at, j)
        text = (
            f"stablehlo.dot_general {matrix.name}, {rows.name}, batching_dims = [0] x "
            f"[0], contracting_dims = [2] x [1] : ({matrix.type}, {rows.type}) -> "
            f"{rows.type}"
        )
        # 1 has a first slice alone.
        return e.op(text, F32, rows.shape)

    total = _level_sums(e, strategy, pair, single=True)
    unit = scale(e, at)
    unit = e.broadcast(unit.standing_for(unit.shape), total.shape)
    made = _apart(e, total, binary(e, "multiply", total, unit))
    return e.slice(e.reshape(made, (count * length, n)), (0, 0), (k, n), (1, 1))


# ------------------------------------------------------------------ slices of a segment


def slice_of(e: Emitter, at: Operand, number: int) -> Val:
    """Return a slice of one segment, 0 where an element is not finite."""
    return below(e, at, ("slice", number), lambda x: _slice(e, x, number))


def first_slice(e: Emitter, at: Operand, count: int) -> Val:
    """Return the first of `count` slices as the first pair needs it."""

    def make(x: Operand) -> Val:
        made = _slice(e, x, 0)
        if count > 1:
            least = 2.0 ** (_BITS * (count - 1))
            faint = nearest(e, times(e, _rest(e, x, 0), least))
            made = binary(e, "add", made, times(e, faint, _FAINT))
        return select(e, finite(e, x.val), made, x.val)

    return below(e, at, ("first slice", count), make)


def scale(e: Emitter, at: Operand) -> Val:
    """Return what a unit of the first slice is worth, 1 element on the axis."""

    def make(x: Operand) -> Val:
        return scaled.scales(e, x.val, x.axis, strategies.INT8_SHIFT)[1]

    return below(e, at, "unit", make)


def _slice(e: Emitter, x: Operand, number: int) -> Val:
    def make() -> Val:
        return scaled.saturated(e, _rest(e, x, number), 2**_BITS - 1)

    return e.derive(("part", number, x.val.name, x.axis), x.val, make)


def _rest(e: Emitter, x: Operand, number: int) -> Val:
    """What is left for a slice, in its units."""

    def make() -> Val:
        if number:
            rest = _rest(e, x, number - 1)
            rest = binary(e, "subtract", rest, _slice(e, x, number - 1))
            return times(e, rest, 2.0**_BITS)
        up, _ = scaled.scales(e, x.val, x.axis, strategies.INT8_SHIFT)
        tame = select(e, finite(e, x.val), x.val, constant(e, x.val, 0))
        return binary(e, "multiply", tame, e.broadcast(up, tame.shape))

    return e.derive(("rest", number, x.val.name, x.axis), x.val, make)


def span(e: Emitter, operand: Operand, first: int, end: int) -> Operand:
    """Return elements first to end - 1 of the contracted axis, one segment.

    Cut below a transpose, which the contraction absorbs.
    """
    v, axis, _ = operand
    if (first, end) == (0, v.shape[axis]):
        return Operand(v, axis, end - first)
    move = e.move_of(v)
    if move is not None and move[0] == "transpose":
        _, source, order = move
        source = source.standing_for(source.shape)
        inner = span(e, Operand(source, order[axis], 0), first, end).val
        return Operand(e.transpose(inner, order), axis, end - first)
    start = tuple(first if i == axis else 0 for i in range(len(v.shape)))
    limit = tuple(end if i == axis else n for i, n in enumerate(v.shape))
    cut = e.slice(v.standing_for(v.shape), start, limit, (1,) * len(v.shape))
    return Operand(cut, axis, end - first)


# ----------------------------------------------------------------------- many segments


def _loop(
    e: Emitter, left: Operand, right: Operand, strategy: Strategy, product: Product
) -> Val:
    """Add up the segments one after the other, in a loop."""
    stacks = [segmented(e, x, strategy) for x in (left, right)]
    count = stacks[0].shape[0]
    shape = _result(left.val.shape, right.val.shape)
    start = [e.scalar(I32, 0), e.full(e.scalar(F32, 0).standing_for(shape))]
    types = [(v.dtype, v.shape) for v in start]

    def condition(i: Val, total: Val) -> list[Val]:
        end = e.scalar(I32, count)
        text = f"stablehlo.compare LT, {i.name}, {end.name} : ({i.type}, {i.type}) -> "
        return [e.op(text + tensor_type(BOOL, ()), BOOL, ())]

    def body(i: Val, total: Val) -> list[Val]:
        a, b = (_segment_at(e, v, i) for v in stacks)
        rank = len(a.shape)
        part = _segment(
            e,
            Operand(a, rank - 1, a.shape[-1]),
            Operand(b, rank - 2, b.shape[-2]),
            strategy,
            product,
        )
        return [binary(e, "add", i, e.scalar(I32, 1)), binary(e, "add", total, part)]

    regions = f"{e.region(types, condition)}, {e.region(types, body)}"
    names = ", ".join(v.name for v in start)
    spelled = ", ".join(v.type for v in start)
    text = f'"stablehlo.while"({names}) ({regions}) : ({spelled}) -> ({spelled})'
    return e.ops(text, types)[1]


def _result(left: Shape, right: Shape) -> Shape:
    batch = tuple(max(a, b) for a, b in zip(left[:-2], right[:-2]))
    return (*batch, left[-2], right[-1])


def segmented(e: Emitter, at: Operand, strategy: Strategy) -> Val:
    """Return (segments, .., elements, ..), zeros behind the end of a run."""
    plain = Operand(at.val.standing_for(at.val.shape), at.axis, at.run)
    v, axis = scaled.segments(e, plain, _length(strategy))
    order = (axis - 1, *(i for i in range(len(v.shape)) if i != axis - 1))
    return e.transpose(v, order)


def _segment_at(e: Emitter, stack: Val, number: Val) -> Val:
    zero = e.scalar(I32, 0)
    places = ", ".join([number.name] + [zero.name] * (len(stack.shape) - 1))
    types = ", ".join([zero.type] * len(stack.shape))
    shape = (1, *stack.shape[1:])
    text = (
        f"stablehlo.dynamic_slice {stack.name}, {places}, sizes = {ints(shape)} : "
        f"({stack.type}, {types}) -> {tensor_type(stack.dtype, shape)}"
    )
    return e.reshape(e.op(text, stack.dtype, shape), shape[1:])
