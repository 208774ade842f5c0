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
