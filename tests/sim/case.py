"""What an engine case is, and the values that cases feed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax.chips import Chip
from vkore_jax.dtypes import DType
from vkore_jax.program import Program
from vkore_jax.sim.contract import VALUES, Tolerance

Arrays = list[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class SimCase:
    """One hand-built program with inputs, bound and (where practical) an oracle.

    Attributes:
        id: name in the test report; the part before the first "/" is the family.
        build: program for a chip.
        inputs: arguments from a seeded generator.
        tolerance: bound between engines, for every result; a function of the
            inputs where the bound depends on magnitudes.
        oracle: independent reference, from inputs to results (NumPy or JAX on the
            CPU); None where the other engine is the only witness.
        oracle_tolerance: bound against the oracle, when looser than `tolerance`.
    """

    id: str
    build: Callable[[Chip], Program]
    inputs: Callable[[np.random.Generator], Arrays]
    tolerance: Tolerance | Callable[[Sequence[np.ndarray]], Tolerance] = VALUES
    oracle: Callable[..., Sequence[Any]] | None = None
    oracle_tolerance: Tolerance | None = None

    def bound(self, inputs: Sequence[np.ndarray]) -> Tolerance:
        """Return the bound for given inputs."""
        if isinstance(self.tolerance, Tolerance):
            return self.tolerance
        return self.tolerance(inputs)


def specials(dtype: DType) -> np.ndarray:
    """Return the corner values of a type, as a flat array of that type."""
    t = dtype.numpy
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        high = (1 << (dtype.bits - (dtype.kind == "i"))) - 1
        wanted = {0, 1, 2, 3, 5, high, high - 1, low, low + 1}
        wanted |= {-1, -2, -7} if dtype.kind == "i" else {high // 2 + 1}
        wanted |= {dtype.bits - 1, dtype.bits, dtype.bits + 1}
        kept = sorted(v for v in wanted if low <= v <= high)
        wide = np.uint64 if dtype.kind == "u" else np.int64
        return np.array(kept, wide).astype(t)
    if dtype.kind == "c":
        part = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0])
        return (part[:, None] + 1j * part[None, :]).reshape(-1).astype(t)
    info: Any = ml_dtypes.finfo(t)
    top, normal = float(info.max), float(info.smallest_normal)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, 3.0, -7.0, 88.0]
    values += [top, -top, normal, -normal, np.inf, -np.inf, np.nan, 1e-3, -1e-3]
    with np.errstate(all="ignore"):
        return np.array(values).astype(t)


def pool(rng: np.random.Generator, dtype: DType, size: int) -> np.ndarray:
    """Return `size` values: corners first, then random ones of mixed magnitude."""
    return np.concatenate([specials(dtype), randoms(rng, dtype, (size,))])[:size]


def randoms(
    rng: np.random.Generator, dtype: DType, shape: Sequence[int], spread: float = 1.5
) -> np.ndarray:
    """Return random values of mixed magnitude (no corner values)."""
    n = math.prod(shape)
    if dtype.kind == "b":
        return (rng.random(n) < 0.5).reshape(shape)
    if dtype.is_integer:
        bits = rng.integers(0, 256, (n, 8), dtype=np.uint8)
        return bits.view(np.int64).reshape(shape).astype(dtype.numpy)
    x = rng.standard_normal(n) * np.exp(spread * rng.standard_normal(n))
    if dtype.kind == "c":
        x = x + 1j * rng.standard_normal(n)
    return x.reshape(shape).astype(dtype.numpy)


def normals(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Return standard normal values (small integers for integer types)."""
    if dtype.is_integer:
        low = -8 if dtype.kind == "i" else 0
        return rng.integers(low, 8, shape).astype(dtype.numpy)
    x = rng.standard_normal(shape)
    if dtype.kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype.numpy)


def on_cpu(function: Callable[..., Any]) -> Callable[..., list[np.ndarray]]:
    """Make an oracle of a JAX function: stock CPU client, 64-bit types allowed."""

    def oracle(*inputs: np.ndarray) -> list[np.ndarray]:
        import jax

        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            out = jax.jit(function)(*inputs)
            leaves = out if isinstance(out, (tuple, list)) else (out,)
            return [np.asarray(x) for x in leaves]

    return oracle
