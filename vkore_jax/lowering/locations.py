"""MLIR locations as the user's Python line."""

from __future__ import annotations

import re
from typing import Any

from jaxlib.mlir import ir as mlir

from vkore_jax.program import Location

UNKNOWN = Location("", "", 0, "")
_LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]|^<frozen"
)

Frame = tuple[str, int, str]
"""File, line, function."""


class Locations:
    """Reads locations of one MLIR context; each distinct one is parsed once."""

    def __init__(self) -> None:
        self._parsed: dict[Any, Location] = {}

    def read(self, loc: Any, op: str, caller: Location) -> Location:
        """Return the user's frame of a location.

        The user's frame is the innermost one outside installed packages, or, when
        there is none, the innermost one.  A location without any frame takes the one
        of the call that was inlined.

        Args:
            loc: MLIR location.
            op: name for an op that JAX gave no name path.
            caller: location of the call site.
        """
        key = loc.attr
        found = self._parsed.get(key)
        if found is None:
            found = _parse(loc)
            self._parsed[key] = found
        if not found.file and caller.file:
            return Location(found.op or op, caller.file, caller.line, caller.function)
        if not found.op:
            return Location(op, found.file, found.line, found.function)
        return found


def _parse(loc: Any) -> Location:
    path, frames = "", []
    if isinstance(loc, mlir.NameLoc) and not isinstance(
        loc.child_loc, mlir.FileLineColLoc
    ):
        path = loc.name_str
        loc = loc.child_loc
    _frames(loc, frames)
    if not frames:
        return Location(path, "", 0, "")
    user = next((f for f in frames if not _LIBRARY.search(f[0])), frames[0])
    return Location(path, *user)


def _frames(loc: Any, out: list[Frame]) -> None:
    """Append the frames of a location, innermost first."""
    stack, function = [(loc, "")], ""
    while stack:
        loc, function = stack.pop()
        if isinstance(loc, mlir.FileLineColLoc):
            out.append((loc.filename, loc.start_line, function))
        elif isinstance(loc, mlir.NameLoc):
            stack.append((loc.child_loc, loc.name_str))
        elif isinstance(loc, mlir.CallSiteLoc):
            stack.append((loc.caller, function))
            stack.append((loc.callee, function))
        elif isinstance(loc, mlir.FusedLoc):
            stack.extend((inner, function) for inner in reversed(list(loc.locations)))
