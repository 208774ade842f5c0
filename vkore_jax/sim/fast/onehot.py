"""Products with a one-hot matrix: rows are added up where their index says.

The chip has no scatter-add, so the compiler makes the gradient of a lookup a product
with a matrix whose rows the vector unit compares on the spot: out[v] = sum over k of
[v = ids[k]] rhs[k].  The host has a scatter-add, and needs 1 / v of the additions.

A term 0 * rhs[k] is zero unless rhs[k] is infinite or NaN, which would reach every row;
whether there is such an element is only known at run time, so the product itself stands
in the other branch of a conditional.

The sliced strategies add up a segment's rows exactly before they round, so rows of one
index are added inside their segment first (`sliced.sums_of_equals`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkore_jax import dtypes
from vkore_jax.dtypes import F32, DType
from vkore_jax.isa import MICRO_OPS, Gemm, Group, MicroProgram, Strategy, Vec
from vkore_jax.isa.strategies import STRATEGIES as FACTS
from vkore_jax.sim.fast import sliced
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val
from vkore_jax.sim.fast.scaled import Operand, all_finite, either, whole
from vkore_jax.sim.fast.sliced import SLICED
from vkore_jax.sim.fast.strategies import STRATEGIES

EXACT = (
    Strategy.BF16X1,
    Strategy.BF16X3,
    Strategy.BF16X6,
    *(s for s, facts in FACTS.items() if facts.segment),
)
"""Strategies in which the factor 1 is exact in one part."""

_IOTA, _EQ, _CONVERT = (MICRO_OPS[n].code for n in ("iota", "eq", "convert"))


def indices(group: Group, stage: Gemm) -> int | None:
    """Return the tile of the indices when a product's left operand is one-hot.

    Only without batch axes: [row along axis -2 = ids along axis -1].
    """
    hot = group.tiles[stage.lhs]
    if stage.strategy not in EXACT or math.prod(hot.shape[:-2]) != 1:
        return None
    for made in group.stages:
        if isinstance(made, Vec) and made.outs == (stage.lhs,):
            if len(made.ins) != 1 or not _compares(made.program, len(hot.shape) - 2):
                return None
            line = group.tiles[made.ins[0]].shape
            alike = line[-2] == 1 and line[-1] == hot.shape[-1]
            return made.ins[0] if alike else None
    return None


def _compares(program: MicroProgram, axis: int) -> bool:
    """True when a program converts (index along the axis = its input) to numbers."""
    if len(program.insns) < 2 or not program.inputs[0].is_integer:
        return False
    iota, eq, *rest = program.insns
    last = len(program.insns)
    return (
        iota.code == _IOTA
        and iota.imm == bytes((axis,))
        and eq.code == _EQ
        and sorted(eq.srcs) == [0, 1]
        and all(x.code == _CONVERT and x.srcs == (2 + i,) for i, x in enumerate(rest))
        and program.outputs == (last,)
    )


def gemm(
    e: Emitter,
    ids: Val,
    rhs: Val,
    strategy: Strategy,
    dtype: DType,
    shape: Shape,
    product: Callable[[], Val],
) -> Val:
    """Emit the product of a one-hot matrix.

    Args:
        e: where to write.
        ids: (..., 1, k) integers, one for each row of `rhs`.
        rhs: (..., k, n) floats.
        strategy: precision strategy, one of `EXACT`.
        dtype: element type of the result.
        shape: (..., v, n).
        product: emits the product itself.
    """
    rhs = e.full(rhs)
    count, width = rhs.shape[-2:]
    every = all_finite(e, rhs)
    places = e.reshape(e.full(ids), (count,))

    def added(_: Val, rows: Val) -> Val:
        return _scatter(e, places, e.reshape(e.full(rows), (count, width)), shape[-2])

    def sparse() -> list[Val]:
        hot = e.scalar(dtypes.BF16, 1)
        right = Operand(rhs, len(rhs.shape) - 2, count)
        if strategy in SLICED:
            ids = e.reshape(e.full(places), (1, count))
            rows = sliced.sums_of_equals(e, ids, right, strategy)
            out = added(hot, rows)
        elif FACTS[strategy].segment:
            # 1 has no second part, so no product of parts is left out.
            out = added(hot, whole(e, right, strategy))
        else:
            left = Operand(hot, -1, count)
            out = STRATEGIES[strategy](e, left, right, added, count)
        return [e.reshape(e.convert(out, dtype), shape)]

    return either(e, every, sparse, lambda: [e.full(product())], dtype, shape)


def _scatter(e: Emitter, places: Val, rows: Val, count: int) -> Val:
    """Add rows to the rows of zeros that `places` names; those outside are dropped."""
    shape = (count, rows.shape[-1])
    zeros = e.broadcast(e.scalar(F32, 0), shape)

    def add(a: Val, b: Val) -> list[Val]:
        return [e.op(f"stablehlo.add {a.name}, {b.name} : {a.type}", F32, ())]

    region = e.region([(F32, ()), (F32, ())], add)
    numbers = (
        "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    text = (
        f'"stablehlo.scatter"({zeros.name}, {places.name}, {rows.name}) <{{'
        f"indices_are_sorted = false, scatter_dimension_numbers = {numbers}, "
        f"unique_indices = false}}> ({region}) : ({zeros.type}, {places.type}, "
        f"{rows.type}) -> {zeros.type}"
    )
    return e.op(text, F32, shape)
