"""The reader's half of assembly text: a tree of indented lines, and a token scanner.

Knows quotes, comments and indentation; knows nothing of the ISA.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import NoReturn

from vkore_jax.errors import InvalidProgram

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|;.*')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_INTEGER = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|[0-9]+)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Line:
    """One line of text without its comment, and the lines indented under it."""

    number: int
    text: str
    children: list[Line] = field(default_factory=list)


def fail(line: int, problem: str) -> NoReturn:
    """Raise InvalidProgram for a line of assembly text."""
    raise InvalidProgram(f"assembly line {line}: {problem}")


def parse_lines(text: str) -> list[Line]:
    """Split text into a tree by indentation; comments start with ``;``.

    Raises:
        InvalidProgram: for tabs, or a line indented to a level that nothing opened.
    """
    roots: list[Line] = []
    open_lines: list[tuple[int, list[Line]]] = [(0, roots)]
    for number, raw in enumerate(text.split("\n"), start=1):
        content = _COMMENT.sub(lambda m: m[1] or "", raw).rstrip()
        body = content.lstrip(" ")
        if not body:
            continue
        if body[0] == "\t":
            fail(number, "indentation must be spaces, found a tab")
        indent = len(content) - len(body)
        while indent < open_lines[-1][0]:
            open_lines.pop()
        level, siblings = open_lines[-1]
        if indent > level:
            if not siblings:
                fail(number, f"indented by {indent} spaces under nothing")
            siblings = siblings[-1].children
            if siblings:
                fail(number, f"no line above is indented by {indent} spaces")
            open_lines.append((indent, siblings))
        siblings.append(Line(number, body))
    return roots


class Scanner:
    """Reads tokens from one line; every failure names line, need and found text."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.pos = 0

    def fail(self, needed: str) -> NoReturn:
        """Raise InvalidProgram: `needed` was required at the current position."""
        found = self.line.text[self.pos :][:40]
        fail(self.line.number, f"expected {needed}, found {found or 'end of line'!r}")

    def skip(self) -> None:
        """Move behind blanks."""
        while self.line.text.startswith(" ", self.pos):
            self.pos += 1

    @property
    def at_end(self) -> bool:
        """True when only blanks are left."""
        self.skip()
        return self.pos >= len(self.line.text)

    def peek(self, literal: str) -> bool:
        """Return whether `literal` comes next."""
        self.skip()
        return self.line.text.startswith(literal, self.pos)

    def accept(self, literal: str) -> bool:
        """Consume `literal` if it comes next."""
        if not self.peek(literal):
            return False
        self.pos += len(literal)
        return True

    def expect(self, literal: str) -> None:
        """Consume `literal` or raise."""
        if not self.accept(literal):
            self.fail(repr(literal))

    def match(self, pattern: re.Pattern[str], needed: str) -> str:
        """Consume and return what `pattern` matches, or raise."""
        self.skip()
        found = pattern.match(self.line.text, self.pos)
        if not found:
            self.fail(needed)
        self.pos = found.end()
        return found[0]

    def word(self, needed: str = "a name") -> str:
        """Consume an identifier."""
        return self.match(_WORD, needed)

    def integer(self) -> int:
        """Consume a decimal or hexadecimal integer."""
        digits = self.match(_INTEGER, "an integer")
        try:
            return int(digits, 16 if "0x" in digits else 10)
        except ValueError as e:  # more digits than Python converts
            fail(self.line.number, str(e))

    def string(self) -> str:
        """Consume a quoted string (JSON escapes)."""
        quoted = self.match(_STRING, "a quoted string")
        try:
            value = json.loads(quoted)
            value.encode()
        except ValueError as e:
            fail(self.line.number, f"{quoted} is not a string: {e}")
        return value

    def end(self) -> None:
        """Raise unless the line is used up."""
        if not self.at_end:
            self.fail("end of line")
