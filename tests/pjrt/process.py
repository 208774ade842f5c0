"""Runs a Python script in a process of its own and judges how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

NOISE = (
    "Fatal Python error",
    "Exception ignored",
    "Check failed",
    "Segmentation",
    "leaked",
    "terminate called",
    "experimental",
)

PRELUDE = """
import os, sys, gc, time, threading, signal, atexit
import jax, jax.numpy as jnp, numpy as np
"""


def run_python(
    body: str, *, platforms: str = "vkore,cpu", code: int = 0, **environment: str
) -> str:
    """Run a script; return what it printed on both streams.

    Args:
        body: the script, indented or not; JAX and NumPy are imported already.
        platforms: JAX_PLATFORMS; empty leaves it unset.
        code: exit code that is expected.
        environment: further variables.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VKORE_", "JAX_"))}
    env.update(environment, PYTHONUNBUFFERED="1")
    if platforms:
        env["JAX_PLATFORMS"] = platforms
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == code, f"exit {done.returncode}, wanted {code}\n{text}"
    noise = [word for word in NOISE if word in text]
    assert not noise, f"{noise} in\n{text}"
    return text
