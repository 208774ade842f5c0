"""Random and fixed records of the ISA, built from the declarations alone."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from vkore_jax import dtypes
from vkore_jax.isa import codec as c
from vkore_jax.isa.commands import (
    COMMANDS,
    STAGES,
    BlockCodec,
    Located,
    StageCodec,
)
from vkore_jax.isa.micro import MICRO_OPS, MicroInsn
from vkore_jax.isa.view import View, row_major
from vkore_jax.program import Program

RANGES = {
    "u8": (0, 2**8 - 1),
    "u16": (0, 2**16 - 1),
    "u32": (0, 2**32 - 1),
    "u64": (0, 2**64 - 1),
    "i64": (-(2**63), 2**63 - 1),
}
# Letters, quotes, what the assembler gives a meaning, line ends of all kinds, a NUL.
_ALPHABET = 'az09 _-./"\\;:#@%()[]{}=,\n\r\t\0\x85\u2028\u00e4\U0001f600'


def rngs() -> st.SearchStrategy[Random]:
    """Sources of random records (plain `Random`: a hundred times faster to draw)."""
    return st.integers(0, 2**32 - 1).map(Random)


def _count(rng: Random, most: int) -> range:
    return range(rng.randint(0, most))


def _integer(rng: Random, low: int, high: int) -> int:
    """Draw small, extreme and uniform numbers alike."""
    small = rng.randint(max(low, -9), 99)
    return rng.choice([low, high, small, small, small, rng.randint(low, high)])


def random_value(codec: c.Codec, rng: Random, depth: int) -> Any:
    """Draw a legal value of a field; blocks nest at most `depth` levels."""
    if isinstance(codec, BlockCodec):
        return random_block(rng, depth - 1)
    if isinstance(codec, StageCodec):
        return random_record(rng.choice(list(STAGES.values())), rng, depth)
    if isinstance(codec, c.Seq):
        return tuple(random_value(codec.item, rng, depth) for _ in _count(rng, 3))
    if isinstance(codec, c.Struct):
        return random_record(codec.cls, rng, depth)
    if isinstance(codec, c.Enum):
        return rng.choice(list(codec.cls))
    if isinstance(codec, c.Scalar):
        return _integer(rng, *RANGES[codec.name])
    return {
        c.Flag: lambda: rng.random() < 0.5,
        c.DTypeCode: lambda: rng.choice(dtypes.ALL),
        c.Ints: lambda: tuple(_integer(rng, *RANGES["i64"]) for _ in _count(rng, 4)),
        c.Text: lambda: "".join(rng.choice(_ALPHABET) for _ in _count(rng, 12)),
        c.Bytes: lambda: _random_bytes(rng),
    }[type(codec)]()


def _random_bytes(rng: Random) -> bytes:
    unit = rng.randbytes(rng.choice([0, 1, 2, 4, 8, 16, 33]))
    return unit * rng.choice([1, 1, 2, 3, 40]) + rng.randbytes(rng.choice([0, 0, 1]))


def random_record(cls: type, rng: Random, depth: int = 1) -> Any:
    """Draw a legal record of a class."""
    if cls is View and rng.random() < 0.5:
        shape = tuple(rng.randint(0, 300) for _ in _count(rng, 4))
        return View.dense(rng.randint(0, 99), rng.choice(dtypes.ALL), shape)
    infos: tuple[c.FieldInfo, ...] = cls.FIELDS  # type: ignore[attr-defined]
    drawn = [random_value(x.codec, rng, depth) for x in infos]
    if cls is MicroInsn and rng.random() < 0.8:
        drawn[0] = rng.choice(list(MICRO_OPS.values())).code
    return cls(*drawn)


def random_block(rng: Random, depth: int) -> tuple[Located, ...]:
    """Draw a block of any commands; empty when `depth` is used up."""
    if depth < 0:
        return ()
    commands = list(COMMANDS.values())
    return tuple(
        Located(random_record(rng.choice(commands), rng, depth), rng.randint(0, 5))
        for _ in _count(rng, 3)
    )


def random_program(rng: Random, depth: int = 2) -> Program:
    """Draw a program that encodes; the verifier would refuse almost all of them."""
    return random_record(Program, rng, depth)


def sample(codec: c.Codec, seed: int) -> Any:
    """One fixed value of a codec; neighbouring fields get different values."""
    if isinstance(codec, BlockCodec):
        return (Located(example(COMMANDS[0x0030], seed + 1), seed % 7),)
    if isinstance(codec, StageCodec):
        return example(STAGES[min(STAGES) + seed % len(STAGES)], seed + 1)
    if isinstance(codec, c.Seq):
        return tuple(sample(codec.item, seed + i) for i in range(2))
    if isinstance(codec, c.Struct):
        return example(codec.cls, seed + 1)
    if isinstance(codec, c.Enum):
        members = list(codec.cls)
        return members[seed % len(members)]
    return {
        c.Flag: bool(seed % 2),
        c.DTypeCode: dtypes.ALL[seed % len(dtypes.ALL)],
        c.Ints: (seed + 1, -seed, 3),
        c.Text: f"text{seed}",
        c.Bytes: bytes((seed % 256, 1)),
        c.Scalar: seed % 256,
    }[type(codec)]


def example(cls: type, seed: int = 1) -> Any:
    """Return a fixed record of a class, every field told apart by its value."""
    if cls is View:
        return View(seed, dtypes.F32, seed + 2, (2, 3), (3 * seed, 1))
    if cls is MicroInsn:
        return MicroInsn(0x10, dtypes.F32, (0, seed), b"")
    infos: tuple[c.FieldInfo, ...] = cls.FIELDS  # type: ignore[attr-defined]
    return cls(*(sample(x.codec, seed + 3 * i) for i, x in enumerate(infos)))


def dense(buffer: int, *shape: int, dtype: dtypes.DType = dtypes.F32) -> View:
    """Return a dense view; shorthand for tests."""
    return View(buffer, dtype, 0, shape, row_major(shape))
