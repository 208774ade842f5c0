"""Micro-programs in StableHLO: one complete table from micro-op to emission.

Registers keep only the axes along which they vary; constants are scalars.  An
instruction broadcasts its operands to what they have in common and no further, so a
reciprocal of row sums in a long elementwise chain is computed once a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import ml_dtypes

from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, F32, F64, DType
from vkore_jax.isa import MICRO_OPS, MicroInsn, MicroProgram
from vkore_jax.isa.rules import Rules
from vkore_jax.sim.fast import reductions
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, subnormal, tensor_type

MicroRule = Callable[[Emitter, MicroInsn, Sequence[Val], Shape], Val]
"""(emitter, instruction, operands of one shape, logical shape) -> result."""

RULES: Rules[MicroRule] = Rules("fast micro-ops", over=MICRO_OPS)

# Same type in and out: micro-op -> StableHLO.
_PLAIN = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "rem": "remainder",
    "atan2": "atan2",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "shl": "shift_left",
    "shr_a": "shift_right_arithmetic",
    "shr_l": "shift_right_logical",
    "sign": "sign",
    "not": "not",
    "ceil": "ceil",
    "floor": "floor",
    "round_even": "round_nearest_even",
    "round_away": "round_nearest_afz",
    "clz": "count_leading_zeros",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "tanh": "tanh",
    "tan": "tan",
    "sin": "sine",
    "cos": "cosine",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "cbrt": "cbrt",
}

_ARITHMETIC = ("add", "sub", "mul", "sign")
"""Of these, what YNNPACK does to 8-bit integers beside a reduction: it saturates."""

_FLUSHING = (
    *("atan2", "log", "log1p", "logistic", "tanh", "tan", "sin", "cos", "sqrt"),
    *("rsqrt", "cbrt", "rem"),
)
"""Of these, what XLA:CPU does not do by instructions that take subnormals as zeros."""

_OVERFLOW = {
    "exp": ("exponential", 89.0, 710.0),
    "expm1": ("exponential_minus_one", 89.0, 710.0),
}
"""Operation, and from where on it is infinite in f32 and in f64."""

_COMPARE = {
    f"{name}{suffix}": (name.upper(), total)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for suffix, total in (("", False), ("_total", True))
}


def _plain(
    word: str, e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape
) -> Val:
    wide = [_widened(e, a) for a in args]
    names = ", ".join(a.name for a in wide)
    first = wide[0]
    out = e.op(f"stablehlo.{word} {names} : {first.type}", first.dtype, first.shape)
    return e.convert(out, insn.dtype)


def _widened(e: Emitter, v: Val) -> Val:
    """Compute on 16-bit and narrower floats in f32; the conversion back rounds once.

    For + - * / and sqrt this equals the correctly rounded narrow operation, because
    f32 has more than twice the significand bits plus two (Figueroa, 1995).
    """
    return e.convert(v, F32) if v.dtype.is_float and v.dtype.bits < 32 else v


def _doubled(e: Emitter, v: Val) -> Val:
    """Compute on 8-bit integers in 16 bits, of which the conversion keeps the low ones.

    The same numbers: quotients by zero are all ones, and nothing else needs more bits.
    """
    return e.convert(v, _DOUBLE.get(v.dtype, v.dtype))


def _operand(e: Emitter, v: Val) -> Val:
    """Return an operand of arithmetic; compilers do not flush constants."""
    number = e.number(v)
    if number is None or not subnormal(v.dtype, number):
        return _doubled(e, v)
    return e.broadcast(e.scalar(v.dtype, math.copysign(0, number)), v.shape)


_DOUBLE = {dtypes.I8: dtypes.I16, dtypes.U8: dtypes.U16}


def _flushed(e: Emitter, v: Val) -> Val:
    """Replace f32 and f64 subnormals by zeros of their sign, on any thread.

    Threads that compute do so in hardware operations, but those that fold constants do
    not, and approximations on bits (log, cbrt) make anything of a subnormal.
    """
    if not v.dtype.is_float or v.dtype.bits < 32:
        return v

    def make(x: Val) -> Val:
        least = ml_dtypes.finfo(x.dtype.numpy).smallest_normal
        limit = e.broadcast(e.scalar(x.dtype, least), x.shape)
        zero = _binary(e, "multiply", x, e.broadcast(e.scalar(x.dtype, 0), x.shape))
        size = e.op(f"stablehlo.abs {x.name} : {x.type}", x.dtype, x.shape)
        tiny = _ordered(e, "LT", size, limit, "FLOAT")
        text = (
            f"stablehlo.select {tiny.name}, {zero.name}, {x.name} : "
            f"{tiny.type}, {x.type}"
        )
        return e.op(text, x.dtype, x.shape)

    return e.derive(("flushed", v.name), v, lambda: make(v))


def _flushing(
    word: str, e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape
) -> Val:
    flushed = [_flushed(e, _widened(e, a)) for a in args]
    return _plain(word, e, insn, flushed, logical)


def _arithmetic(
    word: str, e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape
) -> Val:
    args = [_operand(e, a) for a in args]
    if word == "add":
        args = [_concealed(e, a) for a in args]
    return _plain(word, e, insn, args, logical)


def _concealed(e: Emitter, v: Val) -> Val:
    """Hide a constant +0 from what makes x of x + 0: the sum of -0 and +0 is +0."""
    number = e.number(v)
    if not v.dtype.is_float or number != 0 or math.copysign(1, number) < 0:
        return v
    return e.broadcast(e.hidden(v.dtype, bytes(v.dtype.itemsize)), v.shape)


def _extreme(
    word: str, e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape
) -> Val:
    a, b = (_widened(e, v) for v in args)
    if not a.dtype.is_float:
        return _plain(word, e, insn, args, logical)
    return e.convert(reductions.extreme(e, word, a, b), insn.dtype)


def _exponential(
    row: tuple[str, float, float],
    e: Emitter,
    insn: MicroInsn,
    args: Sequence[Val],
    logical: Shape,
) -> Val:
    """Emit exp or expm1 so that YNNPACK, where both overflow early, does not take it.

    It takes a value beside a reduction only with all of its readers, and no `select`.
    """
    word, *limits = row
    x = _flushed(e, _widened(e, args[0]))
    if x.dtype.kind == "c":
        return _plain(word, e, insn, args, logical)
    limit = e.broadcast(e.scalar(x.dtype, limits[x.dtype is F64]), x.shape)
    infinite = e.broadcast(e.scalar(x.dtype, math.inf), x.shape)
    made = e.op(f"stablehlo.{word} {x.name} : {x.type}", x.dtype, x.shape)
    over = _ordered(e, "GT", x, limit, "FLOAT")
    text = (
        f"stablehlo.select {over.name}, {infinite.name}, {made.name} : "
        f"{over.type}, {made.type}"
    )
    return e.convert(e.op(text, x.dtype, x.shape), insn.dtype)


def _compare(
    direction: str,
    total: bool,
    e: Emitter,
    insn: MicroInsn,
    args: Sequence[Val],
    logical: Shape,
) -> Val:
    a, b = args
    kind = {"i": "SIGNED", "u": "UNSIGNED", "b": "UNSIGNED"}.get(a.dtype.kind, "FLOAT")
    if total:
        a, b, kind = _total_key(e, a), _total_key(e, b), "SIGNED"
    return _ordered(e, direction, a, b, kind)


def _ordered(e: Emitter, direction: str, a: Val, b: Val, kind: str) -> Val:
    text = (
        f"stablehlo.compare {direction}, {a.name}, {b.name}, {kind} : "
        f"({a.type}, {b.type}) -> {tensor_type(BOOL, a.shape)}"
    )
    return e.op(text, BOOL, a.shape)


def _total_key(e: Emitter, v: Val) -> Val:
    """Map a float to the integer that orders as IEEE 754 totalOrder does.

    The bits of a non-negative float order as integers already; those of a negative
    one in reverse, so all bits but the sign are flipped: b ^ ((b >> w-1) & max).
    E8M0 has no sign.  The FNUZ types have one NaN, in the place of -0: it comes first.
    """
    if v.dtype.bits < 8:  # every value is exact in f32, and none is NaN
        return _total_key(e, e.convert(v, F32))
    if v.dtype.short == "f8E8M0FNU":
        return e.convert(e.bitcast(v, dtypes.U8, v.shape), dtypes.I32)
    word = dtypes.by_short(f"i{8 * v.dtype.itemsize}")
    bits = e.bitcast(v, word, v.shape)
    width = e.broadcast(e.scalar(word, word.bits - 1), v.shape)
    largest = e.broadcast(e.scalar(word, (1 << (word.bits - 1)) - 1), v.shape)
    sign = _binary(e, "shift_right_arithmetic", bits, width)
    key = _binary(e, "xor", bits, _binary(e, "and", sign, largest))
    if "FNUZ" not in v.dtype.short:
        return key
    # Only the NaN has the key -1; one step up frees the least key for it.
    least = e.broadcast(e.scalar(word, -(1 << (word.bits - 1))), v.shape)
    is_nan = _ordered(e, "EQ", bits, least, "SIGNED")
    raised = _binary(e, "subtract", key, sign)
    return e.op(
        f"stablehlo.select {is_nan.name}, {least.name}, {raised.name} : "
        f"{is_nan.type}, {least.type}",
        word,
        v.shape,
    )


def _binary(e: Emitter, word: str, a: Val, b: Val) -> Val:
    return e.op(f"stablehlo.{word} {a.name}, {b.name} : {a.type}", a.dtype, a.shape)


RULES.update(
    {
        name: partial(
            _arithmetic
            if name in _ARITHMETIC
            else (_flushing if name in _FLUSHING else _plain),
            word,
        )
        for name, word in _PLAIN.items()
    }
)
RULES.update({name: partial(_exponential, row) for name, row in _OVERFLOW.items()})
RULES.update({"max": partial(_extreme, "maximum"), "min": partial(_extreme, "minimum")})
RULES.update({name: partial(_compare, *row) for name, row in _COMPARE.items()})


@RULES.rule("imm")
def imm(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    return e.splat(insn.dtype, insn.imm)


@RULES.rule("iota")
def iota(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    found = e.iota(insn.dtype, logical, insn.imm[0])
    return found.standing_for(found.shape)


@RULES.rule("convert")
def convert(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    (v,) = args
    if v.dtype.is_float and v.dtype.bits < 8 and not insn.dtype.is_float:
        v = e.convert(v, F32)  # XLA:CPU makes -128 of -6 (f4E2M1FN to i8)
    if insn.dtype is BOOL and v.dtype.is_float and v.dtype.bits != 64:
        return _nonzero(e, e.convert(v, F32))
    return e.convert(v, insn.dtype)


def _nonzero(e: Emitter, v: Val) -> Val:
    """Test f32 numbers, of which subnormals count as zeros."""
    v = _flushed(e, v)
    zero = e.broadcast(e.scalar(v.dtype, 0), v.shape)
    return _ordered(e, "NE", v, zero, "FLOAT")


@RULES.rule("bitcast")
def bitcast(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    (v,) = args
    return v if v.dtype is insn.dtype else e.bitcast(v, insn.dtype, v.shape)


@RULES.rule("reduce_precision")
def reduce_precision(
    e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape
) -> Val:
    exponent, mantissa = insn.imm
    return e.reduce_precision(args[0], exponent, mantissa)


@RULES.rule("popcnt")
def popcnt(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    (v,) = args
    if v.dtype.kind == "u" or v.dtype.bits >= 8:
        return _plain("popcnt", e, insn, args, logical)
    # XLA:CPU counts the eight bits of the sign-extended number.
    bits = e.bitcast(v, dtypes.by_short(f"u{v.dtype.short}"), v.shape)
    text = f"stablehlo.popcnt {bits.name} : {bits.type}"
    return e.bitcast(e.op(text, bits.dtype, v.shape), v.dtype, v.shape)


@RULES.rule("pow")
def pow_(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    """Power; of integers by squaring, since XLA:CPU reads six bits of the exponent."""
    if not insn.dtype.is_integer:
        return _flushing("power", e, insn, args, logical)
    base, exponent = (_doubled(e, v) for v in args)
    t, shape = base.dtype, base.shape

    def number(n: int) -> Val:
        return e.broadcast(e.scalar(t, n), shape)

    def choice(p: Val, a: Val, b: Val) -> Val:
        text = f"stablehlo.select {p.name}, {a.name}, {b.name} : {p.type}, {a.type}"
        return e.op(text, t, shape)

    def odd(bit: int) -> Val:
        masked = _binary(e, "and", exponent, number(1 << bit))
        kind = "UNSIGNED" if t.kind == "u" else "SIGNED"
        return _ordered(e, "NE", masked, number(0), kind)

    out, square = number(1), base
    for bit in range(insn.dtype.bits - (t.kind == "i")):
        out = choice(odd(bit), _binary(e, "multiply", out, square), out)
        square = _binary(e, "multiply", square, square)
    if t.kind == "u":
        return e.convert(out, insn.dtype)
    # A negative exponent truncates the reciprocal: only 1 and -1 leave something.
    one = _ordered(e, "EQ", base, number(1), "SIGNED")
    minus = _ordered(e, "EQ", base, number(-1), "SIGNED")
    sign = choice(odd(0), number(-1), number(1))
    inverse = choice(one, number(1), choice(minus, sign, number(0)))
    negative = _ordered(e, "LT", exponent, number(0), "SIGNED")
    return e.convert(choice(negative, inverse, out), insn.dtype)


@RULES.rule("select")
def select(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    p, a, b = args
    text = f"stablehlo.select {p.name}, {a.name}, {b.name} : {p.type}, {a.type}"
    return e.op(text, a.dtype, a.shape)


@RULES.rule("clamp")
def clamp(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    names = ", ".join(a.name for a in args)
    v = args[1]
    return e.op(f"stablehlo.clamp {names} : {v.type}", v.dtype, v.shape)


@RULES.rule("complex")
def complex_(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    re, im = args
    text = f"stablehlo.complex {re.name}, {im.name} : "
    return e.op(text + tensor_type(insn.dtype, re.shape), insn.dtype, re.shape)


def _part(
    word: str, e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape
) -> Val:
    (v,) = args
    text = f"stablehlo.{word} {v.name} : ({v.type}) -> "
    return e.op(text + tensor_type(insn.dtype, v.shape), insn.dtype, v.shape)


RULES.update({"real": partial(_part, "real"), "imag": partial(_part, "imag")})


@RULES.rule("div")
def div(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    """Quotient; by a constant power of two the same number as a product, and cheaper.

    XLA multiplies by the reciprocal of other constants, too, which rounds twice; it may
    not do so here (`load`).
    """
    by = e.number(args[1])
    if by is None or abs(math.frexp(by)[0]) != 0.5 or not 2**-100 < abs(by) < 2**100:
        return _arithmetic("divide", e, insn, args, logical)
    a = _widened(e, args[0])
    factor = e.broadcast(e.scalar(a.dtype, 1 / by), a.shape)
    return e.convert(_binary(e, "multiply", a, factor), insn.dtype)


@RULES.rule("neg")
def neg(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    """Negation; of floats the change of the sign bit.

    Beside a reduction YNNPACK would make +0 of +0, and instructions flush.
    """
    (v,) = args
    if not v.dtype.is_float or v.dtype.bits < 16:
        return _arithmetic("negate", e, insn, args, logical)
    word = dtypes.by_short(f"ui{v.dtype.bits}")
    sign = e.broadcast(e.scalar(word, 1 << (word.bits - 1)), v.shape)
    turned = _binary(e, "xor", e.bitcast(v, word, v.shape), sign)
    return e.bitcast(turned, v.dtype, v.shape)


@RULES.rule("abs")
def abs_(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    if args[0].dtype.kind == "c":
        return _part("abs", e, insn, args, logical)
    word = _plain if args[0].dtype.is_float else _arithmetic
    return word("abs", e, insn, args, logical)


@RULES.rule("is_finite")
def is_finite(e: Emitter, insn: MicroInsn, args: Sequence[Val], logical: Shape) -> Val:
    v = _widened(e, args[0])
    text = f"stablehlo.is_finite {v.name} : ({v.type}) -> "
    return e.op(text + tensor_type(BOOL, v.shape), BOOL, v.shape)


RULES.complete()


def run(
    e: Emitter, program: MicroProgram, inputs: Sequence[Val], logical: Shape
) -> list[Val]:
    """Emit a micro-program.

    Args:
        e: where to write.
        program: the element code.
        inputs: one value per input register, of `logical` shape or repeated along it.
        logical: shape of the outputs; () for combiners and comparators.

    Returns:
        The outputs, each with only the axes along which it varies.
    """
    registers = [v.standing_for(v.shape) for v in inputs]
    for insn in program.insns:
        args = [registers[r] for r in insn.srcs]
        rule = RULES[insn.op.name]
        made = rule(e, insn, _common(e, args), logical)
        registers.append(made.standing_for(made.shape))
    return [registers[r].standing_for(logical) for r in program.outputs]


def _common(e: Emitter, args: Sequence[Val]) -> Sequence[Val]:
    """Broadcast operands to the smallest shape that holds all of them."""
    if len(args) < 2:
        return args
    first = args[0].shape
    if all(a.shape == first for a in args):
        return args
    rank = max(len(a.shape) for a in args)
    shape = tuple(
        max(a.shape[i] for a in args if len(a.shape) == rank) for i in range(rank)
    )
    return [e.broadcast(a, shape) for a in args]


def narrower(dtype: DType) -> bool:
    """Return whether sums of the type accumulate in f32."""
    return dtype.is_float and dtype.bits < 32
