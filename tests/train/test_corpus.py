"""The story grammar: the same everywhere, varied, and consistent in itself."""

import hashlib
import re

import pytest

from train import corpus
from train.plots import PLOTS
from train.words import ANIMAL_NAMES, BOYS, GIRLS, PHRASES

NAMES = {*GIRLS, *BOYS, *ANIMAL_NAMES}
COUNT = 1500


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [corpus.story(0, i) for i in range(COUNT)]


def test_stories_are_a_pure_function_of_seed_and_index(texts: list[str]) -> None:
    assert [corpus.story(0, i) for i in (700, 3, 0)] == [texts[700], texts[3], texts[0]]
    assert corpus.story(1, 0) != texts[0]
    assert list(corpus.stories(seed=0, count=20)) == texts[:20]


def test_stories_are_the_same_on_every_machine(texts: list[str]) -> None:
    digest = hashlib.sha256("\n".join(texts[:100]).encode()).hexdigest()
    assert digest[:16] == "2b0f7eaa58b367bf"  # change it when the grammar changes


def test_stories_are_varied(texts: list[str]) -> None:
    assert len(set(texts)) == COUNT
    sentences = [s for t in texts for s in re.split(r"(?<=[.!?]) |\n\n", t)]
    assert len(set(sentences)) > 0.4 * len(sentences)
    openings = {t[:60] for t in texts}
    assert len(openings) > 0.9 * COUNT


def test_every_plot_and_every_name_occurs() -> None:
    stories = [corpus.Story(0, i) for i in range(COUNT)]
    assert {s.plot.name for s in stories} == {p.name for p in PLOTS}
    found = {w for s in stories for w in re.findall(r"[A-Z][a-z]+", s.text())}
    assert found >= NAMES


def test_stories_keep_their_cast(texts: list[str]) -> None:
    for text in texts:
        present = {w for w in re.findall(r"\b[A-Z][a-z]+\b", text) if w in NAMES}
        assert 1 <= len(present) <= 2, text


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("template syntax", r"[\[\]{}|]"),
        ("two spaces", r"  "),
        ("a before a vowel", r"\b[Aa] [aeiou]"),
        ("small first letter", r'(?:^|\n|[a-z][.!?] )[a-z]|(?:^|\s)"[a-z]'),
        ("small pronoun I", r"\bi\b"),
        ("space before a mark", r" [.,!?]"),
        ("doubled mark", r"[.,][.,!?]"),
        ("period before the speaker", r'\." \w+ said'),
    ],
)
def test_stories_are_written_english(texts: list[str], what: str, pattern: str) -> None:
    found = [
        t[max(0, m.start() - 30) : m.end() + 30]
        for t in texts
        if (m := re.search(pattern, t))
    ]
    assert not found, f"{what}: {found[:3]}"


def test_every_template_parses() -> None:
    rows = [p for plot in PLOTS for p in (*plot.paragraphs, *plot.variants[1:])]
    for text in (*PHRASES.values(), *(cell for r in rows for cell in r.split(" | "))):
        corpus.parse(text)


@pytest.mark.parametrize("text", ["a [b", "a ] b", "a | b", "{No}", "{x"])
def test_malformed_templates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="template"):
        corpus.parse(text)
