"""The decoder of CompileOptionsProto, against jaxlib's own encoder."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxlib import xla_client

from vkore_jax import _jax_compat
from vkore_jax.errors import InvalidArgument
from vkore_jax.pjrt.client import configure, describe_error
from vkore_jax.pjrt.options import decode_options, encode_assignment


def _encode(assignment: np.ndarray) -> bytes:
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = assignment.shape
    build.device_assignment = xla_client.DeviceAssignment.create(assignment)
    build.use_spmd_partitioning = True
    return options.SerializeAsString()


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 300))
def test_decodes_what_jaxlib_encodes(
    replicas: int, partitions: int, first: int
) -> None:
    ids = np.arange(first, first + replicas * partitions)
    options = decode_options(_encode(ids.reshape(replicas, partitions)))
    assert (options.num_replicas, options.num_partitions) == (replicas, partitions)
    assert options.device_ids == tuple(ids)
    assert options.num_devices == replicas * partitions
    assert options.use_spmd


def test_empty_options_mean_one_device() -> None:
    options = decode_options(b"")
    assert (options.num_devices, options.device_id) == (1, 0)


@pytest.mark.parametrize("data", [b"\x1a\xff", b"\x1a\x05ab", b"\xff", b"\x0b"])
def test_damaged_options_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="compile options"):
        decode_options(data)


@pytest.mark.parametrize("ids", [(0,), (3,), (200,), (4, 1, 300)])
def test_device_assignment(ids: tuple[int, ...]) -> None:
    # A DeviceAssignmentProto is field 9 of ExecutableBuildOptionsProto, field 3 here.
    row = encode_assignment(ids)
    build = b"\x4a" + bytes([len(row)]) + row
    assert decode_options(b"\x1a" + bytes([len(build)]) + build).device_ids == ids


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NUM_DEVICES", "0"), ("NUM_DEVICES", "two"), ("DRAM_BYTES", "-4")],
)
def test_bad_numbers_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"VKORE_{variable}", value)
    with pytest.raises(InvalidArgument, match=f"VKORE_{variable}.*{value}"):
        configure({})


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKORE_NUM_DEVICES", "3")
    monkeypatch.setenv("VKORE_CHIP", "tiny")
    config = configure({"num_devices": "2"})
    assert (config.num_devices, config.chip.name) == (2, "tiny")
    assert config.dram_bytes == config.chip.dram_bytes


def test_chip_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKORE_CHIP", "nosuch")
    with pytest.raises(InvalidArgument, match="nosuch"):
        configure({})


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InvalidArgument("bad"), 3, "bad"),
        (jax.errors.JaxRuntimeError("UNIMPLEMENTED: no such op"), 12, "no such op"),
        (jax.errors.JaxRuntimeError("something"), 13, "something"),
        (KeyboardInterrupt(), 1, "KeyboardInterrupt: "),
        (
            ValueError("oops"),
            13,
            "ValueError: oops; this is a bug in vkore_jax, please report it with this "
            "message",
        ),
    ],
)
def test_error_codes(error: BaseException, code: int, text: str) -> None:
    assert describe_error(error) == (code, text)


@pytest.mark.parametrize(
    ("jax_version", "jaxlib_version", "good"),
    [
        ("0.10.2", "0.10.2", True),
        ("0.12.0", "0.12.0.1", True),
        ("0.12.9.dev20260101", "0.12.9", True),
        ("0.10.1", "0.10.1", False),
        ("0.13.0", "0.13.0", False),
        ("0.10.2", "0.13.1", False),
        ("1.0", "1.0", False),
    ],
)
def test_version_range(jax_version: str, jaxlib_version: str, good: bool) -> None:
    problem = _jax_compat.version_problem(jax_version, jaxlib_version)
    assert (problem is None) == good
    if problem is not None:
        assert jax_version in problem
        assert jaxlib_version in problem


@pytest.mark.parametrize(("module", "name"), _jax_compat.REQUIRED)
def test_private_names_exist(module: str, name: str) -> None:
    assert _jax_compat._has(module, name)
