"""Simplification: what goes, what stays, and that the meaning does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lowering import ir_eval, programs
from tests.lowering.graphs import LOC, GraphBuilder, f32, i32, module
from tests.lowering.programs import PROGRAMS
from vkore_jax import dtypes, isa
from vkore_jax.chips import VK1
from vkore_jax.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, U8, U32, DType
from vkore_jax.isa import MICRO_OPS, ReduceKind
from vkore_jax.lowering import ir
from vkore_jax.lowering.access import Access, compose
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.legalize.layout import layout
from vkore_jax.lowering.micro import MicroBuilder, holds_exactly
from vkore_jax.lowering.simplify import simplify
from vkore_jax.lowering.verify_ir import check


def simple(graph: ir.Graph) -> list[ir.Node]:
    m = simplify(module(graph))
    check(m, "simplify")
    return list(m.graph.nodes)


def kinds(nodes: list[ir.Node]) -> list[str]:
    return [type(n).__name__ for n in nodes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_meaning_is_kept_bit_for_bit(name: str) -> None:
    m = PROGRAMS[name]()
    args = programs.inputs(m)
    wanted = ir_eval.evaluate(m, args)
    for pass_ in (simplify, layout):
        m = pass_(m)
        check(m, pass_.__name__)
        for got, want in zip(ir_eval.evaluate(m, args), wanted):
            np.testing.assert_array_equal(got, want)


def test_dead_nodes_go_and_effects_stay() -> None:
    x = f32(4)
    b = GraphBuilder(x)
    b.op("exp", x)
    for effect in (True, False):
        b.add(
            ir.HostCall(
                operands=(x,), results=(f32(4),), loc=LOC, callback=0, kind="cb",
                effect=effect,
            )
        )  # fmt: skip
    y = b.op("neg", x)
    nodes = simple(b.done(y))
    assert kinds(nodes) == ["HostCall", "Vec"]
    assert nodes[0].effect  # type: ignore[attr-defined]


def test_equal_nodes_are_made_once_across_scopes() -> None:
    x, which = f32(4, 4), i32()
    b = GraphBuilder(which, x)
    y = b.op("exp", x)
    inner = GraphBuilder()
    z = inner.op("add", inner.op("exp", x), inner.transpose(x, 1, 0))
    (out,) = b.add(
        ir.Case(
            operands=(which,), results=(f32(4, 4),), loc=LOC,
            branches=(inner.done(z), inner.done(z)),
        )
    )  # fmt: skip
    nodes = simple(b.done(b.op("add", y, b.op("exp", x)), out))
    assert kinds(nodes) == ["Vec", "Case", "Vec"]
    assert kinds(list(nodes[1].graphs[0].nodes)) == ["Move", "Vec"]


def test_what_differs_in_shape_or_precision_is_made_twice() -> None:
    b = GraphBuilder(x := f32(4, 4))
    iota = MicroBuilder()
    code = MICRO_OPS["iota"].code
    program = iota.finish([iota.emit(code, F32, (), bytes((0,)))])[0]
    made = [
        b.add(ir.Vec(operands=(), results=(f32(n),), loc=LOC, program=program))[0]
        for n in (3, 5)
    ]
    products = [b.gemm(x, x, s) for s in (isa.Strategy.BF16X1, isa.Strategy.BF16X6)]
    m = simplify(module(b.done(*made, *products)))
    check(m, "simplify")
    assert len(set(m.graph.outputs)) == 4
    assert [v.shape for v in m.graph.outputs[:2]] == [(3,), (5,)]


def test_constants_become_immediates() -> None:
    x = f32(4, 4)
    b = GraphBuilder(x)
    y = b.op("add", x, b.const(np.full((4, 4), 2.0, np.float32)))
    y = b.op("mul", y, b.full(3.0, (4, 4)))
    nodes = simple(b.done(y))
    assert kinds(nodes) == ["Vec", "Vec"]
    assert all(n.operands[0].shape == (4, 4) for n in nodes)
    assert [[i.op.name for i in n.program.insns] for n in nodes] == [  # type: ignore[attr-defined]
        ["imm", "add"],
        ["imm", "mul"],
    ]


def test_big_splats_are_stored_as_one_element() -> None:
    b = GraphBuilder()
    c = b.const(np.zeros((64, 64), np.int32))
    start = b.const(np.int32(0))
    x = b.direct(isa.DynamicSlice, (c, start, start), i32(2, 2), n_starts=2)
    nodes = simple(b.done(x))
    consts = [n for n in nodes if isinstance(n, ir.Const)]
    assert [n.data.shape for n in consts] == [()]


def test_moves_compose() -> None:
    x = f32(4, 6, 8)
    b = GraphBuilder(x)
    t = b.transpose(x, 2, 0, 1)
    u = b.transpose(b.reshape(t, 8, 24), 1, 0)
    back = b.reshape(u, 4, 6, 8)
    nodes = simple(b.done(b.op("neg", back)))
    assert kinds(nodes) == ["Vec"]
    assert nodes[0].operands == (x,)


@pytest.mark.parametrize(
    ("perm", "shape"), [((1, 0, 2), (24, 8)), ((2, 1, 0), (192,)), ((0, 2, 1), (4, 48))]
)
def test_reshapes_across_transposes_do_not_compose(
    perm: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    x = f32(4, 6, 8)
    b = GraphBuilder(x)
    t = b.transpose(x, *perm)
    r = b.reshape(t, *shape)
    first, second = b.nodes
    assert isinstance(first, ir.Move)
    assert isinstance(second, ir.Move)
    inner = compose(Access.whole(x), first)
    assert inner is not None
    assert compose(inner, second) is None
    assert kinds(simple(b.done(b.op("neg", r)))) == ["Move", "Move", "Vec"]


@pytest.mark.parametrize("seed", range(40))
def test_composition_reads_the_same_elements(seed: int) -> None:
    """Random chains of slices, transposes, reversals, broadcasts and reshapes."""
    rng = np.random.default_rng(seed)
    x = f32(4, 6, 8)
    b = GraphBuilder(x)
    v = x
    for _ in range(4):
        steps = isa.row_major(v.shape)
        choice = rng.integers(5)
        if choice == 0:
            order = rng.permutation(len(v.shape))
            v = b.transpose(v, *order.tolist())
        elif choice == 1:
            axis = int(rng.integers(len(v.shape)))
            strides = [-s if a == axis else s for a, s in enumerate(steps)]
            v = b.move(v, v.shape, strides, (v.shape[axis] - 1) * steps[axis])
        elif choice == 2:
            start = [int(rng.integers(e)) for e in v.shape]
            shape = [int(rng.integers(1, e - s + 1)) for e, s in zip(v.shape, start)]
            v = b.move(v, shape, steps, sum(s * t for s, t in zip(start, steps)))
        elif choice == 3:
            v = b.broadcast(v, (2, *v.shape), tuple(range(1, len(v.shape) + 1)))
        else:
            v = b.reshape(v, v.size)
    m = module(b.done(b.op("neg", v)))
    args = programs.inputs(m, seed)
    (wanted,) = ir_eval.evaluate(m, args)
    (found,) = ir_eval.evaluate(layout(simplify(m)), args)
    np.testing.assert_array_equal(found, wanted)


WIDER = [
    (BF16, F32, True), (F16, F32, True), (F16, BF16, False), (BF16, F16, False),
    (F32, F64, True), (F64, F32, False), (I8, F16, True), (I16, BF16, False),
    (I16, F32, True), (I32, F32, False), (I32, F64, True), (U8, I16, True),
    (U8, I8, False), (I8, U32, False), (BOOL, I8, True), (BOOL, BF16, True),
    (U32, F64, True), (F32, I32, False),
]  # fmt: skip


@pytest.mark.parametrize(("narrow", "wide", "exact"), WIDER)
def test_only_exact_conversions_are_undone(
    narrow: DType, wide: DType, exact: bool
) -> None:
    assert holds_exactly(narrow, wide) is exact
    build = MicroBuilder()
    x = build.input(narrow)
    convert = MICRO_OPS["convert"].code
    there = build.emit(convert, wide, (x,))
    back = build.emit(convert, narrow, (there,))
    assert (back == x) is exact


def test_iota_along_one_element_is_zero() -> None:
    b = GraphBuilder(f32(1, 4))
    nodes = simple(b.done(b.op("add", b.iota(I32, (1, 4), 0), b.iota(I32, (1, 4), 1))))
    ops = [i.op.name for n in nodes if isinstance(n, ir.Vec) for i in n.program.insns]
    assert ops.count("iota") == 1


def test_invariant_carries_become_captures() -> None:
    m = simplify(PROGRAMS["search"]())
    (loop,) = [n for n in m.graph.nodes if isinstance(n, ir.While)]
    assert len(loop.operands) == len(loop.body.params) == len(loop.cond.params) == 1
    assert m.graph.params[0] in {v for n in loop.body.nodes for v in n.operands}


NEUTRAL = [
    (ReduceKind.SUM, F32, 0), (ReduceKind.PROD, I32, 1), (ReduceKind.MAX, F32, -np.inf),
    (ReduceKind.MIN, BF16, np.inf), (ReduceKind.MAX, I8, -128),
    (ReduceKind.MIN, U8, 255), (ReduceKind.MIN, I32, 2**31 - 1),
    (ReduceKind.AND, BOOL, True), (ReduceKind.AND, I16, -1),
    (ReduceKind.OR, BOOL, False), (ReduceKind.MAX, BOOL, False),
    (ReduceKind.MIN, BOOL, True),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype", "neutral"), NEUTRAL)
def test_reducing_nothing_gives_the_neutral_element(
    kind: ReduceKind, dtype: DType, neutral: float
) -> None:
    x = Value(dtype, (3, 0))
    b = GraphBuilder(x)
    out = Value(dtype, (3, 1))
    b.add(ir.Reduce(operands=(x,), results=(out,), loc=LOC, kind=kind, axes=(1,)))
    m = simplify(module(b.done(out)))
    assert not any(isinstance(n, ir.Reduce) for n in m.graph.nodes)
    (found,) = ir_eval.evaluate(m, [np.zeros((3, 0), dtype.numpy)])
    np.testing.assert_array_equal(found, np.full((3, 1), neutral, dtype.numpy))


def test_arg_reduction_of_one_element_is_index_zero() -> None:
    x = f32(3, 1)
    b = GraphBuilder(x)
    value, index = f32(3, 1), i32(3, 1)
    b.add(
        ir.Reduce(
            operands=(x,), results=(value, index), loc=LOC, kind=ReduceKind.ARGMAX,
            axes=(1,),
        )
    )  # fmt: skip
    programs.agree(module(b.done(value, index)), VK1)


def test_sum_of_one_element_may_widen() -> None:
    x, wide = Value(BF16, (3, 1)), f32(3, 1)
    b = GraphBuilder(x)
    b.add(
        ir.Reduce(
            operands=(x,), results=(wide,), loc=LOC, kind=ReduceKind.SUM, axes=(1,)
        )
    )
    made = programs.compiled(module(b.done(wide)), VK1)
    (found,) = programs.golden.run(made.encoded, [np.ones((3, 1), BF16.numpy)])
    np.testing.assert_array_equal(found, np.ones((3, 1), np.float32))


def test_copies_are_shared_and_fills_are_not_copies() -> None:
    m = layout(simplify(PROGRAMS["gradients"]()))
    copies = [
        n for n in m.graph.nodes if isinstance(n, ir.Direct) and n.command is isa.Copy
    ]
    assert len(copies) == 1  # X^T, for a sum; W^T is turned on the chip
    b = GraphBuilder()
    filled = layout(simplify(module(b.done(b.full(7.0, (5, 5), dtypes.F32)))))
    assert [type(n).__name__ for n in filled.graph.nodes if not isinstance(
        n, ir.Const | ir.Move
    )] == ["Vec"]  # fmt: skip
