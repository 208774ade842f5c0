"""The standing search: the fast engine against golden on random large programs.

    python -m tests.jax.differ --programs 10000 --seed 1

runs the programs 1:0, 1:1 ... in processes of their own, a batch each, so that an abort
or a hang is a finding, too; `--only 1:17` runs one again and says which value is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "vkore,cpu")

import jax

from tests.jax.generate import Program
from tests.jax.large import Grower, Known, numbers
from tests.jax.large_steps import grown
from tests.lowering.artifacts import artifact
from vkore_jax import lowering
from vkore_jax.chips import CHIPS
from vkore_jax.errors import ResourceExhausted
from vkore_jax.sim import fast, golden
from vkore_jax.sim.contract import disagreement

BATCH = 100
"""Programs of one process."""

PATIENCE = 300.0
"""Seconds after which a program hangs."""


@dataclass(frozen=True)
class Case:
    """A program, its inputs and how it is compiled."""

    program: Program
    seed: int
    odd: bool
    tiny: bool
    x64: bool
    chip: str


def draw(name: str) -> Case:
    """Return the random program of a name."""
    choose = random.Random(name).randrange
    x64, odd = choose(6) == 0, choose(2) == 0
    tiny = choose(8) == 0
    with jax.enable_x64(x64):
        g = Grower(choose, x64, odd, tiny)
        grown(g, 1 + choose(9))
    chip = "tiny" if choose(12) == 0 else "vk1"
    return Case(g.program, choose(2**16), odd, tiny, x64, chip)


def problems(case: Case) -> list[str]:
    """Return what differs between the engines, one sentence for each result."""
    p = case.program
    rng = np.random.default_rng(case.seed)
    inputs = [
        numbers(rng, v, (), case.odd, case.tiny) for v in p.values[: len(p.inputs)]
    ]

    def f(*x: Any) -> list[Any]:
        known = p.run(*x)
        return [known[i] for i in p.outputs]

    with jax.enable_x64(case.x64):
        code = artifact(f, *inputs, keep_unused=True)
    encoded = lowering.compile(code, CHIPS[case.chip]).encoded
    found = []
    with np.errstate(all="ignore"):
        want, have = golden.run(encoded, inputs), fast.run(encoded, inputs)
        for i, w, h in zip(p.outputs, want, have, strict=True):
            v = p.values[i]
            assert isinstance(v, Known)
            text = disagreement(w, h, v.tolerance)
            if text:
                found.append(f"v{i} ({v.tolerance.bound.value}): {text}")
    return found


def narrowed(case: Case) -> str:
    """Return the first value that is wrong by itself, with the steps it needs."""
    p = case.program
    for step in p.steps:
        for i in step.results:
            one = Case(p.needed([i]), case.seed, case.odd, case.tiny, case.x64, "vk1")
            found = attempt(one)
            if found:
                return f"{one.program.listing()}\n{found}"
    return "every value alone is right"


def attempt(case: Case) -> str:
    """Return what is wrong with a case, empty when nothing is."""
    try:
        return "\n".join(problems(case))
    except ResourceExhausted:  # refused with its reason: no difference
        return ""
    except Exception:  # whatever it is, it is the finding
        return traceback.format_exc(limit=-8)


def described(name: str) -> str:
    """Run a program; return the finding, empty when there is none."""
    try:
        case = draw(name)
    except Exception:
        return f"not built\n{traceback.format_exc(limit=-6)}"
    text = attempt(case)
    if not text:
        return ""
    how = f"odd {case.odd} tiny {case.tiny} x64 {case.x64} {case.chip}"
    return f"{how}\n{case.program.listing()}\n{text}\n-- narrowed\n{narrowed(case)}"


def work(seed: str, first: int, count: int) -> None:
    """Run programs in this process; say what begins and what was found."""
    for number in range(first, first + count):
        name = f"{seed}:{number}"
        print(f"@ {number}", flush=True)
        text = described(name)
        if text:
            print(f"== {name} {text}\n==", flush=True)
    print("@ end", flush=True)


def search(
    seed: str, first: int, count: int, seconds: float = float("inf")
) -> tuple[int, list[str]]:
    """Run programs in processes of their own.

    Returns:
        How many programs ran, and the findings.
    """
    begin, at, findings = time.monotonic(), first, list[str]()
    while at < first + count and time.monotonic() - begin < seconds:
        some = min(BATCH, first + count - at)
        last, found = batch(seed, at, some)
        for text in found:
            print(text, flush=True)
        findings += found
        at = last
        spent = time.monotonic() - begin
        print(
            f"{at - first} programs, {len(findings)} found, {spent:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return at - first, findings


def batch(seed: str, first: int, count: int) -> tuple[int, list[str]]:
    """Run some programs in one process; return the next number and the findings."""
    command = [sys.executable, "-m", "tests.jax.differ", "--work"]
    command += [f"--seed={seed}", f"--start={first}", f"--programs={count}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE + 5 * count
        )
        out, how, errors = done.stdout, f"exit {done.returncode}", done.stderr
    except subprocess.TimeoutExpired as late:
        raw = late.stdout or b""
        out = raw.decode() if isinstance(raw, bytes) else raw
        how, errors = "no end", ""
    findings, current, text = list[str](), first, list[str]()
    for line in out.splitlines():
        if line == "@ end":
            return first + count, findings
        if line.startswith("@ "):
            current = int(line[2:])
        elif line == "==":
            findings.append("\n".join(text))
            text = []
        else:
            text.append(line)
    name = f"{seed}:{current}"
    try:
        listing = draw(name).program.listing()
    except Exception:
        listing = "not built"
    findings.append(f"== {name} the process died ({how})\n{listing}\n{errors[-2000:]}")
    return current + 1, findings


def main(arguments: Sequence[str] | None = None) -> None:
    """Run programs until their number or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", default="0")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--only", default="", help="SEED:NUMBER, run in this process")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.work:
        work(args.seed, args.start, args.programs)
    elif args.only:
        print(draw(args.only).program.listing())
        print(described(args.only) or "no difference")
    else:
        done, found = search(args.seed, args.start, args.programs, args.seconds)
        print(f"{done} programs, {len(found)} findings")
        sys.exit(bool(found))


if __name__ == "__main__":
    main()
