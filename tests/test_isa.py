"""The ISA table: encodings round-trip, are pinned in hex, and reject all else."""

from __future__ import annotations

import hashlib
import inspect
import itertools
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import isa_cases
from vkore_jax import dtypes, isa
from vkore_jax.errors import InvalidProgram, VersionMismatch
from vkore_jax.isa import codec as c
from vkore_jax.isa import commands as cmds
from vkore_jax.isa import enums
from vkore_jax.isa.access import accesses, written_buffers
from vkore_jax.isa.micro import MICRO_OPS, MicroInsn, MicroProgram
from vkore_jax.program import FORMAT_VERSION, MAGIC, Program, decode

RECORDS = [*cmds.COMMANDS.values(), *cmds.STAGES.values()]
ids = [cls.__name__ for cls in RECORDS]
NESTED = (cmds.GridAxis, cmds.Tile, cmds.Carry, cmds.Merge, isa.View, MicroProgram)


def _pack(value: Any) -> bytes:
    out = bytearray()
    c.pack_fields(value, out)
    return bytes(out)


@pytest.mark.parametrize("cls", RECORDS, ids=ids)
@settings(max_examples=60)
@given(rng=isa_cases.rngs())
def test_encode_decode_encode(cls: type, rng: Random) -> None:
    value = isa_cases.random_record(cls, rng)
    raw = _pack(value)
    decoded, end = c.unpack_fields(cls, raw, 0)
    assert end == len(raw)
    assert decoded == value
    assert _pack(decoded) == raw


def _views(value: Any, name: str = "") -> list[tuple[str, isa.View]]:
    """Return the views in a record with the names of their fields; blocks left out."""
    if isinstance(value, isa.View):
        return [(name, value)]
    if isinstance(value, tuple):
        return [v for x in value for v in _views(x, name)]
    if isinstance(value, cmds.Located):
        return []
    fields = getattr(type(value), "FIELDS", ())
    return [v for x in fields for v in _views(getattr(value, x.name), x.name)]


@pytest.mark.parametrize("cls", cmds.COMMANDS.values(), ids=lambda c: c.__name__)
@settings(max_examples=20)
@given(rng=isa_cases.rngs())
def test_access_knows_every_view(cls: type, rng: Random) -> None:
    """What is named as a destination is written, everything else is read."""
    value = isa_cases.random_record(cls, rng, depth=2)
    found = accesses(value)
    written = [v for n, v in _views(value) if n in ("dst", "dsts", "current", "leave")]
    read = [v for n, v in _views(value) if n not in ("dst", "dsts", "current", "leave")]
    assert sorted(map(repr, found.writes)) == sorted(map(repr, written))
    given = (*found.reads, *found.late_reads)
    assert sorted(map(repr, given)) == sorted(map(repr, read))
    late = [v for n, v in _views(value) if n in ("next", "predicate")]
    assert all(v in found.late_reads for v in late)
    block = (cmds.Located(value, 0),)
    inner = [b for _, nested in found.blocks for b in written_buffers(nested)]
    assert list(written_buffers(block)) == [v.buffer for v in found.writes] + inner
    deepest = [x.cmd for _, nested in found.blocks for x in nested]
    for cmd in deepest:
        assert {v.buffer for v in accesses(cmd).writes} <= set(inner)


@settings(max_examples=60)
@given(isa_cases.rngs())
def test_program_round_trip(rng: Random) -> None:
    program = isa_cases.random_program(rng)
    again = decode(program.encoded)
    assert again == program
    # `decode` keeps the bytes it was given; a copy has to encode for itself.
    assert _pack(again) == program.encoded[48:]
    assert again.fingerprint == hashlib.sha256(program.encoded[48:]).hexdigest()


def test_golden_hex(golden: Any) -> None:
    """A round trip cannot notice that both directions moved; the bytes can."""
    rows = []
    for cls in [*RECORDS, *NESTED]:
        raw = _pack(isa_cases.example(cls)).hex()
        lines = [raw[i : i + 64] for i in range(0, len(raw), 64)]
        rows.append(f"{cls.__name__}\n  " + "\n  ".join(lines))
    head = isa_cases.example(Program).encoded.hex()
    rows.append(f"Program\n  {head[:96]}")
    golden("\n".join(rows) + "\n", Path("tests/golden/isa_hex.txt"))


@pytest.mark.parametrize("cls", RECORDS, ids=ids)
def test_declarations_are_documented(cls: Any) -> None:
    assert inspect.getdoc(cls)
    assert cls.MNEMONIC.isidentifier()
    for x in cls.FIELDS:
        assert x.doc, f"{cls.__name__}.{x.name}"
        assert x.codec.name != "?"


def test_codes_are_unique() -> None:
    for table in (cmds.COMMANDS, cmds.STAGES):
        names = [cls.MNEMONIC for cls in table.values()]
        assert len(set(names)) == len(names)
    assert len({op.code for op in MICRO_OPS.values()}) == len(MICRO_OPS)
    assert len({d.code for d in dtypes.ALL}) == len(dtypes.ALL)
    assert len({d.short for d in dtypes.ALL}) == len(dtypes.ALL)


def test_enums_fit_their_byte() -> None:
    for _, cls in inspect.getmembers(enums, inspect.isclass):
        if issubclass(cls, enums.IntEnum) and cls is not enums.IntEnum:
            assert all(0 <= m < 256 for m in cls)


# -------------------------------------------------------------- what decode refuses


def _sealed(body: bytes) -> bytes:
    head = MAGIC + FORMAT_VERSION.to_bytes(4, "little") + bytes(4)
    return head + hashlib.sha256(body).digest() + body


def _whole_program() -> Program:
    block = tuple(
        cmds.Located(isa_cases.example(cls, seed), seed)
        for seed, cls in enumerate(cmds.COMMANDS.values())
    )
    return Program(
        *(
            block if x.name == "block" else isa_cases.sample(x.codec, i)
            for i, x in enumerate(Program.FIELDS)  # type: ignore[attr-defined]
        )
    )


BODY = _whole_program().encoded[48:]


@settings(max_examples=1000)
@given(
    st.lists(
        st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, len(BODY)),
)
def test_mutated_bytes_are_refused_or_canonical(
    changes: list[tuple[int, int]], cut: int
) -> None:
    """A damaged body with a good checksum raises InvalidProgram and nothing else.

    What still decodes must encode to the same bytes: no bit without a meaning.
    """
    body = bytearray(BODY)
    for at, byte in changes:
        body[at] = byte
    if cut % 5 == 0:
        del body[cut:]
    try:
        program = decode(_sealed(bytes(body)))
    except InvalidProgram:
        return
    assert _pack(program) == bytes(body)


@settings(max_examples=300)
@given(st.integers(0, 47 + len(BODY)), st.integers(1, 255))
def test_any_flipped_byte_is_noticed(at: int, flip: int) -> None:
    raw = bytearray(_sealed(BODY))
    raw[at] ^= flip
    with pytest.raises((InvalidProgram, VersionMismatch)):
        decode(bytes(raw))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a vkore program"),
        (b"\x7fELF" + bytes(60), "not a vkore program"),
        (_sealed(BODY) + b"\0", "checksum"),
        (_sealed(BODY + b"\0"), "1 bytes behind the program"),
        (_sealed(BODY[:-1]), "stream|exceeds|ends"),
        (_sealed(BODY)[:12] + b"\1" + _sealed(BODY)[13:], "reserved header bits"),
    ],
)
def test_malformed_containers(data: bytes, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        decode(data)


def test_other_format_version_says_both() -> None:
    raw = bytearray(_sealed(BODY))
    raw[8:12] = (77).to_bytes(4, "little")
    with pytest.raises(VersionMismatch, match=rf"77.*{FORMAT_VERSION}"):
        decode(bytes(raw))


@pytest.mark.parametrize("reserved", [2, 3])
def test_reserved_command_bits(reserved: int) -> None:
    raw = bytearray(isa.encode_block((cmds.Located(isa_cases.example(isa.Copy), 0),)))
    raw[4 + reserved] = 1
    with pytest.raises(InvalidProgram, match="reserved bits"):
        isa.decode_block(bytes(raw))


@pytest.mark.parametrize(
    ("field", "value"), [("tile", 2**16), ("tile", -1), ("tile", "x")]
)
def test_values_out_of_range_name_the_field(field: str, value: Any) -> None:
    good = {"tile": 0, "src": isa_cases.dense(0, 2), "phase": isa.Phase.BODY}
    stage = isa.Load(**good | {field: value})
    with pytest.raises(InvalidProgram, match=f"Load.{field}"):
        _pack(stage)


# ---------------------------------------------------------------------- micro-programs


def _insn(op: str, dtype: dtypes.DType, *srcs: int, imm: bytes = b"") -> MicroInsn:
    return MicroInsn(MICRO_OPS[op].code, dtype, srcs, imm)


@pytest.mark.parametrize(
    ("insn", "message"),
    [
        (_insn("add", dtypes.F32, 0), "needs 2 operands, has 1"),
        (_insn("add", dtypes.F32, 0, 5), "reads register 5 before it is written"),
        (_insn("add", dtypes.F32, 0, 1), "operands must have one type"),
        (_insn("add", dtypes.BF16, 0, 0), "result type must be f32"),
        (_insn("lt", dtypes.F32, 0, 0), "result type must be i1"),
        (_insn("and", dtypes.F32, 0, 0), "not of kinds"),
        (_insn("select", dtypes.F32, 0, 0, 0), "predicate must be i1"),
        (_insn("imm", dtypes.F32, imm=b"\0"), "imm must be 4 bytes, found 1"),
        (_insn("bitcast", dtypes.BF16, 0), "width"),
        (MicroInsn(0xFFFF, dtypes.F32, ()), "unknown micro-op code"),
    ],
)
def test_micro_type_errors(insn: MicroInsn, message: str) -> None:
    program = MicroProgram((dtypes.F32, dtypes.I32), (insn,), (2,))
    with pytest.raises(InvalidProgram, match=message):
        program.types()


def test_micro_types() -> None:
    program = MicroProgram(
        (dtypes.F32, dtypes.F32),
        (_insn("lt", dtypes.BOOL, 0, 1), _insn("select", dtypes.F32, 2, 0, 1)),
        (3, 2),
    )
    assert program.output_types() == (dtypes.F32, dtypes.BOOL)


# ------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("view", "bounds", "contiguous", "rows"),
    [
        (isa_cases.dense(0, 4, 8), (0, 31), True, True),
        (isa_cases.dense(0), (0, 0), True, True),
        (isa_cases.dense(0, 4, 0), (0, -1), True, True),
        (isa.View(0, dtypes.F32, 0, (8, 4), (1, 8)), (0, 31), False, False),
        (isa.View(0, dtypes.F32, 3, (4,), (-1,)), (0, 3), False, False),
        (isa.View(0, dtypes.F32, 0, (4, 8), (0, 1)), (0, 7), False, True),
        (isa.View(0, dtypes.F32, 5, (3, 2), (10, 1)), (5, 26), False, True),
    ],
)
def test_view_facts(
    view: isa.View, bounds: tuple[int, int], contiguous: bool, rows: bool
) -> None:
    assert view.bounds() == bounds
    assert view.is_contiguous is contiguous
    assert view.has_contiguous_rows is rows
    assert view.nbytes == 4 * view.size


def _read_by_address(view: isa.View) -> list[int]:
    return [
        view.offset + sum(i * s for i, s in zip(index, view.strides))
        for index in itertools.product(*map(range, view.shape))
    ]


def _read_by_decomposition(view: isa.View, d: isa.Decomposition) -> list[int]:
    flat = np.arange(int(np.prod(d.base, dtype=np.int64)))
    box = flat.reshape(d.base)
    box = box[tuple(map(slice, d.start, d.limit, d.step))]
    box = np.flip(box, d.reverse).transpose(d.permutation)
    kept = [axis for axis in d.dims if axis >= 0]
    shape = [1] * len(view.shape)
    for axis in kept:
        shape[axis] = view.shape[axis]
    return np.broadcast_to(box.reshape(shape), view.shape).reshape(-1).tolist()


@settings(max_examples=400)
@given(st.data())
def test_decompose_reads_the_same_elements(data: st.DataObject) -> None:
    """A view made by slicing, reversing, transposing and broadcasting is spelled so."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    total = int(np.prod(shape))
    array = np.arange(total, dtype=np.int32).reshape(shape)
    for axis, extent in enumerate(shape):
        start = data.draw(st.integers(0, extent - 1))
        limit = data.draw(st.integers(start + 1, extent))
        step = data.draw(st.integers(1, 2))
        array = array[(slice(None),) * axis + (slice(start, limit, step),)]
        if data.draw(st.booleans()):
            array = np.flip(array, axis)
    array = array.transpose(data.draw(st.permutations(range(array.ndim))))
    if data.draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    view = isa.View(
        0,
        dtypes.I32,
        int(array.reshape(-1)[0]),
        array.shape,
        tuple(s // 4 for s in array.strides),
    )
    assert _read_by_address(view) == array.reshape(-1).tolist()
    d = isa.decompose(view, total)
    if d is not None:
        assert _read_by_decomposition(view, d) == array.reshape(-1).tolist()


def test_decompose_refuses_a_diagonal() -> None:
    view = isa.View(0, dtypes.F32, 0, (3, 3), (4, 4))
    assert isa.decompose(view, 64) is None
