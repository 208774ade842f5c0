"""Run many cases: `python -m tests.fuzz.search --cases 100000`; `make fuzz` does it.

A case is a function of the seed and its number.  Counts and the next number are kept
in the folder, so that a search that was stopped goes on where it was; each finding is
a program and a text beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.check import Finding, Runner, affordable, comparable, examine
from tests.fuzz.corpus import Families, small, whole
from tests.fuzz.mutate import mutant
from vkore_jax.cost import dynamic_bodies
from vkore_jax.errors import InvalidProgram


class Search:
    """Cases of one seed.

    Attributes:
        counts: how many cases came how far.
        findings: (number of the case, what, program).
    """

    def __init__(
        self, families: Families, seed: int, runner: Runner | None, every: int = 1
    ) -> None:
        """Prepare; of the programs that verify, one in `every` is executed."""
        self.families = families
        self.seed = seed
        self.runner = runner
        self.every = every
        self.counts: Counter[str] = Counter()
        self.findings: list[tuple[int, str, bytes]] = []
        self._ran: set[bytes] = set()

    def case(self, number: int) -> None:
        """Run one case."""
        rng = Random(f"{self.seed}/{number}")
        try:
            data = mutant(self.families, rng)
        except InvalidProgram:
            self.counts["no encoding"] += 1
            return
        self.counts["cases"] += 1
        try:
            examined = examine(data)
        except Finding as e:
            self._found(number, str(e), data)
            return
        if examined.stage != "decode":
            self.counts["decoded"] += 1
        if examined.stage != "run" or examined.program is None:
            self.counts[f"{examined.stage}: {examined.refusal}"] += 1
            return
        self.counts["verified"] += 1
        key = data[16:48]
        if self.runner is None or key in self._ran or rng.random() * self.every > 1:
            return
        if not affordable(examined.program):
            self.counts["too large to run"] += 1
            return
        self._ran.add(key)
        # A mutated WHILE may never end, which breaks no law.
        endless = dynamic_bodies(examined.program.block) > 0
        verdict, detail = self.runner.run(data, number, 4.0 if endless else None)
        if verdict == "timeout" and endless:
            verdict = "endless"
        if verdict == "differ" and not comparable(examined.program.block):
            verdict = "incomparable"
        self.counts["executed"] += 1
        self.counts[f"run: {verdict}"] += 1
        if verdict not in ("ok", "endless", "incomparable"):
            self._found(number, f"{verdict}: {detail}", data)

    def _found(self, number: int, what: str, data: bytes) -> None:
        self.counts["findings"] += 1
        self.findings.append((number, what, data))


def main() -> None:
    """Search, and print the counts at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=4, help="execute one in so many")
    parser.add_argument("--small", action="store_true", help="hand-built programs only")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    args = parser.parse_args()
    folder: Path = args.out / f"seed{args.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "state.json"
    kept = (
        json.loads(state.read_text()) if state.exists() else {"next": 0, "counts": {}}
    )
    runner = Runner()
    search = Search(small() if args.small else whole(), args.seed, runner, args.every)
    search.counts.update(kept["counts"])
    end = time.monotonic() + args.seconds
    number = kept["next"]
    try:
        while number < args.cases and time.monotonic() < end:
            search.case(number)
            number += 1
            for at, what, data in search.findings:
                (folder / f"{at}.vkp").write_bytes(data)
                (folder / f"{at}.txt").write_text(what + "\n")
                print(f"{at}: {what.splitlines()[0][:200]}", flush=True)
            search.findings.clear()
            if number % 100 == 0:
                state.write_text(
                    json.dumps({"next": number, "counts": dict(search.counts)})
                )
    finally:
        state.write_text(json.dumps({"next": number, "counts": dict(search.counts)}))
        runner.close()
    for name, count in sorted(search.counts.items()):
        print(f"{count:8} {name}")


if __name__ == "__main__":
    main()
