"""Sharded weights take the same steps: random bits do not know where they are drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from vkore_jax import optim

policy = optim.Policy(master="stochastic", moments="stochastic", loss_scale="dynamic")
tx = optim.mixed_precision(optax.adamw(1e-2, weight_decay=0.1), policy)
start = {"w": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)}

def train(params):
    params, state = optim.init_narrow(tx, params)
    for _ in range(3):
        grads = jax.tree.map(lambda p: (p - 1) * 256, params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params, state

mesh = Mesh(np.array(jax.devices()), ("x",))
cut = jax.device_put(start, NamedSharding(mesh, P("x")))
one, many = jax.jit(train)(start), jax.jit(train)(cut)
assert len(many[0]["w"].sharding.device_set) == 4
for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many)):
    np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
print("equal")
"""


@pytest.mark.slow
def test_sharded_weights_take_the_same_steps() -> None:
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "equal"
