"""How one field value is spelled within a line, for every codec, both ways.

The table is keyed by codec class, so a new command needs nothing here.  A record may
have a short form (``%3:f32[4]`` for a view); it states the fields that it spells and
is refused at import when the record's declaration has others.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vkore_jax import dtypes
from vkore_jax.asm.lexer import Scanner, fail
from vkore_jax.dtypes import DType
from vkore_jax.errors import InternalError, VkoreError
from vkore_jax.isa import codec as c
from vkore_jax.isa.commands import GridAxis
from vkore_jax.isa.view import View, row_major
from vkore_jax.program import TensorSpec

_DTYPE = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:<[a-z0-9]+>)?")
_HEX = re.compile(r'x"((?:[0-9a-fA-F]{2})*)"')
_F64 = re.compile(r"0x[0-9a-fA-F]{16}")

Format = Callable[[Any, Any], str]
Parse = Callable[[Any, Scanner], Any]


@dataclass(frozen=True)
class ShortForm:
    """The spelling of a record that is not ``(name=value, ...)``.

    Attributes:
        fields: names of the fields that it spells: all of the record's.
        own_line: each record of a sequence takes a line of its own.
    """

    fields: tuple[str, ...]
    format: Callable[[Any], str]
    parse: Callable[[Scanner], Any]
    own_line: bool = False


def format_value(codec: c.Codec, value: Any) -> str:
    """Spell a field value."""
    return _form(codec)[0](codec, value)


def parse_value(codec: c.Codec, scan: Scanner) -> Any:
    """Read a field value."""
    return _form(codec)[1](codec, scan)


def format_fields(value: Any, infos: tuple[c.FieldInfo, ...]) -> str:
    """Spell fields of a record as ``name=value name=value``."""
    return " ".join(
        f"{x.name}={format_value(x.codec, getattr(value, x.name))}" for x in infos
    )


# ------------------------------------------------------------------ scalar spellings


def _format_scalar(codec: c.Scalar, value: Any) -> str:
    if isinstance(value, float):
        return "0x" + struct.pack(">d", value).hex()
    return str(value)


def _parse_scalar(codec: c.Scalar, scan: Scanner) -> Any:
    if codec is c.F64:
        bits = scan.match(_F64, "the bits of an f64 as 0x and 16 hex digits")
        return struct.unpack(">d", bytes.fromhex(bits[2:]))[0]
    return scan.integer()


def _parse_flag(codec: c.Flag, scan: Scanner) -> bool:
    if scan.accept("true"):
        return True
    scan.expect("false")
    return False


def _parse_enum(codec: c.Enum, scan: Scanner) -> Any:
    names = codec.cls.__members__
    needed = f"one of {', '.join(names)}"
    word = scan.word(needed)
    if word not in names:
        fail(scan.line.number, f"expected {needed}, found {word!r}")
    return names[word]


def parse_dtype(scan: Scanner) -> DType:
    """Read an element type such as ``bf16``."""
    name = scan.match(_DTYPE, "an element type")
    try:
        return dtypes.by_short(name)
    except VkoreError as e:
        fail(scan.line.number, str(e))


def format_bytes(value: bytes) -> str:
    """Spell bytes as ``x"00ff"``."""
    return f'x"{value.hex()}"'


def parse_bytes(scan: Scanner) -> bytes:
    """Read bytes in hexadecimal."""
    return bytes.fromhex(scan.match(_HEX, 'bytes as x"hex digits"')[2:-1])


def parse_list(scan: Scanner, close: str, item: Callable[[], Any]) -> tuple[Any, ...]:
    """Read ``item, item close``; the opening bracket is already consumed."""
    items: list[Any] = []
    if scan.accept(close):
        return ()
    while True:
        items.append(item())
        if scan.accept(close):
            return tuple(items)
        scan.expect(",")


def format_ints(value: tuple[int, ...], brackets: str = "[]") -> str:
    """Spell integers as ``[1,2]``."""
    return brackets[0] + ",".join(map(str, value)) + brackets[1]


def _parse_seq(codec: c.Seq, scan: Scanner) -> tuple[Any, ...]:
    scan.expect("[")
    return parse_list(scan, "]", lambda: parse_value(codec.item, scan))


def _parse_ints(codec: c.Ints, scan: Scanner) -> tuple[int, ...]:
    scan.expect("[")
    return parse_list(scan, "]", scan.integer)


# ------------------------------------------------------------------ record spellings


def _format_view(v: View) -> str:
    text = f"%{v.buffer}:{v.dtype.short}{format_ints(v.shape)}"
    if v.offset == 0 and v.strides == row_major(v.shape):
        return text
    return text + format_ints(v.strides, "{}") + f"{v.offset:+d}"


def _parse_view(scan: Scanner) -> View:
    scan.expect("%")
    buffer = scan.integer()
    scan.expect(":")
    dtype = parse_dtype(scan)
    scan.expect("[")
    shape = parse_list(scan, "]", scan.integer)
    if not scan.accept("{"):
        return View(buffer, dtype, 0, shape, row_major(shape))
    strides = parse_list(scan, "}", scan.integer)
    return View(buffer, dtype, scan.integer(), shape, strides)


def _format_spec(s: TensorSpec) -> str:
    text = f"%{s.buffer}:{s.dtype.short}{format_ints(s.shape)}"
    return text + (f" kind={json.dumps(s.memory_kind)}" if s.memory_kind else "")


def _parse_spec(scan: Scanner) -> TensorSpec:
    scan.expect("%")
    buffer = scan.integer()
    scan.expect(":")
    dtype = parse_dtype(scan)
    scan.expect("[")
    shape = parse_list(scan, "]", scan.integer)
    kind = scan.string() if scan.accept("kind=") else ""
    return TensorSpec(buffer, dtype, shape, kind)


def _parse_grid_axis(scan: Scanner) -> GridAxis:
    extent = scan.integer()
    scan.expect("/")
    return GridAxis(extent, scan.integer())


SHORT_FORMS: Mapping[type, ShortForm] = {
    View: ShortForm(
        ("buffer", "dtype", "offset", "shape", "strides"), _format_view, _parse_view
    ),
    GridAxis: ShortForm(
        ("extent", "block"), lambda g: f"{g.extent}/{g.block}", _parse_grid_axis
    ),
    TensorSpec: ShortForm(
        ("buffer", "dtype", "shape", "memory_kind"),
        _format_spec,
        _parse_spec,
        own_line=True,
    ),
}
for _cls, _short in SHORT_FORMS.items():
    _declared = tuple(x.name for x in getattr(_cls, "FIELDS"))  # noqa: B009
    if sorted(_declared) != sorted(_short.fields):
        raise InternalError(
            f"short form of {_cls.__name__} spells {_short.fields}, "
            f"its declaration has {_declared}"
        )


def _format_struct(codec: c.Struct, value: Any) -> str:
    short = SHORT_FORMS.get(codec.cls)
    if short:
        return short.format(value)
    fields: tuple[c.FieldInfo, ...] = codec.cls.FIELDS  # type: ignore[attr-defined]
    inner = (
        f"{x.name}={format_value(x.codec, getattr(value, x.name))}" for x in fields
    )
    return "(" + ", ".join(inner) + ")"


def _parse_struct(codec: c.Struct, scan: Scanner) -> Any:
    short = SHORT_FORMS.get(codec.cls)
    if short:
        return short.parse(scan)
    fields: tuple[c.FieldInfo, ...] = codec.cls.FIELDS  # type: ignore[attr-defined]
    scan.expect("(")
    values: list[Any] = []
    for i, x in enumerate(fields):
        if i:
            scan.expect(",")
        scan.expect(x.name)
        scan.expect("=")
        values.append(parse_value(x.codec, scan))
    scan.expect(")")
    return codec.cls(*values)


FORMS: Mapping[type[c.Codec], tuple[Format, Parse]] = {
    c.Scalar: (_format_scalar, _parse_scalar),
    c.Flag: (lambda _, v: "true" if v else "false", _parse_flag),
    c.Enum: (lambda _, v: v.name, _parse_enum),
    c.DTypeCode: (lambda _, v: v.short, lambda _, s: parse_dtype(s)),
    c.Ints: (lambda _, v: format_ints(v), _parse_ints),
    c.Bytes: (lambda _, v: format_bytes(v), lambda _, s: parse_bytes(s)),
    c.Text: (
        lambda _, v: json.dumps(v, ensure_ascii=False),
        lambda _, s: s.string(),
    ),
    c.Seq: (
        lambda k, v: "[" + ", ".join(format_value(k.item, x) for x in v) + "]",
        _parse_seq,
    ),
    c.Struct: (_format_struct, _parse_struct),
}


def _form(codec: c.Codec) -> tuple[Format, Parse]:
    try:
        return FORMS[type(codec)]
    except KeyError:
        raise InternalError(f"codec {codec.name!r} has no assembly form") from None
