"""First light in a minute: the checks that every supported Python and JAX must pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def chip() -> Any:
    try:
        return jax.devices("vkore")[0]
    except RuntimeError as e:
        pytest.fail(f"the vkore backend does not start: {e}")


def test_jit_value_and_grad(chip: Any) -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 8), dtype=np.float32)
    x = rng.standard_normal((4, 16), dtype=np.float32)
    step = jax.jit(jax.value_and_grad(loss))
    with jax.default_matmul_precision("highest"):
        here = step(*jax.device_put((w, x), chip))
        there = step(*jax.device_put((w, x), jax.devices("cpu")[0]))
    assert here[0].devices() == {chip}
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def test_scan_and_random_bits(chip: Any) -> None:
    def draw(key: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            carry, sub = jax.random.split(carry)
            return carry, jax.random.bits(sub, (5,))

        return jax.lax.scan(body, key, None, length=3)[1]

    bits = [
        np.asarray(jax.jit(draw)(jax.device_put(jax.random.key(7), device)))
        for device in (chip, jax.devices("cpu")[0])
    ]
    np.testing.assert_array_equal(bits[0], bits[1])


def test_ledger_counts_no_host_compute(chip: Any) -> None:
    import vkore_jax

    jax.jit(lambda x: x * 2 + 1)(jax.device_put(np.ones(8, np.float32), chip))
    found = vkore_jax.ledger().to_dict()
    assert found["host_compute"] == 0
    assert sum(found["commands"].values()) > 0


def test_training_program(tmp_path: Path) -> None:
    pytest.importorskip("flax")
    small = {
        "steps": 3,
        "batch_size": 2,
        "eval_batches": 1,
        "sample_tokens": 4,
        "warmup_steps": 1,
        "model.context": 16,
        "model.d_model": 32,
        "model.n_layers": 1,
        "model.d_ff": 64,
        "model.vocab_size": 300,
        "data.stories": 200,
        "data.tokenizer_stories": 200,
        "data.cache": tmp_path / "cache",
        "out": tmp_path / "run",
    }
    options = [f"--{key}={value}" for key, value in small.items()]
    done = subprocess.run(
        [sys.executable, "-m", "train", "smoke", *options],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "vkore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["backend"] == "vkore"
