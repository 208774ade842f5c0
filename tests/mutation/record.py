"""One deliberate fault: a line of the source, what to write instead, who should see."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A change of meaning that some test must notice.

    Attributes:
        file: path below the repository's root.
        old: text that occurs once in the file.
        new: text in its place.
        tests: arguments of pytest, those that should fail first (`a.py -k word` and
            node ids are allowed; slow tests are left out unless `-m` says otherwise).
        why: if it survives, why that may be; "equivalent: ..." says why no test can
            notice it: it is not run, and kept for the record.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str = ""

    @property
    def equivalent(self) -> bool:
        """True when no test can notice it."""
        return self.why.startswith("equivalent: ")

    @property
    def name(self) -> str:
        """A name that survives moved lines: the file and a hash of the change."""
        text = "\0".join((self.file, self.old, self.new)).encode()
        stem = self.file.removeprefix("vkore_jax/")
        return f"{stem}#{hashlib.sha256(text).hexdigest()[:6]}"

    @property
    def summary(self) -> str:
        """The first line that changes, before and after."""
        for old, new in zip(
            [*self.old.splitlines(), ""], [*self.new.splitlines(), ""], strict=False
        ):
            if old != new:
                return f"{old.strip()} -> {new.strip() or '(nothing)'}"
        return "(more lines)"

    def arguments(self) -> list[list[str]]:
        """Return the argument lists of pytest, one run each."""
        runs: list[list[str]] = []
        plain: list[str] = []
        for test in self.tests:
            words = shlex.split(test)
            if len(words) == 1:
                plain += words
            else:
                runs.append(words)
        return ([plain] if plain else []) + runs

    def mutated(self, source: str) -> str | None:
        """Return the changed file, None where the text does not occur once (stale)."""
        if source.count(self.old) != 1 or self.old == self.new:
            return None
        return source.replace(self.old, self.new)

    def digest(self, root: Path) -> str:
        """Return a hash of what the outcome depends on first: file and tests."""
        known = hashlib.sha256(self.name.encode())
        for path in (self.file, *sorted({shlex.split(t)[0] for t in self.tests})):
            full = root / path.split("::")[0]
            files = sorted(full.rglob("*.py")) if full.is_dir() else [full]
            for file in files:
                known.update(file.read_bytes() if file.exists() else b"")
        return known.hexdigest()[:16]


def rows(
    file: str, tests: Iterable[str], *changes: tuple[str, str] | tuple[str, str, str]
) -> tuple[Mutant, ...]:
    """Return mutants of one file with one list of tests.

    A change is (old, new) or (old, new, why).
    """
    return tuple(Mutant(file, c[0], c[1], tuple(tests), *c[2:]) for c in changes)
