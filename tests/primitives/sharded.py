"""Prints the collectives of partitioned programs as JSON; see `test_sharding.py`."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vkore_jax import accelerate
from vkore_jax import primitives as P

MESH = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
B, T, C, H, G, D, V, F = 8, 16, 32, 4, 2, 8, 64, 48


def struct(shape: tuple[int, ...], *spec: str | None, dtype: Any = jnp.float32) -> Any:
    sharding = NamedSharding(MESH, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


COLLECTIVES = (
    r"= (\S+) (all-gather|all-reduce|all-to-all|collective-permute|\w+-scatter)"
)


def collectives(function: Callable[..., Any], *args: Any) -> dict[str, int]:
    """Return elements moved by kind of collective, in the compiled gradient."""
    which = tuple(i for i, a in enumerate(args) if a.dtype == jnp.float32)
    shardings = tuple(args[i].sharding for i in which)

    def loss(*args: Any) -> Any:
        return jnp.sum(function(*args) ** 2)

    grad = jax.jit(jax.grad(loss, which), out_shardings=shardings)
    text = grad.lower(*args).compile().as_text()
    assert text is not None
    total: dict[str, int] = {}
    for shape, kind in re.findall(COLLECTIVES, text):
        dims = re.findall(r"\[([\d,]*)\]", shape)
        size = sum(math.prod(map(int, d.split(","))) if d else 1 for d in dims)
        total[kind] = total.get(kind, 0) + size
    return total


def plain_norm(x: Any, g: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def plain_layer_norm(x: Any, g: Any, b: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return plain_norm(x, g) + b


def plain_rope(x: Any, cos: Any, sin: Any) -> Any:
    left, right = jnp.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return jnp.concatenate(
        [left * cos - right * sin, right * cos + left * sin], axis=-1
    )


def plain_loss(x: Any, w: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(x @ w.T, y)


def model(p: dict[str, Any], ids: Any) -> Any:
    """A layer of a transformer as people write it."""
    x = p["table"][ids]
    h = plain_norm(x, p["g"])
    q, k, v = (jnp.einsum("btc,chd->bthd", h, p[n]) for n in ("q", "k", "v"))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + jnp.einsum("bthd,hdc->btc", y, p["o"])
    x = x + jax.nn.gelu(plain_norm(x, p["g"]) @ p["up"]) @ p["down"]
    return optax.softmax_cross_entropy_with_integer_labels(x @ p["table"].T, ids)


SHAPES: dict[str, tuple[tuple[int, ...], tuple[str | None, ...]]] = {
    "table": ((V, C), ("model", None)),
    "g": ((C,), ()),
    "q": ((C, H, D), (None, "model", None)),
    "k": ((C, G, D), (None, "model", None)),
    "v": ((C, G, D), (None, "model", None)),
    "o": ((H, D, C), ("model", None, None)),
    "up": ((C, F), (None, "model")),
    "down": ((F, C), ("model", None)),
}
NAMES = tuple(SHAPES)


def flat_model(ids: Any, *leaves: Any) -> Any:
    return model(dict(zip(NAMES, leaves, strict=True)), ids)


def cases() -> dict[
    str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]
]:
    x, ids = struct((B, T, C), "data"), struct((B, T), "data", dtype=jnp.int32)
    q = struct((B, T, H, D), "data", None, "model")
    kv = struct((B, T, G, D), "data", None, "model")
    up, down = struct((C, F), None, "model"), struct((F, C), "model", None)
    wide = struct((B, T, F), "data", None, "model")
    angles = struct((T, D // 2))
    matmul = jnp.matmul

    def attend(q: Any, k: Any, v: Any) -> Any:
        return P.attention(q, k, v, causal=True, block=8)

    def plain_attend(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    def mlp(x: Any, a: Any, b: Any) -> Any:
        return P.linear(P.linear(x, a, activation="gelu"), b)

    def plain_mlp(x: Any, a: Any, b: Any) -> Any:
        return jax.nn.gelu(x @ a) @ b

    def lookup(table: Any, ids: Any) -> Any:
        return table[ids]

    def loss(x: Any, w: Any, y: Any) -> Any:
        return P.softmax_cross_entropy(x, w, y)

    def loss_by_tiles(x: Any, w: Any, y: Any) -> Any:
        return P.softmax_cross_entropy(x, w, y, block=16)

    def swish(gate: Any, x: Any) -> Any:
        return jax.nn.silu(gate) * x

    leaves = [struct(shape, *spec) for shape, spec in SHAPES.values()]
    return {
        "linear_data": (P.linear, matmul, (x, struct((C, F)))),
        "linear_column": (P.linear, matmul, (x, up)),
        "linear_row": (P.linear, matmul, (wide, down)),
        "mlp": (mlp, plain_mlp, (x, up, down)),
        "attention": (attend, plain_attend, (q, kv, kv)),
        "layer_norm": (P.layer_norm, plain_layer_norm,
                       (x, struct((C,)), struct((C,)))),
        "rms_norm": (P.rms_norm, plain_norm, (x, struct((C,)))),
        "rope": (P.rope, plain_rope, (q, angles, angles)),
        "embedding_data": (P.embedding, lookup, (struct((V, C)), ids)),
        "embedding_vocab": (P.embedding, lookup, (struct((V, C), "model"), ids)),
        "embedding_channel": (P.embedding, lookup,
                              (struct((V, C), None, "model"), ids)),
        "loss_data": (loss_by_tiles, plain_loss, (x, struct((V, C)), ids)),
        "loss_vocab": (loss, plain_loss, (x, struct((V, C), "model"), ids)),
        "swiglu": (P.swiglu, swish, (wide, wide)),
        "model": (accelerate(flat_model), flat_model, (ids, *leaves)),
    }  # fmt: skip


def values() -> float:
    """Return how far the partitioned model's gradient is from one device's."""
    rng = np.random.default_rng(0)
    arrays = [0.1 * rng.standard_normal(s).astype("f4") for s, _ in SHAPES.values()]
    ids = rng.integers(0, V, (B, T)).astype("i4")
    grad = jax.grad(lambda leaves: accelerate(flat_model)(ids, *leaves).mean())
    wanted = jax.jit(grad)(arrays)
    sharded = [
        jax.device_put(a, NamedSharding(MESH, PartitionSpec(*spec)))
        for a, (_, spec) in zip(arrays, SHAPES.values(), strict=True)
    ]
    found = jax.jit(grad)(sharded)
    return max(
        float(np.abs(np.asarray(f) - w).max() / np.abs(w).max())
        for f, w in zip(found, wanted, strict=True)
    )


def main() -> None:
    out: dict[str, Any] = {
        name: {"ours": collectives(ours, *args), "plain": collectives(plain, *args)}
        for name, (ours, plain, args) in cases().items()
    }
    print(json.dumps({**out, "values": values()}))


if __name__ == "__main__":
    main()
