"""Profiles from TOML files: what they accept, and errors that teach."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from vkore_jax.chips import CHIPS, VK1, Chip, files, get_chip
from vkore_jax.errors import InvalidArgument
from vkore_jax.pjrt.client import configure

GOOD = """
name = "mine"
base = "vk1"
matrix_dtypes = ["f16", "i8"]
scratchpad_bytes = 8_388_608
storage = "bf16"

[mac_rates]
i8 = 4

[precision]
DEFAULT = "fp16x1"
HIGH = "fp16x2"
HIGHEST = "int8x4"

[sources]
scratchpad_bytes = "data sheet, page 3"
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    files.clear_loaded_profiles()


def write(folder: Path, text: str) -> str:
    path = folder / "chip.toml"
    path.write_text(text)
    return str(path)


def test_a_file_changes_a_base(tmp_path: Path) -> None:
    chip = get_chip(write(tmp_path, GOOD))
    assert chip.name == "mine"
    assert chip.matrix_dtypes == ("f16", "i8")
    assert chip.mac_rate("i8") == 4
    assert chip.mac_rate("f16") == 1
    assert chip.precision["HIGHEST"] == "int8x4"
    assert chip.dram_bytes == VK1.dram_bytes
    assert chip.sources["scratchpad_bytes"] == "data sheet, page 3"
    assert "dram_bytes" in chip.sources
    assert get_chip("mine") is chip  # as a program of this process names it


def test_the_source_of_a_changed_number_is_gone(tmp_path: Path) -> None:
    text = 'name = "mine"\nbase = "vk1"\nscratchpad_bytes = 8_388_608\n'
    assert "scratchpad_bytes" not in get_chip(write(tmp_path, text)).sources


def test_a_whole_profile_needs_no_base(tmp_path: Path) -> None:
    lines = [
        files.example(name, getattr(VK1, name))
        for name in files.Chip.__dataclass_fields__
        if name not in ("name", "sources")
    ]
    chip = get_chip(write(tmp_path, "\n".join(['name = "mine"', *lines])))
    assert chip.clock_hz == VK1.clock_hz
    assert dict(chip.precision) == dict(VK1.precision)


def test_every_profile_can_be_a_base(tmp_path: Path) -> None:
    for name in CHIPS:
        chip = get_chip(write(tmp_path, f'name = "my-{name}"\nbase = "{name}"\n'))
        assert chip.digest != CHIPS[name].digest


def test_the_client_takes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, GOOD)
    monkeypatch.setenv("VKORE_CHIP", path)
    config = configure({})
    assert config.chip.name == "mine"
    # Compiled programs are stored under the version: it must change with the numbers.
    other = configure({"chip": write(tmp_path, GOOD.replace("8_388_608", "4_194_304"))})
    assert other.platform_version != config.platform_version
    assert configure({"chip": "vk1"}).platform_version.endswith("(chip vk1)")


def test_stored_programs_depend_on_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's compilation cache has the version in its keys, but not our variables."""
    versions = set()
    for value in ("1", "0"):
        monkeypatch.setenv("VKORE_KERNELS", value)
        versions.add(configure({}).platform_version)
    assert len(versions) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not a TOML file: Invalid value"),
        ('base = "vk1"', 'name is missing; for example name = "my-npu"'),
        (
            'name = "x"\nclock_mhz = 3',
            "clock_mhz: .*did you mean 'clock_hz'.*fields are",
        ),
        ('name = "x"\nbase = "vk2"', "base: 'vk2' is not one of.*did you mean 'vk1'"),
        ('name = "x"\nclock_hz = 3', "mxu_rows, mxu_cols.*missing.*\n  mxu_rows = 128"),
        (
            'name = "x"\nbase = "vk1"\nclock_hz = "1 GHz"',
            "clock_hz must be a whole number, found '1 GHz'; for example clock_hz = ",
        ),
        (
            'name = "x"\nbase = "vk1"\nclock_hz = true',
            "must be a whole number, found Tr",
        ),
        ('name = "x"\nbase = "vk1"\nmxu_rows = 0', "mxu_rows must be positive, got 0"),
        (
            'name = "x"\nbase = "vk1"\nmatrix_dtypes = "bf16"',
            r"must be a list of texts, found 'bf16'; .* = \[\"bf16\", \"i8\"\]",
        ),
        (
            'name = "x"\nbase = "vk1"\nmatrix_dtypes = ["fp16"]',
            "matrix_dtypes: 'fp16' is not one of bf16, f16, .*did you mean 'f16'",
        ),
        (
            'name = "x"\nbase = "vk1"\nmatrix_dtypes = ["i8"]',
            "precision.DEFAULT: 'bf16x1' is not one of int8x1, int8x2, int8x3, int8x4",
        ),
        (
            'name = "x"\nbase = "vk1"\n[precision]\nDEFAULT = "bf16"',
            "precision must name DEFAULT, HIGH, HIGHEST",
        ),
        (
            'name = "x"\nbase = "vk1"\n[precision]\nLOW = "bf16x1"',
            "precision: 'LOW' is not one of DEFAULT, HIGH, HIGHEST",
        ),
        (
            'name = "x"\nbase = "vk1"\n[mac_rates]\nf16 = 2',
            "mac_rates: 'f16' is not one of bf16, i8",
        ),
        (
            'name = "x"\nbase = "vk1"\n[mac_rates]\ni8 = 0',
            "mac_rates.i8 must be positive, got 0",
        ),
        (
            'name = "x"\nbase = "vk1"\n[mac_rates]\ni8 = "2"',
            "mac_rates must be a table of whole numbers",
        ),
        (
            'name = "x"\nbase = "vk1"\n[sources]\nclock = "me"',
            "sources: 'clock' is not one of.*did you mean 'clock_hz'",
        ),
        (
            'name = "x"\nbase = "vk1"\nstorage = "fp16"',
            "storage: 'fp16' is not one of f64",
        ),
        ('name = "vk1"\nbase = "atom"', "'vk1' is a profile of this package; choose"),
        (
            'name = "x"\nbase = "vk1"\nscratchpad_bytes = 4096',
            "scratchpad_bytes=4096 cannot hold",
        ),
    ],
)
def test_errors_teach(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"(?s)chip.toml: .*{message}"):
        get_chip(write(tmp_path, text))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"nowhere\.toml: No such file"):
        get_chip(str(tmp_path / "nowhere.toml"))
    with pytest.raises(InvalidArgument, match=r"unknown chip 'vk9'.*ends in \.toml"):
        get_chip("vk9")


WRONG = ("{}", "[]", "0", "nan", "true", "[1]", "[[]]", "{a = []}", "1979-05-27", "''",
         "1e400", "'''a\nb'''", '"\\u0000"', "1" * 40)  # fmt: skip
LEGAL = {("mac_rates", "{}"), ("sources", "{}"), *(("description", v) for v in WRONG)}


@pytest.mark.parametrize("key", [x.name for x in dataclasses.fields(Chip)] + ["base"])
def test_every_value_of_a_wrong_type_is_refused(tmp_path: Path, key: str) -> None:
    rest = "" if key == "name" else 'name = "mine"\n'
    rest += "" if key == "base" else 'base = "vk1"\n'
    for value in WRONG:
        path = write(tmp_path, f"{rest}{key} = {value}\n")
        if (key, value) in LEGAL:
            continue
        with pytest.raises(InvalidArgument, match=r"chip\.toml"):
            get_chip(path)
