"""Runs mutants: each is written into a copy of the tree and its tests are run there.

The runner imports JAX once and forks for every mutant, which saves most of a short
test's time; it never imports `vkore_jax` or the tests itself.  Time limits are CPU
time, so that a busy machine kills nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.record import ROOT, Mutant

PRELOADED = (
    "numpy", "jax", "jax.numpy", "jaxlib.mlir.ir", "jaxlib.mlir.dialects.stablehlo",
    "hypothesis", "flax.nnx", "optax",
)  # fmt: skip
TAKEN = ("vkore_jax", "tests", "train", "benchmarks", "docs", "pyproject.toml",
         "setup.py", "Makefile", "README.md", "CHANGELOG.md", "MANIFEST.in",
         "LICENSE")  # fmt: skip
_QUIET = (
    "-p", "no:cacheprovider",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # plugins are loaded already
)  # fmt: skip
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        verdict: killed, survived, timeout (of CPU time: a loop without end), stale (the
            text is gone), broken (the run says nothing: no tests, not a program).
        by: the test that failed, or what happened.
        seconds: CPU time of the tests.
    """

    verdict: str
    by: str = ""
    seconds: float = 0.0


def preload(names: Sequence[str] = PRELOADED) -> None:
    """Import what every test imports and no mutant changes, pytest's plugins too."""
    os.environ.setdefault("JAX_PLATFORMS", "vkore,cpu")
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--version", *_QUIET])


def copy_tree(to: Path) -> None:
    """Make the copy that mutants are written into; it replaces an earlier one."""
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)
    leave = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in TAKEN:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=leave)
        elif source.exists():
            shutil.copy2(source, to / name)
    # Compared by content: mutants of one second and one length must not be mixed up.
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "--invalidation-mode=checked-hash",
         "vkore_jax", "train"],
        cwd=to,
        check=True,
    )  # fmt: skip


def _in_child(tree: Path, arguments: Sequence[str], log: Path, seconds: int) -> None:
    """Run pytest in a forked child; never returns."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = sys.stderr = os.fdopen(out, "w", buffering=1)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(tree)
    here = {"", str(ROOT)}
    sys.path[:] = [str(tree), *(p for p in sys.path if p not in here)]
    os.environ["PYTHONPATH"] = str(tree)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in list(sys.modules):
        if name.split(".")[0] in ("tests", "vkore_jax", "train", "benchmarks"):
            del sys.modules[name]
    code = 3
    try:
        code = int(pytest.main(list(arguments)))
        module = sys.modules.get("vkore_jax")
        if module and not str(module.__file__).startswith(str(tree)):
            print("the tests did not run in the copy:", module.__file__)
            code = 4
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def run_tests(
    tree: Path, arguments: Sequence[str], log: Path, seconds: int
) -> tuple[int, str, float]:
    """Run pytest in the copy: (exit status or -signal, output, CPU seconds)."""
    words = ["-x", "-q", "--tb=line", "--no-header", *_QUIET]
    if "-m" not in arguments:
        words += ["-m", "not slow"]
    pid = os.fork()
    if pid == 0:
        _in_child(tree, [*words, *arguments], log, seconds)
    # A test may sleep for ever, or wait for a child that does: wall time ends it, too.
    end, status, usage = time.monotonic() + 20 * seconds, 0, None
    while usage is None:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            usage = used
        elif time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            status = signal.SIGXCPU
        else:
            time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return code, log.read_text(errors="replace"), usage.ru_utime + usage.ru_stime


def _verdict(code: int, text: str, seconds: float) -> Outcome:
    if code == 0:
        return Outcome("survived", "", seconds)
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Outcome("timeout", "CPU time", seconds)
    if code < 0:
        return Outcome("killed", f"signal {-code}", seconds)
    failed = FAILED.search(text)
    if code in (1, 2) and failed:
        return Outcome("killed", failed.group(1), seconds)
    lines = [x for x in text.strip().splitlines() if x.strip()]
    return Outcome("broken", f"exit {code}: {lines[-1] if lines else ''}", seconds)


@contextlib.contextmanager
def _written(tree: Path, mutant: Mutant, text: str) -> Iterator[None]:
    path = tree / mutant.file
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


@contextlib.contextmanager
def _bridge(tree: Path, mutant: Mutant) -> Iterator[bool]:
    """Build the C bridge of the mutant (False: not C any more); put back after it."""
    built = sorted((tree / "vkore_jax/pjrt").glob("*.so"))
    kept = {p: p.read_bytes() for p in built}
    flags = {**os.environ, "CFLAGS": "-O0"}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"],
        cwd=tree,
        env=flags,
        capture_output=True,
        check=False,
    )
    try:
        yield done.returncode == 0
    finally:
        for path, data in kept.items():
            path.unlink(missing_ok=True)
            path.write_bytes(data)


def judge(mutant: Mutant, tree: Path, seconds: int) -> Outcome:
    """Apply one mutant, run its tests until one fails, and take it back."""
    path = tree / mutant.file
    text = mutant.mutated(path.read_text()) if path.exists() else None
    if text is None:
        return Outcome("stale", "its text does not occur once")
    native = path.suffix in (".c", ".h")
    if path.suffix == ".py":
        try:
            compile(text, mutant.file, "exec")
        except SyntaxError as error:
            return Outcome("broken", f"not a program: {error}")
    total = 0.0
    with contextlib.ExitStack() as stack:
        stack.enter_context(_written(tree, mutant, text))
        if native and not stack.enter_context(_bridge(tree, mutant)):
            return Outcome("broken", "the bridge does not build")
        for arguments in mutant.arguments():
            log = tree / "mutant.log"
            found = _verdict(*run_tests(tree, arguments, log, seconds))
            total += found.seconds
            if found.verdict != "survived":
                return Outcome(found.verdict, found.by, total)
    return Outcome("survived", "", total)


def confirm(
    killers: Sequence[str], tree: Path, seconds: int, say: Callable[[str], None]
) -> set[str]:
    """Return the tests that fail without any mutant: what they killed proves nothing.

    Args:
        killers: node ids of tests, or test files.
        tree: the copy, without a mutant.
        seconds: CPU time for all of them.
        say: takes a line for the reader.
    """
    nodes = sorted({k for k in killers if "tests/" in k})
    if not nodes:
        return set()
    say(f"running the {len(nodes)} tests that killed something, without a mutant")
    words = ["--maxfail=1000", "-m", "slow or not slow", *nodes]
    _, text, _ = run_tests(tree, words, tree / "confirm.log", seconds)
    return set(FAILED.findall(text)) & set(nodes)
