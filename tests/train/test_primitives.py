"""The decoder on the primitives: the losses and gradients of the plain one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.config import ModelConfig, TrainConfig
from train.model import init_params
from train.step import make_loss

CONFIG = TrainConfig(
    model=ModelConfig(
        vocab_size=50, context=12, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2,
        d_ff=24, dropout=0.1,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["accelerate", pytest.param("explicit", marks=pytest.mark.slow)]
)
def test_losses_are_those_of_the_plain_decoder(kind: str) -> None:
    other = dataclasses.replace(CONFIG, primitives=kind)
    batch = np.random.default_rng(0).integers(0, 50, (2, 13)).astype(np.int32)
    key = jax.random.key(1)
    losses = [jax.value_and_grad(make_loss(c)) for c in (CONFIG, other)]
    with jax.default_device(jax.devices("cpu")[0]):
        params = init_params(CONFIG.model, jax.random.key(0))
        both = jax.jit(lambda *a: [loss(*a) for loss in losses])
        (wanted, grads), (found, ours) = both(params, batch, key)
    assert abs(found - wanted) < 1e-5
    for f, w in zip(jax.tree.leaves(ours), jax.tree.leaves(grads), strict=True):
        np.testing.assert_allclose(f, w, atol=1e-5)


@pytest.mark.parametrize("kind", ["accelerate", "explicit"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_part_is_a_kernel(kind: str, dtype: str) -> None:
    config = dataclasses.replace(CONFIG, primitives=kind)
    params = jax.eval_shape(lambda: init_params(CONFIG.model, jax.random.key(0)))
    params = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, dtype), params)
    batch = jax.ShapeDtypeStruct((2, 13), jnp.int32)
    text = jax.jit(make_loss(config)).lower(params, batch).as_text()
    # Each name stands once for a signature; unreplaced products would be outside.
    for name in ("linear", "attention", "rms_norm", "rope", "swiglu", "embedding"):
        assert f'composite "vkore.{name}"' in text, name
    assert 'composite "vkore.softmax_cross_entropy"' in text
