"""`vkore compare`: synthetic runs whose figures are known, and runs that are wrong."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vkore_jax import cli
from vkore_jax.compare import compare, markdown, read_run, self_bound
from vkore_jax.compare.plots import smooth
from vkore_jax.compare.statistics import cosine, figures, pearson
from vkore_jax.errors import InvalidArgument

N = 200
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a run directory from its series."""

    def make(
        name: str,
        loss: Any,
        *,
        first: int = 1,
        facts: dict[str, Any] | None = None,
        **columns: dict[int, float],
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        lines = []
        for step, value in enumerate(loss, start=first):
            line: dict[str, Any] = {"step": step, "loss": float(value)}
            line |= {k: found[step] for k, found in columns.items() if step in found}
            lines.append(json.dumps(line) + "\n")
        (folder / "metrics.jsonl").write_text("".join(lines))
        if facts is not None:
            (folder / "run.json").write_text(json.dumps(facts))
        return folder

    return make


def falling(seed: int = 0, noise: float = 0.1) -> np.ndarray:
    t = np.arange(N)
    drawn = np.random.default_rng(seed).normal(size=N)
    return 2 + 6 * np.exp(-t / 50) + noise * drawn


def test_figures_of_a_known_gap(write: Write) -> None:
    a = falling()
    b = a + 0.01 * np.sin(np.arange(N))
    b[120] += 0.5
    b[-1] = a[-1] + 0.03
    found = figures(read_run(write("a", a)), read_run(write("b", b)))
    assert found.steps == N
    assert found.pearson == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-12)
    wanted = np.corrcoef(np.diff(a), np.diff(b))[0, 1]
    assert found.diff_pearson == pytest.approx(wanted, abs=1e-12)
    assert found.max_gap == pytest.approx(b[120] - a[120])
    assert found.max_gap_step == 121
    assert found.max_gap_share == pytest.approx((b[120] - a[120]) / a[120])
    assert found.final_gap == pytest.approx(0.03)
    assert found.final_gap_share == pytest.approx(0.03 / a[-1])
    assert found.tail_gap == pytest.approx((b - a)[-20:].mean())
    assert found.non_finite == 0
    assert found.skipped is found.eval_gap is found.bits_per_byte is None


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.7])
def test_differences_see_what_the_trend_hides(write: Write, rho: float) -> None:
    """The steps correlate by rho; the falling curves by nearly 1 whatever rho is."""
    rng = np.random.default_rng(1)
    trend = 2 + 6 * np.exp(-np.arange(2000) / 500)
    common, own = rng.normal(size=(2, 2000))
    other = rho * common + np.sqrt(1 - rho**2) * own
    a = read_run(write("a", trend + 0.1 * common))
    b = read_run(write("b", trend + 0.1 * other))
    found = figures(a, b)
    assert found.pearson > 0.98
    assert found.diff_pearson == pytest.approx(rho, abs=0.06)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_pearson_is_numpys(scale: float) -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 50)) * scale + 3
    assert pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-9)
    assert pearson(a, 2 * a + 1) == pytest.approx(1)
    assert pearson(a, -a) == pytest.approx(-1)
    assert np.isnan(pearson(a, np.full(50, 0.1)))
    assert np.isnan(cosine(a, np.zeros(50)))


def test_only_common_steps_are_compared(write: Write) -> None:
    a, b = falling(), falling()[50:150] + 1
    found = figures(read_run(write("a", a)), read_run(write("b", b, first=51)))
    assert found.steps == 100
    assert found.pearson == pytest.approx(1)
    assert found.final_gap == pytest.approx(1)


def test_later_steps_can_be_left_out(write: Write) -> None:
    loss = falling()
    loss[100:] += 1
    columns = {"eval_loss": {100: 3.0, 200: 2.0}}
    a = write("a", falling(), **columns)
    found = compare(a, [write("b", loss, **columns)], until=100).runs[0]
    assert found.steps == 100
    assert found.max_gap == 0
    assert found.run.eval_loss == {100: 3.0}
    with pytest.raises(InvalidArgument, match="has 9 steps until 9"):
        compare(a, [a], until=9)


def test_steps_that_are_not_finite_are_counted(write: Write) -> None:
    loss = falling()
    loss[[60, 61, 62, 70]] = np.nan, np.nan, np.inf, -np.inf
    a, b = read_run(write("a", falling())), read_run(write("b", loss, skipped={200: 5}))
    found = figures(a, b)
    assert found.non_finite == 4
    assert found.skipped == 5
    assert np.isnan(found.pearson)
    assert found.max_gap == 0


def test_null_is_a_loss_that_strict_json_can_write(write: Write) -> None:
    path = write("a", falling())
    text = (path / "metrics.jsonl").read_text()
    text += '{"step": 201, "loss": null}\n{"step": 202, "lo'  # and a torn last line
    (path / "metrics.jsonl").write_text(text)
    run = read_run(path)
    assert len(run.steps) == N + 1
    assert run.non_finite == 1


def test_held_out_text_and_gradients(write: Write) -> None:
    paths = []
    rng = np.random.default_rng(0)
    gradient = rng.normal(size=100)
    for name, off in (("a", 0.0), ("b", 0.02)):
        path = write(
            name, falling(), eval_loss={100: 3.0, 200: 2.5 + off},
            eval_bits_per_byte={100: 1.1, 200: 0.9 + off}, facts={"chip": "vk1"},
        )  # fmt: skip
        (path / "gradients").mkdir()
        np.save(path / "gradients" / "step-000050.npy", gradient * (1 + off))
        np.save(path / "gradients" / "step-000100.npy", gradient + 50 * off)
        paths.append(path)
    np.save(paths[1] / "gradients" / "step-000150.npy", gradient)
    found = figures(*map(read_run, paths))
    assert found.eval_gap == pytest.approx(0.02)
    assert found.eval_gap_share == pytest.approx(0.008)
    assert found.bits_per_byte == pytest.approx(0.92)
    assert [step for step, _ in found.gradient_cosines] == [50, 100]
    assert found.gradient_cosines[0][1] == pytest.approx(1)
    assert found.gradient_cosines[1][1] == pytest.approx(cosine(gradient, gradient + 1))
    np.save(paths[1] / "gradients" / "step-000050.npy", gradient[:50])
    with pytest.raises(InvalidArgument, match=r"100 numbers .* and 50"):
        figures(*map(read_run, paths))


def test_a_self_control_bounds_what_can_be_claimed(write: Write) -> None:
    base = np.linspace(4, 2, N)
    bump = np.where(np.arange(N) == 7, 0.25, 0.0)
    ref, chip = write("ref", base), write("chip", base + 0.4 * bump)
    twice, far = write("twice", base + 1.4 * bump), write("far", base - 2 * bump)
    seed, chip1 = write("s1", base + 1), write("c1", base + 1.5)
    found = compare(
        ref, [chip, far], seeds=[seed], again=[(chip, twice)], pairs=[(seed, chip1)]
    )
    assert self_bound(found.pairs) == pytest.approx(0.25)
    assert [p.kind for p in found.pairs] == ["self", "seed"]
    assert found.pairs[1].found.mean_gap == pytest.approx(0.5)
    assert found.runs[0].mean_gap == pytest.approx(0.1 / N)
    text = markdown(found, with_plots=False)
    assert "`twice` against `chip` (self-control) | 0.25000 (8) |" in text
    assert "`c1` against `s1` (other seed) | 0.50000" in text
    assert "`s1` against `ref` (seed band) | 1.00000" in text
    assert "differs by up to 0.25000 nats a token" in text
    assert "Within it: `chip`." in text
    assert self_bound(()) is None


def test_the_band_of_seeds(write: Write) -> None:
    a = write("a", np.full(N, 3.0))
    seeds = [write("s1", np.full(N, 2.5)), write("s2", np.full(N, 4.0))]
    inside = write("inside", np.full(N, 2.6))
    half = write("half", np.where(np.arange(N) < 100, 3.0, 5.0))
    found = compare(a, [inside, half], seeds=seeds)
    assert found.band is not None
    assert found.band.width == pytest.approx(1.5)
    assert found.band.share_within(found.runs[0].run) == 1
    assert found.band.share_within(found.runs[1].run) == 0.5


def test_the_command_writes_report_series_and_plots(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"backend": "cpu", "config": {"seed": 0, "steps": N}}
    a = write("ref", falling(), facts=facts)
    b = write("vk1", falling() + 0.001, facts=facts | {"backend": "vkore"})
    null = write("other", falling(5))
    out = tmp_path / "report"
    args = ["compare", a, b, "--null", null, "--seeds", null, "-o", out]
    assert cli.main([str(x) for x in args]) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"report.md", "series.csv", "loss.png", "gap.png"}
    text = (out / "report.md").read_text()
    for wanted in ("`vk1`", "`other` (null)", "1.000000", "+0.00100", "Seed band"):
        assert wanted in text
    assert "1.000000" in capsys.readouterr().out
    rows = list(csv.reader((out / "series.csv").read_text().splitlines()))
    assert rows[0] == ["step", "ref", "vk1", "other"]
    assert len(rows) == N + 1
    assert float(rows[1][2]) == pytest.approx(falling()[0] + 0.001)
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_equal_names_are_told_apart(write: Write) -> None:
    paths = [write(f"{chip}/run", falling()) for chip in ("cpu", "vk1")]
    found = compare(paths[0], paths[1:])
    assert found.reference.name == "cpu/run"
    assert found.runs[0].run.name == "vk1/run"


def test_without_matplotlib_the_error_teaches(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    runs = [str(write("a", falling())), str(write("b", falling()))]
    out = tmp_path / "report"
    assert cli.main(["compare", *runs, "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert "pip install 'vkore_jax[train]'" in error
    assert "--no-plots" in error
    assert not out.exists()
    assert cli.main(["compare", *runs, "-o", str(out), "--no-plots"]) == 0
    assert {path.name for path in out.iterdir()} == {"report.md", "series.csv"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no metrics.jsonl"),
        ('{"step": 1, "loss": 2}\n', "has 1 steps"),
        ('{"step": 1}\n{"step": 2, "loss": 1}\n', "line 1: needs numbers"),
        ('{"step": 1, "loss": "x"}\n{"step": 2, "loss": 1}\n', "line 1: needs numbers"),
        ('{"step": 1, "lo\n{"step": 2, "loss": 1}\n', "line 1: not JSON"),
        ('{"step": 2, "loss": 1}\n{"step": 1, "loss": 1}\n', "line 2: steps must rise"),
        ("[1]\n[2]\n", "line 1: needs numbers"),
    ],
)
def test_broken_runs_are_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        read_run(tmp_path)


def test_mismatched_runs_are_refused(write: Write, tmp_path: Path) -> None:
    facts = lambda x: {"data": {"order_hash": x * 64}}  # noqa: E731
    a = write("a", falling(), facts=facts("a"))
    b = write("b", falling(), facts=facts("b"))
    late = write("late", falling(), first=196, facts=facts("a"))
    with pytest.raises(InvalidArgument, match=r"another order.*--null"):
        compare(a, [b])
    assert compare(a, [a], null=b).null is not None
    with pytest.raises(InvalidArgument, match="5 steps in common"):
        compare(a, [late])
    with pytest.raises(InvalidArgument, match="at least one run"):
        compare(a, [])
    with pytest.raises(InvalidArgument, match="no run directory"):
        compare(a, [tmp_path / "absent"])


def test_smoothing_does_not_lag() -> None:
    line = np.arange(100.0)
    np.testing.assert_allclose(smooth(line)[2:-2], line[2:-2])
