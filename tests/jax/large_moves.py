"""Steps on large arrays that move elements: views, slices, updates by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.large import Grower, Known

Array = Any


def other_shape(g: Grower, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return another shape of the same size, made by joining and splitting axes."""
    out = list(shape)
    for _ in range(g.between(1, 3)):
        i = g.choose(len(out))
        kind = g.choose(3)
        if kind == 0 and len(out) > 1:
            j = min(i, len(out) - 2)
            out[j : j + 2] = [out[j] * out[j + 1]]
        elif kind == 1:
            out.insert(i, 1)
        else:
            d = g.pick([d for d in (1, 2, 3, 4, 5, 8, 64) if out[i] % d == 0])
            out[i : i + 1] = [d, out[i] // d] if g.flip() else [out[i] // d, d]
    return tuple(out) if len(out) <= 6 else (math.prod(out),)


def view(g: Grower, shape: tuple[int, ...]) -> tuple[str, Callable[[Array], Array]]:
    """Return a bijective movement of an array."""
    kind = g.choose(6)
    if kind == 0:
        to = other_shape(g, shape)
        return f"reshape {to}", lambda x: x.reshape(to)
    if kind == 1:
        order = tuple(g.shuffled(range(len(shape))))
        return f"transpose {order}", lambda x: x.transpose(order)
    if kind == 2:
        axes = tuple(i for i in range(len(shape)) if g.flip())
        return f"rev {axes}", lambda x: lax.rev(x, axes)
    if kind == 3:
        axis, by = g.choose(len(shape)), g.between(-3, 3)
        return f"roll {by} {axis}", lambda x: jnp.roll(x, by, axis)
    if kind == 4:
        return "flat", lambda x: x.reshape(-1)
    at = g.choose(len(shape) + 1)
    return f"expand {at}", lambda x: jnp.expand_dims(x, at)


def move(g: Grower) -> None:
    v = g.large()
    if v is not None and v.rank < 6:
        name, f = view(g, v.shape)
        g.add(name, f, [v], moves=True)


def slices(g: Grower) -> None:
    v = g.large()
    if v is None:
        return
    start, limit, step = [], [], []
    for n in v.shape:
        k = g.choose(4) if n > 1 else 0
        start.append(0 if k < 2 else g.choose(min(n, 4)))
        limit.append(n if k % 2 == 0 else max(start[-1] + 1, n - g.choose(4)))
        step.append(g.pick((1, 1, 1, 2)))
    box = (tuple(start), tuple(limit), tuple(step))
    g.add(f"slice {box}", lambda x: lax.slice(x, *box), [v], moves=True)


def pad(g: Grower) -> None:
    v = g.large()
    if v is None or v.count > 60_000:
        return
    config = []
    for n in v.shape:
        low, high = g.pick((0, 0, -3, -1, 1, 2)), g.pick((0, 0, -2, -1, 1, 5))
        inner = g.pick((0, 0, 0, 1, 2)) if v.count < 9000 else 0
        if n + (n - 1) * inner + low + high < 1:
            low = high = 0
        config.append((low, high, inner))
    fill = g.choose(2)
    g.add(
        f"pad {fill} {config}",
        lambda x: lax.pad(x, jnp.asarray(fill, x.dtype), config),
        [v],
        moves=True,
    )


def join(g: Grower) -> None:
    v = g.large(lambda v: v.count < 35_000)
    if v is not None:
        axis = g.choose(v.rank)
        name, f = ("rev", lambda x: lax.rev(x, (axis,))) if g.flip() else ("", jnp.copy)
        g.add(
            f"concatenate {axis} {name}",
            lambda x: jnp.concatenate([x, f(x)], axis),
            [v],
            moves=True,
        )


def starts(g: Grower, v: Known) -> tuple[str, list[Known], Callable[..., list[Array]]]:
    """Return how start indices are made: known or not, in range or not."""
    which: list[int | None] = []
    read: list[Known] = []
    fixed = []
    for n in v.shape:
        dynamic = g.choose(3) > 0
        which.append(len(read) if dynamic else None)
        fixed.append(g.between(-2, n + 1))
        if dynamic:
            read.append(g.scalar())

    def make(*s: Array) -> list[Array]:
        return [
            jnp.asarray(f, jnp.int32) if w is None else s[w].astype(jnp.int32)
            for w, f in zip(which, fixed)
        ]

    return f"{fixed} {which}", read, make


def window(g: Grower, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(g.pick((n, n, max(1, n - 1), max(1, n // 2), 1)) for n in shape)


def dynamic_slice(g: Grower) -> None:
    v = g.large()
    if v is None:
        return
    text, read, make = starts(g, v)
    sizes = window(g, v.shape)
    g.add(
        f"dynamic_slice {text} {sizes}",
        lambda x, *s: lax.dynamic_slice(x, make(*s), sizes),
        [v, *read],
        moves=True,
    )


def dynamic_roll(g: Grower) -> None:
    v = g.large()
    if v is not None:
        axis = g.choose(v.rank)
        g.add(
            f"dynamic roll {axis}",
            lambda x, i: jnp.roll(x, i.astype(jnp.int32) % 70_001, axis),
            [v, g.scalar()],
            moves=True,
        )


def changed(g: Grower, v: Known) -> tuple[str, Callable[[Array], Array], bool]:
    """Return elementwise code that keeps size and grain, and whether it moves only."""
    kind = g.choose(4)
    if kind == 0 and v.floating:
        return "negated", jnp.negative, False
    if kind == 1 and v.floating:
        return "abs", jnp.abs, False
    if kind == 2 and v.integral:
        return "plus 1", lambda x: x + jnp.asarray(1, x.dtype), False
    return "", lambda x: x, True


def update_by_itself(g: Grower) -> None:
    """dynamic_update_slice of a view of x by a part of another view of x."""
    v = g.large(lambda v: v.rank < 5)
    if v is None:
        return
    one, f = view(g, v.shape) if g.choose(3) else ("", lambda x: x)
    two, h = view(g, v.shape) if g.flip() else (one, f)
    how, e, moves = changed(g, v)
    first, f1, moves1 = changed(g, v) if g.flip() else ("", lambda x: x, True)
    target = np.empty(v.shape, np.bool_)
    outer = np.shape(_shaped(f, target))
    sizes = window(g, outer)
    origin = g.choose(3)
    shown = Known(0, outer, v.dtype, True, 0.0)
    text, read, make = starts(g, shown)

    def apply(x: Array, *s: Array) -> Array:
        x = f1(x)
        t, u = f(x), h(x)
        u = u.reshape(-1)[origin:][: math.prod(sizes)]
        u = jnp.resize(u, sizes) if u.size < math.prod(sizes) else u.reshape(sizes)
        return lax.dynamic_update_slice(t, e(u), make(*s))

    g.add(
        f"update {first} {one} by {how} {two} from {origin} {sizes} at {text}",
        apply,
        [v, *read],
        moves=moves and moves1,
    )


def _shaped(f: Callable[[Array], Array], like: np.ndarray) -> Array:
    return np.empty(jax.eval_shape(f, like).shape, np.bool_)


KINDS = ("set", "set", "add", "max", "min")


def scatter_by_itself(g: Grower) -> None:
    """x.at[rows].op(other rows of x), rows known or computed, in and out of range."""
    v = g.large(lambda v: v.rank < 5 and v.dtype != "bool" and v.shape[0] > 1)
    if v is None:
        return
    kind = g.pick(KINDS)
    if kind == "add" and v.floating and not v.sums(1, 8 * v.size, v.grain):
        return
    one, f = view(g, v.shape) if g.flip() else ("", lambda x: x)
    how, e, moves = changed(g, v)
    n = np.shape(_shaped(f, np.empty(v.shape, np.bool_)))[0]
    form = g.choose(5)
    a, b = sorted((g.choose(n + 1), g.choose(n + 1)))
    shift = g.between(0, n - (b - a))
    mode = g.pick(("drop", "clip"))
    rows = np.array([g.between(-n - 1, n + 2) for _ in range(3)])
    if kind == "set":  # of several writers any may be the last
        rows = np.array([n - 1, 0, n + 5])[: g.between(1, 3)]
        mode = "drop"

    def apply(x: Array, i: Array) -> Array:
        t = f(x)
        i = i.astype(jnp.int32)
        if form == 0:
            return getattr(t.at[a:b], kind)(e(t[shift : shift + b - a]))
        if form == 1:
            return getattr(t.at[i], kind)(e(t[shift - 1]), mode=mode)
        if form == 2:
            part = e(jnp.flip(t, 0)[: len(rows)])
            part = jnp.resize(part, (len(rows), *t.shape[1:]))
            return getattr(t.at[rows], kind)(part, mode=mode)
        if form == 3:
            every = jnp.flip(jnp.arange(n))
            return getattr(t.at[every], kind)(e(t), unique_indices=True)
        return getattr(t.at[i], kind)(e(x.reshape(t.shape)[0]), mode=mode)

    where = f"{a}:{b} {shift} {rows.tolist()}"
    g.add(
        f"scatter {one} {kind} form {form} {where} {mode} {how}",
        apply,
        [v, g.scalar()],
        moves=moves and kind == "set",
        size=8 * v.size if kind == "add" else v.size,
    )


def take(g: Grower) -> None:
    v = g.large()
    if v is None:
        return
    axis, mode = g.choose(v.rank), g.pick(("clip", "fill", "wrap"))
    n = v.shape[axis]
    if g.choose(3) == 0:
        g.add(
            f"take one {axis} {mode}",
            lambda x, i: jnp.take(x, i.astype(jnp.int32), axis, mode=mode),
            [v, g.scalar()],
        )
        return
    some = min(n, max(1, 60_000 * n // v.count))
    rows = np.array([g.between(-n - 2, n + 2) for _ in range(min(some, 9))], np.int32)
    g.add(
        f"take {rows.tolist()} {axis} {mode}",
        lambda x, i: jnp.take(x, rows + i.astype(jnp.int32) % 3, axis, mode=mode),
        [v, g.scalar()],
    )


def where(g: Grower) -> None:
    v = g.large()
    if v is None:
        return
    w = g.any(lambda w: w.shape == v.shape and w.dtype == v.dtype) or v
    p = g.any(lambda p: p.shape == v.shape and p.dtype == "bool")
    axis = g.choose(v.rank)
    if p is not None and g.flip():
        g.add("where", jnp.where, [p, v, w])
        return

    def apply(x: Array, y: Array, i: Array) -> Array:
        line = lax.broadcasted_iota(jnp.int32, x.shape, axis)
        return jnp.where(line < i.astype(jnp.int32), x, lax.rev(y, (axis,)))

    g.add(f"where below {axis}", apply, [v, w, g.scalar()], moves=True)
