"""Dynamic loss scaling, and skipping of updates that are not finite.

Owns the scale's state and its rule.  The skip itself is `optax.apply_if_finite`; optax
has no loss scaling.  The user multiplies the loss by `loss_scale(opt_state)` before
differentiation (`value_and_grad` here does), so that gradients which would underflow in
16 bits do not; the transformation divides, skips what overflowed and adapts the scale.
Scales are powers of two: multiplying and dividing are exact.  Source: Micikevicius et
al., arXiv 1710.03740; constants as in common use (and in flax's DynamicScale).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vkore_jax.errors import InvalidArgument
from vkore_jax.optim._optax import optax

NEVER = 2**31 - 2
"""More skips in a row than a run has: an update that is not finite is never applied."""


class LossScaleState(NamedTuple):
    """State of `dynamic_loss_scale`."""

    loss_scale: jax.Array  # () float32, a power of two
    good_steps: jax.Array  # () int32, finite steps since the scale last changed
    finite: optax.ApplyIfFiniteState  # counts of skipped updates; the inner state


def dynamic_loss_scale(
    inner: optax.GradientTransformation,
    *,
    initial: float = 2.0**15,
    interval: int | None = 2000,
    factor: float = 2.0,
    smallest: float = 1.0,
    largest: float = 2.0**24,
    max_consecutive_errors: int = NEVER,
) -> optax.GradientTransformationExtraArgs:
    """Divide gradients by the loss scale, skip the not finite, adapt the scale.

    The scale is halved after a step whose gradient is not finite, and doubled after
    `interval` steps without one.  The inner transformation gets float32 gradients
    (wide in registers, not in memory) and its updates return in the gradients' type.

    Args:
        inner: any optax transformation.
        initial: first scale.
        interval: finite steps before the scale grows; None keeps it fixed (static loss
            scaling, still with the skip).
        factor: by which the scale grows and shrinks, a power of two.
        smallest: the scale never falls below it.
        largest: the scale never rises above it.
        max_consecutive_errors: of `optax.apply_if_finite`: after so many skips in a
            row it gives up and applies what is not finite.  Default: never.

    Raises:
        InvalidArgument: if a number is not a power of two or the order is wrong.
    """
    for name, value in (
        ("initial", initial), ("factor", factor), ("smallest", smallest),
        ("largest", largest),
    ):  # fmt: skip
        if value <= 0 or math.frexp(value)[0] != 0.5:
            raise InvalidArgument(
                f"dynamic_loss_scale: {name} must be a power of two, so that scaling "
                f"is exact, found {value!r}"
            )
    if not smallest <= initial <= largest or factor <= 1:
        raise InvalidArgument(
            "dynamic_loss_scale: need smallest <= initial <= largest and factor > 1, "
            f"found {smallest!r}, {initial!r}, {largest!r} and {factor!r}"
        )
    guarded: Any = optax.apply_if_finite(_unscale(inner), max_consecutive_errors)

    def init(params: Any) -> LossScaleState:
        scale = jnp.float32(initial)
        return LossScaleState(scale, jnp.int32(0), guarded.init(params))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, LossScaleState]:
        updates, finite = guarded.update(
            updates, state.finite, params, loss_scale=state.loss_scale, **extra
        )
        if interval is None:
            return updates, state._replace(finite=finite)
        good = state.good_steps + 1
        grow = good >= interval
        up = jnp.where(grow, state.loss_scale * factor, state.loss_scale)
        scale = jnp.where(finite.last_finite, up, state.loss_scale / factor)
        good = jnp.where(finite.last_finite & ~grow, good, 0)
        return updates, LossScaleState(jnp.clip(scale, smallest, largest), good, finite)

    return optax.GradientTransformationExtraArgs(init, update)


def _unscale(
    inner: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """Divide by the extra argument `loss_scale` before `inner`."""
    inner = optax.with_extra_args_support(inner)

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        scale = extra.pop("loss_scale")
        wide = jax.tree.map(lambda g: g.astype(jnp.float32) / scale, updates)
        found, state = inner.update(wide, state, params, **extra)
        return jax.tree.map(lambda u, g: u.astype(g.dtype), found, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def loss_scale(opt_state: Any) -> jax.Array:
    """Return the loss scale in an optimizer state, () float32; 1 if there is none."""
    state = _find(opt_state)
    return jnp.float32(1) if state is None else state.loss_scale


def skipped_steps(opt_state: Any) -> jax.Array:
    """Return how many updates were skipped as not finite, () int32."""
    state = _find(opt_state)
    return jnp.int32(0) if state is None else state.finite.total_notfinite


def value_and_grad(
    loss: Callable[..., jax.Array], opt_state: Any
) -> Callable[..., tuple[jax.Array, Any]]:
    """Differentiate loss * scale by the first argument; the value is not scaled.

    The gradients are scaled, as `dynamic_loss_scale` wants them.

        loss, grads = optim.value_and_grad(loss_fn, opt_state)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
    """
    scale = loss_scale(opt_state)

    def scaled(params: Any, *args: Any, **kwargs: Any) -> tuple[jax.Array, jax.Array]:
        value = loss(params, *args, **kwargs)
        return value.astype(jnp.float32) * scale, value

    def call(*args: Any, **kwargs: Any) -> tuple[jax.Array, Any]:
        (_, value), grads = jax.value_and_grad(scaled, has_aux=True)(*args, **kwargs)
        return value, grads

    return call


def _find(opt_state: Any) -> LossScaleState | None:
    is_ours = lambda x: isinstance(x, LossScaleState)  # noqa: E731
    leaves = jax.tree.leaves(opt_state, is_leaf=is_ours)
    return next((x for x in leaves if is_ours(x)), None)
