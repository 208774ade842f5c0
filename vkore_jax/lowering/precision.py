"""Which strategy multiplies which element types: JAX's precision made concrete.

Policy: a request is honoured when the array's way is at least as precise as what the
request names, and refused otherwise.  A request and the operands' types come down to a
number of significant bits; what they need not be told, the chip's profile decides:

| request                 | operands          | strategy                              |
|-------------------------|-------------------|---------------------------------------|
| DEFAULT, HIGH, HIGHEST  | f32               | `chip.precision`                      |
| DEFAULT, HIGH, HIGHEST  | a narrower float  | the array's own type if it holds them |
|                         |                   | exactly; else as f32, with at least   |
|                         |                   | the bits of the operands              |
| a named algorithm       | floats            | the cheapest of the bits that         |
|                         |                   | `ALGORITHMS` has for it               |
| any                     | f64, complex      | lanes                                 |
| F64_F64_F64             | any floats        | lanes, in f64                         |
| any, integer result     | up to 8 bits      | int8, wrapped; lanes where the array  |
|                         |                   | does not take i8                      |
| any, integer result     | wider             | lanes                                 |

Bits of a scaled strategy count from the largest element of a segment (see
`isa/strategies.py`).  A DEFAULT of fewer than eight bits (int8x1, fp8x1) is what the
owner of the profile wants, and applies to every float.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vkore_jax import dtypes
from vkore_jax.chips import LEVELS, Chip
from vkore_jax.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, U8, DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import Strategy
from vkore_jax.isa.strategies import STRATEGIES
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op

_F64_BITS = 53

ALGORITHMS: Mapping[tuple[str, str, int], int] = MappingProxyType(
    {
        ("bf16", "bf16", 1): 8,
        ("bf16", "f32", 1): 8,
        ("bf16", "f32", 3): 16,
        ("bf16", "f32", 6): 24,
        ("tf32", "f32", 1): 11,
        ("tf32", "f32", 3): 22,
        ("f16", "f16", 1): 11,
        ("f16", "f32", 1): 22,
        ("f32", "f32", 1): 24,
        ("f64", "f64", 1): _F64_BITS,
    }
)
"""(operand type, accumulator type, products) of a named dot algorithm -> significant
bits that an operand's parts must hold together.  The array accumulates in f32 always,
so narrower accumulators are honoured.  f16 with f32 accumulation asks for exact
products, so for the bits of two."""

ALGORITHM_NAMES: Mapping[str, tuple[str, str, int]] = MappingProxyType(
    {
        "BF16_BF16_BF16": ("bf16", "bf16", 1),
        "BF16_BF16_F32": ("bf16", "f32", 1),
        "BF16_BF16_F32_X3": ("bf16", "f32", 3),
        "BF16_BF16_F32_X6": ("bf16", "f32", 6),
        "TF32_TF32_F32": ("tf32", "f32", 1),
        "TF32_TF32_F32_X3": ("tf32", "f32", 3),
        "F16_F16_F16": ("f16", "f16", 1),
        "F16_F16_F32": ("f16", "f32", 1),
        "F32_F32_F32": ("f32", "f32", 1),
        "F64_F64_F64": ("f64", "f64", 1),
    }
)
"""JAX's names (`jax.lax.DotAlgorithmPreset`) of the algorithms."""

_F8 = "f8"
_NATIVE: Mapping[str, Strategy] = MappingProxyType(
    {"bf16": Strategy.BF16X1, "f16": Strategy.FP16}
)
"""Array type -> strategy that takes operands of that type as they are."""

_SIGNIFICANT: Mapping[str, int] = MappingProxyType({"bf16": 8, "f16": 11, "f32": 24})
_IN_F16 = ("f8E5M2", "f8E4M3FN", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ", "f4E2M1FN")


class Numerics(NamedTuple):
    """Element types and strategy of one contraction."""

    operand: DType
    accumulator: DType
    strategy: Strategy


def named_algorithm(op: Op) -> int | None:
    """Return the significant bits that the op's dot algorithm asks for.

    Returns:
        None when it names no algorithm; 4 for any float8 one.

    Raises:
        UnsupportedOp: no chip does as well as the algorithm asks.
    """
    fields = op.fields("algorithm")
    if not fields:
        return None
    lhs, rhs = fields["lhs_precision_type"], fields["rhs_precision_type"]
    acc, count = fields["accumulation_type"], fields["num_primitive_operations"]
    if lhs.startswith(_F8) and rhs.startswith(_F8) and count == 1:
        return 4
    found = ALGORITHMS.get((lhs, acc, count)) if lhs == rhs else None
    if found is None:
        raise UnsupportedOp(
            f"dot algorithm {lhs} x {rhs} -> {acc} with {count} products is more than "
            "the matrix unit gives; use BF16_BF16_F32, BF16_BF16_F32_X3, "
            "BF16_BF16_F32_X6, TF32_TF32_F32, TF32_TF32_F32_X3 or F32_F32_F32, or a "
            "jax.lax.Precision"
        )
    return found


def numerics(op: Op, chip: Chip, lhs: DType, rhs: DType, out: DType) -> Numerics:
    """Return how a dot_general or convolution multiplies and accumulates.

    Raises:
        UnsupportedOp: the chip's array has no strategy of enough bits.
    """
    bits = named_algorithm(op)
    pair = (lhs, rhs)
    if out.kind == "c" or any(t.kind == "c" for t in pair):
        wide = dtypes.C128 if dtypes.C128 in (*pair, out) else dtypes.C64
        return Numerics(wide, wide, Strategy.LANES)
    if F64 in (*pair, out) or bits == _F64_BITS:
        return Numerics(F64, F64, Strategy.LANES)
    if all(t.kind in "biu" for t in (*pair, out)):
        return _integer(chip, pair, out)
    acc = out if out in (BF16, F16) else F32
    level = max(op.words("precision_config"), key=LEVELS.index, default="DEFAULT")
    return _float(chip, pair, acc, bits, level)


def _float(
    chip: Chip, pair: tuple[DType, DType], acc: DType, bits: int | None, level: str
) -> Numerics:
    """Choose for float operands (integers among them count as exact floats).

    Args:
        chip: whose array.
        pair: operand types.
        acc: type that leaves the accumulators.
        bits: significant bits of a named algorithm; None for none.
        level: JAX precision, for no named algorithm.
    """
    usual = Strategy[chip.precision[level].upper()]
    coarse = level == "DEFAULT" and bits is None and STRATEGIES[usual].bits < 8
    if coarse:
        return Numerics(F32, acc, usual)
    first = pair[0]
    float8 = {first.short, STRATEGIES[Strategy.FP8].needs} <= set(chip.matrix_dtypes)
    if first.short.startswith(_F8) and float8 and pair[1] is first:
        return Numerics(first, acc, Strategy.FP8)
    for short, strategy in _NATIVE.items():
        native = dtypes.by_short(short)
        if short in chip.matrix_dtypes and all(_holds(native, t) for t in pair):
            return Numerics(native, acc, strategy)
    if bits is not None:
        return Numerics(F32, acc, cheapest(chip, bits))
    if any(t.kind in "biu" and t.bits > 8 for t in pair):
        return Numerics(F32, acc, cheapest(chip, 24))
    need = max(map(_significant, pair))
    if F32 in pair or STRATEGIES[usual].bits >= need:
        return Numerics(F32, acc, usual)
    return Numerics(F32, acc, cheapest(chip, need))


def cheapest(chip: Chip, bits: int) -> Strategy:
    """Return the chip's strategy of at least so many bits that takes least time.

    Raises:
        UnsupportedOp: there is none.
    """
    # Plain f16 overflows where the operands do not come as f16; seven bits of the
    # largest element are for those who ask for them in a profile.
    special = (Strategy.FP16, Strategy.INT8X1)
    usable = [s for s in chip.strategies if s not in special]
    able = [s for s in usable if STRATEGIES[s].bits >= bits]
    if not able:
        known = ", ".join(f"{s.name.lower()}: {STRATEGIES[s].bits}" for s in usable)
        raise UnsupportedOp(
            f"the array of chip {chip.name!r} multiplies "
            f"{', '.join(chip.matrix_dtypes)}; no strategy of it holds {bits} "
            f"significant bits ({known or 'it has none for floats'}); ask for less, or "
            "choose a chip whose array multiplies bf16, f16 or i8"
        )

    def rank(s: Strategy) -> tuple[bool, float, int]:
        facts = STRATEGIES[s]
        # Integers hold the bits of the largest element only: floats first.
        return facts.needs == "i8", facts.passes / chip.mac_rate(facts.needs), s

    return min(able, key=rank)


def _holds(native: DType, t: DType) -> bool:
    """Return whether every value of a type is a value of the array's type."""
    if t is native:
        return True
    if t.kind in "biu":
        return t.bits <= 8
    if native is F16:
        return t.short in _IN_F16 or (t.bits <= 8 and "E5M2" in t.short)
    return t.bits <= 8


def _significant(t: DType) -> int:
    """Return the significant bits of the values of a float or 8-bit integer type."""
    if t.kind in "biu":
        return 8
    return _SIGNIFICANT.get(t.short, 4)


def _integer(chip: Chip, pair: tuple[DType, DType], out: DType) -> Numerics:
    fits = all(t.bits <= 8 and t is not U8 for t in pair)
    if fits and out.bits <= 32:
        native = I8.short in chip.matrix_dtypes
        return Numerics(I8, I32, Strategy.INT8) if native else _lanes(I32)
    return _lanes(I32 if out is BOOL or out.bits < 32 else out)


def _lanes(t: DType) -> Numerics:
    return Numerics(t, t, Strategy.LANES)


def convert_operand(b: Builder, x: Value, dtype: DType) -> Value:
    """Convert a tensor before it is permuted, so that its layout stays visible."""
    layout = b.layout(x)
    if x.dtype is dtype or layout.base is x or layout.base.size != x.size:
        return b.convert(x, dtype)
    return b.move(layout._replace(base=b.convert(layout.base, dtype)))
