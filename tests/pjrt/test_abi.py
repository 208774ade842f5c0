"""The C API table: versions, slots, sizes (the compiler asserts field offsets)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vkore_jax import callbacks, dtypes
from vkore_jax.errors import InvalidProgram, VersionMismatch
from vkore_jax.pjrt import _bridge, artifact, executable

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "vkore_jax/pjrt/csrc/abi.h"
FACTS = ROOT.parent / "shared/design/pjrt_abi.txt"

SIZES = {
    "PJRT_Error_Destroy_Args": 24,
    "PJRT_Client_Create_Args": 88,
    "PJRT_Client_BufferFromHostBuffer_Args": 120,
    "PJRT_Buffer_MemoryLayout": 76,
    "PJRT_Buffer_IsDeleted_Args": 25,
    "PJRT_LoadedExecutable_Execute_Args": 80,
    "PJRT_ExecuteOptions": 144,
    "PJRT_NamedValue": 56,
}


def _declared() -> dict[str, int]:
    """Return the sizes that abi.h asserts."""
    found = re.findall(r"^ABI(?:_RAW)?\((\w+), (\d+),", HEADER.read_text(), re.M)
    return {name: int(size) for name, size in found}


def test_version_and_slots() -> None:
    assert _bridge.abi() == (0, 98, 132)


@pytest.mark.parametrize("name", SIZES)
def test_well_known_sizes(name: str) -> None:
    assert _declared()[name] == SIZES[name]


@pytest.mark.skipif(not FACTS.exists(), reason="no table of interface facts here")
def test_all_sizes_and_slots_agree_with_the_interface() -> None:
    lines = FACTS.read_text().splitlines()
    facts = {
        line.split()[1]: int(line.split()[2])
        for line in lines
        if line.startswith(("struct ", "union "))
    }
    declared = _declared()
    assert len(declared) > 90
    assert {n: facts[n] for n in declared} == declared
    slots = next(line for line in lines if line.startswith("@api")).split()[1:]
    ours = re.findall(
        r"\b[XU]\((\w+)\)", HEADER.read_text().split("#define VK_SLOTS")[1]
    )
    assert [f"PJRT_{name}" for name in ours] == slots[: len(ours)]


def test_element_types_agree_with_the_bridge() -> None:
    source = (HEADER.parent / "buffer.c").read_text()
    sizes = dict(re.findall(r"\[(\d+)\] = (\d+)", source))
    for dtype in dtypes.ALL:
        assert int(sizes[str(dtype.pjrt)]) == dtype.itemsize, dtype
    extra = {int(n) for n in sizes} - {d.pjrt for d in dtypes.ALL}
    assert extra == {artifact.TOKEN_TYPE}


def test_memory_kinds_agree_with_the_bridge() -> None:
    source = (HEADER.parent / "device.c").read_text()
    block = source.split("vk_memory_kinds[VK_NUM_KINDS] = {")[1].split("}")[0]
    assert tuple(re.findall(r'"(\w+)"', block)) == executable.MEMORY_KINDS


def test_container_round_trip_and_damage() -> None:
    data = executable.pack(b"options", b"program")
    assert executable.unpack(data) == (b"options", b"program")
    with pytest.raises(InvalidProgram, match="not a stored vkore executable"):
        executable.unpack(b"something else entirely, long enough to be read")
    with pytest.raises(InvalidProgram, match="checksum"):
        executable.unpack(data[:-1] + b"?")
    with pytest.raises(VersionMismatch, match=r"version 9.*reads version 2"):
        executable.unpack(data[:6] + b"\x09" + data[7:])


def test_callback_table_forgets() -> None:
    table = callbacks.CallbackTable()
    entry = table.add(lambda *a: a)
    assert table.get(entry.index)(1) == (1,)
    number = entry.index
    del entry
    assert len(table) == 0
    with pytest.raises(InvalidProgram, match="not registered"):
        table.get(number)
