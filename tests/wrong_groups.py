"""Groups that break one rule each: tiles, stages, the K loop, micro-programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.builder import GroupBuilder, ProgramBuilder, binary, micro, unary
from tests.wrong_programs import Collection, Wrong
from vkore_jax import dtypes
from vkore_jax.dtypes import BF16, BOOL, C64, F32, F64, I8, I32, DType
from vkore_jax.errors import (
    HazardError,
    InvalidProgram,
    ResourceExhausted,
    VkoreError,
)
from vkore_jax.isa import (
    MICRO_OPS,
    NO_AXIS,
    Gemm,
    Load,
    MicroInsn,
    MicroProgram,
    Phase,
    Reduce,
    ReduceKind,
    Store,
    Strategy,
    Transpose,
    Vec,
)

TAIL = Phase.TAIL
WRONG_GROUPS = wrong = Collection()

# ------------------------------------------------------------------------------- groups


@wrong(InvalidProgram, "block must be >= 1")
def empty_block(b: ProgramBuilder) -> None:
    b.group([(4, 0)])


@wrong(InvalidProgram, "K axis must be the last")
def k_axis_not_last(b: ProgramBuilder) -> None:
    b.group([(4, 2), (4, 2)], 0)


@wrong(InvalidProgram, "they must be equal")
def tile_cut_by_another_extent(b: ProgramBuilder) -> None:
    g = b.group([(5, 2)])
    g.store(b.result(F32, (4,)), g.load(b.arg(F32, (4,)), (0,)))


@wrong(InvalidProgram, "the grid has 1")
def tile_cut_by_no_axis(b: ProgramBuilder) -> None:
    g = b.group([(4, 2)])
    g.tiles.append(replace(g.tiles[g.tile(F32, (4,), (0,))], axes=(3,)))


@wrong(InvalidProgram, "extent 1 must not be cut")
def unit_axis_cut(b: ProgramBuilder) -> None:
    g = b.group([(1, 1)])
    g.store(b.result(F32, (1,)), g.load(b.arg(F32, (1,)), (0,)))


@wrong(InvalidProgram, "cuts it twice")
def axis_cuts_twice(b: ProgramBuilder) -> None:
    g = b.group([(4, 2)])
    g.store(b.result(F32, (4, 4)), g.load(b.arg(F32, (4, 4)), (0, 0)))


@wrong(InvalidProgram, "slots must be 1 or 2")
def three_slots(b: ProgramBuilder) -> None:
    g = b.group([(4, 2)])
    g.store(b.result(F32, (4,)), g.load(b.arg(F32, (4,)), (0,), slots=3))


@wrong(InvalidProgram, "must be a multiple of 16, found 8")
def misaligned_tile(b: ProgramBuilder) -> None:
    g = b.group([])
    g.store(b.result(F32, (4,)), g.load(b.arg(F32, (4,)), at=8))


@wrong(HazardError, "tiles 0 and 1 overlap in the scratchpad")
def overlapping_tiles(b: ProgramBuilder) -> None:
    g = b.group([])
    x, y = g.load(b.arg(F32, (4,)), at=0), g.load(b.arg(F32, (4,)), at=0)
    g.store(b.result(F32, (4,)), g.vec(binary("add", F32), [x, y], at=16))


@wrong(HazardError, "overlap in the scratchpad")
def output_over_input_tile(b: ProgramBuilder) -> None:
    g = b.group([])
    x = g.load(b.arg(F32, (4,)), at=0)
    g.store(b.result(F32, (4,)), g.vec(unary("neg", F32), [x], at=0))


@wrong(HazardError, "overlap in the scratchpad")
def reuse_of_a_double_buffer(b: ProgramBuilder) -> None:
    g = b.group([(8, 4)])
    x = g.load(b.arg(F32, (8,)), (0,), slots=2, at=0)
    y = g.vec(unary("neg", F32), [x], at=64)
    g.store(b.result(F32, (8,)), g.vec(unary("neg", F32), [y], at=16))


@wrong(InvalidProgram, "read before a stage writes it")
def tile_never_written(b: ProgramBuilder) -> None:
    g = b.group([])
    g.store(b.result(F32, (4,)), g.tile(F32, (4,)))


@wrong(InvalidProgram, "written by two stages")
def tile_written_twice(b: ProgramBuilder) -> None:
    g = b.group([])
    x = b.arg(F32, (4,))
    t = g.load(x)
    g.stages.append(Load(t, x, Phase.BODY))


@wrong(InvalidProgram, "tile 9 does not exist")
def unknown_tile(b: ProgramBuilder) -> None:
    g = b.group([])
    g.stages.append(Store(b.result(F32, (4,)), 9, Phase.BODY))


def _k_group(b: ProgramBuilder) -> tuple[GroupBuilder, int, int]:
    g = b.group([(4, 2), (8, 4)], 1)
    x = g.load(b.arg(F32, (4, 8)), (0, 1))
    y = g.load(b.arg(F32, (8, 4)), (1, None))
    return g, x, y


@wrong(InvalidProgram, "make it a TAIL stage")
def body_reads_partial_sums(b: ProgramBuilder) -> None:
    g, x, y = _k_group(b)
    g.store(b.result(F32, (4, 4)), g.gemm(x, y))


@wrong(InvalidProgram, "only the last K block exists")
def tail_reads_k_block(b: ProgramBuilder) -> None:
    g, x, _ = _k_group(b)
    g.store(b.result(F32, (4, 8)), x, TAIL)


@wrong(InvalidProgram, "only by the K axis")
def contraction_cut_by_the_grid(b: ProgramBuilder) -> None:
    g = b.group([(8, 4)])
    x, y = g.load(b.arg(F32, (4, 8)), (None, 0)), g.load(b.arg(F32, (8, 4)), (0, None))
    g.store(b.result(F32, (4, 4)), g.gemm(x, y))


@wrong(InvalidProgram, "only the K axis may cut it")
def reduction_cut_by_the_grid(b: ProgramBuilder) -> None:
    g = b.group([(4, 2), (8, 4)])
    x = g.load(b.arg(F32, (4, 8)), (0, 1))
    g.store(b.result(F32, (4, 1)), g.reduce(x, ReduceKind.SUM, (1,)))


@wrong(InvalidProgram, "must have shape (4, 1)")
def reduction_shape(b: ProgramBuilder) -> None:
    g = b.group([])
    x, out = g.load(b.arg(F32, (4, 8))), g.tile(F32, (4, 8))
    g.stages.append(Reduce(x, (out,), ReduceKind.SUM, (1,), Phase.BODY))


@wrong(InvalidProgram, "AND does not reduce f32")
def reduction_kind(b: ProgramBuilder) -> None:
    g = b.group([])
    g.reduce(g.load(b.arg(F32, (4, 8))), ReduceKind.AND, (1,))


@wrong(InvalidProgram, "indices must be integers")
def argmax_index_type(b: ProgramBuilder) -> None:
    g = b.group([])
    g.reduce(g.load(b.arg(F32, (4, 8))), ReduceKind.ARGMAX, (1,), index=F32)


@wrong(InvalidProgram, "must be f32[8, 4] cut by (255, 255)")
def transpose_shape(b: ProgramBuilder) -> None:
    g = b.group([])
    x, out = g.load(b.arg(F32, (4, 8))), g.tile(F32, (4, 8))
    g.stages.append(Transpose(x, out, Phase.BODY))


@wrong(InvalidProgram, "a tile of rank >= 2 can be turned")
def transpose_rank(b: ProgramBuilder) -> None:
    g = b.group([])
    x, out = g.load(b.arg(F32, (4,))), g.tile(F32, (4,))
    g.stages.append(Transpose(x, out, Phase.BODY))


@wrong(InvalidProgram, "do not broadcast to")
def batch_extents(b: ProgramBuilder) -> None:
    g = b.group([])
    x, y = g.load(b.arg(F32, (2, 4, 4))), g.load(b.arg(F32, (3, 4, 4)))
    out = g.tile(F32, (3, 4, 4))
    g.stages.append(Gemm(x, y, out, Strategy.BF16X1, Phase.BODY))


@wrong(InvalidProgram, "does not broadcast to")
def vec_shapes(b: ProgramBuilder) -> None:
    g = b.group([])
    x, y = g.load(b.arg(F32, (4,))), g.load(b.arg(F32, (3,)))
    out = g.tile(F32, (4,))
    g.stages.append(Vec((x, y), (out,), binary("add", F32), Phase.BODY))


@wrong(InvalidProgram, "inputs of the micro-program are")
def vec_types(b: ProgramBuilder) -> None:
    g = b.group([])
    g.vec(unary("neg", I32), [g.load(b.arg(F32, (4,)))])


def _malformed(b: ProgramBuilder, insn: MicroInsn) -> None:
    g = b.group([])
    x, out = g.load(b.arg(F32, (4,))), g.tile(insn.dtype, (4,))
    program = MicroProgram((F32,), (insn,), (1,))
    g.stages.append(Vec((x,), (out,), program, Phase.BODY))


@wrong(InvalidProgram, "result type must be f32")
def micro_result_type(b: ProgramBuilder) -> None:
    _malformed(b, MicroInsn(MICRO_OPS["neg"].code, BF16, (0,)))


@wrong(InvalidProgram, "reads register 5")
def micro_register(b: ProgramBuilder) -> None:
    _malformed(b, MicroInsn(MICRO_OPS["neg"].code, F32, (5,)))


@wrong(InvalidProgram, "unknown micro-op code")
def micro_code(b: ProgramBuilder) -> None:
    _malformed(b, MicroInsn(0x7FF, F32, (0,)))


@wrong(InvalidProgram, "iota along axis 2")
def iota_axis(b: ProgramBuilder) -> None:
    g = b.group([])
    g.vec(micro().iota(I32, 2).out(), [], shape=(4,))


@wrong(InvalidProgram, "must have the dtype and shape of tile 0")
def load_shape(b: ProgramBuilder) -> None:
    g = b.group([])
    g.stages.append(Load(g.tile(F32, (5,)), b.arg(F32, (4,)), Phase.BODY))


# ------------------------------------------------------------------- stages, by tables

Cut = tuple[tuple[int, ...], tuple[int | None, ...]]
"""Shape and grid axes of a tile."""


def whole(*shape: int) -> Cut:
    return shape, (None,) * len(shape)


def row(
    id: str, says: str, build: Any, error: type[VkoreError] = InvalidProgram
) -> None:
    """Register a group of a table."""
    WRONG_GROUPS.append(Wrong(id, build, error, says))


def _loaded(b: ProgramBuilder, g: GroupBuilder, dtype: DType, cut: Cut) -> int:
    return g.load(b.arg(dtype, cut[0]), cut[1])


def _gemm(
    id: str,
    says: str,
    lhs: Cut,
    rhs: Cut,
    out: Cut,
    grid: tuple[tuple[int, int], ...] = (),
    k: int = NO_AXIS,
    types: tuple[DType, DType, DType] = (F32, F32, F32),
    strategy: Strategy = Strategy.BF16X1,
    error: type[VkoreError] = InvalidProgram,
) -> None:
    def build(b: ProgramBuilder) -> None:
        g = b.group(grid, k)
        x, y = _loaded(b, g, types[0], lhs), _loaded(b, g, types[1], rhs)
        tile = g.tile(types[2], *out)
        g.stages.append(Gemm(x, y, tile, strategy, Phase.BODY))

    row(f"gemm-{id}", says, build, error)


_gemm("rank", "one rank >= 2", whole(4), whole(4), whole(4))
_gemm("rank-lhs", "one rank >= 2", whole(1, 4, 4), whole(4, 4), whole(4, 4))
_gemm("rank-rhs", "one rank >= 2", whole(4, 4), whole(1, 4, 4), whole(4, 4))
_gemm("k", "no transposed read", whole(4, 5), whole(6, 4), whole(4, 4))
_gemm("m", "no transposed read", whole(4, 5), whole(5, 3), whole(6, 3))
_gemm("n", "no transposed read", whole(4, 5), whole(5, 3), whole(4, 6))
_AXES = ((4, 2), (6, 2), (8, 2))
for _id, _says, _lhs, _rhs, _out in (
    ("m-cut", "m and n must be cut alike", (0, None), (None, None), (None, None)),
    ("n-cut", "m and n must be cut alike", (None, None), (None, 1), (None, None)),
    ("k-lhs", "k must be cut alike", (None, 2), (None, None), (None, None)),
    ("k-rhs", "k must be cut alike", (None, None), (2, None), (None, None)),
):
    _gemm(_id, _says, ((4, 8), _lhs), ((8, 6), _rhs), ((4, 6), _out), _AXES, 2)
for _id, _x, _y, _z in (
    ("batch-lhs", 2, 3, 3),
    ("batch-rhs", 3, 2, 3),
    ("batch-out", 1, 1, 2),
    ("batch-one", 2, 2, 1),
):
    _says = f"extents {_x} and {_y} do not broadcast to {_z}"
    _gemm(_id, _says, whole(_x, 4, 4), whole(_y, 4, 4), whole(_z, 4, 4))
for _id, _p, _q in (("lhs", 0, None), ("rhs", None, 0)):
    _gemm(
        f"batch-cut-{_id}",
        "batch axis 0 must be cut alike",
        ((2, 4, 4), (_p, None, None)),
        ((2, 4, 4), (_q, None, None)),
        whole(2, 4, 4),
        ((2, 1),),
    )
_gemm(
    "segments",
    "cut in multiples of it, found blocks of 48",
    ((4, 64), (None, 0)),
    ((64, 4), (0, None)),
    whole(4, 4),
    ((64, 48),),
    0,
    strategy=Strategy.FP8X1,
)
_I4, _F8 = dtypes.by_short("i4"), dtypes.by_short("f8E4M3FN")
_F8_OTHER = dtypes.by_short("f8E4M3")
for _id, _strategy, _types, _says in (
    ("lanes-kind", Strategy.LANES, (F32, F32, I32), "operands of one type"),
    ("lanes-int", Strategy.LANES, (I32, I32, F32), "operands of one type"),
    ("lanes-bool", Strategy.LANES, (BOOL, BOOL, I32), "operands of one type"),
    ("lanes-into-bool", Strategy.LANES, (I32, I32, BOOL), "operands of one type"),
    ("int8-lhs", Strategy.INT8, (_I4, I8, I32), "takes i8 operands"),
    ("int8-rhs", Strategy.INT8, (I8, _I4, I32), "takes i8 operands"),
    ("int8-out", Strategy.INT8, (I8, I8, BOOL), "takes i8 operands"),
    ("fp8-lhs", Strategy.FP8, (_F8_OTHER, _F8, F32), "takes float8 operands"),
    ("fp8-rhs", Strategy.FP8, (_F8, _F8_OTHER, F32), "takes float8 operands"),
    ("fp8-wide", Strategy.FP8, (BF16, BF16, F32), "takes float8 operands"),
    ("fp8-half", Strategy.FP8, (_F8, BF16, F32), "takes float8 operands"),
    ("fp8-i8", Strategy.FP8, (_F8, I8, F32), "takes float8 operands"),
    ("fp8-out", Strategy.FP8, (_F8, _F8, I32), "takes float8 operands"),
    ("bf16-lhs", Strategy.BF16X1, (I32, F32, F32), "at most 32 bits"),
    ("bf16-rhs", Strategy.BF16X1, (F32, I32, F32), "at most 32 bits"),
    ("bf16-out", Strategy.BF16X1, (F32, F32, I32), "at most 32 bits"),
    ("bf16-f64", Strategy.BF16X1, (F32, F64, F32), "at most 32 bits"),
):
    _all = whole(4, 4)
    _gemm(_id, _says, _all, _all, _all, types=_types, strategy=_strategy)


def _over(
    id: str, need: int, shape: tuple[int, int], dtype: DType, kind: ReduceKind | None
) -> None:
    """Register sums over K that need more than the 4,096 bytes of accumulators."""

    def build(b: ProgramBuilder) -> None:
        g = b.group([(4, 1)], 0)
        if kind is not None:
            src = _loaded(b, g, dtype, ((4, shape[0]), (0, None)))
            g.reduce(src, kind, (0,))
            return
        x = _loaded(b, g, dtype, ((shape[0], 4), (None, 0)))
        y = _loaded(b, g, dtype, ((4, shape[1]), (0, None)))
        lanes = dtype is not F32
        g.gemm(x, y, dtype, Strategy.LANES if lanes else Strategy.BF16X1)

    row(f"sums-{id}", f"need {need} bytes of accumulators", build, ResourceExhausted)


_over("gemm", 25 * 41 * 4, (25, 41), F32, None)
_over("lanes-f64", 27 * 19 * 8, (27, 19), F64, None)
_over("lanes-i8", 25 * 41 * 4, (25, 41), I8, None)
_over("sum", 1025 * 4, (1025, 1), F32, ReduceKind.SUM)
_over("sum-bf16", 1025 * 4, (1025, 1), BF16, ReduceKind.SUM)
_over("sum-f64", 513 * 8, (513, 1), F64, ReduceKind.SUM)
_over("logsumexp", 513 * 8, (513, 1), F32, ReduceKind.LOGSUMEXP)
_over("logsumexp-f64", 257 * 16, (257, 1), F64, ReduceKind.LOGSUMEXP)
_over("argmax", 342 * 12, (342, 1), F32, ReduceKind.ARGMAX)
_over("argmin", 342 * 12, (342, 1), F32, ReduceKind.ARGMIN)


@wrong(ResourceExhausted, "need 4100 bytes of accumulators")
def sums_of_two_products(b: ProgramBuilder) -> None:
    g = b.group([(4, 1)], 0)
    x = _loaded(b, g, F32, ((25, 4), (None, 0)))
    for n in (20, 21):
        g.gemm(x, _loaded(b, g, F32, ((4, n), (0, None))))


_SOURCE, _VALUE, _INDEX = whole(4, 8), (F32, whole(4, 1)), (I32, whole(4, 1))


def _reduce(
    id: str,
    says: str,
    src: Cut = _SOURCE,
    outs: tuple[tuple[DType, Cut], ...] = (_VALUE,),
    kind: ReduceKind = ReduceKind.SUM,
    axes: tuple[int, ...] = (1,),
    dtype: DType = F32,
    grid: tuple[tuple[int, int], ...] = (),
) -> None:
    def build(b: ProgramBuilder) -> None:
        g = b.group(grid)
        x = _loaded(b, g, dtype, src)
        tiles = tuple(g.tile(t, *cut) for t, cut in outs)
        g.stages.append(Reduce(x, tiles, kind, axes, Phase.BODY))

    row(f"reduce-{id}", says, build)


_reduce("none", "axes must be distinct and at least one", axes=())
_reduce("twice", "axes must be distinct and at least one", axes=(1, 1))
_reduce("unknown", "axes (2,) do not exist", axes=(2,))
_reduce("below", "axes (-1,) do not exist", axes=(-1,))
_reduce("outs", "SUM writes 1 tiles, found 2", outs=(_VALUE, _INDEX))
_reduce("arg-outs", "ARGMAX writes 2 tiles", kind=ReduceKind.ARGMAX)
_reduce("shape", "must have shape (4, 1)", outs=((F32, whole(4, 2)),))
_reduce(
    "cut",
    "cut by (255, 255), found",
    grid=((4, 2),),
    outs=((F32, ((4, 1), (0, None))),),
)
_reduce("type", "SUM of f32 gives f32", outs=((I32, whole(4, 1)),))
_reduce("wide", "SUM of f32 gives f32", outs=((F64, whole(4, 1)),))
_reduce("narrow", "SUM of f32 gives f32", outs=((BF16, whole(4, 1)),))
_reduce("max-wide", "MAX of bf16", dtype=BF16, kind=ReduceKind.MAX)
_reduce("sum-int", "SUM of i8 gives i8", dtype=I8)
_reduce("sum-into", "SUM of bf16", dtype=BF16, outs=((F64, whole(4, 1)),))
_reduce("sum-integer", "SUM of bf16", dtype=BF16, outs=((I32, whole(4, 1)),))
_reduce(
    "arg-axes",
    "ARGMIN reduces one axis",
    kind=ReduceKind.ARGMIN,
    axes=(0, 1),
    outs=((F32, whole(1, 1)), (I32, whole(1, 1))),
)
_reduce(
    "arg-empty",
    "of an empty axis has no value",
    kind=ReduceKind.ARGMAX,
    src=whole(4, 0),
    outs=(_VALUE, _INDEX),
)
_reduce(
    "arg-index",
    "indices must be integers",
    kind=ReduceKind.ARGMAX,
    outs=(_VALUE, (BOOL, whole(4, 1))),
)
for _kind, _type in (
    (ReduceKind.MAX, C64),
    (ReduceKind.XOR, F32),
    (ReduceKind.LOGSUMEXP, I32),
):
    _says = f"{_kind.name} does not reduce {_type}"
    _reduce(_kind.name.lower(), _says, kind=_kind, dtype=_type)


def _vec(
    id: str,
    says: str,
    ins: tuple[Cut, ...] = (_SOURCE,),
    outs: tuple[Cut, ...] = (_SOURCE,),
    grid: tuple[tuple[int, int], ...] = (),
    types: tuple[DType, ...] = (F32, F32),
    code: MicroProgram | None = None,
) -> None:
    def build(b: ProgramBuilder) -> None:
        g = b.group(grid)
        tiles = tuple(_loaded(b, g, F32, cut) for cut in ins)
        made = tuple(g.tile(t, *cut) for t, cut in zip(types, outs))
        g.stages.append(Vec(tiles, made, code or unary("neg", F32), Phase.BODY))

    row(f"vec-{id}", says, build)


_TWICE = replace(unary("neg", F32), outputs=(0, 1))
_vec("no-output", "must have an output", outs=())
_vec("output-type", "outputs of the micro-program", types=(I32,))
_vec("outputs", "must have one shape", outs=(whole(4, 8), whole(4, 4)), code=_TWICE)
_vec(
    "outputs-cut",
    "and be cut alike",
    outs=(((4, 8), (0, None)), whole(4, 8)),
    ins=(((4, 8), (0, None)),),
    grid=((4, 2),),
    code=_TWICE,
)
_vec("rank", "tile 0 has rank 1", ins=(whole(8),))
_vec("extent", "does not broadcast", ins=(whole(4, 4),))
_vec("cut", "does not broadcast", ins=(((4, 8), (0, None)),), grid=((4, 2),))
_vec("more", "does not broadcast", ins=(whole(4, 8),), outs=(whole(1, 8),))


@wrong(InvalidProgram, "must have the dtype and shape of tile 0")
def load_type(b: ProgramBuilder) -> None:
    g = b.group([])
    g.stages.append(Load(g.tile(I32, (4,)), b.arg(F32, (4,)), Phase.BODY))


@wrong(InvalidProgram, "view touches elements")
def load_outside(b: ProgramBuilder) -> None:
    g = b.group([])
    g.load(replace(b.arg(F32, (4,)), offset=1))


@wrong(InvalidProgram, "must have the dtype and shape of tile 0")
def store_shape(b: ProgramBuilder) -> None:
    g = b.group([])
    g.store(b.result(F32, (2, 2)), g.load(b.arg(F32, (4,))))


@wrong(InvalidProgram, "must have the dtype and shape of tile 0")
def store_type(b: ProgramBuilder) -> None:
    g = b.group([])
    g.store(b.result(I32, (4,)), g.load(b.arg(F32, (4,))))


@wrong(InvalidProgram, "must be dense")
def store_strided(b: ProgramBuilder) -> None:
    g = b.group([])
    r = replace(b.result(F32, (4,)), strides=(-1,), offset=3)
    g.store(r, g.load(b.arg(F32, (4,))))


@wrong(InvalidProgram, "must be the whole buffer")
def store_of_a_part(b: ProgramBuilder) -> None:
    g = b.group([])
    r = replace(b.result(F32, (5,)), shape=(4,))
    g.store(r, g.load(b.arg(F32, (4,))))


@wrong(InvalidProgram, "tile 1 does not exist; the group has 1")
def next_tile(b: ProgramBuilder) -> None:
    g = b.group([])
    g.load(b.arg(F32, (4,)))
    g.store(b.result(F32, (4,)), 1)


@wrong(InvalidProgram, "tile 0 does not exist")
def write_of_no_tile(b: ProgramBuilder) -> None:
    b.group([]).stages.append(Load(0, b.arg(F32, (4,)), Phase.BODY))


@wrong(InvalidProgram, "in stage 1 (store)")
def stage_in_the_message(b: ProgramBuilder) -> None:
    g = b.group([])
    g.load(b.arg(F32, (4,)))
    g.store(b.result(F32, (5,)), 0)


@wrong(InvalidProgram, "a TAIL stage writes tile 1, which K cuts")
def tail_writes_k_block(b: ProgramBuilder) -> None:
    g, _, _ = _k_group(b)
    g.stages.pop()
    g.stages.append(Load(1, b.arg(F32, (8, 4)), TAIL))


@wrong(InvalidProgram, "make it a TAIL stage")
def body_reads_partial_reduction(b: ProgramBuilder) -> None:
    g, x, _ = _k_group(b)
    out = g.reduce(x, ReduceKind.SUM, (1,))
    g.vec(unary("neg", F32), [out])


@wrong(InvalidProgram, "make it a TAIL stage")
def body_reads_partial_index(b: ProgramBuilder) -> None:
    g, x, _ = _k_group(b)
    _, index = g.reduce(x, ReduceKind.ARGMAX, (1,))
    g.vec(unary("neg", I32), [index])


@wrong(InvalidProgram, "3 extents but 2 axes")
def tile_axes(b: ProgramBuilder) -> None:
    g = b.group([])
    g.tiles.append(replace(g.tiles[g.tile(F32, (4, 4))], shape=(4, 4, 1)))


@wrong(InvalidProgram, "must be >= 0")
def tile_extent(b: ProgramBuilder) -> None:
    g = b.group([])
    g.tiles.append(replace(g.tiles[g.tile(F32, (4,))], shape=(-1,)))


@wrong(InvalidProgram, "slots must be 1 or 2, found 0")
def no_slots(b: ProgramBuilder) -> None:
    g = b.group([])
    g.tiles.append(replace(g.tiles[g.tile(F32, (4,))], slots=0))


@wrong(ResourceExhausted, "tile 0 ends at byte 16400 of the scratchpad")
def one_slot_too_far(b: ProgramBuilder) -> None:
    g = b.group([])
    g.load(b.arg(F32, (5,)), at=16368)
    b.scratchpad_bytes = 16384


@wrong(ResourceExhausted, "tile 0 ends at byte 96 of the scratchpad")
def two_slots(b: ProgramBuilder) -> None:
    g = b.group([(9, 9)])
    g.load(b.arg(F32, (9,)), (0,), slots=2)
    b.scratchpad_bytes = 95


@wrong(InvalidProgram, "must be f32[8, 4] cut by (255, 255)")
def transpose_type(b: ProgramBuilder) -> None:
    g = b.group([])
    x, out = g.load(b.arg(F32, (4, 8))), g.tile(I32, (8, 4))
    g.stages.append(Transpose(x, out, Phase.BODY))


@wrong(InvalidProgram, "cut by (255, 0)")
def transpose_cut(b: ProgramBuilder) -> None:
    g = b.group([(4, 2)])
    x, out = g.load(b.arg(F32, (4, 8)), (0, None)), g.tile(F32, (8, 4))
    g.stages.append(Transpose(x, out, Phase.BODY))


@wrong(HazardError, "tiles 0 and 2 overlap")
def overlap_behind_a_neighbour(b: ProgramBuilder) -> None:
    """The first tile is long; the second is inside it but done before the third."""
    g = b.group([])
    x = g.load(b.arg(F32, (12,)), at=0)
    g.load(b.arg(F32, (4,)), at=64)
    g.load(b.arg(F32, (4,)), at=32)
    g.store(b.result(F32, (12,)), x)
