"""`mixed_precision`: an optimizer for a chip that stores 16 bits, from its parts.

Owns the order of the parts, from the outside in: loss scale and skip, then weights,
then stored state, then the user's optimizer.  Everything that the skip carries across
its conditional is in storage type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax

from vkore_jax.errors import InvalidArgument
from vkore_jax.optim import rounding
from vkore_jax.optim._optax import optax
from vkore_jax.optim.master import METHODS, MasterState, Method, master_weights
from vkore_jax.optim.moments import STORAGES, Storage, compact_state
from vkore_jax.optim.scale import dynamic_loss_scale


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a training step stores what it keeps.

    The default holds no float32 array anywhere and follows float32 AdamW to 16 bits: 4
    bytes of weight and 8 of moments for each parameter.  With
    `Policy(master="stochastic", moments="stochastic")` it is 2 and 4.
    """

    master: Method = "hilo"
    """How a bfloat16 weight keeps small updates; see `vkore_jax.optim.master`."""
    moments: Storage = "hilo"
    """How float32 state is stored; see `vkore_jax.optim.moments`."""
    loss_scale: Literal["dynamic"] | float | None = None
    """None: no scale and no skip; a number: a fixed scale, with the skip."""
    scale_interval: int = 2000
    """Finite steps before a dynamic scale grows."""
    seed: int = 0
    """Of stochastic rounding."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("master", self.master, METHODS), ("moments", self.moments, STORAGES),
        ):  # fmt: skip
            if value not in known:
                raise InvalidArgument(
                    f"Policy: {name} must be one of {', '.join(known)}, found {value!r}"
                )


def mixed_precision(
    optimizer: optax.GradientTransformation, policy: Policy = Policy()
) -> optax.GradientTransformationExtraArgs:
    """Wrap an optimizer so that it trains weights in bfloat16.

        tx = optim.mixed_precision(optax.adamw(1e-3, weight_decay=0.1))
        params, opt_state = optim.init_narrow(tx, params)       # float32 -> bfloat16

    Clipping and schedules belong into `optimizer`: it sees unscaled float32 gradients.

    Args:
        optimizer: any optax transformation that ends in an update to be added.
        policy: what is stored how.
    """
    # Different random numbers for weights and moments, from one seed.
    tx = compact_state(optimizer, policy.moments, seed=2 * policy.seed)
    tx = master_weights(tx, policy.master, seed=2 * policy.seed + 1)
    if policy.loss_scale is None:
        return tx
    if policy.loss_scale == "dynamic":
        return dynamic_loss_scale(tx, interval=policy.scale_interval)
    scale = float(policy.loss_scale)
    return dynamic_loss_scale(
        tx, initial=scale, smallest=min(1.0, scale), largest=max(1.0, scale),
        interval=None,
    )  # fmt: skip


def init_narrow(tx: optax.GradientTransformation, params: Any) -> tuple[Any, Any]:
    """Round float32 weights to bfloat16 and start an optimizer that knows the rest.

    Args:
        tx: from `mixed_precision` or `master_weights`.
        params: tree of weights; arrays of other types than float32 stay as they are.

    Returns:
        The bfloat16 weights, and the optimizer's state, in which the methods that keep
        something start with what this rounding lost.
    """
    is_wide = lambda p: p.dtype == jax.numpy.float32  # noqa: E731
    narrow = jax.tree.map(lambda p: rounding.nearest(p) if is_wide(p) else p, params)

    def keep(p: jax.Array, hi: jax.Array, kept: Any) -> Any:
        if isinstance(kept, optax.MaskedNode) or not is_wide(p):
            return kept
        return p if kept.dtype == p.dtype else rounding.residual(p, hi)

    def adopt(state: Any) -> Any:
        if not isinstance(state, MasterState):
            return state
        return state._replace(kept=jax.tree.map(keep, params, narrow, state.kept))

    state = tx.init(narrow)
    is_master = lambda x: isinstance(x, MasterState)  # noqa: E731
    return narrow, jax.tree.map(adopt, state, is_leaf=is_master)
