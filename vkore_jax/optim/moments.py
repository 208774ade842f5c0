"""Optimizer state in 16 bits, for any optimizer: expand, update in registers, compact.

Owns how a float32 array of an optimizer's state is stored.  The inner optimizer sees
float32; between steps there are only bfloat16 arrays (and scalars, which cost
nothing).  Inside one jitted step the wide values live between an addition and a
rounding, never in memory.

Why not bfloat16 moments by rounding to nearest: the second moment moves by a share
1 - b2 of itself a step, 0.001 for the usual b2 = 0.999, and bfloat16 has steps of
0.004 to 0.008: it stops following the gradient.  A pair does not (Gupta et al.,
"Collage", arXiv 2405.03637, which keeps exactly this moment as a pair), and stochastic
rounding is right in the mean.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from vkore_jax.errors import InvalidArgument
from vkore_jax.optim import rounding
from vkore_jax.optim._optax import optax
from vkore_jax.optim.rounding import Pair

Storage = Literal["f32", "hilo", "stochastic", "nearest"]
STORAGES: tuple[Storage, ...] = ("f32", "hilo", "stochastic", "nearest")


class CompactState(NamedTuple):
    """State of `compact_state`."""

    steps: jax.Array  # () int32, updates done: the counter of the random bits
    inner: Any  # the inner state; its float arrays are stored as `storage` says


def compact_state(
    inner: optax.GradientTransformation, storage: Storage = "hilo", *, seed: int = 0
) -> optax.GradientTransformationExtraArgs:
    """Store an optimizer's float32 arrays as bfloat16.

    Args:
        inner: any optax transformation.
        storage: "hilo": pairs, relative error 2**-16; "stochastic": one bfloat16,
            rounded so that the mean is right; "nearest": one bfloat16 (loses slow
            moments, see above); "f32": leave the state alone.
        seed: of the random bits, which are a function of it, of the count of updates
            and of the array's path: runs repeat, and a restored state goes on.

    Returns:
        A transformation with the same updates, up to the rounding of its state.

    Raises:
        InvalidArgument: if there is no such storage.
    """
    if storage not in STORAGES:
        raise InvalidArgument(
            f"compact_state: storage must be one of {', '.join(STORAGES)}, found "
            f"{storage!r}"
        )
    inner = optax.with_extra_args_support(inner)

    def init(params: Any) -> CompactState:
        state = inner.init(params)
        # The first values are those of an empty history: 0 or a copy, no need to draw.
        first = "nearest" if storage == "stochastic" else storage
        return CompactState(jnp.int32(0), _compact(state, first, None))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, CompactState]:
        wide = _expand(state.inner, storage)
        updates, wide = inner.update(updates, wide, params, **extra)
        key = jax.random.fold_in(jax.random.key(seed), state.steps)
        new = _compact(wide, storage, key)
        return updates, CompactState(
            jnp.asarray(optax.safe_increment(state.steps)), new
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _compact(state: Any, storage: Storage, key: jax.Array | None) -> Any:
    if storage == "f32":
        return state

    def narrow(path: Any, x: Any) -> Any:
        if not hasattr(x, "dtype") or x.dtype != jnp.float32 or x.ndim == 0:
            return x
        if storage == "hilo":
            return rounding.split(x)
        if storage == "stochastic" and key is not None:
            return rounding.stochastic(x, rounding.leaf_bits(key, path, x.shape))
        return rounding.nearest(x)

    return jax.tree_util.tree_map_with_path(narrow, state)


def _expand(state: Any, storage: Storage) -> Any:
    if storage == "f32":
        return state

    def wide(x: Any) -> Any:
        if isinstance(x, Pair):
            return rounding.join(x)
        if storage != "hilo" and getattr(x, "dtype", None) == rounding.NARROW:
            return rounding.widen(x)
        return x

    return jax.tree.map(wide, state, is_leaf=lambda x: isinstance(x, Pair))
