"""The training step: loss, gradient, AdamW, as one pure jitted function.

Owns the train state (one pytree) and its update.  Randomness of a step is derived
from the seed and the step number in the state, so a restored state continues exactly.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from train.config import TrainConfig
from train.model import abstract_decoder, init_params


class TrainState(NamedTuple):
    """Everything that a step reads and writes."""

    step: jax.Array  # () int32, steps done
    params: Any  # the decoder's nnx.State of nnx.Param
    opt_state: Any  # optax's nested tuples


class StepMetrics(NamedTuple):
    """What a step reports, each () float32."""

    loss: jax.Array  # mean negative log-likelihood, nats a token
    learning_rate: jax.Array
    grad_norm: jax.Array  # global norm before clipping


Batch: TypeAlias = np.ndarray | jax.Array
StepFn: TypeAlias = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]


def lr_schedule(config: TrainConfig) -> Callable[[Any], Any]:
    """Linear warm-up to the peak, then a cosine to `min_lr_ratio` of it."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=config.learning_rate,
        warmup_steps=min(config.warmup_steps, config.steps - 1),
        decay_steps=config.steps,
        end_value=config.learning_rate * config.min_lr_ratio,
    )


def optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """AdamW after clipping; norms and other vectors are not decayed."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(
            # Step 0 would have rate 0: shift so that every step learns.
            lambda count: lr_schedule(config)(count + 1),
            b1=config.beta1,
            b2=config.beta2,
            weight_decay=config.weight_decay,
            mask=lambda params: jax.tree.map(lambda p: p.ndim >= 2, params),
        ),
    )


def init_state(config: TrainConfig) -> TrainState:
    """Return the state before the first step, drawn from `config.seed`."""
    params = init_params(config.model, jax.random.key(config.seed))
    return TrainState(jnp.int32(0), params, optimizer(config).init(params))


def token_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean cross-entropy of (b, t, v) logits and (b, t) ids, nats a token."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return losses.mean()


def make_train_step(config: TrainConfig) -> StepFn:
    """Build `step(state, batch) -> (state, metrics)`; the old state is donated.

    `batch` is (batch_size, context + 1) int32: inputs and, shifted by one, targets.
    With micro-batches, gradients are averaged over equal parts of the batch, which
    gives the gradient of the whole at a fraction of the activations.
    """
    graph, _ = abstract_decoder(config.model)
    tx = optimizer(config)
    dropout_root = jax.random.fold_in(jax.random.key(config.seed), 1)

    def loss_fn(params: nnx.State, batch: jax.Array, key: jax.Array) -> jax.Array:
        logits = nnx.merge(graph, params)(batch[:, :-1], key)
        return token_loss(logits, batch[:, 1:])

    def accumulate(
        params: nnx.State, batch: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, nnx.State]:
        n = config.micro_batches
        if n == 1:
            return jax.value_and_grad(loss_fn)(params, batch, key)

        def add(total, part):
            i, rows = part
            found = jax.value_and_grad(loss_fn)(
                params, rows, jax.random.fold_in(key, i)
            )
            return jax.tree.map(jnp.add, total, found), None

        zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        parts = batch.reshape(n, -1, batch.shape[1])
        total, _ = jax.lax.scan(add, zero, (jnp.arange(n), parts))
        return jax.tree.map(lambda x: x / n, total)

    def step(state: TrainState, batch: jax.Array) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(dropout_root, state.step)
        loss, grads = accumulate(state.params, batch, key)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        rate = lr_schedule(config)(state.step + 1)
        metrics = StepMetrics(
            loss, jnp.asarray(rate, jnp.float32), optax.tree.norm(grads)
        )
        return TrainState(state.step + 1, params, opt_state), metrics

    return jax.jit(step, donate_argnums=0)


def make_eval_step(config: TrainConfig) -> Callable[[nnx.State, Batch], jax.Array]:
    """Build `eval_step(params, batch) -> loss`, without dropout."""
    graph, _ = abstract_decoder(config.model)

    @jax.jit
    def eval_step(params: nnx.State, batch: jax.Array) -> jax.Array:
        return token_loss(nnx.merge(graph, params)(batch[:, :-1]), batch[:, 1:])

    return eval_step
