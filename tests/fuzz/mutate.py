"""Mutations of programs: of fields by their declared codec, and of raw bytes.

Every mutation is a function of a `Random`; a case is its seed and number.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.fuzz.corpus import Families
from tests.isa_cases import RANGES, random_value
from vkore_jax import dtypes
from vkore_jax.isa import MICRO_OPS, GridAxis, Located, MicroInsn, MicroProgram, Tile
from vkore_jax.isa import codec as c
from vkore_jax.isa.commands import BlockCodec, StageCodec
from vkore_jax.isa.enums import Segment
from vkore_jax.isa.view import View, row_major
from vkore_jax.program import Buffer, Program

POWERS = (7, 8, 15, 16, 24, 30, 31, 32, 33, 39, 40, 41, 47, 53, 62, 63, 64)
BOUNDARY = (
    *range(-3, 6),
    *(s * (1 << p) + d for p in POWERS for s in (1, -1) for d in (-1, 0, 1)),
)
Donor = Callable[[], Program]


def integer(rng: Random, value: int, low: int, high: int) -> int:
    """Draw a neighbour, a multiple, or a boundary."""
    drawn = rng.choice(
        (
            value + rng.choice((-1, 1, 1, 2, 3)),
            value * 2,
            value // 2,
            -value,
            rng.choice(BOUNDARY),
            rng.choice(BOUNDARY),
            rng.randint(0, 9),
            rng.choice((low, high)),
        )
    )
    return min(max(drawn, low), high)


def value(codec: c.Codec, old: Any, rng: Random, donor: Donor) -> Any:
    """Return a field's value, changed in one place."""
    if isinstance(codec, BlockCodec):
        return _block(old, rng, donor)
    if isinstance(codec, StageCodec):
        return record(old, rng, donor)
    if isinstance(codec, c.Struct):
        return record(old, rng, donor)
    if isinstance(codec, c.Seq):
        return _sequence(codec.item, old, rng, donor)
    if isinstance(codec, c.Ints):
        return _ints(old, rng)
    if isinstance(codec, c.Scalar):
        return integer(rng, old, *RANGES[codec.name])
    if isinstance(codec, c.Flag):
        return not old
    if type(codec) is c.Bytes:
        return raw(old, rng)
    return random_value(codec, rng, 0)


def _weights(infos: Sequence[c.FieldInfo], whole: Any) -> list[float]:
    """Prefer fields that hold much, but leave the small ones a chance."""
    out = []
    for x in infos:
        field = getattr(whole, x.name)
        size = len(field) if isinstance(field, tuple | bytes) else 1
        out.append((1 + math.log2(1 + size)) * (3 if x.name == "block" else 1))
    return out


def record(old: Any, rng: Random, donor: Donor) -> Any:
    """Return a record with one field changed."""
    if isinstance(old, View) and rng.random() < 0.4:
        return _view(old, rng)
    if isinstance(old, MicroInsn) and rng.random() < 0.6:
        return _insn(old, rng)
    infos: Sequence[c.FieldInfo] = getattr(type(old), "FIELDS")  # noqa: B009
    if isinstance(old, Located):
        return _located(old, rng, donor)
    (x,) = rng.choices(infos, _weights(infos, old))
    return replace(old, **{x.name: value(x.codec, getattr(old, x.name), rng, donor)})


def _located(old: Located, rng: Random, donor: Donor) -> Located:
    if rng.random() < 0.03:
        return Located(old.cmd, integer(rng, old.loc, 0, 2**32 - 1))
    return Located(record(old.cmd, rng, donor), old.loc)


def _view(old: View, rng: Random) -> View:
    """Change a view so that it often stays well formed."""
    rank = len(old.shape)
    kind = rng.randrange(6)
    if kind == 0 and rank:  # repeat along an axis
        axis = rng.randrange(rank)
        return replace(old, strides=_set(old.strides, axis, 0))
    if kind == 1 and rank:  # run backwards
        axis = rng.randrange(rank)
        step = old.strides[axis] * (old.shape[axis] - 1)
        strides = _set(old.strides, axis, -old.strides[axis])
        return replace(old, strides=strides, offset=_within(old.offset + step))
    if kind == 2 and rank > 1:  # turn
        order = list(range(rank))
        rng.shuffle(order)
        shape, strides = ([x[i] for i in order] for x in (old.shape, old.strides))
        return replace(old, shape=tuple(shape), strides=tuple(strides))
    if kind == 3:  # reread
        return replace(old, dtype=rng.choice(dtypes.ALL))
    if kind == 4 and rank:  # cut
        axis = rng.randrange(rank)
        extent = rng.randint(0, max(old.shape[axis], 1))
        return replace(old, shape=_set(old.shape, axis, extent))
    at = rng.randint(0, rank)
    step = rng.choice((0, 1, *BOUNDARY))
    return replace(
        old,
        shape=(*old.shape[:at], 1, *old.shape[at:]),
        strides=(*old.strides[:at], _within(step), *old.strides[at:]),
    )


def _within(number: int) -> int:
    return min(max(number, -(2**63)), 2**63 - 1)


def _insn(old: MicroInsn, rng: Random) -> MicroInsn:
    """Exchange an instruction for one with as many operands."""
    same = [op for op in MICRO_OPS.values() if op.arity == len(old.srcs)]
    op = rng.choice(same or list(MICRO_OPS.values()))
    dtype = dtypes.BOOL if op.result == "bool" else old.dtype
    imm = rng.randbytes(dtype.itemsize if op.name == "imm" else 0)
    return replace(old, code=op.code, dtype=dtype, imm=imm)


def _set(values: tuple[int, ...], at: int, new: int) -> tuple[int, ...]:
    return (*values[:at], new, *values[at + 1 :])


def _ints(old: tuple[int, ...], rng: Random) -> tuple[int, ...]:
    low, high = RANGES["i64"]
    kind = rng.randrange(8)
    at = rng.randrange(len(old)) if old else 0
    if not old or kind == 0:
        return (*old[:at], integer(rng, 1, low, high), *old[at:])
    if kind == 1:
        return (*old[:at], *old[at + 1 :])
    if kind == 2:
        return tuple(rng.sample(old, len(old)))
    if kind == 3:
        return old * rng.choice((2, 8, 40))
    return _set(old, at, integer(rng, old[at], low, high))


def _sequence(
    item: c.Codec, old: tuple[Any, ...], rng: Random, donor: Donor
) -> tuple[Any, ...]:
    kind = rng.randrange(10)
    at = rng.randrange(len(old)) if old else 0
    if not old or kind == 0:
        return (*old[:at], random_value(item, rng, 0), *old[at:])
    if kind < 4:
        return _moved(old, rng)
    return (*old[:at], value(item, old[at], rng, donor), *old[at + 1 :])


def _moved(old: tuple[Any, ...], rng: Random) -> tuple[Any, ...]:
    """Delete, double or exchange items."""
    at, other, kind = rng.randrange(len(old)), rng.randrange(len(old)), rng.randrange(3)
    if kind == 0:
        return (*old[:at], *old[at + 1 :])
    if kind == 1:
        return (*old[:at], old[at], *old[at:])
    swapped = list(old)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    return tuple(swapped)


def _block(old: tuple[Any, ...], rng: Random, donor: Donor) -> tuple[Any, ...]:
    kind = rng.randrange(14)
    if not old or kind == 0:
        at, other = rng.randint(0, len(old)), donor().block
        return (*old[:at], *rng.sample(other, min(len(other), 1)), *old[at:])
    if kind <= 3:
        return _moved(old, rng)
    at = rng.randrange(len(old))
    return (*old[:at], _located(old[at], rng, donor), *old[at + 1 :])


def raw(old: bytes, rng: Random) -> bytes:
    """Return bytes with a few changed, cut, added or repeated."""
    out = bytearray(old)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind, at = rng.randrange(6), rng.randrange(len(out) + 1)
        if kind <= 2 and at < len(out):
            out[at] = rng.choice(
                (0, 1, 2, 127, 128, 255, out[at] ^ 1 << rng.randrange(8))
            )
        elif kind == 3:
            del out[at : at + rng.choice((1, 2, 4, 8, 64))]
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
        else:
            end = at + rng.choice((1, 4, 8, 32))
            out[at:at] = out[at:end]
    return bytes(out)


def repaired(body: bytes, head: bytes) -> bytes:
    """Return a body with a header whose checksum is its own."""
    return head[:16] + hashlib.sha256(body).digest() + body


# --------------------------------------------------------------------- whole programs


def everywhere(old: Any, change: Callable[[Any], Any]) -> Any:
    """Return a record with every nested record replaced, innermost first."""
    if isinstance(old, tuple):
        return tuple(everywhere(x, change) for x in old)
    infos = getattr(type(old), "FIELDS", None)
    if infos is None:
        return old
    fields = {x.name: everywhere(getattr(old, x.name), change) for x in infos}
    return change(type(old)(**fields))


def types_of(p: Program) -> list[dtypes.DType]:
    """Return the element types that a program names."""
    found: set[dtypes.DType] = set()

    def note(x: Any) -> Any:
        found.add(getattr(x, "dtype", dtypes.F32))
        return x

    everywhere(p, note)
    return sorted(found, key=lambda t: t.code)


def retyped(p: Program, old: dtypes.DType, new: dtypes.DType) -> Program:
    """Return a program with one element type in the place of another.

    What is filled with it grows or shrinks; constants are cut.
    """
    size: dict[int, int] = {}

    def change(x: Any) -> Any:
        if getattr(x, "dtype", None) is old:
            x = replace(x, dtype=new)
        if isinstance(x, MicroInsn):
            if len(x.imm) == old.itemsize and not x.srcs:
                x = replace(x, imm=(x.imm * new.itemsize)[: x.dtype.itemsize])
        elif isinstance(x, MicroProgram):
            x = replace(x, inputs=tuple(new if t is old else t for t in x.inputs))
        elif isinstance(x, View) or hasattr(x, "memory_kind"):
            extents = max(x.shape, default=1), math.prod(x.shape)
            if min(extents) >= 0:
                size[x.buffer] = max(
                    size.get(x.buffer, 0), x.dtype.itemsize * extents[1]
                )
        return x

    return _laid_out(everywhere(p, change), size)


def _laid_out(p: Program, size: dict[int, int]) -> Program:
    """Return a program with buffers of new sizes one behind another."""
    ends = dict.fromkeys(Segment, 0)
    rows = []
    for i, b in enumerate(p.buffers):
        at, nbytes = -(-ends[b.segment] // 64) * 64, size.get(i, b.nbytes)
        if b.segment is Segment.CONSTANT:
            at = b.offset
            nbytes = min(nbytes, max(len(p.constants) - at, 0))
        ends[b.segment] = at + nbytes
        rows.append(Buffer(b.segment, at, nbytes))
    return replace(p, buffers=tuple(rows), arena_bytes=ends[Segment.ARENA])


def resized(p: Program, rng: Random) -> Program:
    """Return a program with one extent replaced by another, buffers laid out anew."""
    extents = sorted({e for s in (*p.params, *p.results) for e in s.shape})
    if not extents:
        return p
    old = rng.choice(extents)
    new = max(0, rng.choice((0, 1, 2, 3, 5, old + 1, old - 1, 2 * old)))
    size: dict[int, int] = {}

    def ints(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new if v == old else v for v in values)

    def change(x: Any) -> Any:
        if isinstance(x, View) and len(x.shape) == len(x.strides):
            dense = x.strides == row_major(x.shape)
            shape = ints(x.shape)
            x = replace(
                x, shape=shape, strides=row_major(shape) if dense else x.strides
            )
            size[x.buffer] = max(size.get(x.buffer, 0), x.nbytes)
        elif isinstance(x, GridAxis):
            x = replace(x, extent=new if x.extent == old else x.extent)
        elif isinstance(x, Tile) or hasattr(x, "memory_kind"):
            x = replace(x, shape=ints(x.shape))
        return x

    return _laid_out(everywhere(p, change), size)


def mutant(families: Families, rng: Random) -> bytes:
    """Return the bytes of one case.

    Raises:
        InvalidProgram: a mutation that no encoding has.
    """

    def donor() -> Program:
        return rng.choice(families[rng.choice(names)])

    names = list(families)
    p = donor()
    if rng.random() < 0.1:
        data = p.encoded
        return repaired(raw(data[48:], rng), data[:48])
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        kind = rng.random()
        if kind < 0.07:
            p = retyped(p, rng.choice(types_of(p)), rng.choice(dtypes.ALL))
        elif kind < 0.2:
            p = resized(p, rng)
        else:
            p = record(p, rng, donor)
    return p.encoded
