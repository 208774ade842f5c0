"""Flax's hooks and layers: its parameters, its results, its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import vkore_jax.flax as vf
from tests.accelerate.cases import IDS, X, normal
from vkore_jax.errors import UnsupportedOp

MASK = np.tri(5, dtype=bool)[None, None]

LINEN: list[tuple[str, dict[str, Any], tuple[Any, ...], str]] = [
    ("Dense", {"features": 3}, (X,), "linear"),
    ("DenseGeneral", {"features": (2, 3)}, (X,), "linear"),
    ("LayerNorm", {}, (X,), "layer_norm"),
    ("RMSNorm", {"epsilon": 1e-3}, (X,), "rms_norm"),
    ("Embed", {"num_embeddings": 11, "features": 8}, (IDS,), "embedding"),
    ("MultiHeadDotProductAttention", {"num_heads": 2, "deterministic": True},
     (X, X, X), "attention"),
]  # fmt: skip
NNX: list[tuple[str, tuple[Any, ...], dict[str, Any], Any, str]] = [
    ("Linear", (8, 3), {}, X, "linear"),
    ("LinearGeneral", (8, (2, 3)), {}, X, "linear"),
    ("LayerNorm", (8,), {}, X, "layer_norm"),
    ("RMSNorm", (8,), {}, X, "rms_norm"),
    ("Embed", (11, 8), {}, IDS, "embedding"),
    ("MultiHeadAttention", (2, 8), {"decode": False}, X, "attention"),
]


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Any:
    with (
        jax.default_device(jax.devices("cpu")[0]),
        jax.default_matmul_precision("highest"),
    ):
        yield


def check(ours: Callable[..., Any], plain: Callable[..., Any], *args: Any) -> str:
    """Compare values and gradients of two functions; return ours, lowered."""

    def grad(function: Callable[..., Any]) -> Callable[..., Any]:
        def loss(*a: Any) -> Any:
            return jnp.sin(0.1 * function(*a)).sum()

        return jax.value_and_grad(loss, allow_int=True)

    lowered = jax.jit(lambda *a: [grad(f)(*a) for f in (ours, plain)]).lower(*args)
    found, wanted = lowered.compile({"xla_backend_optimization_level": "0"})(*args)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    pairs = [(f, w) for f, w in pairs if w.dtype == jnp.float32]
    # Of the largest of all: a gradient that is zero is a difference of large numbers.
    scale = max(1.0, *(float(np.abs(w).max()) for _, w in pairs))
    for f, w in pairs:
        np.testing.assert_allclose(f / scale, w / scale, rtol=0, atol=1e-5)
    return lowered.as_text()


@pytest.mark.parametrize("row", LINEN, ids=[r[0] for r in LINEN])
def test_linen(row: tuple[str, dict[str, Any], tuple[Any, ...], str]) -> None:
    name, options, args, composite = row
    ours = getattr(vf.linen, name)(**options)
    plain = getattr(nn, name)(**options)

    def init(layer: nn.Module) -> Any:
        return jax.eval_shape(lambda: layer.init(jax.random.key(0), *args))

    assert init(ours) == init(plain)
    params = jax.tree.map(lambda s: normal(*s.shape), init(plain))
    text = check(
        lambda p: ours.apply(p, *args), lambda p: plain.apply(p, *args), params
    )
    assert f"vkore.{composite}" in text


class Model(nn.Module):
    """Names of layers are those of Flax, so a checkpoint loads."""

    layers: Any

    @nn.compact
    def __call__(self, ids: Any) -> Any:
        table = self.layers.Embed(11, 8)
        x = self.layers.LayerNorm()(table(ids))
        x = x + self.layers.MultiHeadDotProductAttention(2)(x)
        return table.attend(self.layers.Dense(8)(x))


def test_linen_model() -> None:
    ours, plain = Model(vf.linen), Model(nn)
    shapes = jax.eval_shape(lambda: ours.init(jax.random.key(0), IDS))
    assert shapes == jax.eval_shape(lambda: plain.init(jax.random.key(0), IDS))
    params = jax.tree.map(lambda s: normal(*s.shape), shapes)
    check(lambda p: ours.apply(p, IDS), lambda p: plain.apply(p, IDS), params)


@pytest.mark.parametrize("row", NNX, ids=[r[0] for r in NNX])
def test_nnx(row: tuple[str, tuple[Any, ...], dict[str, Any], Any, str]) -> None:
    name, args, options, x, composite = row

    def make(module: Any) -> Any:
        def create() -> Any:
            return getattr(module, name)(*args, **options, rngs=nnx.Rngs(0))

        return nnx.split(nnx.eval_shape(create))

    (graph, state), (plain_graph, plain_state) = make(vf.nnx), make(nnx)
    kinds = [
        jax.tree.map(lambda a: (a.shape, a.dtype), nnx.to_pure_dict(s))
        for s in (state, plain_state)
    ]
    assert kinds[0] == kinds[1]
    values = jax.tree.map(lambda a: normal(*a.shape), plain_state)
    text = check(
        lambda s: nnx.merge(graph, s)(x), lambda s: nnx.merge(plain_graph, s)(x), values
    )
    assert f"vkore.{composite}" in text


HEADS = [normal(2, 5, 2, 4) for _ in range(3)]
BIAS = normal(1, 2, 5, 5)
KEY = jax.eval_shape(lambda: jax.random.key(0))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, MASK, np.ones((2, 1, 1, 5), "f4")])
def test_attention_fn(mask: Any, causal: bool) -> None:
    seen = MASK if causal else np.ones_like(MASK)
    whole = seen if mask is None else (mask != 0) & seen
    text = check(
        lambda *a: vf.attention_fn(*a, mask=mask, is_causal=causal),
        lambda *a: nn.dot_product_attention(*a, mask=whole),
        *HEADS,
    )
    assert "vkore.attention" in text
    strict = jax.eval_shape(
        lambda *a: vf.strict_attention_fn(*a, mask=mask, is_causal=causal), *HEADS
    )
    assert strict.shape == HEADS[0].shape


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("bias", {"bias": BIAS}, "something else"),
    ("dropout", {"dropout_rate": 0.5}, "dropout"),
]


@pytest.mark.parametrize("row", REFUSED, ids=[r[0] for r in REFUSED])
def test_what_attention_does_not_cover(row: tuple[str, dict[str, Any], str]) -> None:
    _, options, reason = row

    def call(function: Any) -> Any:
        def run(*a: Any) -> Any:
            return function(*a, dropout_rng=jax.random.key(1), **options)

        return run

    text = check(call(vf.attention_fn), call(nn.dot_product_attention), *HEADS)
    assert "vkore.attention" not in text
    with pytest.raises(UnsupportedOp, match=reason):
        jax.eval_shape(call(vf.strict_attention_fn), *HEADS)


def test_dot_general_elsewhere() -> None:
    """Batch axes and wider results are those of JAX."""
    x, y = normal(2, 3, 4), normal(2, 4, 5)
    batched = (((2,), (1,)), ((0,), (0,)))
    np.testing.assert_allclose(
        vf.dot_general(x, y, batched), jax.lax.dot_general(x, y, batched), atol=1e-6
    )
    low = jnp.asarray(x[0], jnp.bfloat16), jnp.asarray(y[0], jnp.bfloat16)
    plain = (((1,), (0,)), ((), ()))
    wide = vf.dot_general(*low, plain, preferred_element_type=jnp.float32)
    assert wide.dtype == jnp.float32
