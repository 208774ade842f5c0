"""Masks taken apart: what is causal, what always holds, and what is left.

A mask is a conjunction of conditions, written with logic, with selections, or as a
product of zeros and ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from vkore_jax.rewrite.graph import Read, Value
from vkore_jax.rewrite.views import View, number, peel, realise

_LARGEST = 1 << 24
"""Elements of a constant that is worth looking at."""


@dataclass(frozen=True)
class Condition:
    """One part of a conjunction.

    Attributes:
        view: a tensor of booleans or numbers.
        positive: whether the condition is that it is true (not zero), or false.
        band: (i, j, d) if it says that index i minus index j is at least d, where i
            and j are axes of the frame.
    """

    view: View
    positive: bool
    band: tuple[int, int, int] | None = None

    def array(self, read: Read) -> Any:
        """Return the condition as booleans, in the frame of the view."""
        array = realise(self.view, read)
        if array.dtype != jnp.bool_:
            array = array != 0
        return array if self.positive else ~array


def conditions(view: View, positive: bool) -> list[Condition]:
    """Return the conjunction that a mask (or, if not positive, its negation) is."""
    view = peel(view)
    known = number(view.value)
    if known is not None and (known != 0) == positive:
        return []
    node = view.node
    if node is None:
        return [_constant(view, positive)]
    inputs = node.inputs
    name = node.name
    logic = view.value.dtype == jnp.bool_  # of integers, it works on their bits
    if name == "mul" or (name == "and" and logic) if positive else name == "or":
        return [c for v in inputs for c in conditions(view.of(v), positive)]
    if name == "not" and logic:
        return conditions(view.of(inputs[0]), not positive)
    if name == "convert_element_type" and _keeps_zeros(inputs[0], view.value):
        return conditions(view.of(inputs[0]), positive)
    if name in ("eq", "ne") and number(inputs[1]) == 0:
        return conditions(view.of(inputs[0]), positive == (name == "ne"))
    if name == "select_n" and len(inputs) == 3 and positive:
        for kept, side in ((2, True), (1, False)):
            if number(peel(view.of(inputs[3 - kept])).value) == 0:
                first = conditions(view.of(inputs[0]), side)
                return first + conditions(view.of(inputs[kept]), True)
    if name in _BANDS:
        return [Condition(view, positive, _band(view, positive))]
    return [_constant(view, positive)]


def _keeps_zeros(source: Value, target: Value) -> bool:
    """Whether a cast makes zero of nothing but zero: one half as integer is zero."""
    if jnp.bool_ in (source.dtype, target.dtype):
        return True
    if jnp.issubdtype(target.dtype, jnp.floating):
        return target.dtype.itemsize >= 2
    whole = jnp.issubdtype(source.dtype, jnp.integer)
    return whole and target.dtype.itemsize >= source.dtype.itemsize


# a >= b is a - b >= 0, and so on; the sign says whether to exchange the sides.
_BANDS = {"ge": (1, 0), "gt": (1, 1), "le": (-1, 0), "lt": (-1, 1)}


def _band(view: View, positive: bool) -> tuple[int, int, int] | None:
    node = view.node
    assert node is not None
    sign, least = _BANDS[node.name]
    first, second = (_position(view.of(v)) for v in node.inputs)
    if first is None or second is None:
        return None
    (i, a), (j, b) = (first, second)[::sign]
    distance = b - a + least
    return (i, j, distance) if positive else (j, i, 1 - distance)


def _position(view: View) -> tuple[int, int] | None:
    """Return (axis of the frame, offset) of a tensor of indices plus a number."""
    view, offset = peel(view), 0
    if jnp.issubdtype(view.value.dtype, jnp.unsignedinteger):
        return None  # one less than zero is a large number
    while view.node is not None and view.node.name in ("add", "sub"):
        first, second = view.node.inputs
        known = number(peel(view.of(second)).value)
        if known is None or not float(known).is_integer():
            return None
        offset += int(known) if view.node.name == "add" else -int(known)
        view = peel(view.of(first))
    node = view.node
    if node is None or node.name != "iota":
        return None
    along = [i for i, a in enumerate(view.axes) if a == node.params["dimension"]]
    return (along[0], offset) if len(along) == 1 else None


def _constant(view: View, positive: bool) -> Condition:
    """Recognise a constant triangle."""
    axes = [(a, i) for i, a in enumerate(view.axes) if a is not None]
    array = elements(view.value)
    if array is None or len(axes) != 2:
        return Condition(view, positive)
    if not np.isin(array, (0, 1)).all():  # 1 - array would be more than hidden or seen
        return Condition(view, positive)
    (a, i), (b, j) = axes
    matrix = np.squeeze(array).astype(bool) == positive
    if matrix.ndim == 2:
        matrix = matrix if a < b else matrix.T
        if np.array_equal(matrix, np.tri(*matrix.shape, dtype=bool)):
            return Condition(view, positive, (i, j, 0))
    return Condition(view, positive)


def elements(value: Value) -> np.ndarray | None:
    """Return the elements of a constant, or of a slice of one."""
    if int(np.prod(value.shape)) > _LARGEST:
        return None
    if value.const is not None:
        array = value.concrete()
        return array if array is not None and array.dtype.kind in "biuf" else None
    node = value.node
    if node is not None and node.name in ("slice", "squeeze", "convert_element_type"):
        below = elements(node.inputs[0])
        if below is None or node.name != "slice":
            return below
        starts, ends = node.params["start_indices"], node.params["limit_indices"]
        steps = node.params["strides"] or (1,) * below.ndim
        cuts = [slice(*c) for c in zip(starts, ends, steps, strict=True)]
        return below[tuple(cuts)]
    return None
