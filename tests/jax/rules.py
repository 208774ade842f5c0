"""How an error of operands, and roundings inside, become an error of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Rule = Callable[[Sequence[np.ndarray], Sequence[float], np.ndarray], float]
"""(operands, their errors, the result) -> error of the result without rounding."""


def largest(x: np.ndarray) -> float:
    """Return the largest finite magnitude."""
    wide = np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
    wide = wide[np.isfinite(wide)]
    return float(wide.max()) if wide.size else 0.0


def nearest(x: Sequence[np.ndarray], e: Sequence[float], out: np.ndarray) -> float:
    """Rule of a function with a slope of at most one."""
    return max(e, default=0.0)


def sums(x: Sequence[np.ndarray], e: Sequence[float], out: np.ndarray) -> float:
    return float(sum(e))


def scaled(factor: float) -> Rule:
    """Rule of a function with a bounded slope."""
    return lambda x, e, out: factor * sum(e)


def product_rule(x: Sequence[np.ndarray], e: Sequence[float], out: np.ndarray) -> float:
    a, b = largest(x[0]), largest(x[1])
    return e[0] * b + e[1] * a + e[0] * e[1]


def contraction(terms: int) -> Any:
    """Rule of a sum of `terms` products: operand errors, and the sum's roundings."""

    def rule(x: Sequence[np.ndarray], e: Sequence[float], out: np.ndarray) -> float:
        a, b = largest(x[0]), largest(x[1])
        # Products of 16-bit numbers may be summed in f32 or in their own type.
        eps = float(jnp.finfo(out.dtype).eps)
        return terms * (e[0] * b + e[1] * a + e[0] * e[1] + 4 * eps * terms * a * b)

    return rule


def additions(terms: int) -> Any:
    def rule(x: Sequence[np.ndarray], e: Sequence[float], out: np.ndarray) -> float:
        eps = float(jnp.finfo(out.dtype).eps)
        return terms * (e[0] + 4 * eps * terms * largest(x[0]))

    return rule


def product_plus(x: Any, e: Any, out: Any) -> float:
    return float(e[0] + e[1] + product_rule(x, e, out))


def additions_of(terms: int, slope: float) -> Any:
    """Rule of a normalised sum."""

    def rule(x: Any, e: Any, out: Any) -> float:
        eps = float(jnp.finfo(out.dtype).eps)
        return slope * e[0] + 8 * terms * eps * (1 + largest(x[0]))

    return rule
