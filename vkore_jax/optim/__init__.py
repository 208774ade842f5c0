"""Training in 16 bits: optax transformations for chips that store no float32.

    from vkore_jax import optim

    tx = optim.mixed_precision(optax.adamw(1e-3), optim.Policy(loss_scale="dynamic"))
    params, opt_state = optim.init_narrow(tx, params)

    @jax.jit
    def step(params, opt_state, batch):
        loss, grads = optim.value_and_grad(loss_fn, opt_state)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

Nothing here knows the chip: the same transformations run on every JAX backend.  Use
them under `jax.jit`, where the float32 values between two roundings stay in registers.
"""

from vkore_jax.optim.master import METHODS, MasterState, Method, master_weights
from vkore_jax.optim.moments import STORAGES, CompactState, Storage, compact_state
from vkore_jax.optim.policy import Policy, init_narrow, mixed_precision
from vkore_jax.optim.rounding import Pair, join, kahan_add, nearest, split, stochastic
from vkore_jax.optim.scale import (
    LossScaleState,
    dynamic_loss_scale,
    loss_scale,
    skipped_steps,
    value_and_grad,
)

__all__ = [
    # whole
    "Policy", "mixed_precision", "init_narrow",
    # parts
    "master_weights", "compact_state", "dynamic_loss_scale",
    "METHODS", "Method", "STORAGES", "Storage",
    "MasterState", "CompactState", "LossScaleState",
    # in a step
    "value_and_grad", "loss_scale", "skipped_steps",
    # arithmetic
    "Pair", "split", "join", "nearest", "stochastic", "kahan_add",
]  # fmt: skip
