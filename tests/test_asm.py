"""Assembly text: both directions are inverse, readable, and fail with a line."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from tests import isa_cases
from tests.isa_cases import dense
from vkore_jax import dtypes, isa
from vkore_jax.asm import assemble, disassemble
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa.micro import MICRO_OPS, MicroInsn, MicroProgram
from vkore_jax.program import Buffer, Location, Program, TensorSpec, decode

F32, BF16 = dtypes.F32, dtypes.BF16


@settings(max_examples=150)
@given(isa_cases.rngs())
def test_text_round_trip(rng: Random) -> None:
    program = isa_cases.random_program(rng)
    text = disassemble(program)
    again = assemble(text)
    assert again == program
    assert again.encoded == program.encoded
    assert disassemble(again) == text


@pytest.mark.parametrize("cls", isa.COMMANDS.values(), ids=lambda cls: cls.MNEMONIC)
@settings(max_examples=25)
@given(rng=isa_cases.rngs())
def test_every_command_round_trips(cls: type, rng: Random) -> None:
    block = (isa.Located(isa_cases.random_record(cls, rng), 3),)
    program = _program(block=block)
    assert assemble(disassemble(program)).encoded == program.encoded


def _program(**fields: Any) -> Program:
    empty = {
        "name": "f",
        "chip": "vk1",
        "scratchpad_bytes": 0,
        "arena_bytes": 0,
        "buffers": (),
        "constants": b"",
        "params": (),
        "results": (),
        "donated": (),
        "locations": (),
        "block": (),
    }
    return Program(**empty | fields)


def _insn(op: str, dtype: dtypes.DType, *srcs: int, imm: bytes = b"") -> MicroInsn:
    return MicroInsn(MICRO_OPS[op].code, dtype, srcs, imm)


def linear_relu() -> Program:
    """Build out = max(x @ w + b, 0), scaled in a loop; by hand, as a compiler would."""
    relu = MicroProgram(
        (F32, F32),
        (
            _insn("add", F32, 0, 1),
            _insn("imm", F32, imm=bytes(4)),
            _insn("max", F32, 2, 3),
        ),
        (4,),
    )
    body, tail = isa.Phase.BODY, isa.Phase.TAIL
    none = isa.NO_AXIS
    group = isa.Group(
        grid=(isa.GridAxis(64, 32), isa.GridAxis(48, 16), isa.GridAxis(256, 128)),
        k_axis=2,
        tiles=(
            isa.Tile(BF16, (64, 256), (0, 2), 0, 2),
            isa.Tile(BF16, (256, 48), (2, 1), 16384, 2),
            isa.Tile(F32, (1, 48), (none, 1), 24576, 1),
            isa.Tile(F32, (64, 48), (0, 1), 24640, 1),
        ),
        stages=(
            isa.Load(0, dense(0, 64, 256, dtype=BF16), body),
            isa.Load(1, isa.View(1, BF16, 64, (256, 48), (96, 1)), body),
            isa.Gemm(0, 1, 3, isa.Strategy.BF16X1, body),
            isa.Load(2, dense(2, 1, 48), tail),
            isa.Vec((3, 2), (3,), relu, tail),
            isa.Store(dense(4, 64, 48), 3, tail),
        ),
    )
    step = isa.Copy(dense(6, 64, 48), isa.View(5, F32, 3071, (64, 48), (-48, -1)))
    loop = isa.Loop(
        trips=3,
        carries=(
            isa.Carry(
                dense(4, 64, 48), dense(5, 64, 48), dense(6, 64, 48), dense(3, 64, 48)
            ),
        ),
        body=(isa.Located(step, 1),),
    )
    seg = isa.Segment
    sizes = [
        (seg.ARGUMENT, 0, 32768),
        (seg.ARGUMENT, 0, 49280),
        (seg.CONSTANT, 0, 192),
        (seg.RESULT, 0, 12288),
        (seg.ARENA, 0, 12288),
        (seg.ARENA, 12288, 12288),
        (seg.ARENA, 24576, 12288),
        (seg.CONSTANT, 192, 40),
    ]
    return _program(
        name="jit_linear",
        scratchpad_bytes=28672,
        arena_bytes=36864,
        buffers=tuple(Buffer(*row) for row in sizes),
        constants=bytes.fromhex("0000003f") * 48 + bytes(range(40)),
        params=(
            TensorSpec(0, BF16, (64, 256), ""),
            TensorSpec(1, BF16, (24640,), "pinned_host"),
        ),
        results=(TensorSpec(3, F32, (64, 48), ""),),
        donated=(0,),
        locations=(
            Location("stablehlo.dot_general", "examples/mlp.py", 12, "layer"),
            Location("stablehlo.reverse", "", 0, ""),
        ),
        block=(isa.Located(group, 0), isa.Located(loop, 1)),
    )


def test_listing(golden: Any) -> None:
    golden(disassemble(linear_relu()), Path("tests/golden/asm_linear.txt"))


def test_listing_assembles_and_tolerates_layout() -> None:
    program = linear_relu()
    text = disassemble(program)
    assert assemble(text).fingerprint == program.fingerprint
    # Comments, blank lines, wider indentation and field order are free.
    wide = "\n".join(
        re.sub("^ +", lambda m: m[0] * 2, line) + "   ; note"
        for line in text.split("\n")
    )
    swapped = wide.replace(
        'name="jit_linear" chip="vk1"', 'chip="vk1" name="jit_linear"'
    )
    assert swapped != wide
    assert assemble(swapped + "\n\n").fingerprint == program.fingerprint


def test_elided_listing_is_refused() -> None:
    program = linear_relu()
    text = disassemble(program, elide_bytes=16)
    assert "elided nbytes=40" in text
    assert 'x"0000003f" * 48' in text  # a splat is short whatever its size
    with pytest.raises(InvalidProgram, match="--full"):
        assemble(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("program name", "prog name", "line 1: .*'program'"),
        ("trips=3", "trips=-3", "does not fit a u64"),
        ("trips=3", "trips=x", "expected an integer, found 'x"),
        ("trips=3", "trips=3 trips=4", "'trips' is given twice"),
        ("trips=3", "tripz=3", "no field 'tripz'; did you mean 'trips'"),
        (" trips=3", "", "Loop lacks trips"),
        ("loop trips", "loup trips", "'loup' is not a command"),
        ("gemm lhs", "gem lhs", "'gem' is not a stage"),
        ("strategy=BF16X1", "strategy=BF16X2", "expected one of LANES.*'BF16X2'"),
        ("bf16[64,256]", "bf17[64,256]", "element type 'bf17' does not exist"),
        ("bf16[64,256]", "bf16[64,256", "expected ','"),
        ("k_axis=2", "k_axis=256", "does not fit a u8"),
        ("r4:f32 = max", "r5:f32 = max", "expected 'r4:'"),
        ("= max r2", "= maxx r2", "'maxx' is not a micro-op"),
        ("t1: dtype", "t7: dtype", "expected 't1:'"),
        ('x"0000003f" * 48', 'x"0000003" * 48', "expected bytes as"),
        ('x"0000003f" * 48', 'x"00" * 99999999999', "repetitions"),
        ("    loop", "     loop", "no line above is indented"),
        ("    loop", "\tloop", "tab"),
        ("@1  ;", "  ;", "expected '@'"),
        ('"pinned_host"', '"pinned', "expected a quoted string"),
        ('"pinned_host"', r'"\ud800"', "is not a string"),
        ("donated=[0]", "donated=[0] 7", "expected field=value"),
        ("  params:", "  params: 3", "expected end of line"),
        ("  params:", "  chip:", "'chip' is given twice"),
    ],
)
def test_errors_name_line_and_need(old: str, new: str, message: str) -> None:
    text = disassemble(linear_relu())
    assert old in text
    with pytest.raises(InvalidProgram, match=message):
        assemble(text.replace(old, new, 1))


def test_empty_and_double_texts() -> None:
    with pytest.raises(InvalidProgram, match="empty"):
        assemble("  ; nothing\n")
    text = disassemble(_program())
    with pytest.raises(InvalidProgram, match="one program"):
        assemble(text + text)


def test_deep_nesting_is_refused_or_assembled() -> None:
    cmd: Any = isa.Copy(dense(0, 1), dense(1, 1))
    for _ in range(30):
        cmd = isa.Loop(1, (), (isa.Located(cmd, 0),))
    program = _program(block=(isa.Located(cmd, 0),))
    assert assemble(disassemble(program)).encoded == program.encoded
    lines = [
        'program name="f" chip="c" scratchpad_bytes=0 arena_bytes=0 constants=x"" '
        "donated=[]"
    ]
    lines += [f"  {x}:" for x in ("buffers", "params", "results", "locations", "block")]
    for level in range(3000):
        pad = " " * (4 + 4 * level)
        lines += [f"{pad}loop trips=1 @0", f"{pad}  carries:", f"{pad}  body:"]
    with pytest.raises(InvalidProgram, match="nested too deeply"):
        assemble("\n".join(lines))


@settings(max_examples=400)
@given(isa_cases.rngs())
def test_mutated_text_raises_only_invalid_program(rng: Random) -> None:
    text = list(disassemble(linear_relu()))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        text[at] = rng.choice(["", " ", "\n", '"', "[", "9", "x", text[at] * 2, "é"])
    try:
        program = assemble("".join(text))
    except InvalidProgram:
        return
    assert decode(program.encoded) == program
