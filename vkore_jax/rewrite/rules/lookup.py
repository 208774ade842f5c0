"""Rows of a table: by gather, or by a product with a one-hot matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from vkore_jax import primitives
from vkore_jax.primitives._common import signed
from vkore_jax.rewrite.algebra import Const, Env, Made, Pattern, alt, bind, op, row
from vkore_jax.rewrite.graph import Node, Read, Value
from vkore_jax.rewrite.rule import Match, Plan, Rule, is_float
from vkore_jax.rewrite.rules.linear import contraction, lay
from vkore_jax.rewrite.views import View, peel, realise, whole


@dataclass(frozen=True)
class Positions:
    """0, 1, 2, ... along the row."""

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match an iota."""
        view = peel(view)
        node = view.node
        if (
            node is not None
            and node.name == "iota"
            and view.only_along_row
            and view.axes[view.row] == node.params["dimension"]
            and _counts_to(node.outputs[0].shape[node.params["dimension"]], node)
        ):
            yield env


def _counts_to(size: int, node: Node) -> bool:
    """Whether an iota's type holds all indices; uint8 begins anew after 255."""
    dtype = node.outputs[0].dtype
    return not jnp.issubdtype(dtype, jnp.integer) or size - 1 <= jnp.iinfo(dtype).max


def one_hot(ids: Pattern) -> Pattern:
    """A row that is one at the id and zero elsewhere."""
    hit = op("eq", ids, Positions())
    return alt(
        op("convert_element_type", hit),
        op("select_n", hit, Const(0.0), Const(1.0)),
    )


@dataclass(frozen=True)
class Contracted:
    """A contraction over one axis; the pattern matches an operand along that axis.

    Captures the output under `name`, and under `name_side` which operand it was.
    """

    name: str
    pattern: Pattern

    def match(self, view: View, env: Env) -> Iterator[Env]:
        """Match either operand, seen in its own axes."""
        for new in Made(self.name, frozenset({"dot_general"})).match(view, env):
            node = new[self.name].node
            (left, right), _ = node.params["dimension_numbers"]
            if len(left) != 1:
                continue
            for side, axis in enumerate((left[0], right[0])):
                more = bind(new, f"{self.name}_side", side)
                if more is not None:
                    operand = whole(node.inputs[side], int(axis))
                    yield from self.pattern.match(operand, more)


GATHER = Made("rows", frozenset({"gather"}))
ONE_HOT = Contracted("dot", one_hot(row("ids")))


def _gather_guard(match: Match) -> str | None:
    node = match.node("rows")
    table = node.inputs[0]
    d = node.params["dimension_numbers"]
    out = len(node.outputs[0].shape)
    if not is_float(table):
        return f"a table of {table.dtype}"
    if not (
        len(table.shape) == 2
        and tuple(d.collapsed_slice_dims) == tuple(d.start_index_map) == (0,)
        and not d.operand_batching_dims
        and tuple(node.params["slice_sizes"]) == (1, table.shape[1])
        and tuple(d.offset_dims) == (out - 1,)
    ):
        return ""
    if min(table.shape) == 0:
        return "the table is empty"
    return None


def _gather_plan(match: Match) -> Plan:
    node = match.node("rows")
    table, ids = node.inputs
    mode, vocab = str(node.params["mode"]), table.shape[0]

    def run(read: Read) -> Any:
        where = signed(read(ids)).reshape(ids.shape[:-1])
        inside = jnp.clip(where, 0, vocab - 1)
        if not mode.endswith("FILL_OR_DROP"):  # XLA clamps
            return primitives.embedding(read(table), inside)
        found = primitives.embedding(read(table), where)
        fill = node.params["fill_value"]
        return jnp.where((where == inside)[..., None], found, fill)

    return Plan((table, ids), run)


def _one_hot_guard(match: Match) -> str | None:
    dots = contraction(match.node("dot"))
    table = _table(match)
    if dots.batch[0] or len(table.shape) != 2:
        return "a batched product with a one-hot matrix"
    if not jnp.issubdtype(match.view("ids").value.dtype, jnp.integer):
        return "the ids are not integers"
    return dots.refuses()


def _table(match: Match) -> Value:
    return match.node("dot").inputs[1 - match.env["dot_side"]]


def _one_hot_plan(match: Match) -> Plan:
    dots, ids, side = contraction(match.node("dot")), match.view("ids"), 0
    side = match.env["dot_side"]
    table, vocab_axis = _table(match), dots.contract[1 - side][0]

    def run(read: Read) -> Any:
        where = realise(ids, read)
        where = jnp.squeeze(where, ids.row)
        lead = [n for i, n in enumerate(dots_shape) if i != ids.row]
        where = jnp.broadcast_to(where, lead)
        rows = read(table) if vocab_axis == 0 else read(table).T
        y = primitives.embedding(rows, where, precision=dots.precision)
        if side == 1:  # the table's channels come first in the output
            y = jnp.moveaxis(y, -1, 0)
        return lay(y, match.view("dot"), match.root.shape)

    dots_shape = match.node("dot").inputs[side].shape
    return Plan((table, ids.value), run, "by one-hot product")


EMBEDDING = (
    Rule("embedding", ("gather",), GATHER, _gather_plan, _gather_guard),
    Rule("embedding", ("dot_general",), ONE_HOT, _one_hot_plan, _one_hot_guard),
)
