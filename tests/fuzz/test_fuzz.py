"""Mutated programs: a sample for every run, thousands in the slow suite.

`make fuzz` runs as many as one likes; what it finds becomes a row of the tables in
`tests/wrong_*.py` or of the engine cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.fuzz import check
from tests.fuzz.check import Runner
from tests.fuzz.corpus import host_calls, small, whole
from tests.fuzz.mutate import mutant
from tests.fuzz.search import Search
from vkore_jax.dtypes import F32
from vkore_jax.program import Program


@pytest.fixture
def runner() -> Iterator[Runner]:
    found = Runner()
    yield found
    found.close()


def _said(search: Search) -> list[str]:
    return [f"case {number}: {what}" for number, what, _ in search.findings]


def test_a_sample_is_refused_or_translated() -> None:
    search = Search(small(), seed=1, runner=None)
    for number in range(400):
        search.case(number)
    assert _said(search) == []
    # Mutations must be neither all harmless nor all absurd.
    assert search.counts["verified"] > 100
    for refusal in ("InvalidProgram", "HazardError", "ResourceExhausted"):
        assert search.counts[f"verify: {refusal}"] > 5


def test_a_case_is_its_seed_and_number() -> None:
    first, second = (mutant(small(), Random("3/14")) for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_engines_run_unchanged_programs(runner: Runner) -> None:
    assert runner.run(host_calls().encoded, 0) == ("ok", "")


def test_a_fault_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search sees an untyped error wherever it comes from."""

    def fails(*_: object) -> Program:
        raise KeyError(F32)

    for name in ("decode", "assemble", "verify", "translate_program"):
        with monkeypatch.context() as patched:
            patched.setattr(check, name, fails)
            with pytest.raises(check.Finding, match="KeyError"):
                check.examine(host_calls().encoded)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # on a busy machine
def test_thousands(runner: Runner) -> None:
    """Mutants of everything; of those that verify, some run on both engines."""
    search = Search(whole(), seed=2, runner=runner, every=20)
    for number in range(5_000):
        search.case(number)
    assert _said(search) == []
    assert search.counts["executed"] > 50
