"""Contractions without batch axes, with what follows them in the epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from vkore_jax import primitives
from vkore_jax.rewrite.algebra import Cap, alt, dot
from vkore_jax.rewrite.graph import Node, Read, Value
from vkore_jax.rewrite.rule import ARITHMETIC, CASTS, Match, Plan, Rule, is_float
from vkore_jax.rewrite.rules.activations import ACTIVATIONS
from vkore_jax.rewrite.rules.activations import ROOTS as ACTIVATED
from vkore_jax.rewrite.terms import total
from vkore_jax.rewrite.views import View, realise

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Contraction:
    """The axes of a dot_general; its output has batch, left free, right free axes."""

    left: Value
    right: Value
    contract: tuple[Axes, Axes]
    batch: tuple[Axes, Axes]
    precision: Any
    output: Value

    @property
    def free(self) -> tuple[Axes, Axes]:
        """Axes of either operand that are neither contracted nor batched."""
        return tuple(
            tuple(a for a in range(len(v.shape)) if a not in (*c, *b))
            for v, c, b in zip(
                (self.left, self.right), self.contract, self.batch, strict=True
            )
        )  # pyright: ignore[reportReturnType]  # two operands, two tuples

    @property
    def dtype(self) -> Any:
        """Type in which the primitives compute it."""
        return jnp.result_type(self.left.dtype, self.right.dtype)

    def refuses(self) -> str | None:
        """Say why the primitives cannot compute it, whatever its axes are."""
        if not is_float(self.left, self.right, self.output):
            return f"operands are {self.left.dtype} and {self.right.dtype}"
        if min((1, *self.left.shape, *self.right.shape)) == 0:
            return "an operand is empty"
        if isinstance(self.precision, tuple):
            return "the operands have different precisions"
        return None


_SAME = {
    "bfloat16": ("BF16_BF16_F32", "HIGH", "HIGHEST"),
    "float16": ("F16_F16_F32", "HIGH", "HIGHEST"),
}
"""Precisions that change nothing for operands of 16 bits."""


def _name(precision: Any) -> str | None:
    return getattr(precision, "name", None)


def contraction(node: Node) -> Contraction:
    """Read a dot_general."""
    contract, batch = node.params["dimension_numbers"]
    precision = node.params.get("precision")
    if isinstance(precision, tuple) and len(set(precision)) == 1:
        precision = precision[0]
    left, right = node.inputs
    if left.dtype == right.dtype and _name(precision) in _SAME.get(str(left.dtype), ()):
        precision = None  # what the primitives do anyway

    def axes(pair: Any) -> tuple[Axes, Axes]:
        return tuple(map(int, pair[0])), tuple(map(int, pair[1]))

    # The order of contracted axes is free: in the left operand's, it is not transposed,
    # and merging its axes keeps a partitioned one in front.
    pairs = sorted(zip(*axes(contract), strict=True))
    contracted = tuple(i for i, _ in pairs), tuple(j for _, j in pairs)
    return Contraction(left, right, contracted, axes(batch), precision, node.outputs[0])


def matrix(array: Any, first: Axes, then: Axes, *, keep: bool = False) -> Any:
    """Transpose to (first, then) and merge both; with `keep`, only the latter."""
    if (*first, *then) != tuple(range(array.ndim)):
        array = jnp.transpose(array, (*first, *then))
    lead = array.shape[: len(first)]
    size = math.prod(array.shape[len(first) :])
    return array.reshape(*(lead if keep else (math.prod(lead),)), size)


def lay(array: Any, view: View, shape: Axes) -> Any:
    """Put an array of a view's value into the view's frame."""
    value = Value(view.value.aval)
    return realise(View(value, view.axes, view.row), lambda _: array).reshape(shape)


DOT = dot("dot")
HIDDEN = alt(total(DOT, Cap("b")), DOT)


def _guard(match: Match) -> str | None:
    dots = contraction(match.node("dot"))
    if dots.batch[0]:
        return ""  # as the report says of every batched product
    reason = dots.refuses()
    if reason:
        return reason
    if dots.output.dtype != dots.dtype:
        return f"the result is kept in {dots.output.dtype}, wider than the operands"
    view = match.view("dot")
    if math.prod(match.root.shape) != math.prod(dots.output.shape):
        return "the product is broadcast"
    activated = match.has("_h")
    if activated and jnp.promote_types(match.root.dtype, dots.dtype) != dots.dtype:
        return f"the activation is computed in {match.root.dtype}"
    if match.has("b"):
        bias, first = match.view("b"), len(dots.free[0])
        if not is_float(bias.value):
            return "the bias is not floating point"
        for mine, theirs in zip(bias.axes, view.axes, strict=True):
            if mine is not None and (theirs is None or theirs < first):
                return "what is added varies over rows: not a bias"
    return None


def _plan(activation: str | None) -> Callable[[Match], Plan]:
    def plan(match: Match) -> Plan:
        dots, view = contraction(match.node("dot")), match.view("dot")
        (free, columns), (k, rows) = dots.free, dots.contract
        bias = match.view("b") if match.has("b") else None
        sizes = [dots.right.shape[a] for a in columns]

        def run(read: Read) -> Any:
            x = matrix(read(dots.left), free, k, keep=True)
            w = matrix(read(dots.right), rows, columns)
            b = None
            if bias is not None:
                b = _bias(bias, view, len(free), sizes, read).astype(dots.dtype)
            y = primitives.linear(
                x, w, b, activation=activation, precision=dots.precision
            )
            return lay(y.reshape(dots.output.shape), view, match.root.shape)

        inputs = (dots.left, dots.right, *(() if bias is None else (bias.value,)))
        parts = ["bias"] * (bias is not None) + [activation] * (activation is not None)
        return Plan(
            inputs, run, "with " + " and ".join(map(str, parts)) if parts else ""
        )

    return plan


def _bias(bias: View, out: View, first: int, sizes: list[int], read: Read) -> Any:
    """Return the bias as a vector over the product's columns."""
    place = {a: f for f, a in enumerate(out.axes) if a is not None}
    axes = tuple(
        bias.axes[place[first + i]] if first + i in place else None
        for i in range(len(sizes))
    )
    array = realise(View(bias.value, axes, 0), read)
    return jnp.broadcast_to(array, sizes).reshape(-1)


ACTIVATED_LINEAR = tuple(
    Rule("linear", ACTIVATED, make(Cap("_h", HIDDEN)), _plan(name), _guard)
    for name, make in ACTIVATIONS.items()
)
LINEAR = (
    Rule("linear", (*ARITHMETIC, *CASTS), total(DOT, Cap("b")), _plan(None), _guard),
    Rule("linear", ("dot_general",), DOT, _plan(None), _guard),
)
