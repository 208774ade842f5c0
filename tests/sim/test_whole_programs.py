"""Compiled programs as a whole: the engines against each other and the stock CPU.

What the last bits of one command do to the bf16 roundings of the next shows only here.
The bounds of single commands say nothing about it (`vkore_jax.sim.contract`), so the
control is the specification itself under another schedule and with moved inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.artifacts import artifact
from tests.sim.conftest import Engine
from vkore_jax import lowering
from vkore_jax.chips import TINY
from vkore_jax.sim import fast, golden
from vkore_jax.sim.contract import (
    PROGRAM_FACTOR,
    PROGRAM_FLOOR,
    program_disagreement,
    program_distance,
)
from vkore_jax.verify import verify

VOCAB, WIDTH, HEADS, LENGTH, BATCH = 64, 32, 2, 16, 2


@dataclass(frozen=True)
class Whole:
    """A function and its arguments, with the device tolerance against the CPU.

    The CPU computes in f32 and the chip's matrix unit takes bf16 (2**-8), so results
    are compared in norm, relative to the largest element.
    """

    id: str
    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    relative: float = 2e-2


def norm(x: jax.Array) -> jax.Array:
    """Layer normalisation without parameters."""
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def decoder_loss(p: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
    """Next-token loss of a one-layer decoder."""
    x = p["embed"][tokens[:, :-1]]  # (B, T, D)
    b, t, _ = x.shape
    qkv = (norm(x) @ p["qkv"]).reshape(b, t, HEADS, -1)
    q, k, v = jnp.split(qkv, 3, -1)  # (B, T, H, d)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    x = x + mixed.reshape(b, t, -1) @ p["out"]
    x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
    logits = jax.nn.log_softmax(norm(x) @ p["head"])
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()


def train_step(p: dict[str, jax.Array], tokens: jax.Array) -> Any:
    """Loss and parameters after one step of clipped gradient descent."""
    loss, grads = jax.value_and_grad(decoder_loss)(p, tokens)
    squares = sum(jnp.sum(g * g) for g in jax.tree.leaves(grads))
    scale = jnp.minimum(1.0, jax.lax.rsqrt(squares))
    return loss, jax.tree.map(lambda w, g: w - 0.5 * scale * g, p, grads)


def _decoder(rng: np.random.Generator) -> tuple[Any, ...]:
    shapes = {
        "embed": (VOCAB, WIDTH),
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
        "head": (WIDTH, VOCAB),
    }
    p = {k: (0.1 * rng.standard_normal(s)).astype("f4") for k, s in shapes.items()}
    return p, rng.integers(0, VOCAB, (BATCH, LENGTH + 1)).astype(np.int32)


def image_step(w: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> Any:
    """Loss and gradients of a small convolutional classifier."""

    def loss(w: dict[str, jax.Array]) -> jax.Array:
        h = jax.lax.conv_general_dilated(
            x, w["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        h = jax.lax.reduce_window(
            jax.nn.relu(h), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
        out = jax.nn.log_softmax(h.reshape(h.shape[0], -1) @ w["head"])
        return -(out * jax.nn.one_hot(y, 5)).sum(-1).mean()

    return jax.value_and_grad(loss)(w)


def _images(rng: np.random.Generator) -> tuple[Any, ...]:
    w = {
        "conv": (0.2 * rng.standard_normal((3, 3, 2, 4))).astype("f4"),
        "head": (0.1 * rng.standard_normal((64, 5))).astype("f4"),
    }
    x = rng.standard_normal((3, 8, 8, 2)).astype("f4")
    return w, x, np.array([0, 3, 4], np.int32)


def recurrence(w: jax.Array, xs: jax.Array) -> Any:
    """Gradient through a scan."""

    def loss(w: jax.Array) -> jax.Array:
        def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = jnp.tanh(h @ w + x)
            return h, h.sum()

        last, sums = jax.lax.scan(cell, jnp.zeros((2, 6)), xs)
        return last.sum() + (sums**2).mean()

    return jax.value_and_grad(loss)(w)


def _sequences(rng: np.random.Generator) -> tuple[Any, ...]:
    w = (0.3 * rng.standard_normal((6, 6))).astype("f4")
    return w, rng.standard_normal((7, 2, 6)).astype("f4")


WHOLE = [
    Whole("decoder-train-step", train_step, _decoder),
    Whole("image-gradients", image_step, _images),
    Whole("scan-gradients", recurrence, _sequences),
]


@pytest.mark.parametrize("case", WHOLE, ids=lambda c: c.id)
def test_whole_program(engines: Mapping[str, Engine], case: Whole) -> None:
    arguments = case.arguments(np.random.default_rng(0))
    program = lowering.compile(artifact(case.function, *arguments), TINY)
    verify(program, TINY)
    inputs = [np.asarray(x) for x in jax.tree.leaves(arguments)]
    with jax.default_device(jax.devices("cpu")[0]):
        stock = jax.tree.leaves(jax.jit(case.function)(*arguments))
    first, *others = engines
    golden = engines[first](program.encoded, inputs)
    for i, (want, have) in enumerate(zip(stock, golden, strict=True)):
        reference = np.asarray(want)
        worst = np.abs(reference - have).max()
        assert worst <= case.relative * np.abs(reference).max(), f"result {i}"
    for name in others:
        found = engines[name](program.encoded, inputs)
        for i, (want, have) in enumerate(zip(golden, found, strict=True)):
            problem = program_disagreement(want, have)
            assert problem is None, f"{name}, result {i}: {problem}"


ROOMY = dataclasses.replace(TINY, scratchpad_bytes=1 << 22, accumulator_bytes=1 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE, ids=lambda c: c.id)
def test_engines_differ_as_the_specification_does_from_itself(case: Whole) -> None:
    apart, control = [], [PROGRAM_FLOOR]
    for seed in range(3):
        arguments = case.arguments(np.random.default_rng(seed))
        stablehlo = artifact(case.function, *arguments)
        program, other = (lowering.compile(stablehlo, c).encoded for c in (TINY, ROOMY))
        inputs = [np.asarray(x) for x in jax.tree.leaves(arguments)]
        moved = [
            x if x.dtype.kind == "i" else np.nextafter(x, np.float32(np.inf))
            for x in inputs
        ]
        want = golden.run(program, inputs)
        apart.append(program_distance(want, fast.run(program, inputs)))
        control.append(program_distance(want, golden.run(other, inputs, chip=ROOMY)))
        control.append(program_distance(want, golden.run(program, moved)))
    assert max(apart) <= PROGRAM_FACTOR * max(control)
