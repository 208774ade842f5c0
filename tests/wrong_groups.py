"""Groups that break one rule each: tiles, stages, the K loop, micro-programs."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.builder import GroupBuilder, ProgramBuilder, binary, micro, unary
from tests.wrong_programs import Collection
from vkore_jax.dtypes import BF16, F32, I32
from vkore_jax.errors import (
    HazardError,
    InvalidProgram,
)
from vkore_jax.isa import (
    MICRO_OPS,
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


TAIL = Phase.TAIL

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
