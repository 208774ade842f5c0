"""`jax.distributed`: one process works, several get an error and end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import sys, jax, jax.numpy as jnp
port, count, number = map(int, sys.argv[1:])
jax.distributed.initialize(
    f'localhost:{port}', num_processes=count, process_id=number,
    initialization_timeout=60)
try:
    print('DEVICES', len(jax.devices()), jax.process_index(), jax.process_count())
    print('SUM', float(jax.jit(jnp.sum)(jnp.ones(3))))
except RuntimeError as error:
    print('REFUSED', error)
# jaxlib tells the plugin about processes on a thread of its own, and ends this process
# when that fails.
from jax._src import distributed
distributed.global_state.client.wait_at_barrier('end', 60_000)
"""


def _run(count: int) -> list[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VKORE_", "JAX_"))}
    env["JAX_PLATFORMS"] = "vkore,cpu"
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(port), str(count), str(number)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    texts: list[str] = []
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, out + errors
        texts.append(out)
    return texts


def test_one_process() -> None:
    (text,) = _run(1)
    assert text.splitlines() == ["DEVICES 1 0 1", "SUM 3.0"]


@pytest.mark.slow
def test_two_processes() -> None:
    for text in _run(2):
        assert "REFUSED" in text
        assert "UNIMPLEMENTED: jax.distributed.initialize named 2 processes" in text
        assert "num_processes=1" in text
