"""The `vkore` command, called as a function, and once as a user would."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.isa_cases import dense
from vkore_jax import __version__, docs_gen, dtypes, dump, isa
from vkore_jax.asm import disassemble
from vkore_jax.cli import main
from vkore_jax.isa import Segment
from vkore_jax.program import Buffer, Location, Program, TensorSpec, decode


def reverse_program(dtype: dtypes.DType = dtypes.F32) -> Program:
    """Build a program that reverses the rows of a (4, 8) tensor."""
    nbytes = 32 * dtype.itemsize
    src = isa.View(0, dtype, 24, (4, 8), (-8, 1))
    return Program(
        name="jit_reverse",
        chip="vk1",
        scratchpad_bytes=0,
        arena_bytes=0,
        buffers=(
            Buffer(Segment.ARGUMENT, 0, nbytes),
            Buffer(Segment.RESULT, 0, nbytes),
        ),
        constants=b"",
        params=(TensorSpec(0, dtype, (4, 8), ""),),
        results=(TensorSpec(1, dtype, (4, 8), ""),),
        donated=(),
        locations=(Location("copy", "", 0, ""),),
        block=(isa.Located(isa.Copy(dense(1, 4, 8, dtype=dtype), src), 0),),
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "reverse.vkp"
    path.write_bytes(reverse_program().encoded)
    return path


@pytest.mark.parametrize(
    ("command", "make"),
    [
        ("isa", docs_gen.isa_manual),
        ("ops", docs_gen.ops_table),
        ("chips", docs_gen.chips_table),
    ],
)
def test_tables(command: str, make: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(make)
    assert main([command]) == 0
    assert capsys.readouterr().out == make()


def test_dis_and_asm(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dis", "--full", str(saved)]) == 0
    text = capsys.readouterr().out
    assert text == disassemble(reverse_program())
    listing, again = tmp_path / "p.txt", tmp_path / "again.vkp"
    listing.write_text(text)
    assert main(["asm", str(listing), "-o", str(again)]) == 0
    assert again.read_bytes() == saved.read_bytes()
    assert decode(again.read_bytes()).fingerprint[:16] in capsys.readouterr().out


def with_constants() -> Program:
    """Build a program with constants too long for a short listing."""
    program, data = reverse_program(), bytes(range(256)) * 2
    row = Buffer(Segment.CONSTANT, 0, len(data))
    return replace(program, buffers=(*program.buffers, row), constants=data)


@pytest.mark.parametrize("flags", [[], ["--full"]])
def test_what_dis_prints_assembles(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Long constants are printed, behind everything else, unless told otherwise."""
    saved, again = tmp_path / "long.vkp", tmp_path / "again.vkp"
    saved.write_bytes(with_constants().encoded)
    assert main(["dis", *flags, str(saved)]) == 0
    text = capsys.readouterr().out
    assert text.index("  block:") < text.index("  constants:")
    (tmp_path / "p.txt").write_text(text)
    assert main(["asm", str(tmp_path / "p.txt"), "-o", str(again)]) == 0
    assert again.read_bytes() == saved.read_bytes()


def test_a_short_listing_is_not_assembled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, again = tmp_path / "long.vkp", tmp_path / "again.vkp"
    saved.write_bytes(with_constants().encoded)
    assert main(["dis", "--short", str(saved)]) == 0
    text = capsys.readouterr().out
    assert "elided nbytes=512" in text
    (tmp_path / "p.txt").write_text(text)
    assert main(["asm", str(tmp_path / "p.txt"), "-o", str(again)]) == 2
    assert "without --short" in capsys.readouterr().err
    assert not again.exists()


def test_dis_of_two_files(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.vkp"
    other.write_bytes(with_constants().encoded)
    assert main(["dis", str(saved), str(other)]) == 0
    texts = [disassemble(p) for p in (reverse_program(), with_constants())]
    wanted = f"; {saved}\n{texts[0]}; {other}\n{texts[1]}"
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize("engine", ["fast", "golden"])
@pytest.mark.parametrize("dtype", [dtypes.F32, dtypes.BF16, dtypes.I32])
def test_run(
    engine: str,
    dtype: dtypes.DType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program, x = tmp_path / "p.vkp", tmp_path / "x.npy"
    program.write_bytes(reverse_program(dtype).encoded)
    array = np.arange(32).reshape(4, 8).astype(dtype.numpy)
    np.save(x, array)
    out = tmp_path / "out"
    args = ["run", str(program), "--engine", engine, "--input", str(x)]
    assert main([*args, "--output", str(out)]) == 0
    found = np.load(out / "result_0.npy").view(dtype.numpy)
    np.testing.assert_array_equal(found, array[::-1])
    assert f"result 0: {dtype.short}[4,8] min 0 max 31" in capsys.readouterr().out


MODULE = """
module @jit_scale {
  func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %two = stablehlo.constant dense<2.0> : tensor<4x8xf32>
    %y = stablehlo.multiply %x, %two : tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
"""


@pytest.mark.parametrize("chip", ["vk1", "tiny"])
def test_compile_and_run(
    chip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, program = tmp_path / "m.mlir", tmp_path / "m.vkp"
    module.write_text(MODULE)
    assert main(["compile", str(module), "-o", str(program), "--chip", chip]) == 0
    assert decode(program.read_bytes()).chip == chip
    x = tmp_path / "x.npy"
    np.save(x, np.full((4, 8), 3, np.float32))
    assert main(["run", str(program), "--input", str(x)]) == 0
    assert "result 0: f32[4,8] min 6 max 6 mean 6" in capsys.readouterr().out


def test_random_inputs_are_seeded(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for seed in ("1", "1", "2"):
        assert main(["run", str(saved), "--random", seed]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["dis", "{missing}"], "No such file"),
        (["dis", "{text}"], "InvalidProgram: not a vkore program"),
        (["asm", "{text}", "-o", "{missing}"], "InvalidProgram: assembly line 1"),
        (["asm", "{program}", "-o", "{missing}"], "not UTF-8|InvalidProgram"),
        (["run", "{program}"], r"takes 1 parameters \(f32\[4,8\]\), 0 given"),
        (["run", "{program}", "--input", "{text}"], "not a .npy file"),
        (
            ["run", "{program}", "--input", "{wrong}"],
            r"needs f32\[4,8\], found int64\[3\]",
        ),
        (
            ["run", "{program}", "--input", "{wrong}", "--input", "{wrong}"],
            "2 inputs given, 'jit_reverse' takes 1",
        ),
    ],
)
def test_errors_are_one_message(
    args: list[str],
    message: str,
    saved: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, wrong = tmp_path / "text", tmp_path / "wrong.npy"
    text.write_text("hello, this is no program at all; it is some text, of 48 bytes")
    np.save(wrong, np.arange(3))
    names = {
        "missing": str(tmp_path / "none" / "x"),
        "text": str(text),
        "program": str(saved),
        "wrong": str(wrong),
    }
    assert main([a.format(**names) for a in args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vkore: ")
    assert re.search(message, captured.err)


def test_usage_error_is_status_two() -> None:
    with pytest.raises(SystemExit) as e:
        main(["nothing"])
    assert e.value.code == 2


def test_as_a_user(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vkore_jax.cli", "dis", str(saved)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "copy dst=%1:f32[4,8] src=%0:f32[4,8]{-8,1}+24 @0" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "vkore_jax.cli", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"vkore {__version__}\n"


def test_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = reverse_program()
    assert dump.dump(program) is None
    monkeypatch.setenv("VKORE_DUMP", str(tmp_path / "made" / "here"))
    path = dump.dump(program)
    assert path is not None
    assert path.name == f"jit_reverse-{program.fingerprint[:16]}.vkp"
    assert decode(path.read_bytes()) == program
    assert path.with_suffix(".txt").read_text() == disassemble(program)
    assert len(list(path.parent.iterdir())) == 2
