"""The training step: it learns, accumulates, clips and follows its schedule."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from train.config import ModelConfig, TrainConfig
from train.step import (
    StepMetrics,
    TrainState,
    init_state,
    lr_schedule,
    make_eval_step,
    make_train_step,
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


def test_micro_batches_give_the_gradient_of_the_whole(batch: np.ndarray) -> None:
    whole, found = one_step(CONFIG, batch)
    cut, found_cut = one_step(dataclasses.replace(CONFIG, micro_batches=2), batch)
    np.testing.assert_allclose(found.loss, found_cut.loss, rtol=1e-4)
    np.testing.assert_allclose(found.grad_norm, found_cut.grad_norm, rtol=1e-2)
    # Adam's first step is the sign of the gradient: compare where it is not noise.
    first = jax.tree.leaves(whole.opt_state[1][0].mu)
    second = jax.tree.leaves(cut.opt_state[1][0].mu)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-2 * float(np.abs(a).max()))


def test_clipping_bounds_the_gradient_that_the_optimizer_sees(
    batch: np.ndarray,
) -> None:
    config = dataclasses.replace(CONFIG, clip_norm=0.01)
    state, metrics = one_step(config, batch)
    seen = jax.tree.leaves(state.opt_state[1][0].mu)  # (1 - beta1) * gradient
    norm = np.sqrt(sum(float((np.asarray(m) ** 2).sum()) for m in seen))
    assert float(metrics.grad_norm) > 0.05  # reported before clipping
    assert norm == pytest.approx(0.01 * (1 - config.beta1), rel=1e-3)


def test_weight_decay_leaves_vectors_alone() -> None:
    config = dataclasses.replace(CONFIG, weight_decay=10.0, clip_norm=1e-30)
    before = jax.tree.map(np.array, init_state(config).params)
    state, _ = one_step(config, np.zeros((4, 13), np.int32))
    rate = float(lr_schedule(config)(1))
    for a, b in zip(
        jax.tree.leaves(before), jax.tree.leaves(state.params), strict=True
    ):
        expected = a * (1 - 10.0 * rate) if a.ndim == 2 else a
        np.testing.assert_allclose(b, expected, rtol=1e-4, atol=2 * rate * 1e-3)


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
