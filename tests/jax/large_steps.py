"""Steps on large arrays that compute: folds, windows, sorts, convolutions, loops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax import large_moves
from tests.jax.large import Grower, Known

Array = Any
Step = Callable[[Grower], None]


def numeric(v: Known) -> bool:
    return v.dtype != "bool"


def exact(v: Known) -> bool:
    return v.exact and numeric(v)


# -------------------------------------------------------------------------- elementwise


def unary(g: Grower) -> None:
    v = g.large(exact)
    if v is None:
        return
    if v.integral:
        name = g.pick(("abs", "neg", "not", "sign", "clz", "popcnt", "square"))
        f = {
            "abs": jnp.abs, "neg": jnp.negative, "not": jnp.bitwise_not,
            "sign": jnp.sign, "clz": lax.clz, "popcnt": lax.population_count,
            "square": jnp.square,
        }[name]  # fmt: skip
        g.add(name, f, [v])
        return
    name = g.pick(("abs", "neg", "sign", "floor", "ceil", "round", "relu", "isnan",
                   "isinf", "clip", "nan_to_num", "half", "square"))  # fmt: skip
    f = {
        "abs": jnp.abs, "neg": jnp.negative, "sign": jnp.sign, "floor": jnp.floor,
        "ceil": jnp.ceil, "round": jnp.round, "relu": jax.nn.relu, "isnan": jnp.isnan,
        "isinf": jnp.isinf, "clip": lambda x: jnp.clip(x, -1, 2),
        "nan_to_num": lambda x: jnp.nan_to_num(x, nan=0.5, posinf=2, neginf=-2),
        "half": lambda x: x * jnp.asarray(0.5, x.dtype), "square": jnp.square,
    }[name]  # fmt: skip
    if name == "square" and (v.size > 64 or v.grain < 1e-3):
        return
    size = {"square": v.size**2, "sign": 1.0, "nan_to_num": max(v.size, 2.0)}
    fine = {"half": v.grain / 2, "square": v.grain**2, "nan_to_num": min(v.grain, 0.5)}
    g.add(name, f, [v], size=size.get(name), grain=fine.get(name, v.grain))


ROUGH: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (lambda x: jnp.exp(-jnp.abs(x)), 4.0),
    "tanh": (jnp.tanh, 12.0),
    "log": (lambda x: jnp.log(jnp.abs(x) + 1), 4.0),
    "sqrt": (lambda x: jnp.sqrt(jnp.abs(x)), 0.0),
    "third": (lambda x: x / jnp.asarray(3, x.dtype), 0.0),
}
"""Functions, and how far their results may differ in ulps; 0 for one IEEE operation."""


def rough(g: Grower) -> None:
    """Something inexact, which is only moved and compared afterwards."""
    v = g.large(lambda v: v.floating and v.exact)
    if v is not None:
        name = g.pick(sorted(ROUGH))
        f, ulps = ROUGH[name]
        g.add(name, f, [v], exact=False, ulps=ulps and max(ulps, 8.0))


CHAIN: dict[str, Callable[[Array], Array]] = {
    "times huge": lambda x: x * _huge(x),
    "times least": lambda x: x * (1 / _huge(x)),
    "over huge": lambda x: x / _huge(x),
    "plus huge": lambda x: x + _huge(x),
    "minus huge": lambda x: x - _huge(x),
    "over": lambda x: jnp.asarray(1, x.dtype) / x,
    "square": lambda x: x * x,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "exp": jnp.exp,
    "log": jnp.log,
    "abs": jnp.abs,
    "neg": jnp.negative,
    "cube": lambda x: x**3.0,
    "times itself": lambda x: x * lax.rev(x, (0,)),
    "over itself": lambda x: x / lax.rev(x, (0,)),
}


def _huge(x: Array) -> Array:
    return jnp.asarray(2.0 ** (100 if x.dtype != jnp.float16 else 14), x.dtype)


def algebra(g: Grower) -> None:
    """Chains that overflow in the middle: equal in the reals is not equal."""
    v = g.large(lambda v: v.dtype in ("float32", "float64") and v.exact)
    if v is None:
        return
    names = [g.pick(sorted(CHAIN)) for _ in range(g.between(2, 4))]

    def apply(x: Array) -> Array:
        for name in names:
            x = CHAIN[name](x)
        return x

    # Wide enough for what exp makes of a last bit; what is wrong is wrong by far.
    g.add(" ".join(names), apply, [v], exact=False, ulps=2.0**14)


def binary(g: Grower) -> None:
    a = g.large(exact)
    if a is None:
        return
    b = g.any(lambda b: b.dtype == a.dtype and b.shape == a.shape and b.exact) or a
    if a.integral:
        name = g.pick(("add", "sub", "mul", "max", "min", "and", "xor"))
        f = {
            "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply,
            "max": jnp.maximum, "min": jnp.minimum, "and": jnp.bitwise_and,
            "xor": jnp.bitwise_xor,
        }[name]  # fmt: skip
        g.add(name, f, [a, b])
        return
    name = g.pick(("add", "sub", "max", "min", "mul", "less", "equal"))
    f = {
        "add": jnp.add, "sub": jnp.subtract, "max": jnp.maximum, "min": jnp.minimum,
        "mul": jnp.multiply, "less": jnp.less, "equal": jnp.equal,
    }[name]  # fmt: skip
    size, grain = max(a.size, b.size), min(a.grain, b.grain)
    if name in ("add", "sub"):
        size = a.size + b.size
    if name == "mul":
        size, grain = a.size * b.size, a.grain * b.grain
    if a.sums(1, size, grain) or name not in ("add", "sub", "mul"):
        g.add(name, f, [a, b], size=size, grain=grain)


def convert(g: Grower) -> None:
    v = g.large(lambda v: v.exact)
    if v is None:
        return
    to = g.pick(("float32", "bfloat16", "float16", "int32", "int8", "bool", "uint8"))
    if v.floating and to in ("int32", "int8", "uint8"):
        g.add(f"to {to}", lambda x: x.astype(to), [v])
    elif v.integral and to in ("float32", "bfloat16", "float16"):
        g.add(f"to {to}", lambda x: (x & 15).astype(to), [v], size=16.0, grain=1.0)
    elif not v.floating or to not in ("bfloat16", "float16") or v.size < 256:
        g.add(f"to {to}", lambda x: x.astype(to), [v])


# -------------------------------------------------------------------------------- folds


def axes(g: Grower, v: Known) -> tuple[int, ...]:
    some = tuple(i for i in range(v.rank) if g.flip())
    return some or (g.choose(v.rank),)


def fold(g: Grower) -> None:
    v = g.large(lambda v: v.exact)
    if v is None:
        return
    over = axes(g, v)
    terms = math.prod(v.shape[i] for i in over)
    if v.dtype == "bool":
        f = g.pick((jnp.any, jnp.all, jnp.sum))
    else:
        f = g.pick((jnp.max, jnp.min, jnp.max, jnp.sum))
    summed = f is jnp.sum
    if summed and v.floating and not v.sums(terms, v.size, v.grain):
        return
    keep = g.flip()
    g.add(
        f"{f.__name__} {over} {keep}",
        lambda x: f(x, axis=over, keepdims=keep),
        [v],
        size=v.size * terms if summed else v.size,
    )


def arg(g: Grower) -> None:
    v = g.large(exact)
    if v is None:
        return
    axis, f = g.choose(v.rank), g.pick((jnp.argmax, jnp.argmin))
    g.add(f"{f.__name__} {axis}", lambda x: f(x, axis), [v])


def best_and_where(g: Grower) -> None:
    """A variadic reduction with a combiner of its own."""
    v = g.large(exact)
    if v is None:
        return
    over = axes(g, v)

    def apply(x: Array) -> Array:
        place = jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape)

        def combine(a: Any, b: Any) -> Any:
            (av, ai), (bv, bi) = a, b
            first = (av > bv) | ((av == bv) & (ai < bi))
            return jnp.where(first, av, bv), jnp.where(first, ai, bi)

        low = -jnp.inf if v.floating else jnp.iinfo(x.dtype).min
        least = jnp.asarray(low, x.dtype), jnp.asarray(2**31 - 1, jnp.int32)
        clean = jnp.where(x == x, x, 0) if v.floating else x
        return tuple(lax.reduce((clean, place), least, combine, over))

    g.add(f"best and where {over}", apply, [v])


def cumulative(g: Grower) -> None:
    v = g.large(exact)
    if v is None or v.count > 20_000:
        return
    axis, back = g.choose(v.rank), g.flip()
    f = g.pick((lax.cumsum, lax.cummax, lax.cummin))
    size = v.size
    if f is lax.cumsum:
        size = v.size * v.shape[axis]
        if v.floating and not (v.sums(1, size, v.grain) and v.dtype != "bfloat16"):
            return
        if v.dtype == "float16":
            return
    g.add(f"{f.__name__} {axis} {back}", lambda x: f(x, axis, back), [v], size=size)


def sort(g: Grower) -> None:
    v = g.large(lambda v: v.exact and v.count <= 20_000)
    if v is None:
        return
    axis, kind = g.choose(v.rank), g.choose(4)
    if kind == 0:
        g.add(f"sort {axis}", lambda x: lax.sort(x, axis), [v])
    elif kind == 1:
        back = g.flip()
        g.add(
            f"argsort {axis} {back}",
            lambda x: jnp.argsort(x, axis, descending=back, stable=True),
            [v],
        )
    elif kind == 2 and numeric(v) and (v.moved or not (g.odd and v.floating)):
        # The order is total: it sees the sign of a NaN, which no contract fixes.
        k = min(v.shape[-1], g.between(1, 9))
        g.add(f"top_k {k}", lambda x: tuple(lax.top_k(x, k)), [v])
    else:

        def apply(x: Array) -> Array:
            place = lax.broadcasted_iota(jnp.int32, x.shape, axis)
            return tuple(lax.sort((x, place), axis, num_keys=1))

        g.add(f"sort pairs {axis}", apply, [v])


# ------------------------------------------------------------------------------ windows


@dataclasses.dataclass(frozen=True)
class Window:
    """Arguments of a windowed fold."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base: tuple[int, ...]
    gaps: tuple[int, ...]

    @property
    def terms(self) -> int:
        return math.prod(self.sizes)


def window(g: Grower, v: Known, dilated: bool) -> Window | None:
    rows = []
    for n in v.shape:
        plain = g.choose(3) == 0 or n == 1
        w = 1 if plain else g.pick((1, 2, 3, min(5, n)))
        step = g.pick((1, 1, 2, 3))
        low, high = g.pick((0, 0, 1, 2, -1, -2, 4)), g.pick((0, 0, 1, 2, -1, -3))
        base = g.pick((1, 1, 1, 2, 3)) if dilated and v.count < 9000 else 1
        gap = g.pick((1, 1, 2)) if dilated else 1
        if g.choose(3) == 0:
            low = high = 0
        if (n - 1) * base + 1 + low + high < (w - 1) * gap + 1:
            w, low, high, base, gap = 1, 0, 0, 1, 1
        rows.append((w, step, (low, high), base, gap))
    made = Window(*(tuple(x) for x in zip(*rows)))
    return made if made.terms <= 150 else None


def reduce_window(g: Grower) -> None:
    v = g.large(lambda v: exact(v) and v.count <= 30_000)
    w = window(g, v, True) if v is not None else None
    if v is None or w is None:
        return
    name = g.pick(("max", "min", "sum"))
    if name == "sum" and v.floating and not v.sums(w.terms, v.size, v.grain):
        return
    if name == "sum" and v.dtype in ("bfloat16", "float16"):
        return  # the order of roundings
    op = {"max": lax.max, "min": lax.min, "sum": lax.add}[name]

    def init(x: Array) -> Any:
        if name == "sum":
            return np.zeros((), x.dtype)
        if v.floating:
            return np.asarray(-np.inf if name == "max" else np.inf, x.dtype)
        info = jnp.iinfo(x.dtype)
        return np.asarray(info.min if name == "max" else info.max, x.dtype)

    g.add(
        f"reduce_window {name} {w}",
        lambda x: lax.reduce_window(
            x, init(x), op, w.sizes, w.strides, w.padding, w.base, w.gaps
        ),
        [v],
        size=v.size * w.terms if name == "sum" else v.size,
    )


def pool_gradient(g: Grower) -> None:
    """Gradient of max and min pooling: select_and_scatter."""
    v = g.large(lambda v: v.dtype in ("float32", "float64") and v.count <= 30_000
                and v.exact)  # fmt: skip
    w = window(g, v, False) if v is not None else None
    if v is None or w is None:
        return
    op, low = g.pick(((lax.max, -np.inf), (lax.min, np.inf)))

    def apply(x: Array) -> Array:
        f = lambda x: lax.reduce_window(  # noqa: E731
            x, np.asarray(low, x.dtype), op, w.sizes, w.strides, w.padding
        )
        out, back = jax.vjp(f, x)
        weights = jnp.arange(out.size, dtype=jnp.int32) % 7 - 3
        return back(weights.reshape(out.shape).astype(out.dtype))[0]

    g.add(f"pool gradient {op.__name__} {w}", apply, [v], size=4.0 * w.terms, grain=1.0)


def conv(g: Grower) -> None:
    """Convolutions and their gradients, groups, dilations and cropping included."""
    kind = g.pick(("float32", "float32", "bfloat16"))
    rank = g.pick((1, 2, 2))
    groups = g.pick((1, 1, 2, 3))
    batches = g.pick((1, 1, 1, 2)) if groups == 1 else 1
    inner, outer = g.pick((1, 2, 3)), g.pick((1, 2, 4))
    side = g.between(10, 30) if rank == 2 else g.between(200, 900)
    shape = (2 * batches, *(side + g.choose(4) for _ in range(rank)), inner * groups)
    source = g.any(lambda v: v.dtype == kind and v.exact and v.size <= 4
                   and v.grain >= 0.25 and v.count >= 64)  # fmt: skip
    if source is None:
        return
    rows = []
    for n in shape[1:-1]:
        k, step = g.pick((1, 2, 3, 5)), g.pick((1, 1, 2))
        base, gap = g.pick((1, 1, 2, 3)), g.pick((1, 1, 2))
        low, high = g.pick((0, 1, 2, 6, -1, -4)), g.pick((0, 1, 2, 7, -2, -3))
        if (n - 1) * base + 1 + low + high < (k - 1) * gap + 1:
            low = high = k * gap
        rows.append((k, step, (low, high), base, gap))
    sizes, strides, padding, base, gaps = (tuple(x) for x in zip(*rows))
    kernel = (*sizes, inner, outer * groups * batches)
    way = g.choose(4)
    letters = "NHWC"[: rank + 1] + "C" if rank == 1 else "NHWC"
    numbers = (letters, "HWIO" if rank == 2 else "HIO", letters)

    def apply(x: Array) -> Array:
        a = jnp.resize(x, shape)
        b = jnp.resize(lax.rev(x.reshape(-1), (0,)), kernel)
        b = jnp.where(jnp.isfinite(b), b, 1)  # padding times infinity

        def f(a: Array, b: Array) -> Array:
            return lax.conv_general_dilated(
                a, b, strides, padding, base, gaps, numbers, groups, batches,
                precision="highest",
            )  # fmt: skip

        if way == 0:
            return f(a, b)
        out, back = jax.vjp(f, a, b)
        weights = jnp.arange(out.size, dtype=jnp.int32) % 3 - 1
        da, db = back(weights.reshape(out.shape).astype(out.dtype))
        return {1: out, 2: da, 3: db}[way]

    g.add(
        f"conv {kind} {shape} {kernel} {strides} {padding} {base} {gaps} groups "
        f"{groups} {batches} way {way}",
        apply,
        [source],
        size=2.0**14,
        grain=2.0**-4,
    )


def dot(g: Grower) -> None:
    v = g.large(lambda v: v.dtype in ("float32", "bfloat16") and v.exact and v.size <= 4
                and v.rank == 2)  # fmt: skip
    if v is None or not v.sums(min(v.shape), 16, v.grain**2):
        return
    how = "ij,kj->ik" if v.shape[0] <= 128 else "ij,ik->jk"
    if how[-1] == "k" and v.shape[1] > 260 and v.shape[0] > 128:
        return
    terms = v.shape[1] if how == "ij,kj->ik" else v.shape[0]
    if not v.sums(terms, 16, v.grain**2):
        return
    g.add(
        f"einsum {how}",
        lambda x: jnp.einsum(how, x, lax.rev(x, (0,)), precision="highest"),
        [v],
        size=16.0 * terms,
        grain=v.grain**2,
    )


# ---------------------------------------------------------------------------- structure

INSIDE: tuple[Step, ...] = (
    large_moves.update_by_itself,
    large_moves.scatter_by_itself,
    large_moves.scatter_by_itself,
    large_moves.dynamic_roll,
    large_moves.where,
    large_moves.dynamic_slice,
    large_moves.take,
    unary,
)


def nested(g: Grower) -> None:
    """Another step inside a loop, a scan, a conditional or under vmap."""
    v = g.large(lambda v: v.exact and v.count <= 30_000)
    if v is None:
        return
    sub = Grower(g.choose, g.x64, g.odd, g.tiny)
    first = dataclasses.replace(v, index=0)
    i = Known(1, (), "int32", True, 16.0)
    sub.program.inputs = [(v.shape, v.dtype), ((), "int32")]
    sub.program.values = [first, i]
    for _ in range(g.between(1, 2)):
        g.pick(INSIDE)(sub)
    last = sub.newest()
    if not sub.program.steps:
        return
    trips, kind = g.between(2, 3), g.choose(5)
    alike = last.dtype == v.dtype and last.count == v.count
    if not alike or last.size > v.size or last.grain < v.grain:
        kind = 4

    def body(x: Array, i: Array) -> Array:
        out = sub.program.run(x, i)[last.index]
        return out if kind == 4 else out.reshape(v.shape)

    def apply(x: Array, i: Array) -> Array:
        i = i.astype(jnp.int32)
        if kind == 0:
            return lax.fori_loop(0, trips, lambda n, c: body(c, i - n), x)
        if kind == 1:
            return lax.scan(lambda c, n: (body(c, i + n), c[:1]), x, jnp.arange(trips))
        if kind == 2:
            return lax.while_loop(
                lambda c: c[0] < (i & 3), lambda c: (c[0] + 1, body(c[1], c[0])), (0, x)
            )[1]
        if kind == 3:
            return lax.cond(i > 2, body, lambda x, i: lax.rev(x, (0,)), x, i)
        return jax.vmap(body, (0, None))(jnp.stack([x, lax.rev(x, (0,))]), i)

    def flat(x: Array, i: Array) -> Array:
        out = apply(x, i)
        return out[0] if kind == 1 else out

    g.add(
        f"nested {kind} x {trips} [{sub.program.listing()}]",
        flat,
        [v, g.scalar()],
        size=last.size,
        grain=last.grain,
        moves=last.moved,
    )


MOVES: tuple[Step, ...] = (
    *(large_moves.move, large_moves.move, large_moves.slices, large_moves.pad),
    *(large_moves.join, large_moves.dynamic_slice, large_moves.dynamic_slice),
    *(large_moves.dynamic_roll, large_moves.update_by_itself, large_moves.take),
    *(large_moves.update_by_itself, large_moves.scatter_by_itself, large_moves.where),
    large_moves.scatter_by_itself,
)
COMPUTES: tuple[Step, ...] = (
    *(unary, binary, convert, fold, fold, arg, best_and_where, cumulative, sort),
    *(reduce_window, reduce_window, pool_gradient, conv, conv, dot, nested, nested),
    *(rough, algebra),
)


def grown(g: Grower, steps: int) -> None:
    """Fill a program: one to three inputs, integers of rank 0, and steps."""
    first = g.shape()
    for n in range(g.between(1, 2)):
        g.input(first if n and g.flip() else g.shape(), g.dtype() if n else _main(g))
    for _ in range(2):
        g.input((), g.pick(("int32", "int32", "uint32", "int8")))
    for _ in range(steps):
        g.pick(MOVES if g.flip() else COMPUTES)(g)
    p = g.program
    read = {i for s in p.steps for i in s.operands}
    made = {i for s in p.steps for i in s.results}
    ends = [v.index for v in p.values if v.index not in read and v.index in made]
    p.outputs = ends[-4:] or [0]


def _main(g: Grower) -> str:
    return g.pick(("float32", "float32", "float32", g.dtype()))
