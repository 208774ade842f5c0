"""Structured control flow: while, case, if."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkore_jax.dtypes import I32
from vkore_jax.lowering import ir
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op, Region, TensorType
from vkore_jax.lowering.registry import RuleSet

rules = RuleSet(__name__)

Step = tuple[str, int, int, bool]
"""``param <op> constant``: (micro-op, param position, constant, mirrored)."""
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}


@rules.lowers("stablehlo.while")
def while_(b: Builder, op: Op, *inits: Value) -> tuple[Value, ...]:
    """Loop; the trip count is found when the loop counts to a constant.

    Every region is lowered once, or compile time would grow as a power of the depth of
    nested loops: the count is found from the test and from the few ops that advance
    the counter, before the body is lowered inside a loop or, for one trip, inline.
    """
    cond_region, body_region = op.regions
    fixed = body_region.unchanged
    moving = [i for i in range(len(inits)) if i not in fixed]
    # A loop that changes nothing runs for ever or not at all: keep it honest by
    # carrying the first value.
    carried = moving or list(range(len(inits)))[:1]
    starts = [inits[i] for i in carried]
    types = [TensorType(v.dtype, v.shape) for v in starts]

    def opened() -> tuple[Builder, tuple[Value, ...], list[Value]]:
        # Values that no iteration changes are read from outside, not carried.
        child = b.child(loop=True)
        params = child.params(types)
        args = list(inits)
        for position, param in zip(carried, params):
            args[position] = param
        return child, params, args

    def build(region: Region, keep: Sequence[int]) -> ir.Graph:
        child, params, args = opened()
        outs = region.inline(child, args)
        return child.graph(params, [outs[i] for i in keep])

    def advance(position: int) -> Step | None:
        child, params, args = opened()
        value = body_region.output(child, args, carried[position])
        return None if value is None else _with_constant(b, value, params)

    cond = build(cond_region, (0,))
    trips = _trips(b, cond, starts, advance)
    if trips == 0:
        return inits
    if trips == 1:
        return tuple(body_region.inline(b, inits))
    body = build(body_region, carried)
    if trips is None:

        def seen(position: int) -> Step | None:
            return _with_constant(b, body.outputs[position], body.params)

        trips = _trips(b, cond, starts, seen)
    results = b.emit(ir.While, starts, types, cond=cond, body=body, trips=trips)
    outs = list(inits)
    for position, value in zip(carried, results):
        outs[position] = value
    return tuple(outs)


def _trips(
    b: Builder,
    cond: ir.Graph,
    starts: Sequence[Value],
    advance: Callable[[int], Step | None],
) -> int | None:
    """Return how often ``while (i < limit) i += step`` runs, None when unknown.

    Args:
        b: the builder outside the loop.
        cond: the test.
        starts: initial values of the carried values.
        advance: how an iteration changes the carried value at a position.
    """
    known = b.known(cond.outputs[0])
    if known is not None and not known:
        return 0
    test = _with_constant(b, cond.outputs[0], cond.params)
    if test is None or test[0] not in MIRRORED:
        return None
    compare, position, limit, _ = test
    first = b.known(starts[position])
    step = None if first is None else advance(position)
    if first is None or step is None or step[1] != position:
        return None
    if step[0] == "add":
        stride = step[2]
    elif step[0] == "sub" and not step[3]:
        stride = -step[2]
    else:
        return None
    return count_trips(int(first), limit, stride, compare, starts[position].dtype)


def count_trips(
    first: int, limit: int, stride: int, compare: str, dtype: ir.DType
) -> int | None:
    """Return the iterations of ``i = first; while (i <compare> limit) i += stride``."""
    holds = {
        "lt": first < limit,
        "le": first <= limit,
        "gt": first > limit,
        "ge": first >= limit,
        "ne": first != limit,
    }[compare]
    if not holds:
        return 0
    distance = limit - first
    if compare in ("le", "ge"):
        distance += 1 if compare == "le" else -1
    if stride == 0 or (distance > 0) != (stride > 0):
        return None
    if compare == "ne" and distance % stride:
        return None
    trips = -(-abs(distance) // abs(stride))
    low = 0 if dtype.kind == "u" else -(1 << (dtype.bits - 1))
    high = low + (1 << dtype.bits) - 1
    return trips if low <= first + trips * stride <= high else None


def _with_constant(b: Builder, value: Value, params: Sequence[Value]) -> Step | None:
    """Match ``param <op> constant``: (micro-op, param position, constant, mirrored).

    A comparison with the constant on the left is returned the other way round.
    """
    node = b.producer(value)
    if not isinstance(node, ir.Vec) or len(node.operands) != 1 or value.shape:
        return None
    program = node.program
    if len(program.insns) != 2 or node.operands[0] not in params:
        return None
    constant, insn = program.insns
    if constant.op.name != "imm" or not constant.dtype.is_integer:
        return None
    if sorted(insn.srcs) != [0, 1] or constant.dtype is not program.inputs[0]:
        return None
    number = int.from_bytes(constant.imm, "little", signed=constant.dtype.kind == "i")
    mirrored = insn.srcs[0] == 1
    name = insn.op.name
    if mirrored:
        name = MIRRORED.get(name, name)
    return name, params.index(node.operands[0]), number, mirrored


def choose(b: Builder, op: Op, index: Value, regions: Sequence[Region]) -> object:
    """Run one of several regions without arguments, by an i32 index."""
    known = b.known(index)
    if known is not None:
        last = len(regions) - 1
        return regions[int(known) if 0 <= known <= last else last].inline(b, ())
    graphs: list[ir.Graph] = []
    for region in regions:
        child = b.child()
        graphs.append(child.graph((), region.inline(child, ())))
    return b.emit(ir.Case, (index,), op.types, branches=tuple(graphs))


@rules.lowers("stablehlo.case")
def case(b: Builder, op: Op, index: Value) -> object:
    """Choice among branches; an index out of range runs the last one."""
    return choose(b, op, index, op.regions)


@rules.lowers("stablehlo.if")
def if_(b: Builder, op: Op, pred: Value) -> object:
    """Choice between two branches."""
    on_true, on_false = op.regions
    return choose(b, op, b.convert(pred, I32), (on_false, on_true))
