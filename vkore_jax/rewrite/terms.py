"""Sums, products and reductions, matched as what they are.

Not as the trees in which somebody wrote them: any order, any association, division and
negation included, numbers collected into one.  A sum is only cut as far as there are
patterns for its terms, so a captured term may be a sum itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vkore_jax.rewrite.algebra import (
    Const,
    Env,
    Inv,
    Number,
    Pattern,
    alt,
    match_number,
    op,
    term,
    tolerance,
)
from vkore_jax.rewrite.views import View, number, peel

Terms = tuple[tuple[View, bool], ...]


@dataclass(frozen=True)
class Law:
    """How a sum or a product falls apart into terms."""

    join: str
    split: str
    neutral: float
    fold: Callable[[float, float], float]
    inverse: Callable[[float], float]

    def expand(self, view: View, limit: int) -> Iterator[tuple[Terms, float]]:
        """Yield decompositions into at most `limit` terms and a number."""
        known = number(peel(view).value)
        if known is not None:
            yield (), known
            return
        if limit == 0:
            return
        view = peel(view)
        yield ((view, True),), self.neutral
        node = view.node
        if node is None:
            return
        if node.name in (self.join, self.split):
            turned = node.name == self.split
            left, right = (view.of(v) for v in node.inputs)
            for terms, a in self.expand(left, limit):
                for more, b in self.expand(right, limit - len(terms)):
                    b = self._inverse(b) if turned else b
                    tail = tuple((v, s != turned) for v, s in more)
                    yield terms + tail, self.fold(a, b)
        elif node.name == "neg":
            for terms, a in self.expand(view.of(node.inputs[0]), limit):
                if self.join == "mul":
                    yield terms, -a
                else:
                    yield tuple((v, not s) for v, s in terms), -a

    def _inverse(self, x: float) -> float:
        return self.inverse(x) if x or self.join == "add" else math.inf


_SUM = Law("add", "sub", 0.0, lambda a, b: a + b, lambda a: -a)
_PRODUCT = Law("mul", "div", 1.0, lambda a, b: a * b, lambda a: 1 / a)


@dataclass(frozen=True)
class Joined:
    """A sum or a product of terms, and a number."""

    law: Law
    patterns: tuple[Pattern, ...]
    number: Number

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Assign the terms to the patterns in every way."""
        neutral, dtype = self.law.neutral, peel(view).value.dtype
        for terms, found in self.law.expand(view, len(self.patterns)):
            if len(terms) == len(self.patterns):
                new = match_number(self.number, found, neutral, dtype, env)
                if new is not None:
                    yield from self._assign(self.patterns, terms, new)

    def _assign(
        self, patterns: tuple[Pattern, ...], terms: Terms, env: Env
    ) -> Iterator[Env]:
        if not patterns:
            yield env
            return
        for i, (view, positive) in enumerate(terms):
            for new in term(patterns[0], view, positive, env):
                yield from self._assign(patterns[1:], terms[:i] + terms[i + 1 :], new)


def total(*patterns: Pattern, plus: Number = None) -> Joined:
    """A sum of terms (`Inv` where subtracted) and a number."""
    return Joined(_SUM, patterns, plus)


def product(*patterns: Pattern, times: Number = None) -> Joined:
    """A product of factors (`Inv` where divided by) and a number."""
    return Joined(_PRODUCT, patterns, times)


@dataclass(frozen=True)
class Reduce:
    """A reduction over the row axis, seen as constant along it."""

    kind: str
    pattern: Pattern
    mean: bool = False

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match the operand in the same frame; for a mean, the number as well."""
        if not self.mean:
            yield from self._reduced(view, env, 1.0, 0.0)
            return
        near = tolerance(peel(view).value.dtype)
        for terms, found in _PRODUCT.expand(view, 1):
            if len(terms) == 1 and terms[0][1]:
                yield from self._reduced(terms[0][0], env, found, near)

    def _reduced(
        self, view: View, env: Env, factor: float, near: float
    ) -> Iterator[Env]:
        view = peel(view)
        node = view.node
        if node is None or node.name != f"reduce_{self.kind}" or view.along_row:
            return
        operand = node.inputs[0]
        over = [int(a) for a in node.params["axes"]]
        big = [a for a in over if operand.shape[a] != 1] or over[:1]
        if len(big) != 1:
            return
        if self.mean and not math.isclose(
            factor * operand.shape[big[0]], 1, rel_tol=near
        ):
            return
        kept = [a for a in range(len(operand.shape)) if a not in over]
        axes = [None if a is None else kept[a] for a in view.axes]
        axes[view.row] = big[0] if operand.shape[big[0]] != 1 else None
        inner = View(operand, tuple(axes), view.row)
        if inner.full():
            yield from self.pattern.match(inner, env)


def reduce_sum(pattern: Pattern) -> Reduce:
    """The sum over the row."""
    return Reduce("sum", pattern)


def reduce_max(pattern: Pattern) -> Reduce:
    """The maximum over the row."""
    return Reduce("max", pattern)


def mean(pattern: Pattern) -> Reduce:
    """The mean over the row."""
    return Reduce("sum", pattern, mean=True)


def square(pattern: Pattern) -> Pattern:
    """Of one value."""
    return alt(
        op("square", pattern),
        op("integer_pow", pattern, y=2),
        op("mul", pattern, pattern),
        op("pow", pattern, Const(2.0)),
    )


def inverse_root(pattern: Pattern) -> Pattern:
    """One over the square root, as a factor."""
    return alt(
        op("rsqrt", pattern),
        Inv(op("sqrt", pattern)),
        op("pow", pattern, Const(-0.5)),
    )
