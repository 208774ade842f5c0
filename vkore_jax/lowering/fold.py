"""Exact folding of integer element code on splat constants.

Only integers and booleans, where StableHLO's result is one bit pattern: this is how
index arithmetic on literal indices and loop bounds disappears.  Float values are never
computed here; they are computed by the machine.

This is the one exception to the law that every tensor value is made by a command.  It
is counted: in the program's provenance (`program.folded_at`) and in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from vkore_jax.dtypes import DType

_EXACT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": np.add,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.bitwise_not,
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
        "select": np.where,
        "convert": lambda x: x,
    }
)
_NO_BOOL: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"sub": np.subtract, "neg": np.negative}
)
_NUMPY = frozenset("bhilqBHILQ?")


def integers(
    micro: str, result: DType, imm: bytes, arguments: tuple[Any, ...]
) -> bytes | None:
    """Return the bytes of the result element, or None when it is not foldable.

    Args:
        micro: name of the micro-op.
        result: its result type.
        imm: its immediate (folding needs an empty one).
        arguments: (dtype, bytes of the element) for each operand.
    """
    types: list[DType] = [a[0] for a in arguments]
    if imm or any(t.numpy.char not in _NUMPY for t in (*types, result)):
        return None
    function = _EXACT.get(micro)
    if function is None and all(t.kind != "b" for t in types):
        function = _NO_BOOL.get(micro)
    if function is None:
        return None
    values = [np.frombuffer(raw, t.numpy)[:1] for t, raw in arguments]
    with np.errstate(over="ignore"):
        return np.asarray(function(*values)).astype(result.numpy).tobytes()
