"""Steps that combine elements: order, reductions, contractions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.generate import LARGE, Generator, Value
from tests.jax.rules import (
    additions,
    additions_of,
    contraction,
    nearest,
    scaled,
)


def sort(g: Generator) -> None:
    v = g.any(
        lambda v: (
            v.rank > 0 and (not g.smooth or v.exact) and not (v.complex and not v.exact)
        )
    )
    if v is None:
        return
    axis, down = g.choose(v.rank), g.flip()
    if v.exact and g.flip():
        g.add(
            f"argsort {axis} {down}",
            lambda x: jnp.argsort(x, axis, descending=down),
            [v],
        )
    else:
        g.add(
            f"sort {axis} {down}",
            lambda x: jnp.sort(x, axis, descending=down),
            [v],
            exact=True,
        )


def sort_pairs(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0 and v.exact)
    if v is None:
        return
    o = g.any(lambda o: o.shape == v.shape) or v
    axis = g.choose(v.rank)
    g.add(
        f"sort pairs {axis}",
        lambda x, y: tuple(lax.sort((x, y), dimension=axis, num_keys=1)),
        [v, o],
        exact=True,
    )


def sort_keys(g: Generator) -> None:
    """Three operands, one or two of them keys."""
    v = g.any(lambda v: v.rank > 0 and v.exact)
    if v is None:
        return
    two = g.any(lambda o: o.shape == v.shape and o.exact) or v
    rest = g.any(lambda o: o.shape == v.shape) or v
    axis, keys = g.choose(v.rank), g.between(1, 2)
    g.add(
        f"sort {keys} keys {axis}",
        lambda x, y, z: tuple(lax.sort((x, y, z), dimension=axis, num_keys=keys)),
        [v, two, rest],
        exact=True,
    )


def top_k(g: Generator) -> None:
    v = g.any(
        lambda v: (
            v.rank > 0
            and v.exact
            and v.shape[-1] > 0
            and v.dtype != "bool"
            and not v.stored
            and not v.complex
        )
    )
    if v is not None:
        k = g.choose(v.shape[-1]) + 1
        g.add(f"top_k {k}", lambda x: tuple(lax.top_k(x, k)), [v], exact=True)


def arg(g: Generator) -> None:
    v = g.any(
        lambda v: v.rank > 0 and v.exact and v.shape.count(0) == 0 and not v.complex
    )
    if v is not None:
        axis, f = g.choose(v.rank), g.pick((jnp.argmax, jnp.argmin))
        keep = g.flip()
        g.add(f"{f.__name__} {axis}", lambda x: f(x, axis, keepdims=keep), [v])


def searchsorted(g: Generator) -> None:
    v = g.any(lambda v: v.exact and v.floating and v.rank > 0)
    if v is not None and not g.special:
        g.add("searchsorted", lambda x: jnp.searchsorted(jnp.sort(x.ravel()), x), [v])


def cumulative(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0 and v.dtype != "bool" and not v.stored)
    if v is None:
        return
    axis, back = g.choose(v.rank), g.flip()
    n = max(v.shape[axis], 1)
    k = g.choose(2 if g.smooth or v.complex else 4)
    name = ("cumsum", "cumprod", "cummax", "cummin")[k]
    f = getattr(lax, name)
    if k == 1 and v.inexact:
        v = tamed(g, v)
    g.add(
        f"{name} {axis} {back}",
        lambda x: f(x, axis=axis, reverse=back),
        [v],
        rule=(additions(n), scaled(n), nearest, nearest)[k],
        exact=k > 1,
        size=v.size * n if k == 0 else None,
    )


def tamed(g: Generator, v: Value) -> Value:
    """Return a value that depends on v, of magnitude one at most."""
    if v.complex:
        return g.add(
            "unit",
            lambda z: z / (1 + jnp.abs(z)).astype(z.dtype),
            [v],
            rule=scaled(2),
            size=1.0,
        )[0]
    return g.add("tanh", jnp.tanh, [v], size=1.0)[0]


def reduction(g: Generator) -> None:
    v = g.any(lambda v: v.rank > 0 and not v.stored)
    if v is None:
        return
    axes, keep = g.axes(v), g.flip()
    n = max(int(np.prod([v.shape[a] for a in axes])), 1)
    if v.dtype == "bool":
        f: Any = g.pick((jnp.any, jnp.all, jnp.sum))
        g.add(f"{f.__name__} {axes} {keep}", lambda x: f(x, axes, keepdims=keep), [v])
        return
    k = g.choose(3 if g.smooth or v.complex else 6)
    if k > 2 and any(v.shape[a] == 0 for a in axes):
        k = 0
    f = (jnp.sum, jnp.mean, jnp.prod, jnp.max, jnp.min, jnp.ptp)[k]
    if k == 1 and (not v.inexact or any(v.shape[a] == 0 for a in axes)):
        return
    if k == 2 and v.inexact:
        v = tamed(g, v)
    g.add(
        f"{f.__name__} {axes} {keep}",
        lambda x: f(x, axes, keepdims=keep),
        [v],
        rule=(additions(n), additions(n), scaled(n), nearest, nearest, scaled(2))[k],
        exact=k in (3, 4),
        size=(v.size * n, v.size, 1.0, v.size, v.size, 2 * v.size)[k],
    )


def bit_reduction(g: Generator) -> None:
    v = g.any(lambda v: v.integral and v.rank > 0)
    if v is None:
        return
    f, start = g.pick(
        ((lax.bitwise_xor, 0), (lax.bitwise_or, 0), (lax.bitwise_and, -1))
    )
    axes = g.axes(v)
    g.add(
        f"reduce {f.__name__} {axes}",
        lambda x: lax.reduce(x, jnp.asarray(start).astype(x.dtype), f, axes),
        [v],
    )


def pair_reduction(g: Generator) -> None:
    """Two operands and a body that JAX has no name for: the largest and its partner."""
    v = g.any(lambda v: v.exact and v.rank > 0 and not v.stored and not v.complex)
    if v is None or g.special:
        return
    o = g.any(lambda o: o.shape == v.shape and o.exact and not o.stored) or v
    axes = g.axes(v)

    def body(a: Any, b: Any) -> Any:
        keep = (a[0] > b[0]) | ((a[0] == b[0]) & jnp.asarray(True))
        return lax.select(keep, a[0], b[0]), lax.select(keep, a[1], b[1])

    def apply(x: Any, y: Any) -> Any:
        if v.dtype == "bool":
            least = jnp.zeros((), bool)
        else:
            small = -jnp.inf if v.floating else jnp.iinfo(v.dtype).min
            least = jnp.asarray(small, x.dtype)
        starts = (least, jnp.zeros((), y.dtype))
        return tuple(lax.reduce((x, y), starts, body, axes))[:1]

    g.add(f"reduce pairs {axes}", apply, [v, o], exact=True)


def window_of(g: Generator) -> None:
    """reduce_window with dilations, explicit padding and other bodies."""
    v = g.any(
        lambda v: (
            v.rank > 0
            and v.dtype != "bool"
            and v.shape.count(0) == 0
            and not v.stored
            and not v.complex
        )
    )
    if v is None:
        return
    size = tuple(g.between(1, 3) for _ in v.shape)
    stride = tuple(g.between(1, 3) for _ in v.shape)
    base = tuple(g.pick((1, 1, 2)) for _ in v.shape)
    spread = tuple(g.pick((1, 1, 2)) for _ in v.shape)
    pads = tuple((g.between(-1, 2), g.between(0, 2)) for _ in v.shape)
    pads = tuple(
        p if (n - 1) * b + 1 + sum(p) >= (k - 1) * s + 1 else (4, 4)
        for p, n, b, k, s in zip(pads, v.shape, base, size, spread)
    )
    n = int(np.prod(size))
    k = 0 if g.smooth else g.choose(4 if v.integral else 3)
    f = (lax.add, lax.max, lax.min, lax.bitwise_xor)[k]

    def apply(x: Any) -> Any:
        if v.integral:
            info = jnp.iinfo(v.dtype)
            start: Any = (0, info.min, info.max, 0)[k]
        else:
            start = (0, -LARGE, LARGE)[k]  # of a window with padding only
        return lax.reduce_window(
            x, np.asarray(start, x.dtype), f, size, stride, pads, base, spread
        )

    g.add(
        f"window {f.__name__} {size} {stride} {pads} {base} {spread}",
        apply,
        [v],
        rule=additions(n) if k == 0 else nearest,
        exact=k > 0,
        size=v.size * n if k == 0 else LARGE,
    )


def window(g: Generator) -> None:
    v = g.any(
        lambda v: (
            v.rank > 0
            and v.dtype != "bool"
            and v.shape.count(0) == 0
            and not v.stored
            and not v.complex
        )
    )
    if v is None:
        return
    size = tuple(g.between(1, min(n, 3)) for n in v.shape)
    stride = tuple(g.between(1, 2) for _ in v.shape)
    n = int(np.prod(size))
    total = g.smooth or g.flip()

    def apply(x: Any) -> Any:
        if total:
            start: Any = np.zeros((), x.dtype)
            f: Any = lax.add
        else:
            small = -np.inf if v.floating else jnp.iinfo(v.dtype).min
            start, f = np.asarray(small, x.dtype), lax.max
        return lax.reduce_window(x, start, f, size, stride, "SAME")

    g.add(
        f"window {'sum' if total else 'max'} {size} {stride}",
        apply,
        [v],
        rule=additions(n) if total else nearest,
        exact=not total,
        size=v.size * n if total else None,
    )


WIDER = {
    "float32": "float32",
    "bfloat16": "float32",
    "float16": "float32",
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
}


def dot(g: Generator) -> None:
    """dot_general on axes whose sizes agree, in any order."""
    a = g.any(lambda v: v.dtype != "bool" and v.rank > 0 and not v.stored)
    if a is None:
        return
    b = g.any(
        lambda v: (
            v.dtype == a.dtype and v.rank > 0 and (bool(set(v.shape) & set(a.shape)))
        )
    )
    if b is None:
        return
    pairs: list[tuple[int, int]] = []
    for i in g.permutation(a.rank):
        free = [j for j in range(b.rank) if j not in [p[1] for p in pairs]]
        match = [j for j in free if b.shape[j] == a.shape[i]]
        if match and (not pairs or g.flip()):
            pairs.append((i, g.pick(match)))
    cut = g.choose(len(pairs) + 1)
    batch, contract = pairs[:cut], pairs[cut:]
    if a.rank + b.rank - 2 * len(contract) - len(batch) > 5:
        return
    free_size = np.prod([float(n) for n in (*a.shape, *b.shape)])
    free_size /= np.prod([float(max(a.shape[i], 1)) ** 2 for i, _ in contract] or [1.0])
    if free_size > 2048:
        return
    numbers = (
        (tuple(i for i, _ in contract), tuple(j for _, j in contract)),
        (tuple(i for i, _ in batch), tuple(j for _, j in batch)),
    )
    n = max(int(np.prod([a.shape[i] for i, _ in contract])), 1)
    preferred = WIDER.get(a.dtype) if g.choose(3) == 0 else None
    g.add(
        f"dot_general {numbers} {preferred}",
        lambda x, y: lax.dot_general(
            x, y, numbers, precision="highest", preferred_element_type=preferred
        ),
        [a, b],
        rule=contraction(n),
        size=a.size * b.size * n,
    )


def einsum(g: Generator) -> None:
    a = g.any(lambda v: v.floating and v.rank == 2)
    if a is None:
        return
    m, k = a.shape
    spec = g.pick(("ij,ij->i", "ij,kj->ik", "ij,ik->jk", "ij,ij->", "ij,il->lij"))
    g.add(
        f"einsum {spec}",
        lambda x: (
            jnp.einsum(spec, x, x[::-1] if m else x, precision="highest")
            if spec != "ij,ik->jk"
            else jnp.einsum(spec, x, x, precision="highest")
        ),
        [a],
        rule=lambda x, e, out: contraction(max(m * k, 1))(
            (x[0], x[0]), (e[0], e[0]), out
        ),
        size=a.size**2 * max(m * k, 1),
    )


def conv(g: Generator) -> None:
    v = g.any(lambda v: v.floating and v.rank in (3, 4) and v.shape.count(0) == 0)
    if v is None or g.special:
        # Whether padding is multiplied (0 x inf) differs even among XLA's algorithms.
        return
    w = g.any(lambda o: o.dtype == v.dtype and int(np.prod(o.shape)) > 0)
    if w is None:
        return
    groups = 2 if v.shape[1] % 2 == 0 and g.flip() else 1
    batches = 2 if v.shape[0] % 2 == 0 and groups == 1 and g.flip() else 1
    spatial = range(v.rank - 2)
    window = tuple(g.between(1, 3) for _ in spatial)
    shape = (2 * g.between(1, 2), v.shape[1] // groups, *window)
    kernel = g.like(w, shape, v.dtype)
    if kernel is None:
        return
    stride = tuple(g.between(1, 2) for _ in spatial)
    ldil = tuple(g.between(1, 2) for _ in spatial)
    rdil = tuple(g.between(1, 2) for _ in spatial)
    pads = tuple((g.between(-1, 2), g.between(0, 2)) for _ in spatial)
    pads = tuple(
        p if (h - 1) * a + 1 + sum(p) >= (k - 1) * b + 1 else (2, 4)
        for p, h, k, a, b in zip(pads, v.shape[2:], window, ldil, rdil)
    )
    if v.rank == 3:
        layout = g.pick(
            (("NCH", "OIH", "NCH"), ("NCH", "OIH", "NHC"), ("NCH", "OIH", "HNC"))
        )
    else:
        layout = g.pick((("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "HNWC")))
    n = int(np.prod(shape[1:]))
    g.add(
        f"conv {shape} stride {stride} pads {pads} dilation {ldil} {rdil} "
        f"groups {groups} {batches} {layout}",
        lambda x, k: lax.conv_general_dilated(
            x,
            k,
            stride,
            pads,
            ldil,
            rdil,
            layout,
            feature_group_count=groups,
            batch_group_count=batches,
            precision="highest",
        ),
        [v, kernel],
        rule=contraction(n),
        size=v.size * kernel.size * n,
    )


def softmax(g: Generator) -> None:
    v = g.any(lambda v: v.floating and v.rank > 0 and v.shape.count(0) == 0)
    if v is None or g.special:
        return
    axis = g.choose(v.rank)
    n = v.shape[axis]
    if g.flip():
        g.add(
            f"softmax {axis}", lambda x: jax.nn.softmax(x, axis), [v],
            rule=additions_of(n, 2.0), size=1.0,
        )  # fmt: skip
    else:
        g.add(
            f"log_softmax {axis}", lambda x: jax.nn.log_softmax(x, axis), [v],
            rule=additions_of(n, 2.0), size=2 * v.size + 4,
        )  # fmt: skip


def layer_norm(g: Generator) -> None:
    v = g.any(lambda v: v.floating and v.rank > 0 and v.shape[-1] > 0)
    if v is None or g.special:
        return
    n = v.shape[-1]

    def norm(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1)

    g.add("layer_norm", norm, [v], rule=additions_of(n, 4.0), size=float(n))


def fft(g: Generator) -> None:
    kinds = ("complex64", "complex128", "float32", "float64")
    v = g.any(lambda v: v.dtype in kinds and v.rank > 0 and v.shape.count(0) == 0)
    if v is None or g.special:
        return
    axis, n = g.choose(v.rank), 0
    n = v.shape[axis]
    if v.complex:
        f: Any = g.pick((jnp.fft.fft, jnp.fft.ifft, jnp.fft.irfft))
    else:
        f = g.pick((jnp.fft.rfft, jnp.fft.fft))
    if f is jnp.fft.irfft and n < 2:
        return
    g.add(
        f"{f.__name__} {axis}",
        lambda x: f(x, axis=axis),
        [v],
        rule=additions(2 * n),
        size=2 * v.size * n,
    )
