"""Commands other than groups and control flow: one StableHLO operation each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vkore_jax import dtypes
from vkore_jax.dtypes import BF16, I8, U8, DType
from vkore_jax.isa import (
    MICRO_OPS,
    Concat,
    Conv,
    Copy,
    DynamicSlice,
    DynamicUpdate,
    Fft,
    Gather,
    MicroInsn,
    MicroProgram,
    Pad,
    Scatter,
    SelectAndScatter,
    Sort,
    View,
)
from vkore_jax.sim.fast import indices, matrix, micro, once, pooling
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, i64s, ints, tensor_type
from vkore_jax.sim.fast.inplace import apart
from vkore_jax.sim.fast.state import State


def copy(s: State, cmd: Copy) -> None:
    s.write(cmd.dst, s.read(cmd.src))


def concat(s: State, cmd: Concat) -> None:
    # XLA:CPU packs sub-byte elements and aborts when a part of the result begins
    # inside a byte (jaxlib 0.10.2): join whole bytes, or bf16, which hold them exactly.
    own = cmd.dst.dtype
    wide = {"i": I8, "u": U8, "f": BF16}[own.kind] if 1 < own.bits < 8 else own
    vals = [s.e.convert(s.full(v), wide) for v in cmd.srcs]
    names, types = _listed(vals)
    text = f"stablehlo.concatenate {names}, dim = {cmd.axis} : ({types}) -> "
    joined = _made(s.e, text, replace(cmd.dst, dtype=wide))
    s.write(cmd.dst, s.e.convert(joined, own))


def pad(s: State, cmd: Pad) -> None:
    src, value = s.full(cmd.src), s.scalar(cmd.value)
    high = [
        d - low - (n + max(n - 1, 0) * inner)
        for d, low, n, inner in zip(cmd.dst.shape, cmd.low, cmd.src.shape, cmd.interior)
    ]
    text = (
        f"stablehlo.pad {src.name}, {value.name}, low = {ints(cmd.low)}, "
        f"high = {ints(high)}, interior = {ints(cmd.interior)} : "
        f"({src.type}, {value.type}) -> "
    )
    s.write(cmd.dst, _made(s.e, text, cmd.dst))


def dynamic_slice(s: State, cmd: DynamicSlice) -> None:
    src = s.full(cmd.src)
    starts = indices.starts(s, cmd.starts, cmd.src.shape, cmd.dst.shape)
    names, types = _listed([src, *starts])
    text = (
        f"stablehlo.dynamic_slice {names}, sizes = {ints(cmd.dst.shape)} : "
        f"({types}) -> "
    )
    s.write(cmd.dst, _made(s.e, text, cmd.dst))


def dynamic_update(s: State, cmd: DynamicUpdate) -> None:
    src, update = s.full(cmd.src), s.full(cmd.update)
    starts = indices.starts(s, cmd.starts, cmd.src.shape, cmd.update.shape)
    names, types = _listed([apart(s.e, src, [update, *starts]), update, *starts])
    text = f"stablehlo.dynamic_update_slice {names} : ({types}) -> "
    s.write(cmd.dst, _made(s.e, text, cmd.dst))


def conv(s: State, cmd: Conv) -> None:
    s.write(cmd.dst, matrix.conv(s.e, cmd, s.read(cmd.lhs), s.read(cmd.rhs)))


def gather(s: State, cmd: Gather) -> None:
    operand, places = s.full(cmd.operand), indices.gathered(s, cmd)
    numbers = _numbers(
        "gather",
        offset_dims=cmd.offset_dims,
        collapsed_slice_dims=cmd.collapsed_dims,
        operand_batching_dims=cmd.operand_batching_dims,
        start_indices_batching_dims=cmd.indices_batching_dims,
        start_index_map=cmd.start_index_map,
        index_vector_dim=cmd.index_vector_dim,
    )
    text = (
        f'"stablehlo.gather"({operand.name}, {places.name}) <{{'
        f"dimension_numbers = {numbers}, indices_are_sorted = false, "
        f"slice_sizes = {i64s(cmd.slice_sizes)}}}> : "
        f"({operand.type}, {places.type}) -> "
    )
    s.write(cmd.dst, _made(s.e, text, cmd.dst))


def scatter(s: State, cmd: Scatter) -> None:
    operands = [s.full(v) for v in cmd.operands]
    updates = [s.full(v) for v in cmd.updates]
    numbers = _numbers(
        "scatter",
        update_window_dims=cmd.update_window_dims,
        inserted_window_dims=cmd.inserted_dims,
        input_batching_dims=cmd.operand_batching_dims,
        scatter_indices_batching_dims=cmd.indices_batching_dims,
        scatter_dims_to_operand_dims=cmd.scatter_dims,
        index_vector_dim=cmd.index_vector_dim,
    )
    attributes = (
        f"indices_are_sorted = {_flag(cmd.sorted)}, "
        f"scatter_dimension_numbers = {numbers}, "
        f"unique_indices = {_flag(cmd.unique)}"
    )
    others = [s.full(cmd.indices), *updates]
    targets = [
        apart(s.e, v, [*others, *operands[:i], *operands[i + 1 :]])
        for i, v in enumerate(operands)
    ]
    if once.has_one_window(cmd):
        made = once.scattered(s.e, cmd, targets, operands, others[0], updates)
        for dst, val in zip(cmd.dsts, made):
            s.write(dst, val)
        return
    inputs = [*targets, *others]
    _regional(s, "scatter", inputs, attributes, [cmd.combiner], cmd.dsts)


def sort(s: State, cmd: Sort) -> None:
    # Always stable: golden is, and XLA:CPU's other sort leaves the tensor when the
    # comparator has no order (`a == a`, from 17 elements on; jaxlib 0.10.2).
    attributes = f"dimension = {cmd.axis} : i64, is_stable = true"
    # XLA:CPU cannot sort elements of two bits (jaxlib 0.10.2): sort them as bytes.
    wide = {t: {"i": I8, "u": U8}[t.kind] for t in dtypes.ALL if t.bits == 2}
    inputs = [s.e.convert(v, wide.get(v.dtype, v.dtype)) for v in map(s.full, cmd.srcs)]
    comparator = _undirected(_widened(cmd.comparator, wide))
    types = [(v.dtype, v.shape) for v in inputs]
    for dst, val in zip(
        cmd.dsts, _regional_vals(s, "sort", inputs, attributes, [comparator], types)
    ):
        s.write(dst, s.e.convert(val, dst.dtype))


def _undirected(program: MicroProgram) -> MicroProgram:
    """Write x < x, which is never true, as x > x.

    XLA:CPU (jaxlib 0.10.2) takes a comparator `b < b` for a descending order.
    """
    never = {
        MICRO_OPS[f"lt{kind}"].code: MICRO_OPS[f"gt{kind}"].code
        for kind in ("", "_total")
    }
    insns = (
        replace(x, code=never.get(x.code, x.code)) if len({*x.srcs}) == 1 else x
        for x in program.insns
    )
    return replace(program, insns=tuple(insns))


def _widened(program: MicroProgram, wide: Mapping[DType, DType]) -> MicroProgram:
    """Return a program that takes wider inputs and narrows them first."""
    narrow = [i for i, t in enumerate(program.inputs) if t in wide]
    if not narrow:
        return program
    count, code = len(program.inputs), MICRO_OPS["convert"].code
    first = [MicroInsn(code, program.inputs[i], (i,)) for i in narrow]
    moved = {i: count + n for n, i in enumerate(narrow)}

    def at(register: int) -> int:
        return moved.get(register, register + (len(narrow) if register >= count else 0))

    return MicroProgram(
        tuple(wide.get(t, t) for t in program.inputs),
        (*first, *(replace(x, srcs=tuple(map(at, x.srcs))) for x in program.insns)),
        tuple(map(at, program.outputs)),
    )


def select_and_scatter(s: State, cmd: SelectAndScatter) -> None:
    if not cmd.window:  # likewise: the only window selects the only element
        pair = [s.scalar(cmd.init), s.scalar(cmd.source)]
        s.write(cmd.dst, *micro.run(s.e, cmd.combiner, pair, ()))
        return
    operand, source = s.full(cmd.operand), s.full(cmd.source)
    made = pooling.scattered(s.e, cmd, operand, source, s.scalar(cmd.init))
    s.write(cmd.dst, made)


def fft(s: State, cmd: Fft) -> None:
    src = s.full(cmd.src)
    text = (
        f"stablehlo.fft {src.name}, type = {cmd.kind.name}, "
        f"length = {ints(cmd.lengths)} : ({src.type}) -> "
    )
    s.write(cmd.dst, _made(s.e, text, cmd.dst))


# ------------------------------------------------------------------------------ helpers


def _regional(
    s: State,
    word: str,
    inputs: Sequence[Val],
    attributes: str,
    programs: Sequence[MicroProgram],
    dsts: Sequence[View],
) -> None:
    """Emit an operation whose regions are scalar micro-programs, and write it."""
    types = [(v.dtype, v.shape) for v in dsts]
    made = _regional_vals(s, word, inputs, attributes, programs, types)
    for dst, val in zip(dsts, made):
        s.write(dst, val)


def _regional_vals(
    s: State,
    word: str,
    inputs: Sequence[Val],
    attributes: str,
    programs: Sequence[MicroProgram],
    outs: Sequence[tuple[DType, Shape]],
) -> list[Val]:
    regions = [_scalar_region(s.e, p) for p in programs]
    return s.e.regional(word, inputs, attributes, regions, outs)


def _scalar_region(e: Emitter, program: MicroProgram) -> str:
    arguments: list[tuple[DType, Shape]] = [(t, ()) for t in program.inputs]
    return e.region(arguments, lambda *args: micro.run(e, program, args, ()))


def _made(e: Emitter, text: str, dst: View) -> Val:
    return e.op(text + tensor_type(dst.dtype, dst.shape), dst.dtype, dst.shape)


def _listed(vals: Sequence[Val]) -> tuple[str, str]:
    return ", ".join(v.name for v in vals), ", ".join(v.type for v in vals)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _numbers(kind: str, **fields: Any) -> str:
    """Return a dimension-number attribute; empty lists are left out."""
    parts = [
        f"{name} = {value if isinstance(value, int) else ints(value)}"
        for name, value in fields.items()
        if isinstance(value, int) or value
    ]
    return f"#stablehlo.{kind}<{', '.join(parts)}>"


def _padding(low: Sequence[int], high: Sequence[int]) -> str:
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high))
    return f"dense<[{rows}]> : tensor<{len(low)}x2xi64>"
