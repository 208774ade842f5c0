"""Chip profiles: invariants, derived facts, sources."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from vkore_jax import dtypes
from vkore_jax.chips import CHIPS, DEFAULT_CHIP, TINY, VK1, Chip, get_chip
from vkore_jax.errors import InvalidArgument
from vkore_jax.isa import Strategy


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS.keys())
def test_profiles_are_consistent(chip: Chip) -> None:
    names = {x.name for x in dataclasses.fields(chip)}
    assert CHIPS[chip.name] is chip
    assert chip.description
    assert set(chip.sources) <= names
    assert chip.peak_flops == 2 * chip.mxu_rows * chip.mxu_cols * chip.clock_hz
    for short in chip.matrix_dtypes:
        assert dtypes.by_short(short).short == short
    assert set(chip.precision) == {"DEFAULT", "HIGH", "HIGHEST"}
    for strategy in chip.precision.values():
        assert strategy.upper() in Strategy.__members__
    assert chip.scratchpad_bytes % chip.scratchpad_align_bytes == 0
    assert chip.dram_bytes % chip.dram_align_bytes == 0
    # Double-buffered operand tiles and an f32 output tile of one array pass must fit.
    tile = chip.mxu_rows * chip.mxu_cols
    assert chip.scratchpad_bytes >= 2 * 2 * 2 * tile + 4 * tile
    assert chip.accumulator_bytes >= 4 * tile


def test_lookup() -> None:
    assert get_chip() is CHIPS[DEFAULT_CHIP]
    assert get_chip("tiny") is TINY
    with pytest.raises(InvalidArgument, match=r"unknown chip 'vk9'.*tiny, vk1"):
        get_chip("vk9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scratchpad_align_bytes": 48}, "power of two, got 48"),
        ({"dram_align_bytes": 0}, "power of two, got 0"),
        ({"clock_hz": 0}, "clock_hz must be positive, got 0"),
        ({"mxu_rows": -1}, "mxu_rows must be positive"),
        ({"scratchpad_bytes": 1024}, "scratchpad_bytes=1024 cannot hold"),
    ],
)
def test_invariants(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        dataclasses.replace(VK1, **change)


def test_rates_of_element_types() -> None:
    atom = CHIPS["atom"]
    cells = atom.mxu_rows * atom.mxu_cols
    assert atom.array_cycles({"f16": 10 * cells, "i8": 8 * cells}) == 10 + 8 / 4
    # The published peaks, in 2 * MAC/s.
    for name, dtype, tera in (
        ("atom", "f16", 32),
        ("atom", "i8", 128),
        ("warboy", "i8", 64),
        ("rngd", "bf16", 256),
        ("rngd", "f8E4M3FN", 512),
        ("rngd", "i8", 512),
    ):
        peak = CHIPS[name].peak_flops * CHIPS[name].mac_rate(dtype)
        assert peak == pytest.approx(tera * 1e12, rel=0.03)


def test_what_stays_in_dram() -> None:
    narrow = CHIPS["vk1-bf16"]
    assert narrow.stores(dtypes.F32, ())
    assert narrow.stores(dtypes.F32, (1, 1))
    assert not narrow.stores(dtypes.F32, (2,))
    assert not narrow.stores(dtypes.C64, (2,))
    assert narrow.stores(dtypes.F16, (2,))
    assert narrow.stores(dtypes.I64, (2,))
    assert VK1.stores(dtypes.C128, (2,))


def test_profiles_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.clock_hz = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        CHIPS["mine"] = TINY  # pyright: ignore[reportIndexIssue]
