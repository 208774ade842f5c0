"""The built-in corpus: a seeded story grammar, so that training needs no download.

Owns the template engine and the casting of a story; words and plots are data in
`train/words.py` and `train/plots.py`.  Story `i` of a seed is a pure function of
`(seed, i)`: the stream can be read from anywhere and is the same on every machine.
"""

import functools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from train.plots import PLOTS, Plot
from train.words import ANIMAL_NAMES, BOYS, GIRLS, PHRASES, SPECIES, TABLES

_TOKEN = re.compile(r"\{\^?[a-z_.]+\}|[\[\]|]|[^\[\]|{}]+")
_SENTENCE = re.compile(r"(?:^|[.!?] +)([a-z])")
_QUOTED_START = re.compile(r'(?:^|\s)"([a-z])')
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")
_SPEAKER = re.compile(r'\."(?= (?:[A-Za-z]+ ){1,4}?(?:said|cried|called)\b)')
_PRONOUNS = {
    "he": {"he": "he", "him": "him", "his": "his"},
    "she": {"he": "she", "him": "her", "his": "her"},
}
_PEOPLE = 0.7  # share of stories with a child, not an animal, in a role


@dataclass(frozen=True)
class Choice:
    """Alternatives of which an expansion takes one."""

    options: "tuple[Template, ...]"


@dataclass(frozen=True)
class Ref:
    """A reference to a binding or a phrase."""

    name: str
    capital: bool


T = TypeVar("T")
Template: TypeAlias = "tuple[str | Ref | Choice, ...]"


@functools.cache
def parse(text: str) -> Template:
    """Parse template text.

    Raises:
        ValueError: unbalanced brackets or a malformed reference.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise ValueError(f"malformed story template: {text!r}")
    template, rest = _parse_sequence(tokens, 0, top=True)
    if rest != len(tokens):
        raise ValueError(f"unbalanced brackets in story template: {text!r}")
    return template


def _parse_sequence(tokens: list[str], i: int, *, top: bool) -> tuple[Template, int]:
    parts: list[str | Ref | Choice] = []
    while i < len(tokens):
        token = tokens[i]
        if token == "[":
            options: list[Template] = []
            while token != "]":
                option, i = _parse_sequence(tokens, i + 1, top=False)
                options.append(option)
                if i >= len(tokens):
                    raise ValueError("story template misses a closing bracket")
                token = tokens[i]
            parts.append(Choice(tuple(options)))
        elif token in ("|", "]"):
            if top:
                raise ValueError(f"{token!r} outside of brackets in a story template")
            return tuple(parts), i
        elif token[0] == "{":
            parts.append(Ref(token.strip("{^}"), token.startswith("{^")))
        else:
            parts.append(token)
        i += 1
    return tuple(parts), i


class Story:
    """One story in the making: its random stream and its fixed facts."""

    def __init__(self, seed: int, index: int):
        """Cast and bind the story `index` of `seed`."""
        self._rng = random.Random(f"{seed}/{index}")
        self._facts: dict[str, str] = {}
        names: set[str] = set()
        for role in ("hero", "friend"):
            self._cast(role, names)
        for table in ("elder", "place", "helper"):
            self._bind_row(table, TABLES[table])
        self.plot: Plot = self._pick(PLOTS)
        for phrase in ("trait", *self.plot.bound):
            self._facts[phrase] = self.expand(PHRASES[phrase])
        if self.plot.variants:
            self._bind_row("plot", self.plot.variants)

    def text(self) -> str:
        """Return the finished story: paragraphs of English sentences."""
        return "\n\n".join(_polish(self.expand(p)) for p in self.plot.paragraphs)

    def expand(self, text: str) -> str:
        """Expand template text with this story's facts and random choices."""
        return self._expand(parse(text))

    def _expand(self, template: Template) -> str:
        out: list[str] = []
        for part in template:
            if isinstance(part, str):
                out.append(part)
            elif isinstance(part, Choice):
                out.append(self._expand(self._pick(part.options)))
            else:
                value = self._facts.get(part.name)
                value = self.expand(PHRASES[part.name] if value is None else value)
                out.append(value[:1].upper() + value[1:] if part.capital else value)
        return "".join(out)

    # `random()` is the one generator method whose stream Python promises to keep.
    def _pick(self, options: tuple[T, ...]) -> T:
        return options[int(self._rng.random() * len(options))]

    def _cast(self, role: str, taken: set[str]) -> None:
        person = self._rng.random() < _PEOPLE
        female = self._rng.random() < 0.5
        pool = (GIRLS if female else BOYS) if person else ANIMAL_NAMES
        name = self._pick(tuple(n for n in pool if n not in taken))
        taken.add(name)
        kind = ("girl" if female else "boy") if person else self._pick(SPECIES)
        self._facts |= {role: name, f"{role}.kind": kind}
        pronouns = _PRONOUNS["she" if female else "he"]
        self._facts |= {f"{role}.{key}": word for key, word in pronouns.items()}

    def _bind_row(self, name: str, table: tuple[str, ...]) -> None:
        columns = [c.strip() for c in table[0].split("|")]
        values = [c.strip() for c in self._pick(table[1:]).split(" | ")]
        self._facts |= {f"{name}.{c}": v for c, v in zip(columns, values, strict=True)}


def _polish(text: str) -> str:
    """Turn expanded template text into written English."""
    text = re.sub(r" +", " ", text).strip()
    text = re.sub(r"\bi\b", "I", text)
    for pattern in (_SENTENCE, _QUOTED_START):
        text = pattern.sub(lambda m: m[0][:-1] + m[1].upper(), text)
    text = _SPEAKER.sub(',"', text)
    return _ARTICLE.sub(r"\1n ", text)


def story(seed: int, index: int) -> str:
    """Return story `index` of the corpus with this seed."""
    return Story(seed, index).text()


def stories(seed: int, count: int) -> Iterator[str]:
    """Yield `count` distinct stories; a repeated text is skipped."""
    seen: set[str] = set()
    index = 0
    while len(seen) < count:
        text = story(seed, index)
        index += 1
        if text not in seen:
            seen.add(text)
            yield text
