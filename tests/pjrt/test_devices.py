"""Platform selection and several devices, in processes of their own."""

from __future__ import annotations

import jax
import pytest

from tests.pjrt.process import run_python


def test_device() -> None:
    (device, *_) = jax.devices("vkore")
    assert repr(device) == f"VkoreDevice(id={device.id})"
    assert device.platform == "vkore"
    assert device.device_kind == "vk1"
    assert device.default_memory().kind == "device"


@pytest.mark.parametrize(
    ("platforms", "default", "known"),
    [
        ("vkore", "vkore", ("vkore", "cpu")),
        ("vkore,cpu", "vkore", ("vkore", "cpu")),
        ("cpu,vkore", "cpu", ("vkore", "cpu")),
        ("", "vkore", ("vkore", "cpu")),
        ("cpu", "cpu", ("cpu",)),
    ],
)
def test_selection(platforms: str, default: str, known: tuple[str, ...]) -> None:
    run_python(
        f"""
        assert jax.default_backend() == {default!r}, jax.devices()
        for name in {known!r}: assert jax.devices(name)[0].platform == name
        assert float((jnp.ones(3) + 1).sum()) == 6
        """,
        platforms=platforms,
    )


def test_chip_is_chosen_by_a_variable() -> None:
    run_python("assert jax.devices()[0].device_kind == 'tiny'", VKORE_CHIP="tiny")
    text = run_python("jax.devices()", VKORE_CHIP="huge", code=1)
    assert "unknown chip 'huge'" in text


def test_untested_jax_is_refused_with_both_versions() -> None:
    text = run_python(
        """
        jax.__version__ = '0.13.5'
        try: jax.devices()
        except RuntimeError: pass
        assert jax.devices
        """,
    )
    assert "found jax 0.13.5" in text
    assert ">=0.10.2,<0.13" in text


def test_several_devices() -> None:
    run_python(
        """
        d = jax.devices()
        assert [x.id for x in d] == [0, 1, 2, 3] and jax.device_count() == 4
        used = lambda i: d[i].memory_stats()['bytes_in_use']
        x = jax.device_put(np.arange(4, dtype=np.float32), d[2])
        y = jax.jit(lambda a: a + 1)(x)
        assert y.devices() == {d[2]} and used(2) == 32 and used(0) == 0
        z = jax.device_put(y, d[0])
        assert z.devices() == {d[0]} and z.tolist() == [1, 2, 3, 4]
        w = jax.device_put(z * 2, d[3])
        z.delete(); y.delete()
        assert w.tolist() == [2, 4, 6, 8]
        pinned = jax.sharding.SingleDeviceSharding(d[1], memory_kind='pinned_host')
        h = jax.device_put(w, pinned)
        assert h.tolist() == [2, 4, 6, 8] and used(1) == 0

        P = jax.sharding.PartitionSpec
        mesh = jax.sharding.Mesh(np.array(d), ('a',))
        s = jax.sharding.NamedSharding(mesh, P('a'))
        parts = jax.device_put(np.arange(8.), s)
        assert [p.device for p in parts.addressable_shards] == d
        assert np.asarray(parts).tolist() == list(range(8))
        whole = jax.sharding.NamedSharding(mesh, P())
        everywhere = jax.device_put(np.arange(8.), whole)
        assert jax.device_put(everywhere, d[1]).devices() == {d[1]}
        try: jax.jit(lambda a: a * 2)(parts)
        except jax.errors.JaxRuntimeError as e:
            assert 'UNIMPLEMENTED' in str(e) and '4 devices' in str(e), e
        else: raise AssertionError('accepted')

        one = jax.sharding.Mesh(np.array(d[1:2]), ('a',))
        s = jax.sharding.NamedSharding(one, P('a'))
        y = jax.jit(lambda a: (a * 2).reshape(2, 4))(jax.device_put(np.arange(8.), s))
        assert y.devices() == {d[1]} and y.sharding.is_fully_replicated
        """,
        VKORE_NUM_DEVICES="4",
    )
