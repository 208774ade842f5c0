"""The function table itself: every slot answers; donation as jaxlib may ask for it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.pjrt.capi import SLOTS, UNIMPLEMENTED, CallError, Device, Table

COUNT = 2000
"""Elements: too many for a small array, which would be copied in any case."""
VALUES = np.arange(COUNT, dtype=np.float32)

ADD = f"""module @add {{ func.func public @main(
    %a: tensor<{COUNT}xf32>,
    %b: tensor<{COUNT}xf32> {{jax.buffer_donor = true}},
    %c: tensor<{COUNT}xf32>) -> tensor<{COUNT}xf32> {{
  %0 = stablehlo.add %a, %b : tensor<{COUNT}xf32>
  %1 = stablehlo.add %0, %c : tensor<{COUNT}xf32>
  return %1 : tensor<{COUNT}xf32> }} }}"""


@pytest.fixture(scope="module")
def table() -> Table:
    return Table()


@pytest.fixture(scope="module")
def device(table: Table) -> Device:
    return Device(table)


@pytest.fixture(scope="module")
def add(device: Device) -> int:
    return device.compile(ADD)


def test_what_is_not_implemented_says_so(table: Table) -> None:
    """An error, never a jump to nowhere, also behind the table's end."""
    missing = [i for i, (kind, _) in enumerate(SLOTS) if kind == "U"]
    assert len(SLOTS) == table.count
    for number in (*missing, table.count, table.count + 5):
        with pytest.raises(CallError, match="vkore") as caught:
            table(number, 0, 0, 0, 0, 0, 0)
        assert caught.value.code == UNIMPLEMENTED


def test_news_of_other_processes_are_taken(table: Table, device: Device) -> None:
    """jaxlib ends the process when this fails."""
    infos = (ctypes.c_uint64 * 12)(48, 0, 0, 1, 2, 0, 48, 0, 1, 1, 2, 0)
    table("Client_UpdateGlobalProcessInfo", device.client, infos, 2)


@pytest.mark.parametrize(
    ("keep", "deleted"),
    [((), True), ((1,), False), ((0,), True), ((2, 1), False)],
    ids=str,
)
def test_what_must_not_be_donated(
    keep: tuple[int, ...], deleted: bool, device: Device, add: int
) -> None:
    buffers = [device.put(VALUES + i) for i in range(3)]
    for _ in range(1 + (not deleted)):  # what is kept can be used again
        (out,) = device.execute(add, buffers, 1, keep)
        assert device.error(out) == ""
        np.testing.assert_array_equal(device.get(out, COUNT), 3 * VALUES + 3)
    assert [device.is_deleted(b) for b in buffers] == [False, deleted, False]
    if not deleted:
        np.testing.assert_array_equal(device.get(buffers[1], COUNT), VALUES + 1)


def test_a_view_keeps_donated_bytes(table: Table, device: Device, add: int) -> None:
    """The engine overwrites what it consumes: not what somebody looks at."""
    buffers = [device.put(VALUES + i) for i in range(3)]
    table("Buffer_IncreaseExternalReferenceCount", buffers[1])
    name = "Buffer_OpaqueDeviceMemoryDataPointer"
    address = table(name, buffers[1], 0)[1]
    view = np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(address))
    (out,) = device.execute(add, buffers, 1)
    assert device.is_deleted(buffers[1])
    np.testing.assert_array_equal(device.get(out, COUNT), 3 * VALUES + 3)
    np.testing.assert_array_equal(view, VALUES + 1)
    del view
    table("Buffer_DecreaseExternalReferenceCount", buffers[1])


@pytest.mark.parametrize(("twin", "other"), [(0, 2), (2, 0)])
def test_a_donated_buffer_is_one_argument(
    twin: int, other: int, device: Device, add: int
) -> None:
    buffers = [device.put(VALUES + i) for i in range(3)]
    buffers[twin] = buffers[1]
    (out,) = device.execute(add, buffers, 1)
    assert f"argument 1 is donated, but the same buffer is also argument {twin}" in (
        device.error(out)
    )
    assert not device.is_deleted(buffers[1])
    buffers[twin] = buffers[other]  # what is not donated may be several
    (out,) = device.execute(add, buffers, 1)
    wanted = VALUES + 1 + 2 * (VALUES + other)
    np.testing.assert_array_equal(device.get(out, COUNT), wanted)


@pytest.mark.parametrize("shape", [(COUNT - 1,), (COUNT, 1), (2, COUNT // 2)], ids=str)
def test_arguments_have_the_programs_types(
    shape: tuple[int, ...], device: Device, add: int
) -> None:
    """JAX sees to it; an executable that was stored for something else does not."""
    wrong = np.zeros(shape, np.float32)
    buffers = [device.put(VALUES), device.put(VALUES), device.put(wrong)]
    (out,) = device.execute(add, buffers, 1)
    text = ",".join(map(str, shape))
    assert f"argument 2 of add is f32[{text}], the program takes f32[2000]" in (
        device.error(out)
    )
    assert not device.is_deleted(buffers[1])
