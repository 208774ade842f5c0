"""Micro-programs: what the vector unit does to each element.

A micro-program is straight-line code over registers.  Registers 0..n-1 hold the
inputs; instruction i writes register n+i; outputs name registers.  The same form is
the combiner of a reduction or scatter and the comparator of a sort.

Rounding: every instruction rounds its result to its own type (16-bit floats included,
nearest even).  Shifts by the bit width or more give 0 (or the sign, for arithmetic).
Integer division truncates; x/0 is -1 (all ones), x%0 is x; MIN/-1 is MIN, MIN%-1 is 0.
Float to integer conversion truncates and saturates, NaN gives 0.  `max`/`min` return
NaN when either operand is NaN, and order -0 below +0.  Integers convert to 16-bit
floats through f32.  These are StableHLO's and XLA:CPU's conventions.

Subnormals: arithmetic on f32, f64 and bf16, comparisons and conversions to bool and
integers included, takes them as zeros of their sign and gives such zeros instead of
them, whatever the size of the tensor and whether operands are constants; f16 keeps
them.  What only moves bits keeps them (`select`, `neg`, `abs`, `bitcast`, `lt_total`);
a conversion between f32 and bf16, and `max` and `min`, may do either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from vkore_jax import dtypes
from vkore_jax.dtypes import DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa.codec import BYTES, DTYPE, INTS, U16, Seq, Struct, f, record


@dataclass(frozen=True)
class MicroOp:
    """One row of the micro-op table.

    Attributes:
        name: mnemonic.
        code: number in the encoding.
        arity: register operands.
        domain: dtype kinds of the operands ("biufc" letters; "*" any).
        result: "same" as the operands, "bool", "given" by the instruction's dtype,
            "part" (of a complex its float, else as the operands), "complex" of parts.
        cycles: vector cycles per lane for 32-bit elements (assumed).
        doc: meaning.
    """

    name: str
    code: int
    arity: int
    domain: str
    result: str
    cycles: int
    doc: str


_ROWS: tuple[tuple[str, int, int, str, str, int, str], ...] = (
    ("imm", 0x00, 0, "*", "given", 0, "the constant in `imm` (little-endian)"),
    ("iota", 0x01, 0, "iufc", "given", 1, "index of the element along axis imm[0]"),
    ("convert", 0x02, 1, "*", "given", 1, "value conversion"),
    ("bitcast", 0x03, 1, "*", "given", 0, "same bits, other real type of that width"),
    ("reduce_precision", 0x04, 1, "f", "same", 1, "round to imm = (exp, mantissa)"),
    ("select", 0x05, 3, "*", "same", 1, "r1 where r0 is true, else r2"),
    ("clamp", 0x06, 3, "biuf", "same", 2, "min(max(r1, r0), r2): lo, x, hi"),
    ("complex", 0x07, 2, "f", "complex", 1, "complex number from real and imaginary"),
    ("real", 0x08, 1, "fc", "part", 0, "real part"),
    ("imag", 0x09, 1, "fc", "part", 0, "imaginary part"),
    ("add", 0x10, 2, "biufc", "same", 1, "sum; or for bool"),
    ("sub", 0x11, 2, "iufc", "same", 1, "difference"),
    ("mul", 0x12, 2, "biufc", "same", 1, "product; and for bool"),
    ("div", 0x13, 2, "iufc", "same", 8, "quotient"),
    ("rem", 0x14, 2, "iuf", "same", 8, "remainder with the dividend's sign"),
    ("max", 0x15, 2, "biuf", "same", 1, "maximum; NaN wins"),
    ("min", 0x16, 2, "biuf", "same", 1, "minimum; NaN wins"),
    ("pow", 0x17, 2, "iufc", "same", 24, "power"),
    ("atan2", 0x18, 2, "fc", "same", 24, "angle of (r1, r0)"),
    ("and", 0x19, 2, "biu", "same", 1, "bitwise and"),
    ("or", 0x1A, 2, "biu", "same", 1, "bitwise or"),
    ("xor", 0x1B, 2, "biu", "same", 1, "bitwise exclusive or"),
    ("shl", 0x1C, 2, "iu", "same", 1, "shift left"),
    ("shr_a", 0x1D, 2, "iu", "same", 1, "shift right, sign filled"),
    ("shr_l", 0x1E, 2, "iu", "same", 1, "shift right, zero filled"),
    ("eq", 0x20, 2, "*", "bool", 1, "equal (false for NaN)"),
    ("ne", 0x21, 2, "*", "bool", 1, "not equal (true for NaN)"),
    ("lt", 0x22, 2, "biuf", "bool", 1, "less"),
    ("le", 0x23, 2, "biuf", "bool", 1, "less or equal"),
    ("gt", 0x24, 2, "biuf", "bool", 1, "greater"),
    ("ge", 0x25, 2, "biuf", "bool", 1, "greater or equal"),
    ("eq_total", 0x26, 2, "f", "bool", 1, "equal in IEEE total order"),
    ("ne_total", 0x27, 2, "f", "bool", 1, "different in IEEE total order"),
    ("lt_total", 0x28, 2, "f", "bool", 1, "less in IEEE total order"),
    ("le_total", 0x29, 2, "f", "bool", 1, "less or equal in IEEE total order"),
    ("gt_total", 0x2A, 2, "f", "bool", 1, "greater in IEEE total order"),
    ("ge_total", 0x2B, 2, "f", "bool", 1, "greater or equal in IEEE total order"),
    ("abs", 0x30, 1, "ifc", "part", 1, "magnitude (of a complex: float)"),
    ("neg", 0x31, 1, "iufc", "same", 1, "negation"),
    ("sign", 0x32, 1, "ifc", "same", 1, "-1, -0, 0, 1; NaN stays NaN"),
    ("not", 0x33, 1, "biu", "same", 1, "bitwise complement"),
    ("ceil", 0x34, 1, "f", "same", 1, "round up"),
    ("floor", 0x35, 1, "f", "same", 1, "round down"),
    ("round_even", 0x36, 1, "f", "same", 1, "nearest integer, ties to even"),
    ("round_away", 0x37, 1, "f", "same", 1, "nearest integer, ties away from 0"),
    ("is_finite", 0x38, 1, "f", "bool", 1, "neither infinite nor NaN"),
    ("popcnt", 0x39, 1, "iu", "same", 1, "number of set bits"),
    ("clz", 0x3A, 1, "iu", "same", 1, "leading zero bits"),
    ("exp", 0x40, 1, "fc", "same", 8, "e ** r0"),
    ("expm1", 0x41, 1, "fc", "same", 10, "e ** r0 - 1"),
    ("log", 0x42, 1, "fc", "same", 8, "natural logarithm"),
    ("log1p", 0x43, 1, "fc", "same", 10, "log(1 + r0)"),
    ("logistic", 0x44, 1, "fc", "same", 10, "1 / (1 + exp(-r0))"),
    ("tanh", 0x45, 1, "fc", "same", 10, "hyperbolic tangent"),
    ("tan", 0x46, 1, "fc", "same", 16, "tangent"),
    ("sin", 0x47, 1, "fc", "same", 12, "sine"),
    ("cos", 0x48, 1, "fc", "same", 12, "cosine"),
    ("sqrt", 0x49, 1, "fc", "same", 8, "square root"),
    ("rsqrt", 0x4A, 1, "fc", "same", 8, "1 / sqrt(r0)"),
    ("cbrt", 0x4B, 1, "f", "same", 12, "cube root"),
)

MICRO_OPS: Mapping[str, MicroOp] = MappingProxyType(
    {row[0]: MicroOp(*row) for row in _ROWS}
)
BY_CODE: Mapping[int, MicroOp] = MappingProxyType(
    {op.code: op for op in MICRO_OPS.values()}
)
if len(BY_CODE) != len(_ROWS):
    raise InvalidProgram("micro-op table: two rows share a code")


@record
class MicroInsn:
    """One micro-instruction: `r[n+i]:dtype = op(r[srcs]...)`."""

    code: int = f(U16, "micro-op code (see the micro-op table)")
    dtype: DType = f(DTYPE, "result type")
    srcs: tuple[int, ...] = f(INTS, "source registers")
    imm: bytes = f(BYTES, "constant, axis or (exponent, mantissa) bits", default=b"")

    @property
    def op(self) -> MicroOp:
        """Row of the micro-op table.  Raises InvalidProgram for an unknown code."""
        try:
            return BY_CODE[self.code]
        except KeyError:
            raise InvalidProgram(f"unknown micro-op code {self.code:#x}") from None


@record
class MicroProgram:
    """Straight-line element code."""

    inputs: tuple[DType, ...] = f(Seq(DTYPE), "types of the input registers")
    insns: tuple[MicroInsn, ...] = f(Seq(Struct(MicroInsn)), "instructions")
    outputs: tuple[int, ...] = f(INTS, "registers that leave")

    def types(self) -> list[DType]:
        """Return the type of every register, checking each instruction.

        Raises:
            InvalidProgram: naming instruction, requirement and what was found.
        """
        regs: list[DType] = list(self.inputs)
        for i, insn in enumerate(self.insns):
            problem = _check(insn, regs)
            if problem:
                raise InvalidProgram(f"micro-insn {i} ({insn.op.name}): {problem}")
            regs.append(insn.dtype)
        for r in self.outputs:
            if not 0 <= r < len(regs):
                raise InvalidProgram(f"output register {r} does not exist")
        return regs

    def output_types(self) -> tuple[DType, ...]:
        """Return the types of the outputs."""
        regs = self.types()
        return tuple(regs[r] for r in self.outputs)


def _check(insn: MicroInsn, regs: Sequence[DType]) -> str | None:
    op = insn.op
    if len(insn.srcs) != op.arity:
        return f"needs {op.arity} operands, has {len(insn.srcs)}"
    for r in insn.srcs:
        if not 0 <= r < len(regs):
            return f"reads register {r} before it is written"
    kinds = [regs[r] for r in insn.srcs]
    return _check_types(insn, op, kinds) or _check_imm(insn, op, kinds)


def _check_types(insn: MicroInsn, op: MicroOp, kinds: list[DType]) -> str | None:
    if op.name == "select":
        if kinds[0] is not dtypes.BOOL:
            return f"predicate must be i1, found {kinds[0]}"
        kinds = kinds[1:]
    if op.domain != "*":
        for t in kinds or [insn.dtype]:
            if t.kind not in op.domain:
                return f"operand type {t} is not of kinds {op.domain!r}"
    if len(set(kinds)) > 1:
        return f"operands must have one type, found {kinds}"
    rule = _RESULTS[op.result]
    if rule is None:
        return None
    wanted = rule(kinds[0])
    if wanted is None:
        return f"there is no complex type of two {kinds[0]}"
    if insn.dtype is not wanted:
        return f"result type must be {wanted}, found {insn.dtype}"
    return None


_COMPLEX = {dtypes.F32: dtypes.C64, dtypes.F64: dtypes.C128}
_PART = {c: f for f, c in _COMPLEX.items()}
_RESULTS: Mapping[str, Callable[[DType], DType | None] | None] = MappingProxyType(
    {
        "given": None,
        "same": lambda t: t,
        "bool": lambda t: dtypes.BOOL,
        "part": lambda t: _PART.get(t, t),
        "complex": _COMPLEX.get,
    }
)
"""Result type by the operands' type."""


def _check_imm(insn: MicroInsn, op: MicroOp, kinds: list[DType]) -> str | None:
    wanted = _IMM_BYTES.get(op.name, 0)
    if op.name == "imm":
        wanted = insn.dtype.itemsize
    if len(insn.imm) != wanted:
        return f"imm must be {wanted} bytes, found {len(insn.imm)}"
    if op.name == "bitcast":
        return _check_bitcast(kinds[0], insn.dtype)
    if op.name == "reduce_precision" and not insn.imm[0]:
        return "a float format has at least one exponent bit"
    if op.name == "imm":
        try:
            check_bits(insn.imm, insn.dtype)
        except InvalidProgram as e:
            return str(e)
    return None


def _check_bitcast(old: DType, new: DType) -> str | None:
    if old.bits != new.bits:
        return f"width of {old} differs from {new}"
    if (old.kind == "c") != (new.kind == "c"):
        return f"{old} and {new}: complex numbers have no bits of another kind"
    return None


def check_bits(raw: bytes, dtype: DType) -> None:
    """Check stored elements of a type narrower than its byte: upper bits are zero.

    Raises:
        InvalidProgram: a byte that is no element.
    """
    if dtype.bits < 8 and raw and max(raw) >> dtype.bits:
        raise InvalidProgram(
            f"an element of {dtype} is a byte below {1 << dtype.bits}, found {max(raw)}"
        )


_IMM_BYTES: Mapping[str, int] = MappingProxyType({"iota": 1, "reduce_precision": 2})
"""Bytes of `imm`: an axis; exponent and mantissa bits."""
