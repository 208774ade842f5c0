"""The training step: it learns, accumulates, clips and follows its schedule."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import train.step as train_step
from train.config import ModelConfig, TrainConfig
from train.step import (
    StepMetrics,
    TrainState,
    init_state,
    lr_schedule,
    make_eval_step,
    make_train_step,
    optimizer,
)

CONFIG = TrainConfig(
    model=ModelConfig(
        vocab_size=50, context=12, d_model=32, n_layers=1, n_heads=4, n_kv_heads=2,
        d_ff=48,
    ),
    steps=60, batch_size=4, warmup_steps=5, learning_rate=1e-2, weight_decay=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def batch() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 50, (4, 13)).astype(np.int32)


def test_a_tiny_batch_is_learnt_by_heart(batch: np.ndarray) -> None:
    state, step = init_state(CONFIG), compiled_step(CONFIG)
    losses = []
    for _ in range(CONFIG.steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics.loss))
    assert losses[0] == pytest.approx(np.log(50), rel=0.05)
    assert losses[-1] < 0.1
    assert int(state.step) == CONFIG.steps
    after = float(make_eval_step(CONFIG)(state.params, batch))
    assert after < losses[-1] + 0.02


# Compiled once: the configuration is frozen, the step is pure.
compiled_step = functools.cache(make_train_step)


def one_step(config: TrainConfig, batch: np.ndarray) -> tuple[TrainState, StepMetrics]:
    return compiled_step(config)(init_state(config), batch)


def momentum(opt_state: Any) -> Any:
    """First moment of AdamW, which comes second in the chain."""
    return opt_state[1][0].mu


@pytest.mark.slow
def test_micro_batches_give_the_gradient_of_the_whole(batch: np.ndarray) -> None:
    whole, found = one_step(CONFIG, batch)
    cut, found_cut = one_step(dataclasses.replace(CONFIG, micro_batches=2), batch)
    np.testing.assert_allclose(found.loss, found_cut.loss, rtol=1e-4)
    np.testing.assert_allclose(found.grad_norm, found_cut.grad_norm, rtol=1e-2)
    # Adam's first step is the sign of the gradient: compare where it is not noise.
    first = jax.tree.leaves(momentum(whole.opt_state))
    second = jax.tree.leaves(momentum(cut.opt_state))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-2 * float(np.abs(a).max()))


def test_micro_batches_are_averaged_and_draw_their_own_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a loss that is seen through: w * (mean of the rows + a number drawn)."""

    def loss(params: Any, batch: jax.Array, key: jax.Array) -> jax.Array:
        drawn = jax.random.uniform(key)
        return jnp.sum(params["w"]) * (batch.astype(jnp.float32).mean() + drawn)

    monkeypatch.setattr(train_step, "make_loss", lambda config: loss)
    config = dataclasses.replace(CONFIG, micro_batches=2, grad_every=1, seed=3)
    rows = np.array([[1, 1], [2, 2], [5, 5], [6, 6]], np.int32)
    root = jax.random.fold_in(jax.random.key(3), 1)
    for done in (0, 7):
        params = {"w": jnp.ones(1)}
        state = TrainState(jnp.int32(done), params, optimizer(config).init(params))
        _, found = make_train_step(config)(state, rows)
        key = jax.random.fold_in(root, done)
        drawn = [jax.random.uniform(jax.random.fold_in(key, i)) for i in range(2)]
        wanted = (1.5 + drawn[0] + 5.5 + drawn[1]) / 2
        for value in (found.loss, found.gradient["w"][0], found.grad_norm):
            np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_clipping_bounds_the_gradient_that_the_optimizer_sees() -> None:
    tx = optimizer(dataclasses.replace(CONFIG, clip_norm=0.01))
    params = {"w": jnp.ones((2, 2)), "g": jnp.ones(2)}
    grads = {"w": jnp.full((2, 2), 3.0), "g": jnp.full(2, 4.0)}
    _, state = jax.jit(tx.update)(grads, tx.init(params), params)
    seen = jax.tree.leaves(momentum(state))  # (1 - beta1) * gradient
    norm = np.sqrt(sum(float((np.asarray(m) ** 2).sum()) for m in seen))
    assert norm == pytest.approx(0.01 * (1 - CONFIG.beta1), rel=1e-3)


def test_weight_decay_leaves_vectors_alone() -> None:
    tx = optimizer(dataclasses.replace(CONFIG, weight_decay=10.0))
    params = {"w": jnp.full((2, 3), 2.0), "g": jnp.full(3, 2.0)}
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(tx.update)(zero, tx.init(params), params)
    rate = float(lr_schedule(CONFIG)(1))
    np.testing.assert_allclose(updates["w"], -10.0 * rate * 2.0, rtol=1e-5)
    np.testing.assert_array_equal(updates["g"], 0.0)


def test_learning_rate_rises_then_falls_to_its_floor(batch: np.ndarray) -> None:
    rates = [float(lr_schedule(CONFIG)(i)) for i in range(1, CONFIG.steps + 1)]
    top = int(np.argmax(rates))
    assert top == CONFIG.warmup_steps - 1
    assert rates[top] == pytest.approx(1e-2)
    assert rates[0] == pytest.approx(1e-2 / 5)
    assert rates[-1] == pytest.approx(1e-3)
    assert all(a > b for a, b in zip(rates[top:-1], rates[top + 1 :], strict=True))
    _, metrics = one_step(CONFIG, batch)
    assert float(metrics.learning_rate) == pytest.approx(rates[0])


@pytest.mark.parametrize("steps", [1, 2])
def test_runs_shorter_than_the_warm_up_have_a_schedule(steps: int) -> None:
    config = dataclasses.replace(CONFIG, steps=steps)
    assert np.isfinite([float(lr_schedule(config)(i)) for i in range(steps + 1)]).all()


def test_the_old_state_is_donated(batch: np.ndarray) -> None:
    state = init_state(CONFIG)
    compiled_step(CONFIG)(state, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
