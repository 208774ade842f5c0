"""Programs as text, both ways, derived from the record declarations.

A line is a command, a stage or a table row: ``mnemonic field=value ... @location``.
Fields that hold lines of their own (stages, nested blocks, tables, micro-programs, at
the end long constants) follow as ``field:`` with an indented suite.  Everything after
``;`` is comment.  `assemble(disassemble(p))` gives the bytes of `p`.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import os.path
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkore_jax.asm.inline import (
    SHORT_FORMS,
    format_bytes,
    format_fields,
    format_value,
    parse_bytes,
    parse_dtype,
    parse_list,
    parse_value,
)
from vkore_jax.asm.lexer import Line, Scanner, fail, parse_lines
from vkore_jax.errors import InternalError, InvalidProgram
from vkore_jax.isa import codec as c
from vkore_jax.isa.commands import (
    COMMANDS,
    STAGES,
    BlockCodec,
    Located,
    StageCodec,
    Tile,
)
from vkore_jax.isa.enums import Segment
from vkore_jax.isa.micro import BY_CODE, MICRO_OPS, MicroInsn, MicroProgram
from vkore_jax.program import Buffer, Location, Program

_TAB = "  "
_INLINE_BYTES = 32
_SPLAT_PERIODS = (1, 2, 4, 8, 16)

# What a table row starts with, before its index: the way other lines refer to it.
_ROW_PREFIX: Mapping[type, str] = {Buffer: "%", Location: "@", Tile: "t"}


def _by_mnemonic(table: Mapping[int, type]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cls in table.values():
        name: str = cls.MNEMONIC  # type: ignore[attr-defined]
        if name in found:
            raise InternalError(f"mnemonic {name!r} is used twice")
        found[name] = cls
    return found


_COMMAND_NAMES = _by_mnemonic(COMMANDS)
_STAGE_NAMES = _by_mnemonic(STAGES)


@dataclass(frozen=True)
class _Context:
    """What the printer knows beside the value that it prints."""

    locations: tuple[Location, ...] = ()
    constants: bytes = b""
    cuts: Mapping[int, str] = field(default_factory=dict)
    """Offsets in `constants` where a buffer begins (its name) or ends ("")."""
    elide_bytes: int | None = None


def disassemble(program: Program, elide_bytes: int | None = None) -> str:
    """Return a program as text.

    Args:
        program: any program, valid or not.
        elide_bytes: leave out constants longer than this (the listing then can be
            read but not assembled); None keeps everything.
    """
    cuts: dict[int, list[str]] = {}
    for i, b in enumerate(program.buffers):
        if b.segment is Segment.CONSTANT and b.offset < len(program.constants):
            cuts.setdefault(b.offset, []).append(f"%{i}")
            cuts.setdefault(b.offset + b.nbytes, [])
    context = _Context(
        locations=program.locations,
        constants=program.constants,
        cuts={at: " ".join(names) for at, names in cuts.items()},
        elide_bytes=elide_bytes,
    )
    lines = _record_lines("program", program, context)
    return "\n".join(lines) + "\n"


def assemble(text: str) -> Program:
    """Return the program that a text describes.

    Raises:
        InvalidProgram: naming line, requirement and what was found.
    """
    roots = parse_lines(text)
    if not roots:
        raise InvalidProgram("assembly text is empty; expected 'program ...'")
    if len(roots) > 1:
        fail(roots[1].number, "a text holds one program")
    scan = Scanner(roots[0])
    if scan.word("'program'") != "program":
        fail(roots[0].number, "expected 'program' as the first word")
    try:
        program: Program = _parse_record(Program, scan)
        _ = program.encoded  # encoding checks every range
    except RecursionError:
        raise InvalidProgram("blocks are nested too deeply to be assembled") from None
    return program


# -------------------------------------------------------------------------- classes


def _fields(cls: type) -> tuple[c.FieldInfo, ...]:
    return cls.FIELDS  # type: ignore[attr-defined]


def _is_suite(codec: c.Codec) -> bool:
    """Return whether values of a codec take lines of their own."""
    if isinstance(codec, BlockCodec):
        return True
    if isinstance(codec, c.Struct):
        if codec.cls in SHORT_FORMS:
            return SHORT_FORMS[codec.cls].own_line
        return codec.cls is MicroProgram or _any_suite(codec.cls)
    if isinstance(codec, c.Seq):
        if isinstance(codec.item, c.Struct) and codec.item.cls not in SHORT_FORMS:
            return True
        return isinstance(codec.item, StageCodec) or _is_suite(codec.item)
    return False


def _any_suite(cls: type) -> bool:
    return any(_is_suite(x.codec) for x in _fields(cls))


def _takes_lines(x: c.FieldInfo, value: Any) -> bool:
    if type(x.codec) is c.Bytes:
        return len(value) > _INLINE_BYTES
    return _is_suite(x.codec)


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (_TAB + line for line in lines)


# ------------------------------------------------------------------------- printing


def _record_lines(
    head: str, value: Any, ctx: _Context, tail: str = ""
) -> Iterator[str]:
    infos = _fields(type(value))
    flat = tuple(x for x in infos if not _takes_lines(x, getattr(value, x.name)))
    yield " ".join(filter(None, (head, format_fields(value, flat), tail)))
    # Long constants come last: whoever reads the text has seen the rest by then.
    for x in sorted(infos, key=lambda x: type(x.codec) is c.Bytes):
        if x not in flat:
            yield f"{_TAB}{x.name}:"
            suite = _suite_lines(x.codec, getattr(value, x.name), ctx)
            yield from _indent(_indent(suite))


def _suite_lines(codec: c.Codec, value: Any, ctx: _Context) -> Iterator[str]:
    if isinstance(codec, BlockCodec):
        for located in value:
            tail = f"@{located.loc}" + _comment(located.loc, ctx)
            yield from _record_lines(located.cmd.MNEMONIC, located.cmd, ctx, tail)
    elif isinstance(codec, c.Seq):
        for i, item in enumerate(value):
            yield from _item_lines(codec.item, i, item, ctx)
    elif isinstance(codec, c.Struct) and codec.cls is MicroProgram:
        yield from _micro_lines(value)
    elif isinstance(codec, c.Struct):
        yield from _record_lines(codec.cls.__name__.lower(), value, ctx)
    else:
        yield from _bytes_lines(value, ctx)


def _item_lines(codec: c.Codec, i: int, value: Any, ctx: _Context) -> Iterator[str]:
    if isinstance(codec, StageCodec):
        yield from _record_lines(value.MNEMONIC, value, ctx)
    elif isinstance(codec, c.Struct) and codec.cls not in SHORT_FORMS:
        prefix = _ROW_PREFIX.get(codec.cls, "")
        yield from _record_lines(f"{prefix}{i}:", value, ctx)
    elif isinstance(codec, c.Struct):
        yield f"{i}: {format_value(codec, value)}"
    else:
        yield f"{i}:"
        yield from _indent(_suite_lines(codec, value, ctx))


def _comment(loc: int, ctx: _Context) -> str:
    if loc >= len(ctx.locations):
        return ""
    where = ctx.locations[loc]
    place = f"{os.path.basename(where.file)}:{where.line}" if where.file else where.op
    inside = f" ({where.function})" if where.function else ""
    # The text must stay on its line whatever the names hold.
    return "  ; " + " ".join(f"{place}{inside}".split())


def _micro_lines(p: MicroProgram) -> Iterator[str]:
    ins = ", ".join(f"r{i}:{t.short}" for i, t in enumerate(p.inputs))
    yield f"({ins}) -> ({', '.join(f'r{r}' for r in p.outputs)})"
    for i, insn in enumerate(p.insns, start=len(p.inputs)):
        op = BY_CODE[insn.code].name if insn.code in BY_CODE else f"op#{insn.code}"
        args = ", ".join(f"r{r}" for r in insn.srcs)
        imm = format_bytes(insn.imm) + _imm_comment(insn) if insn.imm else ""
        tail = " ".join(filter(None, (args, imm)))
        yield f"r{i}:{insn.dtype.short} = {op} {tail}".rstrip()


def _imm_comment(insn: MicroInsn) -> str:
    if insn.code != MICRO_OPS["imm"].code or len(insn.imm) != insn.dtype.itemsize:
        return ""
    return f"  ; {np.frombuffer(insn.imm, insn.dtype.numpy)[0]!s}"


def _bytes_lines(value: bytes, ctx: _Context) -> Iterator[str]:
    cuts = ctx.cuts if value is ctx.constants else {}
    edges = sorted({0, len(value), *(at for at in cuts if at < len(value))})
    for start, end in itertools.pairwise(edges):
        note = f"  ; {cuts[start]}" if cuts.get(start) else ""
        for line in _chunk_lines(value[start:end], ctx.elide_bytes):
            yield line + note
            note = ""


def _chunk_lines(chunk: bytes, elide_bytes: int | None) -> Iterator[str]:
    for period in _SPLAT_PERIODS:
        count, rest = divmod(len(chunk), period)
        if count > 1 and not rest and chunk[period:] == chunk[:-period]:
            yield f"{format_bytes(chunk[:period])} * {count}"
            return
    if elide_bytes is not None and len(chunk) > elide_bytes:
        digest = hashlib.sha256(chunk).hexdigest()[:16]
        yield f'elided nbytes={len(chunk)} sha256="{digest}"'
        return
    for at in range(0, len(chunk), _INLINE_BYTES):
        yield format_bytes(chunk[at : at + _INLINE_BYTES])


# -------------------------------------------------------------------------- parsing


def _parse_record(cls: type, scan: Scanner) -> Any:
    """Read ``field=value ...`` up to the end or ``@``, then the suites below."""
    infos = {x.name: x for x in _fields(cls)}
    values: dict[str, Any] = {}

    def declare(name: str, line: Line) -> c.FieldInfo:
        if name not in infos:
            close = difflib.get_close_matches(name, infos, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            fail(line.number, f"{cls.__name__} has no field {name!r}{hint}")
        if name in values:
            fail(line.number, f"field {name!r} is given twice")
        return infos[name]

    while not scan.at_end and not scan.peek("@"):
        info = declare(scan.word("field=value"), scan.line)
        scan.expect("=")
        if _is_suite(info.codec):
            fail(scan.line.number, f"{info.name!r} must follow as '{info.name}:' lines")
        values[info.name] = parse_value(info.codec, scan)
    for child in scan.line.children:
        sub = Scanner(child)
        info = declare(sub.word("field:"), child)
        sub.expect(":")
        sub.end()
        if not (_is_suite(info.codec) or type(info.codec) is c.Bytes):
            fail(child.number, f"{info.name!r} must be given as {info.name}=value")
        values[info.name] = _parse_suite(info.codec, child)
    missing = [name for name in infos if name not in values]
    if missing:
        fail(scan.line.number, f"{cls.__name__} lacks {', '.join(missing)}")
    return cls(**values)


def _parse_suite(codec: c.Codec, line: Line) -> Any:
    if isinstance(codec, BlockCodec):
        return tuple(_parse_command(child) for child in line.children)
    if isinstance(codec, c.Seq):
        return tuple(
            _parse_item(codec.item, i, child) for i, child in enumerate(line.children)
        )
    if isinstance(codec, c.Struct) and codec.cls is MicroProgram:
        return _parse_micro(line)
    if isinstance(codec, c.Struct):
        if len(line.children) != 1:
            fail(line.number, f"expected one {codec.name} below")
        scan = Scanner(line.children[0])
        scan.expect(codec.cls.__name__.lower())
        return _parse_record(codec.cls, scan)
    return b"".join(_parse_chunk(child) for child in line.children)


def _parse_item(codec: c.Codec, i: int, line: Line) -> Any:
    scan = Scanner(line)
    if isinstance(codec, StageCodec):
        value = _parse_record(_named(_STAGE_NAMES, scan, "stage"), scan)
        scan.end()
        return value
    prefix = _ROW_PREFIX.get(codec.cls, "") if isinstance(codec, c.Struct) else ""
    scan.expect(f"{prefix}{i}:")
    if not isinstance(codec, c.Struct):
        scan.end()
        return _parse_suite(codec, line)
    if codec.cls in SHORT_FORMS:
        value = parse_value(codec, scan)
    else:
        value = _parse_record(codec.cls, scan)
    scan.end()
    return value


def _parse_command(line: Line) -> Located:
    scan = Scanner(line)
    cmd = _parse_record(_named(_COMMAND_NAMES, scan, "command"), scan)
    scan.expect("@")
    located = Located(cmd, scan.integer())
    scan.end()
    return located


def _named(table: Mapping[str, Any], scan: Scanner, what: str) -> Any:
    name = scan.word(f"a {what}")
    if name not in table:
        fail(
            scan.line.number,
            f"{name!r} is not a {what}; there are {', '.join(sorted(table))}",
        )
    return table[name]


def _parse_micro(line: Line) -> MicroProgram:
    if not line.children:
        fail(line.number, "expected '(inputs) -> (outputs)' below")
    scan = Scanner(line.children[0])
    scan.expect("(")
    numbered: list[int] = []

    def typed() -> Any:
        scan.expect(f"r{len(numbered)}:")
        numbered.append(0)
        return parse_dtype(scan)

    inputs = parse_list(scan, ")", typed)
    scan.expect("->")
    scan.expect("(")
    outputs = parse_list(scan, ")", lambda: _register(scan))
    scan.end()
    insns = tuple(
        _parse_insn(child, len(inputs) + i) for i, child in enumerate(line.children[1:])
    )
    return MicroProgram(inputs, insns, outputs)


def _register(scan: Scanner) -> int:
    scan.expect("r")
    return scan.integer()


def _parse_insn(line: Line, number: int) -> MicroInsn:
    scan = Scanner(line)
    scan.expect(f"r{number}:")
    dtype = parse_dtype(scan)
    scan.expect("=")
    name = scan.word("a micro-op")
    if name == "op" and scan.accept("#"):
        code = scan.integer()
    elif name in MICRO_OPS:
        code = MICRO_OPS[name].code
    else:
        fail(line.number, f"{name!r} is not a micro-op")
    srcs: list[int] = []
    while scan.peek("r"):
        srcs.append(_register(scan))
        if not scan.accept(","):
            break
    imm = b"" if scan.at_end else parse_bytes(scan)
    scan.end()
    return MicroInsn(code, dtype, tuple(srcs), imm)


def _parse_chunk(line: Line) -> bytes:
    scan = Scanner(line)
    if scan.accept("elided"):
        fail(
            line.number,
            "these constants were left out of the listing; disassemble the program "
            "without --short (vkore dis --full) to assemble it again",
        )
    value = parse_bytes(scan)
    if scan.accept("*"):
        count = scan.integer()
        if not 0 <= count * len(value) < 2**32:
            fail(line.number, f"{count} repetitions do not fit the format")
        value *= count
    scan.end()
    return value
