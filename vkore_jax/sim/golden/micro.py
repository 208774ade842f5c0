"""The meaning of every micro-op: one complete table from name to NumPy function.

A function takes the instruction and its operand arrays (which broadcast) and returns
the result in the instruction's type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vkore_jax.isa import MICRO_OPS, MicroInsn, MicroProgram
from vkore_jax.isa.rules import Rules
from vkore_jax.sim.golden.numbers import (
    convert,
    lift,
    operand,
    reduce_precision,
    settle,
    total_order_key,
    type_of,
    wide,
)

Array = np.ndarray
Rule = Callable[..., Array]

OPS: Rules[Rule] = Rules("golden micro-ops", over=MICRO_OPS)


def evaluate(
    program: MicroProgram,
    inputs: Sequence[Array],
    shape: tuple[int, ...],
    origin: Sequence[int] | None = None,
) -> list[Array]:
    """Run a micro-program on a block of elements.

    Args:
        program: the code.
        inputs: one array for each input register; they broadcast to `shape`.
        shape: shape of the block.
        origin: whole-tensor index of the block's first element (for iota).

    Returns:
        The outputs, each of the full shape.
    """
    regs: list[Array] = list(inputs)
    with np.errstate(all="ignore"):
        for insn in program.insns:
            if insn.op.name == "iota":
                regs.append(_iota(insn, shape, origin or (0,) * len(shape)))
                continue
            value = OPS[insn.op.name](insn, *[regs[r] for r in insn.srcs])
            regs.append(np.asarray(value).astype(insn.dtype.numpy, copy=False))
    return [np.broadcast_to(regs[r], shape).copy() for r in program.outputs]


def _iota(insn: MicroInsn, shape: Sequence[int], origin: Sequence[int]) -> Array:
    axis = insn.imm[0]
    index = np.arange(shape[axis], dtype=np.int64) + origin[axis]
    extents = [1] * len(shape)
    extents[axis] = shape[axis]
    return convert(index.reshape(extents), insn.dtype)


@OPS.rule("iota")
def iota(insn: MicroInsn) -> Array:
    """Never called: `evaluate` knows the block that an index counts in."""
    raise NotImplementedError


# ----------------------------------------------------------------- constants and moves


@OPS.rule("imm")
def imm(insn: MicroInsn) -> Array:
    """The constant in the instruction."""
    return np.frombuffer(insn.imm, insn.dtype.numpy)[0]


@OPS.rule("select")
def select(insn: MicroInsn, p: Array, x: Array, y: Array) -> Array:
    """Bits of x where p, else of y."""
    return np.where(p, x, y)


@OPS.rule("bitcast")
def bitcast(insn: MicroInsn, x: Array) -> Array:
    """The same bits, read as another type."""
    return np.ascontiguousarray(x).view(insn.dtype.numpy).reshape(x.shape)


@OPS.rule("complex")
def complex_(insn: MicroInsn, re: Array, im: Array) -> Array:
    """Complex number of two parts, bits kept."""
    re, im = np.broadcast_arrays(re, im)
    out = np.empty(re.shape, insn.dtype.numpy)
    out.real, out.imag = re, im
    return out


@OPS.rule("real")
def real(insn: MicroInsn, x: Array) -> Array:
    """Real part; a float is its own."""
    return np.real(x) if x.dtype.kind == "c" else x


@OPS.rule("imag")
def imag(insn: MicroInsn, x: Array) -> Array:
    """Imaginary part; 0 of a float."""
    return np.imag(x) if x.dtype.kind == "c" else np.zeros(x.shape, x.dtype)


@OPS.rule("convert")
def convert_(insn: MicroInsn, x: Array) -> Array:
    """See `numbers.convert`."""
    return convert(x, insn.dtype)


@OPS.rule("reduce_precision")
def reduce_precision_(insn: MicroInsn, x: Array) -> Array:
    """See `numbers.reduce_precision`."""
    return reduce_precision(x, insn.imm[0], insn.imm[1])


# ------------------------------------------------------------------------- arithmetic


def _by_kind(**functions: Callable[..., Any]) -> Rule:
    """Make a rule of one NumPy function per kind; "n" stands for integers.

    Operands are lifted and flushed, the result is rounded to the type: one IEEE
    operation with one rounding.
    """

    def rule(insn: MicroInsn, *xs: Array) -> Array:
        t = type_of(xs[-1])
        kind = "n" if t.is_integer else t.kind
        if kind == "c":  # products and quotients with spare precision
            return functions["c"](*[wide(x) for x in xs])
        return settle(functions[kind](*[operand(x) for x in xs]), insn.dtype)

    return rule


def _largest(x: Array, y: Array) -> Array:
    """IEEE 754-2019 maximum: NaN wins, +0 is larger than -0."""
    zeros = (x == 0) & (y == 0)
    return (
        np.where(zeros, x + y, np.maximum(x, y))
        if x.dtype.kind == "f"
        else (np.maximum(x, y))
    )


def _smallest(x: Array, y: Array) -> Array:
    """IEEE 754-2019 minimum: NaN wins, -0 is smaller than +0."""
    if x.dtype.kind != "f":
        return np.minimum(x, y)
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, -((-x) + (-y)), np.minimum(x, y))


def _quotient(x: Array, y: Array) -> Array:
    """Truncating integer division; x/0 is all ones, MIN/-1 is MIN."""
    zero = y == 0
    wraps = (y == -1) if x.dtype.kind == "i" else np.zeros(y.shape, bool)
    safe = np.where(zero | wraps, y.dtype.type(1), y)
    q = (x - np.fmod(x, safe)) // safe
    q = np.where(wraps, x.dtype.type(0) - x, q)
    return np.where(zero, ~x.dtype.type(0), q)


def _remainder(x: Array, y: Array) -> Array:
    """Integer remainder with the dividend's sign; x%0 is x, MIN%-1 is 0."""
    safe = np.where(y == 0, y.dtype.type(1), y)
    if x.dtype.kind == "i":
        safe = np.where(y == -1, y.dtype.type(1), safe)
    return np.where(y == 0, x, np.fmod(x, safe))


def _int_power(x: Array, y: Array) -> Array:
    """Wrapping integer power; a negative exponent truncates the reciprocal."""
    x, y = np.broadcast_arrays(x, y)
    base, left = x.copy(), np.where(y > 0, y, y.dtype.type(0))
    out = np.ones(x.shape, x.dtype)
    while left.any():
        out = np.where(left & 1, out * base, out)
        base, left = base * base, left >> 1
    if x.dtype.kind == "i":
        odd = np.where(y & 1, x, x * x)
        reciprocal = np.where((x == 1) | (x == -1), odd, x.dtype.type(0))
        out = np.where(y < 0, reciprocal, out)
    return out


OPS.update(
    {
        "add": _by_kind(b=np.logical_or, n=np.add, f=np.add, c=np.add),
        "sub": _by_kind(n=np.subtract, f=np.subtract, c=np.subtract),
        "mul": _by_kind(b=np.logical_and, n=np.multiply, f=np.multiply, c=np.multiply),
        "div": _by_kind(n=_quotient, f=np.divide, c=np.divide),
        "rem": _by_kind(n=_remainder, f=np.fmod),
        "max": _by_kind(b=np.logical_or, n=_largest, f=_largest, c=np.maximum),
        "min": _by_kind(b=np.logical_and, n=_smallest, f=_smallest, c=np.minimum),
    }
)


@OPS.rule("clamp")
def clamp(insn: MicroInsn, low: Array, x: Array, high: Array) -> Array:
    """min(max(x, low), high); NaN wins."""
    return OPS["min"](insn, OPS["max"](insn, x, low), high)


@OPS.rule("pow")
def pow_(insn: MicroInsn, x: Array, y: Array) -> Array:
    """Power: C's pow for floats, wrapping for integers.

    `np.power` takes the square root for an exponent of 0.5 that repeats, which differs
    for -inf and -0; `np.float_power` does not.
    """
    if insn.dtype.is_integer:
        return _int_power(lift(x), lift(y)).astype(insn.dtype.numpy)
    if insn.dtype.kind == "f":
        return settle(np.float_power(wide(x), wide(y)), insn.dtype)
    return np.float_power(wide(x), wide(y))


@OPS.rule("atan2")
def atan2(insn: MicroInsn, y: Array, x: Array) -> Array:
    """Angle of (x, y); for complex -i log((x + iy) / sqrt(x^2 + y^2))."""
    if insn.dtype.kind == "f":
        return settle(np.arctan2(wide(y), wide(x)), insn.dtype)
    a, b = wide(y), wide(x)
    return -1j * np.log((b + 1j * a) / np.sqrt(a * a + b * b))


# ------------------------------------------------------------------------ bits, shifts


def _bits(x: Array) -> Array:
    """Zero-extended bit pattern of an integer, as u64."""
    mask = np.uint64((1 << type_of(x).bits) - 1)
    return lift(x).astype(np.uint64) & mask


def _sign_extended(x: Array) -> Array:
    shift = np.int64(64 - type_of(x).bits)
    return (lift(x).astype(np.int64) << shift) >> shift


def _bitwise(function: Callable[..., Any]) -> Rule:
    def rule(insn: MicroInsn, *xs: Array) -> Array:
        return function(*[lift(x) for x in xs]).astype(insn.dtype.numpy)

    return rule


@OPS.rule("shl")
def shl(insn: MicroInsn, x: Array, by: Array) -> Array:
    """Left shift; by the width or more gives 0 (amounts are unsigned)."""
    n, width = _bits(by), np.uint64(insn.dtype.bits)
    out = _bits(x) << np.minimum(n, np.uint64(63))
    return np.where(n < width, out, np.uint64(0)).astype(_carrier(insn))


@OPS.rule("shr_l")
def shr_l(insn: MicroInsn, x: Array, by: Array) -> Array:
    """Right shift filling zeros; by the width or more gives 0."""
    n, width = _bits(by), np.uint64(insn.dtype.bits)
    out = _bits(x) >> np.minimum(n, np.uint64(63))
    return np.where(n < width, out, np.uint64(0)).astype(_carrier(insn))


@OPS.rule("shr_a")
def shr_a(insn: MicroInsn, x: Array, by: Array) -> Array:
    """Right shift filling the top bit; by the width or more leaves only it."""
    n = np.minimum(_bits(by), np.uint64(insn.dtype.bits - 1)).astype(np.int64)
    return (_sign_extended(x) >> n).astype(_carrier(insn))


def _carrier(insn: MicroInsn) -> np.dtype[Any]:
    """A NumPy integer that wraps into the type (ml_dtypes narrow from 8 bits)."""
    t = insn.dtype
    return np.dtype(np.int8 if t.kind == "i" else np.uint8) if t.bits < 8 else t.numpy


@OPS.rule("popcnt")
def popcnt(insn: MicroInsn, x: Array) -> Array:
    """Number of set bits."""
    return np.bitwise_count(_bits(x)).astype(_carrier(insn))


@OPS.rule("clz")
def clz(insn: MicroInsn, x: Array) -> Array:
    """Leading zeros: the width less the bits at or below the highest set one."""
    filled = _bits(x)
    for step in (1, 2, 4, 8, 16, 32):
        filled = filled | (filled >> np.uint64(step))
    return (insn.dtype.bits - np.bitwise_count(filled).astype(np.int64)).astype(
        _carrier(insn)
    )


@OPS.rule("not")
def not_(insn: MicroInsn, x: Array) -> Array:
    """Complement; logical for bool."""
    return np.invert(lift(x)).astype(insn.dtype.numpy)


OPS.update(
    {
        "and": _bitwise(np.bitwise_and),
        "or": _bitwise(np.bitwise_or),
        "xor": _bitwise(np.bitwise_xor),
    }
)


# ------------------------------------------------------------------------- comparisons


def _compare(function: Callable[..., Any]) -> Rule:
    return lambda insn, x, y: function(operand(x), operand(y))


def _compare_total(function: Callable[..., Any]) -> Rule:
    return lambda insn, x, y: function(total_order_key(x), total_order_key(y))


for _name, _function in (
    ("eq", np.equal),
    ("ne", np.not_equal),
    ("lt", np.less),
    ("le", np.less_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
):
    OPS.rule(_name)(_compare(_function))
    OPS.rule(f"{_name}_total")(_compare_total(_function))


# ---------------------------------------------------------------- one-operand functions


@OPS.rule("neg")
def neg(insn: MicroInsn, x: Array) -> Array:
    """Negation: flips the sign bit of floats, wraps integers."""
    if insn.dtype.is_integer:
        y = lift(x)
        return (y.dtype.type(0) - y).astype(insn.dtype.numpy)
    return np.negative(x)


@OPS.rule("abs")
def abs_(insn: MicroInsn, x: Array) -> Array:
    """Magnitude: clears the sign bit of floats; MIN stays MIN; |z| of a complex."""
    if x.dtype.kind == "c":
        return settle(np.abs(wide(x)), insn.dtype)
    return np.abs(lift(x)).astype(insn.dtype.numpy)


def _float_sign(x: Array) -> Array:
    return np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))


def _complex_sign(z: Array) -> Array:
    size = np.abs(z)
    return np.where(size == 0, z, z / np.where(size == 0, 1, size))


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    away = whole + np.copysign(x.dtype.type(1), x)
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, away, whole), x)


OPS.update(
    {
        "sign": _by_kind(n=np.sign, f=_float_sign, c=_complex_sign),
        "sqrt": _by_kind(f=np.sqrt, c=np.sqrt),
        "ceil": _by_kind(f=np.ceil),
        "floor": _by_kind(f=np.floor),
        "round_even": _by_kind(f=np.rint),
        "round_away": _by_kind(f=_round_away),
    }
)


@OPS.rule("is_finite")
def is_finite(insn: MicroInsn, x: Array) -> Array:
    """Neither infinite nor NaN."""
    return np.isfinite(lift(x))


def _rounded_once(function: Callable[[Array], Any]) -> Rule:
    """Make a rule of a function that is computed with spare precision."""

    def rule(insn: MicroInsn, x: Array) -> Array:
        y = function(wide(x))
        return settle(y, insn.dtype) if insn.dtype.kind == "f" else y

    return rule


for _name, _function in (
    ("exp", np.exp),
    ("expm1", np.expm1),
    ("log", np.log),
    ("log1p", np.log1p),
    ("logistic", lambda x: 1 / (1 + np.exp(-x))),
    ("tanh", np.tanh),
    ("tan", np.tan),
    ("sin", np.sin),
    ("cos", np.cos),
    ("rsqrt", lambda x: 1 / np.sqrt(x)),
    ("cbrt", np.cbrt),
):
    OPS.rule(_name)(_rounded_once(_function))

OPS.complete()
