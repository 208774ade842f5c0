"""Stored executables: bound to what they were made for, or refused with a reason."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.pjrt.process import run_python
from vkore_jax.errors import InternalError, VkoreError
from vkore_jax.pjrt import backend, executable
from vkore_jax.pjrt.artifact import MEMORY_KINDS, Extra, Interface, decode_interface
from vkore_jax.pjrt.client import Hooks, configure
from vkore_jax.pjrt.container import seal, unseal
from vkore_jax.pjrt.options import encode_assignment

VKORE = jax.devices("vkore")[0]
DEVICES = jax.sharding.SingleDeviceSharding(VKORE)._internal_device_list
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def _function(a: Any) -> Any:
    return a + 1, (a * 2).astype(jnp.bfloat16), a.sum()


@pytest.fixture(scope="module")
def stored() -> bytes:
    compiled = jax.jit(_function).lower(jax.device_put(VALUES, VKORE)).compile()
    return compiled.runtime_executable().serialize()


def _inner(stored: bytes) -> bytes:
    """Return the plugin's own part."""
    body = unseal(b"VKSTOR", stored)
    return body[body.index(b"VKEXEC") :]


def _forge(stored: bytes, interface: Any) -> bytes:
    """Return the plugin's part with another interface and right checksums."""
    options, program = executable.unpack(_inner(stored))
    body = unseal(b"VKSIGN", program)
    end = 8 + int.from_bytes(body[:8], "little")
    text = interface if isinstance(interface, bytes) else json.dumps(interface).encode()
    head = len(text).to_bytes(8, "little") + text
    return executable.pack(options, seal(b"VKSIGN", head + body[end:]))


def _load(data: bytes) -> Any:
    return Hooks().deserialize(configure({}), data, b"")


BLAME = "bug in vkore_jax"
RIGHT = asdict(Interface(params=(Extra(),), results=(Extra(), Extra(), Extra())))


def _changed(place: str, index: int, **fields: Any) -> dict[str, Any]:
    out = copy.deepcopy(RIGHT)
    out[place][index].update(fields)
    return out


DAMAGED: dict[str, Any] = {
    "no parameters": {**RIGHT, "params": []},
    "one more": {**RIGHT, "results": [*RIGHT["results"], RIGHT["results"][0]]},
    "a token": _changed("params", 0, token=True),
    "a scalar token": _changed("results", 2, token=True),
    "token is 1": _changed("results", 0, token=1),
    "no such memory": _changed("params", 0, memory_kind="hbm"),
    "memory is a list": _changed("params", 0, memory_kind=["device"]),
    "layout of rank 1": _changed("results", 1, layout="{0}"),
    "layout twice": _changed("results", 1, layout="{0,0}"),
    "no layout": _changed("results", 1, layout="x"),
    "layout with a sign": _changed("results", 1, layout="{1,\u0660}"),
    "a shape": _changed("params", 0, shape=[1 << 40]),
    "a type": _changed("results", 0, pjrt_type=12),
    "a name": {**RIGHT, "name": "x", "donated": [0]},
    "no results": {"params": RIGHT["params"]},
    "a list": [],
    "a number": 7,
    "null": None,
    "strings": {"params": "ab", "results": "cde"},
    "nested": b"[" * 100_000,
    "not JSON": b"{",
    "not text": b"\xff\xfe\x00",
    "nothing": b"",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_interface_is_checked_against_its_program(name: str, stored: bytes) -> None:
    """It cannot say more than the Program leaves open: no shape, type or donation."""
    if name == "a name":  # what nobody reads does no harm
        assert _load(_forge(stored, DAMAGED[name])).donated == ()
        return
    with pytest.raises(VkoreError, match=r"stored interface") as caught:
        _load(_forge(stored, DAMAGED[name]))
    assert not isinstance(caught.value, InternalError)


def test_what_an_interface_may_say(stored: bytes) -> None:
    for kind in MEMORY_KINDS:
        loaded = _load(_forge(stored, _changed("params", 0, memory_kind=kind)))
        assert loaded.params[0][:3] == (11, MEMORY_KINDS.index(kind), (3, 4))
    loaded = _load(_forge(stored, _changed("params", 0, layout="{0,1}")))
    assert loaded.params[0][3] == "{0,1}"
    interface = Interface((Extra(token=True),), (Extra(layout="{}"),))
    assert decode_interface(interface.encode()) == interface


def test_another_device_or_chip(stored: bytes) -> None:
    options, program = executable.unpack(_inner(stored))
    assignment = encode_assignment((3,))
    build = bytes([9 << 3 | 2, len(assignment)]) + assignment
    other = bytes([3 << 3 | 2, len(build)]) + build
    with pytest.raises(VkoreError, match="is for device 3; there are 1"):
        _load(executable.pack(other, program))
    with pytest.raises(VkoreError, match="compiled for chip"):
        Hooks().deserialize(configure({"chip": "tiny"}), _inner(stored), options)


def _mutated(data: bytes, r: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 5))):
        at = r.randrange(len(out))
        match r.randrange(4):
            case 0:
                out[at] = r.randrange(256)
            case 1:
                out[at] ^= 1 << r.randrange(8)
            case 2:
                del out[at : at + r.randrange(1, 9)]
            case _:
                out[at:at] = out[at : at + r.randrange(1, 9)]
    return bytes(out)


def _layers(stored: bytes) -> dict[str, Callable[[bytes], Any]]:
    """Return what to damage, sealed again behind the damage where it has a seal."""
    options, program = executable.unpack(_inner(stored))
    return {
        "all": lambda change: change(stored),
        "options": lambda change: executable.pack(change(options), program),
        "interface": lambda change: _forge(stored, change(json.dumps(RIGHT).encode())),
    }


@pytest.mark.parametrize("layer", ["all", "options", "interface"])
@pytest.mark.parametrize(
    "count", [60, pytest.param(3000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_damage_is_told_or_harmless(layer: str, count: int, stored: bytes) -> None:
    """Mutated bytes: an error of ours that blames the bytes, or the right values."""
    x = jax.device_put(VALUES, VKORE)
    wanted = [np.asarray(v) for v in jax.jit(_function)(x)]
    r = random.Random(7)
    build = _layers(stored)[layer]
    told: list[Exception] = []
    for _ in range(count):
        data = build(lambda part: _mutated(part, r))
        try:
            if layer == "all":
                found = VKORE.client.deserialize_executable(data, DEVICES).execute([x])
                for a, b in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(np.asarray(a), b)
            else:
                _load(data)
        except (VkoreError, jax.errors.JaxRuntimeError) as error:
            told.append(error)
    assert len(told) > count // 4
    ours = [e for e in told if isinstance(e, InternalError) or BLAME in str(e)]
    assert not ours


def test_calls_host_is_stored_nowhere() -> None:
    v = jax.ShapeDtypeStruct((3,), np.float32)
    f = jax.jit(lambda a: jax.pure_callback(lambda t: t, v, a))
    compiled = f.lower(jax.device_put(np.ones(3, np.float32), VKORE)).compile()
    with pytest.raises(jax.errors.JaxRuntimeError, match="cannot be stored"):
        compiled.runtime_executable().serialize()


CACHE = """
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
hits = []
jax.monitoring.register_event_listener(
    lambda e, **k: hits.append(e) if e.endswith('/cache_hits') else None)
x = jax.device_put(np.arange(6, dtype=np.float32))
a, b = np.asarray(jax.jit(lambda v: v * 2)(x)), np.asarray(jax.jit(lambda v: v[:3])(x))
assert a.tolist() == [0, 2, 4, 6, 8, 10] and b.tolist() == [0, 1, 2], (a, b)
print('HITS', len(hits))
"""


def test_an_entry_under_another_key_is_no_result(tmp_path: Path) -> None:
    """JAX names its files by key; a file that was copied is told and compiled anew."""
    folder = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    assert "HITS 0" in run_python(CACHE, **folder)
    one, two = sorted(tmp_path.glob("jit__lambda*-cache"))
    shutil.copy(one, two)
    text = run_python(CACHE, **folder)
    assert "was stored under another key" in text
    assert "HITS 1" in text


def test_the_program_is_the_only_interface(stored: bytes) -> None:
    """What a caller sees of a loaded program is what its Program says."""
    loaded = _load(_inner(stored)).program
    assert isinstance(loaded, backend._Loaded)
    program = loaded.program
    assert [p.shape for p in loaded.params] == [p.shape for p in program.params]
    types = [r.dtype.pjrt for r in program.results]
    assert [r.pjrt_type for r in loaded.results] == types
    assert (loaded.name, loaded.donated) == (program.name, program.donated)
