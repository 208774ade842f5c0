"""docs/numerics.md says what its committed series say."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import numerics
from vkore_jax.compare.report import Comparison, bounds_table, trajectory_table
from vkore_jax.compare.runs import Run
from vkore_jax.compare.statistics import Pair, figures, seed_band

DOCS = Path(__file__).parents[2] / "docs"


def runs(path: Path) -> list[Run]:
    head, *rows = csv.reader(path.read_text().splitlines())
    found = []
    for i, name in enumerate(head[1:], start=1):
        pairs = [(int(row[0]), float(row[i])) for row in rows if row[i]]
        steps, loss = zip(*pairs, strict=True)
        found.append(
            Run(
                name=name, path=Path(name), steps=np.array(steps), loss=np.array(loss),
                skipped=None, eval_loss={}, bits_per_byte={},
            )
        )  # fmt: skip
    return found


def comparison(path: Path, wanted: numerics.Report) -> Comparison:
    """Rebuild a comparison of the document from its committed series."""
    by_name = {run.name: run for run in runs(path)}
    found, reference = wanted.among(by_name), by_name["ref"]
    against = lambda name: figures(reference, by_name[name])  # noqa: E731
    pairs = [("self", p) for p in found.again] + [("seed", p) for p in found.pairs]
    seeds = tuple(by_name[name] for name in found.seeds)
    return Comparison(
        reference=reference,
        runs=tuple(against(name) for name in found.runs),
        null=None if found.null is None else against(found.null),
        band=seed_band(reference, seeds) if len(seeds) > 1 else None,
        pairs=tuple(
            Pair(kind=kind, base=by_name[a], found=figures(by_name[a], by_name[b]))
            for kind, (a, b) in pairs
        ),
    )


@pytest.mark.parametrize(
    ("name", "report"),
    [("series.csv", "series"), ("ablations.csv", "ablations")],
)
def test_every_row_follows_from_the_series(name: str, report: str) -> None:
    found = comparison(DOCS / "numerics" / name, numerics.REPORTS[report])
    text = (DOCS / "numerics.md").read_text()
    place = text[
        text.index(f"<!-- {report} -->") : text.index(f"<!-- end {report} -->")
    ]
    for row in trajectory_table(found).splitlines():
        assert row in place
    if any(pair.base.name == "vk1" for pair in found.pairs):
        for row in bounds_table(found).splitlines():
            assert row in place
    # Every column of the series is in a table.
    named = {"ref", *(r.name for r in runs(DOCS / "numerics" / name))}
    assert all(f"`{n}`" in place for n in named - {"ref"})


def test_a_document_is_filled_in_where_it_says(tmp_path: Path) -> None:
    docs = tmp_path / "numerics.md"
    docs.write_text("a\n<!-- facts -->\nold\n<!-- end facts -->\nb\n")
    for _ in range(2):
        numerics.fill_in(docs, {"facts": "new \\1"})
    assert docs.read_text() == (
        "a\n<!-- facts -->\n\nnew \\1\n\n<!-- end facts -->\nb\n"
    )
    with pytest.raises(SystemExit, match="no place <!-- series -->"):
        numerics.fill_in(docs, {"series": ""})


def test_a_run_is_missing_interrupted_or_finished(tmp_path: Path) -> None:
    assert numerics.state(tmp_path, 3) == "missing"
    lines = [f'{{"step": {i}, "loss": 2.0}}\n' for i in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:2]) + '{"step": 3, "l')
    assert numerics.state(tmp_path, 3) == "interrupted at 2"
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    assert numerics.state(tmp_path, 3) == "interrupted at 3"
    (tmp_path / "benchmark.json").write_text("{}")
    assert numerics.state(tmp_path, 3) == "finished"
