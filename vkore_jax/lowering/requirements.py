"""What lowering rules require: element types, and predicates with documentation."""

from __future__ import annotations

from collections.abc import Iterable

from vkore_jax import dtypes
from vkore_jax.dtypes import DType
from vkore_jax.isa import MICRO_OPS
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import ANY, Requirement, Types

STORAGE: frozenset[DType] = frozenset(
    dtypes.by_short(name) for name in ("f8E8M0FNU", "f4E2M1FN")
)
"""Floats that are moved, compared and converted but not computed with: one has neither
sign nor zero, the other neither infinity nor NaN."""


def kinds(
    letters: str, *operands: int, results: tuple[int, ...] = (), least_bits: int = 0
) -> Types:
    """Return the element types of some kinds, without those for storage only.

    Args:
        letters: kinds, a subset of "biufc".
        operands: positions of the operands that are asked; all when none is given and
            no result is.
        results: positions of the results that are asked.
        least_bits: leave out narrower floats.
    """
    found = (
        t
        for t in dtypes.ALL
        if t.kind in letters
        and t not in STORAGE
        and (t.kind != "f" or t.bits >= least_bits)
    )
    return only(found, *operands, results=results)


def only(
    types: Iterable[DType], *operands: int, results: tuple[int, ...] = ()
) -> Types:
    """Return these element types, asked of the operands as `kinds` says."""
    return Types(frozenset(types), operands or (() if results else None), results)


def at(*operands: int, results: tuple[int, ...] = ()) -> Types:
    """Return every element type, of the values that make the cells of the matrix."""
    return only(dtypes.ALL, *operands, results=results)


def micro_domain(micro: str) -> Types:
    """Return the element types of a micro-op's operands."""
    domain = MICRO_OPS[micro].domain
    return ANY if domain == "*" else kinds(domain)


def attribute_in(name: str, accepted: tuple[str, ...], default: str) -> Requirement:
    """Return the requirement that an enumeration attribute has one of some values."""

    def requirement(op: Op) -> str | None:
        found = op.word(name, default)
        return None if found in accepted else f"{name} = {found}"

    requirement.__doc__ = f"`{name}` is {' or '.join(accepted)}."
    return requirement
