"""A rule: which roots, which pattern, when not, and what to put in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from vkore_jax.rewrite.algebra import Env, Pattern
from vkore_jax.rewrite.graph import Node, Read, Value
from vkore_jax.rewrite.views import View, realise, whole

CASTS = ("convert_element_type",)
ARITHMETIC = ("add", "sub", "mul", "div", "neg")


@dataclass(frozen=True)
class Match:
    """A root whose pattern matched.

    Attributes:
        root: the value that is to be computed otherwise.
        env: what the pattern captured: views and numbers.
    """

    root: Value
    env: Env

    def view(self, name: str) -> View:
        """Return a captured view."""
        return self.env[name]

    def has(self, name: str) -> bool:
        """Whether something was captured under the name."""
        return name in self.env

    def number(self, name: str) -> float:
        """Return a captured number."""
        return self.env[name]

    def node(self, name: str) -> Node:
        """Return what computes a captured view."""
        node = self.env[name].node
        assert node is not None
        return node


@dataclass(frozen=True)
class Plan:
    """What replaces a root.

    Attributes:
        inputs: the values that `run` reads.
        run: computes the root's array, of its shape; the engine casts.
        note: what the report says about it.
    """

    inputs: tuple[Value, ...]
    run: Callable[[Read], Any]
    note: str = ""


def own_axes(root: Value) -> View:
    """Match a root in its own axes."""
    return whole(root)


def with_row(root: Value) -> View:
    """Match a root that is reduced over a row in its axes and, last, the row."""
    axes = tuple(i if n != 1 else None for i, n in enumerate(root.shape))
    return View(root, (*axes, None), len(axes))


def no_guard(match: Match) -> str | None:
    """Accept."""
    return None


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        name: of the vkore primitive that comes in.
        roots: primitives that a match can end with.
        pattern: what the root must be.
        plan: what replaces it.
        guard: why this match must be left alone, "" for no reason worth a line; None
            accepts.
        frame: how the root is viewed.
        takes: primitives inside the match that must not be needed elsewhere, since
            they would be computed twice.
    """

    name: str
    roots: tuple[str, ...]
    pattern: Pattern
    plan: Callable[[Match], Plan]
    guard: Callable[[Match], str | None] = no_guard
    frame: Callable[[Value], View] = own_axes
    takes: frozenset[str] = field(default=frozenset({"dot_general"}))


def fills(match: Match, name: str) -> bool:
    """Whether a captured view has the root's shape."""
    view = match.view(name)
    return sizes(view) == match.root.shape


def sizes(view: View) -> tuple[int, ...]:
    """Return the sizes of a view in its frame, ones where constant."""
    shape = view.value.shape
    return tuple(1 if a is None else shape[a] for a in view.axes)


def values(env: Mapping[str, Any], *names: str) -> tuple[Value, ...]:
    """Return the values of the views captured under those of the names that exist."""
    return tuple(env[n].value for n in names if n in env)


def is_float(*arrays: Value) -> bool:
    """Whether all are floating point, of types that the primitives take."""
    return all(
        jnp.issubdtype(a.dtype, jnp.floating) and a.dtype.itemsize >= 2 for a in arrays
    )


def common_type(root: Value, others: Iterable[Value]) -> Any:
    """Return the type to compute in: no narrower than the result and operands."""
    return jnp.result_type(root.dtype, *(v.dtype for v in others))


def read_vector(view: View, read: Read) -> Any:
    """Return a view that depends on the row only as a vector."""
    return realise(view, read).reshape(-1)
