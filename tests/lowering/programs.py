"""Small whole programs in IR, and how they are checked against the IR's meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.lowering import ir_eval
from tests.lowering.graphs import (
    LOC,
    GraphBuilder,
    f32,
    gelu,
    i32,
    layer_norm,
    module,
    softmax,
)
from vkore_jax import isa
from vkore_jax.chips import TINY, VK1, Chip
from vkore_jax.dtypes import BOOL, F32, I32
from vkore_jax.isa import ReduceKind
from vkore_jax.lowering import Options, compile_module, ir
from vkore_jax.lowering.ir import Value
from vkore_jax.program import Program
from vkore_jax.sim import golden
from vkore_jax.verify import verify

# No import rule makes copies, so the IR's reader does not know them.
ir_eval.DIRECT.setdefault(isa.Copy, lambda node, ops: [ops[0]])

PROGRAMS: dict[str, Callable[[], ir.Module]] = {}


def program(build: Callable[[], ir.Graph]) -> Callable[[], ir.Graph]:
    PROGRAMS[build.__name__] = lambda: module(build(), build.__name__)
    return build


@program
def softmax_rows() -> ir.Graph:
    x = f32(2, 3, 24)
    b = GraphBuilder(x)
    return b.done(softmax(b, x))


@program
def norm() -> ir.Graph:
    x, g, c = f32(2, 24, 64), f32(64), f32(64)
    b = GraphBuilder(x, g, c)
    return b.done(layer_norm(b, x, g, c))


@program
def mlp() -> ir.Graph:
    """Reshape, product, bias and activation on rank 3, as a Dense layer has them."""
    x, w, bias = f32(2, 24, 64), f32(64, 48), f32(48)
    b = GraphBuilder(x, w, bias)
    h = b.reshape(b.gemm(b.reshape(x, 48, 64), w), 2, 24, 48)
    h = b.op("add", h, b.broadcast(bias, h.shape, (2,)))
    return b.done(gelu(b, h))


@program
def attention() -> ir.Graph:
    q, k, v = f32(2, 20, 4, 8), f32(2, 20, 4, 8), f32(2, 20, 4, 8)
    b = GraphBuilder(q, k, v)
    s = b.gemm(b.transpose(q, 0, 2, 1, 3), b.transpose(k, 0, 2, 3, 1))
    rows, cols = b.iota(I32, (20, 20), 0), b.iota(I32, (20, 20), 1)
    mask = b.broadcast(b.op("ge", rows, cols), s.shape, (2, 3))
    p = softmax(b, b.op("select", mask, s, b.full(-1e9, s.shape)))
    o = b.gemm(p, b.transpose(v, 0, 2, 1, 3))
    return b.done(b.reshape(b.transpose(o, 0, 2, 1, 3), 2, 20, 32))


@program
def column_sums() -> ir.Graph:
    """Row and column reductions of one chain, all of it stored."""
    x, y = f32(40, 96), f32(40, 96)
    b = GraphBuilder(x, y)
    z = b.op("mul", x, y)
    return b.done(b.sum(z, 0), b.sum(z, 1), z, b.op("exp", b.sum(x, 0)))


@program
def long_rows() -> ir.Graph:
    """Rows longer than tiny's scratchpad: only the K axis can reduce them."""
    x = f32(3, 9000)
    b = GraphBuilder(x)
    return b.done(b.sum(x, 1), b.max(x, 1))


@program
def long_softmax() -> ir.Graph:
    """Softmax of such rows cannot be one group on tiny."""
    x = f32(2, 6000)
    b = GraphBuilder(x)
    return b.done(softmax(b, x))


@program
def argmax_columns() -> ir.Graph:
    x = f32(300, 30)
    b = GraphBuilder(x)
    out = []
    for axis in (0, 1):
        kept = tuple(1 if a == axis else e for a, e in enumerate(x.shape))
        value, index = b.add(
            ir.Reduce(
                operands=(x,),
                results=(Value(F32, kept), Value(I32, kept)),
                loc=LOC,
                kind=ReduceKind.ARGMAX,
                axes=(axis,),
            )
        )
        out += [value, index]
    return b.done(*out)


@program
def deep_product() -> ir.Graph:
    """A product whose k must be cut on tiny, with a residual behind it."""
    x, w, r = f32(40, 1000), f32(1000, 40), f32(40, 40)
    b = GraphBuilder(x, w, r)
    return b.done(b.op("add", b.gemm(x, w), r))


@program
def gradients() -> ir.Graph:
    """X^T and W^T of a backward pass; the transposed copy of X is used twice."""
    x, w, dy = f32(24, 16), f32(16, 20), f32(24, 20)
    b = GraphBuilder(x, w, dy)
    xt = b.transpose(x, 1, 0)
    dw = b.gemm(xt, dy)
    dx = b.gemm(dy, b.transpose(w, 1, 0))
    return b.done(dw, dx, b.sum(dy, 0), b.op("add", xt, xt))


@program
def views() -> ir.Graph:
    """Slices, reversal, strides, scalars: which reads need the layout engine."""
    x = f32(6, 10)
    b = GraphBuilder(x)
    half = b.move(x, (6, 5), (10, 1), 5)
    even = b.move(x, (6, 5), (10, 2))
    back = b.move(x, (6, 5), (10, -1), 9)
    one = b.move(x, (6, 5), (0, 0), 13)
    column = b.move(x, (6, 5), (10, 0), 3)
    total = half
    for part in (even, back, one, column):
        total = b.op("add", total, part)
    flat = b.reshape(b.transpose(x, 1, 0), 60)
    return b.done(total, half, b.op("neg", flat), b.sum(column, 1))


@program
def outputs() -> ir.Graph:
    """Results that are parameters, constants, repeated, reshaped."""
    x = f32(3, 4)
    b = GraphBuilder(x)
    y = b.op("neg", x)
    c = b.const(np.arange(6, dtype=np.float32))
    z = b.full(2.5, (3, 3))
    return b.done(x, x, y, y, b.reshape(y, 12), c, z, b.transpose(x, 1, 0))


@program
def scan() -> ir.Graph:
    """A counted loop that swaps two carries, captures a value, updates a stack."""
    x, w = f32(4, 8), f32(8, 8)
    b = GraphBuilder(x, w)
    start = b.const(np.int32(0))
    stack = b.full(0.0, (5, 4, 8))
    i, h, g, s = i32(), f32(4, 8), f32(4, 8), f32(5, 4, 8)
    inner = GraphBuilder(i, h, g, s)
    new = inner.op("tanh", inner.gemm(h, w))
    zero = inner.const(np.int32(0))
    row = inner.reshape(new, 1, 4, 8)
    s2 = inner.direct(
        isa.DynamicUpdate, (s, row, i, zero, zero), f32(5, 4, 8), n_starts=3
    )
    i2 = inner.op("add", i, inner.const(np.int32(1)))
    cond = GraphBuilder(i32(), f32(4, 8), f32(4, 8), f32(5, 4, 8))
    more = cond.op("lt", cond.params[0], cond.const(np.int32(5)))
    _, h3, g3, s3 = b.add(
        ir.While(
            operands=(start, x, x, stack),
            results=(i32(), f32(4, 8), f32(4, 8), f32(5, 4, 8)),
            loc=LOC,
            cond=cond.done(more),
            body=inner.done(i2, g, new, s2),
            trips=5,
        )
    )
    return b.done(b.op("add", h3, g3), s3)


@program
def search() -> ir.Graph:
    """A while loop with a computed condition, an invariant and a dead carry."""
    x = f32(4, 4)
    b = GraphBuilder(x)
    p = [f32(4, 4), f32(4, 4), f32(4, 4)]
    body = GraphBuilder(*p)
    grown = body.op("add", p[0], p[1])
    dead = body.op("mul", p[2], p[2])
    q = [f32(4, 4), f32(4, 4), f32(4, 4)]
    cond = GraphBuilder(*q)
    limit = cond.full(100.0, ())
    more = cond.op("lt", cond.sum(cond.op("abs", q[0]), 0, 1), limit)
    out, _, _ = b.add(
        ir.While(
            operands=(x, x, x),
            results=(f32(4, 4), f32(4, 4), f32(4, 4)),
            loc=LOC,
            cond=cond.done(more),
            body=body.done(grown, p[1], dead),
        )
    )
    return b.done(out)


@program
def switch() -> ir.Graph:
    """Branches that return captures, transposes, constants and new values."""
    which, x, y = i32(), f32(4, 4), f32(4, 4)
    b = GraphBuilder(which, x, y)
    branches = []
    for case in range(3):
        inner = GraphBuilder()
        if case == 0:
            branches.append(inner.done(x, inner.transpose(y, 1, 0)))
        elif case == 1:
            branches.append(inner.done(inner.full(3.0, (4, 4)), inner.op("exp", x)))
        else:
            t = inner.gemm(x, y)
            branches.append(inner.done(t, t))
    outs = b.add(
        ir.Case(
            operands=(which,),
            results=(f32(4, 4), f32(4, 4)),
            loc=LOC,
            branches=tuple(branches),
        )
    )
    return b.done(*outs)


@program
def predicate_passed_in() -> ir.Graph:
    """The loop's predicate is a carry: the condition computes nothing."""
    go, x = Value(BOOL, ()), f32(3, 3)
    b = GraphBuilder(go, x)
    p = [Value(BOOL, ()), f32(3, 3)]
    body = GraphBuilder(*p)
    twice = body.op("add", p[1], p[1])
    small = body.op("lt", body.max(body.op("abs", twice), 0, 1), body.full(50.0, ()))
    q = [Value(BOOL, ()), f32(3, 3)]
    cond = GraphBuilder(*q)
    _, out = b.add(
        ir.While(
            operands=(go, x),
            results=(Value(BOOL, ()), f32(3, 3)),
            loc=LOC,
            cond=cond.done(q[0]),
            body=body.done(small, twice),
        )
    )
    return b.done(out)


@program
def around() -> ir.Graph:
    """A path from a group through a command with no group back to its reader."""
    x = f32(6, 8)
    b = GraphBuilder(x)
    y = b.op("neg", x)
    z = b.op("exp", y)
    joined = b.direct(isa.Concat, (y, z), f32(6, 16), axis=1, n_srcs=2)
    left = b.move(joined, (6, 8), (16, 1), 4)
    return b.done(b.op("add", z, left))


@program
def around_early() -> ir.Graph:
    """Such a path that ends before its start: a group's late member waits for `s`, and
    a command that only reads its first member stands earlier in the program.
    """
    x, y = f32(8, 8), f32(8, 8)
    b = GraphBuilder(x, y)
    p = b.gemm(x, y)
    early = b.direct(isa.Concat, (p, p), f32(8, 16), axis=1, n_srcs=2)
    s = b.gemm(y, x)
    late = b.op("add", b.op("neg", p), s)
    return b.done(b.op("sub", s, b.move(early, (8, 8), (16, 1), 4)), late)


@program
def around_nested() -> ir.Graph:
    """Such a path through a branch of a branch, which only returns what it captures."""
    which, x = i32(), f32(4, 4)
    b = GraphBuilder(which, x)
    y = b.op("neg", x)

    def case(*branches: ir.Graph) -> ir.Case:
        return ir.Case(
            operands=(which,), results=(f32(4, 4),), loc=LOC, branches=branches
        )

    outer = GraphBuilder()
    (inner,) = outer.add(case(GraphBuilder().done(y), GraphBuilder().done(x)))
    (z,) = b.add(case(outer.done(inner), GraphBuilder().done(x)))
    return b.done(b.op("sub", y, z))


@program
def empty() -> ir.Graph:
    """Contractions of nothing and tensors without elements."""
    x, y = f32(4, 0), f32(0, 3)
    b = GraphBuilder(x, y)
    z = f32(4, 3)
    b.add(ir.Gemm(operands=(x, y), results=(z,), loc=LOC, strategy=isa.Strategy.BF16X1))
    return b.done(z, b.sum(x, 1), b.op("neg", x))


def inputs(m: ir.Module, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Random arguments: normal floats, small integers, true."""
    rng = np.random.default_rng(seed)
    out = []
    for p in m.graph.params:
        if p.dtype.is_float:
            data = rng.normal(size=p.shape)
        elif p.dtype is BOOL:
            data = np.ones(p.shape)
        else:
            data = rng.integers(0, 3, p.shape)
        out.append(np.asarray(data).astype(p.dtype.numpy))
    return out


def compiled(m: ir.Module, chip: Chip, fuse: bool = True) -> Program:
    """Compile with every check on."""
    made = compile_module(m, chip, Options(fuse=fuse, verify=True))
    verify(made, chip)
    return made


MEMORIES = (VK1, TINY)
"""A profile with room, and one where everything tiles; other profiles have their own
strategies, which these hand-built programs do not."""


def everywhere() -> Iterator[Chip]:
    return iter(MEMORIES)


def agree(
    m: ir.Module, chip: Chip, fuse: bool = True, seed: int = 0, noise: float = 3e-9
) -> Program:
    """Compile, run on the golden engine, compare with the meaning of the IR.

    `noise` is what may be left where large terms cancel.
    """
    made = compiled(m, chip, fuse)
    args = inputs(m, seed)
    wanted = ir_eval.evaluate(m, args)
    found = golden.run(made.encoded, args)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted):
        same(got, want, noise)
    return made


def same(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], noise: float = 3e-9
) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=0))
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=max(3e-5 * scale, noise))


def groups(p: Program) -> list[isa.Group]:
    return [x.cmd for x in p.block if isinstance(x.cmd, isa.Group)]


def names(p: Program) -> list[str]:
    """Return the mnemonics of the outermost commands."""
    return [x.cmd.MNEMONIC for x in p.block]
