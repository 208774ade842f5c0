"""Loss scaling: exact, adaptive, and nothing that is not finite reaches a weight."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vkore_jax import optim
from vkore_jax.errors import InvalidArgument

CPU = jax.devices("cpu")[0]


@pytest.fixture(autouse=True)
def _on_cpu():
    with jax.default_device(CPU):
        yield


def step(tx: Any, params: Any, state: Any, grad: float) -> Any:
    grads = jax.tree.map(lambda p: jnp.full_like(p, grad), params)
    updates, state = jax.jit(tx.update)(grads, state, params)
    return optax.apply_updates(params, updates), state


def test_scaled_gradients_give_the_unscaled_update() -> None:
    tx = optim.dynamic_loss_scale(optax.sgd(1.0), initial=1024.0)
    params = {"w": jnp.zeros(3)}
    loss = lambda p: jnp.sum(p["w"] * jnp.float32([1, 2, 3]))  # noqa: E731
    state = tx.init(params)
    value, grads = optim.value_and_grad(loss, state)(params)
    assert float(value) == 0
    np.testing.assert_array_equal(grads["w"], [1024, 2048, 3072])
    updates: Any = tx.update(grads, state, params)[0]
    np.testing.assert_array_equal(updates["w"], [-1, -2, -3])


def test_the_scale_saves_what_float16_would_flush() -> None:
    params = {"w": jnp.ones(1, jnp.float16)}
    tiny = 1e-6  # its square is below float16's smallest subnormal

    def loss(p: Any) -> jax.Array:
        return (p["w"] * jnp.float16(tiny) * jnp.float16(tiny)).astype(jnp.float32)[0]

    for initial, moves in ((1.0, False), (2.0**24, True)):
        tx = optim.dynamic_loss_scale(optax.sgd(1.0), initial=initial)
        state = tx.init(params)
        _, grads = optim.value_and_grad(loss, state)(params)
        assert bool(grads["w"][0] != 0) is moves


def test_the_scale_falls_on_overflow_and_rises_after_an_interval() -> None:
    tx = optim.dynamic_loss_scale(optax.sgd(1.0), initial=8.0, interval=3, largest=16.0)
    params: Any = {"w": jnp.zeros(2)}
    state = tx.init(params)
    seen = []
    for grad in (1, np.inf, 1, 1, 1, 1, 1, 1, 1, 1, 1, np.nan, 1):
        params, state = step(tx, params, state, grad)
        seen.append(float(optim.loss_scale(state)))
    assert seen == [8, 4, 4, 4, 8, 8, 8, 16, 16, 16, 16, 8, 8]
    assert int(optim.skipped_steps(state)) == 2
    assert np.isfinite(params["w"]).all()


def test_the_scale_stays_within_its_bounds() -> None:
    tx = optim.dynamic_loss_scale(optax.sgd(1.0), initial=2.0, smallest=1.0)
    params: Any = {"w": jnp.zeros(2)}
    state = tx.init(params)
    for _ in range(4):
        params, state = step(tx, params, state, np.inf)
    assert float(optim.loss_scale(state)) == 1.0


def test_a_fixed_scale_skips_and_stays() -> None:
    tx = optim.mixed_precision(optax.sgd(1.0), optim.Policy(loss_scale=256.0))
    params, state = optim.init_narrow(tx, {"w": jnp.ones(2)})
    params, state = step(tx, params, state, np.nan)
    assert float(optim.loss_scale(state)) == 256.0
    assert int(optim.skipped_steps(state)) == 1
    np.testing.assert_array_equal(np.asarray(params["w"], np.float32), 1.0)


@pytest.mark.parametrize("master", optim.METHODS)
def test_a_skipped_step_changes_nothing_but_the_counters(master: Any) -> None:
    policy = optim.Policy(master=master, loss_scale="dynamic")
    tx = optim.mixed_precision(optax.adamw(0.1), policy)
    params, state = optim.init_narrow(tx, {"w": jnp.float32([0.1, 1.3, -2.7])})
    params, state = step(tx, params, state, 2.0**14)
    for bad in (np.nan, np.inf, -np.inf):
        after, new = step(tx, params, state, bad)
        np.testing.assert_array_equal(
            np.asarray(after["w"], np.float32), np.asarray(params["w"], np.float32)
        )
        old_inner, new_inner = state.finite.inner_state, new.finite.inner_state
        for a, b in zip(jax.tree.leaves(old_inner), jax.tree.leaves(new_inner)):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_without_a_scale_there_is_none() -> None:
    state = optim.mixed_precision(optax.sgd(1.0)).init({"w": jnp.zeros(1)})
    assert float(optim.loss_scale(state)) == 1.0
    assert int(optim.skipped_steps(state)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": 1000.0}, "initial must be a power of two"),
        ({"factor": 3.0}, "factor must be a power of two"),
        ({"factor": 0.5}, "factor > 1"),
        ({"initial": 0.0}, "initial must be a power of two"),
        ({"initial": 2.0, "smallest": 4.0}, "smallest <= initial"),
    ],
)
def test_scales_are_powers_of_two_in_order(options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        optim.dynamic_loss_scale(optax.sgd(1.0), **options)


@pytest.mark.parametrize("method", optim.METHODS)
def test_types_of_the_state_stay(method: optim.Method) -> None:
    """With leaves of no elements, scalars, None and float16, and a loss scale."""
    params = {
        "w": jnp.ones(3),
        "empty": jnp.zeros((0, 2)),
        "scalar": jnp.float32(2),
        "none": None,
        "half": jnp.ones(2, jnp.float16),
    }
    policy = optim.Policy(master=method, loss_scale="dynamic")
    tx = optim.mixed_precision(optax.adamw(1e-2, weight_decay=0.1), policy)

    def loss(params: Any) -> jax.Array:
        leaves = jax.tree.leaves(params)
        return sum((jnp.sum(x.astype("f4") ** 2) for x in leaves), jnp.float32(0))

    def step(params: Any, state: Any) -> Any:
        _, grads = optim.value_and_grad(loss, state)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    before = jax.eval_shape(lambda p: optim.init_narrow(tx, p), params)
    after = jax.eval_shape(step, *before)

    def types(tree: Any) -> Any:
        return jax.tree.map(lambda x: (x.shape, x.dtype), tree)

    assert types(after) == types(before)
