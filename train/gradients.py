"""Gradient sketches: enough of a gradient to compare its direction with another run's.

Owns `DIR/gradients/step-N.npy`.  A sketch is a fixed random linear map of the whole
gradient to a few thousand numbers (count sketch: each element, with a random sign, is
added to a random bucket).  It keeps inner products in the mean, and the angle of two
nearly equal gradients well: 1 - cosine has a relative error of about sqrt(2 / SIZE).
Source: Charikar, Chen & Farach-Colton, ICALP 2002.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np

SIZE, SEED = 4096, 0


def describe() -> dict[str, Any]:
    """Return what run.json says about the sketches."""
    return {"sketch": "count", "size": SIZE, "seed": SEED}


def record(run: Path, step: int, gradient: Any) -> None:
    """Write the sketch of a gradient, a pytree of arrays."""
    folder = run / "gradients"
    folder.mkdir(exist_ok=True)
    np.save(folder / f"step-{step:06}.npy", sketch(gradient))


def sketch(gradient: Any) -> np.ndarray:
    """Return the count sketch of a pytree's leaves in their order, (SIZE,) float32."""
    leaves = [np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(gradient)]
    flat = np.concatenate(leaves)
    bucket, sign = _hash(flat.size)
    return np.bincount(bucket, flat * sign, SIZE).astype(np.float32)


@functools.lru_cache(maxsize=2)
def _hash(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bucket and sign of each element."""
    drawn = np.random.default_rng(SEED).integers(0, 2 * SIZE, size, dtype=np.uint16)
    return drawn >> 1, np.where(drawn & 1, 1.0, -1.0)
