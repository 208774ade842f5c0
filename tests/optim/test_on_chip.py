"""The same bits on the chip as on the CPU, and a step that keeps no float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vkore_jax import optim
from vkore_jax.optim import rounding

CPU, CHIP = jax.devices("cpu")[0], jax.devices("vkore")[0]


def on(device: Any, function: Any, *args: Any) -> list[np.ndarray]:
    found = jax.jit(function)(*(jax.device_put(x, device) for x in args))
    return [np.asarray(x) for x in jax.tree.leaves(found)]


def test_the_arithmetic_has_the_same_bits_on_the_chip() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=4096) * 10.0 ** rng.integers(-8, 8, 4096)).astype(np.float32)
    x[:5] = 0, np.inf, -np.inf, np.nan, 3.4e38
    key = jax.device_get(jax.random.key_data(jax.random.key(1)))

    def all_of_it(x: jax.Array, key: jax.Array) -> Any:
        draw = jax.random.wrap_key_data(key)
        bits = rounding.leaf_bits(draw, (jax.tree_util.DictKey("w"),), x.shape)
        pair = optim.split(x)
        summed = optim.kahan_add(pair.hi, pair.lo, x[::-1])
        return pair, optim.join(pair), summed, optim.stochastic(x, bits), bits

    for found, wanted in zip(on(CHIP, all_of_it, x, key), on(CPU, all_of_it, x, key)):
        assert found.dtype == wanted.dtype
        same = found.view(np.uint8) == wanted.view(np.uint8)
        assert (same.reshape(len(x), -1).all(1) | np.isnan(found.astype(float))).all()


def test_a_training_step_on_the_chip_is_the_step_on_the_cpu() -> None:
    policy = optim.Policy(loss_scale="dynamic")
    tx = optim.mixed_precision(optax.adamw(1e-2, weight_decay=0.1), policy)
    params = {"w": np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)}

    def train(params: Any) -> Any:
        params, state = optim.init_narrow(tx, params)

        def step(carry: Any, i: jax.Array) -> Any:
            params, state = carry
            grads = jax.tree.map(lambda p: (p - p.dtype.type(0.5)) * 2**15, params)
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), jnp.arange(5))[0]

    for found, wanted in zip(on(CHIP, train, params), on(CPU, train, params)):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=2**-7, atol=1e-6
        )
