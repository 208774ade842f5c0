#!/usr/bin/env python3
"""The runs behind docs/numerics.md: all of them, their comparison, and its tables.

    python -m benchmarks.numerics --data TRAIN.txt --valid VALID.txt --out DIR
        [--runs ref,vk1,...] [--jobs 2] [--docs docs/numerics.md] [--list]

Finished runs are skipped and interrupted ones go on.  The runs of one folder must come
from one commit.  `--docs` replaces what stands between the markers of the document and
the files beside it; the sentences around them are written by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from vkore_jax.compare import Comparison, compare, write_report
from vkore_jax.compare.report import (
    bound_text,
    bounds_table,
    cosine_table,
    quality_table,
    trajectory_table,
)
from vkore_jax.compare.statistics import self_bound
from vkore_jax.errors import InvalidArgument

ROOT = Path(__file__).parents[1]
NARROW = ("--param_dtype", "bf16", "--moments", "hilo", "--master")


@dataclass(frozen=True)
class Spec:
    """One run: on which backend, and what differs from the preset."""

    chip: str | None = None  # None: the stock CPU client
    args: tuple[str, ...] = ()
    steps: int = 500  # done of the preset's 500; the schedule is the same
    cores: int | None = None  # None: all


SHORT = 200
"""Steps of ablations and of the dearer controls."""

RUNS: dict[str, Spec] = {
    "ref": Spec(),
    "vk1": Spec("vk1"),
    "atom": Spec("atom"),
    "warboy": Spec("warboy"),
    "vk1-bf16": Spec("vk1-bf16", (*NARROW, "hilo")),
    # The same numbers, summed in another order.
    "perturbed": Spec(None, ("--micro_batches", "2")),
    "vk1-halves": Spec("vk1", ("--micro_batches", "2")),
    "ref-one-core": Spec(None, steps=SHORT, cores=1),
    "vk1-one-core": Spec("vk1", steps=SHORT, cores=1),
    # Other weights on the same batches, and the same chip there.
    "null-init": Spec(None, ("--seed", "1", "--data_seed", "0")),
    "null-init-2": Spec(None, ("--seed", "2", "--data_seed", "0")),
    "vk1-init": Spec("vk1", ("--seed", "1", "--data_seed", "0")),
    "vk1-init-2": Spec("vk1", ("--seed", "2", "--data_seed", "0")),
    # Other weights and other batches.
    "null": Spec(None, ("--seed", "1")),
    # One lever taken away.
    "nearest": Spec("vk1-bf16", (*NARROW, "nearest")),
    "naive-int8": Spec("docs/numerics/naive-int8.toml", steps=SHORT),
    "naive-fp16": Spec("docs/numerics/naive-fp16.toml", steps=SHORT),
}


@dataclass(frozen=True)
class Report:
    """One comparison of the document: its runs against `ref`, and its yardsticks."""

    runs: tuple[str, ...]
    null: str | None = None
    seeds: tuple[str, ...] = ()
    again: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    def among(self, names: Iterable[str]) -> Report:
        """Return the report of those runs that there are."""
        there = set(names)
        both = lambda pairs: tuple(p for p in pairs if there.issuperset(p))  # noqa: E731
        return Report(
            runs=tuple(r for r in self.runs if r in there),
            null=self.null if self.null in there else None,
            seeds=tuple(r for r in self.seeds if r in there),
            again=both(self.again),
            pairs=both(self.pairs),
        )


REPORTS: dict[str, Report] = {
    "series": Report(
        runs=("vk1", "atom", "warboy", "vk1-bf16", "perturbed", "null-init"),
        null="null",
        seeds=("null-init", "null-init-2"),
        again=(
            ("ref", "perturbed"),
            ("ref", "ref-one-core"),
            ("vk1", "vk1-halves"),
            ("vk1", "vk1-one-core"),
        ),
        pairs=(("null-init", "vk1-init"), ("null-init-2", "vk1-init-2")),
    ),
    "ablations": Report(runs=("nearest", "naive-int8", "naive-fp16")),
}


def main() -> int:
    """Run what is missing, compare, and write the reports."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="text to train on")
    parser.add_argument("--valid", type=Path, help="held-out text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", default=",".join(RUNS), help="names, by commas")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--steps", type=int, help="at most so many steps a run")
    parser.add_argument("--docs", type=Path, help="document to fill in")
    parser.add_argument(
        "--list", action="store_true", help="say what there is, and end"
    )
    args = parser.parse_args()
    names = args.runs.split(",")
    if unknown := sorted(set(names) - RUNS.keys()):
        parser.error(f"no run {', '.join(unknown)}; there are {', '.join(RUNS)}")
    if args.list:
        for name in names:
            print(f"{name:14} {state(args.out / name, _steps(name, args.steps))}")
        return 0
    todo = [
        n for n in names if state(args.out / n, _steps(n, args.steps)) != "finished"
    ]
    if todo and not (args.data and args.valid):
        parser.error("--data and --valid are needed: there are runs to be made")
    args.out.mkdir(parents=True, exist_ok=True)
    failed = _run_all(todo, args)
    if failed:
        print(f"failed: {', '.join(failed)}; see their log.txt", file=sys.stderr)
        return 1
    return report(args.out, args.docs)


def _steps(name: str, most: int | None) -> int:
    steps = RUNS[name].steps
    return steps if most is None else min(steps, most)


def state(run: Path, steps: int) -> str:
    """Return "missing", "interrupted at N" or "finished"."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.is_file() else []
    done = 0
    for line in lines:
        if found := re.match(r'\{"step": (\d+),.*\}$', line):
            done = int(found[1])
    has_end = (run / "benchmark.json").is_file()
    if done >= steps and has_end:
        return "finished"
    return f"interrupted at {done}" if done else "missing"


def _run_all(todo: Sequence[str], args: argparse.Namespace) -> list[str]:
    # The first alone: it trains the tokenizer and fills the cache for the others.
    first, rest = todo[:1], todo[1:]
    failed = [name for name in first if not _run(name, args)]
    if failed:
        return failed
    with ThreadPoolExecutor(args.jobs) as pool:
        done = pool.map(lambda name: _run(name, args), rest)
        return [name for name, good in zip(rest, done, strict=True) if not good]


def _run(name: str, args: argparse.Namespace) -> bool:
    """Make one run, or go on with it; True when it has all its steps."""
    spec, run = RUNS[name], args.out / name
    steps, found = _steps(name, args.steps), state(run, _steps(name, args.steps))
    resume = found != "missing" and (run / "checkpoints").is_dir()
    done = int(found.rpartition(" ")[2]) if resume and "at" in found else 0
    if resume:  # what is behind the newest checkpoint is done again
        steps_saved = [int(p.name) for p in (run / "checkpoints").glob("[0-9]*")]
        done = max((s for s in steps_saved if s <= done), default=0)
        resume = done > 0
    command = [
        *(sys.executable, "-m", "train", "trajectory", "--out", str(run.resolve())),
        *("--data.path", str(args.data.resolve())),
        *("--data.valid_path", str(args.valid.resolve())),
        *("--data.cache", str((args.out / "cache").resolve())),
        *("--sample_tokens", "1", "--stop_after", str(steps - done), *spec.args),
        *(["--resume"] if resume else []),
    ]
    env = dict(os.environ, JAX_PLATFORMS="cpu" if spec.chip is None else "vkore")
    if spec.chip is not None:
        is_file = spec.chip.endswith(".toml")
        env["VKORE_CHIP"] = str(ROOT / spec.chip) if is_file else spec.chip
    if spec.cores is not None:
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: spec.cores]))
        command = ["taskset", "-c", cores, *command]
    run.mkdir(exist_ok=True)
    print(f"{name}: {found}", flush=True)
    with (run / "log.txt").open("a") as log:
        child = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        return False
    seconds = used.ru_utime + used.ru_stime
    facts = _facts(run / "benchmark.json")
    facts = host() | {
        "cpu_seconds": round(facts.get("cpu_seconds", 0) + seconds, 1),
        "command": f"JAX_PLATFORMS={env['JAX_PLATFORMS']} "
        + (f"VKORE_CHIP={spec.chip} " if spec.chip else "")
        + " ".join(["python -m train trajectory DATA", *spec.args]),
    }
    (run / "benchmark.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(f"{name}: finished, {seconds:,.0f} CPU s", flush=True)
    return True


def _facts(path: Path) -> dict:
    return json.loads(path.read_text()) if path.is_file() else {}


def host() -> dict[str, object]:
    """Return what the numbers depend on besides the configuration."""
    git = lambda *args: subprocess.run(  # noqa: E731
        ["git", *args], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", info)
    flags = re.search(r"flags\s*: (.*)", info)
    wanted = re.compile(r"avx|fma|amx|f16c")
    names = sorted(f for f in (flags[1].split() if flags else []) if wanted.match(f))
    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "cpu": model[1] if model else platform.machine(),
        "cpu_flags": names,
        "cores": len(os.sched_getaffinity(0)),
    }


def report(out: Path, docs: Path | None) -> int:
    """Write the comparisons below `out`, and fill in the document."""
    there = [n for n in RUNS if (out / n / "benchmark.json").is_file()]
    commits = {_facts(out / n / "benchmark.json")["commit"] for n in there}
    if len(commits) > 1:
        print(
            f"runs of {len(commits)} commits in {out}: {', '.join(sorted(commits))}; "
            "remove those of the wrong one",
            file=sys.stderr,
        )
        return 1
    blocks: dict[str, str] = {"facts": facts_text(out, there)}
    for name, wanted in REPORTS.items():
        found = wanted.among(there)
        if "ref" not in there or not found.runs:
            continue
        try:
            comparison = _compare(out, found)
        except InvalidArgument as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        path = write_report(comparison, out / "reports" / name, with_plots=True)
        print(f"written: {path}")
        blocks[name] = block_text(comparison)
    if docs is not None:
        fill_in(docs, blocks)
        copy_files(out / "reports", docs.with_suffix(""))
    return 0


def _compare(out: Path, found: Report) -> Comparison:
    return compare(
        out / "ref",
        [out / n for n in found.runs],
        null=None if found.null is None else out / found.null,
        seeds=[out / n for n in found.seeds],
        again=[(out / a, out / b) for a, b in found.again],
        pairs=[(out / a, out / b) for a, b in found.pairs],
    )


def facts_text(out: Path, names: Sequence[str]) -> str:
    """Return commit, host and cost of the runs."""
    facts = {n: _facts(out / n / "benchmark.json") for n in names}
    if not facts:
        return ""
    first = next(iter(facts.values()))
    minutes = sum(f["cpu_seconds"] for f in facts.values()) / 60
    changed = (
        ", with local changes" if any(f["changed"] for f in facts.values()) else ""
    )
    hosts = sorted({f"{f['cpu']} ({f['cores']} cores)" for f in facts.values()})
    return (
        f"Commit {first['commit']}{changed}, on {'; '.join(hosts)}, with "
        f"{' '.join(first['cpu_flags'])}; Python {platform.python_version()}. "
        f"{len(facts)} runs took {minutes:.0f} minutes of CPU time."
    )


def block_text(comparison: Comparison) -> str:
    """Return the tables of one comparison."""
    parts = [trajectory_table(comparison), quality_table(comparison)]
    if comparison.pairs:
        parts.append(bounds_table(comparison))
        bound = self_bound(comparison.pairs)
        if bound is not None:
            parts.append(bound_text(comparison, bound))
        parts.append(cosine_table(comparison))
    return "\n\n".join(part for part in parts if part)


def fill_in(docs: Path, blocks: dict[str, str]) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- end NAME -->`."""
    text = docs.read_text()
    for name, block in blocks.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)"
        whole = re.compile(pattern, re.DOTALL)
        if not whole.search(text):
            raise SystemExit(f"{docs} has no place <!-- {name} --> ... <!-- end -->")
        text = whole.sub(lambda m, b=block: f"{m[1]}\n{b}\n\n{m[2]}", text)
    docs.write_text(text)


FILES = {
    ("series", "series.csv"): "series.csv",
    ("series", "loss.png"): "loss.png",
    ("series", "gap.png"): "gap.png",
    ("ablations", "series.csv"): "ablations.csv",
    ("ablations", "gap.png"): "ablations.png",
}


def copy_files(reports: Path, target: Path) -> None:
    """Copy series and plots beside the document."""
    for (report_name, file), name in FILES.items():
        source = reports / report_name / file
        if source.is_file():
            (target / name).write_bytes(source.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
