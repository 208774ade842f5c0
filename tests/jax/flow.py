"""Steps with a body, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.generate import COMPLEX, INEXACT, STORED, Generator
from tests.jax.rules import (
    largest,
)


def sort_rows(x: Any) -> Any:
    return jnp.sort(x, 0)


def tame(g: Generator, shape: tuple[int, ...], dtype: str) -> Callable[..., Any]:
    """Return a function (x, y) -> x' of one type that does not enlarge errors."""
    moves: list[Callable[[Any], Any]] = [lambda x: x]
    if len(shape) > 1 and shape[0] == shape[-1]:
        moves.append(lambda x: jnp.swapaxes(x, 0, -1))
    if shape:
        moves += [
            lambda x: x[::-1],
            lambda x: jnp.roll(x, 1, -1),
            sort_rows,
            lambda x: x.at[0].set(x[-1]) if x.shape[0] else x,
        ]
    if dtype in INEXACT:
        mixes: list[Callable[[Any, Any], Any]] = [
            lambda x, y: (x + y) * jnp.asarray(0.5, x.dtype),
            lambda x, y: jnp.maximum(x, y),
            lambda x, y: jnp.tanh(x) - jnp.asarray(0.25, x.dtype),
            lambda x, y: jnp.where(jnp.arange(x.size).reshape(x.shape) % 2 == 0, x, y),
        ]
        if dtype in COMPLEX:
            mixes[2] = lambda x, y: x / (1 + jnp.abs(x)).astype(x.dtype) - 0.25j
            mixes.pop(1)
            moves = [m for m in moves if m is not sort_rows]
        elif g.smooth:
            mixes.pop(1)
            moves = moves[:1] if not shape else [moves[0], lambda x: x[::-1]]
    elif dtype == "bool":
        mixes = [jnp.logical_xor, jnp.logical_and, lambda x, y: ~x | y]
    else:
        mixes = [
            lambda x, y: x * jnp.asarray(3, x.dtype) + y,
            lambda x, y: x ^ (y << jnp.asarray(1, y.dtype)),
            jnp.minimum,
            lambda x, y: jnp.where(x > y, x, y - x),
        ]
    if dtype in STORED:
        mixes = [lambda x, y: y, lambda x, y: jnp.where(x == y, x, y)]
    chain = [(g.pick(moves), g.pick(mixes), g.flip()) for _ in range(g.between(1, 3))]

    def apply(x: Any, y: Any) -> Any:
        for move, mix, swap in chain:
            x, y = mix(move(x), y), y
            if swap:
                x, y = y, x
        return x if x.dtype == dtype else x.astype(dtype)

    return apply


def nested(
    g: Generator, shape: tuple[int, ...], dtype: str, depth: int
) -> tuple[Callable[..., Any], int, str]:
    """Return a tame function with loops and branches in it, its trips and its name."""
    inner = tame(g, shape, dtype)
    trips, name = 1, "tame"
    for _ in range(depth):
        n, kind, reverse = g.between(1, 3), g.choose(4), g.flip()
        inner, name = wrapped(g, inner, kind, n, reverse), f"{name} in {kind} of {n}"
        trips *= n
    return inner, trips, name


def wrapped(
    g: Generator, body: Callable[..., Any], kind: int, n: int, reverse: bool
) -> Callable[..., Any]:
    """Return the function (x, y) -> x inside one more loop or branch."""
    if kind == 0:
        return lambda x, y: lax.fori_loop(0, n, lambda i, c: body(c, y), x)
    if kind == 1:

        def scan(x: Any, y: Any) -> Any:
            def step(c: Any, i: Any) -> Any:
                c = body(c, y)
                return c, jnp.where(i == 1, c, y)

            last, each = lax.scan(step, x, jnp.arange(n), reverse=reverse)
            return jnp.where(reverse, last, each[0])

        return scan
    if kind == 2 and not g.smooth:

        def until(x: Any, y: Any) -> Any:
            def again(c: Any) -> Any:
                return (c[0] < n) & (c[0] != 7)

            return lax.while_loop(again, lambda c: (c[0] + 1, body(c[1], y)), (0, x))[1]

        return until

    def branch(x: Any, y: Any) -> Any:
        # The size is known, the value is not: the branch stays in the program.
        which = (jnp.sum(jnp.isfinite(jnp.abs(y))) + n) % 3 if y.size else n
        ways = [body, lambda x, y: y, lambda x, y: body(y, x)]
        return lax.switch(which, ways, x, y)

    return branch


def nest(g: Generator) -> None:
    a = g.any(
        lambda v: (
            int(np.prod(v.shape)) <= 64 and (v.exact or not g.special) and not v.stored
        )
    )
    if a is None:
        return
    b = g.any(lambda v: v.dtype == a.dtype and v.shape == a.shape) or a
    f, trips, name = nested(g, a.shape, a.dtype, g.between(1, 3))
    size = max(a.size, b.size) + 2
    g.add(f"nest {name}", f, [a, b], rule=loop_rule(trips), size=size)


def loop_rule(trips: int) -> Any:
    def rule(x: Any, e: Any, out: Any) -> float:
        size = 1 + max((largest(v) for v in x), default=0.0)
        eps = float(jnp.finfo(out.dtype).eps)
        return 3 * sum(e) + 32 * (trips + 1) * eps * size

    return rule


def control_flow(g: Generator) -> None:
    a = g.any(lambda v: int(np.prod(v.shape)) <= 128 and (v.exact or not g.special))
    if a is None:
        return
    b = g.any(lambda v: v.dtype == a.dtype and v.shape == a.shape) or a
    body = tame(g, a.shape, a.dtype)
    size = max(a.size, b.size) + 2
    n = g.between(0, 3)
    kind = g.choose(5)
    common: dict[str, Any] = {"rule": loop_rule(n), "size": size}
    if kind == 0:
        g.add(
            f"fori_loop {n}",
            lambda x, y: lax.fori_loop(0, n, lambda i, x: body(x, y), x),
            [a, b],
            **common,
        )
    elif kind == 1:
        reverse = g.flip()

        def scan(x: Any, y: Any) -> Any:
            def step(c: Any, s: Any) -> Any:
                c = body(c, y)
                return c, (c, s * 2)

            out = lax.scan(step, x, jnp.arange(n), reverse=reverse)
            return (out[0], *out[1])

        g.add(f"scan {n} {reverse}", scan, [a, b], **common)
    elif kind == 2:
        v = g.any(lambda v: v.dtype == a.dtype and v.rank == a.rank + 1
                  and v.shape[1:] == a.shape)  # fmt: skip
        if v is None:
            return

        def scan_rows(x: Any, rows: Any) -> Any:
            def step(c: Any, row: Any) -> Any:
                c = body(c, row)
                return c, body(row, c)

            return tuple(lax.scan(step, x, rows))

        common = {"rule": loop_rule(2 * v.shape[0]), "size": v.size + size}
        g.add("scan rows", scan_rows, [a, v], **common)
    elif kind == 3 and not g.smooth:
        s = g.any(lambda v: v.integral and v.rank == 0)
        if s is None:
            return

        def until(x: Any, y: Any, limit: Any) -> Any:
            last = limit.astype(jnp.int32) & 3

            def cond(c: Any) -> Any:
                return c[0] < last

            out = lax.while_loop(cond, lambda c: (c[0] + 1, body(c[1], y)), (0, x))
            return out[1], out[0]

        common["rule"] = loop_rule(3)
        g.add("while", until, [a, b, s], **common)
    else:
        other = tame(g, a.shape, a.dtype)
        s = g.any(lambda v: (v.integral or v.dtype == "bool") and v.rank == 0)
        if s is None:
            return

        def branch(x: Any, y: Any, which: Any) -> Any:
            if which.dtype == jnp.bool_:
                return lax.cond(which, body, other, x, y)
            return lax.switch(
                which.astype(jnp.int32), [body, other, lambda x, y: y], x, y
            )

        common["rule"] = loop_rule(1)
        g.add("branch", branch, [a, b, s], **common)


def random_numbers(g: Generator) -> None:
    v = g.any(lambda v: v.dtype in ("uint32", "int32") and v.rank == 0)
    if v is None:
        return
    shape = g.shape(g.choose(3))
    kind = g.choose(8)

    def draw(seed: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(3), seed)
        if kind == 0:
            return jax.random.bits(key, shape)
        if kind == 1:
            return jax.random.randint(key, shape, -5, 9)
        if kind == 2:
            return jax.random.bernoulli(key, 0.4, shape)
        if kind == 3:
            return jax.random.permutation(key, 7)
        if kind == 4:
            return jax.random.uniform(key, shape)
        if kind == 5:
            return jax.random.normal(key, shape)
        if kind == 6:
            return jax.random.bits(key, shape, "uint8")
        return jax.random.randint(jax.random.split(key)[1], shape, 0, 100, "int8")

    g.add(f"random {kind} {shape}", draw, [v], exact=kind == 4, size=8.0)
