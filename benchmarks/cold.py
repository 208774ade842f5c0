"""What an eager operation costs the first time, against JAX's CPU backend.

    python -m benchmarks.cold [--shapes 6] [--rounds 3]

Ten operations of `jax.numpy`, each on arrays of several shapes, so that every call
traces, compiles and runs.  Milliseconds of CPU time of the process (all threads) for
each call, the mean over shapes; the median over rounds of alternating processes.
"vkore again" is a second process with the same `VKORE_CACHE_DIR`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

from benchmarks.children import Figures, measure, median, report, show


def child(shapes: int) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    operations: dict[str, Callable[[jax.Array], jax.Array]] = {
        "add": lambda a: a + a,
        "sum": jnp.sum,
        "exp": jnp.exp,
        "transpose": lambda a: a.T,
        "dot": lambda a: jnp.dot(a, a.T),
        "index": lambda a: a[1],
        "softmax": jax.nn.softmax,
        "sort": jnp.sort,
        "convert": lambda a: a.astype(jnp.int32),
        "concatenate": lambda a: jnp.concatenate([a, a]),
    }
    jax.block_until_ready(jnp.ones(2) + 1)
    spent = dict.fromkeys([*operations, "all"], 0.0)
    for rows in range(2, shapes + 2):
        array = jnp.asarray(np.ones((rows, 5), np.float32))
        for name, operation in operations.items():
            start = time.process_time()
            jax.block_until_ready(operation(array))
            spent[name] += 1e3 * (time.process_time() - start) / shapes
    spent["all"] = sum(spent.values()) / len(operations)
    report(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shapes", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.shapes)
        return
    arguments = ["--shapes", str(chosen.shapes)]
    found: dict[str, list[Figures]] = {"cpu": [], "vkore": [], "vkore again": []}
    for _ in range(chosen.rounds):
        with tempfile.TemporaryDirectory() as folder:

            def one(platform: str, **environment: str) -> Figures:
                return measure("benchmarks.cold", arguments, platform, **environment)

            found["cpu"].append(one("cpu"))
            found["vkore"].append(one("vkore,cpu", VKORE_CACHE_DIR=folder))
            found["vkore again"].append(one("vkore,cpu", VKORE_CACHE_DIR=folder))
    rows = {name: median(rounds) for name, rounds in found.items()}
    show("first call of an operation, ms of CPU time", rows, "cpu")


if __name__ == "__main__":
    main()
