"""Training in 16 bits follows training in float32, where rounding to nearest stops."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vkore_jax import optim
from vkore_jax.errors import InvalidArgument
from vkore_jax.optim import Policy

CPU = jax.devices("cpu")[0]
KEEPING = ("hilo", "kahan", "stochastic", "f32")


@pytest.fixture(autouse=True)
def _on_cpu():
    with jax.default_device(CPU):
        yield


def adamw(rate: Any = 1e-3, decay: float = 0.1) -> optax.GradientTransformation:
    return optax.adamw(rate, b2=0.999, weight_decay=decay)


def wide(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def run(tx: Any, params: Any, grad: Any, steps: int, narrow: bool = True) -> Any:
    """Train for `steps` in one scan; `grad(params, i)` gives the gradient."""
    if narrow:
        params, state = optim.init_narrow(tx, params)
    else:
        state = tx.init(params)

    def step(carry: Any, i: jax.Array) -> Any:
        params, state = carry
        grads = jax.tree.map(lambda g, p: g.astype(p.dtype), grad(params, i), params)
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), params

    (params, state), _ = jax.jit(lambda c: jax.lax.scan(step, c, jnp.arange(steps)))(
        (params, state)
    )
    return params, state


def quadratic() -> tuple[Any, Any]:
    """Start and gradient of sum(scale * (p - target)**2) / 2, badly scaled."""
    key = jax.random.split(jax.random.key(0), 4)
    params = {"w": jax.random.normal(key[0], (16, 8)), "b": jnp.zeros(8)}
    target = {"w": jax.random.normal(key[1], (16, 8)), "b": jnp.ones(8)}
    scale = {"w": 10.0 ** jax.random.uniform(key[2], (16, 8), minval=-2, maxval=1)}
    scale["b"] = jnp.ones(8)

    def grad(p: Any, i: jax.Array) -> Any:
        noise = jax.random.normal(jax.random.fold_in(key[3], i), (16, 8))
        g = jax.tree.map(
            lambda p, t, s: s * (p.astype(jnp.float32) - t), p, target, scale
        )
        return g | {"w": g["w"] + 0.1 * noise}

    return params, grad


@functools.cache
def reference() -> Any:
    params, grad = quadratic()
    return wide(run(adamw(), params, grad, 200, narrow=False)[0])


@pytest.mark.parametrize(
    ("master", "moments", "share"),
    [
        ("f32", "f32", 0.02),
        ("hilo", "hilo", 0.02),
        ("kahan", "hilo", 0.03),
        ("stochastic", "stochastic", 0.2),  # right in the mean, not in each weight
    ],
)
def test_two_hundred_steps_follow_float32(
    master: Any, moments: Any, share: float
) -> None:
    params, grad = quadratic()
    tx = optim.mixed_precision(adamw(), Policy(master=master, moments=moments))
    found, _ = run(tx, params, grad, 200)
    moved = np.abs(reference()["w"] - wide(params)["w"])
    gap = np.abs(wide(found)["w"] - reference()["w"])
    assert found["w"].dtype == jnp.bfloat16
    assert moved.mean() > 0.1
    assert gap.mean() < share * moved.mean()
    rtol = max(0.02, share / 2)
    np.testing.assert_allclose(wide(found)["b"], reference()["b"], rtol=rtol)


def small_updates(p: Any, i: jax.Array) -> Any:
    del i
    return jax.tree.map(jnp.ones_like, p)


@pytest.mark.parametrize("master", [*KEEPING, "nearest"])
def test_updates_below_half_a_spacing(master: Any) -> None:
    """200 steps of 1e-4 from 1.0: a bfloat16 below 1 has a spacing of 0.0039."""
    tx = optim.mixed_precision(optax.sgd(1e-4), Policy(master=master))
    params, _ = run(tx, {"w": jnp.ones(4096)}, small_updates, 200)
    mean = wide(params)["w"].mean()
    if master == "nearest":
        assert mean == 1.0  # every update is lost
    else:
        assert mean == pytest.approx(1 - 200e-4, abs=2e-3 if master != "f32" else 4e-3)


@pytest.mark.parametrize("master", [*KEEPING, "nearest"])
def test_weight_decay_is_kept(master: Any) -> None:
    """Decay alone, 1e-3 of the weight a step, is lost first of all."""
    tx = optim.mixed_precision(
        optax.chain(optax.add_decayed_weights(1.0), optax.sgd(1e-3)),
        Policy(master=master),
    )
    nothing = lambda p, i: jax.tree.map(jnp.zeros_like, p)  # noqa: E731
    start = jax.random.uniform(jax.random.key(0), (4096,), minval=0.5, maxval=1.9)
    params, _ = run(tx, {"w": start}, nothing, 200)
    shrunk = wide(params)["w"].mean() / wide(start).mean()
    wanted = 0.999**200
    if master == "nearest":
        assert shrunk == pytest.approx(1, abs=1e-3)
    else:
        assert shrunk == pytest.approx(wanted, rel=2e-3)


@pytest.mark.slow
def test_slow_second_moments_need_more_than_nearest() -> None:
    """v decays by 0.999 a step: below bfloat16's spacing."""
    tx = optax.scale_by_adam(b1=0.9, b2=0.999)

    def second_moment(storage: Any) -> float:
        compact = optim.compact_state(tx, storage)
        params = {"w": jnp.zeros(2048)}
        burst = lambda p, i: {"w": jnp.where(i < 20, 1.0, 0.0) * jnp.ones(2048)}  # noqa: E731
        _, state = run(compact, params, burst, 1000, narrow=False)
        nu = state.inner.nu["w"]
        nu = optim.join(nu) if isinstance(nu, optim.Pair) else nu
        return float(wide(nu).mean())

    exact = second_moment("f32")
    assert second_moment("hilo") == pytest.approx(exact, rel=1e-2)
    assert second_moment("stochastic") == pytest.approx(exact, rel=1e-2)
    assert second_moment("nearest") > 1.3 * exact


def small_model() -> tuple[Any, Any]:
    """Two layers that learn a fixed nonlinear map from random inputs."""
    keys = jax.random.split(jax.random.key(1), 4)
    teacher = jax.random.normal(keys[0], (8, 4))
    params = {
        "in": jax.random.normal(keys[1], (8, 32)) * 0.3,
        "bias": jnp.zeros(32),
        "out": jax.random.normal(keys[2], (32, 4)) * 0.2,
    }

    def loss(p: Any, i: jax.Array) -> jax.Array:
        x = jax.random.normal(jax.random.fold_in(keys[3], i), (64, 8))
        x = x.astype(p["in"].dtype)
        y = jnp.tanh(x @ p["in"] + p["bias"]) @ p["out"]
        return jnp.mean((y.astype(jnp.float32) - jnp.sin(x @ teacher)) ** 2)

    return params, loss


def losses(policy: Policy | None, steps: int = 200) -> np.ndarray:
    params, loss = small_model()
    tx: Any = adamw(1e-2, 1e-2)
    if policy is None:
        state = tx.init(params)
    else:
        tx = optim.mixed_precision(tx, policy)
        params, state = optim.init_narrow(tx, params)

    def step(carry: Any, i: jax.Array) -> Any:
        params, state = carry
        value, grads = optim.value_and_grad(loss, state)(params, i)
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    go = jax.jit(lambda c: jax.lax.scan(step, c, jnp.arange(steps))[1])
    return np.asarray(go((params, state)))


@functools.cache
def reference_losses() -> np.ndarray:
    return losses(None)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(master="kahan", loss_scale="dynamic"),
        Policy(master="stochastic", moments="stochastic", loss_scale=128.0),
    ],
    ids=["hilo", "kahan", "stochastic"],
)
@pytest.mark.slow
def test_a_small_model_trains_the_same(policy: Policy) -> None:
    found, wanted = losses(policy), reference_losses()
    assert wanted[-20:].mean() < 0.5 * wanted[0]
    assert np.corrcoef(found, wanted)[0, 1] > 0.995
    assert found[-20:].mean() == pytest.approx(wanted[-20:].mean(), rel=0.05)


ALL_NARROW = [
    Policy(),
    Policy(master="kahan", loss_scale="dynamic"),
    Policy(master="stochastic", moments="stochastic", loss_scale="dynamic"),
    Policy(master="nearest", moments="nearest"),
]


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(p, marks=[pytest.mark.slow] if p == Policy() else [])
        for p in ALL_NARROW
    ],
    ids=lambda p: p.master,
)
def test_nothing_of_parameter_size_is_float32(policy: Policy) -> None:
    params, loss = small_model()
    tx = optim.mixed_precision(adamw(), policy)
    params, state = optim.init_narrow(tx, params)
    grads = jax.grad(loss)(params, 0)
    updates, new = jax.jit(tx.update)(grads, state, params)
    for tree in (params, grads, state, new, updates):
        large = [x for x in jax.tree.leaves(tree) if jnp.ndim(x)]
        assert large
        assert {x.dtype.name for x in large} == {"bfloat16"}


@pytest.mark.parametrize("policy", ALL_NARROW, ids=lambda p: p.master)
def test_the_state_keeps_its_types_and_structure(policy: Policy) -> None:
    """What scan, donation and checkpoints need."""
    params, loss = small_model()
    tx = optim.mixed_precision(adamw(), policy)
    params, state = optim.init_narrow(tx, params)
    _, new = tx.update(jax.grad(loss)(params, 0), state, params)
    shape = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)  # noqa: E731
    assert shape(state) == shape(new)


def test_the_narrow_start_knows_what_rounding_lost() -> None:
    params = {"w": jax.random.normal(jax.random.key(0), (64,))}
    for method in ("hilo", "kahan", "f32"):
        tx = optim.mixed_precision(optax.sgd(0.0), Policy(master=method))
        narrow, state = optim.init_narrow(tx, params)
        kept = wide(state.kept["w"])
        value = kept if method == "f32" else wide(narrow["w"]) + kept
        bound = 0 if method == "f32" else 2.0**-16
        assert (np.abs(value - wide(params["w"])) <= bound * np.abs(value)).all()


@pytest.mark.slow
def test_runs_repeat_and_seeds_differ() -> None:
    params, grad = quadratic()

    def weights(seed: int) -> np.ndarray:
        policy = Policy(master="stochastic", moments="stochastic", seed=seed)
        return wide(run(optim.mixed_precision(adamw(), policy), params, grad, 20)[0])[
            "w"
        ]

    np.testing.assert_array_equal(weights(0), weights(0))
    assert (weights(0) != weights(1)).any()


def test_jit_and_steps_one_by_one_agree_with_scan() -> None:
    """Also with a stop between: the state on the host is all there is."""
    params, grad = quadratic()
    tx = optim.mixed_precision(adamw(), Policy(master="stochastic"))
    whole, _ = run(tx, params, grad, 6)
    narrow, state = optim.init_narrow(tx, params)

    @jax.jit
    def step(params: Any, state: Any, i: int) -> Any:
        grads = jax.tree.map(lambda g, p: g.astype(p.dtype), grad(params, i), params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for i in range(6):
        narrow, state = step(narrow, state, i)
        state = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), state)
    np.testing.assert_array_equal(wide(narrow)["w"], wide(whole)["w"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Policy(master="both"), "Policy: master must be one of f32, hilo"),  # pyright: ignore
        (lambda: Policy(moments="kahan"), "Policy: moments must be one of"),  # pyright: ignore
        (lambda: optim.master_weights(adamw(), "x"), "master_weights: method"),  # pyright: ignore
        (lambda: optim.compact_state(adamw(), "x"), "compact_state: storage"),  # pyright: ignore
    ],
)
def test_unknown_ways_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_weights_and_gradients_must_be_there_and_fit() -> None:
    tx = optim.master_weights(optax.sgd(1.0))
    params = {"w": jnp.zeros(3, jnp.bfloat16)}
    state = tx.init(params)
    with pytest.raises(InvalidArgument, match="needs the weights"):
        tx.update(params, state)
    with pytest.raises(InvalidArgument, match="found float16"):
        tx.update({"w": jnp.zeros(3, jnp.float16)}, state, params)


def test_kahan_keeps_what_the_step_itself_lost() -> None:
    """Sign changes: the step is no bf16 number, and the weight misses its target."""
    params = {"w": jnp.array([-0.45703125, 0.140625, 0.251953125], jnp.bfloat16)}
    update = jnp.array([1.4609375, -4.15625, -0.75390625], jnp.float32)  # bf16 numbers
    tx = optim.master_weights(optax.identity(), "kahan")
    steps, state = tx.update({"w": update}, tx.init(params), params)
    new: Any = optax.apply_updates(params, steps)
    total = new["w"].astype(jnp.float32) + state.kept["w"].astype(jnp.float32)
    wanted = params["w"].astype(jnp.float32) + update
    assert (new["w"].astype(jnp.float32) != wanted).all()
    np.testing.assert_array_equal(total, wanted)
