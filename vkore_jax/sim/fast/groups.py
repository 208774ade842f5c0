"""Groups: stages on whole tensors.  Grid, blocks, slots and phases are schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vkore_jax.dtypes import BOOL, F32, DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import (
    STAGES,
    Gemm,
    Group,
    Load,
    Reduce,
    ReduceKind,
    Store,
    Tile,
    Transpose,
    Vec,
)
from vkore_jax.isa.rules import Rules
from vkore_jax.sim.fast import matrix, micro, onehot
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, tensor_type
from vkore_jax.sim.fast.reductions import fold, identity, top
from vkore_jax.sim.fast.state import State

Tiles = dict[int, Val]
StageRule = Callable[[State, Group, Tiles, Any], None]

RULES: Rules[StageRule] = Rules("fast stages", over=STAGES.values())


def run(s: State, group: Group) -> None:
    """Translate one group."""
    tiles: Tiles = {}
    for stage in group.stages:
        RULES[type(stage)](s, group, tiles, stage)


def _tile(tiles: Tiles, number: int) -> Val:
    try:
        return tiles[number]
    except KeyError:
        raise InvalidProgram(f"tile {number} is read before it is written") from None


def _set(tiles: Tiles, number: int, tile: Tile, val: Val) -> None:
    if val.logical != tile.shape or val.dtype is not tile.dtype:
        raise InvalidProgram(
            f"tile {number} is {tile.dtype}{list(tile.shape)}, the stage makes "
            f"{val.dtype}{list(val.logical)}"
        )
    tiles[number] = val


@RULES.rule(Load)
def load(s: State, group: Group, tiles: Tiles, stage: Load) -> None:
    _set(tiles, stage.tile, group.tiles[stage.tile], s.read(stage.src))


@RULES.rule(Store)
def store(s: State, group: Group, tiles: Tiles, stage: Store) -> None:
    s.write(stage.dst, _tile(tiles, stage.tile))


@RULES.rule(Gemm)
def gemm(s: State, group: Group, tiles: Tiles, stage: Gemm) -> None:
    out = group.tiles[stage.out]
    lhs, rhs = _tile(tiles, stage.lhs), _tile(tiles, stage.rhs)

    def product() -> Val:
        return matrix.gemm(s.e, lhs, rhs, stage.strategy, out.dtype, out.shape)

    ids = onehot.indices(group, stage)
    if ids is None or not rhs.dtype.is_float:
        _set(tiles, stage.out, out, product())
        return
    how = (stage.strategy, out.dtype, out.shape)
    made = onehot.gemm(s.e, _tile(tiles, ids), rhs, *how, product)
    _set(tiles, stage.out, out, made)


@RULES.rule(Vec)
def vec(s: State, group: Group, tiles: Tiles, stage: Vec) -> None:
    inputs = [_tile(tiles, t) for t in stage.ins]
    shape = group.tiles[stage.outs[0]].shape if stage.outs else ()
    for number, val in zip(stage.outs, micro.run(s.e, stage.program, inputs, shape)):
        _set(tiles, number, group.tiles[number], val)


@RULES.rule(Reduce)
def reduce(s: State, group: Group, tiles: Tiles, stage: Reduce) -> None:
    v = _reducible(s.e, _tile(tiles, stage.src), stage.axes)
    kept = tuple(1 if i in stage.axes else n for i, n in enumerate(v.logical))
    if stage.kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN):
        index_type = group.tiles[stage.outs[1]].dtype
        made = _arg(s.e, v, stage.kind, stage.axes[0], index_type)
    else:
        wide = s.e.convert(v, F32) if micro.narrower(v.dtype) else v
        how = _logsumexp if stage.kind is ReduceKind.LOGSUMEXP else fold
        made = [how(s.e, wide, stage.kind, stage.axes)]
        made = [s.e.convert(made[0], group.tiles[stage.outs[0]].dtype)]
    for number, val in zip(stage.outs, made):
        _set(tiles, number, group.tiles[number], val.standing_for(kept))


@RULES.rule(Transpose)
def transpose(s: State, group: Group, tiles: Tiles, stage: Transpose) -> None:
    v = _tile(tiles, stage.src)
    rank = len(v.logical)
    made = s.e.transpose(v, (*range(rank - 2), rank - 1, rank - 2))
    _set(tiles, stage.out, group.tiles[stage.out], made)


def _reducible(e: Emitter, v: Val, axes: Shape) -> Val:
    """Repeat along the axes that will be reduced, keep the others small."""
    base = v.shape if v.shape else (1,) * len(v.logical)
    shape = tuple(v.logical[i] if i in axes else n for i, n in enumerate(base))
    return e.broadcast(v, shape).standing_for(v.logical)


def _logsumexp(e: Emitter, v: Val, kind: ReduceKind, axes: Shape) -> Val:
    """Log of the sum of exponentials, from the largest element unless infinite."""
    best = fold(e, v, ReduceKind.MAX, axes)
    zero = e.broadcast(e.scalar(v.dtype, 0), best.shape)
    size = e.op(f"stablehlo.abs {best.name} : {best.type}", best.dtype, best.shape)
    limit = e.broadcast(e.scalar(v.dtype, np.inf), best.shape)
    base = _select(e, _compare(e, "EQ", size, limit), zero, best)
    whole = e.broadcast(base, v.shape)
    text = f"stablehlo.subtract {v.name}, {whole.name} : {v.type}"
    low = e.op(text, v.dtype, v.shape)
    powers = e.op(f"stablehlo.exponential {low.name} : {v.type}", v.dtype, v.shape)
    total = fold(e, powers, ReduceKind.SUM, axes)
    log = e.op(f"stablehlo.log {total.name} : {total.type}", total.dtype, total.shape)
    return e.op(
        f"stablehlo.add {base.name}, {log.name} : {base.type}", base.dtype, base.shape
    )


def _arg(
    e: Emitter, v: Val, kind: ReduceKind, axis: int, index_type: DType
) -> list[Val]:
    """Value and first index, in plain reductions, which XLA vectorizes.

    A NaN is hit by x != x; when there is one the extreme is NaN and equals nothing, so
    the first NaN wins.
    """
    wide = e.convert(v, F32) if micro.narrower(v.dtype) else v
    monoid = ReduceKind.MAX if kind is ReduceKind.ARGMAX else ReduceKind.MIN
    best = fold(e, wide, monoid, (axis,))
    whole = e.broadcast(best, wide.shape)
    hit = _compare(e, "EQ", wide, whole)
    if wide.dtype.is_float:
        nan = _compare(e, "NE", wide, wide)
        hit = e.op(f"stablehlo.or {hit.name}, {nan.name} : {hit.type}", BOOL, hit.shape)
    place = e.broadcast(e.iota(index_type, v.shape, axis), v.shape)
    never = e.broadcast(e.scalar(index_type, top(index_type)), v.shape)
    first = fold(e, _select(e, hit, place, never), ReduceKind.MIN, (axis,))
    # The element itself, not `best`: of equal zeros the first one's sign counts.  When
    # nobody uses the value XLA drops this.
    here = _compare(e, "EQ", place, e.broadcast(first, wide.shape))
    least = e.broadcast(e.scalar(wide.dtype, identity(monoid, wide.dtype)), wide.shape)
    value = fold(e, _select(e, here, wide, least), monoid, (axis,))
    return [e.convert(value, v.dtype), first]


def _select(e: Emitter, p: Val, a: Val, b: Val) -> Val:
    text = f"stablehlo.select {p.name}, {a.name}, {b.name} : {p.type}, {a.type}"
    return e.op(text, a.dtype, a.shape)


def _compare(e: Emitter, direction: str, a: Val, b: Val) -> Val:
    text = (
        f"stablehlo.compare {direction}, {a.name}, {b.name} : "
        f"({a.type}, {b.type}) -> {tensor_type(BOOL, a.shape)}"
    )
    return e.op(text, BOOL, a.shape)


RULES.complete()
