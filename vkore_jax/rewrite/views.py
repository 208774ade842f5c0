"""Views: a value as it appears in the axes of another tensor.

A pattern is matched in a *frame*, the axes of its root.  Broadcasts, transposes,
reshapes that only add or drop axes of size one, and casts between floating types (but
not to eight bits) do not change what a value is, only how its axes lie in the frame;
`peel` looks through them.
So patterns need not list the ways in which a bias can be broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from vkore_jax.rewrite.graph import Node, Read, Value

Axes = tuple[int | None, ...]


@dataclass(frozen=True)
class View:
    """A value seen in a frame.

    Attributes:
        value: the value.
        axes: for each axis of the frame, the value's axis that runs along it; None
            where the value is constant along it or has size one.
        row: the axis of the frame that reductions of the pattern run over.
    """

    value: Value
    axes: Axes
    row: int

    @property
    def node(self) -> Node | None:
        """What computes the value."""
        return self.value.node

    @property
    def along_row(self) -> bool:
        """Whether it depends on the row axis."""
        return self.axes[self.row] is not None

    @property
    def only_along_row(self) -> bool:
        """Whether it depends on no other axis."""
        return all(a is None for i, a in enumerate(self.axes) if i != self.row)

    def of(self, value: Value) -> View:
        """Return the view of an operand of an elementwise operation."""
        if value.shape == self.value.shape:
            return View(value, self.axes, self.row)
        if not value.shape:  # scalars and sizes of one broadcast
            return View(value, (None,) * len(self.axes), self.row)
        if len(value.shape) == len(self.value.shape):
            return self.remap(value, {a: a for a in range(len(value.shape))})
        raise ValueError(f"not elementwise: {value.shape} in {self.value.shape}")

    def remap(self, value: Value, source: Mapping[int, int]) -> View:
        """Return the view of `value` whose axis `source[a]` becomes our axis a."""
        axes = tuple(
            source[a] if a in source and value.shape[source[a]] != 1 else None
            for a in (-1 if x is None else x for x in self.axes)
        )
        return View(value, axes, self.row)

    def full(self) -> bool:
        """Whether every axis of the value that is not of size one is in the frame."""
        big = {i for i, n in enumerate(self.value.shape) if n != 1}
        return big <= set(self.axes)


def whole(value: Value, row: int | None = None) -> View:
    """View a value in its own axes; the row is the last one."""
    shape = value.shape
    axes = tuple(i if n != 1 else None for i, n in enumerate(shape))
    return View(value, axes, len(shape) - 1 if row is None else row)


def realise(view: View, read: Read) -> Any:
    """Return the value's array, transposed to the frame, with ones where constant."""
    array = read(view.value)
    order = [a for a in view.axes if a is not None]
    rest = [a for a in range(array.ndim) if a not in order]  # all of size one
    shape = [1 if a is None else array.shape[a] for a in view.axes]
    if order + rest != list(range(array.ndim)):
        array = jnp.transpose(array, order + rest)
    return array.reshape(shape)


def peel(view: View) -> View:
    """Look through everything that only moves axes or casts."""
    while True:
        node = view.node
        rule = _PEEL.get(node.name) if node is not None else None
        below = rule(view, node) if rule is not None and node is not None else None
        if below is None:
            return view
        view = below


def _broadcast(view: View, node: Node) -> View | None:
    dims = node.params["broadcast_dimensions"]
    return view.remap(node.inputs[0], {int(d): i for i, d in enumerate(dims)})


def _reshape(view: View, node: Node) -> View | None:
    old, new = node.inputs[0].shape, node.outputs[0].shape
    source = [i for i, n in enumerate(old) if n != 1]
    target = [i for i, n in enumerate(new) if n != 1]
    if [old[i] for i in source] != [new[i] for i in target]:
        return None
    return view.remap(node.inputs[0], dict(zip(target, source, strict=True)))


def _transpose(view: View, node: Node) -> View | None:
    order = node.params["permutation"]
    return view.remap(node.inputs[0], {i: int(p) for i, p in enumerate(order)})


def _cast(view: View, node: Node) -> View | None:
    source, target = node.inputs[0].dtype, node.outputs[0].dtype
    floating = all(jnp.issubdtype(t, jnp.floating) for t in (source, target))
    if floating:  # to eight bits is a quantisation, to sixteen a rounding
        harmless = min(source.itemsize, target.itemsize) >= 2
    else:
        harmless = all(jnp.issubdtype(t, jnp.integer) for t in (source, target)) and (
            np.can_cast(source, target) or target in (jnp.int32, jnp.int64)
        )
    return view.of(node.inputs[0]) if harmless else None


def _copy(view: View, node: Node) -> View | None:
    return view.of(node.inputs[0])


def _neutral(*rows: tuple[int, float]) -> Callable[[View, Node], View | None]:
    """Make a rule: operand i is the result if the other one is the given number."""

    def rule(view: View, node: Node) -> View | None:
        for kept, neutral in rows:
            other = number(node.inputs[1 - kept])
            same = node.inputs[kept].shape == node.outputs[0].shape
            if other is not None and other == neutral and same:
                return view.of(node.inputs[kept])
        return None

    return rule


def _select(view: View, node: Node) -> View | None:
    chosen = number(node.inputs[0])
    if chosen is None:
        return None
    return view.of(node.inputs[1 + int(chosen)])


def _take_only(view: View, node: Node) -> View | None:
    """`jnp.take(x, 0, axis)` of an axis of size one."""
    d = node.params["dimension_numbers"]
    operand, index = node.inputs
    axes = tuple(d.collapsed_slice_dims)
    if (
        len(axes) != 1
        or tuple(d.start_index_map) != axes
        or d.operand_batching_dims
        or operand.shape[axes[0]] != 1
        or number(index) != 0
        or math.prod(index.shape) != 1
    ):
        return None
    kept = [i for i in range(len(operand.shape)) if i not in axes]
    if tuple(d.offset_dims) != tuple(range(len(kept))):
        return None
    return view.remap(operand, dict(enumerate(kept)))


_PEEL: Mapping[str, Callable[[View, Node], View | None]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": _transpose,
    "convert_element_type": _cast,
    "copy": _copy,
    "copy_p": _copy,
    "mul": _neutral((0, 1), (1, 1)),
    "div": _neutral((0, 1)),
    "add": _neutral((0, 0), (1, 0)),
    "sub": _neutral((0, 0)),
    "max": _neutral((0, -math.inf), (1, -math.inf)),
    "select_n": _select,
    "gather": _take_only,
}

_FOLD: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "log": np.log,
    "exp": np.exp,
    "pow": np.power,
    "lt": np.less,
    "gt": np.greater,
    "ge": np.greater_equal,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "select_n": lambda p, *cases: cases[int(p)],
    "stop_gradient": lambda x: x,
}
_UNCHANGED = ("broadcast_in_dim", "reshape", "squeeze", "copy")


def number(value: Value) -> float | None:
    """Return the one number that all elements are, if that is known."""
    if value.const is not None:
        array = value.concrete() if math.prod(value.shape) == 1 else None
        if array is None or array.dtype.kind not in "fiubV":
            return None
        return float(array.reshape(()))
    node = value.node
    if node is None:
        return None
    if node.name in _UNCHANGED:
        return number(node.inputs[0])
    if node.name == "convert_element_type":
        inner = number(node.inputs[0])
        if inner is None or jnp.issubdtype(value.dtype, jnp.floating):
            return inner
        if value.dtype == jnp.bool_:
            return float(inner != 0)
        return float(int(inner)) if math.isfinite(inner) else None
    function = _FOLD.get(node.name)
    if function is None or math.prod(value.shape) != 1:
        return None
    if node.name == "div" and not jnp.issubdtype(value.dtype, jnp.floating):
        return None  # rounds to an integer
    numbers = [number(v) for v in node.inputs]
    if any(n is None for n in numbers):
        return None
    with np.errstate(all="ignore"):
        return float(function(*numbers))
