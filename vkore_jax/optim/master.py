"""Weights in bfloat16 that keep updates smaller than their own spacing.

Owns the four ways to add a float32 update to a bfloat16 weight.  Rounding the sum to
nearest drops every update below half a spacing, 2**-9 to 2**-8 of the weight: towards
the end of training that is all of them, weight decay first.  What helps:

| method | kept beside the weights | an update is |
| --- | --- | --- |
| `hilo` | bf16, the low part of a pair | added to 16 bits of weight, then split |
| `kahan` | bf16, what the sum lost | rounded, added by 16-bit adders, the loss kept |
| `stochastic` | nothing | added, and the sum rounded right in the mean |
| `nearest` | nothing | added and rounded: for comparison |
| `f32` | f32, a master copy | added to it: where a chip stores float32 |

Sources: Zamirai et al., arXiv 2010.06192 (Kahan, stochastic); Gupta et al., arXiv
2405.03637 (pairs).

The update that is returned is the difference of two bfloat16 numbers, itself rounded
to bfloat16.  Where the weight changes by less than half of itself that is exact
(Sterbenz), and `optax.apply_updates` gives the intended weight; elsewhere the sum is
rounded once more, which `hilo` and `kahan` see and keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from vkore_jax.errors import InvalidArgument
from vkore_jax.optim import rounding
from vkore_jax.optim._optax import optax
from vkore_jax.optim.rounding import NARROW, Pair

Method = Literal["f32", "hilo", "kahan", "stochastic", "nearest"]
METHODS: tuple[Method, ...] = ("f32", "hilo", "kahan", "stochastic", "nearest")


class MasterState(NamedTuple):
    """State of `master_weights`."""

    steps: jax.Array  # () int32, updates done: the counter of the random bits
    kept: Any  # for each weight: what the method keeps, or optax.MaskedNode
    inner: Any  # the inner optimizer's state


def master_weights(
    inner: optax.GradientTransformation, method: Method = "hilo", *, seed: int = 0
) -> optax.GradientTransformationExtraArgs:
    """Let an optimizer work in float32 on weights that are stored in bfloat16.

    The inner optimizer gets float32 gradients and the float32 value of the weights
    (for weight decay), and its float32 updates are added by `method`.  Weights of
    another type than bfloat16 pass through unchanged.

    Args:
        inner: any optax transformation that ends in an update to be added.
        method: one of `METHODS`; see the module.
        seed: of the random bits, a function of it, the count and the weight's path.

    Returns:
        A transformation whose updates have the type of the gradients.

    Raises:
        InvalidArgument: if there is no such method; in `update` without params, or
            with gradients that are neither bfloat16 nor float32.
    """
    if method not in METHODS:
        raise InvalidArgument(
            f"master_weights: method must be one of {', '.join(METHODS)}, found "
            f"{method!r}"
        )
    inner = optax.with_extra_args_support(inner)

    def init(params: Any) -> MasterState:
        kept = jax.tree.map(lambda p: _first(method, p), params)
        wide = jax.tree.map(lambda p: _value(method, p, _first(method, p)), params)
        return MasterState(jnp.int32(0), kept, inner.init(wide))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, MasterState]:
        if params is None:
            raise InvalidArgument(
                "master_weights: update needs the weights: "
                "tx.update(grads, state, params)"
            )
        wide = jax.tree.map(lambda p, k: _value(method, p, k), params, state.kept)
        grads = jax.tree.map(_wide_gradient, updates, params)
        found, inner_state = inner.update(grads, state.inner, wide, **extra)
        key = jax.random.fold_in(jax.random.key(seed), state.steps)

        def add(path: Any, p: jax.Array, g: jax.Array, u: jax.Array, w: Any, k: Any):
            if p.dtype != NARROW:
                return _Added(u.astype(g.dtype), k)
            draw = lambda: rounding.leaf_bits(key, path, p.shape)  # noqa: E731
            step, kept = _add(method, p, k, w, u, draw)
            return _Added(step.astype(g.dtype), kept)

        added = jax.tree_util.tree_map_with_path(
            add, params, updates, found, wide, state.kept
        )
        is_added = lambda x: isinstance(x, _Added)  # noqa: E731
        steps = jax.tree.map(lambda a: a.step, added, is_leaf=is_added)
        kept = jax.tree.map(lambda a: a.kept, added, is_leaf=is_added)
        steps_done = jnp.asarray(optax.safe_increment(state.steps))
        return steps, MasterState(steps_done, kept, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


class _Added(NamedTuple):
    """One weight's update and what its method keeps."""

    step: jax.Array
    kept: Any


def _first(method: Method, p: jax.Array) -> Any:
    """Return what is kept beside a new weight."""
    if p.dtype != NARROW or method in ("stochastic", "nearest"):
        return optax.MaskedNode()
    return rounding.widen(p) if method == "f32" else jnp.zeros_like(p)


def _value(method: Method, p: jax.Array, kept: Any) -> jax.Array:
    """Return the float32 value that weight and kept part stand for."""
    if p.dtype != NARROW:
        return p
    if method == "f32":
        return kept
    if method in ("hilo", "kahan"):
        return rounding.join(Pair(p, kept))
    return rounding.widen(p)


def _wide_gradient(g: jax.Array, p: jax.Array) -> jax.Array:
    if g.dtype not in (jnp.float32, p.dtype):
        raise InvalidArgument(
            f"master_weights: a gradient must be float32 or of its weight's type "
            f"{p.dtype.name}, found {g.dtype.name}"
        )
    # Of another type, the state is too, and must stay so.
    return rounding.widen(g) if p.dtype == NARROW else g.astype(p.dtype)


def _add(
    method: Method,
    p: jax.Array,
    kept: Any,
    value: jax.Array,
    update: jax.Array,
    draw: Callable[[], jax.Array],
) -> tuple[jax.Array, Any]:
    """Return the bfloat16 step from p to the new weight, and what to keep."""
    if method == "kahan":
        target, rest = rounding.kahan_add(p, kept, update)
        step, new = _step_to(p, target)
        missed = rounding.widen(target) - rounding.widen(new)
        return step, rounding.nearest(rounding.widen(rest) + missed)
    wanted = value + update
    if method == "stochastic":
        step, _ = _step_to(p, rounding.stochastic(wanted, draw()))
        return step, kept
    step, new = _step_to(p, rounding.nearest(wanted))
    if method == "hilo":
        return step, rounding.residual(wanted, new)
    return step, (wanted if method == "f32" else kept)


def _step_to(p: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return RN(target - p), and the weight to which adding it to p leads."""
    step = rounding.nearest(rounding.widen(target) - rounding.widen(p))
    return step, rounding.nearest(rounding.widen(p) + rounding.widen(step))
