"""Runs a measurement in alternating processes, one a platform.

CPU time is what is compared: on a shared machine the wall clock measures the others.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

Figures = Mapping[str, float]

_MARK = "FIGURES"


def report(figures: Figures) -> None:
    """Print figures for the parent, in a child."""
    print(_MARK + json.dumps(dict(figures)))


def measure(
    module: str, arguments: Sequence[str], platform: str, **environment: str
) -> Figures:
    """Run a module's child on a platform and return what it reports.

    Raises:
        RuntimeError: the child failed; the message has its output.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VKORE_", "JAX_"))}
    env.update(environment, JAX_PLATFORMS=platform)
    done = subprocess.run(
        [sys.executable, "-m", module, "--child", *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [x for x in done.stdout.splitlines() if x.startswith(_MARK)]
    if done.returncode or not lines:
        raise RuntimeError(f"{module} on {platform}: {done.stderr[-3000:]}")
    return json.loads(lines[0][len(_MARK) :])


def median(rounds: Sequence[Figures]) -> dict[str, float]:
    """Return the median of each figure over the rounds."""
    return {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}


def show(title: str, rows: Mapping[str, Figures], base: str) -> None:
    """Print a table: a column for each way to run, and its ratio to `base`."""
    load = os.getloadavg()[0]
    print(f"{title}; load average {load:.1f} on {os.cpu_count()} cores")
    others = [name for name in rows if name != base]
    print(f"{'':16}{base:>12}" + "".join(f"{name:>14}{'ratio':>7}" for name in others))
    for key, value in rows[base].items():
        line = f"{key:16}{value:12.2f}"
        for name in others:
            line += f"{rows[name][key]:14.2f}{rows[name][key] / value:7.2f}"
        print(line)
