"""Random graphs: whatever shares a group, is tiled or copied, means the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest

from tests.lowering import programs
from tests.lowering.graphs import LOC, GraphBuilder, f32, i32, module
from tests.lowering.programs import MEMORIES
from vkore_jax import isa
from vkore_jax.dtypes import F32
from vkore_jax.isa import MICRO_OPS
from vkore_jax.lowering import ir
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.micro import MicroBuilder

T = TypeVar("T")

UNARY = ("neg", "abs", "tanh")
BINARY = ("add", "sub", "mul", "max")


def random_graph(seed: int) -> ir.Module:
    """About twenty nodes on tensors of a few related shapes."""
    rng = np.random.default_rng(seed)

    def pick(items):  # type: ignore[no-untyped-def]
        return items[int(rng.integers(len(items)))]

    b_, t, c = (int(v) for v in rng.integers(1, 7, 3))
    x, w, g = f32(b_, t, c), f32(c, c), f32(c)
    b = GraphBuilder(x, w, g)
    full: list[Value] = [x]
    rows: list[Value] = []
    for _ in range(int(rng.integers(6, 22))):
        v = pick(full)
        choice = int(rng.integers(12))
        if choice < 2:
            full.append(b.op(pick(UNARY), v))
        elif choice < 4:
            full.append(b.op(pick(BINARY), v, pick(full)))
        elif choice == 4:
            rows.append(b.sum(v, 2) if rng.integers(2) else b.max(v, 2))
        elif choice == 5 and rows:
            r = pick(rows)
            if rng.integers(2):
                r = b.op(pick(UNARY), r)
                rows.append(r)
            full.append(b.op("sub", v, b.broadcast(r, x.shape, (0, 1))))
        elif choice == 6:
            column = b.sum(v, 0, 1)
            full.append(b.op("mul", v, b.broadcast(column, x.shape, (2,))))
        elif choice == 7:
            flat = b.gemm(b.reshape(v, b_ * t, c), w)
            full.append(b.op("tanh", b.reshape(flat, *x.shape)))
        elif choice == 8:
            full.append(b.op("mul", v, b.broadcast(g, x.shape, (2,))))
        elif choice == 9:
            turned = b.op(pick(UNARY), b.transpose(v, 1, 0, 2))
            full.append(b.transpose(turned, 1, 0, 2))
        elif choice == 10:
            scale = b.sum(v, 0, 1, 2)
            scale = b.op("tanh", scale)
            full.append(b.op("mul", pick(full), b.broadcast(scale, x.shape, ())))
        else:
            both = b.direct(
                isa.Concat, (v, pick(full)), f32(b_, t, 2 * c), axis=2, n_srcs=2
            )
            full.append(b.move(both, x.shape, (2 * t * c, 2 * c, 1), c // 2))
    outs = [full[-1], pick(full), b.transpose(pick(full), 2, 1, 0)]
    return module(b.done(*outs, *rows[-2:]), f"random{seed}")


@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed: int) -> None:
    m = random_graph(seed)
    for chip in MEMORIES:
        for fuse in (True, False):
            programs.agree(m, chip, fuse, seed, noise=1e-5)


class Tangle:
    """Graphs whose nodes read any earlier value, of any age: shared and crossing reads,
    nodes with two results, barriers, products, and control flow that captures.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(int(v) for v in self.rng.integers(2, 9, 2))
        t, c = self.shape
        self.x, self.w, self.u, self.g = f32(t, c), f32(c, c), f32(t, t), f32(c)
        self.which = i32()

    def module(self, seed: int, size: int) -> ir.Module:
        b = GraphBuilder(self.x, self.w, self.u, self.g, self.which)
        pool = self.grow(b, [self.x], size, 2)
        outs = [pool[-1], *(self.pick(pool) for _ in range(3))]
        return module(b.done(*outs), f"tangle{seed}")

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def grow(
        self, b: GraphBuilder, pool: list[Value], size: int, depth: int
    ) -> list[Value]:
        """Append `size` steps; return the values known then, the newest last."""
        pool = list(pool)
        for _ in range(size):
            choice = int(self.rng.integers(11 if depth else 9))
            v, o = self.pick(pool), self.pick(pool)
            if self.rng.integers(2):
                v = self.pick(pool[-4:])
            if choice < 9:
                pool += self.step(b, choice, v, o)
            elif choice == 9:
                pool += self.case(b, pool, depth)
            else:
                pool += self.loop(b, pool, depth)
        return pool

    def step(self, b: GraphBuilder, choice: int, v: Value, o: Value) -> list[Value]:
        t, c = self.shape
        if choice == 0:
            return [b.op(self.pick(UNARY), v)]
        if choice == 1:
            return [b.op("tanh", b.op(self.pick(BINARY), v, o))]
        if choice == 2:
            return self.pair(b, v, o)
        if choice == 3:
            return [b.op("tanh", b.gemm(v, self.w))]
        if choice == 4:
            return [b.gemm(self.u, b.op("tanh", v))]
        if choice == 5:
            axis = int(self.rng.integers(2))
            part = b.op("tanh", self.pick((b.sum, b.max))(v, axis))
            return [b.op("add", o, b.broadcast(part, self.shape, (1 - axis,)))]
        if choice == 6:
            both = b.direct(isa.Concat, (v, o), f32(t, 2 * c), axis=1, n_srcs=2)
            return [b.move(both, self.shape, (2 * c, 1), c // 2)]
        if choice == 7:
            turned = b.op(self.pick(UNARY), b.transpose(v, 1, 0))
            return [b.op("sub", b.transpose(turned, 1, 0), o)]
        scale = b.broadcast(b.op("tanh", b.sum(v, 0, 1)), self.shape, ())
        return [
            b.op("mul", o, scale),
            b.op("mul", v, b.broadcast(self.g, (t, c), (1,))),
        ]

    def pair(self, b: GraphBuilder, v: Value, o: Value) -> list[Value]:
        """One node with two results."""
        build = MicroBuilder()
        regs = (build.input(F32), build.input(F32))
        outs = [build.emit(MICRO_OPS[n].code, F32, regs, b"") for n in ("add", "max")]
        outs[0] = build.emit(MICRO_OPS["tanh"].code, F32, (outs[0],), b"")
        code, kept = build.finish(outs)
        return list(
            b.add(
                ir.Vec(
                    operands=tuple((v, o)[i] for i in kept),
                    results=(f32(*self.shape), f32(*self.shape)),
                    loc=LOC,
                    program=code,
                )
            )
        )

    def case(self, b: GraphBuilder, pool: list[Value], depth: int) -> list[Value]:
        branches = []
        for _ in range(2):
            inner = GraphBuilder()
            known = self.grow(inner, pool, int(self.rng.integers(4)), depth - 1)
            branches.append(inner.done(known[-1], self.pick(known)))
        node = ir.Case(
            operands=(self.which,),
            results=(f32(*self.shape), f32(*self.shape)),
            loc=LOC,
            branches=tuple(branches),
        )
        return list(b.add(node))

    def loop(self, b: GraphBuilder, pool: list[Value], depth: int) -> list[Value]:
        kinds = [i32(), f32(*self.shape), f32(*self.shape)]
        body = GraphBuilder(*(Value(k.dtype, k.shape) for k in kinds))
        i, *carries = body.params
        known = self.grow(body, pool + carries, int(self.rng.integers(1, 5)), depth - 1)
        more = body.op("add", i, body.const(np.int32(1)))
        cond = GraphBuilder(*(Value(k.dtype, k.shape) for k in kinds))
        test = cond.op("lt", cond.params[0], cond.const(np.int32(2)))
        start = b.const(np.int32(0))
        _, *out = b.add(
            ir.While(
                operands=(start, self.pick(pool), self.pick(pool)),
                results=tuple(kinds),
                loc=LOC,
                cond=cond.done(test),
                body=body.done(more, body.op("tanh", known[-1]), self.pick(carries)),
                trips=2 if self.rng.integers(2) else None,
            )
        )
        return out


@pytest.mark.parametrize("seed", range(24))
def test_tangle(seed: int) -> None:
    """What fusion joins still has an order, and still means the same."""
    m = Tangle(seed).module(seed, 24)
    for chip in MEMORIES:
        programs.agree(m, chip, True, seed, noise=1e-3)


@pytest.mark.parametrize("seed", [*range(100, 160), *range(200, 230)])
@pytest.mark.slow
def test_large_tangle(seed: int) -> None:
    """Only compiled: an order exists, and the program passes its verification."""
    m = Tangle(seed).module(seed, 30 if seed < 200 else 70)
    chips = list(MEMORIES)
    programs.compiled(m, chips[seed % len(chips)])
