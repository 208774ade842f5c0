"""Folds from an initial value: reduce_window and reduce with any combiner.

The machine folds what is there, once, from the initial value.  XLA takes that value for
the combiner's neutral element: it may fold it in several times (when it makes a tree of
the reduction or blocks of a cumulative window), or leave it out.  It does not honour a
dilated base or negative padding in every window either.  So:

- a monoid starts from its neutral element, and the initial value is joined at the end
  (unless another copy of it changes nothing);
- dilation and negative padding become a `pad` of their own, with neutral elements;
- for other combiners, of which nothing is known, a flag beside the elements says which
  are padding;
- a window of one element is no window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vkore_jax.dtypes import BOOL, DType
from vkore_jax.isa import (
    MicroProgram,
    ReduceGeneric,
    ReduceKind,
    ReduceWindow,
    Segment,
    View,
)
from vkore_jax.sim.fast import micro
from vkore_jax.sim.fast.emitter import Emitter, Shape, Val, i64s, ints, tensor_type
from vkore_jax.sim.fast.reductions import identity
from vkore_jax.sim.fast.state import State

_MONOIDS = {
    "add": ReduceKind.SUM,
    "mul": ReduceKind.PROD,
    "max": ReduceKind.MAX,
    "min": ReduceKind.MIN,
    "and": ReduceKind.AND,
    "or": ReduceKind.OR,
    "xor": ReduceKind.XOR,
}
_IDEMPOTENT = (ReduceKind.MAX, ReduceKind.MIN, ReduceKind.AND, ReduceKind.OR)


def reduce_generic(s: State, cmd: ReduceGeneric) -> None:
    srcs, inits = [s.full(v) for v in cmd.srcs], [s.scalar(v) for v in cmd.inits]
    starts, late = _starts(s, cmd.combiner, cmd.inits, inits)
    attributes = f"dimensions = {i64s(cmd.axes)}"
    types = [(v.dtype, v.shape) for v in cmd.dsts]
    region = _region(s.e, cmd.combiner)
    made = s.e.regional("reduce", [*srcs, *starts], attributes, [region], types)
    _finish(s, cmd.combiner, cmd.dsts, late, made)


def reduce_window(s: State, cmd: ReduceWindow) -> None:
    srcs, inits = [s.full(v) for v in cmd.srcs], [s.scalar(v) for v in cmd.inits]
    if any(v.size == 0 for v in cmd.dsts):
        for v in cmd.dsts:
            s.write(v, s.e.constant(v.dtype, v.shape, b""))
        return
    if all(n == 1 for n in cmd.window):
        _alone(s, cmd, srcs, inits)
        return
    starts, late = _starts(s, cmd.combiner, cmd.inits, inits)
    known = _monoid(cmd.combiner) is not None
    padded = any((*cmd.pad_low, *cmd.pad_high)) or _dilated(cmd)
    types = [(v.dtype, v.shape) for v in cmd.dsts]
    if known and not _apart(cmd):
        attributes = _attributes(cmd, cmd.pad_low, cmd.pad_high)
        region = _region(s.e, cmd.combiner)
    elif known or not padded:
        srcs = [_pad(s.e, cmd, v, i) for v, i in zip(srcs, starts)]
        attributes = _attributes(cmd)
        region = _region(s.e, cmd.combiner)
    else:
        yes = s.e.full(s.e.scalar(BOOL, True).standing_for(srcs[0].shape))
        no = s.e.scalar(BOOL, False)
        srcs = [_pad(s.e, cmd, v, i) for v, i in zip((*srcs, yes), (*starts, no))]
        starts = [*starts, no]
        attributes = _attributes(cmd)
        region = _flagged(s.e, cmd.combiner)
        types.append((BOOL, cmd.dsts[0].shape))
    made = s.e.regional("reduce_window", [*srcs, *starts], attributes, [region], types)
    _finish(s, cmd.combiner, cmd.dsts, late, made)


# ------------------------------------------------------------------------ initial value


def _monoid(program: MicroProgram) -> ReduceKind | None:
    """Return what a combiner is when it is one operation of both its inputs."""
    if len(program.inputs) != 2 or len(program.insns) != 1:
        return None
    (insn,) = program.insns
    if {*insn.srcs} != {0, 1} or program.outputs != (2,):
        return None
    kind = _MONOIDS.get(insn.op.name)
    if insn.dtype.kind == "b" and kind in (ReduceKind.SUM, ReduceKind.PROD):
        return ReduceKind.OR if kind is ReduceKind.SUM else ReduceKind.AND
    return kind


def _starts(
    s: State, program: MicroProgram, views: Sequence[View], inits: Sequence[Val]
) -> tuple[list[Val], list[Val]]:
    """Return what XLA starts from, and what is joined at the end."""
    kind = _monoid(program)
    if kind is None or kind in _IDEMPOTENT or _neutral(s, kind, views[0]):
        return list(inits), []
    dtype = views[0].dtype
    value = -0.0 if kind is ReduceKind.SUM and dtype.is_float else identity(kind, dtype)
    return [s.e.scalar(dtype, value)], list(inits)


def _neutral(s: State, kind: ReduceKind, view: View) -> bool:
    """True when a value is a constant of which another copy changes nothing."""
    row = s.program.buffers[view.buffer]
    if row.segment is not Segment.CONSTANT or view.dtype.bits < 8:
        return False
    at = row.offset + view.offset * view.dtype.itemsize
    raw = s.program.constants[at : at + view.dtype.itemsize]
    value = np.frombuffer(raw, view.dtype.numpy)[0]
    return bool(value == view.dtype.numpy.type(identity(kind, view.dtype)))


def _finish(
    s: State,
    program: MicroProgram,
    dsts: Sequence[View],
    late: Sequence[Val],
    made: Sequence[Val],
) -> None:
    made = made[: len(dsts)]
    if late:
        made = micro.run(s.e, program, [*late, *made], dsts[0].shape)
    for dst, val in zip(dsts, made):
        s.write(dst, val)


# ----------------------------------------------------------------------------- windows


def _alone(
    s: State, cmd: ReduceWindow, srcs: Sequence[Val], inits: Sequence[Val]
) -> None:
    """Windows of one element: it is joined with the initial value, padding is not."""
    out = cmd.dsts[0].shape
    values = [_strided(s.e, cmd, _pad(s.e, cmd, v, i)) for v, i in zip(srcs, inits)]
    made = micro.run(s.e, cmd.combiner, [*inits, *values], out)
    if any((*cmd.pad_low, *cmd.pad_high)) or _dilated(cmd):
        yes = s.e.full(s.e.scalar(BOOL, True).standing_for(srcs[0].shape))
        there = _strided(s.e, cmd, _pad(s.e, cmd, yes, s.e.scalar(BOOL, False)))
        made = [
            _select(s.e, there, s.e.full(a), s.e.broadcast(b, out))
            for a, b in zip(made, inits)
        ]
    for dst, val in zip(cmd.dsts, made):
        s.write(dst, val)


def _strided(e: Emitter, cmd: ReduceWindow, v: Val) -> Val:
    out = cmd.dsts[0].shape
    limit = [(n - 1) * s + 1 for n, s in zip(out, cmd.strides)]
    return e.slice(v, (0,) * len(out), limit, cmd.strides)


def _dilated(cmd: ReduceWindow) -> bool:
    return any(d != 1 and n > 1 for d, n in zip(cmd.base_dilation, cmd.srcs[0].shape))


def _apart(cmd: ReduceWindow) -> bool:
    """True when the padding must be an operation of its own."""
    return _dilated(cmd) or min((*cmd.pad_low, *cmd.pad_high), default=0) < 0


def _pad(e: Emitter, cmd: ReduceWindow, v: Val, value: Val) -> Val:
    inner = [
        d - 1 if n > 1 else 0 for d, n in zip(cmd.base_dilation, cmd.srcs[0].shape)
    ]
    if not any((*cmd.pad_low, *cmd.pad_high, *inner)):
        return v
    shape = tuple(
        low + n + max(n - 1, 0) * i + high
        for low, n, i, high in zip(cmd.pad_low, v.shape, inner, cmd.pad_high)
    )
    text = (
        f"stablehlo.pad {v.name}, {value.name}, low = {ints(cmd.pad_low)}, "
        f"high = {ints(cmd.pad_high)}, interior = {ints(inner)} : "
        f"({v.type}, {value.type}) -> {tensor_type(v.dtype, shape)}"
    )
    return e.op(text, v.dtype, shape)


def _attributes(cmd: ReduceWindow, low: Shape = (), high: Shape = ()) -> str:
    none = (0,) * len(cmd.window)
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low or none, high or none))
    return (
        f"window_dimensions = {i64s(cmd.window)}, "
        f"window_strides = {i64s(cmd.strides)}, "
        f"base_dilations = {i64s((1,) * len(cmd.window))}, "
        f"window_dilations = {i64s(cmd.window_dilation)}, "
        f"padding = dense<[{rows}]> : tensor<{len(cmd.window)}x2xi64>"
    )


# ----------------------------------------------------------------------------- emission


def _region(e: Emitter, program: MicroProgram) -> str:
    arguments: list[tuple[DType, Shape]] = [(t, ()) for t in program.inputs]
    return e.region(arguments, lambda *args: micro.run(e, program, args, ()))


def _flagged(e: Emitter, program: MicroProgram) -> str:
    """Return a combiner that keeps what it has where the flag of the element is off."""
    types = program.inputs[: len(program.inputs) // 2]
    side: list[tuple[DType, Shape]] = [*((t, ()) for t in types), (BOOL, ())]

    def body(*args: Val) -> list[Val]:
        kept, new = args[: len(types)], args[len(side) : -1]
        here = args[-1]
        made = micro.run(e, program, [*kept, *new], ())
        return [*(_select(e, here, a, b) for a, b in zip(made, kept)), args[len(types)]]

    return e.region(side * 2, body)


def _select(e: Emitter, p: Val, a: Val, b: Val) -> Val:
    text = f"stablehlo.select {p.name}, {a.name}, {b.name} : {p.type}, {a.type}"
    return e.op(text, a.dtype, a.shape)
