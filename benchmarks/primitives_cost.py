#!/usr/bin/env python3
"""What the training kernels save: train's decoder step in three forms, on one chip.

    python -m benchmarks.primitives_cost [--layers 4 --width 512 ...] [--time]

Plain Flax, the primitives lowered as their decompositions, and the primitives with
kernels of their own: commands, DRAM bytes, multiply-accumulates, lane-cycles and
modelled cycles of one step.  `--time` also runs plain Flax on the stock CPU and the
primitives on vkore, in alternating processes, and prints the step times.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from typing import Any

SIZES = {"layers": 4, "width": 512, "vocab": 8192, "batch": 4, "length": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--chip", default="vk1")
    parser.add_argument("--top", type=int, default=0, help="costliest source lines")
    parser.add_argument("--time", action="store_true", help="measure step times")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = {name: getattr(args, name) for name in SIZES}
    if args.child:
        print("RESULT" + json.dumps(_measure(args.child, sizes)))
        return
    os.environ["JAX_PLATFORMS"] = "cpu"
    _costs(sizes, args.chip, args.top)
    if args.time:
        _times(sizes, args.rounds)


def _costs(sizes: dict[str, int], chip_name: str, top: int) -> None:
    from benchmarks import decoder
    from vkore_jax import cost, lowering
    from vkore_jax.chips import get_chip
    from vkore_jax.sim import cycles as model

    chip = get_chip(chip_name)
    settings = decoder.config(**sizes)
    print(f"{settings.model.n_params:,} parameters, {sizes}, chip {chip.name}\n")
    rows = [
        ("plain Flax", decoder.plain_step, True),
        ("decompositions", decoder.kernel_step, False),
        ("kernels", decoder.kernel_step, True),
    ]
    print(
        "| program | commands | DRAM MB | GMAC | lane-Gcycles | turned MB | Mcycles |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, make, kernels in rows:
        artifact = _artifact(make(settings), *decoder.arguments(settings))
        began = time.perf_counter()
        options = lowering.Options(kernels=kernels)
        program = lowering.compile(artifact, chip, options)
        spent = time.perf_counter() - began
        units = cost.account(program.block).static.units.values()
        total: Counter[str] = Counter()
        for unit in units:
            total.update(vars(unit))
        cycles = model.cycles(program.block, chip)
        print(
            f"| {name} | {len(program.block)} "
            f"| {(total['bytes_in'] + total['bytes_out']) / 1e6:,.1f} "
            f"| {total['macs'] / 1e9:,.2f} | {total['vector_ops'] / 1e9:,.3f} "
            f"| {total['turned'] / 1e6:,.1f} | {sum(cycles) / 1e6:,.3f} |"
        )
        print(f"compiled in {spent:.2f} s", file=sys.stderr)
        if top:
            _top(program, cycles, top)


def _top(program: Any, cycles: list[float], count: int) -> None:
    lines: dict[str, float] = defaultdict(float)
    for located, n in zip(program.block, cycles, strict=True):
        where = program.locations[located.loc]
        kind = located.cmd.MNEMONIC
        lines[f"{kind:6} {where.op[-60:]} {where.file[-30:]}:{where.line}"] += n
    for line, n in sorted(lines.items(), key=lambda x: -x[1])[:count]:
        print(f"    {n / 1e6:8.3f}  {line}")


def _artifact(step: Any, *args: Any) -> bytes:
    """Return the step's portable artifact for the vkore platform."""
    import importlib

    from jaxlib.mlir.dialects import stablehlo

    lowered = step.trace(*args).lower(lowering_platforms=("vkore",))
    out = io.BytesIO()
    lowered.compiler_ir().operation.write_bytecode(out)
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    version = stablehlo.get_current_version()
    return jaxlib.mlir.serialize_portable_artifact(out.getvalue(), version)


def _measure(which: str, sizes: dict[str, int]) -> dict[str, float]:
    """Return first-call and best step seconds, in this process's platform."""
    import jax

    from benchmarks import decoder

    settings = decoder.config(**sizes)
    make = decoder.plain_step if which == "plain" else decoder.kernel_step
    step, (state, batch) = make(settings), decoder.arguments(settings)
    began = time.perf_counter()
    state, out = step(state, batch)
    jax.block_until_ready(out)
    first = time.perf_counter() - began
    times: list[float] = []
    for _ in range(4):
        began = time.perf_counter()
        state, out = step(state, batch)
        jax.block_until_ready((state, out))
        times.append(time.perf_counter() - began)
    loss = float(out.loss if which == "plain" else out)
    return {"first": first, "step": min(times), "loss": loss}


RUNS = {
    "plain on cpu": ("plain", "cpu", "1"),
    "plain on vkore": ("plain", "vkore", "1"),
    "decompositions on vkore": ("kernels", "vkore", "0"),
    "kernels on vkore": ("kernels", "vkore", "1"),
}


def _times(sizes: dict[str, int], rounds: int) -> None:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    flags = [x for k, v in sizes.items() for x in (f"--{k}", str(v))]
    for _ in range(rounds):
        for name, (which, platform, kernels) in RUNS.items():
            env = dict(os.environ, JAX_PLATFORMS=platform, VKORE_KERNELS=kernels)
            command = [sys.executable, "-m", "benchmarks.primitives_cost", *flags]
            out = subprocess.run(
                [*command, "--child", which], env=env, capture_output=True, text=True
            )
            lines = [x for x in out.stdout.splitlines() if x.startswith("RESULT")]
            if not lines:
                sys.exit(f"{name}: exit {out.returncode}\n{out.stderr[-3000:]}")
            found[name].append(json.loads(lines[0][6:]))
    print("\n| run | step s | ratio | first call s | loss |")
    print("| --- | --- | --- | --- | --- |")
    base = found["plain on cpu"]
    for name, runs in found.items():
        ratio = statistics.median(a["step"] / b["step"] for a, b in zip(runs, base))
        step = statistics.median(r["step"] for r in runs)
        first = statistics.median(r["first"] for r in runs)
        print(
            f"| {name} | {step:.3f} | {ratio:.2f} | {first:.2f} "
            f"| {runs[-1]['loss']:.5f} |"
        )


if __name__ == "__main__":
    main()
