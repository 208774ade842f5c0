"""Requirements of lowering rules: predicates whose docstrings are documentation."""

from __future__ import annotations

from vkore_jax.isa import MICRO_OPS
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import Requirement

KIND_NAMES = {
    "b": "bool",
    "i": "signed integer",
    "u": "unsigned integer",
    "f": "float",
    "c": "complex",
}


def kinds(letters: str, *positions: int) -> Requirement:
    """Return a requirement on the element kinds of the operands at `positions`.

    Args:
        letters: accepted kinds, a subset of "biufc".
        positions: operand positions; all operands when none is given.
    """
    names = ", ".join(KIND_NAMES[k] for k in letters)

    def requirement(op: Op) -> str | None:
        values = [op.operands[i] for i in positions] if positions else op.operands
        for v in values:
            if v.dtype.kind not in letters:
                return f"{v}"
        return None

    requirement.__doc__ = f"Operands are {names}."
    return requirement


def micro_domain(micro: str, *positions: int) -> Requirement | None:
    """Return the requirement that the operand kinds are in a micro-op's domain."""
    domain = MICRO_OPS[micro].domain
    return None if domain == "*" else kinds(domain, *positions)


def attribute_in(name: str, accepted: tuple[str, ...], default: str) -> Requirement:
    """Return the requirement that an enumeration attribute has one of some values."""

    def requirement(op: Op) -> str | None:
        found = op.word(name, default)
        return None if found in accepted else f"{name} = {found}"

    requirement.__doc__ = f"`{name}` is {' or '.join(accepted)}."
    return requirement


def all_of(*candidates: Requirement | None) -> tuple[Requirement, ...]:
    """Drop the empty ones of some requirements."""
    return tuple(c for c in candidates if c is not None)
