"""Counting the trips of a loop: what stepping through it gives, or no answer."""

from __future__ import annotations

import itertools
import operator

import pytest

from vkore_jax.dtypes import I8, U8, DType
from vkore_jax.lowering.control_flow import count_trips

HOLDS = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "ne": operator.ne,
}


def stepped(first: int, limit: int, stride: int, compare: str, dtype: DType) -> int:
    """Walk as the machine does, wrapping; -1 when it never ends."""
    low = -128 if dtype is I8 else 0
    i, trips = first, 0
    while HOLDS[compare](i, limit):
        i, trips = (i + stride - low) % 256 + low, trips + 1
        if trips > 1000:
            return -1
    return trips


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
@pytest.mark.parametrize("compare", HOLDS)
def test_as_stepping_through_it(compare: str, dtype: DType) -> None:
    ends = (
        (-128, -127, -3, 0, 1, 5, 6, 126, 127) if dtype is I8 else (0, 1, 5, 254, 255)
    )
    counted = 0
    for first, limit, stride in itertools.product(ends, ends, (-3, -1, 0, 1, 2, 7)):
        found = count_trips(first, limit, stride, compare, dtype)
        if found is not None:
            wanted = stepped(first, limit, stride, compare, dtype)
            assert found == wanted, (first, limit, stride)
            counted += found > 1
    assert counted >= 5
