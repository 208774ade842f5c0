"""Layer and RMS normalisation, in the forms that libraries and people write."""

from __future__ import annotations

import jax.numpy as jnp

from vkore_jax import primitives
from vkore_jax.rewrite.algebra import Cap, Const, Inv, alt, column, op
from vkore_jax.rewrite.graph import Read
from vkore_jax.rewrite.rule import (
    ARITHMETIC,
    CASTS,
    Match,
    Plan,
    Rule,
    common_type,
    fills,
    is_float,
    read_vector,
    values,
)
from vkore_jax.rewrite.terms import inverse_root, mean, product, square, total
from vkore_jax.rewrite.views import realise

X = Cap("x", test=lambda view: view.along_row)
SCALE, SHIFT = column("g"), column("b")

CENTRED = total(X, Inv(mean(X)))
FAST_VARIANCE = total(mean(square(X)), Inv(square(mean(X))))
VARIANCE = alt(
    mean(square(CENTRED)), op("max", Const(0.0), FAST_VARIANCE), FAST_VARIANCE
)
DEVIATION = inverse_root(total(VARIANCE, plus="eps"))
LAYER_NORM = alt(
    total(product(CENTRED, DEVIATION, SCALE), SHIFT),
    product(CENTRED, DEVIATION, SCALE),
    total(product(CENTRED, DEVIATION), SHIFT),
    product(CENTRED, DEVIATION),
)

ROOT_MEAN_SQUARE = inverse_root(total(mean(square(X)), plus="eps"))
RMS_NORM = alt(
    product(X, ROOT_MEAN_SQUARE, SCALE),
    product(X, ROOT_MEAN_SQUARE),
)


def _guard(match: Match) -> str | None:
    if not is_float(match.root, match.view("x").value):
        return "not floating point"
    if not fills(match, "x"):
        return "what is normalised is broadcast afterwards"
    return None


def _plan(match: Match) -> Plan:
    inputs = values(match.env, "x", "g", "b")
    dtype = common_type(match.root, inputs[:1])
    eps, is_layer = float(match.number("eps")), match.env["kind"] == "layer"

    def run(read: Read) -> jnp.ndarray:
        x = realise(match.view("x"), read).astype(dtype)
        c = x.shape[-1]
        g = jnp.ones(c, dtype)
        if match.has("g"):
            g = jnp.broadcast_to(read_vector(match.view("g"), read), (c,))
        if not is_layer:
            return primitives.rms_norm(x, g, eps=eps)
        b = None
        if match.has("b"):
            b = jnp.broadcast_to(read_vector(match.view("b"), read), (c,))
        return primitives.layer_norm(x, g, b, eps=eps)

    return Plan(inputs, run)


def _of_kind(kind: str):
    def plan(match: Match) -> Plan:
        return _plan(Match(match.root, {**match.env, "kind": kind}))

    return plan


ROOTS = (*ARITHMETIC, *CASTS)
RULES = (
    Rule("layer_norm", ROOTS, LAYER_NORM, _of_kind("layer"), _guard),
    Rule("rms_norm", ROOTS, RMS_NORM, _of_kind("rms"), _guard),
)
