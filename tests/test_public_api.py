"""The public list, and that importing the package costs nothing."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib import metadata

import pytest

import vkore_jax

PUBLIC = [
    "__version__",
    "accelerate",
    "assemble",
    "chips",
    "compile",
    "disassemble",
    "errors",
    "ledger",
]


def test_the_list() -> None:
    assert vkore_jax.__all__ == PUBLIC
    assert dir(vkore_jax) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_loads(name: str) -> None:
    found = getattr(vkore_jax, name)
    if name in ("chips", "errors"):
        assert isinstance(found, types.ModuleType)
    elif name != "__version__":
        assert callable(found)
        assert found.__doc__


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = vkore_jax.nothing


def test_import_is_cheap() -> None:
    code = (
        "import sys, vkore_jax, vkore_jax.errors; "
        "heavy = {'jax', 'jaxlib', 'numpy'} & set(sys.modules); "
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_installed_entry_points() -> None:
    try:
        entries = metadata.distribution("vkore_jax").entry_points
    except metadata.PackageNotFoundError:
        pytest.skip("vkore_jax is not installed, only on the path")
    found = {(e.group, e.name, e.value) for e in entries}
    assert ("jax_plugins", "vkore_jax", "vkore_jax.plugin") in found
    assert ("console_scripts", "vkore", "vkore_jax.cli:main") in found
    assert metadata.version("vkore_jax") == vkore_jax.__version__
