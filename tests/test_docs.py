"""Generated documents are what the tables say; written ones name what exists."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from vkore_jax import docs_gen
from vkore_jax.isa import COMMANDS, MICRO_OPS, STAGES

ROOT = Path(__file__).parent.parent
WRITTEN = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md"]


@pytest.mark.parametrize("name", docs_gen.DOCS)
def test_generated(name: str, golden: Callable[[str, Path], None]) -> None:
    golden(docs_gen.DOCS[name](), Path("docs") / name)


def test_manual_is_complete() -> None:
    manual = docs_gen.isa_manual()
    for cls in (*COMMANDS.values(), *STAGES.values()):
        assert f"### {cls.MNEMONIC} (" in manual
        for x in cls.FIELDS:
            assert x.doc.replace("|", "\\|") in manual
    for op in MICRO_OPS.values():
        assert f"| `{op.code:#04x}` | `{op.name}` |" in manual


@pytest.mark.parametrize("name", WRITTEN)
def test_paths_in_written_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    paths = re.findall(r"`((?:vkore_jax|train|tests|docs)/[\w./-]*)`", text)
    base = (ROOT / name).parent
    missing = [p for p in links if not (base / p).exists()]
    missing += [p for p in paths if not (ROOT / p).exists()]
    assert not missing


def test_environment_variables_are_documented() -> None:
    """Every VKORE_ variable that the package reads is in the README's table."""
    sources = [*(ROOT / "vkore_jax").rglob("*.py"), *(ROOT / "train").rglob("*.py")]
    used = {
        name
        for path in sources
        for name in re.findall(r"\bVKORE_[A-Z][A-Z_]+\b", path.read_text())
    }
    readme = (ROOT / "README.md").read_text()
    assert used <= set(re.findall(r"`(VKORE_[A-Z_]+)`", readme))


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in WRITTEN:
        named = set(re.findall(r"`make ([a-z]+)", (ROOT / name).read_text()))
        assert named <= targets, name
