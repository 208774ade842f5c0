"""Engines as a fixture: no engine test names one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

Engine = Callable[..., list[np.ndarray]]

ENGINES: Mapping[str, str] = {
    "golden": "vkore_jax.sim.golden",
    "fast": "vkore_jax.sim.fast",
}
"""Module of each engine: `run(program: bytes, inputs, *, callbacks=None)`."""


def available() -> Mapping[str, Engine]:
    """Return the engines that can be imported; the specification comes first."""
    found: dict[str, Engine] = {}
    for name, module in ENGINES.items():
        try:
            found[name] = importlib.import_module(module).run
        except (ModuleNotFoundError, AttributeError):
            if name == "golden":
                raise
    return found


def pytest_generate_tests(metafunc: Any) -> None:
    if "engine" in metafunc.fixturenames:
        engines = available()
        metafunc.parametrize("engine", list(engines.values()), ids=list(engines))


@pytest.fixture
def both() -> tuple[Engine, Engine]:
    """Return the specification and the other engine; skip when there is only one."""
    engines: Sequence[Engine] = list(available().values())
    if len(engines) < 2:
        pytest.skip("only one engine is installed")
    return engines[0], engines[1]
