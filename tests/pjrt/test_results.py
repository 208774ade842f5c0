"""Results of a call: threads, deletion, donation, errors.

Small ones have memory of their own at once, large ones stay packed until one is needed.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from tests.pjrt.process import run_python

VKORE = jax.devices("vkore")[0]
COUNT = 120


@jax.jit
def _many(x: jax.Array) -> tuple[jax.Array, ...]:
    return tuple((x * float(i) + 1)[: _length(i, x.size)] for i in range(COUNT))


@pytest.fixture(params=[8, 2000], ids=["small", "small and large"])
def x(request: pytest.FixtureRequest) -> jax.Array:
    return jax.device_put(np.arange(request.param, dtype=np.float32), VKORE)


def _length(number: int, size: int) -> int:
    return 8 if number % 3 == 1 else size


def _wanted(number: int, x: jax.Array) -> np.ndarray:
    length = _length(number, x.size)
    return np.arange(length, dtype=np.float32) * number + 1


def _together(*work: Callable[[], None]) -> None:
    """Run functions on threads of their own and raise what one of them raised."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_read_one_execution(x: jax.Array) -> None:
    def reader(outs: tuple[jax.Array, ...], first: int) -> Callable[[], None]:
        def read() -> None:
            for i in range(first, COUNT, 4):
                np.testing.assert_array_equal(outs[i], _wanted(i, x))

        return read

    for _ in range(5):
        outs = _many(x)
        _together(*(reader(outs, k) for k in range(4)))


def test_some_are_deleted_while_others_are_read(x: jax.Array) -> None:
    def pairs(outs: list[Any], first: int) -> tuple[Callable[[], None], ...]:
        def drop() -> None:
            for i in range(first, COUNT, 2):
                if i % 4 < 2:
                    outs[i].delete()
                else:
                    outs[i] = None

        def read() -> None:
            for i in range(first, COUNT, 2):
                out = outs[i]
                try:
                    found = _wanted(i, x) if out is None else np.asarray(out)
                except RuntimeError as error:
                    if "deleted" not in str(error):
                        raise
                else:
                    np.testing.assert_array_equal(found, _wanted(i, x))

        return drop, read

    for _ in range(5):
        outs = list(_many(x))
        _together(*pairs(outs, 0), *pairs(outs, 1))


def test_memory_of_the_dead_does_not_wait_for_the_living(x: jax.Array) -> None:
    def used() -> int:
        gc.collect()
        return VKORE.memory_stats()["bytes_in_use"]

    before = used()
    outs = jax.block_until_ready(_many(x))
    assert used() == before + sum(out.nbytes for out in outs)
    for out in outs[1:]:
        out.delete()
    assert used() == before + x.nbytes
    _many(x)  # an execution drains: what lost members is taken apart
    np.testing.assert_array_equal(outs[0], _wanted(0, x))


def test_a_packed_result_is_donated(x: jax.Array) -> None:
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    outs = _many(x)
    found = add(outs[5])
    assert outs[5].is_deleted()
    np.testing.assert_array_equal(found, _wanted(5, x) + 1)
    np.testing.assert_array_equal(outs[6], _wanted(6, x))


def test_a_refused_call_takes_no_donation(x: jax.Array) -> None:
    add = jax.jit(lambda a, b: a + b, donate_argnums=0)
    out = _many(x)[3]
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="same buffer"):
            add(out, out).block_until_ready()
        assert not out.is_deleted()
    np.testing.assert_array_equal(out, _wanted(3, x))
    deleted = _many(x)[0]
    add(deleted, x)
    with pytest.raises(RuntimeError, match=r"(argument 1|Array) has been deleted"):
        add(out, deleted).block_until_ready()
    assert not out.is_deleted()


def test_a_call_without_room_takes_no_donation() -> None:
    run_python(
        """
        x, live = jnp.ones((256, 1024)), jnp.ones((512, 1024))
        f = jax.jit(lambda a: (a + 1, jnp.tile(a, (8, 1))), donate_argnums=0)
        try: jax.block_until_ready(f(x)); sys.exit(3)
        except jax.errors.JaxRuntimeError as e: assert 'RESOURCE_EXHAUSTED' in str(e)
        assert not x.is_deleted() and float(x[3, 4]) == 1
        """,
        VKORE_DRAM_BYTES=str(10 << 20),
    )


def test_what_a_running_call_consumes_is_gone() -> None:
    """Another thread gets an error, not what the engine makes of the bytes."""
    started, leave = threading.Event(), threading.Event()

    def wait() -> Any:
        started.set()
        leave.wait(60)
        return np.float32(1)

    @functools.partial(jax.jit, donate_argnums=0)
    def consume(a: Any) -> Any:
        return a + jax.pure_callback(wait, jax.ShapeDtypeStruct((), np.float32))

    plus = jax.jit(lambda a: a + 1)
    x = plus(jax.device_put(np.zeros(4, np.float32), VKORE))
    np.asarray(x)
    found: list[jax.Array] = []
    thread = threading.Thread(target=lambda: found.append(consume(x)))
    thread.start()
    assert started.wait(60)
    try:
        with pytest.raises(RuntimeError, match="deleted"):
            plus(x).block_until_ready()
    finally:
        leave.set()
        thread.join()
    np.testing.assert_array_equal(found[0], np.full(4, 2))


@pytest.fixture
def collecting() -> Iterator[list[Callable[[], object]]]:
    """Functions to call, once each, when the garbage collector starts."""
    work: list[Callable[[], object]] = []

    def start(phase: str, info: object) -> None:
        if phase == "start" and work:
            work.pop()()

    threshold = gc.get_threshold()
    gc.callbacks.append(start)
    yield work
    gc.callbacks.remove(start)
    gc.set_threshold(*threshold)


def test_a_finalizer_reads_a_sibling(
    x: jax.Array, collecting: list[Callable[[], object]]
) -> None:
    """Making the arrays must not start a collection, which would wait for them."""
    for threshold in (20, 60, 100):
        outs = _many(x)
        gc.collect()
        gc.set_threshold(threshold)
        collecting.append(lambda outs=outs: np.asarray(outs[7]))
        np.testing.assert_array_equal(outs[3], _wanted(3, x))
        collecting.clear()
        assert gc.isenabled()


LATE = """
import dataclasses
from vkore_jax.pjrt import executable
describe = executable.describe
def replaced(program, *rest):
    loaded = describe(program, *rest)
    if program.name != 'jit_broken': return loaded
    launch = loaded.launch
    return dataclasses.replace(loaded, launch=lambda a: Outcome(lambda: launch(a)))
executable.describe = replaced
def broken(a): return a + 1, a * 2
"""
"""What happens while the arrays of an execution are made: see `Outcome`."""


def test_the_collectors_switch_is_the_users() -> None:
    """Also when it is thrown while arrays are being made."""
    run_python(
        LATE
        + """
        states = []
        class Outcome:
            def __init__(self, real): self.real = real
            def consume_with_handlers(self, handlers):
                states.append(gc.isenabled())
                switch()
                return self.real().consume_with_handlers(handlers)
        f, x = jax.jit(broken), jnp.arange(2000.)
        for switch, wanted in ((gc.disable, False), (gc.enable, True)):
            y, _ = f(x)
            assert float(y[1]) == 2
            assert gc.isenabled() == wanted, wanted
        assert states == [True, False], states
        gc.enable(); gc.collect(); z = [[]]; z[0].append(z); del z
        assert gc.collect() > 0
        # A finalizer reads what is just being made: an error, no hang.
        def switch():
            try: print(float(second[0]))
            except Exception as e: print('told', e)
        first, second = f(x)
        assert float(first[1]) == 2 and float(second[1]) == 2
        """.replace("\n        ", "\n"),
    )


@pytest.mark.parametrize("size", [4, 2000])
def test_what_goes_wrong_late_is_told_everywhere(size: int) -> None:
    """A failure while arrays are made belongs to all results and what uses them."""
    run_python(
        LATE
        + """
        class Outcome:
            def __init__(self, real): pass
            def consume_with_handlers(self, handlers): raise MemoryError('no arrays')
        add = jax.jit(lambda a, b: a + b, donate_argnums=0)
        def told(work):
            try: work(); sys.exit(3)
            except jax.errors.JaxRuntimeError as e: assert 'no arrays' in str(e), e
        x = jnp.ones(SIZE)
        y, z = jax.jit(broken)(x)
        told(lambda: add(y, x).block_until_ready())
        told(lambda: np.asarray(y))
        told(lambda: np.asarray(z))
        told(lambda: add(x, z).block_until_ready())
        assert float(x.sum()) == SIZE
        """.replace("SIZE", str(size)).replace("\n        ", "\n"),
    )
