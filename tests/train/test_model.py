"""The decoder: sizes, causality, dropout, and the mathematics of its parts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from train.config import PRESETS, ModelConfig
from train.model import Decoder, abstract_decoder, init_params, rotary_table, rotate

CONFIG = ModelConfig(
    vocab_size=50, context=12, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=24
)


@jax.jit
def logits(decoder: Decoder, ids: jax.Array) -> jax.Array:
    return decoder(ids)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    model = Decoder(CONFIG, rngs=nnx.Rngs(0))
    # Larger weights than at the start of training, so that every path matters.
    params = jax.tree.map(lambda p: 5 * p, nnx.state(model, nnx.Param))
    nnx.update(model, params)
    return model


def tokens(seed: int = 0, rows: int = 2) -> jax.Array:
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, CONFIG.vocab_size, (rows, CONFIG.context)))


@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_are_as_many_as_the_configuration_says(preset: str) -> None:
    config = PRESETS[preset].model
    _, params = abstract_decoder(config)
    leaves = jax.tree.leaves(params)
    assert sum(leaf.size for leaf in leaves) == config.n_params
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}


def test_logits_have_a_row_per_position(decoder: Decoder) -> None:
    for t in (12, 5):
        found = jax.eval_shape(decoder, tokens()[:, :t])
        assert found.shape == (2, t, 50)


def test_a_position_sees_itself_and_the_past_only(decoder: Decoder) -> None:
    before = tokens()
    base = np.asarray(logits(decoder, before))
    for at in (0, 5, 11):
        changed = before.at[0, at].set((before[0, at] + 1) % CONFIG.vocab_size)
        moved = np.abs(np.asarray(logits(decoder, changed)) - base).max(-1)
        assert moved[0, :at].max(initial=0) < 1e-5
        assert moved[0, at:].min() > 1e-3
        assert moved[1].max() < 1e-5


def test_grouped_heads_equal_repeated_key_value_heads(decoder: Decoder) -> None:
    full = Decoder(dataclasses.replace(CONFIG, n_kv_heads=4), rngs=nnx.Rngs(0))
    pure = nnx.to_pure_dict(nnx.state(decoder, nnx.Param))
    for block in pure["blocks"].values():
        for name in ("key", "value"):
            kernel = block["attention"][name]["kernel"].reshape(16, 2, 4)
            block["attention"][name]["kernel"] = kernel.repeat(2, axis=1).reshape(
                16, 16
            )
    state = nnx.state(full, nnx.Param)
    nnx.replace_by_pure_dict(state, pure)
    nnx.update(full, state)
    np.testing.assert_allclose(
        logits(full, tokens()), logits(decoder, tokens()), rtol=1e-2, atol=1e-2
    )


def test_rotation_keeps_lengths_and_sees_distance_only() -> None:
    cos, sin = rotary_table(CONFIG)
    q, k = (jax.random.normal(jax.random.key(i), (1, 1, 1, 4)) for i in range(2))
    everywhere = (1, CONFIG.context, 1, 4)
    q, k = (rotate(jnp.broadcast_to(x, everywhere), cos, sin)[0, :, 0] for x in (q, k))
    np.testing.assert_allclose(
        jnp.linalg.norm(q, axis=-1), jnp.linalg.norm(q[0]), rtol=1e-5
    )
    scores = np.asarray((q[:, None] * k[None]).sum(-1))
    for distance in range(CONFIG.context):
        band = np.diagonal(scores, -distance)
        np.testing.assert_allclose(band, band[0], atol=1e-5)


def test_dropout_acts_only_with_a_key() -> None:
    config = dataclasses.replace(CONFIG, dropout=0.5)
    params = init_params(config, jax.random.key(0))
    graph, _ = abstract_decoder(config)
    run = jax.jit(lambda key: nnx.merge(graph, params)(tokens(), key))
    still = jax.jit(lambda: nnx.merge(graph, params)(tokens()))()
    a, b = run(jax.random.key(1)), run(jax.random.key(2))
    assert np.array_equal(a, run(jax.random.key(1)))
    assert np.abs(np.asarray(a - b)).max() > 1e-3
    assert np.abs(np.asarray(a - still)).max() > 1e-3


def test_initial_parameters_follow_the_seed() -> None:
    first, again, other = (
        jax.tree.leaves(init_params(CONFIG, jax.random.key(seed))) for seed in (0, 0, 1)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
