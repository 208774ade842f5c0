"""Fixtures of every test: golden files, and the strict settings of JAX."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
ROOT = TESTS.parent

# Before JAX is imported by any test: the suite needs the chip and, as the oracle, the
# CPU.  A test that needs other platforms starts a process of its own.
os.environ.setdefault("JAX_PLATFORMS", "vkore,cpu")
os.environ.pop("VKORE_DUMP", None)

# The same examples on every machine; no time limit on a shared one.
settings.register_profile(
    "vkore", derandomize=True, deadline=None, database=None, print_blob=False
)
settings.load_profile("vkore")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files instead of comparing with them",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Path], None]:
    """Compare a text with a committed file (path relative to the repository)."""
    update = bool(request.config.getoption("--update-golden"))

    def check(text: str, path: Path) -> None:
        full = ROOT / path
        if update:
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(text)
            return
        found = full.read_text() if full.exists() else ""
        if found != text:
            diff = "\n".join(
                list(
                    difflib.unified_diff(
                        found.splitlines(),
                        text.splitlines(),
                        str(path),
                        "generated",
                        lineterm="",
                    )
                )[:60]
            )
            pytest.fail(
                f"{path} differs from what the code generates; if the change is meant: "
                f"pytest --update-golden\n{diff}",
                pytrace=False,
            )

    return check
