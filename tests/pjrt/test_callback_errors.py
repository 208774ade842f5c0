"""What a host callback raises: as on JAX's CPU backend, where and how it is told."""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

DEVICES = {name: jax.devices(name)[0] for name in ("cpu", "vkore")}
LIKE = jax.ShapeDtypeStruct((4,), np.float32)
Array = Any


class MineError(Exception):
    """Raised by callbacks."""


def boom(x: Array) -> Any:
    raise MineError(f"boom {np.asarray(x)[0]}")


def leave(x: Array) -> Any:
    raise SystemExit(3)


def interrupt(x: Array) -> Any:
    raise KeyboardInterrupt


def same(x: Array) -> Array:
    return np.asarray(x)


def pure(function: Callable[[Array], Any], x: Array) -> Array:
    return jax.pure_callback(function, LIKE, x)


def seen(x: Array, **options: Any) -> Array:
    jax.debug.callback(boom, x, **options)
    return x + 1


def told(x: Array) -> Array:
    io_callback(boom, None, x)
    return x + 1


def scanned(x: Array) -> Array:
    return jax.lax.scan(lambda c, i: (pure(boom, c + i), i), x, jnp.arange(3.0))[0]


def looped(x: Array) -> Array:
    return jax.lax.while_loop(lambda c: c[0] < 9, functools.partial(pure, boom), x)


def chosen(x: Array) -> Array:
    return jax.lax.cond(x[0] > -1, functools.partial(pure, boom), jnp.sin, x)


def several(x: Array) -> Array:
    jax.debug.callback(same, x)
    return pure(same, x) + pure(boom, x + 7)


def nested(x: Array) -> Array:
    return pure(lambda v: np.asarray(jax.jit(functools.partial(pure, boom))(v)), x)


CASES: dict[str, Callable[[Array], Any]] = {
    "pure": lambda x: pure(boom, x),
    "io": lambda x: io_callback(boom, LIKE, x),
    "io ordered": lambda x: io_callback(boom, LIKE, x, ordered=True),
    "io without results": told,
    "debug": seen,
    "debug ordered": functools.partial(seen, ordered=True),
    "scan": scanned,
    "while": looped,
    "cond": chosen,
    "vmap": lambda x: jax.vmap(
        lambda v: jax.pure_callback(
            lambda a: boom([a]),
            jax.ShapeDtypeStruct((), np.float32),
            v,
            vmap_method="sequential",
        )
    )(x),
    "several": several,
    "nested": nested,
    "wrong shape": lambda x: pure(lambda v: np.zeros(3, np.float32), x),
    "wrong type": lambda x: pure(lambda v: np.zeros(4, np.int32), x),
    "wrong number": lambda x: pure(lambda v: (v, v), x),
    "SystemExit": lambda x: pure(leave, x),
    "KeyboardInterrupt": lambda x: pure(interrupt, x),
}


def outcome(function: Callable[[Array], Any], platform: str) -> list[Any]:
    """Return what two calls raise at dispatch, and the barrier behind them."""
    x = jax.device_put(np.arange(4, dtype=np.float32), DEVICES[platform])
    call = jax.jit(function)
    found: list[Any] = []
    for run in (lambda: call(x), lambda: call(x), jax.effects_barrier):
        try:
            run()
        except BaseException as error:
            found.append((type(error), *essence(str(error))))
        else:
            found.append(None)
    return found


def essence(message: str) -> list[str]:
    """Return a message without the frames of libraries; JAX's differ by platform."""
    lines = message.splitlines()
    places = [re.match(r'  File "(.*)", line (\d+), in (.*)', line) for line in lines]
    return [
        line
        for line, place in zip(lines, places, strict=True)
        if place is None or place[1] == __file__
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Type, time, code, message, the user's file and line; nothing is told twice."""
    # One name each: the traceback names the frames of this test, too.
    found, wanted = (outcome(CASES[name], platform) for platform in ("vkore", "cpu"))
    assert found == wanted
    first, second, barrier = found
    assert first is not None
    assert first[0] is jax.errors.JaxRuntimeError
    assert first[1].startswith("INTERNAL: CpuCallback error calling callback: Trace")
    assert second is not None
    assert barrier is None


def test_the_users_line_is_named() -> None:
    line = boom.__code__.co_firstlineno + 1
    message = outcome(CASES["pure"], "vkore")[0]
    assert f'  File "{__file__}", line {line}, in boom' in message
    assert message[-1] == "MineError: boom 0.0"


def test_an_error_takes_nothing_with_it() -> None:
    """Later calls run, donated arguments are gone, tokens stay in order."""
    log: list[float] = []

    def note(x: Array) -> None:
        if x[0] == 2:
            boom(x)
        log.append(float(x[0]))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(x: Array) -> Array:
        io_callback(note, None, x, ordered=True)
        return x + 1

    for start in (0, 2, 5):
        x = jax.device_put(np.full(4, start, np.float32), DEVICES["vkore"])
        if start == 2:
            with pytest.raises(jax.errors.JaxRuntimeError, match="MineError: boom 2"):
                step(x)
        else:
            np.testing.assert_array_equal(step(x), np.full(4, start + 1))
        assert x.is_deleted()
    jax.effects_barrier()
    assert log == [0, 5]


def test_each_thread_gets_its_own_error() -> None:
    call = jax.jit(functools.partial(pure, boom))
    wrong: list[str] = []

    def work(number: int) -> None:
        x = jax.device_put(np.full(4, number, np.float32), DEVICES["vkore"])
        for _ in range(5):
            try:
                call(x)
            except Exception as error:
                if f"boom {number}.0" not in str(error):
                    wrong.append(str(error))
            else:
                wrong.append("no error")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in itertools.chain(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
