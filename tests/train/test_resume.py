"""Runs that stop and go on: bitwise the same numbers, and nothing lost."""

import json
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from train import report
from train.checkpoint import Checkpoints
from train.config import ConfigError
from train.step import TrainState

STEPS = 10


@pytest.fixture(scope="module")
def whole(
    run_tiny: Callable[..., int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run of ten steps without interruption."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert run_tiny("--steps", STEPS, "--out", out) == 0
    return out


@pytest.fixture(scope="module")
def resumed(
    run_tiny: Callable[..., int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same run, stopped after three steps, killed later, and resumed."""
    out = tmp_path_factory.mktemp("runs") / "resumed"
    first = ("--steps", STEPS, "--out", out, "--stop_after")
    assert run_tiny(*first, 3) == 0
    assert not (out / "sample.txt").exists()
    path = out / "metrics.jsonl"
    killed = '{"step": 4, "loss": 9.0, "timing": {}}\n{"step": 5, "lo'  # a torn line
    path.write_text(path.read_text() + killed)
    assert run_tiny("--steps", STEPS, "--out", out, "--resume") == 0
    return out


def numbers(run: Path) -> list[dict]:
    lines = report.read_metrics(run / "metrics.jsonl")
    return [{k: v for k, v in m.items() if k != "timing"} for m in lines]


def test_metrics_are_equal_to_the_last_bit(whole: Path, resumed: Path) -> None:
    assert [m["step"] for m in numbers(whole)] == list(range(1, STEPS + 1))
    assert numbers(resumed) == numbers(whole)
    evaluated = [m["step"] for m in numbers(whole) if "eval_loss" in m]
    assert evaluated == [4, 8, 10]


def test_states_are_equal_to_the_last_bit(whole: Path, resumed: Path) -> None:
    with Checkpoints(whole) as a, Checkpoints(resumed) as b:
        assert a.latest_step == b.latest_step == STEPS
        left, right = a.arrays(), b.arrays()
    assert left.keys() == right.keys()
    assert len(left) > 30
    for key in left:
        assert left[key].dtype == right[key].dtype
        assert left[key].tobytes() == right[key].tobytes(), key


def test_samples_and_records_agree(whole: Path, resumed: Path) -> None:
    assert (whole / "sample.txt").read_text() == (resumed / "sample.txt").read_text()
    records = [json.loads((run / "run.json").read_text()) for run in (whole, resumed)]
    for key in ("data", "versions", "n_params", "backend"):
        assert records[0][key] == records[1][key]
    assert records[0]["result"]["final_loss"] == records[1]["result"]["final_loss"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--seed", 1], "seed: 0 before, 1 now"),
        (["--steps", 12], "steps: 10 before, 12 now"),
        (["--learning_rate", 0.5], "learning_rate: 0.003 before, 0.5 now"),
        (["--data.valid_share", 0.5], "data_hash: "),
    ],
)
def test_another_configuration_is_refused_with_the_keys(
    run_tiny: Callable[..., int],
    resumed: Path,
    args: list,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [resumed / n for n in ("metrics.jsonl", "run.json", "tokenizer.json")]
    before = [path.read_bytes() for path in files]
    status = run_tiny("--steps", STEPS, "--out", resumed, "--resume", *args)
    assert status == 2
    error = capsys.readouterr().err
    assert "cannot resume" in error
    assert message in error
    assert "sample_tokens" not in error
    assert [path.read_bytes() for path in files] == before


def test_nothing_to_resume_is_an_error(
    run_tiny: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tiny("--resume", "--out", tmp_path) == 2
    assert "nothing to resume" in capsys.readouterr().err


def test_an_earlier_run_is_moved_aside(tmp_path: Path) -> None:
    assert report.set_aside(tmp_path) is None
    for n in (1, 2):
        (tmp_path / "metrics.jsonl").write_text(f"run {n}")
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "notes.txt").write_text("not ours")
        assert report.set_aside(tmp_path) == tmp_path / f"previous-{n}"
        kept = tmp_path / f"previous-{n}"
        assert (kept / "metrics.jsonl").read_text() == f"run {n}"
        assert (kept / "checkpoints").is_dir()
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"notes.txt", "previous-1", "previous-2"}


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (2, 4, 6, 6):
            state = TrainState(jnp.int32(step), {"w": np.full(3, step)}, ())
            checkpoints.save(state, {"seed": step})
        assert checkpoints.latest_step == 6
        assert checkpoints.identity() == {"seed": 6}
        template = TrainState(jnp.int32(0), {"w": np.zeros(3, int)}, ())
        assert checkpoints.arrays()[".params['w']"].tolist() == [6] * 3
        with pytest.raises(ConfigError, match=r"does not fit the model at \.params"):
            checkpoints.restore(template._replace(params={"w": np.zeros(4, int)}))
    found = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert found == ["4", "6"]


def test_overfit_repeats_the_first_batch(
    run_tiny: Callable[..., int], tmp_path: Path, whole: Path
) -> None:
    args = ("--steps", STEPS, "--out", tmp_path, "--overfit")
    assert run_tiny(*args, "--stop_after", 2) == 0
    again, fresh = numbers(tmp_path), numbers(whole)
    assert again[0] == fresh[0]
    assert again[1]["loss"] < again[0]["loss"]
    assert again[1]["loss"] != fresh[1]["loss"]
