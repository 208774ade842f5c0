"""Runs a Python script in a process of its own and judges how it ends."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

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


_TIMEOUT = 120.0
Ended = tuple[int, str]
"""Exit code (less the signal), and what was printed on both streams."""


def run_python(
    body: str,
    *,
    platforms: str = "vkore,cpu",
    code: int = 0,
    fresh: bool = False,
    **environment: str,
) -> str:
    """Run a script; return what it printed on both streams.

    Args:
        body: the script, indented or not; JAX and NumPy are imported already.
        platforms: JAX_PLATFORMS; empty leaves it unset.
        code: exit code that is expected.
        fresh: in a process that was not forked from one that has imported JAX, as
            always when there are other variables than ours.
        environment: further variables.
    """
    env = _environment(PYTHONUNBUFFERED="1", **environment)
    if platforms:
        env["JAX_PLATFORMS"] = platforms
    script = PRELUDE + textwrap.dedent(body)
    ours = all(name.startswith("VKORE_") for name in environment)
    found, text = (_forked if ours and not fresh else _started)(script, env)
    assert found == code, f"exit {found}, wanted {code}\n{text}"
    noise = [word for word in NOISE if word in text]
    assert not noise, f"{noise} in\n{text}"
    return text


def _environment(**more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VKORE_", "JAX_"))}
    return {**env, **more}


def _started(script: str, env: dict[str, str]) -> Ended:
    """Run in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


class _Zygote:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self.replies, writing = os.pipe()
        script = Path(__file__).with_name("zygote.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(writing)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
            # Its BLAS must have no threads when it forks.
            env=_environment(OPENBLAS_NUM_THREADS="1"),
        )
        os.close(writing)
        atexit.register(self.process.communicate)

    def ask(self, request: dict[str, object]) -> None:
        stream = self.process.stdin
        assert stream is not None
        stream.write(json.dumps(request).encode() + b"\n")
        stream.flush()

    def answer(self) -> int:
        """Read a number, which is written in one piece."""
        if not select.select([self.replies], [], [], _TIMEOUT)[0]:
            raise TimeoutError(f"a forked script did not answer in {_TIMEOUT} s")
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(self.replies, 1)
            if not piece:
                raise EOFError("the process that forks has ended")
            line += piece
        return int(line)


_zygote = functools.cache(_Zygote)


def _forked(script: str, env: dict[str, str]) -> Ended:
    """Run in a fork of a process that has imported JAX."""
    zygote = _zygote()
    with tempfile.TemporaryDirectory() as folder:
        paths = {k: str(Path(folder, k)) for k in ("stdout", "stderr")}
        zygote.ask({"script": script, "environment": env, **paths})
        pid = zygote.answer()
        try:
            code = zygote.answer()
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            zygote.answer()
            raise
        return code, "".join(Path(p).read_text() for p in paths.values())
