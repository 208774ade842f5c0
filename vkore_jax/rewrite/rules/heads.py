"""Axes of a matched attention: which is time, which are heads, and how to call it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from vkore_jax import primitives
from vkore_jax.errors import VkoreError
from vkore_jax.rewrite.algebra import Cap
from vkore_jax.rewrite.graph import Read, Value
from vkore_jax.rewrite.rule import Match, Plan, sizes
from vkore_jax.rewrite.rules.linear import Contraction, contraction
from vkore_jax.rewrite.rules.masks import Condition, conditions
from vkore_jax.rewrite.terms import product
from vkore_jax.rewrite.views import View, peel, realise


class Refused(VkoreError):
    """A matched attention that the primitive does not cover."""


@dataclass(frozen=True)
class Layout:
    """How the operands go into the primitive.

    The frame is the axes of the probabilities; `order` names its axes as (leading ...,
    heads of keys, queries of a group, time, keys), None where there is no such axis.

    Attributes:
        q: view in the axes (leading ..., t, g, r, d).
        k: view in the axes (leading ..., s, g, d).
        v: view in the axes (leading ..., s, g, e).
        order: axes of the frame, as above.
        scale: of the scores.
        causal: whether query i sees keys up to i only.
        masks: other conditions, in the axes of `order`.
        blind: what a query gets that sees no key; None if there is no such query:
            -inf stands for not a number, otherwise the mean of v.
    """

    q: View
    k: View
    v: View
    order: tuple[int | None, ...]
    scale: float
    causal: bool
    masks: tuple[Condition, ...]
    blind: float | None


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(message)


def layout(match: Match) -> Layout:
    """Find the axes.

    Raises:
        Refused: with the reason, if the primitive does not cover it.
    """
    scores, pv = match.view("qk"), contraction(match.node("pv"))
    qk, p = contraction(match.node("qk")), match.env["pv_side"]
    frame = (pv.left, pv.right)[p]
    keys = scores.row
    for dots in (qk, pv):
        reason = dots.refuses()
        _need(reason is None, f"its products: {reason}")
    _need(len(qk.contract[0]) == 1, "queries and keys meet in several axes")
    narrow = qk.dtype.itemsize == 2  # exact in any precision
    _need(
        narrow or qk.precision == pv.precision, "its two products differ in precision"
    )

    # The operand that the key axis comes from, and where the other axes come from.
    place = {f: _origin(qk, o) for f, o in enumerate(scores.axes) if o is not None}
    big = [f for f, n in enumerate(frame.shape) if n != 1]
    _need(set(big) == set(place) | {keys}, "the scores are broadcast")
    _need(keys in place and place[keys][0] is not None, "keys are no axis of a product")
    k = place[keys][0]
    assert k is not None
    q = 1 - k
    shared = [f for f in big if place[f][0] is None]
    asking = [f for f in big if place[f][0] == q]
    _need([f for f in big if place[f][0] == k] == [keys], "the keys have several axes")
    _need(
        all(f in pv.batch[p] for f in shared) and all(f in pv.free[p] for f in asking),
        "keys and values differ in their batch axes",
    )
    _need(len(asking) <= 2, "the queries have more than time and group axes")

    parts = [
        c for m in match.env.get("masks", ()) for c in conditions(m.view, m.positive)
    ]
    time = next((c.band[0] for c in parts if c.band and c.band[0] in asking), None)
    if time is None:
        time = asking[-1] if asking else None
    group = next((f for f in asking if f != time), None)
    heads = shared[-1] if shared else None
    lead = tuple(shared[:-1])
    order = (*lead, heads, group, time, keys)

    causal = [c.band == (time, keys, 0) for c in parts]
    rest = [c for c, is_causal in zip(parts, causal, strict=True) if not is_causal]
    if any(causal) and time is None:  # one query sees the first key only
        rest, causal = parts, [False]
    blind = _blind(match) if rest else None

    def take(side: int, *frame_axes: int | None) -> tuple[int | None, ...]:
        return tuple(None if f is None else place[f][1][side] for f in frame_axes)

    values = dict(zip(pv.batch[p], pv.batch[1 - p], strict=True))
    channels = [a for a in pv.free[1 - p] if _other(pv, p).shape[a] != 1]
    _need(len(channels) <= 1, "the values have several channel axes")
    e = channels[0] if channels else None
    operands = (qk.left, qk.right)
    d = (qk.contract[q][0], qk.contract[k][0])
    q_view = _view(operands[q], *take(q, *lead, time, heads, group), d[0])
    k_view = _view(operands[k], *take(k, *lead, keys, heads), d[1])
    v_view = _view(
        _other(pv, p),
        *(values.get(f) if f is not None else None for f in lead),
        pv.contract[1 - p][0],
        values.get(heads) if heads is not None else None,
        e,
    )
    q_view, by_q = _unscaled(q_view)
    k_view, by_k = _unscaled(k_view)
    if group is None:
        k_view, v_view = _unrepeated(k_view, v_view)
    scale = match.env.get("scale", 1.0) * by_q * by_k
    return Layout(q_view, k_view, v_view, order, scale, any(causal), tuple(rest), blind)


def _view(value: Value, *axes: int | None) -> View:
    return View(value, axes, len(axes) - 1)


def _other(pv: Contraction, p: int) -> Value:
    return (pv.right, pv.left)[p]


def _origin(dots: Contraction, axis: int) -> tuple[int | None, dict[int, int]]:
    """Return the operand that an output axis comes from, None if both, and where."""
    batch = len(dots.batch[0])
    if axis < batch:
        return None, {0: dots.batch[0][axis], 1: dots.batch[1][axis]}
    free = [(0, a) for a in dots.free[0]] + [(1, a) for a in dots.free[1]]
    side, where = free[axis - batch]
    return side, {side: where}


def _blind(match: Match) -> float:
    masks = match.env["masks"]
    _need(
        not any(m.added for m in masks),
        "a mask is added to the scores and may hide all keys of a query",
    )
    fills = {m.fill for m in masks}
    _need(len(fills) == 1, "masks with different numbers in place of hidden scores")
    return fills.pop()


_SCALED = product(Cap("x"), times="scale")


def _unscaled(view: View) -> tuple[View, float]:
    """Take a number out of an operand, so that the kernel applies it."""
    found: Iterator[Any] = _SCALED.match(view, {})
    for env in found:
        if env["scale"] != 1 and env["scale"] > 0 and sizes(env["x"]) == sizes(view):
            return env["x"], env["scale"]
    return view, 1.0


def _unrepeated(k: View, v: View) -> tuple[View, View]:
    """Undo `jnp.repeat` over heads, if both were repeated alike."""
    bare = [_before_repeat(x) for x in (k, v)]
    if bare[0] is None or bare[1] is None:
        return k, v
    if sizes(bare[0])[-2] != sizes(bare[1])[-2]:
        return k, v
    return bare[0], bare[1]


def _before_repeat(view: View) -> View | None:
    """Look through a reshape (g, r) to h of a broadcast along r; h is axis -2."""
    view = peel(view)
    axis, node = view.axes[-2], view.node
    if axis is None or node is None or node.name != "reshape":
        return None
    wide, h = node.inputs[0], view.value.shape[axis]
    if wide.node is None or wide.node.name != "broadcast_in_dim":
        return None
    g, r = (*wide.shape[axis : axis + 2], 0, 0)[:2]
    lead, tail = view.value.shape[:axis], view.value.shape[axis + 1 :]
    if g * r != h or wide.shape != (*lead, g, r, *tail):
        return None
    source = {i: i if i <= axis else i + 1 for i in range(len(view.value.shape))}
    inner = view.remap(wide, source)
    below = peel(inner)
    # The repeated axis must be what the broadcast made, not an axis of the operand.
    return below if below.value is not wide and below.full() else None


def plan(match: Match) -> Plan:
    """Call the primitive and put its result into the product's axes."""
    way, pv = layout(match), contraction(match.node("pv"))
    p = match.env["pv_side"]
    frame, output = (pv.left, pv.right)[p].shape, pv.output
    operands = (way.q, way.k, way.v)
    # Of the products, not of what a number was taken out of.
    dtype = jnp.result_type(contraction(match.node("qk")).dtype, _other(pv, p).dtype)

    def size(f: int | None) -> int:
        return 1 if f is None else frame[f]

    *_, heads, group, time, keys = way.order
    g, r, t, s = size(heads), size(group), size(time), size(keys)

    def run(read: Read) -> Any:
        q, k, v = (realise(x, read).astype(dtype) for x in operands)
        e = v.shape[-1]
        lead = q.shape[:-4]
        q = q.reshape(*lead, t, g * r, q.shape[-1])
        mask = _mask(way, read, (g, r, t, s))
        y = primitives.attention(
            q, k, v, mask, causal=way.causal, scale=way.scale, precision=pv.precision
        )
        if way.blind is not None and mask is not None:
            y = _fill_blind(y, v, mask, way)
        y = y.reshape(*lead, t, g, r, e)
        names = [*way.order[:-4], time, heads, group, "e"]
        axes = tuple(
            names.index(f) if f is not None and f in names else None
            for f in _output_axes(pv, p, frame)
        )
        out = realise(View(Value(output.aval), axes, 0), lambda _: y)
        return out.reshape(output.shape)

    inputs = [x.value for x in operands] + [c.view.value for c in way.masks]
    notes = ["causal"] * way.causal + ["mask"] * bool(way.masks)
    kv = sizes(way.k)[-2]
    notes += [f"{g * r} heads on {kv}"] if g * r != kv else []
    return Plan(tuple(inputs), run, ", ".join(notes))


def _output_axes(
    pv: Contraction, p: int, frame: tuple[int, ...]
) -> list[int | str | None]:
    """Name each axis of the second product's output by the frame's axis."""

    def named(f: int) -> int | None:
        return f if frame[f] != 1 else None

    free: list[list[int | str | None]] = [[], []]
    free[p] = [named(f) for f in pv.free[p]]
    other = _other(pv, p).shape
    free[1 - p] = ["e" if other[a] != 1 else None for a in pv.free[1 - p]]
    return [named(f) for f in pv.batch[p]] + free[0] + free[1]


def _mask(way: Layout, read: Read, core: tuple[int, ...]) -> Any:
    """Return the conditions as one mask (..., 1 or h, t, s)."""
    if not way.masks:
        return None
    g, r, t, s = core
    mask = None
    for c in way.masks:
        axes = tuple(None if f is None else c.view.axes[f] for f in way.order)
        view = View(c.view.value, axes, len(axes) - 1)
        part = Condition(view, c.positive).array(read)
        mask = part if mask is None else mask & part
    assert mask is not None
    *lead, mg, mr, _, _ = mask.shape
    heads = (1, 1) if mg == mr == 1 else (g, r)
    mask = jnp.broadcast_to(mask, (*lead, *heads, t, s))
    return mask.reshape(*lead, heads[0] * heads[1], t, s)


def _fill_blind(y: Any, v: Any, mask: Any, way: Layout) -> Any:
    """Give a query that sees no key what the softmax of equal scores gives."""
    if way.causal:
        t, s = mask.shape[-2:]
        mask = mask & (jnp.arange(t)[:, None] >= jnp.arange(s)[None, :])
    blind = jnp.swapaxes(~jnp.any(mask, axis=-1), -1, -2)[..., None]  # (.., t, h, 1)
    if way.blind == -jnp.inf:
        return jnp.where(blind, jnp.nan, y)
    mean = jnp.mean(v, axis=-3, keepdims=True)  # (..., 1, g, e)
    return jnp.where(blind, jnp.repeat(mean, y.shape[-2] // v.shape[-2], axis=-2), y)
