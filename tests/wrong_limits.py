"""Programs beyond a limit of `vkore_jax.isa.limits`, and what is just within one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.sim.builder import ProgramBuilder, binary, micro, unary
from tests.wrong_programs import Wrong
from vkore_jax import dtypes
from vkore_jax.chips import TINY
from vkore_jax.dtypes import (
    BF16,
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I32,
    U8,
    DType,
)
from vkore_jax.errors import InvalidProgram, ResourceExhausted, VkoreError
from vkore_jax.isa import (
    Carry,
    Case,
    Conv,
    Copy,
    DynamicSlice,
    Loop,
    Merge,
    MicroInsn,
    MicroProgram,
    Pad,
    ReduceKind,
    ReduceWindow,
    SelectAndScatter,
    Strategy,
    Vec,
    View,
)
from vkore_jax.isa.enums import Phase, Segment
from vkore_jax.isa.limits import BLOCKS, NESTING, NUMBER, RANK, TRIPS
from vkore_jax.isa.micro import MICRO_OPS
from vkore_jax.program import Program

DRAM = TINY.dram_bytes
Build = Callable[[ProgramBuilder], Program | None]
WRONG_LIMITS: list[Wrong] = []
WITHIN: list[tuple[str, Build]] = []
"""Programs at a limit: valid."""


def wrong(
    id: str, says: str, build: Build, error: type[VkoreError] = InvalidProgram
) -> None:
    """Register a program that is refused."""
    WRONG_LIMITS.append(Wrong(f"limit-{id}", build, error, says))


def within(id: str, build: Build) -> None:
    """Register a program that is accepted."""
    WITHIN.append((id, build))


# ------------------------------------------------------------------------------ views


def _copied(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Build:
    def build(b: ProgramBuilder) -> None:
        x = b.arg(F32, (4,))
        dst = b.result(F32, shape)
        b.emit(Copy(dst, View(x.buffer, F32, offset, shape, strides)))

    return build


within("rank", _copied((1,) * RANK, (0,) * RANK))
wrong("rank", "at most 32 axes, found 33", _copied((1,) * 33, (0,) * 33))
within("stride", _copied((1, 4), (NUMBER, 1)))
within("stride-back", _copied((1, 4), (-NUMBER, 1)))
wrong("stride", "at most 2^40", _copied((1, 4), (NUMBER + 1, 1)))
wrong("stride-back", "at most 2^40", _copied((1, 4), (-NUMBER - 1, 1)))
within("empty-stride", _copied((0, 4), (NUMBER, 1)))
within("empty-stride-back", _copied((0, 4), (-NUMBER, 1)))
wrong("empty-stride-back", "at most 2^40", _copied((0, 4), (-NUMBER - 1, 1)))
wrong("empty-stride", "at most 2^40", _copied((0, 4), (NUMBER + 1, 1)))
within("empty-offset", _copied((0, 4), (4, 1), NUMBER))
wrong("empty-offset", "at most 2^40", _copied((0, 4), (4, 1), NUMBER + 1))
wrong("empty-offset-back", "at most 2^40", _copied((0, 4), (4, 1), -NUMBER - 1))
wrong("negative", "must be >= 0", _copied((-1, 4), (4, 1)))
wrong("offset", "at most 2^40", _copied((4,), (1,), NUMBER + 1))


def _cropped(shape: tuple[int, ...]) -> Build:
    """Cut one element out of a repeated one."""

    def build(b: ProgramBuilder) -> None:
        x, i = b.arg(F32, (1,)), b.arg(I32, ())
        src = View(x.buffer, F32, 0, shape, (0,) * len(shape))
        dst = b.result(F32, tuple(min(e, 1) for e in shape))
        b.emit(DynamicSlice(dst, src, (i,) * len(shape)))

    return build


within("repeated", _cropped((1 << 13, DRAM // 4 >> 13)))
for _shape in ((1 << 13, (DRAM // 4 >> 13) + 1), (0, DRAM // 4 + 1)):
    wrong(f"repeated-{_shape[0]}", "bytes of DRAM", _cropped(_shape), ResourceExhausted)


def _argument_at(offset: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        x = b.buffer(b.buffers[b.arg(F32, (4,)).buffer].segment, F32, (4,), offset)
        b.emit(Copy(b.result(F32, (4,)), View.dense(0, F32, (4,))))
        del x

    return build


within("argument", _argument_at(DRAM - 16))
wrong("argument", "of segment ARGUMENT; chip", _argument_at(DRAM), ResourceExhausted)


@lambda f: wrong("result", "of segment RESULT; chip", f, ResourceExhausted)
def _result_at(b: ProgramBuilder) -> Program:
    b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))
    p = b.build()
    return replace(p, buffers=(replace(p.buffers[0], offset=1 << 62), p.buffers[1]))


def _filled(arena: int, result: int) -> Build:
    """Fill DRAM: a donated argument makes room for results and intermediates only."""

    def build(b: ProgramBuilder) -> None:
        b.donated = (1,)
        b.arg(U8, (64,))
        x = b.arg(U8, (result,))
        b.emit(Copy(b.result(U8, (result,)), x))
        b.const(np.zeros(64, np.uint8))
        b.temp(U8, (arena,))

    return build


within("dram", _filled(DRAM - 128 - (1 << 20), 1 << 20))
wrong(
    "dram",
    f"needs {DRAM + 1} bytes of DRAM",
    _filled(DRAM - 127 - (1 << 20), 1 << 20),
    ResourceExhausted,
)

# ------------------------------------------------------------------------------ groups


def _grid(*axes: tuple[int, int]) -> Build:
    def build(b: ProgramBuilder) -> None:
        b.group(axes)

    return build


within("grid-rank", _grid(*[(1, 1)] * RANK))
wrong("grid-rank", "at most 32 axes", _grid(*[(1, 1)] * 33))
within("blocks", _grid((BLOCKS // 2, 1), (2, 1), (0, 1)))
wrong("blocks", "the sequencer counts", _grid((BLOCKS // 2 + 1, 1), (2, 1)))
within("grid-extent", _grid((NUMBER, NUMBER)))
wrong("grid-extent", "grid axis 0: magnitudes", _grid((NUMBER + 1, NUMBER)))
wrong("grid-block", "grid axis 0: magnitudes", _grid((1, NUMBER + 1)))


def _tile(shape: tuple[int, ...], grid: tuple[int, int]) -> Build:
    """A repeated element in a tile of which little is in the scratchpad at a time."""

    def build(b: ProgramBuilder) -> None:
        x = b.arg(F32, (1,) * len(shape))
        g = b.group([grid], 0)
        rest = (None,) * (len(shape) - 1)
        one = g.load(View.dense(x.buffer, F32, (1,) * len(shape)))
        t = g.vec(unary("neg", F32), [one], shape=shape, axes=(0, *rest))
        out = g.reduce(t, ReduceKind.SUM, (0,))
        g.store(b.result(F32, (1, *shape[1:])), out, phase=Phase.TAIL)

    return build


within("tile", _tile((DRAM, 1), (DRAM, 1024)))
wrong(
    "tile",
    f"tile 1: f32[{DRAM + 1}, 1] stands for",
    _tile((DRAM + 1, 1), (DRAM + 1, 1024)),
    ResourceExhausted,
)


def _unused_tile(rank: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        b.group([]).tile(F32, (1,) * rank)

    return build


within("tile-rank", _unused_tile(RANK))
wrong("tile-rank", "tile 0: a tensor has at most 32", _unused_tile(RANK + 1))


# ------------------------------------------------------------------- edges and windows


def _padded(low: int, gap: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        x, v = b.arg(F32, (4,)), b.arg(F32, ())
        b.emit(Pad(b.result(F32, (4,)), x, v, (low,), (gap,)))

    return build


_MOST = DRAM // 4
within("pad-low", _padded(_MOST - 4, 0))
wrong(
    "pad-low", "edges and gaps: f32[67108865]", _padded(_MOST - 3, 0), ResourceExhausted
)
within("pad-trim", _padded(4 - _MOST, 0))
wrong("pad-high", "edges and gaps", _padded(-_MOST - 1, 0), ResourceExhausted)
within("pad-gap", _padded(0, (_MOST - 1) // 3 - 1))
wrong("pad-gap", "edges and gaps", _padded(0, _MOST // 3 + 1), ResourceExhausted)
wrong("pad-number", "low: magnitudes", _padded(NUMBER + 1, 0))
wrong("pad-trim", "low: magnitudes", _padded(-NUMBER - 1, 0))


def _window(**fields: Any) -> Build:
    """Slide a window of 1 over 4 elements with padding on both sides, by far steps."""
    given = {
        "window": 1,
        "strides": NUMBER,
        "base_dilation": 1,
        "window_dilation": 1,
        "pad_low": 0,
        "pad_high": 0,
        "out": 1,
    } | fields

    def build(b: ProgramBuilder) -> None:
        x, zero, out = b.arg(F32, (4,)), b.const(np.float32(0)), given["out"]
        rest = {k: (v,) for k, v in given.items() if k != "out"}
        add = binary("add", F32)
        dst = b.result(F32, (out,))
        b.emit(
            ReduceWindow(dsts=(dst,), srcs=(x,), inits=(zero,), combiner=add, **rest)
        )

    return build


within("window-low", _window(pad_low=_MOST - 4))
wrong("window-low", "its edges", _window(pad_low=_MOST - 3), ResourceExhausted)
within("window-high", _window(pad_high=_MOST - 4))
wrong("window-high", "its edges", _window(pad_high=_MOST - 3), ResourceExhausted)
within("window-base", _window(base_dilation=(_MOST - 1) // 3))
wrong(
    "window-base", "its edges", _window(base_dilation=_MOST // 3 + 1), ResourceExhausted
)
_far = {"window": 2, "out": 0}
within("window-reach", _window(window_dilation=_MOST - 1, **_far))
wrong(
    "window-reach",
    "the window with its gaps",
    _window(window_dilation=_MOST, **_far),
    ResourceExhausted,
)
wrong("window-size", "the window", _window(window=_MOST + 1, out=0), ResourceExhausted)
wrong("window-stride", "strides: magnitudes", _window(strides=NUMBER + 1))


def _selected(low: int, window: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        x, zero = b.arg(F32, (4,)), b.const(np.float32(0))
        s = b.arg(F32, (1 if window == 1 else 0,))
        b.emit(
            SelectAndScatter(
                b.result(F32, (4,)), x, s, zero, (window,), (NUMBER,), (low,), (0,),
                binary("ge", F32), binary("add", F32),
            )
        )  # fmt: skip

    return build


within("select-low", _selected(_MOST - 4, 1))
wrong("select-low", "its edges", _selected(_MOST - 3, 1), ResourceExhausted)
wrong("select-window", "the window", _selected(0, _MOST + 1), ResourceExhausted)

within("window-none", _window(window=9, strides=2, out=0))
within("window-trimmed", _window(pad_low=-9, strides=2, out=0))


def _convolved(**fields: Any) -> Build:
    """One product, at a distance."""
    given = dict.fromkeys(("pad_low", "pad_high"), 0)
    given |= dict.fromkeys(("strides", "lhs_dilation", "rhs_dilation"), 1) | fields
    x, w, out = (given.pop(k, 1) for k in ("extent", "window", "out"))

    def build(b: ProgramBuilder) -> None:
        lhs, rhs = b.arg(F32, (1, x, 1)), b.arg(F32, (w, 1, 1))
        b.emit(
            Conv(
                dst=b.result(F32, (1, out, 1)), lhs=lhs, rhs=rhs, reversal=(0,),
                feature_groups=1, batch_groups=1, strategy=Strategy.BF16X1, block_n=1,
                block_out=(1,), block_o=1, **{k: (v,) for k, v in given.items()},
            )
        )  # fmt: skip

    return build


for _edge in ("pad_low", "pad_high"):
    within(f"conv-{_edge}", _convolved(strides=NUMBER, **{_edge: _MOST - 1}))
    wrong(
        f"conv-{_edge}",
        "lhs with its edges and gaps",
        _convolved(strides=NUMBER, **{_edge: _MOST}),
        ResourceExhausted,
    )
_far = {"extent": 2, "strides": NUMBER}
within("conv-gaps", _convolved(lhs_dilation=_MOST - 1, **_far))
wrong(
    "conv-gaps",
    "lhs with its edges and gaps",
    _convolved(lhs_dilation=_MOST, **_far),
    ResourceExhausted,
)
_far = {"window": 2, "out": 0}
within("conv-reach", _convolved(rhs_dilation=_MOST - 1, **_far))
wrong(
    "conv-reach",
    "the window with its gaps",
    _convolved(rhs_dilation=_MOST, **_far),
    ResourceExhausted,
)

# ------------------------------------------------------------------------ control flow


def _loops(depth: int, trips: int = 1) -> Build:
    def build(b: ProgramBuilder) -> Program:
        b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))
        p = b.build()
        block = p.block
        for _ in range(depth):
            block = (replace(p.block[0], cmd=Loop(trips, (), block)),)
        return replace(p, block=block if depth == 1 else (*p.block, *_inner(block)))

    return build


def _inner(block: Any) -> Any:
    """Return nested loops without the command inside: the result has one writer."""
    cmd = block[0].cmd
    if not isinstance(cmd, Loop):
        return ()
    return (replace(block[0], cmd=replace(cmd, body=_inner(cmd.body))),)


within("nesting", _loops(NESTING))
wrong("nesting", f"nested more than {NESTING} deep", _loops(NESTING + 1))


def _trips(trips: int) -> Build:
    return lambda b: b.emit(Loop(trips, (), ()))


within("trips", _trips(TRIPS))
wrong("trips", "trips must be at most", _trips(TRIPS + 1))

# ------------------------------------------------------------------- the vector unit


def _long(insns: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        m = micro(F32)
        for _ in range(insns):
            m.op("neg", m.last)
        b.elementwise(m.out(), [b.result(F32, (4,))], [b.arg(F32, (4,))])

    return build


def _wide(tiles: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        views = [b.arg(F32, (4,)) for _ in range(tiles - 1)]
        b.elementwise(micro(*[F32] * (tiles - 1)).out(0), [b.result(F32, (4,))], views)

    return build


within("insns", _long(TINY.vec_max_insns))
within("operands", _wide(TINY.vec_max_operands))


def _product(
    k: int, block: int, strategy: Strategy, *types: DType, out: DType = F32
) -> Build:
    """One product whose k is cut."""

    def build(b: ProgramBuilder) -> None:
        g = b.group([(k, block)], 0)
        x = g.load(b.arg(types[0], (4, k)), (None, 0))
        y = g.load(b.arg(types[-1], (k, 4)), (0, None))
        g.gemm(x, y, out, strategy)

    return build


within("segments-cut", _product(64, 32, Strategy.FP8X1, F32))
within("segments-whole", _product(48, 48, Strategy.FP8X1, F32))
within("segments-beyond", _product(64, 100, Strategy.FP8X1, F32))
_E4M3, _E5M2 = dtypes.by_short("f8E4M3FN"), dtypes.by_short("f8E5M2")
within("fp8", _product(4, 2, Strategy.FP8, _E4M3, _E5M2))
within("fp8-narrow", _product(4, 2, Strategy.FP8, _E5M2, _E4M3, out=BF16))
within("lanes-sign", _product(4, 2, Strategy.LANES, I8, out=U8))

# ---------------------------------------------------------------- what shares addresses


def _leave_over_next(b: ProgramBuilder) -> None:
    x, current, following = b.arg(F32, (4,)), b.temp(F32, (4,)), b.temp(F32, (4,))
    leave = b.temp(F32, (4,), at=b.buffers[following.buffer].offset)
    with b.block() as body:
        b.emit(Copy(following, current))
    carry = Carry(x, current, following, leave)
    b.emit(Loop(2, (carry,), b.close(body)), Copy(b.result(F32, (4,)), leave))


def _unused_over_argument(b: ProgramBuilder) -> None:
    x = b.arg(F32, (4,))
    b.buffer(Segment.ARGUMENT, F32, (4,), 0)
    b.emit(Copy(b.result(F32, (4,)), x))


def _empty_inside(b: ProgramBuilder) -> None:
    x, none = b.arg(F32, (8,)), b.arg(F32, (0,))
    t, empty = b.temp(F32, (8,), at=0), b.temp(F32, (0,), at=16)
    b.emit(Copy(t, x), Copy(empty, none), Copy(b.result(F32, (8,)), t))


def _empty_merge_inside(b: ProgramBuilder) -> None:
    i, x, none = b.arg(I32, ()), b.arg(F32, (8,)), b.arg(F32, (0,))
    t, empty = b.temp(F32, (8,), at=0), b.temp(F32, (0,), at=16)
    b.emit(Copy(t, x), Case(i, ((),), (Merge(empty, (none,)),)))
    b.emit(Copy(b.result(F32, (8,)), t))


for _build in (
    _leave_over_next,
    _unused_over_argument,
    _empty_inside,
    _empty_merge_inside,
):
    within(_build.__name__.strip("_").replace("_", "-"), _build)

# ------------------------------------------------------------------- types and bits


def _reread(old: DType, new: DType) -> Build:
    def build(b: ProgramBuilder) -> None:
        x = b.arg(old, (8,))
        n = 8 * old.itemsize // new.itemsize
        b.emit(Copy(b.result(new, (n,)), View.dense(x.buffer, new, (n,))))

    return build


for _old, _new in ((F32, I8), (I8, F32), (BF16, U8), (U8, dtypes.by_short("f8E5M2"))):
    within(f"reread-{_old}-{_new}", _reread(_old, _new))
for _old, _new in (
    (I8, BOOL),
    (BOOL, U8),
    (C64, I8),
    (F32, C64),
    (dtypes.by_short("i4"), I8),
    (I8, dtypes.by_short("f4E2M1FN")),
    (dtypes.by_short("i4"), dtypes.by_short("ui4")),
):
    _says = f"was written as {_old} and is read as {_new}"
    wrong(f"reread-{_old}-{_new}", _says, _reread(_old, _new))


@lambda f: wrong("reread-result", "was written as f32 and is read as complex<f32>", f)
def _reread_result(b: ProgramBuilder) -> Program:
    b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))
    spec = replace(b.results[0], dtype=C64, shape=(2,))
    return replace(b.build(), results=(spec,))


def _constant(dtype: DType, byte: int) -> Build:
    def build(b: ProgramBuilder) -> None:
        x = b.const(np.array([0, 1, byte, 0], np.uint8))
        view = replace(x, dtype=dtype)
        b.emit(Copy(b.result(dtype, (4,)), view))

    return build


for _t in (t for t in dtypes.ALL if t.bits < 8):
    within(f"bits-{_t}", _constant(_t, (1 << _t.bits) - 1))
    wrong(f"bits-{_t}", f"is a byte below {1 << _t.bits}", _constant(_t, 1 << _t.bits))
within("bits-i8", _constant(I8, 255))


@lambda f: wrong("bits-again", "is a byte below 16", f)
def _second_reading(b: ProgramBuilder) -> None:
    x, i4 = b.const(np.array([0, 99], np.uint8)), dtypes.by_short("i4")
    b.emit(Copy(b.result(U8, (2,)), x))
    b.emit(Copy(b.result(i4, (2,)), replace(x, dtype=i4)))


def _op(name: str, inputs: tuple[DType, ...], dtype: DType, imm: bytes = b"") -> Build:
    """One micro-op in a group."""

    def build(b: ProgramBuilder) -> None:
        insn = MicroInsn(MICRO_OPS[name].code, dtype, tuple(range(len(inputs))), imm)
        code = MicroProgram(inputs, (insn,), (len(inputs),))
        g = b.group([])
        ins = tuple(g.load(b.arg(t, (4,))) for t in inputs)
        out = g.tile(dtype, (4,))
        g.stages.append(Vec(ins, (out,), code, Phase.BODY))
        g.store(b.result(dtype, (4,)), out)

    return build


OPS: tuple[tuple[str, tuple[DType, ...], DType, bytes], ...] = (
    ("complex", (F32, F32), C64, b""),
    ("complex", (F64, F64), C128, b""),
    ("real", (C128,), F64, b""),
    ("imag", (F32,), F32, b""),
    ("abs", (C64,), F32, b""),
    ("abs", (I32,), I32, b""),
    ("bitcast", (F32,), I32, b""),
    ("bitcast", (dtypes.by_short("i4"),), dtypes.by_short("ui4"), b""),
    ("reduce_precision", (F32,), F32, b"\1\0"),
    ("imm", (), BOOL, b"\1"),
    ("imm", (), dtypes.by_short("i4"), b"\x0f"),
    ("iota", (), F32, b"\0"),
    ("convert", (C64,), BOOL, b""),
    ("eq", (F32, F32), BOOL, b""),
)
BAD_OPS: tuple[tuple[str, tuple[DType, ...], DType, bytes, str], ...] = (
    ("complex", (F32, F32), BOOL, b"", "result type must be complex<f32>"),
    ("complex", (F32, F32), C128, b"", "result type must be complex<f32>"),
    ("complex", (F16, F16), C64, b"", "no complex type of two f16"),
    ("real", (C64,), F64, b"", "result type must be f32"),
    ("imag", (F32,), BOOL, b"", "result type must be f32"),
    ("abs", (C64,), C64, b"", "result type must be f32"),
    ("abs", (F32,), F64, b"", "result type must be f32"),
    ("bitcast", (F32,), F64, b"", "width of f32 differs"),
    ("bitcast", (I8,), BOOL, b"", "width of i8 differs"),
    ("bitcast", (F64,), C64, b"", "complex numbers"),
    ("bitcast", (F32,), I32, b"\0", "imm must be 0 bytes"),
    ("reduce_precision", (F32,), F32, b"\0\7", "at least one exponent bit"),
    ("reduce_precision", (F32,), F32, b"\7", "imm must be 2 bytes"),
    ("reduce_precision", (F32,), F64, b"\7\7", "result type must be f32"),
    ("neg", (F32,), F32, b"\0", "imm must be 0 bytes"),
    ("imm", (), BOOL, b"\2", "is a byte below 2"),
    ("imm", (), dtypes.by_short("i4"), b"\x10", "is a byte below 16"),
    ("imm", (), F32, b"\0\0", "imm must be 4 bytes"),
    ("imm", (F32,), F32, b"\0\0\0\0", "needs 0 operands, has 1"),
    ("iota", (), BOOL, b"\0", "not of kinds"),
    ("iota", (), F32, b"", "imm must be 1 bytes"),
    ("add", (F32,), F32, b"", "needs 2 operands, has 1"),
    ("add", (F32, I32), F32, b"", "operands must have one type"),
    ("sub", (BOOL, BOOL), BOOL, b"", "not of kinds"),
    ("eq", (F32, F32), F32, b"", "result type must be i1"),
    ("select", (I8, F32, F32), F32, b"", "predicate must be i1"),
    ("select", (BOOL, F32, I32), F32, b"", "operands must have one type"),
    ("select", (BOOL, F32, F32), I32, b"", "result type must be f32"),
    ("clamp", (F32, F32, C64), F32, b"", "not of kinds"),
)
for _i, (_name, _ins, _t, _imm) in enumerate(OPS):
    within(f"op{_i}-{_name}", _op(_name, _ins, _t, _imm))
for _i, (_name, _ins, _t, _imm, _says) in enumerate(BAD_OPS):
    wrong(f"op{_i}-{_name}", _says, _op(_name, _ins, _t, _imm))


def _registers(srcs: tuple[int, ...], outputs: tuple[int, ...]) -> Build:
    """An addition of registers 0 and 1 into 2, and its square in 3."""

    def build(b: ProgramBuilder) -> None:
        add = MicroInsn(MICRO_OPS["add"].code, F32, srcs)
        square = MicroInsn(MICRO_OPS["mul"].code, F32, (2, 2))
        code = MicroProgram((F32, F32), (add, square), outputs)
        g = b.group([])
        ins = tuple(g.load(b.arg(F32, (4,))) for _ in range(2))
        out = g.tile(F32, (4,))
        g.stages.append(Vec(ins, (out,), code, Phase.BODY))
        g.store(b.result(F32, (4,)), out)

    return build


for _first, _second, _out in ((0, 1, 3), (1, 1, 0), (0, 0, 2)):
    within(f"registers-{_first}{_second}{_out}", _registers((_first, _second), (_out,)))
wrong("register-next", "reads register 2 before", _registers((0, 2), (3,)))
wrong("register-first", "reads register 2 before", _registers((2, 0), (3,)))
wrong("register-below", "reads register -1 before", _registers((-1, 0), (3,)))
wrong("register-second-below", "reads register -1 before", _registers((0, -1), (3,)))
wrong("register-out", "output register 4 does not exist", _registers((0, 1), (4,)))
wrong("register-out-below", "output register -1", _registers((0, 1), (-1,)))
