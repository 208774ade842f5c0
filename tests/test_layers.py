"""The walls of the house: who imports whom, how long a file is, what it may name."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "vkore_jax"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TRAIN = sorted((ROOT / "train").rglob("*.py"))
MAX_LINES = 700

# Room -> height.  A room imports itself and lower rooms, never an equal or a higher
# one; rooms of one height (lowering, sim, primitives) do not know each other.
HEIGHT = {
    "errors": 0,
    "dtypes": 0,
    "contexts": 0,
    "isa": 1,
    "chips": 2,
    "program": 2,
    "cost": 2,
    "asm": 3,
    "verify": 3,
    "callbacks": 3,
    "linalg": 4,
    "dump": 4,
    "lowering": 5,
    "sim": 5,
    "primitives": 5,
    "pjrt": 6,
    "_jax_compat": 7,
    "plugin": 8,
    "rewrite": 8,
    "flax": 9,
    "optim": 1,
    "compare": 1,
    "docs_gen": 8,
    "cli": 9,
}
# Leaves that may look at each other: dtypes raise typed errors.
SIDEWAYS = {("dtypes", "errors")}
PRIVATE_JAX = {"vkore_jax/_jax_compat.py"}
JAXLIB_ROOMS = {"pjrt", "sim", "lowering", "_jax_compat"}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the full name of everything a file imports, with its line."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)}:{node.lineno}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def _target_room(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "vkore_jax" and len(parts) > 1 else None


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_imports_go_downwards(path: Path) -> None:
    room = _room(path)
    if room == "__init__":
        return  # the list of public names, which are loaded when first used
    assert room in HEIGHT, f"{_name(path)}: give the new room {room!r} a height"
    for name, line in _imports(path):
        target = _target_room(name)
        if target in (None, room, "__version__"):
            continue
        assert target in HEIGHT, f"{_name(path)}:{line}: unknown room {target!r}"
        allowed = HEIGHT[target] < HEIGHT[room] or (room, target) in SIDEWAYS
        assert allowed, f"{_name(path)}:{line}: {room} must not import {name}"


@pytest.mark.parametrize("path", [*SOURCES, *TRAIN], ids=_name)
def test_private_jax_is_touched_in_one_file(path: Path) -> None:
    for name, line in _imports(path):
        where = f"{_name(path)}:{line}: {name}"
        if name.startswith("jax._src"):
            assert _name(path) in PRIVATE_JAX, where
        if name.startswith(("jaxlib.", "jaxlib._")) and path in SOURCES:
            assert _room(path) in JAXLIB_ROOMS, where


@pytest.mark.parametrize("path", TRAIN, ids=_name)
def test_training_needs_nothing_of_the_backend(path: Path) -> None:
    """Only what a user could import, and only inside a function that asks for it."""
    public = {
        "vkore_jax",
        "vkore_jax.primitives",
        "vkore_jax.flax",
        "vkore_jax.accelerate",
        "vkore_jax.optim",
    }
    for name, line in _imports(path):
        if name.startswith("vkore_jax"):
            assert name in public or name.startswith("vkore_jax.primitives."), (
                f"{_name(path)}:{line}: {name}"
            )


def _tracked() -> list[Path]:
    """Return the files that are, or are about to be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [
        ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()
    ]


CODE = {".py", ".c", ".h", ".toml", ".md", ".txt", ""}


def test_files_are_short() -> None:
    long = {
        _name(path): lines
        for path in _tracked()
        if path.suffix in {".py", ".c", ".h"}
        and (lines := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert not long, f"over {MAX_LINES} lines; split by concept: {long}"


def test_no_machine_paths() -> None:
    # Spelled in pieces, so that this file does not contain what it looks for.
    forbidden = re.compile(
        "|".join(["/" + "work/", "/" + "root/", "/" + "home/[a-z]", r"py" + r"pi\.org"])
    )
    found = [
        f"{_name(path)}:{i}: {line.strip()[:80]}"
        for path in _tracked()
        if path.suffix in CODE
        for i, line in enumerate(path.read_text().splitlines(), start=1)
        if forbidden.search(line)
    ]
    assert not found, "\n".join(found)
