"""Building and joining element micro-programs: sharing, no change of any rounding."""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax.dtypes import DType
from vkore_jax.isa import MICRO_OPS, MicroInsn, MicroProgram

_IMM = MICRO_OPS["imm"].code
_IOTA = MICRO_OPS["iota"].code
_CONVERT = MICRO_OPS["convert"].code
_BITCAST = MICRO_OPS["bitcast"].code
_SELECT = MICRO_OPS["select"].code


def _float_bits(dtype: DType) -> tuple[int, int] | None:
    """Return (exponent, mantissa) bits of the IEEE-like types that nest exactly."""
    return {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}.get(
        dtype.short
    )


def holds_exactly(narrow: DType, wide: DType) -> bool:
    """True when every value of `narrow` survives a trip through `wide`."""
    if narrow is wide:
        return True
    if narrow.kind == "b":
        return wide.kind in "biuf" and wide.bits >= 4
    if narrow.kind in "iu":
        digits = narrow.bits - (narrow.kind == "i")
        if wide.kind == "i":
            return wide.bits - 1 >= digits
        if wide.kind == "u":
            return narrow.kind == "u" and wide.bits >= digits
        bits = _float_bits(wide)
        # The extreme -2**digits is a power of two: representable if the exponent is.
        return (
            bits is not None and bits[1] + 1 >= digits and 2 ** (bits[0] - 1) > digits
        )
    low, high = _float_bits(narrow), _float_bits(wide)
    return (
        low is not None and high is not None and low[0] <= high[0] and low[1] <= high[1]
    )


class MicroBuilder:
    """Collects element code; equal instructions are made once.

    Registers are opaque while building: inputs are -1, -2, ... and instructions
    0, 1, ...; `finish` numbers them as the ISA does and drops what is dead.
    """

    def __init__(self) -> None:
        self.inputs: list[DType] = []
        self.insns: list[MicroInsn] = []
        self._seen: dict[tuple[int, DType, tuple[int, ...], bytes], int] = {}

    def input(self, dtype: DType) -> int:
        """Add an input register."""
        self.inputs.append(dtype)
        return -len(self.inputs)

    def type_of(self, register: int) -> DType:
        """Return the type of a register."""
        if register < 0:
            return self.inputs[-register - 1]
        return self.insns[register].dtype

    def imm(self, dtype: DType, data: bytes) -> int:
        """Return a register that holds a constant."""
        return self.emit(_IMM, dtype, (), data)

    def emit(
        self, code: int, dtype: DType, srcs: tuple[int, ...], imm: bytes = b""
    ) -> int:
        """Return a register with the instruction's value; reuses an equal one."""
        if code == _CONVERT:
            src = srcs[0]
            if self.type_of(src) is dtype:
                return src
            if src >= 0 and self.insns[src].code == _CONVERT:
                origin = self.insns[src].srcs[0]
                back = self.type_of(origin) is dtype
                if back and holds_exactly(dtype, self.type_of(src)):
                    return origin
        elif code == _BITCAST:
            src = srcs[0]
            if src >= 0 and self.insns[src].code == _BITCAST:
                srcs = self.insns[src].srcs
            if self.type_of(srcs[0]) is dtype:
                return srcs[0]
        elif code == _SELECT and srcs[1] == srcs[2]:
            return srcs[1]
        key = (code, dtype, srcs, imm)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = len(self.insns)
            self.insns.append(MicroInsn(code, dtype, srcs, imm))
        return found

    def inline(
        self,
        program: MicroProgram,
        registers: Sequence[int],
        axes: Sequence[int | None] | None = None,
    ) -> list[int]:
        """Append a program.

        Args:
            program: the code.
            registers: one register for each of its inputs.
            axes: new axis of each old axis for `iota`; None for an axis of extent 1,
                along which the index is zero.  Default: axes stay.

        Returns:
            The registers of its outputs.
        """
        regs = list(registers)
        for insn in program.insns:
            imm = insn.imm
            if insn.code == _IOTA and axes is not None:
                axis = axes[imm[0]]
                if axis is None:
                    regs.append(self.imm(insn.dtype, bytes(insn.dtype.itemsize)))
                    continue
                imm = bytes((axis,))
            srcs = tuple(regs[r] for r in insn.srcs)
            regs.append(self.emit(insn.code, insn.dtype, srcs, imm))
        return [regs[r] for r in program.outputs]

    def finish(self, outputs: Sequence[int]) -> tuple[MicroProgram, list[int]]:
        """Return the program and the indices of the inputs that it kept."""
        needed: set[int] = set(outputs)
        for i in range(len(self.insns) - 1, -1, -1):
            if i in needed:
                needed.update(self.insns[i].srcs)
        kept = [i for i in range(len(self.inputs)) if -i - 1 in needed]
        number = {-i - 1: new for new, i in enumerate(kept)}
        insns: list[MicroInsn] = []
        for i, insn in enumerate(self.insns):
            if i not in needed:
                continue
            number[i] = len(kept) + len(insns)
            srcs = tuple(number[r] for r in insn.srcs)
            insns.append(
                insn
                if srcs == insn.srcs
                else MicroInsn(insn.code, insn.dtype, srcs, insn.imm)
            )
        program = MicroProgram(
            tuple(self.inputs[i] for i in kept),
            tuple(insns),
            tuple(number[r] for r in outputs),
        )
        return program, kept


def iota_axes(program: MicroProgram) -> frozenset[int]:
    """Return the axes along which a program counts."""
    return frozenset(i.imm[0] for i in program.insns if i.code == _IOTA)


def identity(dtype: DType) -> MicroProgram:
    """Return the program that passes its input on (repeats it, when broadcast)."""
    return MicroProgram((dtype,), (), (0,))
