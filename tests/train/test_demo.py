"""The demo's last lines: gaps, and what they are worth."""

import json
from pathlib import Path

import pytest

from train import demo


def write(folder: Path, loss: float, held_out: float) -> Path:
    folder.mkdir()
    lines = [{"step": i + 1, "loss": 9.0 if i < 18 else loss} for i in range(20)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    (folder / "run.json").write_text(json.dumps({"result": {"eval_loss": held_out}}))
    return folder


@pytest.mark.parametrize(
    ("chip", "held_out", "same"),
    [(2.02, 2.1, True), (1.97, 2.0, True), (2.06, 2.0, False), (2.0, 1.8, False)],
)
def test_the_answer_measures_by_other_initial_weights(
    tmp_path: Path, chip: float, held_out: float, same: bool
) -> None:
    text = demo.answer(
        write(tmp_path / "chip", chip, held_out),
        write(tmp_path / "cpu", 2.0, 2.0),
        write(tmp_path / "other", 1.95, 2.1),
    )
    assert text.count("\n") < 8
    assert ("?  the same:" in text) is same
    gap = chip - 2.0
    assert f"last 2 steps: chip {chip:.4f}, cpu 2.0000: gap {gap:+.4f}" in text
    assert "other initial weights on the cpu: 0.0500" in text


def test_the_runs_differ_in_backend_and_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def run(command: list[str], *, env: dict[str, str], **_: object) -> object:
        folder = Path(command[command.index("--out") + 1])
        folder.mkdir(exist_ok=True, parents=True)
        calls.append((env["JAX_PLATFORMS"], "--seed" in command))
        lines = [{"step": i + 1, "loss": 2.0} for i in range(20)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
        result = {"result": {"eval_loss": 2.0}}
        (folder / "run.json").write_text(json.dumps(result))
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(demo.subprocess, "run", run)
    assert demo.main(["--out", str(tmp_path / "demo")]) == 0
    assert calls == [("vkore", False), ("cpu", False), ("cpu", True)]
    assert "the same as on the CPU in float32?  the same:" in capsys.readouterr().out
