"""The commands as a user types them, each in a process of its own on the CPU."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from train import run
from train.step import TrainState

ROOT = Path(__file__).parents[2]
# Without what only the step cares about: each process compiles for itself.
FAST = ("--model.dropout=0", "--micro_batches=1")
ENV = {
    **os.environ,
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": str(ROOT),
    "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiling is all the time
}


def command(cwd: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, args)],
        cwd=cwd, env=ENV, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(
    tiny_args: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    cwd = tmp_path_factory.mktemp("cli")
    return cwd, command(cwd, "train", *tiny_args, *FAST, "--steps", 6, "--log_every", 2)


def test_a_run_leaves_everything_in_the_default_directory(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    cwd, done = finished
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    folder = cwd / "runs" / "smoke-cpu"
    names = {p.name for p in folder.iterdir()}
    assert names == {
        "metrics.jsonl", "run.json", "loss.png", "sample.txt", "checkpoints",
        "tokenizer.json",
    }  # fmt: skip
    lines = [json.loads(t) for t in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert {"loss", "learning_rate", "grad_norm", "timing"} <= line.keys()
        assert {"seconds", "tokens_per_s"} <= line["timing"].keys()
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "Once upon a time" in (folder / "sample.txt").read_text()


def test_a_run_describes_itself(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    cwd, done = finished
    facts = json.loads((cwd / "runs" / "smoke-cpu" / "run.json").read_text())
    assert facts["backend"] == facts["device_kind"] == "cpu"
    assert facts["config"]["model.d_model"] == 16
    assert facts["ledger"] is None
    assert {"python", "jax", "jaxlib", "flax", "optax"} <= facts["versions"].keys()
    for key in ("hash", "order_hash", "tokenizer_hash"):
        assert len(facts["data"][key]) == 64
    assert facts["result"]["steps"] == 6
    assert "step      2/6  loss" in done.stdout
    assert "written to runs/smoke-cpu" in done.stdout


def test_text_is_written_from_a_run_directory(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    cwd, _ = finished
    args = ("train.sample", "--checkpoint", "runs/smoke-cpu", "--prompt", "One day")
    done = command(cwd, *args, "--tokens", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("One day")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "smoke", "--stps", "3"], "did you mean 'steps'?"),
        (["train.sample", "--checkpoint", "absent"], "nothing at absent"),
    ],
)
def test_mistakes_end_with_one_line_and_status_2(
    tmp_path: Path, args: list[str], message: str
) -> None:
    done = command(tmp_path, *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_cpu_run_imports_nothing_of_vkore() -> None:
    code = (
        "import sys, train.run, train.sample\n"
        "print([m for m in sys.modules if m.startswith('vkore')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=ENV, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_once_and_then_acts_as_before(number: signal.Signals) -> None:
    def raise_it(which: int, _frame: object) -> None:
        raise InterruptedError(which)

    before = signal.signal(number, raise_it)
    try:
        with run.interrupt_flag() as interrupted:
            assert not interrupted
            os.kill(os.getpid(), number)
            assert interrupted == [number]
            with pytest.raises(InterruptedError):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is raise_it
    finally:
        signal.signal(number, before)


def test_ctrl_c_saves_a_checkpoint_and_leaves(
    tmp_path: Path, tiny_args: list[str]
) -> None:
    args = ["train", *tiny_args, *FAST, "--out", str(tmp_path), "--steps", "100000"]
    process = subprocess.Popen(
        [sys.executable, "-m", *args],
        cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    metrics = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size > 0):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "checkpoint saved" in out
    assert err == ""
    steps = [json.loads(t)["step"] for t in metrics.read_text().splitlines()]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [str(steps[-1])]


def test_out_must_be_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for out in (file, file / "below"):
        for flags in ([], ["--resume"]):
            assert run.main(["smoke", "--out", str(out), *flags]) == 2
            error = capsys.readouterr().err
            assert str(out) in error or "file" in error
            assert error.count("\n") == 1
    assert file.read_text() == "kept"


def test_a_full_disk_is_one_line(
    tiny_args: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metrics.jsonl")

    monkeypatch.setattr(run.report, "write_json", full)
    state = TrainState(np.int32(0), None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(run, "init_state", lambda config: state)
    assert run.main([*tiny_args, "--out", str(tmp_path)]) == 2
    assert capfd.readouterr().err == (
        "error: cannot write: [Errno 28] No space left on device: 'metrics.jsonl'\n"
    )
