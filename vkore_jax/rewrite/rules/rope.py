"""Rotary positions in half-split order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from vkore_jax import primitives
from vkore_jax.rewrite.algebra import Cap, Env, Inv, Pattern, alt, bind
from vkore_jax.rewrite.graph import Node, Read, Value
from vkore_jax.rewrite.rule import (
    ARITHMETIC,
    CASTS,
    Match,
    Plan,
    Rule,
    common_type,
    is_float,
)
from vkore_jax.rewrite.terms import product, total
from vkore_jax.rewrite.views import View, peel, realise


@dataclass(frozen=True)
class Half:
    """One half (0 or 1) of the row of what is captured under a name."""

    name: str
    which: int

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match a slice or an output of a split."""
        view = peel(view)
        node, axis = view.node, view.axes[view.row]
        if node is None or axis is None or self._part(node, view.value, axis) is None:
            return
        operand = peel(View(node.inputs[0], view.axes, view.row))
        new = bind(env, self.name, operand)
        if new is not None:
            yield new

    def _part(self, node: Node, value: Value, axis: int) -> int | None:
        old, new = node.inputs[0].shape if node.inputs else (), value.shape
        if node.name not in ("slice", "split") or 2 * new[axis] != old[axis]:
            return None
        if new[:axis] + new[axis + 1 :] != old[:axis] + old[axis + 1 :]:
            return None
        if node.name == "split":
            place = node.outputs.index(value) if len(node.outputs) == 2 else None
        else:
            place = {0: 0, new[axis]: 1}.get(node.params["start_indices"][axis])
            if any(s != 1 for s in node.params["strides"] or ()):
                return None
        return place if place == self.which else None


@dataclass(frozen=True)
class Joined:
    """Two halves put together along the row."""

    left: Pattern
    right: Pattern

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match both halves in the same frame."""
        view = peel(view)
        node = view.node
        if node is None or node.name != "concatenate" or len(node.inputs) != 2:
            return
        a, b = node.inputs
        if view.axes[view.row] != node.params["dimension"] or a.shape != b.shape:
            return
        parts = [View(v, view.axes, view.row) for v in (a, b)]
        for new in self.left.match(parts[0], env):
            yield from self.right.match(parts[1], new)


COS, SIN = Cap("cos"), Cap("sin")
LEFT, RIGHT = Half("x", 0), Half("x", 1)
ROPE = alt(
    Joined(
        total(product(LEFT, COS), Inv(product(RIGHT, SIN))),
        total(product(RIGHT, COS), product(LEFT, SIN)),
    ),
    # x cos + rotated(x) sin, with tables that hold every angle twice.
    total(
        product(Cap("x"), Joined(COS, COS)),
        product(Joined(product(RIGHT, times=-1.0), LEFT), Joined(SIN, SIN)),
    ),
)


def _axes(match: Match) -> tuple[int, int] | None:
    """Return the axes of time and heads: the one the tables depend on, the other."""
    rank = len(match.root.shape)
    tables = (match.view("cos"), match.view("sin"))
    for time, head in ((rank - 3, rank - 2), (rank - 2, rank - 3)):
        if all(t.axes[head] is None for t in tables):
            return time, head
    return None


def _guard(match: Match) -> str | None:
    x, root = match.view("x"), match.root
    if not is_float(root, x.value, match.view("cos").value, match.view("sin").value):
        return "not floating point"
    if len(root.shape) < 3 or realised(x) != root.shape:
        return "needs (..., time, heads, channels)"
    if _axes(match) is None:
        return "the angles depend on the head"
    return None


def realised(view: View) -> tuple[int, ...]:
    """Return the shape of the view in its frame."""
    shape = view.value.shape
    return tuple(1 if a is None else shape[a] for a in view.axes)


def _plan(match: Match) -> Plan:
    views = [match.view(n) for n in ("x", "cos", "sin")]
    axes, shape = _axes(match), match.root.shape
    assert axes is not None  # the guard has seen it
    time, head = axes
    swapped = time > head
    dtype = common_type(match.root, [views[0].value])
    lead, d = shape[: len(shape) - 3], shape[-1]

    def table(view: View, read: Read) -> Any:
        array = jnp.squeeze(realise(view, read), head)
        # Axes that the table does not have stay of size one, but for time.
        array = jnp.broadcast_to(array, (*array.shape[:-2], shape[time], d // 2))
        return array.reshape(array.shape) if lead else array

    def run(read: Read) -> Any:
        x, cos, sin = (
            realise(views[0], read),
            table(views[1], read),
            table(views[2], read),
        )
        x = jnp.swapaxes(x, time, head) if swapped else x
        y = primitives.rope(x.astype(dtype), cos, sin)
        return jnp.swapaxes(y, time, head) if swapped else y

    return Plan(tuple(v.value for v in views), run)


ROPE_RULE = Rule(
    "rope", ("concatenate", *ARITHMETIC, *CASTS), ROPE, _plan, _guard, takes=frozenset()
)
