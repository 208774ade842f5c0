"""The report of a mutation run: docs/mutation.md."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping

from tests.mutation.record import ROOT, Mutant
from tests.mutation.runner import Outcome

_HEAD = """# Mutation testing

A test suite is as good as the faults that it notices. `tests/mutation/` lists
deliberate faults of the source: a dropped condition, an exchanged operand, a wrong
start value, a lost NaN. `make mutants` writes each into a copy of the tree, runs the
tests that should fail, and says which mutants survive:

    make mutants                        # all whose source or tests have changed
    make mutants ARGS="simplify cost"   # some
    make mutants ARGS="--report docs/mutation.md"

The rows are chosen by hand, one change of meaning each; generators (mutmut, cosmic-ray)
make tens of thousands of small changes, for each of which much of the suite would have
to run, and know neither C nor which change means something. A row whose text is gone is
reported as stale and fails the run; a kill counts only when the test that failed passes
without the mutant. Time limits are CPU time. The run is no part of CI.

"""


def score(counts: Mapping[str, int]) -> str:
    """Return the score in a sentence; equivalent mutants do not count."""
    dead = counts.get("killed", 0) + counts.get("timeout", 0)
    whole = dead + counts.get("survived", 0)
    rate = f"{100 * dead / whole:.1f} %" if whole else "nothing"
    rest = ", ".join(
        f"{counts[k]} {k}" for k in ("equivalent", "stale", "broken") if counts.get(k)
    )
    return f"{dead} of {whole} mutants killed ({rate})" + (f"; {rest}" if rest else "")


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def text(found: Mapping[Mutant, Outcome | None]) -> str:
    """Return the document."""
    counts = Counter(o.verdict for o in found.values() if o is not None)
    counts["equivalent"] = sum(bool(m.equivalent) for m in found)
    parts = [_HEAD, f"At commit {_commit()}: {score(counts)}.\n"]
    unknown = sum(o is None and not m.equivalent for m, o in found.items())
    if unknown:
        parts.append(f"\n{unknown} were not run.\n")
    alive = [(m, o) for m, o in found.items() if o and o.verdict == "survived"]
    parts.append("\n## Survivors\n\n")
    if alive:
        parts.append("| file | change | why |\n| --- | --- | --- |\n")
        parts += [f"| {m.file} | {_cell(m.summary)} | {m.why} |\n" for m, _ in alive]
    else:
        parts.append("None.\n")
    parts.append("\n## Equivalent\n\nNo test can notice these; they do not count.\n\n")
    parts.append("| file | change | why |\n| --- | --- | --- |\n")
    parts += [
        f"| {m.file} | {_cell(m.summary)} | {m.why.removeprefix('equivalent: ')} |\n"
        for m in found
        if m.equivalent
    ]
    parts.append(
        "\n## All\n\n| file | change | verdict | by |\n| --- | --- | --- | --- |\n"
    )
    for m, o in found.items():
        if not m.equivalent:
            by = _cell(o.by.removeprefix("tests/")) if o and o.by else ""
            verdict = o.verdict if o else "not run"
            parts.append(f"| {m.file} | {_cell(m.summary)} | {verdict} | {by} |\n")
    return "".join(parts)
