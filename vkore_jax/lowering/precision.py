"""Which strategy multiplies which element types: JAX's precision made concrete.

Policy: a request is honoured when the array's way is at least as precise as what the
request names, and refused otherwise.

| request                                   | operands        | strategy           |
|-------------------------------------------|-----------------|--------------------|
| DEFAULT, HIGH, HIGHEST                    | f32             | `chip.precision`   |
| any                                       | bf16, fp8, int8 | bf16x1 (exact)     |
| DEFAULT, HIGH                             | f16             | bf16x3             |
| HIGHEST                                   | f16             | bf16x6             |
| any                                       | f64, complex    | lanes              |
| any, integer result                       | up to 8 bits    | int8, wrapped      |
| any, integer result                       | wider           | lanes              |

A float16 has 11 significant bits, a pair of bf16 holds 16: bf16x3 drops only the
product of the two low parts, 2**-16 of the result, which f16 cannot show.  With three
parts (bf16x6) its products are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, U8, DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import Strategy
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op

ALGORITHMS: Mapping[tuple[str, str, int], Strategy] = MappingProxyType(
    {
        ("bf16", "bf16", 1): Strategy.BF16X1,
        ("bf16", "f32", 1): Strategy.BF16X1,
        ("bf16", "f32", 3): Strategy.BF16X3,
        ("bf16", "f32", 6): Strategy.BF16X6,
        ("tf32", "f32", 1): Strategy.BF16X3,
        ("tf32", "f32", 3): Strategy.BF16X6,
        ("f16", "f16", 1): Strategy.BF16X3,
        ("f16", "f32", 1): Strategy.BF16X6,
        ("f32", "f32", 1): Strategy.BF16X6,
        ("f64", "f64", 1): Strategy.LANES,
    }
)
"""(operand type, accumulator type, products) of a named dot algorithm -> strategy.
The array accumulates in f32 always, so narrower accumulators are honoured."""

LEVELS = ("DEFAULT", "HIGH", "HIGHEST")


class Numerics(NamedTuple):
    """Element types and strategy of one contraction."""

    operand: DType
    accumulator: DType
    strategy: Strategy


def named_algorithm(op: Op) -> Strategy | None:
    """Return the strategy of the op's dot algorithm, None when it names none.

    Raises:
        UnsupportedOp: the array cannot do as well as the algorithm asks.
    """
    fields = op.fields("algorithm")
    if not fields:
        return None
    lhs, rhs = fields["lhs_precision_type"], fields["rhs_precision_type"]
    acc, count = fields["accumulation_type"], fields["num_primitive_operations"]
    if lhs.startswith("f8") and rhs.startswith("f8") and count == 1:
        return Strategy.BF16X1
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
    """Return how a dot_general or convolution multiplies and accumulates."""
    named = named_algorithm(op)
    pair = (lhs, rhs)
    if out.kind == "c" or any(t.kind == "c" for t in pair):
        wide = dtypes.C128 if dtypes.C128 in (*pair, out) else dtypes.C64
        return Numerics(wide, wide, Strategy.LANES)
    if F64 in (*pair, out):
        return Numerics(F64, F64, Strategy.LANES)
    if all(t.kind in "biu" for t in (*pair, out)):
        return _integer(chip, pair, out)
    acc = out if out in (BF16, F16) else F32
    if all(t is BF16 or _exact_in_bf16(t) for t in pair):
        return Numerics(BF16, acc, Strategy.BF16X1)
    if named is not None and named is not Strategy.LANES:
        return Numerics(F32, acc, named)
    level = max(op.words("precision_config"), key=LEVELS.index, default="DEFAULT")
    chosen = Strategy[chip.precision[level].upper()]
    if any(t.kind in "biu" and not _exact_in_bf16(t) for t in pair):
        return Numerics(F32, acc, Strategy.BF16X6)
    if F32 not in pair:
        chosen = max(chosen, Strategy.BF16X3)
    return Numerics(F32, acc, chosen)


def _exact_in_bf16(t: DType) -> bool:
    return t.bits <= 8


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
