"""What every rule needs: the program's tables in flat form, and checks of views.

Rules raise InvalidProgram (HazardError, ResourceExhausted) with what was required and
what was found; the walk adds the command and the user's line.  What a descriptor may
say at all is in `vkore_jax.isa.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.dtypes import DType
from vkore_jax.errors import InvalidProgram, ResourceExhausted
from vkore_jax.isa import GridAxis, MicroProgram, Strategy, View
from vkore_jax.isa.limits import NUMBER, RANK
from vkore_jax.isa.micro import MICRO_OPS, check_bits
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
        self.most_bytes = chip.dram_bytes
        self._pure: set[tuple[int, DType]] = set()

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
        rare = not -NUMBER <= low <= NUMBER
        size = ITEMSIZE[v.dtype]
        for extent, stride in zip(shape, strides):
            if extent < 1:
                if extent < 0:
                    raise InvalidProgram(f"{what}: extents {shape} must be >= 0")
                rare = True
                continue
            size *= extent
            if stride < 0:
                low += (extent - 1) * stride
            else:
                high += (extent - 1) * stride
            if extent == 1 and not -NUMBER <= stride <= NUMBER:
                rare = True
        if rare or size > self.most_bytes or len(shape) > RANK:
            self.fits(what, shape, v.dtype)
            numbers(**{f"{what}: offset and strides": (v.offset, *strides)})
            return  # of what passes, only an empty view comes here
        if low < 0 or (high + 1) * ITEMSIZE[v.dtype] > self.sizes[v.buffer]:
            raise InvalidProgram(
                f"{what}: view touches elements {low}..{high} of {v.dtype}, buffer "
                f"{v.buffer} has {self.sizes[v.buffer]} bytes"
            )

    def fits(self, what: str, shape: Sequence[int], dtype: DType) -> None:
        """Check that a tensor which an engine may form is one that the chip could hold.

        An empty tensor is measured without its empty axes: engines count along the
        others.
        """
        if len(shape) > RANK:
            raise InvalidProgram(
                f"{what}: a tensor has at most {RANK} axes, found {len(shape)}"
            )
        size = ITEMSIZE[dtype]
        for extent in shape:
            size *= max(extent, 1)
        if size > self.most_bytes:
            raise ResourceExhausted(
                f"{what}: {dtype}{list(shape)} stands for {size} bytes, chip "
                f"{self.chip.name!r} has {self.most_bytes} bytes of DRAM: work on parts"
            )

    def formed(self, what: str, shape: Sequence[int], dtype: DType) -> None:
        """Check a tensor that the chip forms a block at a time, so in no one place.

        It may have an element for each byte of DRAM: what is stored in the narrowest
        type may be computed in the widest.
        """
        if len(shape) > RANK:
            self.fits(what, shape, dtype)
        count = math.prod(max(extent, 1) for extent in shape)
        if count > self.most_bytes:
            raise ResourceExhausted(
                f"{what}: {dtype}{list(shape)} stands for {count} elements, chip "
                f"{self.chip.name!r} has {self.most_bytes} bytes of DRAM: work on parts"
            )

    def reread(self, v: View, written: DType | None) -> None:
        """Check that the bytes of a buffer are elements of the type they are read as.

        Args:
            v: what is read.
            written: type that the buffer was written as, None for a constant.

        Raises:
            InvalidProgram: other than real types of 8 bits or more are exchanged, or
                a constant has bits that no element of a narrower type has.
        """
        t = v.dtype
        if written is not None:
            if t is not written and not (_is_plain(t) and _is_plain(written)):
                raise InvalidProgram(
                    f"buffer {v.buffer} was written as {written} and is read as {t}; "
                    f"only real types of 8 bits or more can be reinterpreted"
                )
        elif t.bits < 8 and (v.buffer, t) not in self._pure:
            b = self.program.buffers[v.buffer]
            check_bits(self.program.constants[b.offset : b.offset + b.nbytes], t)
            self._pure.add((v.buffer, t))

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
    if op.arity in (1, 2)
    and op.result in ("same", "bool", "given")
    and op.name not in ("bitcast", "reduce_precision")
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
            plain = insn.code == _IMM and not insn.srcs and dtype.bits >= 8
            if not plain or len(insn.imm) != ITEMSIZE[dtype]:
                return program.types()
        else:
            arity, domain, result = row
            srcs = insn.srcs
            if len(srcs) != arity or not 0 <= srcs[0] < count or insn.imm:
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


def _is_plain(t: DType) -> bool:
    return t.kind not in "bc" and t.bits >= 8


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
    numbers(**fields)


def numbers(**fields: Sequence[int]) -> None:
    """Check that every entry of the fields is a number that descriptors hold."""
    for name, value in fields.items():
        if any(not -NUMBER <= v <= NUMBER for v in value):
            raise InvalidProgram(
                f"{name}: magnitudes must be at most 2^40, found {tuple(value)}"
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
