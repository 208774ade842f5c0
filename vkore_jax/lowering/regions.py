"""Regions of scalars as micro-programs: reducers, combiners, comparators.

A region is lowered by the ordinary rules on rank-0 values and the resulting element
code is flattened into one program; what is not element code is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax.dtypes import DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import MICRO_OPS, MicroInsn, MicroProgram, ReduceKind
from vkore_jax.lowering import ir
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Region

Tree = Any
"""An input number, or (micro-op, dtype, immediate, operand trees...)."""

MONOIDS: Mapping[tuple[str, str], ReduceKind] = MappingProxyType(
    {
        **{("add", k): ReduceKind.SUM for k in "iufc"},
        **{("mul", k): ReduceKind.PROD for k in "iufc"},
        **{("max", k): ReduceKind.MAX for k in "iuf"},
        **{("min", k): ReduceKind.MIN for k in "iuf"},
        **{("and", k): ReduceKind.AND for k in "biu"},
        **{("or", k): ReduceKind.OR for k in "biu"},
        **{("xor", k): ReduceKind.XOR for k in "biu"},
        ("add", "b"): ReduceKind.OR,
        ("mul", "b"): ReduceKind.AND,
        ("max", "b"): ReduceKind.OR,
        ("min", "b"): ReduceKind.AND,
    }
)
COMBINE: Mapping[ReduceKind, str] = MappingProxyType(
    {
        ReduceKind.SUM: "add",
        ReduceKind.PROD: "mul",
        ReduceKind.MAX: "max",
        ReduceKind.MIN: "min",
        ReduceKind.AND: "and",
        ReduceKind.OR: "or",
        ReduceKind.XOR: "xor",
    }
)
COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})


def micro_program(b: Builder, region: Region) -> MicroProgram:
    """Return the element code of a region of scalars.

    Raises:
        UnsupportedOp: the region holds something else than element code, or reads a
            value that is not a constant from outside.
    """
    types = region.argument_types
    for t in types:
        if any(e != 1 for e in t.shape):
            raise UnsupportedOp(f"the region must take scalars, it takes {t}")
    child = b.child()
    params = child.params(types)
    outputs = region.inline(child, params)
    return flatten(b, params, outputs)


class _Flattener:
    """Concatenates the element code behind values into one program."""

    def __init__(self, b: Builder, params: Sequence[Value]) -> None:
        self.b = b
        self.inputs = tuple(p.dtype for p in params)
        self.registers: dict[Value, int] = {p: i for i, p in enumerate(params)}
        self.insns: list[MicroInsn] = []
        self.constants: dict[MicroInsn, int] = {}

    def push(self, insn: MicroInsn) -> int:
        """Append an instruction (constants once) and return its register."""
        if insn in self.constants:
            return self.constants[insn]
        self.insns.append(insn)
        register = len(self.inputs) + len(self.insns) - 1
        if not insn.srcs:
            self.constants[insn] = register
        return register

    def wanted(self, value: Value) -> list[Value]:
        """Return the values that must have registers before this one."""
        node = self.b.producer(value)
        if self.b.element(value) is None and isinstance(node, (ir.Vec, ir.Move)):
            return [v for v in node.operands if v not in self.registers]
        return []

    def place(self, value: Value) -> None:
        """Give a value a register.

        Raises:
            UnsupportedOp: the value is not computed by element code.
        """
        element = self.b.element(value)
        node = self.b.producer(value)
        registers = self.registers
        if element is not None:
            imm = MICRO_OPS["imm"].code
            registers[value] = self.push(MicroInsn(imm, value.dtype, (), element))
        elif isinstance(node, ir.Move) and value.size == 1:
            registers[value] = registers[node.operands[0]]
        elif isinstance(node, ir.Vec):
            local = [registers[v] for v in node.operands]
            for insn in node.program.insns:
                srcs = tuple(local[s] for s in insn.srcs)
                moved = MicroInsn(insn.code, insn.dtype, srcs, insn.imm)
                local.append(self.push(moved))
            for result, register in zip(node.results, node.program.outputs):
                registers[result] = local[register]
        else:
            what = "a value from outside the region"
            if node is not None:
                what = f"a {type(node).__name__.lower()} of tensors"
            raise UnsupportedOp(
                f"the region must be element code on scalars, it contains {what}; "
                "compute that outside and reduce with plain arithmetic"
            )


def flatten(
    b: Builder, params: Sequence[Value], outputs: Sequence[Value]
) -> MicroProgram:
    """Concatenate the element code between scalar parameters and outputs."""
    code = _Flattener(b, params)
    stack = list(reversed(outputs))
    while stack:
        value = stack[-1]
        wanted = [] if value in code.registers else code.wanted(value)
        if wanted:
            stack.extend(wanted)
            continue
        if value not in code.registers:
            code.place(value)
        stack.pop()
    leaving = tuple(code.registers[v] for v in outputs)
    return MicroProgram(code.inputs, tuple(code.insns), leaving)


def tree(program: MicroProgram, register: int) -> Tree:
    """Return the expression of a register; operands of commutative ops are sorted."""
    count = len(program.inputs)
    if register < count:
        return register
    insn = program.insns[register - count]
    args = [tree(program, s) for s in insn.srcs]
    name = insn.op.name
    if name in COMMUTATIVE:
        args.sort(key=repr)
    return (name, insn.dtype.short, insn.imm, *args)


def monoid(program: MicroProgram, output: int = 0) -> ReduceKind | None:
    """Return the monoid that an output computes from its accumulator and value.

    Inputs are (acc_0.., value_0..); output i must combine acc_i and value_i only.
    """
    count = len(program.inputs) // 2
    register = program.outputs[output] - len(program.inputs)
    if register < 0:
        return None
    insn = program.insns[register]
    if sorted(insn.srcs) != [output, output + count]:
        return None
    return MONOIDS.get((insn.op.name, insn.dtype.kind))


def identity(kind: ReduceKind, dtype: DType) -> bytes:
    """Return the bytes of the identity element of a monoid."""
    numpy = dtype.numpy
    if kind in (ReduceKind.SUM, ReduceKind.OR, ReduceKind.XOR):
        return np.zeros((), numpy).tobytes()
    if kind is ReduceKind.PROD:
        return np.ones((), numpy).tobytes()
    if kind is ReduceKind.AND:
        ones = np.ones((), numpy) if dtype.kind == "b" else ~np.zeros((), numpy)
        return np.asarray(ones, numpy).tobytes()
    lowest = kind is ReduceKind.MAX
    if dtype.kind == "b":
        return np.array(not lowest).tobytes()
    if dtype.kind == "f":
        infinite = np.array(-np.inf if lowest else np.inf).astype(numpy)
        if not np.isinf(infinite.astype(np.float64)):
            limits = ml_dtypes.finfo(numpy)
            infinite = np.array(limits.min if lowest else limits.max, numpy)
        return infinite.tobytes()
    bounds = np.iinfo(numpy) if numpy.kind in "iu" else ml_dtypes.iinfo(numpy)
    return np.array(int(bounds.min if lowest else bounds.max)).astype(numpy).tobytes()
