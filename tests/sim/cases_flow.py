"""Structured control flow: loops with carries, while, case, nesting."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.builder import ProgramBuilder, binary, micro, unary
from tests.sim.case import SimCase, normals
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BOOL, F32, I32, DType
from vkore_jax.isa import Carry, Case, Copy, Loop, Merge, View, While
from vkore_jax.program import Program
from vkore_jax.sim.contract import VALUES, chain


def carry(b: ProgramBuilder, enter: View, leave: View | None = None) -> Carry:
    """Return a carry whose four buffers are new (`leave` may be a result)."""
    current, following = (b.temp(enter.dtype, enter.shape) for _ in range(2))
    leave = leave or b.result(enter.dtype, enter.shape)
    return Carry(enter, current, following, leave)


def step(b: ProgramBuilder, op: str, dst: View, *srcs: View) -> None:
    """Emit dst = op(srcs) on whole tensors."""
    program = (unary if len(srcs) == 1 else binary)(op, srcs[0].dtype)
    b.elementwise(program, [dst], srcs)


def _loop(trips: int) -> Any:
    """x_{t+1} = x_t * c + d, with c and d from outside the loop."""

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, c, d = b.arg(F32, (5,)), b.arg(F32, (5,)), b.arg(F32, (5,))
        k = carry(b, x)
        t = b.temp(F32, (5,))
        with b.block() as body:
            step(b, "mul", t, k.current, c)
            step(b, "add", k.next, t, d)
        b.emit(Loop(trips, (k,), b.close(body)))
        return b.build()

    return build


def _loop_oracle(trips: int) -> Any:
    def oracle(x: Any, c: Any, d: Any) -> Any:
        for _ in range(trips):
            x = x * c + d
        return [x]

    return oracle


def _swap(chip: Chip) -> Program:
    """Two carries that change places: each `next` is the other's `current`."""
    b = ProgramBuilder(chip)
    x, y = b.arg(F32, (4,)), b.arg(F32, (4,))
    cx, cy = b.temp(F32, (4,)), b.temp(F32, (4,))
    rx, ry = b.result(F32, (4,)), b.result(F32, (4,))
    b.emit(Loop(5, (Carry(x, cx, cy, rx), Carry(y, cy, cx, ry)), ()))
    return b.build()


def _unchanged(chip: Chip) -> Program:
    """A carry whose `next` is `current`, beside one that adds it up."""
    b = ProgramBuilder(chip)
    x, zero = b.arg(F32, (4,)), b.const(np.zeros(4, np.float32))
    cx, same = b.temp(F32, (4,)), b.result(F32, (4,))
    total = carry(b, zero)
    with b.block() as body:
        step(b, "add", total.next, total.current, cx)
    b.emit(Loop(3, (Carry(x, cx, cx, same), total), b.close(body)))
    return b.build()


def _invariant_next(chip: Chip) -> Program:
    """A carry that becomes a value from outside after the first iteration."""
    b = ProgramBuilder(chip)
    x, y = b.arg(F32, (4,)), b.arg(F32, (4,))
    cx = b.temp(F32, (4,))
    b.emit(Loop(2, (Carry(x, cx, y, b.result(F32, (4,))),), ()))
    return b.build()


def _collatz(chip: Chip) -> Program:
    """While n != 1: count steps; a data-dependent number of iterations."""
    b = ProgramBuilder(chip)
    n, zero = b.arg(I32, ()), b.const(np.int32(0))
    one = b.const(np.int32(1))
    kn, kc = carry(b, n), carry(b, zero)
    p = b.temp(BOOL, ())
    with b.block() as cond:
        step(b, "ne", p, kn.current, one)
    with b.block() as body:
        m = micro(I32).imm(I32, 1).imm(I32, 2).imm(I32, 3).op("and", 0, 1)
        m.op("eq", 4, 1).op("mul", 0, 3).op("add", 6, 1).op("div", 0, 2)
        b.elementwise(m.op("select", 5, 7, 8).out(), [kn.next], [kn.current])
        step(b, "add", kc.next, kc.current, one)
    b.emit(While((kn, kc), b.close(cond), p, b.close(body)))
    return b.build()


def _collatz_oracle(n: np.ndarray) -> list[np.ndarray]:
    value, count = int(n), 0
    while value != 1:
        value, count = (3 * value + 1 if value % 2 else value // 2), count + 1
    return [np.array(value, np.int32), np.array(count, np.int32)]


def _case(chip: Chip) -> Program:
    """Three branches: computes, passes an outer value on, runs a loop."""
    b = ProgramBuilder(chip)
    i, x = b.arg(I32, ()), b.arg(F32, (4,))
    t0, t2 = b.temp(F32, (4,)), b.temp(F32, (4,))
    with b.block() as first:
        step(b, "neg", t0, x)
    with b.block() as third:
        k = carry(b, x, t2)
        with b.block() as body:
            step(b, "add", k.next, k.current, x)
        b.emit(Loop(2, (k,), b.close(body)))
    branches = (b.close(first), (), b.close(third))
    b.emit(Case(i, branches, (Merge(b.result(F32, (4,)), (t0, x, t2)),)))
    return b.build()


def _case_oracle(i: Any, x: Any) -> Any:
    return [{0: -x, 1: x}.get(int(i), 3 * x)]


def _nested(chip: Chip) -> Program:
    """A triangle number by two loops, the inner one's bound carried by a while."""
    b = ProgramBuilder(chip)
    n = b.arg(I32, ())
    zero, one = b.const(np.int32(0)), b.const(np.int32(1))
    ki, ks = carry(b, zero, b.temp(I32, ())), carry(b, zero)
    with b.block() as outer:
        # inner: j, s from 0; while j < i: s += j; j += 1
        kj, kt = carry(b, zero, b.temp(I32, ())), carry(b, ks.current, b.temp(I32, ()))
        p = b.temp(BOOL, ())
        with b.block() as cond:
            step(b, "lt", p, kj.current, ki.current)
        with b.block() as body:
            step(b, "add", kt.next, kt.current, kj.current)
            step(b, "add", kj.next, kj.current, one)
        b.emit(While((kj, kt), b.close(cond), p, b.close(body)))
        step(b, "add", ks.next, kt.leave, n)
        step(b, "add", ki.next, ki.current, one)
    b.emit(Loop(6, (ki, ks), b.close(outer)))
    return b.build()


def _nested_oracle(n: np.ndarray) -> list[np.ndarray]:
    return [np.array(sum(sum(range(i)) + int(n) for i in range(6)), np.int32)]


def _reused_addresses(chip: Chip) -> Program:
    """A body whose temporaries share an address, and one that outlives the loop."""
    b = ProgramBuilder(chip)
    x = b.arg(F32, (6,))
    kept = b.temp(F32, (6,))
    step(b, "neg", kept, x)
    k = carry(b, x, b.temp(F32, (6,)))
    t1, t2 = b.temp(F32, (6,)), b.temp(F32, (6,))
    t3 = b.temp(F32, (6,), at=b.buffers[t1.buffer].offset)
    with b.block() as body:
        step(b, "add", t1, k.current, kept)
        step(b, "abs", t2, t1)
        step(b, "add", t3, t2, t2)
        step(b, "sub", k.next, t3, k.current)
    b.emit(Loop(3, (k,), b.close(body)), Copy(b.result(F32, (6,)), k.leave))
    return b.build()


def _reused_oracle(x: np.ndarray) -> list[np.ndarray]:
    kept, y = -x, x
    for _ in range(3):
        t = np.abs(y + kept)
        y = (t + t) - y
    return [y]


def searching(depth: int) -> Any:
    """A WHILE whose condition has a WHILE whose condition has ...

    w_0(x) = x + 1, and w_k(x) is the first c >= x with w_{k-1}(c) >= 3.
    """

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, one, limit = b.arg(I32, ()), b.const(np.int32(1)), b.const(np.int32(3))

        def level(k: int, x: View, leave: View | None) -> View:
            if not k:
                out = b.temp(I32, ())
                step(b, "add", out, x, one)
                return out
            c, p = carry(b, x, leave or b.temp(I32, ())), b.temp(BOOL, ())
            with b.block() as cond:
                step(b, "lt", p, level(k - 1, c.current, None), limit)
            with b.block() as body:
                step(b, "add", c.next, c.current, one)
            b.emit(While((c,), b.close(cond), p, b.close(body)))
            return c.leave

        level(depth, x, b.result(I32, ()))
        return b.build()

    return build


def searching_oracle(depth: int) -> Any:
    def found(k: int, x: int) -> int:
        if not k:
            return x + 1
        while found(k - 1, x) < 3:
            x += 1
        return x

    return lambda x: [np.array(found(depth, int(x)), np.int32)]


def _feed(*specs: tuple[DType, tuple[int, ...]]) -> Any:
    return lambda rng: [normals(rng, t, s) for t, s in specs]


def _index(value: int) -> Any:
    return lambda rng: [np.array(value, np.int32), normals(rng, F32, (4,))]


_VEC = (F32, (4,))

CASES = [
    *(
        SimCase(
            id=f"loop/{trips}-trips",
            build=_loop(trips),
            inputs=_feed((F32, (5,)), (F32, (5,)), (F32, (5,))),
            tolerance=chain(2 * trips + 1, 30.0),
            oracle=_loop_oracle(trips),
        )
        for trips in (0, 1, 4)
    ),
    SimCase(
        id="loop/swap",
        build=_swap,
        inputs=_feed(_VEC, _VEC),
        oracle=lambda x, y: [y, x],
    ),
    SimCase(
        id="loop/next-is-current",
        build=_unchanged,
        inputs=_feed(_VEC),
        oracle=lambda x: [x, x + x + x],
    ),
    SimCase(
        id="loop/next-from-outside",
        build=_invariant_next,
        inputs=_feed(_VEC, _VEC),
        oracle=lambda x, y: [y],
    ),
    SimCase(
        id="loop/reused-addresses",
        build=_reused_addresses,
        inputs=_feed((F32, (6,))),
        tolerance=VALUES,
        oracle=_reused_oracle,
    ),
    *(
        SimCase(
            id=f"while/collatz-{n}",
            build=_collatz,
            inputs=lambda rng, n=n: [np.array(n, np.int32)],
            oracle=_collatz_oracle,
        )
        for n in (1, 27)
    ),
    *(
        SimCase(id=f"case/index{i}", build=_case, inputs=_index(i), oracle=_case_oracle)
        for i in (0, 1, 2, 3, -1)
    ),
    *(
        SimCase(
            id=f"while/in-conditions-{depth}",
            build=searching(depth),
            inputs=lambda rng: [np.array(0, np.int32)],
            oracle=searching_oracle(depth),
        )
        for depth in (2, 5)
    ),
    SimCase(
        id="loop/nested-while",
        build=_nested,
        inputs=lambda rng: [np.array(3, np.int32)],
        oracle=_nested_oracle,
    ),
]
