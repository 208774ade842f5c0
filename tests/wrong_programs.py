"""Programs that break one rule of the ISA each: buffers, hazards, commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tests.sim.builder import ProgramBuilder, binary, micro, unary
from vkore_jax.chips import TINY, Chip, get_chip
from vkore_jax.dtypes import BF16, BOOL, C64, F32, F64, I8, I32, DType
from vkore_jax.errors import (
    HazardError,
    InvalidProgram,
    ResourceExhausted,
    VkoreError,
)
from vkore_jax.isa import (
    Carry,
    Case,
    Concat,
    Conv,
    Copy,
    DynamicSlice,
    Fft,
    FftKind,
    Gather,
    Gemm,
    Loop,
    Merge,
    Pad,
    Phase,
    ReduceGeneric,
    ReduceWindow,
    Scatter,
    SelectAndScatter,
    Sort,
    Strategy,
    View,
    While,
)
from vkore_jax.isa.enums import Segment
from vkore_jax.program import Buffer, Program

TAIL = Phase.TAIL


@dataclass(frozen=True)
class Wrong:
    """A program that breaks a rule, the error class and a part of the message."""

    id: str
    build: Callable[[ProgramBuilder], Program | None]
    error: type[VkoreError]
    says: str
    chip: Chip = TINY


class Collection(list[Wrong]):
    """Wrong programs, collected by decorating the functions that build them."""

    def __call__(
        self, error: type[VkoreError], says: str, *, chip: Chip = TINY
    ) -> Callable[[Callable[[ProgramBuilder], Program | None]], None]:
        """Register a function that builds a program (and may return a mutation)."""

        def register(build: Callable[[ProgramBuilder], Program | None]) -> None:
            self.append(Wrong(build.__name__, build, error, says, chip))

        return register


WRONG = wrong = Collection()


# ------------------------------------------------------------------ what the chip lacks


@wrong(InvalidProgram, "does not transpose")
def transposed_operand(b: ProgramBuilder) -> None:
    x, y = b.arg(F32, (8, 4)), b.arg(F32, (8, 4))
    g = b.group([(4, 4)])
    turned = g.load(View(x.buffer, F32, 0, (4, 8), (1, 4)), (0, None))
    g.store(b.result(F32, (4, 4)), g.gemm(turned, g.load(y)))


@wrong(InvalidProgram, "no transposed read")
def transposed_gemm(b: ProgramBuilder) -> None:
    x, y = b.arg(F32, (8, 4)), b.arg(F32, (8, 4))
    g = b.group([])
    tx, ty = g.load(x), g.load(y)
    out = g.tile(F32, (4, 4))
    g.stages.append(Gemm(tx, ty, out, Strategy.BF16X1, Phase.BODY))
    g.store(b.result(F32, (4, 4)), out)


@wrong(HazardError, "writes buffer 2, which it reads")
def writes_what_it_reads(b: ProgramBuilder) -> None:
    x, r = b.arg(F32, (4,)), b.result(F32, (4,))
    t = b.temp(F32, (4,))
    b.emit(Copy(r, x), Copy(t, t))


@wrong(HazardError, "writes buffer 1, which it reads")
def group_in_place(b: ProgramBuilder) -> None:
    x, t = b.arg(F32, (4,)), b.temp(F32, (4,))
    b.emit(Copy(t, x))
    g = b.group([(4, 2)])
    g.store(t, g.vec(unary("neg", F32), [g.load(t, (0,))]))


@wrong(HazardError, "overlap in segment ARENA and are live together")
def writes_over_what_it_reads(b: ProgramBuilder) -> None:
    x = b.arg(F32, (8,))
    t = b.temp(F32, (8,), at=0)
    u = b.temp(F32, (8,), at=16)
    b.emit(Copy(t, x), Copy(u, t), Copy(b.result(F32, (8,)), u))


@wrong(HazardError, "read-only")
def writes_an_argument(b: ProgramBuilder) -> None:
    x, y = b.arg(F32, (4,)), b.arg(F32, (4,))
    b.emit(Copy(x, y))


@wrong(HazardError, "read-only")
def writes_a_constant(b: ProgramBuilder) -> None:
    b.emit(Copy(b.const(np.zeros(4, np.float32)), b.arg(F32, (4,))))


@wrong(
    InvalidProgram,
    "needs a matrix unit that multiplies bf16",
    chip=replace(TINY, matrix_dtypes=("i8",), precision=get_chip("warboy").precision),
)
def strategy_not_on_the_chip(b: ProgramBuilder) -> None:
    _gemm(b, F32, F32, F32, Strategy.BF16X1)


@wrong(InvalidProgram, "takes i8 operands")
def int8_of_floats(b: ProgramBuilder) -> None:
    _gemm(b, F32, F32, F32, Strategy.INT8)


@wrong(InvalidProgram, "at most 32 bits")
def bf16_of_f64(b: ProgramBuilder) -> None:
    _gemm(b, F64, F64, F64, Strategy.BF16X1)


@wrong(InvalidProgram, "operands of one type")
def lanes_of_two_types(b: ProgramBuilder) -> None:
    _gemm(b, F32, BF16, F32, Strategy.LANES)


def _gemm(b: ProgramBuilder, lhs: DType, rhs: DType, out: DType, s: Strategy) -> None:
    x, y = b.arg(lhs, (4, 4)), b.arg(rhs, (4, 4))
    g = b.group([])
    tile = g.gemm(g.load(x), g.load(y), out, s)
    g.store(b.result(out, (4, 4)), tile)


# ---------------------------------------------------------------------------- capacity


@wrong(ResourceExhausted, "of the scratchpad")
def scratchpad_overflow(b: ProgramBuilder) -> None:
    x = b.arg(F32, (64, 65))
    g = b.group([])
    g.store(b.result(F32, (64, 65)), g.load(x))
    b.scratchpad_bytes = TINY.scratchpad_bytes


@wrong(ResourceExhausted, "bytes of scratchpad")
def scratchpad_beyond_the_chip(b: ProgramBuilder) -> None:
    b.scratchpad_bytes = TINY.scratchpad_bytes + 1


@wrong(ResourceExhausted, "program reserves 16")
def scratchpad_not_reserved(b: ProgramBuilder) -> None:
    x = b.arg(F32, (8,))
    g = b.group([])
    g.store(b.result(F32, (8,)), g.load(x))
    b.scratchpad_bytes = 16


@wrong(ResourceExhausted, "bytes of accumulators")
def accumulator_overflow(b: ProgramBuilder) -> None:
    x, y = b.arg(F32, (33, 8)), b.arg(F32, (8, 32))
    g = b.group([(33, 33), (32, 32), (8, 4)], 2)
    out = g.gemm(g.load(x, (0, 2)), g.load(y, (2, 1)))
    g.store(b.result(F32, (33, 32)), out, TAIL)


@wrong(ResourceExhausted, "bytes of DRAM")
def dram_overflow(b: ProgramBuilder) -> None:
    b.temp(F32, (TINY.dram_bytes // 4 + 1,))


@wrong(ResourceExhausted, "vector sequencer holds 1024")
def long_micro_program(b: ProgramBuilder) -> None:
    m = micro(F32)
    for _ in range(1025):
        m.op("neg", m.last)
    b.elementwise(m.out(), [b.result(F32, (4,))], [b.arg(F32, (4,))])


@wrong(ResourceExhausted, "addresses 48")
def many_operands(b: ProgramBuilder) -> None:
    args = [b.arg(F32, (4,)) for _ in range(48)]
    b.elementwise(micro(*[F32] * 48).out(0), [b.result(F32, (4,))], args)


# ---------------------------------------------------------------------- memory, buffers


@wrong(InvalidProgram, "offset must be a multiple of 16, found 8")
def misaligned_buffer(b: ProgramBuilder) -> None:
    b.emit(Copy(b.temp(F32, (4,), at=8), b.arg(F32, (4,))))


@wrong(InvalidProgram, "of segment ARENA, which has")
def buffer_beyond_the_arena(b: ProgramBuilder) -> Program:
    b.temp(F32, (4,))
    return replace(b.build(), arena_bytes=8)


@wrong(InvalidProgram, "of segment CONSTANT, which has")
def constant_beyond_the_segment(b: ProgramBuilder) -> Program:
    b.const(np.zeros(4, np.float32))
    return replace(b.build(), constants=b"")


@wrong(InvalidProgram, "buffer 7 does not exist")
def unknown_buffer(b: ProgramBuilder) -> None:
    b.emit(Copy(b.result(F32, (4,)), View.dense(7, F32, (4,))))


@wrong(InvalidProgram, "view touches elements 1..4")
def view_out_of_bounds(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Copy(b.result(F32, (4,)), View(x.buffer, F32, 1, (4,), (1,))))


@wrong(InvalidProgram, "view touches elements -3..0")
def negative_stride_out_of_bounds(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Copy(b.result(F32, (4,)), View(x.buffer, F32, 0, (4,), (-1,))))


@wrong(InvalidProgram, "2 extents but 1 strides")
def malformed_view(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Copy(b.result(F32, (2, 2)), View(x.buffer, F32, 0, (2, 2), (1,))))


@wrong(InvalidProgram, "must be dense")
def strided_destination(b: ProgramBuilder) -> None:
    x, r = b.arg(F32, (4, 2)), b.result(F32, (4, 2))
    b.emit(Copy(View(r.buffer, F32, 0, (4, 2), (1, 4)), x))


@wrong(InvalidProgram, "must be the whole buffer")
def partial_destination(b: ProgramBuilder) -> None:
    x, r = b.arg(F32, (2,)), b.result(F32, (4,))
    b.emit(Copy(View.dense(r.buffer, F32, (2,)), x))


@wrong(InvalidProgram, "must be in segment RESULT")
def result_in_the_arena(b: ProgramBuilder) -> Program:
    x, t = b.arg(F32, (4,)), b.temp(F32, (4,))
    b.emit(Copy(t, x))
    spec = replace(b.params[0], buffer=t.buffer)
    return replace(b.build(), results=(spec,))


@wrong(InvalidProgram, "parameter 0 must be in segment ARGUMENT, found RESULT")
def parameter_in_the_results(b: ProgramBuilder) -> Program:
    b.arg(F32, (4,))
    r = b.result(F32, (4,))
    b.emit(Copy(r, View.dense(0, F32, (4,))))
    return replace(b.build(), params=(replace(b.params[0], buffer=r.buffer),))


@wrong(InvalidProgram, "parameter 0: must be the whole buffer")
def parameter_shape(b: ProgramBuilder) -> Program:
    b.arg(F32, (4,))
    return replace(b.build(), params=(replace(b.params[0], shape=(3,)),))


@wrong(InvalidProgram, "result 0: must be the whole buffer")
def result_shape(b: ProgramBuilder) -> Program:
    b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))
    return replace(b.build(), results=(replace(b.results[0], shape=(3,)),))


@wrong(InvalidProgram, "result 0: buffer 9 does not exist")
def result_buffer(b: ProgramBuilder) -> Program:
    b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))
    return replace(b.build(), results=(replace(b.results[0], buffer=9),))


_NARROW = replace(TINY, storage="bf16")


@wrong(InvalidProgram, "parameter 0: chip 'tiny' keeps no float", chip=_NARROW)
def wide_parameter(b: ProgramBuilder) -> None:
    b.arg(F32, (4,))


@wrong(InvalidProgram, "result 0: chip 'tiny' keeps no float", chip=_NARROW)
def wide_result(b: ProgramBuilder) -> None:
    b.emit(Copy(b.result(F32, (4,)), b.const(np.zeros(4, np.float32))))


@wrong(InvalidProgram, "donated parameter -1")
def donated_below(b: ProgramBuilder) -> None:
    b.arg(F32, (4,))
    b.donated = (-1,)


@wrong(InvalidProgram, "donated parameter 1")
def donated_next(b: ProgramBuilder) -> None:
    b.arg(F32, (4,))
    b.donated = (1,)


@wrong(InvalidProgram, "buffer 1 does not exist; the table has 1")
def next_buffer(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Copy(replace(x, buffer=1), x))


@wrong(HazardError, "buffer 1 is not in a segment that is written")
def writes_an_unused_argument(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Copy(b.buffer(Segment.ARGUMENT, F32, (4,), None), x))


@wrong(InvalidProgram, "two parameters share a buffer")
def shared_parameter(b: ProgramBuilder) -> Program:
    b.arg(F32, (4,))
    return replace(b.build(), params=(b.params[0], b.params[0]))


@wrong(InvalidProgram, "donated parameter 3")
def donated_unknown(b: ProgramBuilder) -> None:
    b.donated = (3,)


@wrong(InvalidProgram, "location 0 does not exist")
def unknown_location(b: ProgramBuilder) -> None:
    b.locations = []
    b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))


# ------------------------------------------------------------------------------ hazards


@wrong(HazardError, "written twice")
def written_twice(b: ProgramBuilder) -> None:
    x, r = b.arg(F32, (4,)), b.result(F32, (4,))
    b.emit(Copy(r, x), Copy(r, x))


@wrong(HazardError, "never written")
def read_before_write(b: ProgramBuilder) -> None:
    x, t = b.arg(F32, (4,)), b.temp(F32, (4,))
    b.emit(Copy(b.result(F32, (4,)), t), Copy(t, x))


@wrong(HazardError, "result 0 of the program")
def unwritten_result(b: ProgramBuilder) -> None:
    b.result(F32, (4,))


@wrong(HazardError, "live together")
def overlapping_live_buffers(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    t, u = b.temp(F32, (4,), at=0), b.temp(F32, (4,), at=0)
    b.emit(Copy(t, x), Copy(u, x), Copy(b.result(F32, (4,)), t))


@wrong(HazardError, "overlap in segment RESULT")
def overlapping_results(b: ProgramBuilder) -> Program:
    x = b.arg(F32, (4,))
    b.emit(Copy(b.result(F32, (4,)), x), Copy(b.result(F32, (4,)), x))
    p = b.build()
    rows = list(p.buffers)
    rows[2] = Buffer(rows[1].segment, 0, 16)
    return replace(p, buffers=tuple(rows))


def _loop(b: ProgramBuilder, shared: bool, after: bool) -> None:
    """A loop whose temporary may share the address of a value from outside."""
    x, outside = b.arg(F32, (4,)), b.temp(F32, (4,))
    at = b.buffers[outside.buffer].offset if shared else None
    current, following = b.temp(F32, (4,)), b.temp(F32, (4,))
    first, second = b.temp(F32, (4,)), b.temp(F32, (4,), at=at)
    b.emit(Copy(outside, x))
    with b.block() as body:
        b.emit(Copy(first, outside), Copy(second, first), Copy(following, second))
    b.emit(Loop(2, (Carry(x, current, following, b.result(F32, (4,))),), b.close(body)))
    if after:
        b.emit(Copy(b.result(F32, (4,)), second))


@wrong(HazardError, "live together")
def loop_extends_liveness(b: ProgramBuilder) -> None:
    _loop(b, shared=True, after=False)


@wrong(HazardError, "outside the block that wrote it")
def read_out_of_a_loop(b: ProgramBuilder) -> None:
    _loop(b, shared=False, after=True)


@wrong(HazardError, "written twice")
def body_writes_current(b: ProgramBuilder) -> None:
    x, current = b.arg(F32, (4,)), b.temp(F32, (4,))
    with b.block() as body:
        b.emit(Copy(current, x))
    carry = Carry(x, current, current, b.result(F32, (4,)))
    b.emit(Loop(2, (carry,), b.close(body)))


@wrong(HazardError, "never written")
def next_is_not_computed(b: ProgramBuilder) -> None:
    x, current, following = b.arg(F32, (4,)), b.temp(F32, (4,)), b.temp(F32, (4,))
    b.emit(Loop(2, (Carry(x, current, following, b.result(F32, (4,))),), ()))


@wrong(HazardError, "live together")
def leave_over_current(b: ProgramBuilder) -> None:
    x, current = b.arg(F32, (4,)), b.temp(F32, (4,))
    leave = b.temp(F32, (4,), at=0)
    b.emit(
        Loop(2, (Carry(x, current, current, leave),), ()),
        Copy(b.result(F32, (4,)), leave),
    )


@wrong(HazardError, "buffer 0 is read but was never written")
def enter_is_not_written(b: ProgramBuilder) -> None:
    x, current = b.temp(F32, (4,)), b.temp(F32, (4,))
    b.emit(Loop(2, (Carry(x, current, current, b.result(F32, (4,))),), ()))


@wrong(HazardError, "buffer 0 is read but was never written")
def index_is_not_written(b: ProgramBuilder) -> None:
    b.emit(Case(b.temp(I32, ()), ((),), ()))


@wrong(InvalidProgram, "enter and current: must have one dtype and shape")
def carry_of_two_shapes(b: ProgramBuilder) -> None:
    x, current = b.arg(F32, (4,)), b.temp(F32, (5,))
    b.emit(Loop(2, (Carry(x, current, current, b.result(F32, (5,))),), ()))


@wrong(HazardError, "outside the block that wrote it")
def body_reads_condition(b: ProgramBuilder) -> None:
    x, current, following = b.arg(BOOL, ()), b.temp(BOOL, ()), b.temp(BOOL, ())
    p = b.temp(BOOL, ())
    with b.block() as cond:
        b.emit(Copy(p, current))
    with b.block() as body:
        b.emit(Copy(following, p))
    carry = Carry(x, current, following, b.result(BOOL, ()))
    b.emit(While((carry,), b.close(cond), p, b.close(body)))


@wrong(InvalidProgram, "predicate: must be one i1")
def predicate_of_integers(b: ProgramBuilder) -> None:
    b.emit(While((), (), b.arg(I32, ()), ()))


def branches(b: ProgramBuilder, same_address: bool, dst_at: int | None) -> None:
    i, x = b.arg(I32, ()), b.arg(F32, (4,))
    t = b.temp(F32, (4,))
    u = b.temp(F32, (4,), at=0 if same_address else None)
    dst = b.temp(F32, (4,), at=dst_at)
    with b.block() as first:
        b.emit(Copy(t, x))
    with b.block() as second:
        b.emit(Copy(u, x))
    merge = Merge(dst, (t, u))
    b.emit(Case(i, (b.close(first), b.close(second)), (merge,)))
    b.emit(Copy(b.result(F32, (4,)), dst))


@wrong(HazardError, "live together")
def merge_over_its_source(b: ProgramBuilder) -> None:
    branches(b, same_address=True, dst_at=0)


@wrong(InvalidProgram, "has 1 sources for 2 branches")
def merge_without_source(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Case(b.arg(I32, ()), ((), ()), (Merge(b.result(F32, (4,)), (x,)),)))


@wrong(InvalidProgram, "index: must be one i32")
def case_index_type(b: ProgramBuilder) -> None:
    b.emit(Case(b.arg(F32, ()), ((),), ()))


# ----------------------------------------------------------------------- other commands


@wrong(InvalidProgram, "must have one dtype and shape")
def copy_types(b: ProgramBuilder) -> None:
    b.emit(Copy(b.result(I32, (4,)), b.arg(F32, (4,))))


@wrong(InvalidProgram, "sources fill 6 of axis 0")
def concat_extent(b: ProgramBuilder) -> None:
    srcs = (b.arg(F32, (4,)), b.arg(F32, (2,)))
    b.emit(Concat(b.result(F32, (7,)), srcs, 0))


@wrong(InvalidProgram, "interior must be at least 0")
def pad_interior(b: ProgramBuilder) -> None:
    x, v = b.arg(F32, (4,)), b.arg(F32, ())
    b.emit(Pad(b.result(F32, (4,)), x, v, (0,), (-1,)))


@wrong(InvalidProgram, "is larger than")
def slice_too_large(b: ProgramBuilder) -> None:
    b.emit(DynamicSlice(b.result(F32, (5,)), b.arg(F32, (4,)), (b.arg(I32, ()),)))


@wrong(InvalidProgram, "must be one integer")
def slice_start_type(b: ProgramBuilder) -> None:
    b.emit(DynamicSlice(b.result(F32, (2,)), b.arg(F32, (4,)), (b.arg(F32, ()),)))


@wrong(InvalidProgram, "the gather gives (3, 4)")
def gather_shape(b: ProgramBuilder) -> None:
    x, i = b.arg(F32, (7, 4)), b.arg(I32, (3, 1))
    b.emit(Gather(b.result(F32, (4, 3)), x, i, (1,), (0,), (), (), (0,), 1, (1, 4)))


@wrong(InvalidProgram, "index vectors have 1 components")
def gather_components(b: ProgramBuilder) -> None:
    x, i = b.arg(F32, (7, 4)), b.arg(I32, (3, 1))
    b.emit(Gather(b.result(F32, (3,)), x, i, (), (0, 1), (), (), (0, 1), 1, (1, 1)))


@wrong(InvalidProgram, "updates (3, 5)")
def scatter_window(b: ProgramBuilder) -> None:
    x, i, u = b.arg(F32, (7, 4)), b.arg(I32, (3, 1)), b.arg(F32, (3, 5))
    b.emit(
        Scatter(
            (b.result(F32, (7, 4)),), (x,), i, (u,), (1,), (0,), (), (), (0,), 1,
            False, False, binary("add", F32),
        )
    )  # fmt: skip


@wrong(InvalidProgram, "comparator: outputs must be")
def comparator_type(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.emit(Sort((b.result(F32, (4,)),), (x,), 0, True, binary("add", F32)))


@wrong(InvalidProgram, "spectrum (2, 5)")
def transform_shape(b: ProgramBuilder) -> None:
    x = b.arg(F32, (2, 8))
    b.emit(Fft(b.result(C64, (2, 4)), x, FftKind.RFFT, (8,)))


@wrong(InvalidProgram, "RFFT takes complex<f32> with f32")
def transform_type(b: ProgramBuilder) -> None:
    x = b.arg(C64, (8,))
    b.emit(Fft(b.result(C64, (5,)), x, FftKind.RFFT, (8,)))


@wrong(InvalidProgram, "1 to 3 axes")
def transform_axes(b: ProgramBuilder) -> None:
    x = b.arg(C64, (8,))
    b.emit(Fft(b.result(C64, (8,)), x, FftKind.FFT, (8, 8)))


@wrong(InvalidProgram, "iota has no meaning")
def iota_in_a_combiner(b: ProgramBuilder) -> None:
    x, zero = b.arg(F32, (4,)), b.const(np.float32(0))
    m = micro(F32, F32).iota(F32, 0).op("add", 0, 2)
    b.emit(ReduceGeneric((b.result(F32, ()),), (x,), (zero,), (0,), m.out()))


@wrong(InvalidProgram, "the windows give (2,)")
def window_shape(b: ProgramBuilder) -> None:
    x, zero = b.arg(F32, (4,)), b.const(np.float32(0))
    b.emit(
        ReduceWindow(
            (b.result(F32, (3,)),), (x,), (zero,), (3,), (1,), (1,), (1,), (0,), (0,),
            binary("add", F32),
        )
    )  # fmt: skip


@wrong(InvalidProgram, "select: outputs must be")
def select_type(b: ProgramBuilder) -> None:
    x, s = b.arg(F32, (4,)), b.arg(F32, (2,))
    zero, add = b.const(np.float32(0)), binary("add", F32)
    b.emit(
        SelectAndScatter(
            b.result(F32, (4,)), x, s, zero, (2,), (2,), (0,), (0,), add, add
        )
    )


@wrong(InvalidProgram, "dst is")
def conv_shape(b: ProgramBuilder) -> None:
    _conv(b, (2, 4, 4), b.arg(F32, (3, 3, 4)))


@wrong(InvalidProgram, "must have contiguous rows")
def conv_transposed(b: ProgramBuilder) -> None:
    w = b.arg(F32, (3, 4, 3))
    _conv(b, (2, 3, 4), View(w.buffer, F32, 0, (3, 3, 4), (12, 1, 3)))


def _conv(b: ProgramBuilder, dst: tuple[int, ...], rhs: View) -> None:
    one, none = (1,), (0,)
    b.emit(
        Conv(
            b.result(F32, dst), b.arg(F32, (2, 5, 3)), rhs, one, none, none, one, one,
            none, 1, 1, Strategy.BF16X1, 1, (1,), 1,
        )
    )  # fmt: skip


@wrong(InvalidProgram, "initial value 0: must be one i8")
def init_type(b: ProgramBuilder) -> None:
    x, zero = b.arg(I8, (4,)), b.const(np.float32(0))
    b.emit(ReduceGeneric((b.result(I8, ()),), (x,), (zero,), (0,), binary("add", I8)))
