"""Whole training steps through the importer: values equal the stock CPU's."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax

from tests.lowering.oracle import compare, nodes
from vkore_jax.lowering import ir

TOKENS = np.random.default_rng(0).integers(0, 17, (2, 6)).astype(np.int32)
IMAGES = np.random.default_rng(1).standard_normal((2, 8, 8, 3)).astype(np.float32)
LABELS = np.array([1, 2], np.int32)
OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)),
)


class Block(nn.Module):
    """Pre-norm attention and MLP with dropout."""

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        h = nn.LayerNorm()(x)
        mask = nn.make_causal_mask(jnp.zeros(x.shape[:2]))
        h = nn.MultiHeadDotProductAttention(num_heads=2)(h, mask=mask)
        x = x + nn.Dropout(0.1, deterministic=not train)(h)
        h = nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.RMSNorm()(x))))
        return x + nn.Dropout(0.1, deterministic=not train)(h)


class LinenDecoder(nn.Module):
    """Two blocks with tied input and output embedding."""

    @nn.compact
    def __call__(self, tokens: Any, train: bool = True) -> Any:
        embed = nn.Embed(17, 16)
        x = embed(tokens) + nn.Embed(8, 16)(jnp.arange(tokens.shape[1]))
        for _ in range(2):
            x = Block()(x, train)
        return embed.attend(nn.LayerNorm()(x))


def cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train_step(loss_fn: Any) -> Any:
    def step(params: Any, state: Any, *batch: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, state = OPTIMIZER.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step


def linen_decoder() -> tuple[Any, tuple[Any, ...]]:
    model = LinenDecoder()
    params = model.init(jax.random.key(0), TOKENS, train=False)

    def loss_fn(p: Any, tokens: Any, key: Any) -> Any:
        logits: Any = model.apply(
            p, tokens, rngs={"dropout": jax.random.wrap_key_data(key)}
        )
        return cross_entropy(logits[:, :-1], tokens[:, 1:])

    key = np.array([0, 3], np.uint32)
    return train_step(loss_fn), (params, OPTIMIZER.init(params), TOKENS, key)


class NnxBlock(nnx.Module):
    """Grouped-query attention with rotary-like mixing and a gated MLP."""

    def __init__(self, dim: int, rngs: nnx.Rngs) -> None:
        self.norm = nnx.RMSNorm(dim, rngs=rngs)
        self.qkv = nnx.Linear(dim, dim + 2 * 8, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(dim, dim, use_bias=False, rngs=rngs)
        self.gate = nnx.Linear(dim, 2 * dim, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(dim, 2 * dim, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(2 * dim, dim, use_bias=False, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = jnp.split(self.qkv(self.norm(x)), [d, d + 8], -1)
        q, k, v = q.reshape(b, t, 2, 8), k.reshape(b, t, 1, 8), v.reshape(b, t, 1, 8)
        x = x + self.out(
            jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(b, t, d)
        )
        return x + self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class NnxDecoder(nnx.Module):
    """Two blocks, embedding and head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(17, 16, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(16, rngs) for _ in range(2)])
        self.head = nnx.Linear(16, 17, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def nnx_decoder() -> tuple[Any, tuple[Any, ...]]:
    graph, params = nnx.split(NnxDecoder(nnx.Rngs(0)))
    pure = nnx.to_pure_dict(params)

    def loss_fn(p: Any, tokens: Any) -> Any:
        state = nnx.clone(params) if hasattr(nnx, "clone") else params
        nnx.replace_by_pure_dict(state, p)
        return cross_entropy(nnx.merge(graph, state)(tokens)[:, :-1], tokens[:, 1:])

    return train_step(loss_fn), (pure, OPTIMIZER.init(pure), TOKENS)


class Mlp(nn.Module):
    """Dense, batch norm, dense."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(8)(x.reshape(x.shape[0], -1))
        x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
        return nn.Dense(5)(x)


class Cnn(nn.Module):
    """Convolutions with max and mean pooling."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(4, (3, 3), strides=(2, 2))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


class Lstm(nn.Module):
    """An LSTM scanned over time."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = x.reshape(x.shape[0], 8, -1)
        states: Any = nn.RNN(nn.OptimizedLSTMCell(6))(x)
        return nn.Dense(5)(states[:, -1])


def linen_classifier(model: nn.Module) -> tuple[Any, tuple[Any, ...]]:
    variables = model.init(jax.random.key(0), IMAGES)
    params = variables["params"]
    rest = {k: v for k, v in variables.items() if k != "params"}

    def loss_fn(p: Any, images: Any, labels: Any) -> Any:
        logits, _ = model.apply({"params": p, **rest}, images, mutable=["batch_stats"])
        return cross_entropy(logits, labels)

    return train_step(loss_fn), (params, OPTIMIZER.init(params), IMAGES, LABELS)


MODELS = {
    "linen_decoder": linen_decoder,
    "nnx_decoder": nnx_decoder,
    "mlp_batchnorm": lambda: linen_classifier(Mlp()),
    "cnn": lambda: linen_classifier(Cnn()),
    "lstm": lambda: linen_classifier(Lstm()),
}


SLOW = ("linen_decoder", "cnn", "lstm")
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in MODELS
]


@pytest.mark.parametrize("name", NAMES)
def test_train_step_matches_cpu(name: str) -> None:
    step, args = MODELS[name]()
    with jax.default_matmul_precision("highest"):
        module = compare(step, *args, tol=2e-3)
    assert any(isinstance(n, ir.Gemm) for n in nodes(module.graph))


def test_scan_over_layers_keeps_weights_out_of_the_carry() -> None:
    """Stacked weights are read from outside the loop, only the state is carried."""

    def f(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, m: (jnp.tanh(c @ m), None), x, w)[0]

    x = np.ones((2, 4), np.float32)
    w = np.ones((3, 4, 4), np.float32)
    module = compare(f, x, w)
    (loop,) = (n for n in nodes(module.graph) if isinstance(n, ir.While))
    assert loop.trips == 3
    assert len(loop.operands) == 2
