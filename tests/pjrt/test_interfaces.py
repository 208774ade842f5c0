"""What JAX offers around a function: export, transforms, profiling, flags, loops."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tests.pjrt.process import run_python
from vkore_jax.pjrt import _bridge

DEVICE = jax.devices("vkore")[0]


def put(value: Any) -> jax.Array:
    return jax.device_put(value, DEVICE)


def _loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w).sum()


def test_export_round_trip() -> None:
    w, x = jnp.ones((4, 3)) / 8, jnp.ones((2, 4))  # not committed: JAX refuses those
    exported = jax.export.export(jax.jit(_loss), platforms=["vkore"])(w, x)
    again = jax.export.deserialize(exported.serialize(vjp_order=1))
    assert again.platforms == ("vkore",)
    np.testing.assert_array_equal(again.call(w, x), jax.jit(_loss)(w, x))
    gradient = jax.jit(jax.grad(again.call))(w, x)
    np.testing.assert_allclose(gradient, jax.jit(jax.grad(_loss))(w, x), rtol=1e-6)


def test_export_for_several_platforms() -> None:
    x = np.arange(6, dtype=np.float32)
    exported = jax.export.export(jax.jit(jnp.cumsum), platforms=["cpu", "vkore"])(x)
    again = jax.export.deserialize(exported.serialize())
    for platform in ("cpu", "vkore"):
        here = jax.device_put(x, jax.devices(platform)[0])
        np.testing.assert_array_equal(np.asarray(again.call(here)), np.cumsum(x))


@jax.custom_vjp
def _scaled(x: jax.Array) -> jax.Array:
    return x * 2


_scaled.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 10,))


@jax.custom_jvp
def _doubled(x: jax.Array) -> jax.Array:
    return x * 2


_doubled.defjvp(lambda primals, tangents: (_doubled(*primals), tangents[0] * 7))


def _scanned(x: jax.Array) -> jax.Array:
    def body(carry: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = jnp.sin(carry) * step
        return carry, carry

    return jax.lax.scan(body, x, jnp.arange(1.0, 5.0))[1].sum()


TRANSFORMS: dict[str, tuple[Callable[..., Any], Any]] = {
    "checkpoint": (
        jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()),
        np.arange(5.0, dtype=np.float32),
    ),
    "custom_vjp": (jax.grad(lambda x: _scaled(x).sum()), np.ones(3, np.float32)),
    "custom_jvp": (
        lambda x: jax.jvp(_doubled, (x,), (jnp.ones_like(x),))[1],
        np.ones(3, np.float32),
    ),
    "vmap_grad_scan": (
        jax.vmap(jax.grad(_scanned)),
        np.linspace(0, 1, 6, dtype=np.float32),
    ),
    "hessian": (
        jax.hessian(lambda x: (jnp.exp(x) * x).sum()),
        np.linspace(0, 1, 4, dtype=np.float32),
    ),
    "linearize": (
        lambda x: jax.linearize(jnp.sin, x)[1](x),
        np.linspace(0, 1, 4, dtype=np.float32),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    function, x = TRANSFORMS[name]
    wanted = jax.jit(function)(jax.device_put(x, jax.devices("cpu")[0]))
    found = jax.jit(function)(put(x))
    assert found.device == DEVICE
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-5)


def test_profiler_trace(tmp_path: Path) -> None:
    run_python(
        f"""
        with jax.profiler.trace({str(tmp_path)!r}):
            with jax.profiler.TraceAnnotation('here'):
                jax.jit(lambda a: a @ a)(jnp.ones((8, 8))).block_until_ready()
        """
    )
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_live_arrays() -> None:
    def shapes() -> list[tuple[int, ...]]:
        gc.collect()
        return [x.shape for x in jax.live_arrays("vkore")]

    kept = [put(np.ones((3, 41), np.float32)) + i for i in range(4)]
    assert shapes().count((3, 41)) == 4
    del kept
    assert (3, 41) not in shapes()


def test_debug_nans() -> None:
    zero = put(np.zeros(3, np.float32))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        jax.jit(lambda x: x / x)(zero)
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match="inf"):
        jax.jit(lambda x: 1 / x)(zero)
    assert np.isnan(np.asarray(jax.jit(lambda x: x / x)(zero))).all()


FLAGS: dict[str, Callable[[], Any]] = {
    "disable_jit": lambda: jax.disable_jit(True),
    "highest": lambda: jax.default_matmul_precision("highest"),
    "strict_types": lambda: jax.numpy_dtype_promotion("strict"),
    "rank_raise": lambda: jax.numpy_rank_promotion("raise"),
    "log_compiles": lambda: jax.log_compiles(True),
    "leaks": lambda: jax.checking_leaks(),
    "device": lambda: jax.default_device(DEVICE),
    "x64": lambda: jax.enable_x64(True),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_flags(flag: str) -> None:
    x = put(np.arange(6, dtype=np.float32).reshape(2, 3))
    with FLAGS[flag]():
        found = jax.jit(lambda a: a @ a.T + a.sum(1)[None])(x)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(np.asarray(found), [[8, 26], [17, 62]])


def _in_use() -> int:
    gc.collect()
    _bridge.drain()
    stats = DEVICE.memory_stats()
    assert stats is not None
    return stats["bytes_in_use"]


def test_results_that_nobody_reads_are_freed() -> None:
    """The results of a call are taken apart when one is needed or one is gone."""
    many = jax.jit(lambda a: [a + i for i in range(8)])
    x = put(np.ones(1000, np.float32))
    start = _in_use()
    first = many(x)
    assert _in_use() - start == 8 * 4000
    last = first.pop()
    del first
    assert _in_use() - start == 4000
    assert float(last[0]) == 8
    second = many(x)
    second[3].delete()
    assert _in_use() - start == 8 * 4000
    view = np.asarray(second[4])
    del second, last
    assert _in_use() == start
    assert view[7] == 5


def test_results_in_any_order() -> None:
    many = jax.jit(lambda a: [a * i for i in range(1, 9)])
    step = jax.jit(lambda xs: [x + 1 for x in xs], donate_argnums=0)
    x = put(np.ones(5, np.float32))
    for order in ([3, 0], [7], [1, 2, 3], []):
        results = many(x)
        for i in order:
            assert float(results[i][0]) == i + 1
        donated = step(results[2:])
        assert [float(r[4]) for r in donated] == [4, 5, 6, 7, 8, 9]
        assert all(r.is_deleted() for r in results[2:])
        assert float(results[0][0]) == 1


def test_threads_take_the_same_results_apart() -> None:
    run_python(
        """
        many = jax.jit(lambda a: [a + i for i in range(20)])
        x = jnp.ones(100)
        found, box = [], [None]
        barrier = threading.Barrier(4)
        def reader(k):
            for _ in range(50):
                barrier.wait()
                found.append(float(box[0][k][0]) + float(box[0][k + 4][0]))
                barrier.wait()
        threads = [threading.Thread(target=reader, args=(k,)) for k in range(3)]
        [t.start() for t in threads]
        for _ in range(50):
            box[0] = many(x)
            barrier.wait()
            box[0][19].delete()
            barrier.wait()
            box[0] = None
        [t.join() for t in threads]
        assert sorted(set(found)) == [6, 8, 10] and len(found) == 150, found
        """
    )


def test_loops_do_not_grow() -> None:
    run_python(
        """
        import resource
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step = jax.jit(lambda p, x: ([a * 0.999 + x for a in p], (p[0] * x).sum()))
        p, x, losses = [jnp.ones((8, 8)) for _ in range(20)], jnp.float32(0.5), []
        def loop(n):
            global p
            for i in range(n):
                p, loss = step(p, x)
                if i % 10 == 0: losses.append(loss)
        loop(300)
        before = peak()
        used = jax.local_devices()[0].memory_stats()['bytes_in_use']
        loop(1500)
        kept = 4 * 150
        now = jax.local_devices()[0].memory_stats()['bytes_in_use']
        assert now - used <= kept + 4 * 21 * 64, (now, used)
        assert peak() - before < 4096, (peak(), before)
        assert len({float(l) for l in losses}) == len(losses)
        """
    )
