"""Elementwise ops: nearly all of them are rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, F32, F64
from vkore_jax.errors import NotYetImplemented
from vkore_jax.lowering.bits import cast_bits
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.regions import micro_program
from vkore_jax.lowering.registry import RuleFunction, RuleSet, Types
from vkore_jax.lowering.requirements import (
    at,
    attribute_in,
    kinds,
    micro_domain,
    only,
)

rules = RuleSet(__name__)

NARY: Mapping[str, str] = MappingProxyType(
    {
        "stablehlo.add": "add",
        "stablehlo.subtract": "sub",
        "stablehlo.multiply": "mul",
        "stablehlo.divide": "div",
        "stablehlo.remainder": "rem",
        "stablehlo.maximum": "max",
        "stablehlo.minimum": "min",
        "stablehlo.power": "pow",
        "stablehlo.atan2": "atan2",
        "stablehlo.and": "and",
        "stablehlo.or": "or",
        "stablehlo.xor": "xor",
        "stablehlo.shift_left": "shl",
        "stablehlo.shift_right_arithmetic": "shr_a",
        "stablehlo.shift_right_logical": "shr_l",
        "stablehlo.negate": "neg",
        "stablehlo.sign": "sign",
        "stablehlo.not": "not",
        "stablehlo.ceil": "ceil",
        "stablehlo.floor": "floor",
        "stablehlo.round_nearest_even": "round_even",
        "stablehlo.round_nearest_afz": "round_away",
        "stablehlo.is_finite": "is_finite",
        "stablehlo.popcnt": "popcnt",
        "stablehlo.count_leading_zeros": "clz",
        "stablehlo.exponential": "exp",
        "stablehlo.exponential_minus_one": "expm1",
        "stablehlo.log": "log",
        "stablehlo.log_plus_one": "log1p",
        "stablehlo.logistic": "logistic",
        "stablehlo.tanh": "tanh",
        "stablehlo.tan": "tan",
        "stablehlo.sine": "sin",
        "stablehlo.cosine": "cos",
        "stablehlo.sqrt": "sqrt",
        "stablehlo.rsqrt": "rsqrt",
        "stablehlo.cbrt": "cbrt",
    }
)
"""StableHLO op -> micro-op with the same operands and element type."""

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "stablehlo.abs": "abs",
        "stablehlo.real": "real",
        "stablehlo.imag": "imag",
        "stablehlo.complex": "complex",
    }
)
"""StableHLO op -> micro-op whose result type is the op's."""

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _nary(micro: str) -> tuple[RuleFunction, Types, str]:
    def rule(b: Builder, op: Op, *operands: Value) -> Value:
        return b.vec(micro, *operands)

    return rule, micro_domain(micro), f"Micro-op `{micro}`."


def _parts(micro: str) -> tuple[RuleFunction, Types, str]:
    def rule(b: Builder, op: Op, *operands: Value) -> Value:
        return b.vec(micro, *operands, dtype=op.type.dtype)

    takes = only((F32, F64)) if micro == "complex" else micro_domain(micro)
    return rule, takes, f"Micro-op `{micro}`."


rules.rows(NARY, _nary)
rules.rows(PARTS, _parts)


def _ordered(op: Op) -> str | None:
    """Complex numbers are only compared for equality."""
    equal = op.word("comparison_direction") in ("EQ", "NE")
    if equal or op.operands[0].dtype.kind != "c":
        return None
    return f"{op.operands[0]}; compare jnp.real(x) or jnp.abs(x)"


@rules.lowers(
    "stablehlo.compare",
    requires=(attribute_in("comparison_direction", DIRECTIONS, "EQ"), _ordered),
)
def compare(b: Builder, op: Op, lhs: Value, rhs: Value) -> Value:
    """Comparison; floats also in IEEE total order."""
    micro = op.word("comparison_direction").lower()
    if op.word("compare_type") == "TOTALORDER" and lhs.dtype.is_float:
        micro += "_total"
    return b.vec(micro, lhs, rhs)


@rules.lowers("stablehlo.select", takes=at(1, 2))
def select(b: Builder, op: Op, pred: Value, on_true: Value, on_false: Value) -> Value:
    """Choice by a predicate tensor or scalar."""
    return b.select(pred, on_true, on_false)


@rules.lowers("stablehlo.clamp", takes=kinds("biuf"))
def clamp(b: Builder, op: Op, low: Value, x: Value, high: Value) -> Value:
    """min(max(x, low), high); the bounds may be scalars."""
    low, high = (b.broadcast(v, x.shape, range(len(v.shape))) for v in (low, high))
    return b.vec("clamp", low, x, high)


@rules.lowers("stablehlo.convert")
def convert(b: Builder, op: Op, x: Value) -> Value:
    """Value conversion between any two element types; complex drops its i part."""
    if x.dtype.kind == "c" and op.type.dtype is BOOL:
        x = b.vec("real", x, dtype=dtypes.F32 if x.dtype is dtypes.C64 else dtypes.F64)
    return b.convert(x, op.type.dtype)


@rules.lowers("stablehlo.bitcast_convert")
def bitcast_convert(b: Builder, op: Op, x: Value) -> Value:
    """Reinterpretation of bits, also between element types of different width."""
    return cast_bits(b, x, op.type.dtype)


@rules.lowers("stablehlo.reduce_precision", takes=kinds("f"))
def reduce_precision(b: Builder, op: Op, x: Value) -> Value:
    """Rounding to a smaller exponent and mantissa."""
    bits = (op.int("exponent_bits"), op.int("mantissa_bits"))
    return b.vec("reduce_precision", x, imm=bytes(min(n, 255) for n in bits))


@rules.lowers("stablehlo.map", takes=kinds("biufc"))
def map_(b: Builder, op: Op, *operands: Value) -> Value:
    """Element code given as a region."""
    program = micro_program(b, op.regions[0])
    (out,) = b.program(program, operands, op.type.shape)
    return out


@rules.lowers("stablehlo.iota", takes=kinds("iufc", results=(0,)))
def iota(b: Builder, op: Op) -> Value:
    """Counting along an axis."""
    dtype, shape = op.type
    if len(shape) > 255:
        raise NotYetImplemented("iota of more than 255 axes")
    storage_only = dtype.bits < (16 if dtype.kind == "f" else 8)
    wide = dtypes.I32 if storage_only else dtype
    return b.convert(b.iota(wide, shape, op.int("iota_dimension")), dtype)
