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
    """What a step reports, () float32 where nothing else is said; None: not asked."""

    loss: jax.Array  # mean negative log-likelihood, nats a token
    learning_rate: jax.Array
    grad_norm: jax.Array  # global norm before clipping
    skipped: jax.Array | None = None  # updates dropped so far as not finite, () int32
    loss_scale: jax.Array | None = None  # of this step
    gradient: Any = None  # a tree like the parameters, times the loss scale


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
    adamw = optax.chain(
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
    if not config.mixed_precision:
        return adamw
    from vkore_jax import optim  # only here: an f32 run needs nothing of vkore

    return optim.mixed_precision(
        adamw,
        optim.Policy(
            master=config.master,
            moments=config.moments,
            loss_scale="dynamic" if config.loss_scale == "dynamic" else None,
            seed=config.seed,
        ),
    )


def init_state(config: TrainConfig) -> TrainState:
    """Return the state before the first step, drawn from `config.seed`."""
    tx, key = optimizer(config), jax.random.key(config.seed)
    if config.param_dtype == "f32":
        params = init_params(config.model, key)
        return TrainState(jnp.int32(0), params, tx.init(params))
    from vkore_jax import optim

    @jax.jit  # one program: a chip without f32 storage cannot keep what is drawn
    def start(key: jax.Array) -> tuple[Any, Any]:
        return optim.init_narrow(tx, init_params(config.model, key))

    return TrainState(jnp.int32(0), *start(key))


def token_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean cross-entropy of (b, t, v) logits and (b, t) ids, nats a token, float32."""
    wide = logits.astype(jnp.float32)
    if logits.dtype == jnp.float32:
        losses = optax.softmax_cross_entropy_with_integer_labels(wide, targets)
    else:
        # No gather of wide logits, which would be stored, nor scatter of a wide
        # gradient: all between narrow logits and their gradient is one element code.
        chosen = jax.nn.one_hot(targets, logits.shape[-1])
        losses = optax.softmax_cross_entropy(wide, chosen)
    return losses.mean()


def make_loss(config: TrainConfig) -> Callable[..., jax.Array]:
    """Build `loss(params, batch, dropout_key=None)` as `config.primitives` says."""
    graph, _ = abstract_decoder(config.model)

    def plain(
        params: nnx.State, batch: jax.Array, key: jax.Array | None = None
    ) -> jax.Array:
        return token_loss(nnx.merge(graph, params)(batch[:, :-1], key), batch[:, 1:])

    if config.primitives == "accelerate":
        from vkore_jax import accelerate

        return accelerate(plain)
    if config.primitives == "explicit":
        from train.explicit import mean_loss

        return lambda params, *rest: mean_loss(nnx.merge(graph, params), *rest)
    return plain


def make_train_step(config: TrainConfig) -> StepFn:
    """Build `step(state, batch) -> (state, metrics)`; the old state is donated.

    `batch` is (batch_size, context + 1) int32: inputs and, shifted by one, targets.
    With micro-batches, gradients are averaged over equal parts of the batch, which
    gives the gradient of the whole at a fraction of the activations.  The gradient is
    among the metrics if `grad_every` asks for a record.
    """
    model_loss = make_loss(config)
    tx = optimizer(config)
    dropout_root = jax.random.fold_in(jax.random.key(config.seed), 1)

    scaled = config.loss_scale != "none"
    optim: Any = None
    if scaled:
        from vkore_jax import optim

    def loss_fn(
        params: nnx.State, batch: jax.Array, key: jax.Array, scale: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        loss = model_loss(params, batch, key)
        return (loss if scale is None else loss * scale), loss

    def accumulate(
        params: nnx.State, batch: jax.Array, key: jax.Array, scale: jax.Array | None
    ) -> tuple[jax.Array, nnx.State]:
        n = config.micro_batches
        loss_and_grad = jax.value_and_grad(loss_fn, has_aux=True)
        if n == 1:
            (_, loss), grads = loss_and_grad(params, batch, key, scale)
            return loss, grads

        def add(total, part):
            i, rows = part
            (_, loss), grads = loss_and_grad(
                params, rows, jax.random.fold_in(key, i), scale
            )
            return jax.tree.map(jnp.add, total, (loss, grads)), None

        zero = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        parts = batch.reshape(n, -1, batch.shape[1])
        total, _ = jax.lax.scan(add, zero, (jnp.arange(n), parts))
        return jax.tree.map(lambda x: x / n, total)

    def step(state: TrainState, batch: jax.Array) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(dropout_root, state.step)
        scale, skipped = None, None
        if scaled:
            scale = optim.loss_scale(state.opt_state)
        loss, grads = accumulate(state.params, batch, key, scale)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        if scaled:
            skipped = optim.skipped_steps(opt_state)
        norm = optax.tree.norm(jax.tree.map(lambda g: g.astype(jnp.float32), grads))
        metrics = StepMetrics(
            loss=loss,
            learning_rate=jnp.asarray(lr_schedule(config)(state.step + 1), jnp.float32),
            grad_norm=norm if scale is None else norm / scale,
            skipped=skipped,
            loss_scale=scale,
            gradient=grads if config.grad_every else None,
        )
        return TrainState(state.step + 1, params, opt_state), metrics

    return jax.jit(step, donate_argnums=0)


def make_eval_step(config: TrainConfig) -> Callable[[nnx.State, Batch], jax.Array]:
    """Build `eval_step(params, batch) -> loss`, without dropout."""
    return jax.jit(make_loss(config))
