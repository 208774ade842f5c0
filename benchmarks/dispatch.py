"""What calling a compiled function costs, against JAX's CPU backend.

    python -m benchmarks.dispatch [--steps 10000] [--rounds 3]

- `call N`: microseconds of CPU time for a call with N arrays in and N out, all results
  dropped; the best of 30 rounds of 50 calls.
- `step`: microseconds for a step of a training loop with 20 parameters, each step
  reading what the one before returned, over `--steps` steps; every tenth loss is kept.
- `growth`: MiB by which the peak resident set grew in the second half of that loop.
"""

from __future__ import annotations

import argparse
import resource
import time

from benchmarks.children import Figures, measure, median, report, show


def child(steps: int) -> None:
    import jax
    import jax.numpy as jnp

    def call(count: int) -> float:
        function = jax.jit(lambda arrays: [a + 1 for a in arrays])
        arrays = [jnp.ones((4, 4)) for _ in range(count)]
        jax.block_until_ready(function(arrays))
        best, results = float("inf"), None
        for _ in range(30):
            start = time.process_time()
            for _ in range(50):
                results = function(arrays)
            jax.block_until_ready(results)
            best = min(best, (time.process_time() - start) / 50)
        return 1e6 * best

    figures = {f"call {count}": call(count) for count in (1, 10, 200)}
    step = jax.jit(lambda p, x: ([a * 0.999 + x for a in p], (p[0] * x).sum()))
    parameters, x, losses = [jnp.ones((8, 8)) for _ in range(20)], jnp.float32(0.5), []

    def loop(count: int) -> None:
        nonlocal parameters
        for number in range(count):
            parameters, loss = step(parameters, x)
            if number % 10 == 0:
                losses.append(loss)
        jax.block_until_ready(parameters)

    loop(100)
    start = time.process_time()
    loop(steps // 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loop(steps - steps // 2)
    figures["step"] = 1e6 * (time.process_time() - start) / steps
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures["growth"] = max((now - peak) / 1024, 1e-3)  # a ratio needs a number
    report(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.steps)
        return
    arguments = ["--steps", str(chosen.steps)]
    found: dict[str, list[Figures]] = {"cpu": [], "vkore": []}
    for _ in range(chosen.rounds):
        found["cpu"].append(measure("benchmarks.dispatch", arguments, "cpu"))
        found["vkore"].append(measure("benchmarks.dispatch", arguments, "vkore,cpu"))
    rows = {name: median(rounds) for name, rounds in found.items()}
    show("calls, us of CPU time (growth: MiB)", rows, "cpu")


if __name__ == "__main__":
    main()
