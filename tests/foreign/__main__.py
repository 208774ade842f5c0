"""Run other libraries' suites: `python -m tests.foreign --out DIR [SUITE ...]`.

Makes a virtual environment in DIR with the suite's release, JAX as installed here and
this project; gets the tests (source distribution, git tag, or `--source NAME=FOLDER`);
runs every file in a process of its own on each platform; writes a JSON line a test and
prints a Markdown table.  Files that were run before are not run again: delete
`DIR/results` to start over.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import jax

from tests.foreign.suites import SUITES, Suite

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RANK = ("passed", "xfailed", "skipped", "failed", "crashed")


def _prepare(out: Path, suites: list[Suite]) -> Path:
    """Return the Python of an environment that holds the suites and this project."""
    python = out / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", out / "venv"], check=True)
    needs = [f"{s.name}=={s.version}" for s in suites]
    needs += [n for s in suites for n in s.needs]
    pinned = [f"jax=={jax.__version__}", f"jaxlib=={jax.__version__}"]
    extras = ["pytest>=8,<9", "pytest-timeout", "absl-py", "-e", str(ROOT)]
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *pinned, *sorted(set(needs)), *extras], check=True)
    return python


def _source(suite: Suite, out: Path, given: dict[str, Path]) -> Path:
    """Return the folder of a suite's release, fetched if need be."""
    if suite.name in given:
        return given[suite.name].resolve()
    folder = out / "source" / f"{suite.name}-{suite.version}"
    if folder.exists():
        return folder
    if suite.git:
        tag = f"v{suite.version}"
        clone = ["git", "clone", "--quiet", "--depth", "1", "-b", tag]
        subprocess.run([*clone, suite.git, folder], check=True)
        return folder
    downloads = out / "downloads" / suite.name
    release = f"{suite.name}=={suite.version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run(
        [*pip, "--no-binary", suite.name, "-d", downloads, release], check=True
    )
    (archive,) = downloads.glob("*.tar.gz")
    shutil.unpack_archive(archive, downloads)
    (unpacked,) = (p for p in downloads.iterdir() if p.is_dir())
    folder.parent.mkdir(parents=True, exist_ok=True)
    unpacked.rename(folder)
    return folder


def _run_file(
    python: Path, suite: Suite, platform: str, folder: Path, file: str, results: Path
) -> None:
    """Run one file of a suite on a platform, unless its results are there."""
    name = file.replace("/", "--")
    done = results / suite.name / platform / f"{name}.json"
    if done.exists():
        return
    done.parent.mkdir(parents=True, exist_ok=True)
    report = done.with_suffix(".jsonl")
    report.unlink(missing_ok=True)
    environment = os.environ | {
        "JAX_PLATFORMS": platform if platform == "cpu" else f"{platform},cpu",
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "PYTHONPATH": str(HERE),
        "FOREIGN_REPORT": str(report),
        "FOREIGN_PLATFORM": platform,
        "FOREIGN_EVERY": str(suite.every),
        "FOREIGN_DESELECT": "\n".join(suite.without),
        **suite.environment,
    }
    command = [python, "-m", "pytest", "-q", "-p", "foreign_plugin", "-p"]
    command += ["no:cacheprovider", "-W", "default", "--tb=short", "--timeout=300"]
    started = time.monotonic()
    with done.with_suffix(".log").open("w") as log:
        child = subprocess.Popen(
            [*command, file], cwd=folder, env=environment, stdout=log, stderr=log
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    outcomes: dict[str, dict[str, object]] = {}
    if report.exists():
        for line in report.read_text().splitlines():
            record = json.loads(line)
            outcomes[record.pop("test")] = record
    for record in outcomes.values():
        if record["outcome"] == "started":
            record["outcome"] = "crashed"
    if child.returncode not in (0, 1, 5) and not any(
        r["outcome"] == "crashed" for r in outcomes.values()
    ):
        why = f"pytest ended with {child.returncode}, see {done.with_suffix('.log')}"
        outcomes[file] = {"outcome": "crashed", "why": why}
    summary = {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "wall_seconds": time.monotonic() - started,
        "tests": outcomes,
    }
    done.write_text(json.dumps(summary, indent=1))


def _outcomes(results: Path, suite: Suite, platform: str) -> tuple[dict, float]:
    """Return the outcome of every test of a suite and the process CPU seconds."""
    tests: dict[str, dict] = {}
    seconds = 0.0
    for path in sorted((results / suite.name / platform).glob("*.json")):
        record = json.loads(path.read_text())
        tests |= record["tests"]
        seconds += record["cpu_seconds"]
    return tests, seconds


def _table(results: Path, suites: list[Suite], platforms: list[str]) -> str:
    lines = [
        "| suite | one of | tests | passed on cpu | passed here | only here failed "
        "| CPU time, of stock |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    notes: list[str] = []
    for suite in suites:
        stock, stock_s = _outcomes(results, suite, "cpu")
        for platform in platforms:
            if platform == "cpu":
                continue
            ours, ours_s = _outcomes(results, suite, platform)
            worse = [
                t
                for t, r in ours.items()
                if r["outcome"] in RANK[3:]
                and stock.get(t, {"outcome": "passed"})["outcome"] not in RANK[3:]
            ]
            notes += [f"- {suite.name}: `{t}`: {ours[t].get('why', '')}" for t in worse]
            passed = Counter(r["outcome"] for r in ours.values())["passed"]
            stock_passed = Counter(r["outcome"] for r in stock.values())["passed"]
            ratio = f"{ours_s / stock_s:.2f}" if stock_s else ""
            lines.append(
                f"| {suite.name} {suite.version} | {suite.every} | {len(ours)} | "
                f"{stock_passed if stock else ''} | {passed} | {len(worse)} | {ratio} |"
            )
    return "\n".join([*lines, "", *notes])


def main() -> None:
    """Run the suites that the command line names and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=[s.name for s in SUITES])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--platform", action="append", default=[])
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--every", type=int, help="one test of so many, in all suites")
    parser.add_argument("--python", type=Path, help="an environment that is ready")
    parser.add_argument("--table", action="store_true", help="print the table only")
    arguments = parser.parse_args()
    known = {s.name: s for s in SUITES}
    unknown = [n for n in arguments.suites if n not in known]
    if unknown:
        parser.error(f"unknown suites {unknown}; there are {sorted(known)}")
    suites = [known[n] for n in arguments.suites]
    if arguments.every:
        suites = [dataclasses.replace(s, every=arguments.every) for s in suites]
    out: Path = arguments.out.resolve()
    platforms = arguments.platform or ["cpu", "vkore"]
    if not arguments.table:
        out.mkdir(parents=True, exist_ok=True)
        given = {n: Path(f) for n, f in (s.split("=", 1) for s in arguments.source)}
        python = arguments.python or _prepare(out, suites)
        for suite in suites:
            folder = _source(suite, out, given)
            files = sorted(
                str(p.relative_to(folder)) for f in suite.files for p in folder.glob(f)
            )
            for file in (f for f in files if f not in suite.without):
                for platform in platforms:  # in turn, so that both see the same load
                    _run_file(python, suite, platform, folder, file, out / "results")
    print(_table(out / "results", suites, platforms))


if __name__ == "__main__":
    main()
