"""What was replaced, what was left, and why."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One replacement, or one operation that was left.

    Attributes:
        what: the vkore primitive, or the operation that was left.
        shape: of the result, with its type.
        place: the user's file and line, "" when unknown.
        note: of a replacement, its variant; otherwise the reason.
        within: the loops and calls around it, outermost first.
    """

    what: str
    shape: str
    place: str
    note: str = ""
    within: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The account of one rewriting.

    Attributes:
        replaced: in the order of evaluation.
        left: operations that a primitive might have covered, and why not.
    """

    replaced: tuple[Row, ...]
    left: tuple[Row, ...]

    def counts(self) -> dict[str, int]:
        """Return how often each primitive came in."""
        return dict(Counter(row.what for row in self.replaced))

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Two tables, equal rows counted."""
        parts = [f"replaced: {len(self.replaced)}"]
        parts += _table(self.replaced)
        parts += [f"left: {len(self.left)}", *_table(self.left)]
        return "\n".join(parts)


def _table(rows: Iterable[Row]) -> list[str]:
    """Return aligned lines; rows that only differ in nothing are one."""
    cells: list[Sequence[str]] = []
    for row, count in Counter(rows).items():
        path, _, line = row.place.rpartition(":")
        place = f"{os.path.relpath(path)}:{line}" if path else row.place
        what = "/".join((*row.within, row.what))
        cells.append((f"{count} x", what, row.shape, place, row.note))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
