"""The demo: train on the emulated chip, train the same on the CPU, and compare.

    python -m train.demo [--out runs/demo] [--steps 200]

Owns the answer to "the same?" that `make demo` ends with.  Three runs of `smoke`, each
in a process of its own: the chip's, the CPU's in float32, and the CPU's from other
initial weights on the same batches, which says what a gap is worth.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from train.report import read_metrics

# name -> (platform, what differs); the last is the yardstick of the first two.
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "chip": ("vkore", ()),
    "cpu": ("cpu", ()),
    "other-start": ("cpu", ("--seed", "1", "--data_seed", "0")),
}


def main(argv: list[str] | None = None) -> int:
    """Make the three runs and print the answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--steps", type=int, default=200)
    args, more = parser.parse_known_args(argv)
    folders: dict[str, Path] = {}
    for name, (platform, options) in RUNS.items():
        # The chip's run lies in the folder itself, with the references below.
        folder = folders[name] = args.out if name == "chip" else args.out / name
        print(f"--- {name}: JAX_PLATFORMS={platform} ---", flush=True)
        command = [
            *(sys.executable, "-m", "train", "smoke", "--out", str(folder)),
            *("--steps", str(args.steps), "--log_every", str(max(1, args.steps // 5))),
            *(() if name == "chip" else ("--sample_tokens", "1")),
            *options,
            *more,
        ]
        quiet = subprocess.DEVNULL if name != "chip" else None
        env = dict(os.environ, JAX_PLATFORMS=platform)
        status = subprocess.run(command, env=env, stdout=quiet, check=False).returncode
        if status:
            return status
    print(answer(folders["chip"], folders["cpu"], folders["other-start"]))
    return 0


def answer(chip: Path, cpu: Path, other: Path) -> str:
    """Return a few lines: the gaps of the chip's run, and what they are worth."""
    losses = {path: [m["loss"] for m in _lines(path)] for path in (chip, cpu, other)}
    tail = max(1, len(losses[cpu]) // 10)

    def mean(path: Path) -> float:
        return sum(losses[path][-tail:]) / tail

    def held_out(path: Path) -> float:
        return json.loads((path / "run.json").read_text())["result"]["eval_loss"]

    rows = []
    worst = True
    for what, value in (
        (f"training loss, last {tail} steps", mean),
        ("held-out loss", held_out),
    ):
        reference = value(cpu)
        gap, band = value(chip) - reference, abs(value(other) - reference)
        within = abs(gap) <= band
        worst = worst and within
        rows.append(
            f"  {what}: chip {value(chip):.4f}, cpu {reference:.4f}: gap {gap:+.4f} "
            f"({gap / reference:+.2%}); other initial weights on the cpu: {band:.4f}"
        )
    verdict = (
        "the same: the gaps are within what other initial weights change."
        if worst
        else "not within what other initial weights change."
    )
    return "\n".join(
        [
            f"the same as on the CPU in float32?  {verdict}",
            *rows,
            "  The chip multiplies bf16, 8 bits of each factor. This demo's learning",
            "  rate is high for its size, where every rounding shows; the CPU with its",
            "  factors rounded to bf16 ends where the chip does. docs/numerics.md has",
            "  runs at a usual rate, and how much one chip differs from itself.",
        ]
    )


def _lines(run: Path) -> list[dict]:
    return read_metrics(run / "metrics.jsonl")


if __name__ == "__main__":
    sys.exit(main())
