"""What the search for random programs found, each in its smallest form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.jax import harness
from tests.lowering.artifacts import artifact
from vkore_jax import lowering
from vkore_jax.chips import TINY
from vkore_jax.isa import Conv
from vkore_jax.sim import golden

X = np.arange(15, dtype=np.int32).reshape(3, 5)
AT = np.int32(8)


def repeated_batch(x: jax.Array, i: jax.Array) -> jax.Array:
    """Both operands of a batched product repeat along the batch axis."""
    a, b = (jnp.broadcast_to(x[n : n + 1], (4, 5)) for n in (0, 1))
    return jnp.einsum("bi,bj->bij", a, b)


def update_reads_target(x: jax.Array, i: jax.Array) -> jax.Array:
    """XLA:CPU writes over what the update still has to read."""
    flat = x.reshape(15)
    return lax.dynamic_update_slice(flat, flat[:10] * 3, [i])


def update_in_loop(x: jax.Array, i: jax.Array) -> jax.Array:
    return lax.fori_loop(
        0, 2, lambda j, c: update_reads_target(c, i - j).reshape(3, 5), x
    )


def update_turned(x: jax.Array, i: jax.Array) -> jax.Array:
    column = x.reshape(3, 5, 1).transpose(0, 2, 1)
    return lax.dynamic_update_slice(column, column[:2], [i, i, i])


FOUND: list[Callable[..., Any]] = [
    repeated_batch,
    update_reads_target,
    update_in_loop,
    update_turned,
]


@pytest.mark.parametrize("f", FOUND, ids=lambda f: f.__name__)
def test_found(f: Callable[..., Any]) -> None:
    """Both engines agree with the CPU, its fusion off: see `harness.UNFUSED`."""
    inputs = [np.asarray(X), np.asarray(AT)]
    want = jax.tree.leaves(harness.on_cpu(f, inputs, harness.UNFUSED))
    on_chip = jax.jit(f)(*(jax.device_put(v, harness.VKORE) for v in (X, AT)))
    program = lowering.compile(artifact(f, X, AT, keep_unused=True), TINY)
    for have in (jax.tree.leaves(on_chip), golden.run(program.encoded, inputs)):
        for h, w in zip(have, want, strict=True):
            np.testing.assert_array_equal(np.asarray(h), w)


def test_columns_of_a_product_inside_the_group() -> None:
    """The gradient repeats a product's columns along an axis inside of them."""

    def f(v: jax.Array) -> jax.Array:
        rows = jnp.cos(v).sum((0, 3))
        return jnp.tanh(jnp.einsum("ij,ij->i", rows, rows, precision="highest")).sum()

    v = np.random.default_rng(0).standard_normal((2, 1, 5, 5)).astype(np.float32)
    want = harness.on_cpu(jax.grad(f), [v])
    found = np.asarray(jax.jit(jax.grad(f))(jax.device_put(v, harness.VKORE)))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_image_larger_than_the_scratchpad(stride: int) -> None:
    """A convolution and its gradients on `tiny`, in blocks of positions."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest",
        )  # fmt: skip

    def grads(x: jax.Array, w: jax.Array) -> Any:
        return f(x, w), jax.grad(lambda *a: jnp.sin(f(*a)).sum(), (0, 1))(x, w)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 30, 26, 6)).astype(np.float32)
    w = (rng.standard_normal((3, 3, 6, 5)) / 8).astype(np.float32)
    program = lowering.compile(artifact(grads, x, w), TINY)
    blocks = [c.cmd.block_out for c in program.block if isinstance(c.cmd, Conv)]
    assert len(blocks) == 3
    assert blocks[0] < (30 // stride, 26 // stride)
    want = jax.tree.leaves(harness.on_cpu(grads, [x, w]))
    for h, v in zip(golden.run(program.encoded, [x, w]), want, strict=True):
        np.testing.assert_allclose(h, v, rtol=1e-4, atol=1e-4)


def test_large_reductions_as_numpy() -> None:
    """A NaN survives, algebra overflows, and neighbours of a sum are not rounded."""

    def f(x: jax.Array, y: jax.Array) -> Any:
        return (
            jnp.max(jnp.abs(x)), jnp.argmax(x, 1)[3], jnp.argmin(x, 1)[3],
            jnp.max(x.astype(jnp.bfloat16)).astype(jnp.float32),
            jnp.maximum(x, 0).sum(1)[3], jnp.log(jnp.exp(y)), jnp.sqrt((y * 1e20) ** 2),
            (x + 2.7).sum(0).astype(jnp.int8)[0], jnp.log(y * 1e-42),
        )  # fmt: skip

    x = np.zeros((64, 128), np.float32)
    x[3, 5] = np.nan
    found = jax.jit(f)(*(jax.device_put(v, harness.VKORE) for v in (x, np.float32(89))))
    want = [np.nan, 5, 5, np.nan, np.nan, np.inf, np.inf, 127, -np.inf]
    np.testing.assert_array_equal(np.array([float(v) for v in found]), want)
