"""Engines as a fixture: no engine test names one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

Engine = Callable[..., list[np.ndarray]]

MODULES: Mapping[str, str] = {
    "specification": "vkore_jax.sim.golden",
    "translator": "vkore_jax.sim.fast",
}
"""Module of each engine: `run(program: bytes, inputs, *, callbacks=None)`."""


@pytest.fixture(scope="session")
def engines() -> Mapping[str, Engine]:
    """All engines by name, the specification first."""
    return {n: importlib.import_module(m).run for n, m in MODULES.items()}


def pytest_generate_tests(metafunc: Any) -> None:
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", list(MODULES), indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, engines: Mapping[str, Engine]) -> Engine:
    """One engine after another."""
    return engines[request.param]
