"""Host callbacks on the device, for every way to name the platform."""

from __future__ import annotations

import pytest

from tests.pjrt.process import run_python

BODY = """
from jax.experimental import io_callback, checkify
assert jax.default_backend() == 'vkore', jax.devices()
assert jax.devices('cpu')
log = []
x = jnp.arange(4.)
@jax.jit
def f(v):
    jax.debug.callback(
        lambda t: log.append(('ordered', float(t))), v.sum(), ordered=True)
    jax.debug.callback(lambda t: log.append(('free', float(t))), v[1])
    jax.debug.print('sum {s}', s=v.sum())
    jax.debug.print('first {s}', s=v[0], ordered=True)
    w = jax.pure_callback(
        lambda t: np.asarray(t) * 2, jax.ShapeDtypeStruct(v.shape, v.dtype), v)
    u = io_callback(lambda t: np.float32(log.append(('io', t.shape)) or 7),
                    jax.ShapeDtypeStruct((), jnp.float32), v, ordered=True)
    io_callback(lambda t: log.append(('io2', t.shape)), None, v)
    return w.sum() + u
assert float(f(x)) == 19 and float(f(x + 1)) == 27
jax.effects_barrier()
assert [v for k, v in log if k == 'ordered'] == [6, 10], log
assert [v for k, v in log if k == 'free'] == [1, 2], log
assert [k for k, _ in log].count('io') == [k for k, _ in log].count('io2') == 2, log

# A callback that runs jitted code itself, and two results of different types.
g = jax.jit(lambda v: jax.pure_callback(
    lambda t: (np.asarray(f(x)), np.asarray(t).astype(np.int32)),
    (jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.int32)), v))
a, b = g(x)
assert float(a) == 19 and b.tolist() == [0, 1, 2, 3]

# vmap, a loop, eager use, checkify.
sin = lambda t: jax.pure_callback(
    np.sin, jax.ShapeDtypeStruct((), jnp.float32), t, vmap_method='sequential')
np.testing.assert_allclose(np.asarray(jax.vmap(sin)(x)), np.sin(np.arange(4.)), 1e-6)
def body(c, _):
    jax.debug.print('step {c}', c=c, ordered=True)
    return c + 1, None
jax.lax.scan(body, 0, None, length=3)
jax.effects_barrier()
jax.debug.print('eager {x}', x=x)
checked = checkify.checkify(lambda v: (checkify.check(v[0] > 0, 'neg'), v)[1])
err, _ = jax.jit(checked)(x)
assert 'neg' in err.get()

# Callbacks that write into buffers.
from jax.experimental.buffer_callback import buffer_callback
def add(ctx, out, a, *, b):
    assert not a.writeable and out['y'].writeable and a.shape == (4,), a.shape
    np.asarray(out['y'])[...] += np.asarray(a) + np.asarray(b)
y = {'y': jax.ShapeDtypeStruct((4,), jnp.float32)}
made = jax.jit(lambda v: buffer_callback(add, y)(v, b=v * v))(x)
assert made['y'].tolist() == [0, 2, 6, 12], made
over = buffer_callback(add, y, input_output_aliases={0: 0})(x, b=x)
assert over['y'].tolist() == [0, 3, 6, 9], over

# A wrong shape is found out.
bad = jax.jit(lambda v: jax.pure_callback(
    lambda t: np.zeros(3, np.float32), jax.ShapeDtypeStruct((4,), jnp.float32), v))
try: bad(x).block_until_ready()
except jax.errors.JaxRuntimeError as e: assert 'Incorrect output shape' in str(e), e
else: raise AssertionError('accepted')
"""


@pytest.mark.parametrize("platforms", ["vkore", "vkore,cpu", ""])
def test_callbacks(platforms: str) -> None:
    text = run_python(BODY, platforms=platforms)
    lines = text.splitlines()
    for wanted in ("sum 6.0", "first 1.0", "step 0", "step 2", "eager [0. 1. 2. 3.]"):
        assert wanted in lines, text
    steps = [line for line in lines if line.startswith("step")]
    assert steps == ["step 0", "step 1", "step 2"]
