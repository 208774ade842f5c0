"""The import tests compute their reference on the stock CPU client, whatever else is
installed as the default backend."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with jax.default_device(jax.devices("cpu")[0]):
        yield
