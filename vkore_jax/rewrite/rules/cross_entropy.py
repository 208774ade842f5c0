"""Softmax cross-entropy of logits that are a projection: both in one.

The logits of a projection are not stored, provided that nobody else reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from vkore_jax import primitives
from vkore_jax.primitives._common import signed
from vkore_jax.rewrite.algebra import (
    Cap,
    Env,
    Inv,
    Pattern,
    alt,
    bind,
    column,
    dot,
    op,
    row,
)
from vkore_jax.rewrite.graph import Node, Read, Value
from vkore_jax.rewrite.rule import (
    ARITHMETIC,
    CASTS,
    Match,
    Plan,
    Rule,
    is_float,
    sizes,
    with_row,
)
from vkore_jax.rewrite.rules.linear import contraction
from vkore_jax.rewrite.rules.lookup import one_hot
from vkore_jax.rewrite.terms import product, reduce_sum, total
from vkore_jax.rewrite.views import View, peel, realise, whole


@dataclass(frozen=True)
class TakeAlong:
    """One element of each row, by ids; captures the gather under `name`."""

    name: str
    pattern: Pattern

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match the operand with its row."""
        view = peel(view)
        node = view.node
        if node is None or node.name != "gather" or view.along_row:
            return
        operand, d = node.inputs[0], node.params["dimension_numbers"]
        last = len(operand.shape) - 1
        rows = [a for a in range(last) if operand.shape[a] != 1]
        found = [a for a, n in enumerate(view.value.shape) if n != 1]
        if (
            tuple(d.start_index_map) != (last,)
            or [a for a in d.operand_batching_dims if operand.shape[a] != 1] != rows
            or list(d.start_indices_batching_dims)
            != sorted(d.start_indices_batching_dims)
            or set(node.params["slice_sizes"]) != {1}
            or len(found) != len(rows)
        ):
            return
        # Axes of size one apart, the output has the axes of the rows.
        source = dict(zip(found, rows, strict=True))
        axes = [None if a is None else source[a] for a in view.axes]
        axes[view.row] = last
        new = bind(env, self.name, view)
        if new is not None:
            inner = View(operand, tuple(axes), view.row)
            yield from self.pattern.match(inner, new)


Z, TOP = Cap("z", test=lambda view: view.along_row), row("top")
SHIFTED = total(Z, Inv(TOP))
SUM = reduce_sum(op("exp", SHIFTED))
LOG_SUM = alt(op("log", op("abs", SUM)), op("log", SUM))
LOG_SUM_EXP = total(LOG_SUM, TOP)
LOG_PROBABILITY = total(SHIFTED, Inv(LOG_SUM))
# A sum is only cut into terms as far as needed, so both shapes of it are listed.
LOG_SOFTMAX = alt(
    LOG_PROBABILITY,
    total(Z, Inv(LOG_SUM_EXP)),
    total(Z, Inv(TOP), Inv(LOG_SUM)),
)


def _picked(what: Pattern) -> Pattern:
    """The target's entry of a row."""
    return alt(
        TakeAlong("take", what),
        reduce_sum(product(one_hot(row("ids")), what)),
    )


CROSS_ENTROPY = alt(
    product(_picked(LOG_SOFTMAX), times="sign"),
    total(LOG_SUM_EXP, Inv(_picked(Z))),
    total(LOG_SUM, TOP, Inv(_picked(Z))),
)

LOGITS = alt(
    total(product(dot("dot"), times="scale"), column("b")),
    product(dot("dot"), times="scale"),
)


def _logits(match: Match) -> tuple[Env, list[Node]] | None:
    """Match the logits, in the frame of their own axes.

    Returns:
        What was captured, and the nodes between product and loss that only merge, split
        or cut axes of positions, last one first: they can act on x as well.
    """
    value, steps = match.view("z").value, []
    while True:
        for env in LOGITS.match(whole(value), {}):
            return env, steps
        node = value.node
        if node is None or node.name not in ("reshape", "slice"):
            return None
        below = node.inputs[0]
        if below.shape[-1:] != value.shape[-1:]:
            return None
        steps.append(node)
        value = below


def _act(x: Any, steps: list[Node]) -> Any:
    """Apply to (..., c) what was done to the logits (..., v)."""
    for node in reversed(steps):
        if node.name == "reshape":
            x = x.reshape(*node.outputs[0].shape[:-1], x.shape[-1])
        else:
            given = (node.params[k] for k in ("start_indices", "limit_indices"))
            strides = node.params["strides"] or (1,) * x.ndim
            cuts = [slice(*c) for c in zip(*given, strides, strict=True)]
            x = x[tuple(cuts[:-1])]
    return x


def _guard(match: Match) -> str | None:
    z = match.view("z")
    lead = [a for a in z.axes[:-1] if a is not None]
    if not is_float(z.value) or sizes(z)[:-1] != match.root.shape:
        return "the logits are broadcast"
    if z.axes[z.row] != len(z.value.shape) - 1 or lead != sorted(lead):
        return "the vocabulary is not the last axis of the logits"
    found = _logits(match)
    if found is None:
        return "the logits are no projection x w + b"
    env, _ = found
    dots = contraction(env["dot"].node)
    if dots.batch[0] or len(dots.contract[0]) != 1 or len(dots.right.shape) != 2:
        return "the projection to logits has no weight matrix"
    axes = [a for a in env["dot"].axes if a is not None]
    if axes != sorted(axes):
        return "the logits are transposed"
    if env["dot"].axes[-1] != len(dots.output.shape) - 1:
        return "the projection's weight is its left operand"
    if match.has("ids"):
        if not jnp.issubdtype(match.view("ids").value.dtype, jnp.integer):
            return "the targets are not integers"
    elif _fills_with_a_number(match.node("take")):
        return "a target outside of the vocabulary has a loss of its own"
    return dots.refuses()


def _fills_with_a_number(node: Node) -> bool:
    if not str(node.params["mode"]).endswith("FILL_OR_DROP"):
        return False
    fill = node.params["fill_value"]
    return fill is not None and not np.isnan(fill)


def _ids(match: Match, vocab: int) -> tuple[Value, Callable[[Read], Any], int | None]:
    """Return what holds the targets, how to read them, and the one to ignore."""
    shape = match.root.shape
    if match.has("ids"):
        return match.view("ids").value, _hot_ids(match, vocab), -1
    node = match.node("take")
    clips = not str(node.params["mode"]).endswith("FILL_OR_DROP")

    def read_ids(read: Read) -> Any:
        # Outside of the vocabulary: not a number, here and there.
        ids = signed(read(node.inputs[1])).reshape(shape)
        return jnp.clip(ids, 0, vocab - 1) if clips else ids

    return node.inputs[1], read_ids, None


def _hot_ids(match: Match, vocab: int) -> Callable[[Read], Any]:
    view, shape = match.view("ids"), match.root.shape

    def read_ids(read: Read) -> Any:  # no id, no entry: a loss of zero
        ids = signed(jnp.squeeze(realise(view, read), view.row))
        ids = jnp.broadcast_to(ids, shape)
        return jnp.where((ids >= 0) & (ids < vocab), ids, -1)

    return read_ids


def _plan(match: Match) -> Plan:
    found = _logits(match)
    assert found is not None  # the guard has seen it
    env, steps = found
    dots, scale = contraction(env["dot"].node), env["scale"]
    bias: View | None = env.get("b")
    sign = match.env.get("sign", -1.0)
    vocab = dots.output.shape[-1]
    ids, read_ids, ignored = _ids(match, vocab)

    def run(read: Read) -> Any:
        x = jnp.moveaxis(read(dots.left), dots.contract[0][0], -1)
        x = x.reshape(*dots.output.shape[:-1], x.shape[-1])
        x = _act(x, steps).reshape(*match.root.shape, x.shape[-1])
        if scale != 1:
            x = x * jnp.asarray(scale, x.dtype)
        b = None if bias is None else realise(bias, read).reshape(-1)
        loss = primitives.softmax_cross_entropy(
            x,
            read(dots.right),
            read_ids(read),
            None if b is None else jnp.broadcast_to(b, (vocab,)).astype(x.dtype),
            vocab_axis=1 - dots.contract[1][0],
            ignore_index=ignored,
            precision=dots.precision,
        )
        return loss * -sign if sign != -1 else loss

    more = () if bias is None else (bias.value,)
    return Plan((dots.left, dots.right, ids, *more), run, "logits are not stored")


CROSS_ENTROPY_RULE = Rule(
    "softmax_cross_entropy",
    (*ARITHMETIC, *CASTS, "reduce_sum", "squeeze", "reshape", "gather"),
    CROSS_ENTROPY,
    _plan,
    _guard,
    frame=with_row,
)
