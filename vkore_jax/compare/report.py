"""The report of a comparison: Markdown with tables, plots, and the series as CSV.

Owns the layout of the output folder: report.md, series.csv, loss.png, gap.png.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vkore_jax.compare import plots
from vkore_jax.compare.runs import Run, read_run
from vkore_jax.compare.statistics import (
    Band,
    Figures,
    Pair,
    figures,
    seed_band,
    self_bound,
)
from vkore_jax.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs against one reference, with the controls that say what it is worth."""

    reference: Run
    runs: tuple[Figures, ...]
    null: Figures | None  # reference against itself with another seed
    band: Band | None
    pairs: tuple[Pair, ...] = ()  # yardsticks: self-controls and other seeds


def compare(
    reference: Path,
    runs: Sequence[Path],
    *,
    null: Path | None = None,
    seeds: Sequence[Path] = (),
    again: Sequence[tuple[Path, Path]] = (),
    pairs: Sequence[tuple[Path, Path]] = (),
    until: int | None = None,
) -> Comparison:
    """Read run directories and compare them.

    Args:
        reference: the run that the others are measured against.
        runs: one or more.
        null: the reference with another seed: the figures of two runs that have
            nothing in common but what they learn.
        seeds: runs of the reference with other seeds; they span a band.
        again: self-controls: a run, and the same run with its sums in another order
            (a batch in two halves, another number of threads).
        pairs: reference and run at other seeds, the reference first.
        until: last step to look at; None: all (`skipped` counts the whole run).

    Raises:
        InvalidArgument: no runs, a run that cannot be read (see `read_run`), too few
            common steps, or data in another order than the reference's.
    """
    if not runs:
        raise InvalidArgument(
            "compare needs a reference and at least one run: vkore compare REFERENCE "
            "RUN [RUN ...]"
        )

    def read(path: Path) -> Run:
        return read_run(path, names[path]).until(until)

    yardsticks = [("self", a, b) for a, b in again] + [("seed", a, b) for a, b in pairs]
    everyone = [reference, *runs, *([null] if null else []), *seeds]
    everyone += [path for _, *both in yardsticks for path in both]
    names = _names(list(dict.fromkeys(everyone)))
    first = read(reference)
    others = [read(path) for path in runs]
    for run in others:
        _require_same_data(first, run)
    control = None if null is None else read(null)
    band = None
    if seeds:
        band = seed_band(first, tuple(read(p) for p in seeds))
    found: list[Pair] = []
    for kind, a, b in yardsticks:
        base, other = read(a), read(b)
        _require_same_data(base, other)
        found.append(Pair(kind=kind, base=base, found=figures(base, other)))
    return Comparison(
        reference=first,
        runs=tuple(figures(first, run) for run in others),
        null=None if control is None else figures(first, control),
        band=band,
        pairs=tuple(found),
    )


def _require_same_data(reference: Run, run: Run) -> None:
    a, b = reference.order_hash, run.order_hash
    if a is not None and b is not None and a != b:
        raise InvalidArgument(
            f"{run.path} was trained on data in another order than the reference "
            f"{reference.path} (data.order_hash {b[:12]} and {a[:12]} in run.json): "
            "their steps cannot be compared.  Use the same data, batch and seed, or "
            "give it as --null or --seeds"
        )


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the shortest tail of each path that tells them all apart."""
    whole = {path: path.resolve().parts for path in paths}
    for count in range(1, max(map(len, whole.values())) + 1):
        names = {path: "/".join(parts[-count:]) for path, parts in whole.items()}
        if len(set(names.values())) == len(set(whole.values())):
            return names
    return {path: str(path) for path in paths}


def write_report(comparison: Comparison, folder: Path, *, with_plots: bool) -> Path:
    """Write report.md, series.csv and the plots; return the report's path.

    Raises:
        InvalidArgument: plots are wanted and matplotlib is not installed.
    """
    if with_plots:
        plots.require_matplotlib()  # before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    write_series(comparison, folder / "series.csv")
    if with_plots:
        plots.draw_losses(comparison, folder / "loss.png")
        plots.draw_gaps(comparison, folder / "gap.png")
    path = folder / "report.md"
    path.write_text(markdown(comparison, with_plots=with_plots), encoding="utf-8")
    return path


def write_series(comparison: Comparison, path: Path) -> None:
    """Write the losses: one row a step of the reference, one column a run."""
    everyone = [comparison.reference, *(found.run for found in comparison.runs)]
    if comparison.null is not None:
        everyone.append(comparison.null.run)
    if comparison.band is not None:
        everyone += [r for r in comparison.band.seeds if r.path not in _paths(everyone)]
    for pair in comparison.pairs:
        both = (pair.base, pair.found.run)
        everyone += [r for r in both if r.path not in _paths(everyone)]
    columns = [dict(zip(run.steps.tolist(), run.loss.tolist())) for run in everyone]
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["step", *(run.name for run in everyone)])
        for step in comparison.reference.steps.tolist():
            values = (column.get(step) for column in columns)
            rows.writerow([step, *("" if v is None else f"{v:.9g}" for v in values)])


def _paths(runs: Sequence[Run]) -> set[Path]:
    return {run.path for run in runs}


def markdown(comparison: Comparison, *, with_plots: bool) -> str:
    """Return the report."""
    reference = comparison.reference
    parts = [
        "# Loss trajectories against a reference",
        f"Reference: `{reference.name}`, {len(reference.steps)} steps, final loss "
        f"{reference.loss[-1]:.4f} nats a token{_held_out(reference)}. Gaps are run "
        "minus reference, on the same batch. The null pair is the reference against "
        "itself with another seed: what two runs have in common that only learn the "
        "same thing.",
        trajectory_table(comparison),
        "Held-out text, gradients and steps that went wrong:",
        quality_table(comparison),
    ]
    cosines = cosine_table(comparison)
    if cosines:
        parts += [
            "Cosine of run's and reference's gradient at recorded steps:",
            cosines,
        ]
    if comparison.band is not None:
        parts += [_band_text(comparison, comparison.band)]
    if comparison.pairs or comparison.band is not None:
        parts += [
            "What these gaps are worth: the same run done twice (its sums in another "
            "order), other seeds, and the runs above, by magnitude:",
            bounds_table(comparison),
        ]
        if (bound := self_bound(comparison.pairs)) is not None:
            parts += [bound_text(comparison, bound)]
    parts += ["The runs:", facts_table(comparison)]
    if with_plots:
        parts += ["![losses](loss.png)", "![gaps](gap.png)"]
    parts += ["The series: [series.csv](series.csv)."]
    return "\n\n".join(parts) + "\n"


def trajectory_table(comparison: Comparison) -> str:
    """Return correlations and gaps as a Markdown table."""
    head = (
        "run", "steps", "Pearson", "of first differences", "largest gap (step)",
        "final gap", "gap of the last tenth",
    )  # fmt: skip
    rows = [
        (
            _label(comparison, found),
            str(found.steps),
            f"{found.pearson:.6f}",
            f"{found.diff_pearson:.5f}",
            f"{_gap(found.max_gap, found.max_gap_share)} ({found.max_gap_step})",
            _gap(found.final_gap, found.final_gap_share),
            _gap(found.tail_gap, found.tail_gap_share),
        )
        for found in _everyone(comparison)
    ]
    return table(head, rows)


def bounds_table(comparison: Comparison) -> str:
    """Return gaps of runs and yardsticks, side by side, as a Markdown table."""
    head = ("what", "largest gap (step)", "mean gap", "gap of the last tenth")
    name = comparison.reference.name
    rows = [(f"`{f.run.name}` against `{name}`", f) for f in comparison.runs]
    titles = {"self": "self-control", "seed": "other seed"}
    rows += [
        (f"`{p.found.run.name}` against `{p.base.name}` ({titles[p.kind]})", p.found)
        for p in comparison.pairs
    ]
    if comparison.band is not None:
        rows += [
            (
                f"`{run.name}` against `{name}` (seed band)",
                figures(comparison.reference, run),
            )
            for run in comparison.band.seeds
        ]
    cells = [
        (
            what,
            f"{abs(f.max_gap):.5f} ({f.max_gap_step})",
            f"{f.mean_gap:.5f}",
            f"{abs(f.tail_gap):.5f}",
        )
        for what, f in rows
    ]
    return table(head, cells)


def bound_text(comparison: Comparison, bound: float) -> str:
    """Say what the self-controls allow to claim."""
    within = [f"`{f.run.name}`" for f in comparison.runs if abs(f.max_gap) <= bound]
    return (
        f"The same run done twice differs by up to {bound:.5f} nats a token: no two "
        "runs can be said to agree more closely. Within it: "
        f"{', '.join(within) or 'none'}."
    )


def quality_table(comparison: Comparison) -> str:
    """Return held-out figures and counts as a Markdown table."""
    head = ("run", "held-out gap", "bits a byte", "not finite", "skipped")
    rows = []
    for found in _everyone(comparison):
        gap = "-"
        if found.eval_gap is not None and found.eval_gap_share is not None:
            gap = _gap(found.eval_gap, found.eval_gap_share)
        bits = "-" if found.bits_per_byte is None else f"{found.bits_per_byte:.4f}"
        skipped = "-" if found.skipped is None else str(found.skipped)
        label = _label(comparison, found)
        rows.append((label, gap, bits, str(found.non_finite), skipped))
    return table(head, rows)


def cosine_table(comparison: Comparison) -> str:
    """Return the gradient cosines as a Markdown table; empty if there are none."""
    everyone = [found for found in _everyone(comparison) if found.gradient_cosines]
    steps = sorted({step for found in everyone for step, _ in found.gradient_cosines})
    rows = [
        (
            _label(comparison, found),
            *(_cosine(dict(found.gradient_cosines).get(step)) for step in steps),
        )
        for found in everyone
    ]
    return table(("step", *map(str, steps)), rows) if rows else ""


def facts_table(comparison: Comparison) -> str:
    """Return what run.json says about each run as a Markdown table."""
    head = ("run", "backend", "chip", "precision", "seed", "options", "jax")
    everyone = [comparison.reference, *(f.run for f in _everyone(comparison))]
    base = comparison.reference.facts.get("config") or {}
    rows = []
    for run in everyone:
        facts, config = run.facts, run.facts.get("config") or {}
        named = {"seed", "precision", "out", "resume", "stop_after", "data.cache"}
        differing = [
            f"{key}={config[key]}"
            for key in sorted(config.keys() - named)
            if key in base and config[key] != base[key]
        ]
        rows.append(
            (
                f"`{run.name}`",
                str(facts.get("backend", "-")),
                str(facts.get("chip") or "-"),
                str(facts.get("precision", config.get("precision", "-"))),
                str(config.get("seed", "-")),
                ", ".join(differing) or "-",
                str((facts.get("versions") or {}).get("jax", "-")),
            )
        )
    return table(head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _everyone(comparison: Comparison) -> list[Figures]:
    return [*comparison.runs, *([comparison.null] if comparison.null else [])]


def _label(comparison: Comparison, found: Figures) -> str:
    return f"`{found.run.name}`" + (" (null)" if found is comparison.null else "")


def _gap(nats: float, share: float) -> str:
    return f"{nats:+.5f} ({share:+.3%})" if math.isfinite(nats) else "not finite"


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"


def _held_out(run: Run) -> str:
    bits = run.bits_per_byte
    return f", {bits[max(bits)]:.4f} bits a byte on held-out text" if bits else ""


def _band_text(comparison: Comparison, band: Band) -> str:
    within = ", ".join(
        f"`{found.run.name}` {band.share_within(found.run):.1%}"
        for found in comparison.runs
    )
    names = ", ".join(f"`{run.name}`" for run in band.seeds)
    return (
        f"Seed band of the reference and {names}: {band.width:.4f} nats a token wide "
        f"over the last tenth. Steps within the band: {within}."
    )
