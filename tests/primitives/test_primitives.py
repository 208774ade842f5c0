"""The primitives against plain formulas: values, VJPs, transformations, composites.

Runs on the default backend; the formulas run on the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.primitives.cases import CASES, PRINCIPAL, Case, normal
from vkore_jax import primitives as P
from vkore_jax.errors import InvalidArgument

each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
one_each = pytest.mark.parametrize("case", PRINCIPAL, ids=lambda c: c.name)


@pytest.fixture(autouse=True)
def _exact_products() -> Any:
    with jax.default_matmul_precision("highest"):
        yield


def floats(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(i for i, a in enumerate(args) if jnp.issubdtype(a.dtype, jnp.floating))


def cast(args: Sequence[Any], dtype: Any) -> list[Any]:
    which = floats(args)
    return [a.astype(dtype) if i in which else a for i, a in enumerate(args)]


def value_and_vjp(function: Any, which: tuple[int, ...]) -> Any:
    """Return (args, cotangent) -> (value, cotangents of the floating arguments)."""

    def run(args: Sequence[Any], ct: Any) -> Any:
        def partial(*some: Any) -> Any:
            full = list(args)
            for i, a in zip(which, some, strict=True):
                full[i] = a
            return function(*full)

        y, vjp = jax.vjp(partial, *(args[i] for i in which))
        return y, vjp(ct.astype(y.dtype))

    return run


@functools.cache
def formula(case: Case) -> Any:
    """Return the plain formula's (args, cotangent) -> (value, VJP), on the CPU."""
    function = jax.jit(value_and_vjp(case.plain, floats(case.args)))
    compiled: list[Any] = []

    def run(args: Sequence[Any], ct: Any) -> Any:
        with jax.default_device(jax.devices("cpu")[0]):
            host = jax.tree.map(np.asarray, (cast(args, np.float32), ct))
            if not compiled:  # run a few times only: not worth optimising
                quick: Any = {"xla_backend_optimization_level": "0"}
                compiled.append(function.lower(*host).compile(quick))
            return jax.tree.map(np.asarray, compiled[0](*host))

    return run


def assert_close(found: Any, wanted: Any, bound: float) -> None:
    """Compare to `bound` of the largest value."""
    for f, w in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        f, w = np.asarray(f, "f4"), np.asarray(w, "f4")
        assert f.shape == w.shape
        scale = max(1e-3, float(np.abs(w).max(initial=0)))
        np.testing.assert_allclose(f / scale, w / scale, rtol=0, atol=bound)


BOUND = {"float32": 3e-6, "bfloat16": 2e-2, "float16": 3e-3}


@one_each
def test_types(case: Case) -> None:
    which = floats(case.args)
    shape = jax.eval_shape(case.plain, *case.args)
    ct = normal(*shape.shape)
    types = ("bfloat16", "float16")  # float32 is in every other test
    sets = [cast(case.args, dtype) for dtype in types]
    ours = value_and_vjp(case.ours, which)
    found = jax.jit(lambda sets: [ours(args, ct) for args in sets])(sets)
    for dtype, args, (y, grads) in zip(types, sets, found, strict=True):
        is_loss = "softmax_cross_entropy" in case.composites
        assert y.shape == shape.shape
        assert y.dtype == ("float32" if is_loss else dtype)
        assert all(g.dtype == dtype for g in grads)
        assert_close((y, grads), formula(case)(args, ct), BOUND[dtype])


@one_each
def test_finite_differences(case: Case) -> None:
    """Of the references, on the CPU; the chip is compared with the formulas."""
    which, step = floats(case.args), 1e-2
    ours = value_and_vjp(case.ours, which)
    rng = np.random.default_rng(1)

    def along(args: Sequence[Any], step: float) -> list[Any]:
        moved = zip(which, tangents, strict=True)
        new = {i: args[i] + step * t for i, t in moved}
        return [new.get(i, a) for i, a in enumerate(args)]

    def run(args: Sequence[Any], ct: Any) -> Any:
        (ahead, _), (behind, _) = (ours(along(args, s), ct) for s in (step, -step))
        return (ahead - behind) / (2 * step), ours(args, ct)[1]

    tangents = [rng.standard_normal(case.args[i].shape).astype("f4") for i in which]
    shape = jax.eval_shape(case.plain, *case.args).shape
    ct = rng.standard_normal(shape).astype("f4")
    with jax.default_device(jax.devices("cpu")[0]):
        quick: Any = {"xla_backend_optimization_level": "0"}
        compiled = jax.jit(run).lower(list(case.args), ct).compile(quick)
        slope, grads = compiled(list(case.args), ct)
    # <ct, df/dt> along the tangents t, and <df^T ct, t>.
    numeric = float(np.vdot(ct, slope))
    exact = sum(float(np.vdot(g, t)) for g, t in zip(grads, tangents, strict=True))
    size = float(np.linalg.norm(ct) * np.linalg.norm(slope))
    assert abs(numeric - exact) < 1e-2 * size, (numeric, exact)


def stacked(case: Case) -> tuple[list[Any], list[int | None]]:
    """Return the arguments with three different entries where they are mapped."""
    args = []
    for i, (a, m) in enumerate(zip(case.args, case.mapped, strict=True)):
        parts = [a, np.roll(a, 1, axis=0), a[::-1]]
        args.append(np.stack(parts, axis=i % 2) if m else a)
    return args, [i % 2 if m else None for i, m in enumerate(case.mapped)]


@each_case
def test_vmap_scan_checkpoint(case: Case) -> None:
    """Mapped, looped under jax.checkpoint, and the formula one by one.

    The loop is compiled for one case of each primitive: it does not see the others'
    shapes, and costs half of the time.
    """
    which = floats(case.args)
    args, axes = stacked(case)
    ct = jnp.asarray(normal(*jax.eval_shape(case.plain, *case.args).shape))
    ours = value_and_vjp(case.ours, which)
    again = value_and_vjp(jax.checkpoint(case.ours), which)

    def element(i: Any) -> list[Any]:
        pairs = zip(args, axes, strict=True)
        return [a if x is None else jnp.take(a, i, axis=x) for a, x in pairs]

    def both(args: Any) -> Any:
        results = [jax.vmap(lambda *a: ours(a, ct), in_axes=tuple(axes))(*args)]
        if case in PRINCIPAL:
            looped = jax.lax.map(lambda i: again(element(i), ct), jnp.arange(3))
            results.append(looped)
        return results

    program = jax.jit(both).lower(args)
    for name in case.composites:
        assert f'stablehlo.composite "vkore.{name}"' in program.as_text(), name
    found = program.compile()(args)
    wanted = [formula(case)(element(i), ct) for i in range(3)]
    wanted = jax.tree.map(lambda *parts: np.stack(parts), *wanted)
    for one in found:
        assert_close(one, wanted, BOUND["float32"])


def test_vmap_of_vmap_shares_the_weight() -> None:
    """An operand that is not mapped reaches the composite without a batch axis."""
    x, w = normal(2, 3, 4, 5), normal(5, 6)
    f = jax.vmap(jax.vmap(P.linear, (0, None)), (0, None))
    lowered = jax.jit(f).lower(x, w)
    (line,) = [s for s in lowered.as_text().splitlines() if "composite " in s]
    assert "(tensor<2x3x4x5xf32>, tensor<5x6xf32>)" in line
    np.testing.assert_allclose(lowered.compile()(x, w), x @ w, atol=1e-5)
    two = jax.vmap(jax.vmap(P.linear, (0, None)), (None, 0))
    w2 = normal(2, 5, 6)
    np.testing.assert_allclose(
        jax.jit(two)(x[0], w2), x[0][None] @ w2[:, None], atol=1e-5
    )


def test_no_score_matrix() -> None:
    """No tensor of the program spans all queries and all keys."""
    q = jax.ShapeDtypeStruct((131, 1, 8), jnp.float32)
    f = jax.grad(lambda *a: P.attention(*a, causal=True, block=64).sum(), (0, 1, 2))
    assert "131x131" not in jax.jit(f).lower(q, q, q).as_text()


def test_no_logits() -> None:
    x, w = normal(13, 4), normal(1009, 4)
    y = jnp.arange(13)
    f = jax.grad(lambda x, w: P.softmax_cross_entropy(x, w, y, block=64).sum(), (0, 1))
    text = jax.jit(f).lower(x, w).as_text()
    assert "13x1009" not in text
    assert "1009x13" not in text


def test_wrong_target_is_not_silent() -> None:
    f = functools.partial(P.softmax_cross_entropy, ignore_index=-1)
    for g in (f, jax.jit(f)):  # by JAX op by op, and the kernel
        loss = g(normal(5, 2), normal(5, 2), jnp.array([0, 5, -1, -2, 4]))
        assert np.isnan(loss).tolist() == [False, True, False, True, False]


def test_precision_is_read_when_traced() -> None:
    def f(x: Any, w: Any) -> Any:
        with jax.default_matmul_precision("bfloat16"):
            return P.linear(x, w) + P.linear(x, w, precision=jax.lax.Precision.HIGH)

    text = jax.jit(f).lower(normal(3, 4), normal(4, 5)).as_text()
    assert 'precision = "bfloat16"' in text
    assert 'precision = "high"' in text


@pytest.mark.parametrize("mapped", [False, True])
def test_adamw_is_optax(mapped: bool) -> None:
    hyper: Any = {"b1": 0.8, "b2": 0.97, "eps": 1e-6, "weight_decay": 0.1}
    p, grads = normal(3, 4), normal(4, 3, 4)
    rates = np.array([0.1, 0.3, 0.2, 0.05], "f4")

    def step(state: Any, xs: Any) -> Any:
        n, g, lr = xs
        if mapped:  # a rate for each row, the step shared

            def row(lr: Any, *tensors: Any) -> Any:
                return P.adamw_update(*tensors, step=n, learning_rate=lr, **hyper)

            new = jax.vmap(row)(jnp.full(3, lr), state[0], g, *state[1:])
            return new, None
        new = P.adamw_update(state[0], g, *state[1:], step=n, learning_rate=lr, **hyper)
        return new, None

    zero = jnp.zeros_like(p)
    xs = (jnp.arange(1, 5), grads, rates)
    (found, _, _), _ = jax.jit(lambda s, xs: jax.lax.scan(step, s, xs))(
        (p, zero, zero), xs
    )
    tx = optax.adamw(lambda count: jnp.asarray(rates)[count], **hyper)
    wanted: Any = jnp.asarray(p)
    state = tx.init(p)
    for g in grads:
        updates, state = tx.update(g, state, wanted)
        wanted = optax.apply_updates(wanted, updates)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


def test_adamw_types() -> None:
    p, g = jnp.ones((2, 3)), jnp.ones((2, 3), jnp.bfloat16)
    new = jax.eval_shape(
        functools.partial(P.adamw_update, step=1, learning_rate=0.1), p, g, g, p
    )
    assert [a.dtype.name for a in new] == ["float32", "bfloat16", "float32"]


def test_names_are_unique_and_prefixed() -> None:
    names = [p.name for p in P.ALL]
    assert len(set(names)) == len(names)
    assert all(n.startswith(P.PREFIX) for n in names)
    used = {f"vkore.{n}" for c in CASES for n in c.composites}
    assert used | {"vkore.adamw_update"} == set(names)


REFUSED: list[tuple[str, Any, str]] = [
    ("k", lambda: P.linear(normal(2, 3), normal(4, 5)), "agree in k"),
    ("act", lambda: P.linear(normal(2, 3), normal(3, 5), activation="x"), "'x'"),
    ("int", lambda: P.gelu(jnp.arange(3)), "floating point"),
    ("gqa", lambda: P.attention(normal(2, 3, 4), *[normal(2, 2, 4)] * 2), "dividing"),
    ("ids", lambda: P.embedding(normal(3, 4), normal(2)), "integers"),
    ("odd", lambda: P.rope(normal(2, 1, 3), normal(2, 1), normal(2, 1)), "d even"),
]


@pytest.mark.parametrize("row", REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(row: tuple[str, Any, str]) -> None:
    with pytest.raises(InvalidArgument, match=row[2]):
        row[1]()


def test_forward_mode_is_refused_by_jax() -> None:
    x = normal(3)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(P.gelu, (x,), (x,))
