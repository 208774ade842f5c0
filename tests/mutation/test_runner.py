"""The mutation runner: what it calls killed, survived, stale; and its table's form."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutation import report, runner
from tests.mutation.record import ROOT, Mutant
from tests.mutation.tables import MUTANTS

CODE = "def larger(a, b):\n    return a if a > b else b\n"
TEST = """
from code_under_test import larger

def test_larger():
    assert larger(1, 2) == 2
"""


FAILING = "def test_bad():\n    assert False\n"
LARGER = "tests/test_larger.py"
CASES = (
    ("a > b", "a < b", LARGER, "killed"),
    ("a > b", "a >= b", LARGER, "survived"),
    ("a > b", "1 / 0", LARGER, "killed"),
    ("return a if", "while True: pass\n    return a if", LARGER, "timeout"),
    ("a > c", "a < b", LARGER, "stale"),
    ("a", "b", LARGER, "stale"),
    ("a > b", "a >", LARGER, "broken"),
    ("a > b", "a < b", "tests/test_nothing.py", "broken"),
)


def _outcomes(tree: Path) -> None:
    """Print what becomes of the cases; of the tree, too."""
    (tree / "tests").mkdir()
    (tree / "code_under_test.py").write_text(CODE)
    (tree / LARGER).write_text(TEST)
    (tree / "tests/test_bad.py").write_text(FAILING)
    runner.preload(())
    found = []
    for old, new, test, _ in CASES:
        mutant = Mutant("code_under_test.py", old, new, (test,))
        outcome = runner.judge(mutant, tree, seconds=2)
        assert (tree / mutant.file).read_text() == CODE
        found.append([outcome.verdict, outcome.by])
    killers = ["tests/test_bad.py::test_bad", f"{LARGER}::test_larger"]
    bad = runner.confirm(killers, tree, 30, lambda _: None)
    print("FOUND" + json.dumps([found, sorted(bad)]))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list, list]:
    """The runner forks: in a process of its own, without JAX's threads."""
    tree = tmp_path_factory.mktemp("toy")
    script = f"""
from pathlib import Path
from tests.mutation.test_runner import _outcomes
_outcomes(Path({str(tree)!r}))"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "FOUND" in done.stdout, done.stdout + done.stderr
    found, bad = json.loads(done.stdout.split("FOUND")[1])
    return found, bad


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
def test_verdict(outcomes: tuple[list, list], number: int) -> None:
    verdict, by = outcomes[0][number]
    assert verdict == CASES[number][-1], by
    if verdict == "killed":
        assert by == f"{LARGER}::test_larger"


@pytest.mark.slow
def test_a_kill_by_a_failing_test_proves_nothing(outcomes: tuple[list, list]) -> None:
    assert outcomes[1] == ["tests/test_bad.py::test_bad"]


def test_the_table_is_well_formed() -> None:
    """Rows may grow stale one by one; many stale rows are a table nobody keeps."""
    names = Counter(m.name for m in MUTANTS)
    assert max(names.values()) == 1
    sources = {m.file: (ROOT / m.file).read_text() for m in MUTANTS}
    stale = [m for m in MUTANTS if m.mutated(sources[m.file]) is None]
    assert len(stale) <= len(MUTANTS) // 10, [m.name for m in stale]
    for m in MUTANTS:
        for words in m.arguments():
            files = [w.split("::")[0] for w in words if w.startswith("tests/")]
            assert files, m
            assert all((ROOT / f).exists() for f in files), m


def test_score() -> None:
    counts = {"killed": 8, "timeout": 1, "survived": 1, "equivalent": 2, "stale": 1}
    assert report.score(counts) == (
        "9 of 10 mutants killed (90.0 %); 2 equivalent, 1 stale"
    )
