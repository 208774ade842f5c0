"""Compiling nested control flow takes work in proportion to the program.

Work is counted, not timed: Python function calls of the compiler, and operators that
the importer lowers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from vkore_jax import lowering
from vkore_jax.chips import get_chip
from vkore_jax.lowering import importer

MOST = 20_000
"""Operators after which a compilation is stopped: its time would be exponential."""
Body = Callable[[Any], Any]


def once(inner: Body, x: Any) -> Any:
    return lax.fori_loop(0, 1, lambda _, x: inner(x), x)


def counter_behind_calls(inner: Body, x: Any) -> Any:
    @jax.jit
    def advance(i: Any) -> Any:
        return jax.jit(lambda i: i + 1)(i)

    def body(state: Any) -> Any:
        return advance(state[0]), inner(state[1])

    return lax.while_loop(lambda s: s[0] < 1, body, (0, x))[1]


def counter_of_a_loop(inner: Body, x: Any) -> Any:
    """The counter cannot be followed: the loop stays one, of one trip or unknown."""

    def body(state: Any) -> Any:
        i, x = state
        return lax.fori_loop(0, 1, lambda _, i: i + 1, i), inner(x)

    return lax.while_loop(lambda s: s[0] < 1, body, (0, x))[1]


KINDS: dict[str, Callable[[Body, Any], Any]] = {
    "once": once,
    "never": lambda f, x: lax.fori_loop(2, 2, lambda _, x: f(x), x) + 1,
    "twice": lambda inner, x: lax.fori_loop(0, 2, lambda _, x: inner(x), x),
    "scan": lambda f, x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    "counter_behind_calls": counter_behind_calls,
    "counter_of_a_loop": counter_of_a_loop,
    "while": lambda inner, x: lax.while_loop(lambda s: s.sum() < 1, inner, x),
    "test": lambda f, x: lax.while_loop(lambda s: f(s).sum() < -9, lambda s: s, x),
    "cond": lambda inner, x: lax.cond(x[0] > 0, inner, lambda x: x, x),
    "known_cond": lambda f, x: once(lambda x: lax.cond(True, f, f, x), x),
    "mixed": lambda f, x: lax.cond(x[0] > 9, lambda x: x, lambda x: once(f, x), x),
    "jit": lambda inner, x: jax.jit(inner)(x),
    "composite": lambda f, x: lax.composite(f, "test.unknown")(x),
}


def nested(kind: str, depth: int) -> Body:
    def level(x: Any, left: int = depth) -> Any:
        if not left:
            return jnp.sin(x) + 1
        return KINDS[kind](lambda x: level(x, left - 1), x)

    return level


def artifact(kind: str, depth: int) -> bytes:
    """Return the module; JAX's own recursion needs more room than the compiler's."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        traced = jax.jit(nested(kind, depth)).trace(jnp.zeros(3))
        return traced.lower(lowering_platforms=("vkore",)).as_text().encode()
    finally:
        sys.setrecursionlimit(limit)


def work(kind: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return operators lowered and Python calls made in compiling a nest."""
    module = artifact(kind, depth)
    counts = {"ops": 0, "call": 0}
    apply = importer._Walk.apply

    def counted(*args: Any) -> None:
        counts["ops"] += 1
        if counts["ops"] > MOST:
            pytest.fail("more operators than any linear walk lowers")
        apply(*args)

    def event(_: Any, what: str, __: Any) -> None:
        counts["call"] += what == "call"

    monkeypatch.setattr(importer._Walk, "apply", counted)
    before = sys.getprofile()
    sys.setprofile(event)
    try:
        lowering.compile(module, get_chip("vk1"))
    finally:
        sys.setprofile(before)
        monkeypatch.undo()
    return counts["ops"], counts["call"]


QUICK = ("once", "counter_of_a_loop", "test", "mixed")
DEPTHS = [pytest.param(k, 8, id=f"{k}-8") for k in QUICK] + [
    pytest.param(k, 32, id=f"{k}-32", marks=pytest.mark.slow) for k in KINDS
]


@pytest.mark.parametrize(("kind", "depth"), DEPTHS)
def test_work_is_linear_in_the_depth(
    kind: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, whole = (work(kind, d, monkeypatch) for d in (depth, 2 * depth))
    assert whole[0] <= 2.1 * half[0] + 10
    assert whole[1] <= 2.8 * half[1] + 1000


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if k in QUICK else pytest.mark.slow) for k in KINDS],
)
def test_nests_compute_what_python_does(kind: str) -> None:
    x = np.full(3, 0.5, np.float32)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = jax.jit(nested(kind, 4))(x)
    np.testing.assert_allclose(jax.jit(nested(kind, 4))(x), wanted, rtol=1e-6)
