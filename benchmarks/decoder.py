"""train's decoder step twice: in plain Flax as it is, and with vkore_jax.primitives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from train.config import ModelConfig, TrainConfig
from train.model import Decoder, abstract_decoder, init_params, rotary_table
from train.step import TrainState, make_train_step, optimizer
from vkore_jax import primitives


def config(layers: int, width: int, vocab: int, batch: int, length: int) -> TrainConfig:
    """Return a training of a decoder with heads of 64 channels, two a key head."""
    heads = max(2, width // 64)
    model = ModelConfig(
        vocab_size=vocab,
        context=length,
        d_model=width,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=heads // 2 if heads % 2 == 0 else heads,
        d_ff=width * 8 // 3 // 64 * 64 or 64,
    )
    return TrainConfig(model=model, batch_size=batch, steps=100)


def kernel_loss(graph: Any, params: Any, tokens: jax.Array) -> jax.Array:
    """The loss of `train.step` with every layer a primitive."""
    net: Decoder = nnx.merge(graph, params)
    model = net.config
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    b, t = inputs.shape
    cos, sin = (table[:t] for table in rotary_table(model))

    def norm(layer: Any, x: jax.Array) -> jax.Array:
        return primitives.rms_norm(x, layer.scale[...], eps=model.norm_eps)

    def linear(layer: Any, x: jax.Array) -> jax.Array:
        return primitives.linear(x, layer.kernel[...])

    x = primitives.embedding(net.embedding.embedding[...], inputs)
    for block in net.blocks:
        y, layer = norm(block.attention_norm, x), block.attention
        q = linear(layer.query, y).reshape(b, t, model.n_heads, -1)
        k = linear(layer.key, y).reshape(b, t, model.n_kv_heads, -1)
        v = linear(layer.value, y).reshape(b, t, model.n_kv_heads, -1)
        q, k = primitives.rope(q, cos, sin), primitives.rope(k, cos, sin)
        y = primitives.attention(q, k, v, causal=True)
        x = x + linear(layer.out, y.reshape(b, t, -1))
        y, mlp = norm(block.mlp_norm, x), block.mlp
        y = primitives.swiglu(linear(mlp.gate, y), linear(mlp.up, y))
        x = x + linear(mlp.out, y)
    losses = primitives.softmax_cross_entropy(
        norm(net.norm, x), net.embedding.embedding[...], targets
    )
    return losses.mean()


def plain_step(settings: TrainConfig) -> Any:
    """Return `train`'s jitted step (state, batch) -> (state, metrics)."""
    return make_train_step(settings)


def kernel_step(settings: TrainConfig) -> Any:
    """Return the same step with primitives."""
    graph, _ = abstract_decoder(settings.model)
    tx = optimizer(settings)

    def step(state: TrainState, batch: jax.Array) -> tuple[TrainState, jax.Array]:
        loss, grads = jax.value_and_grad(lambda p: kernel_loss(graph, p, batch))(
            state.params
        )
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = jax.tree.map(jnp.add, state.params, updates)
        return TrainState(state.step + 1, params, opt_state), loss

    return jax.jit(step, donate_argnums=0)


def arguments(settings: TrainConfig) -> tuple[TrainState, np.ndarray]:
    """Return a state and a batch of random tokens."""
    params = init_params(settings.model, jax.random.key(0))
    state = TrainState(jnp.int32(0), params, optimizer(settings).init(params))
    shape = (settings.batch_size, settings.model.context + 1)
    tokens = np.random.default_rng(0).integers(0, settings.model.vocab_size, shape)
    return state, tokens.astype(np.int32)
