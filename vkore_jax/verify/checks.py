"""What every rule needs: the program's tables in flat form, and checks of views.

Rules raise InvalidProgram (HazardError, ResourceExhausted) with what was required and
what was found; the walk adds the command and the user's line.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.dtypes import DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import GridAxis, MicroProgram, Strategy, View
from vkore_jax.isa.micro import MICRO_OPS
from vkore_jax.isa.strategies import STRATEGIES
from vkore_jax.program import Program

_IOTA = MICRO_OPS["iota"].code
ITEMSIZE = {t: t.itemsize for t in dtypes.ALL}
"""Bytes of an element: `DType.itemsize` without two property calls."""


class Context:
    """A program and a chip, as the rules read them."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self.program = program
        self.chip = chip
        self.sizes = [b.nbytes for b in program.buffers]
        self.scratchpad_bytes = min(program.scratchpad_bytes, chip.scratchpad_bytes)
        self.pad_align = chip.scratchpad_align_bytes

    def view(self, v: View, what: str) -> None:
        """Check that a view names a buffer, is well formed and in bounds."""
        if v.buffer >= len(self.sizes):
            raise InvalidProgram(
                f"{what}: buffer {v.buffer} does not exist; the table has "
                f"{len(self.sizes)}"
            )
        shape, strides = v.shape, v.strides
        if len(shape) != len(strides):
            raise InvalidProgram(
                f"{what}: {len(shape)} extents but {len(strides)} strides"
            )
        low = high = v.offset
        empty = False
        for extent, stride in zip(shape, strides):
            if extent < 1:
                if extent < 0:
                    raise InvalidProgram(f"{what}: extents {shape} must be >= 0")
                empty = True
            elif stride < 0:
                low += (extent - 1) * stride
            else:
                high += (extent - 1) * stride
        if empty:
            return
        if low < 0 or (high + 1) * ITEMSIZE[v.dtype] > self.sizes[v.buffer]:
            raise InvalidProgram(
                f"{what}: view touches elements {low}..{high} of {v.dtype}, buffer "
                f"{v.buffer} has {self.sizes[v.buffer]} bytes"
            )

    def whole(self, v: View, what: str) -> None:
        """Check that a view is the dense view of a whole buffer."""
        self.view(v, what)
        size = ITEMSIZE[v.dtype]
        for extent in v.shape:
            size *= extent
        if v.offset or not v.is_contiguous:
            raise InvalidProgram(
                f"{what}: must be dense (offset 0, row-major), found offset "
                f"{v.offset}, shape {v.shape}, strides {v.strides}"
            )
        if size != self.sizes[v.buffer]:
            raise InvalidProgram(
                f"{what}: must be the whole buffer {v.buffer} of "
                f"{self.sizes[v.buffer]} bytes, found {size} bytes"
            )

    def dense(self, v: View, what: str) -> None:
        """Check that a view is dense (it may be shorter than its buffer)."""
        self.view(v, what)
        if v.offset or not v.is_contiguous:
            raise InvalidProgram(
                f"{what}: must be dense (offset 0, row-major), found offset "
                f"{v.offset}, shape {v.shape}, strides {v.strides}"
            )

    def index(self, v: View, what: str) -> None:
        """Check that a view is one integer."""
        self.view(v, what)
        if v.size != 1 or not v.dtype.is_integer:
            raise InvalidProgram(
                f"{what}: must be one integer, found {v.dtype}{list(v.shape)}"
            )

    def scalar(self, v: View, dtype: DType, what: str) -> None:
        """Check that a view is one element of a type."""
        self.view(v, what)
        if v.size != 1 or v.dtype is not dtype:
            raise InvalidProgram(
                f"{what}: must be one {dtype}, found {v.dtype}{list(v.shape)}"
            )

    def product(self, lhs: DType, rhs: DType, out: DType, strategy: Strategy) -> None:
        """Check operand and result types of a contraction against the chip."""
        takes = self.chip.matrix_dtypes
        need = STRATEGIES[strategy].needs
        if need and need not in takes:
            raise InvalidProgram(
                f"strategy {strategy.name} needs a matrix unit that multiplies {need}; "
                f"chip {self.chip.name!r} takes {', '.join(takes)}"
            )
        if strategy is Strategy.LANES:
            fits = lhs is rhs and (lhs.kind == out.kind or _both_integers(lhs, out))
            wanted = "operands of one type, a result of its kind"
        elif strategy is Strategy.INT8:
            fits = lhs is dtypes.I8 and rhs is dtypes.I8 and out.kind in "iuf"
            wanted = "i8 operands and an integer or float result"
        elif strategy is Strategy.FP8:
            fits = lhs.short in takes and rhs.short in takes and out.kind == "f"
            fits = fits and lhs.kind == rhs.kind == "f" and lhs.bits == rhs.bits == 8
            wanted = f"float8 operands among {', '.join(takes)} and a float result"
        else:
            fits = lhs.kind == rhs.kind == out.kind == "f"
            fits = fits and lhs.bits <= 32 and rhs.bits <= 32
            wanted = "float operands of at most 32 bits and a float result"
        if not fits:
            raise InvalidProgram(
                f"strategy {strategy.name} takes {wanted}; found {lhs} x {rhs} -> {out}"
            )

    def segments(self, axis: GridAxis, strategy: Strategy) -> None:
        """Check that the K axis cuts between the segments of a strategy."""
        segment = STRATEGIES[strategy].segment
        if segment and axis.block < axis.extent and axis.block % segment:
            raise InvalidProgram(
                f"strategy {strategy.name} has one scale for {segment} elements of k; "
                f"the K axis must be cut in multiples of it, found blocks of "
                f"{axis.block}"
            )


_PLAIN = {
    op.code: (
        op.arity,
        frozenset(t for t in dtypes.ALL if op.domain == "*" or t.kind in op.domain),
        op.result,
    )
    for op in MICRO_OPS.values()
    if op.arity in (1, 2) and op.name not in ("bitcast", "reduce_precision")
}
_IMM = MICRO_OPS["imm"].code


def registers(program: MicroProgram) -> list[DType]:
    """Return the types of a micro-program's registers.

    The same check as `MicroProgram.types`, for well-formed code of the common
    instructions many times faster; whatever is rare or wrong goes there.

    Raises:
        InvalidProgram: the code is malformed.
    """
    regs = list(program.inputs)
    count = len(regs)
    for insn in program.insns:
        dtype = insn.dtype
        row = _PLAIN.get(insn.code)
        if row is None:
            if insn.code != _IMM or insn.srcs or len(insn.imm) != ITEMSIZE[dtype]:
                return program.types()
        else:
            arity, domain, result = row
            srcs = insn.srcs
            if len(srcs) != arity or not 0 <= srcs[0] < count:
                return program.types()
            t = regs[srcs[0]]
            if arity == 2 and not (0 <= srcs[1] < count and regs[srcs[1]] is t):
                return program.types()
            if (
                t not in domain
                or (result == "same" and dtype is not t)
                or (result == "bool" and dtype is not dtypes.BOOL)
            ):
                return program.types()
        regs.append(dtype)
        count += 1
    for r in program.outputs:
        if not 0 <= r < count:
            return program.types()
    return regs


def _both_integers(a: DType, b: DType) -> bool:
    return a.is_integer and b.is_integer


def same(a: View, b: View, what: str) -> None:
    """Check that two tensors have one dtype and shape."""
    if a.shape != b.shape or a.dtype is not b.dtype:
        raise InvalidProgram(
            f"{what}: must have one dtype and shape, found {a.dtype}{list(a.shape)} "
            f"and {b.dtype}{list(b.shape)}"
        )


def same_dtype(a: View, b: View, what: str) -> None:
    """Check that two tensors have one dtype."""
    if a.dtype is not b.dtype:
        raise InvalidProgram(f"{what}: types must agree, found {a.dtype} and {b.dtype}")


def lengths(rank: int, **fields: Sequence[int]) -> None:
    """Check that per-axis fields have one entry for each axis."""
    for name, value in fields.items():
        if len(value) != rank:
            raise InvalidProgram(
                f"{name} must have {rank} entries, found {len(value)}: {tuple(value)}"
            )


def at_least(minimum: int, **fields: Sequence[int]) -> None:
    """Check that every entry of the fields reaches a minimum."""
    for name, value in fields.items():
        if any(v < minimum for v in value):
            raise InvalidProgram(
                f"{name} must be at least {minimum}, found {tuple(value)}"
            )


def scalar_code(
    program: MicroProgram,
    inputs: Sequence[DType],
    outputs: Sequence[DType],
    what: str,
) -> None:
    """Check a combiner's or comparator's types; it has no element index.

    Raises:
        InvalidProgram: also when the code itself is malformed.
    """
    regs = registers(program)
    if program.inputs != tuple(inputs):
        raise InvalidProgram(
            f"{what}: inputs must be {tuple(inputs)}, found {program.inputs}"
        )
    found = tuple(regs[r] for r in program.outputs)
    if found != tuple(outputs):
        raise InvalidProgram(f"{what}: outputs must be {tuple(outputs)}, found {found}")
    if any(i.code == _IOTA for i in program.insns):
        raise InvalidProgram(f"{what}: iota has no meaning in scalar code")
