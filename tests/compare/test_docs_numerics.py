"""docs/numerics.md says what its committed series say."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from vkore_jax.compare.report import Comparison, trajectory_table
from vkore_jax.compare.runs import Run
from vkore_jax.compare.statistics import figures

DOCS = Path(__file__).parents[2] / "docs"
CONTROLS = {"null"}


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


@pytest.mark.parametrize("name", ["series.csv", "ablations.csv"])
def test_every_row_follows_from_the_series(name: str) -> None:
    reference, *others = runs(DOCS / "numerics" / name)
    found = {run.name: figures(reference, run) for run in others}
    comparison = Comparison(
        reference=reference,
        runs=tuple(f for n, f in found.items() if n not in CONTROLS),
        null=next((f for n, f in found.items() if n in CONTROLS), None),
        band=None,
    )
    text = (DOCS / "numerics.md").read_text()
    for row in trajectory_table(comparison).splitlines():
        assert row in text
