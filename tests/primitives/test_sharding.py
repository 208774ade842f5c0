"""On a mesh the primitives are partitioned, not replicated.

The composites are inlined before partitioning, so the decomposition propagates by
itself.  That is a fact about XLA to be checked, not assumed: the compiled programs must
not gather operands, and must not reduce more than the plain formulas do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "sharded.py"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Return the collectives of every case; eight devices need their own process."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=SCRIPT.parent.parent.parent,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


NAMES = [
    "linear_data", "linear_column", "linear_row", "mlp", "attention", "layer_norm",
    "rms_norm", "rope", "embedding_data", "embedding_vocab", "embedding_channel",
    "loss_data", "loss_vocab", "swiglu", "model",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_partitioned(found: dict[str, Any], name: str) -> None:
    ours, plain = found[name]["ours"], found[name]["plain"]
    gathered = {k: n for k, n in ours.items() if k != "all-reduce" and n}
    allowed = {k: n for k, n in plain.items() if k != "all-reduce" and n}
    assert gathered == allowed
    assert ours.get("all-reduce", 0) <= 1.05 * plain.get("all-reduce", 0)


def test_values(found: dict[str, Any]) -> None:
    """The partitioned model computes what one device does."""
    assert found["values"] < 1e-5


def test_all_cases_ran(found: dict[str, Any]) -> None:
    assert set(found) == {*NAMES, "values"}
