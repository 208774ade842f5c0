"""The ledger: what the emulated chip did, per executable and for the process.

An executable's account is a closed form of its command stream (`vkore_jax.cost`); the
hot path adds one to a number.  How often a WHILE body or a CASE branch ran comes from
counters that the executable returns; they are read when somebody asks.

Two numbers say what the commands did not do.  `host_compute` is measured by the engine:
the translator counts every operation that it writes while no command is at work, golden
every tensor that is written then; it is 0 unless an engine is wrong.  `folded` are the
integers that the compiler computed from constants (`vkore_jax/lowering/fold.py`); they
are part of the program, so they count once, not for each execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vkore_jax import cost
from vkore_jax.cost import Account, ProgramAccount
from vkore_jax.isa import Unit
from vkore_jax.program import Program

_PENDING = 64
"""Unread counters of executions before the older ones are added up."""

_COLUMNS = (
    *("commands", "bytes_in", "bytes_out", "macs", "vector_ops", "core_ops"),
    "turned",
)


@dataclass
class ExecutableLedger:
    """What one executable did since it was loaded or the ledger was reset.

    Attributes:
        name: name of the jitted function.
        fingerprint: of the program.
        account: work of one execution.
        host_compute: tensor values of one execution that no decoded command produced.
        folded: integers that the compiler computed from constants.
        executions: how often it ran.
    """

    name: str
    fingerprint: str
    account: ProgramAccount
    host_compute: int = 0
    folded: int = 0
    executions: int = 0
    _counts: list[int] = field(default_factory=list)
    _pending: list[Sequence[Any]] = field(default_factory=list)

    def note_counts(self, counts: Sequence[Any]) -> None:
        """Keep the dynamic-body counters of one execution, unread."""
        self._pending.append(counts)
        if len(self._pending) > 2 * _PENDING:
            self._read(_PENDING)

    def counts(self) -> list[int]:
        """Return how often each dynamic body ran (waits for what is in flight)."""
        self._read(len(self._pending))
        return list(self._counts)

    def total(self) -> Account:
        """Return the work of all executions."""
        out = Account()
        out.add(self.account.static, self.executions)
        for body, count in zip(self.account.dynamic, self.counts(), strict=True):
            out.add(body, count)
        return out

    def reset(self) -> None:
        """Forget all executions."""
        self.executions = 0
        self._counts, self._pending = [], []

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data (see `Ledger.to_dict`)."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "executions": self.executions,
            **_figures(self.total(), self.host_compute * self.executions, self.folded),
        }

    def __str__(self) -> str:
        return _table(
            f"{self.name}: {self.executions} executions",
            self.total(),
            self.host_compute * self.executions,
            self.folded,
        )

    def _read(self, number: int) -> None:
        read, self._pending = self._pending[:number], self._pending[number:]
        if not self._counts:
            self._counts = [0] * len(self.account.dynamic)
        for counts in read:
            for i, count in enumerate(counts):
                self._counts[i] += int(np.asarray(count))


class Ledger:
    """The process's ledger: every executable that was loaded."""

    def __init__(self) -> None:
        self._entries: dict[str, ExecutableLedger] = {}

    def open(self, program: Program, host_compute: int) -> ExecutableLedger:
        """Return the page of a program; the same program shares one page.

        Args:
            program: what is about to be executed.
            host_compute: see `ExecutableLedger`; what the engine counted.
        """
        page = self._entries.get(program.fingerprint)
        if page is None:
            account = cost.account(program.block)
            page = ExecutableLedger(
                program.name,
                program.fingerprint,
                account,
                host_compute,
                program.folded,
            )
            self._entries[program.fingerprint] = page
        return page

    @property
    def executables(self) -> tuple[ExecutableLedger, ...]:
        """Pages of the programs that ran, in order of loading."""
        return tuple(e for e in self._entries.values() if e.executions)

    @property
    def executions(self) -> int:
        """Executions of all programs."""
        return sum(e.executions for e in self._entries.values())

    @property
    def host_compute(self) -> int:
        """Tensor values that no decoded command produced, in all executions."""
        return sum(e.host_compute * e.executions for e in self._entries.values())

    @property
    def folded(self) -> int:
        """Integers that the compiler computed for the programs that ran."""
        return sum(e.folded for e in self.executables)

    @property
    def host_callbacks(self) -> int:
        """Calls of the user's own Python functions."""
        return self.total().host_callbacks

    def total(self) -> Account:
        """Return the work of all executions of all programs."""
        out = Account()
        for page in self.executables:
            out.add(page.total())
        return out

    def reset(self) -> None:
        """Forget all executions; loaded programs go on counting from zero."""
        for page in self._entries.values():
            page.reset()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data.

        Keys: `executions`, `host_compute`, `folded`, `host_callbacks`, `macs`,
        `commands`, `bytes_in`, `bytes_out`, `vector_ops` and `core_ops` by unit,
        `mnemonics`, and `executables`, a list with the same keys for each program that
        ran.
        """
        return {
            "executions": self.executions,
            **_figures(self.total(), self.host_compute, self.folded),
            "executables": [page.to_dict() for page in self.executables],
        }

    def __str__(self) -> str:
        title = (
            f"vkore ledger: {len(self.executables)} executables, "
            f"{self.executions} executions"
        )
        return _table(title, self.total(), self.host_compute, self.folded)


def _figures(total: Account, host_compute: int, folded: int) -> dict[str, Any]:
    by_unit: dict[str, dict[str, int]] = {
        column: {
            unit.name: getattr(row, column)
            for unit, row in total.units.items()
            if getattr(row, column)
        }
        for column in _COLUMNS
        if column != "macs"
    }
    return {
        "host_compute": host_compute,
        "folded": folded,
        "host_callbacks": total.host_callbacks,
        "macs": total.macs,
        **by_unit,
        "mnemonics": {k: n for k, n in sorted(total.mnemonics.items()) if n},
    }


def _table(title: str, total: Account, host_compute: int, folded: int) -> str:
    rows = [("unit", *(c.replace("_", " ") for c in _COLUMNS))]
    used: Mapping[Unit, Any] = total.units
    for unit, row in used.items():
        if row.commands:
            rows.append(
                (
                    unit.name,
                    f"{row.commands:,}",
                    *(_short(getattr(row, c)) for c in _COLUMNS[1:]),
                )
            )
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = [title]
    for r in rows:
        cells = [r[0].ljust(widths[0])]
        cells += [cell.rjust(w) for cell, w in zip(r[1:], widths[1:])]
        lines.append("  " + "  ".join(cells))
    kinds = ", ".join(f"{name} {n:,}" for name, n in total.mnemonics.most_common())
    lines.append(f"  executed: {kinds or 'nothing'}")
    lines.append(
        f"  host callbacks: {total.host_callbacks:,}   host compute: {host_compute:,}"
        f"   integers folded by the compiler: {folded:,}"
    )
    return "\n".join(lines)


def _short(value: int) -> str:
    """Return a number with three or four digits and a decimal prefix."""
    size = float(value)
    for prefix in ("", "k", "M", "G", "T"):
        if size < 1000:
            return f"{size:.0f}" if not prefix else f"{size:.1f}{prefix}"
        size /= 1000
    return f"{size:.1f}P"


_LEDGER = Ledger()


def ledger() -> Ledger:
    """Return the process's ledger; `print(ledger())` shows it, `reset()` clears it."""
    return _LEDGER
