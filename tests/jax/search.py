"""A long search for programs on which engines and CPU differ; it does not stop at one.

`python -m tests.jax.search --seconds 3600 --seed 5` writes each failing program with
the step that goes wrong; `--only 5:123` runs one of them again.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
import traceback
from collections.abc import Callable

import jax

from tests.jax import harness, operators
from tests.jax.generate import FLOATS


def draw(choose: Callable[[int], int]) -> harness.Case:
    """Return a random program and how it is used."""
    smooth = choose(4) == 3
    special = not smooth and choose(5) == 4
    x64 = choose(4) == 3
    with jax.enable_x64(x64):
        p = operators.build(
            choose, smooth=smooth, special=special, steps=2 + choose(7), x64=x64
        )
    return harness.Case(
        program=p,
        seed=choose(2**16),
        special=special,
        batch=choose(4) == 3,
        grad=smooth and any(d in FLOATS for _, d in p.inputs),
        chip=("tiny", "vk1")[choose(2)],
        x64=x64,
    )


def narrowed(case: harness.Case) -> str:
    """Return the first value that is wrong by itself, with the steps it needs."""
    p = case.program
    for step in p.steps:
        for i in step.results:
            one = dataclasses.replace(case, program=p.needed([i]), grad=False)
            found = attempt(one)
            if found:
                return f"{one.program.listing()}\n{found}"
    return "every value alone is right"


def attempt(case: harness.Case) -> str:
    """Return what is wrong with a case, empty when nothing is."""
    try:
        return "\n".join(harness.problems(case))
    except Exception:  # whatever it is, it is the finding
        return traceback.format_exc(limit=-12)


def main() -> None:
    """Run programs until the time is up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    begin, count, failed, number = time.monotonic(), 0, 0, args.start
    if args.only:
        args.seed, number = (int(n) for n in args.only.split(":"))
    while time.monotonic() - begin < args.seconds:
        name = f"{args.seed}:{number}"
        rng = random.Random(name)
        try:
            case = draw(rng.randrange)
        except Exception:  # a fault of the generator
            print(f"== {name}: not built\n{traceback.format_exc(limit=-6)}", flush=True)
            number += 1
            continue
        text = attempt(case)
        count += 1
        number += 1
        if text or args.only:
            failed += bool(text)
            how = f"batch {case.batch} grad {case.grad} {case.chip} x64 {case.x64}"
            print(f"== {name} {how}\n{case.program.listing()}\n{text}")
            print(f"-- narrowed\n{narrowed(case) if text else ''}", flush=True)
        if args.only:
            return
        if count % 50 == 0:
            spent = time.monotonic() - begin
            rate = 60 * count / spent
            print(f"{count} programs, {failed} failed, {rate:.1f}/min", flush=True)
            jax.clear_caches()
    print(f"{count} programs, {failed} failed", file=sys.stderr)


if __name__ == "__main__":
    main()
