"""Leaving the process in every state: the right exit code and no noise."""

from __future__ import annotations

import pytest

from tests.pjrt.process import run_python

START = """
x = jnp.arange(1000.).reshape(10, 100)
f = jax.jit(lambda x: (x @ x.T).sum())
y = f(x); keep = [x + i for i in range(20)]
"""

CASES = {
    "plain": (0, "print(float(y))"),
    "live_arrays": (0, "g = lambda: (x, y)"),
    "view": (0, "v = np.asarray(x + 1)"),
    "exception": (1, "raise ValueError('boom')"),
    "sys_exit": (7, "sys.exit(7)"),
    "exit_in_trace": (7, "jax.jit(lambda x: sys.exit(7))(x)"),
    "clear_backends": (
        0,
        """
from jax.extend import backend
backend.clear_backends()
assert float((jnp.ones(3) * 2).sum()) == 6
assert float(y) > 0
""",
    ),
    "late_atexit": (0, "atexit.register(lambda: print('late', float(f(x))))"),
    "cycle": (
        0,
        """
class B:
    def __init__(s, x): s.x = x; s.me = s
    def __del__(s):
        try: float(s.x.sum())
        except Exception: pass
sys.modules['zz'] = B(x)""",
    ),
    "destroy_under_exception": (
        0,
        """
h = jax.jit(lambda a, b: a + b)
for _ in range(100):
    try: h(x + 1, 1 / 0)
    except ZeroDivisionError: pass
assert float(f(x)) == float(y)""",
    ),
    "callback_error": (  # caught: nothing is left to be told at the end
        0,
        """
import logging; logging.disable()
from jax.experimental import io_callback
def boom(v): raise ValueError('boom')
for ordered in (True, False):
    try: jax.jit(lambda v: (io_callback(boom, None, v, ordered=ordered), v)[1])(y)
    except jax.errors.JaxRuntimeError as e: assert 'boom' in str(e)
    else: sys.exit(3)""",
    ),
    "threads": (
        0,
        """
errors = []
def work(k):
    try:
        g = jax.jit(lambda v: (v * k).sum())
        for i in range(30):
            assert abs(float(g(x)) - k * 499500.) < 1e-2 * k * 499500.
            np.asarray(x + i)
    except BaseException as e: errors.append(repr(e))
ts = [threading.Thread(target=work, args=(k,)) for k in (1., 2., 3.)]
[t.start() for t in ts]; [t.join() for t in ts]; assert not errors, errors""",
    ),
}


FRESH = ("plain", "exception", "threads")
"""The others in a fork of a process that has imported JAX."""


@pytest.mark.parametrize("name", CASES)
def test_exit(name: str) -> None:
    code, body = CASES[name]
    run_python(START + body, code=code, fresh=name in FRESH)


def test_constants_of_programs_are_freed() -> None:
    """Compiled and dropped: 4 MB of constants each, in two languages on the way."""
    run_python(
        """
        import ctypes
        def rss():
            jax.clear_caches(); gc.collect(); ctypes.CDLL(None).malloc_trim(0)
            return int(open('/proc/self/statm').read().split()[1]) * 4096 / 1e6
        def loop(first, count):
            for seed in range(first, first + count):
                c = np.random.default_rng(seed).standard_normal((1024, 1024), 'f4')
                jax.jit(lambda v: (v + c).sum()).lower(v).compile()
        v = jnp.ones((1024, 1024))
        loop(0, 3); before = rss(); loop(3, 8)
        assert rss() - before < 12, rss() - before
        from vkore_jax.pjrt.inner import inner_client
        float(jax.jit(lambda a: jnp.sin(a).sum())(jnp.ones(7)))
        assert inner_client(1).code._memory
        jax.clear_caches()
        assert not inner_client(1).code._memory
        """
    )


def test_memory_stays_flat() -> None:
    run_python(
        """
        def rss(): return int(open('/proc/self/statm').read().split()[1]) * 4096 / 1e6
        big = jnp.ones((256, 1024)); g = jax.jit(lambda a: a * 1.0001)
        def loop(n):
            global big
            for _ in range(n): big = g(big)
            float(big[0, 0])
        loop(100); before = rss(); loop(1000)
        assert rss() - before < 20, rss() - before
        # Arrays that come from the host and are never computed with.
        h = np.ones((256, 1024), np.float32)
        for _ in range(300): jax.device_put(h)
        assert rss() - before < 20, rss() - before
        """
    )
