"""A pytest plugin for other people's suites; it knows nothing of this project.

The environment speaks to it, because the suites' own configuration must stay theirs:
FOREIGN_REPORT (file that gets a JSON line a test), FOREIGN_EVERY (keep one test of so
many, chosen by the hash of its name), FOREIGN_DESELECT (names that are left out, one a
line) and FOREIGN_PLATFORM (what JAX's default backend must be).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator

import pytest


def _kept(nodeid: str, every: int) -> bool:
    return int(hashlib.sha256(nodeid.encode()).hexdigest(), 16) % every == 0


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    every = int(os.environ.get("FOREIGN_EVERY", "1"))
    out = set(os.environ.get("FOREIGN_DESELECT", "").splitlines())
    keep, drop = [], []
    for item in items:
        left_out = item.nodeid in out or item.nodeid.split("[")[0] in out
        (keep if not left_out and _kept(item.nodeid, every) else drop).append(item)
    items[:] = keep
    config.hook.pytest_deselected(items=drop)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Stop when a suite has chosen another backend: then nothing would be tested."""
    import jax

    wanted = os.environ["FOREIGN_PLATFORM"]
    found = jax.default_backend()
    if found != wanted:
        pytest.exit(f"{item.nodeid} would run on {found!r}, not on {wanted!r}", 99)
    _write({"test": item.nodeid, "outcome": "started"})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or not report.passed:
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        text = report.longreprtext.strip().splitlines() if report.failed else []
        _write(
            {
                "test": item.nodeid,
                "outcome": outcome,
                "seconds": round(report.duration, 3),
                "why": text[-1] if text else "",
            }
        )
    return report


def _write(record: dict[str, object]) -> None:
    with open(os.environ["FOREIGN_REPORT"], "a") as file:
        file.write(json.dumps(record) + "\n")
