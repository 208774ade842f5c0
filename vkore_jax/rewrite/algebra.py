"""Patterns: a small algebra of matchers over views.

A pattern matches a view under an environment (name -> what was captured) and yields the
environments in which it does.  A captured name that occurs twice must be the same view
of the same value.  Sums, products and reductions are in `vkore_jax/rewrite/terms.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from vkore_jax.rewrite.graph import Node
from vkore_jax.rewrite.views import View, number, peel

Env = Mapping[str, Any]
Number = float | str | None
"""Of a sum or product: a number to find, a name to capture it, None for the neutral."""


def tolerance(dtype: Any) -> float:
    """Return how far a number in a formula may be off: its rounding, a few times.

    Wider, and the mean over n - 1 elements would pass for the mean over n.
    """
    return {2: 2e-3, 4: 2e-6}.get(dtype.itemsize, 1e-9)


class Pattern(Protocol):
    """What can be matched."""

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Yield the environments, extending `env`, in which the view matches."""
        ...


def term(pattern: Pattern, view: View, positive: bool, env: Env) -> Iterator[Env]:
    """Match a term: of a sum, with its sign; of a product, with its exponent."""
    if isinstance(pattern, Alt):
        for p in pattern.patterns:
            yield from term(p, view, positive, env)
    elif isinstance(pattern, Inv):
        if not positive:
            yield from pattern.pattern.match(view, env)
    elif positive:
        yield from pattern.match(view, env)


def match_number(
    wanted: Number, found: float, neutral: float, dtype: Any, env: Env
) -> Env | None:
    """Compare a number found in a formula of the type, or capture it."""
    if isinstance(wanted, str):
        return bind(env, wanted, found)
    wanted = neutral if wanted is None else wanted
    near = math.isclose(wanted, found, rel_tol=tolerance(dtype), abs_tol=1e-30)
    return env if near else None


def bind(env: Env, name: str, what: Any) -> Env | None:
    """Capture, or compare with what was captured under the name."""
    if name not in env:
        return {**env, name: what}
    return env if env[name] == what else None


@dataclass(frozen=True)
class Cap:
    """Capture a view under a name, if its inner pattern and test hold.

    The name of what has an inner pattern begins with an underscore: the match does not
    end there.
    """

    name: str
    inner: Pattern | None = None
    test: Callable[[View], bool] = lambda view: True

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Bind first, so that repetitions of the name are compared, not matched."""
        view = peel(view)
        again = self.name in env
        new = bind(env, self.name, view) if self.test(view) else None
        if new is None:
            return
        if again or self.inner is None:
            yield new
        else:
            yield from self.inner.match(view, new)


def row(name: str) -> Cap:
    """Capture what is constant along the row: a statistic."""
    return Cap(name, test=lambda view: not view.along_row)


def column(name: str) -> Cap:
    """Capture what depends on the row axis only: a scale or a bias."""
    return Cap(
        name, test=lambda view: view.only_along_row and number(view.value) is None
    )


@dataclass(frozen=True)
class Const:
    """A number: a given one, or captured under a name."""

    number: Number
    test: Callable[[float], bool] = lambda x: True

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match values whose elements are one known number."""
        value = peel(view).value
        found = number(value)
        if found is not None and self.test(found):
            new = match_number(self.number, found, 0.0, value.dtype, env)
            if new is not None:
                yield new


@dataclass(frozen=True)
class Alt:
    """The first of several that lead to a match."""

    patterns: tuple[Pattern, ...]

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Try all in order."""
        for pattern in self.patterns:
            yield from pattern.match(view, env)


def alt(*patterns: Pattern) -> Alt:
    """One of several patterns."""
    return Alt(patterns)


@dataclass(frozen=True)
class Inv:
    """In a product, the inverse of a pattern; in a sum, its negative."""

    pattern: Pattern

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Only a term of a sum or product can be inverse."""
        return iter(())


@dataclass(frozen=True)
class Lazy:
    """A pattern by name, for recursion."""

    get: Callable[[], Pattern]

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match what the name means."""
        yield from self.get().match(view, env)


@dataclass(frozen=True)
class Op:
    """A primitive of given name and params, elementwise in its operands."""

    name: str
    patterns: tuple[Pattern, ...]
    params: Mapping[str, Any] = field(default_factory=dict)

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match the operands in order; `add`, `mul`, `max` and logic in any order."""
        view = peel(view)
        node = view.node
        if node is None or node.name != self.name:
            return
        if any(node.params.get(k) != v for k, v in self.params.items()):
            return
        if len(node.inputs) != len(self.patterns):
            return
        views = [view.of(v) for v in node.inputs]
        yield from _all(self.patterns, views, env)
        if self.name in _COMMUTATIVE:
            yield from _all(self.patterns, views[::-1], env)


_COMMUTATIVE = frozenset({"add", "mul", "max", "and", "or", "eq", "ne"})


def op(name: str, *patterns: Pattern, **params: Any) -> Op:
    """A primitive applied to what the patterns match."""
    return Op(name, patterns, params)


def _all(patterns: tuple[Pattern, ...], views: list[View], env: Env) -> Iterator[Env]:
    if not patterns:
        yield env
        return
    for new in patterns[0].match(views[0], env):
        yield from _all(patterns[1:], views[1:], new)


@dataclass(frozen=True)
class Made:
    """Capture a value that one of some primitives made, as it lies in the frame."""

    name: str
    primitives: frozenset[str]

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Bind the view of the primitive's output."""
        view = peel(view)
        node: Node | None = view.node
        if node is not None and node.name in self.primitives:
            new = bind(env, self.name, view)
            if new is not None:
                yield new


def dot(name: str) -> Made:
    """Capture the output of a contraction."""
    return Made(name, frozenset({"dot_general"}))
