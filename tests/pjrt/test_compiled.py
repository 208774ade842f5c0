"""Compiled functions: analyses, storage, fingerprints, layouts, ahead of time."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.experimental.layout import Format, Layout
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from tests.pjrt.process import run_python

DEVICE = jax.devices("vkore")[0]


def _compiled() -> jax.stages.Compiled:
    x = jax.device_put(np.ones((8, 8), np.float32), DEVICE)
    return jax.jit(lambda a: a @ a + 1).lower(x).compile()


def test_text() -> None:
    text = _compiled().as_text()
    assert text is not None
    assert "f32[8,8]" in text


def test_cost_analysis() -> None:
    costs = _compiled().cost_analysis()
    assert costs is not None
    assert costs["flops"] >= 2 * 8 * 8 * 8


def test_memory_analysis() -> None:
    stats = _compiled().memory_analysis()
    assert stats is not None
    assert stats.argument_size_in_bytes == 256
    assert stats.output_size_in_bytes == 256


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nosuch": 1}, "No such compile option: 'nosuch'"),
        ({"xla_embed_ir_in_executable": "maybe"}, "not a valid bool"),
        ({"xla_embed_ir_in_executable": True}, None),
    ],
)
def test_compiler_options(options: dict[str, object], problem: str | None) -> None:
    x = jax.device_put(np.ones(3, np.float32), DEVICE)
    f = jax.jit(lambda a: a + 1, compiler_options=options)
    if problem is None:
        assert f(x).tolist() == [2, 2, 2]
    else:
        with pytest.raises(jax.errors.JaxRuntimeError, match=problem):
            f(x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_constants_keep_subnormals(dtype: str, shape: tuple[int, ...]) -> None:
    """Although jaxlib compiles on threads that flush them."""
    least = jnp.finfo(dtype).smallest_subnormal
    data = (np.arange(1, 1 + int(np.prod(shape))) * float(least)).astype(dtype)
    constant = data.reshape(shape)
    zero = jax.device_put(np.zeros(shape, bool), DEVICE)
    found = jax.jit(lambda z: jnp.where(z, jnp.zeros_like(constant), constant))(zero)
    assert np.asarray(found).tobytes() == constant.tobytes()


def test_serialize_and_load() -> None:
    again = deserialize_and_load(*serialize(_compiled()), backend="vkore")
    x = jax.device_put(np.ones((8, 8), np.float32), DEVICE)
    assert float(again(x).sum()) == 8 * 8 * 9


FINGERPRINT = """
c = jax.jit(lambda a: jnp.sin(a) @ a).lower(jnp.ones((4, 4))).compile()
print('print', c.runtime_executable().fingerprint.hex())
"""


def test_fingerprint_is_stable_across_processes() -> None:
    first, second = (run_python(FINGERPRINT) for _ in range(2))
    assert first == second
    assert len(first.split()[1]) >= 32


CACHE = """
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
import warnings; warnings.simplefilter('error')
events = []
jax.monitoring.register_event_listener(lambda e, **k: events.append(e))
x = jax.device_put(np.ones((8, 8), np.float32))
assert float(jax.jit(lambda a: (a @ a).sum())(x)) == 512
v = jax.ShapeDtypeStruct((8, 8), jnp.float32)
f = jax.jit(lambda a: jax.pure_callback(lambda t: np.asarray(t) * SCALE, v, a))
assert np.asarray(f(x))[0, 0] == SCALE
print(sum(e.endswith('/cache_hits') for e in events))
"""


def test_compilation_cache(tmp_path: Path) -> None:
    runs = [
        run_python(
            CACHE.replace("SCALE", scale), JAX_COMPILATION_CACHE_DIR=str(tmp_path)
        )
        for scale in ("2", "3")
    ]
    assert [int(text.split()[-1]) for text in runs] == [0, 1]


def test_requested_layout_is_reported_and_harmless() -> None:
    wanted = Format(Layout((1, 0)), jax.sharding.SingleDeviceSharding(DEVICE))
    x = jax.device_put(np.arange(6, dtype=np.float32).reshape(2, 3), DEVICE)
    y = jax.jit(lambda a: a * 2, out_shardings=wanted)(x)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x) * 2)
    np.testing.assert_array_equal(np.asarray(y + 1), np.asarray(x) * 2 + 1)
    assert y.format.layout.major_to_minor == (1, 0)
    assert x.format.layout.major_to_minor == (0, 1)


def test_ahead_of_time() -> None:
    topology = topologies.get_topology_desc("", "vkore")
    device = topology.devices[0]
    assert (device.platform, device.device_kind) == ("vkore", DEVICE.device_kind)
    place = jax.sharding.SingleDeviceSharding(device)
    compiled = (
        jax.jit(lambda a: a + 1, in_shardings=place, out_shardings=place)
        .lower(jax.ShapeDtypeStruct((4,), jnp.float32))
        .compile()
    )
    assert "f32[4]" in (compiled.as_text() or "")


@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
def test_memory_kinds(kind: str) -> None:
    host = jax.sharding.SingleDeviceSharding(DEVICE, memory_kind=kind)
    device = jax.sharding.SingleDeviceSharding(DEVICE, memory_kind="device")
    assert kind in {m.kind for m in DEVICE.addressable_memories()}
    stats = DEVICE.memory_stats()
    assert stats is not None
    before = stats["bytes_in_use"]
    x = jax.device_put(np.arange(4, dtype=np.float32), host)
    stats = DEVICE.memory_stats()
    assert stats is not None
    assert stats["bytes_in_use"] == before
    assert x.sharding.memory_kind == kind
    y = jax.device_put(x, device)
    assert y.sharding.memory_kind == "device"
    np.testing.assert_array_equal(np.asarray(y), np.arange(4))
