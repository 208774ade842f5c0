"""`accelerate` leaves alone what only looks like something that it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.accelerate.cases import normal
from vkore_jax import primitives
from vkore_jax.errors import UnsupportedOp
from vkore_jax.flax import dot_general
from vkore_jax.rewrite import accelerate

X, WIDE = normal(4, 8), normal(2, 1024)
HALVES, TABLE = normal(8, 2, 8), normal(8, 1, 4)
HEADS = normal(1, 8, 2, 4)
WEIGHT = normal(8, 16)
IDS = np.array([1, 3, 15, 0], "i4")


@jax.custom_jvp
def gelu(x):
    """A user's function with the name of JAX's, and its own derivative."""
    return jax.nn.gelu(x)


gelu.defjvp(lambda p, t: (gelu(p[0]), 3 * t[0]))


def not_rope(x, t):
    left, right = x[..., 2:6], x[..., 4:]
    return jnp.concatenate([left * t - right * t, right * t + left * t], -1)


def every_other(x, t):
    left, right = x[..., ::2], x[..., 4:]
    return jnp.concatenate([left * t - right * t, right * t + left * t], -1)


def two_precisions(q):
    s = jnp.einsum("bthd,bshd->bhts", q, q, precision="highest")
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s), q)


def filled_loss(x, w, ids):
    z = jax.nn.log_softmax(x @ w)
    return -jnp.take_along_axis(z, ids[:, None], -1, mode="fill", fill_value=0.0)


def float_targets(x, w, ids):
    hot = (ids[:, None].astype("f4") == jnp.arange(16.0)).astype("f4")
    return -(hot * jax.nn.log_softmax(x @ w)).sum(-1)


def attend(mask: Callable[..., Any]) -> Callable[..., Any]:
    def function(q, *args):
        s = jnp.einsum("bthd,bshd->bhts", q, q)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(mask(s, *args)), q)

    return function


def half_penalty(s):
    return s + (1 - 0.5 * jnp.asarray(np.tri(8, dtype="f4"))) * -1e5


LEFT: list[tuple[str, Callable[..., Any], tuple[Any, ...], str]] = [
    (
        "variance over n - 1",
        lambda x: (
            (x - x.mean(-1, keepdims=True))
            / jnp.sqrt(x.var(-1, ddof=1, keepdims=True) + 1e-5)
        ),
        (WIDE,),
        "layer_norm",
    ),
    (
        "mean square over n - 1",
        lambda x: x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) / 1023 + 1e-5),
        (WIDE,),
        "rms_norm",
    ),
    (
        "norm over the other axis",
        lambda x: x * jax.lax.rsqrt((x * x).mean(-2, keepdims=True) + 1e-5),
        (X,),
        "rms_norm",
    ),
    (
        "another cubic",
        lambda x: 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.04475 * x**3))),
        (X,),
        "gelu",
    ),
    ("quarters, not halves", not_rope, (HALVES, TABLE), "rope"),
    ("a number for wrong targets", filled_loss, (X, WEIGHT, IDS), "cross_entropy"),
    ("targets that are no integers", float_targets, (X, WEIGHT, IDS), "cross_entropy"),
    (
        "one-hot of no integers",
        lambda ids, w: (ids[:, None] == jnp.arange(8.0)).astype("f4") @ w,
        (np.array([0.5, 1.0], "f4"), WEIGHT),
        "embedding",
    ),
    ("every other channel", every_other, (HALVES, TABLE), "rope"),
    ("products of two precisions", two_precisions, (HEADS,), "atten"),
    ("a visible score", attend(lambda s: jnp.where(s > 0, s, -5.0)), (HEADS,), "atten"),
]


@pytest.mark.parametrize("case", LEFT, ids=lambda c: c[0])
def test_left(case: tuple[str, Any, Any, str]) -> None:
    _, function, args, rule = case
    counts = accelerate(function).report(*args).counts()
    assert not [n for n in counts if rule in n], counts


def test_derivative_of_a_function_with_a_known_name() -> None:
    """Its body may use a primitive, its derivative is its author's."""
    with jax.default_device(jax.devices("cpu")[0]):
        slope = jax.jit(jax.grad(accelerate(lambda x: gelu(x).sum())))(X)
    np.testing.assert_array_equal(slope, np.full_like(X, 3))


FLAGS = np.random.default_rng(0).integers(1, 4, (8, 8), "i4")
MASKS: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("one bit", lambda s, m: jnp.where((m & 2) != 0, s, -1e9), (FLAGS,)),
    ("not of bits", lambda s, m: jnp.where(~(m & 1) != 0, s, -1e9), (FLAGS,)),
    (
        "cut to integers",
        lambda s, m: jnp.where(m.astype("i4") != 0, s, -1e9),
        (FLAGS.astype("f4") / 2,),
    ),
    (
        "half a position",
        lambda s: jnp.where(jnp.arange(8.0)[:, None] + 0.5 > jnp.arange(8.0), s, -1e9),
        (),
    ),
    (
        "below zero, unsigned",
        lambda s: jnp.where(
            (jnp.arange(8, dtype="u4")[:, None] - np.uint32(1))
            >= jnp.arange(8, dtype="u4"),
            s,
            -1e9,
        ),
        (),
    ),
    (
        "both below zero, unsigned",  # causal, if they were not
        lambda s: jnp.where(
            (jnp.arange(8, dtype="u4")[:, None] - np.uint32(3))
            >= jnp.arange(8, dtype="u4") - np.uint32(3),
            s,
            -1e9,
        ),
        (),
    ),
]


def test_masks_of_numbers() -> None:
    """Attention comes in, and sees what the function's query sees."""

    @jax.jit
    def both() -> list[Any]:
        functions = [(attend(f), args) for _, f, args in MASKS]
        return [(accelerate(f)(HEADS, *a), f(HEADS, *a)) for f, a in functions]

    with jax.default_device(jax.devices("cpu")[0]):
        found = both()
    for (name, _, _), (ours, plain) in zip(MASKS, found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_targets_outside_of_the_vocabulary(mode: Any) -> None:
    """Cross-entropy comes in, and takes the row that the function takes, or none."""
    ids = np.array([1, 99, 15, 0], "i4")

    def loss(x: Any, w: Any) -> Any:
        z = jax.nn.log_softmax(x @ w)
        return -jnp.take_along_axis(z, ids[:, None], -1, mode=mode)[:, 0]

    fast = accelerate(loss)
    assert any("cross_entropy" in n for n in fast.report(X, WEIGHT).counts())
    with jax.default_device(jax.devices("cpu")[0]):
        ours, plain = jax.jit(lambda x, w: (fast(x, w), loss(x, w)))(X, WEIGHT)
    assert np.isnan(plain[1]) == (mode == "fill")
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-5)


def test_narrow_ids() -> None:
    """Ids of 8 bits into a larger vocabulary: each row once."""
    table, x = normal(300, 4), normal(3, 4)
    ids = np.array([0, 7, 255], "u1")

    @jax.jit
    def both() -> list[Any]:
        def total(ids: Any) -> Any:
            def loss(t: Any) -> Any:
                rows = primitives.embedding(t, ids)
                return primitives.softmax_cross_entropy(x, t, ids).sum() + rows.sum()

            return jax.value_and_grad(loss)(table)

        return [total(ids), total(ids.astype("i4"))]

    with jax.default_device(jax.devices("cpu")[0]):
        narrow, wide = both()
    np.testing.assert_array_equal(narrow[0], wide[0])
    np.testing.assert_array_equal(narrow[1], wide[1])


def test_explicit_shardings_stay() -> None:
    """The primitives' types carry none, so nothing may come in."""
    mesh = jax.sharding.AbstractMesh(
        (2,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,)
    )
    given = jax.sharding.NamedSharding(mesh, jax.P("x", None))
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32, sharding=given)
    w = jax.ShapeDtypeStruct((8, 8), jnp.float32)

    with jax.sharding.use_abstract_mesh(mesh):
        report = accelerate(lambda x, w: x @ w).report(x, w)
    assert not report.counts()
    assert "explicit sharding" in str(report)


@pytest.mark.parametrize("shapes", [((0, 4), (4, 3)), ((2, 0), (0, 3))])
def test_empty_operands_of_the_hook(shapes: Any) -> None:
    x, w = (jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
    numbers = (((1,), (0,)), ((), ()))
    found = jax.eval_shape(lambda x, w: dot_general(x, w, numbers), x, w)
    assert found.shape == (x.shape[0], 3)


def test_second_derivatives_say_so() -> None:
    fast = accelerate(lambda x, w: jnp.sin(x @ w).sum())

    def size(x: Any, w: Any) -> Any:
        return (jax.grad(fast)(x, w) ** 2).sum()

    x, w = normal(3, 4), normal(4, 4)
    with pytest.raises(UnsupportedOp, match="second derivatives"):
        jax.eval_shape(jax.grad(size), x, w)
