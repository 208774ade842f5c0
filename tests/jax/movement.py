"""Steps that move values: shapes, slices, gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.arithmetic import tamed
from tests.jax.generate import INDEX, Generator, Value
from tests.jax.rules import (
    largest,
)


def reshape(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0)
    if v is None:
        return
    n = int(np.prod(v.shape))
    k = g.choose(4)
    if k == 0 or not n:
        shape: tuple[int, ...] = (n,)
    elif k == 1:
        at = g.choose(v.rank + 1)
        shape = (*v.shape[:at], 1, *v.shape[at:])[:6]
        if int(np.prod(shape)) != n:
            shape = (n,)
    else:
        factors = [d for d in (2, 3, 4, 5, 8) if n % d == 0]
        d = g.pick(factors) if factors else 1
        shape = (d, n // d) if k == 2 else (n // d, d)
    g.add(f"reshape {shape}", lambda x: x.reshape(shape), [v], exact=True)


def transpose(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 1)
    if v is not None:
        p = g.permutation(v.rank)
        g.add(f"transpose {p}", lambda x: x.transpose(p), [v], exact=True)


def index(g: Generator) -> None:
    """Slices with steps of either sign, single indices and new axes."""
    v = g.any(lambda v: v.rank > 0)
    if v is None:
        return
    parts: list[Any] = []
    for n in v.shape:
        k = g.choose(6)
        if k == 0 and n:
            parts.append(g.between(-n, n - 1))
        elif k == 1:
            parts.append(slice(None, None, -g.between(1, 2)))
        elif k == 2:
            low = g.choose(n + 1)
            parts.append(slice(low, low + g.choose(n - low + 1), g.between(1, 3)))
        elif k == 3:
            parts.extend([None, slice(None)])
        else:
            parts.append(slice(None))
    key = tuple(parts)
    g.add(f"index {key}", lambda x: x[key], [v], exact=True)


def reverse(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0)
    if v is not None:
        axes = g.axes(v)
        g.add(f"reverse {axes}", lambda x: lax.rev(x, axes), [v], exact=True)


def roll(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0)
    if v is not None:
        axis, by = g.choose(v.rank), g.between(-3, 3)
        g.add(f"roll {by}, {axis}", lambda x: jnp.roll(x, by, axis), [v], exact=True)


def pad(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0)
    if v is None:
        return
    config = []
    for n in v.shape:
        low, high, inner = g.between(-2, 2), g.between(-2, 2), g.choose(3)
        if n + max(n - 1, 0) * inner + low + high < 0:
            low = high = 0
        config.append((low, high, inner if n else 0))
    if v.dtype == "bool":
        value: Any = bool(g.choose(2))
    else:
        value = g.choose(4)
    g.add(
        f"pad {value} {config}",
        lambda x: lax.pad(x, jnp.asarray(value, x.dtype), config),
        [v],
        exact=True,
    )


def concatenate(g: Generator) -> None:
    a = g.any(lambda v: v.rank > 0)
    if a is None:
        return
    axis = g.choose(a.rank)

    def fits(v: Value) -> bool:
        if v.dtype != a.dtype or v.rank != a.rank:
            return False
        return all(
            i == axis or m == n for i, (m, n) in enumerate(zip(v.shape, a.shape))
        )

    more = [v for _ in range(g.between(1, 3)) if (v := g.any(fits)) is not None]
    g.add(
        f"concatenate {axis}",
        lambda *x: jnp.concatenate(x, axis),
        [a, *more],
        exact=True,
    )


def stack(g: Generator) -> None:
    a = g.any(lambda v: v.rank < 4)
    if a is not None:
        b = g.any(lambda v: v.dtype == a.dtype and v.shape == a.shape) or a
        axis = g.choose(a.rank + 1)
        g.add(f"stack {axis}", lambda *x: jnp.stack(x, axis), [a, b], exact=True)


def broadcast(g: Generator) -> None:
    v = g.any(lambda v: v.rank < 4 and int(np.prod(v.shape)) <= 64)
    if v is not None:
        n = g.between(1, 3)
        g.add(
            f"broadcast {n}",
            lambda x: jnp.broadcast_to(x, (n, *x.shape)),
            [v],
            exact=True,
        )


def starts(g: Generator, v: Value) -> tuple[list[Value], tuple[int, ...]]:
    """Return start indices (values or constants) of any size."""
    dynamic: list[Value] = []
    for _ in v.shape:
        scalar = g.any(lambda s: s.dtype in INDEX and s.rank == 0)
        if scalar is not None and g.choose(3):
            dynamic.append(scalar)
    fixed = tuple(g.between(-2, n + 1) for n in v.shape)
    return dynamic, fixed


def _start(fixed: tuple[int, ...], s: Sequence[Any]) -> list[Any]:
    out: list[Any] = [jnp.asarray(f, jnp.int32) for f in fixed]
    if s:
        out[-len(s) :] = [i.astype(jnp.int32) for i in s]
    return out


def dynamic_slice(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0)
    if v is None:
        return
    dynamic, fixed = starts(g, v)
    sizes = tuple(g.choose(n) + 1 if n else 0 for n in v.shape)
    g.add(
        f"dynamic_slice {fixed} {sizes}",
        lambda x, *s: lax.dynamic_slice(x, _start(fixed, s), sizes),
        [v, *dynamic],
        exact=True,
    )


def dynamic_update(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0)
    if v is None:
        return
    source = g.any(lambda o: o.dtype == v.dtype)
    sizes = tuple(g.choose(n) + 1 if n else 0 for n in v.shape)
    part = g.like(source, sizes, v.dtype) if source else None
    if part is None:
        return
    dynamic, fixed = starts(g, v)
    g.add(
        f"dynamic_update_slice {fixed}",
        lambda x, u, *s: lax.dynamic_update_slice(x, u, _start(fixed, s)),
        [v, part, *dynamic],
        exact=True,
    )


KINDS = ("add", "max", "min", "mul", "set")
MODES = ("clip", "fill", "wrap", "promise_in_bounds")


def indices(g: Generator, n: int) -> Value:
    """Return integers, most of them in range for an axis of n."""
    found = g.any(lambda v: v.dtype in INDEX and v.rank <= 2)
    if found is None or g.choose(3) == 0:
        shape = g.pick(((2,), (3,), (2, 2), ()))
        at = np.array(
            [g.between(-n - 1, n) for _ in range(int(np.prod(shape)))], np.int32
        ).reshape(shape)
        return g.add(f"constant {at.tolist()}", lambda: jnp.asarray(at), [])[0]
    if g.flip():
        return found
    return g.add(
        f"mod {n}", lambda x: jnp.mod(x.astype(jnp.int32), max(n, 1)), [found]
    )[0]


def inside(g: Generator, at: Value, n: int) -> Value:
    """Return indices that are in range."""
    return g.add(f"mod {n}", lambda i: jnp.mod(i.astype(jnp.int32), n), [at])[0]


def take(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0 and v.shape.count(0) == 0)
    if v is None:
        return
    axis = g.choose(v.rank)
    at = indices(g, v.shape[axis])
    mode = g.pick(MODES)
    if mode == "promise_in_bounds":
        at = inside(g, at, v.shape[axis])

    def apply(x: Any, i: Any) -> Any:
        i = i.astype(jnp.int32)
        if mode in MODES[:3]:
            return jnp.take(x, i, axis, mode=mode)
        return x.at[(*(slice(None),) * axis, i)].get(mode=mode)

    g.add(f"take {axis} {mode}", apply, [v, at], exact=True)


def take_along(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0 and v.shape.count(0) == 0)
    if v is None:
        return
    axis = g.choose(v.rank)
    shape = (*v.shape[:axis], g.between(1, 3), *v.shape[axis + 1 :])
    source = g.any(lambda o: o.integral)
    at = g.like(source, shape, "int32") if source is not None else None
    if at is None:
        return
    mode = g.pick(MODES[:2])
    g.add(
        f"take_along_axis {axis} {mode}",
        lambda x, i: jnp.take_along_axis(x, i, axis, mode=mode),
        [v, at],
        exact=True,
    )


def take_pairs(g: Generator) -> None:
    """x[i, j] and x[i, :, j]: two axes indexed at once."""
    v = g.any(lambda v: v.rank > 1 and v.shape.count(0) == 0)
    if v is None:
        return
    one, two = sorted(g.permutation(v.rank)[:2])
    i = indices(g, v.shape[one])
    j = g.like(i, i.shape, "int32")
    mode = g.pick(("clip", "fill", "promise_in_bounds"))
    if j is None:
        return
    if mode == "promise_in_bounds":
        i, j = inside(g, i, v.shape[one]), inside(g, j, v.shape[two])

    def apply(x: Any, i: Any, j: Any) -> Any:
        key: list[Any] = [slice(None)] * x.ndim
        key[one], key[two] = i.astype(jnp.int32), j
        return x.at[tuple(key)].get(mode=mode)

    g.add(f"take pairs {one} {two} {mode}", apply, [v, i, j], exact=True)


def scatter(g: Generator) -> None:
    """.at[i].op(u) along an axis, with duplicates and indices out of range."""
    v = g.any(
        lambda v: (
            v.rank > 0
            and v.shape.count(0) == 0
            and v.dtype != "bool"
            and not v.stored
            and not (v.complex and g.smooth)
        )
    )
    if v is None:
        return
    axis = g.choose(v.rank)
    at = indices(g, v.shape[axis])
    source = g.any(lambda o: o.dtype == v.dtype)
    if source is None or int(np.prod(at.shape)) == 0:
        return
    kinds = ("add", "add", "mul") if g.smooth or v.complex else KINDS
    kind = g.pick(kinds)
    mode = g.pick(("drop", "clip", "promise_in_bounds"))
    # The last of several writers is not defined: one writer.  The gradient of a
    # product asks for one, too.
    single = kind == "set" or (kind == "mul" and g.smooth)
    if single:
        at = g.add("first", lambda i: i.reshape(-1)[0], [at])[0]
    update = g.like(source, (*at.shape, *v.shape[:axis], *v.shape[axis + 1 :]), v.dtype)
    if update is None:
        return
    if mode == "promise_in_bounds":
        at = inside(g, at, v.shape[axis])
    if kind == "mul" and v.inexact:
        update = tamed(g, update)
    terms = int(np.prod(at.shape)) + 1

    def rule(x: Any, e: Any, out: Any) -> float:
        if kind == "add":
            eps = float(jnp.finfo(out.dtype).eps)
            size = largest(x[0]) + terms * largest(x[2])
            return e[0] + terms * e[2] + 4 * terms * eps * size
        if kind == "mul":
            return e[0] + terms * e[2] * (largest(x[0]) + e[0]) * 2
        return max(e)

    def apply(x: Any, i: Any, u: Any) -> Any:
        # Axes of the indices come first, where a single index array puts them.
        key = (*(slice(None),) * axis, i.astype(jnp.int32))
        lead = list(range(i.ndim))
        rest = [a + i.ndim for a in range(x.ndim - 1)]
        u = u.transpose((*rest[:axis], *lead, *rest[axis:]))
        return getattr(x.at[key], kind)(u, mode=mode, unique_indices=single)

    g.add(
        f"scatter {axis} {kind} {mode}",
        apply,
        [v, at, update],
        rule=rule,
        exact=kind in ("max", "min", "set"),
        size=v.size + terms * update.size if kind == "add" else None,
    )
