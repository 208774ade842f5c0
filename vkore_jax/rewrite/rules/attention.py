"""Softmax attention, whatever the order of its axes and the shape of its mask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from vkore_jax.rewrite.algebra import Cap, Env, Inv, Lazy, Pattern, alt, dot, op, row
from vkore_jax.rewrite.graph import Node
from vkore_jax.rewrite.rule import Match, Rule
from vkore_jax.rewrite.rules.heads import Refused, layout, plan
from vkore_jax.rewrite.rules.lookup import Contracted
from vkore_jax.rewrite.terms import product, reduce_sum, total
from vkore_jax.rewrite.views import View, number, peel

HIDDEN_BELOW = -1e4
"""A score this low has no weight: exp(-10^4) is zero in every type."""


@dataclass(frozen=True)
class Mask:
    """What a mask does to the scores.

    Attributes:
        view: the mask, or what decides it.
        positive: whether the query sees the key where it is true.
        fill: the score of a hidden key.
        added: whether the fill is added to the score, instead of replacing it.
    """

    view: View
    positive: bool
    fill: float
    added: bool


def _push(env: Env, mask: Mask) -> Env:
    return {**env, "masks": (*env.get("masks", ()), mask)}


def _fills(view: View) -> Iterator[tuple[View, View, bool, float]]:
    """Yield (condition, what is kept, where the condition is, the other number)."""
    node = peel(view).node
    if node is None or node.name != "select_n" or len(node.inputs) != 3:
        return
    predicate, *cases = (peel(view).of(v) for v in node.inputs)
    for kept in (1, 0):
        other = number(peel(cases[1 - kept]).value)
        if other is not None:
            yield predicate, cases[kept], bool(kept), other


@dataclass(frozen=True)
class Replaced:
    """Where hidden, another number in place of the pattern."""

    pattern: Pattern
    below: float = HIDDEN_BELOW
    exactly: float | None = None

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match the selection, then what is kept."""
        for predicate, kept, positive, fill in _fills(view):
            if fill == self.exactly or (self.exactly is None and fill <= self.below):
                score = -math.inf if self.exactly is not None else fill
                mask = Mask(predicate, positive, score, added=False)
                yield from self.pattern.match(kept, _push(env, mask))


class Penalty:
    """A bias that is zero where visible and very low elsewhere."""

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match a selection of two numbers, or (mask - 1) times a large number."""
        for predicate, kept, positive, fill in _fills(view):
            if fill <= HIDDEN_BELOW and number(peel(kept).value) == 0:
                yield _push(env, Mask(predicate, positive, fill, added=True))
        for new in _ONE_MINUS.match(view, {}):
            if new["low"] <= HIDDEN_BELOW:
                yield _push(env, Mask(new["mask"], True, new["low"], added=True))


_ONE_MINUS = product(total(Inv(Cap("mask")), plus=1.0), times="low")

SCORES = alt(
    dot("qk"),
    product(dot("qk"), times="scale"),
    Replaced(Lazy(lambda: SCORES)),
    total(Lazy(lambda: SCORES), Penalty()),
)
# Softmax is the same for any shift that is constant along the row.
_EXP = alt(op("exp", total(SCORES, Inv(row("top")))), op("exp", SCORES))
EXP = alt(_EXP, Replaced(_EXP, exactly=0.0))
SOFTMAX = product(Cap("_e", EXP), Inv(reduce_sum(Cap("_e", EXP))))
ATTENTION = Contracted("pv", SOFTMAX)


def _guard(match: Match) -> str | None:
    try:
        layout(match)
    except Refused as refused:
        return str(refused)
    return None


def explain(node: Node) -> str:
    """Say why a batched product is no attention that the primitive covers."""
    names, queue, seen = set(), list(node.inputs), set()
    while queue and len(seen) < 400:
        below = queue.pop().node
        if below is not None and below not in seen:
            seen.add(below)
            names.add(below.name)
            if below.name != "dot_general":
                queue += below.inputs
    if "exp" not in names or "reduce_sum" not in names:
        return "a batched product, in no attention that has a primitive"
    if any(n.startswith(("random", "threefry", "rng")) for n in names):
        return "dropout on the attention weights: the primitive has none"
    return "its softmax is of something else than scale q k under a mask"


ATTENTION_RULE = Rule("attention", ("dot_general",), ATTENTION, plan, _guard)
