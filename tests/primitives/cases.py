"""Cases of the primitives: our function, an independent plain formula, arguments.

The formulas are written from the textbook, hold whole matrices and know no blocks.
They are float32 jnp, differentiated by JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vkore_jax import primitives as P

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


@dataclass(frozen=True, eq=False)
class Case:
    """A call; `mapped` says which arguments vmap maps (weights are shared)."""

    name: str
    ours: Callable[..., Any]
    plain: Callable[..., Any]
    args: tuple[Any, ...]
    mapped: tuple[bool, ...]
    composites: tuple[str, ...]


CASES: list[Case] = []


def case(
    name: str,
    ours: Callable[..., Any],
    plain: Callable[..., Any],
    args: tuple[Any, ...],
    mapped: str,
    *composites: str,
    **params: Any,
) -> None:
    if params:
        ours = functools.partial(ours, **params)
    maps = tuple(c == "m" for c in mapped)
    assert len(maps) == len(args)
    CASES.append(Case(name, ours, plain, args, maps, composites))


ACT: dict[str | None, Callable[[Any], Any]] = {
    None: lambda h: h,
    "relu": lambda h: jnp.where(h > 0, h, 0),
    "silu": lambda h: h / (1 + jnp.exp(-h)),
    "gelu": lambda h: (
        h / (1 + jnp.exp(-2 * np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    ),
    "gelu_erf": lambda h: h * (1 + jax.scipy.special.erf(h / np.sqrt(2))) / 2,
}


def plain_linear(x, w, b=0.0, *, act=None):
    return ACT[act](jnp.einsum("...k,kn->...n", x, w) + b)


LINEAR = ("linear", "linear_dx", "linear_dw")
case("linear", P.linear, plain_linear, (normal(5, 7), normal(7, 3)), "m.", *LINEAR)
case("linear_relu", P.linear, functools.partial(plain_linear, act="relu"),
     (normal(5, 7), normal(7, 3), normal(3)), "m.m", *LINEAR,
     activation="relu")  # fmt: skip
case("linear_silu", P.linear, functools.partial(plain_linear, act="silu"),
     (normal(2, 3, 9), normal(9, 5), normal(5)), "mm.", *LINEAR,
     activation="silu")  # fmt: skip


def plain_attention(q, k, v, mask=None, *, causal=False, scale=None):
    r = q.shape[-2] // k.shape[-2]
    k, v = (jnp.repeat(a, r, axis=-2) for a in (k, v))
    s = jnp.einsum("...thd,...shd->...hts", q, k)
    s = s * (q.shape[-1] ** -0.5 if scale is None else scale)
    see = jnp.ones(s.shape[-2:], bool)
    if causal:
        see = jnp.tril(see)
    see = jnp.broadcast_to(see if mask is None else see & mask, s.shape)
    p = jnp.where(see, jnp.exp(jnp.where(see, s, 0)), 0)
    total = p.sum(-1, keepdims=True)
    p = p / jnp.where(total == 0, 1, total)
    return jnp.einsum("...hts,...shd->...thd", p, v)


def attention(name, q, k, v, mask=None, mapped="mmm", *, block=256, **params) -> None:
    args = (normal(*q), normal(*k), normal(*v))
    args = args if mask is None else (*args, mask)
    plain = functools.partial(plain_attention, **params)
    ours = functools.partial(P.attention, block=block, **params)
    both = ("attention", "attention_bwd")
    case(f"attention_{name}", ours, plain, args, mapped, *both)


SEE = RNG.random((2, 1, 7, 9)) < 0.5
SEE[0, 0, 3] = False  # a query that sees nothing
attention("mask", (2, 7, 4, 3), (2, 9, 4, 3), (2, 9, 4, 3), SEE, "mmm.")
attention("causal", (2, 7, 4, 6), (2, 7, 2, 6), (2, 7, 2, 5), block=4, causal=True)
HEADS = RNG.random((4, 5, 17)) < 0.7
attention("loop", (5, 4, 3), (17, 2, 3), (17, 2, 3), HEADS, "m..m", block=5, scale=0.7)


def plain_rms_norm(x, g, eps=1e-6):
    return g * x / jnp.sqrt((x**2).mean(-1, keepdims=True) + eps)


def plain_layer_norm(x, g, b=0.0, eps=1e-6):
    return g * (x - x.mean(-1, keepdims=True)) / jnp.sqrt(
        x.var(-1, keepdims=True) + eps
    ) + b  # fmt: skip


RMS, LAYER = ("rms_norm", "rms_norm_bwd"), ("layer_norm", "layer_norm_bwd")
case("rms_norm", P.rms_norm, plain_rms_norm, (normal(2, 3, 11), normal(11)), "m.", *RMS)
case("layer_norm", P.layer_norm, plain_layer_norm,
     (normal(3, 5) + 3, normal(5), normal(5)), "mm.", *LAYER)  # fmt: skip
case("layer_norm_no_shift", P.layer_norm, functools.partial(plain_layer_norm, eps=0.1),
     (normal(4, 6), normal(6)), "m.", *LAYER, eps=0.1)  # fmt: skip


def plain_rope(x, cos, sin):
    z = jax.lax.complex(*jnp.split(x, 2, axis=-1))
    z = z * jax.lax.complex(cos, sin)[..., None, :]
    return jnp.concatenate([z.real, z.imag], axis=-1)


ROPE = ("rope", "rope_tables_bwd")
case("rope", P.rope, plain_rope,
     (normal(2, 5, 3, 6), normal(5, 3), normal(5, 3)), "m..", *ROPE)  # fmt: skip
case("rope_positions", P.rope, plain_rope,
     (normal(2, 2, 5, 1, 4), normal(2, 5, 2), normal(1, 5, 2)), "mm.",
     *ROPE)  # fmt: skip


def plain_swiglu(gate, x):
    return ACT["silu"](gate) * x


case("gelu", P.gelu, ACT["gelu"], (normal(4, 5),), "m", "gelu", "gelu_bwd")
case("gelu_erf", P.gelu, ACT["gelu_erf"], (normal(7),), "m", "gelu", "gelu_bwd",
     approximate=False)  # fmt: skip
case("swiglu", P.swiglu, plain_swiglu, (normal(2, 3, 5), normal(2, 3, 5)), "m.",
     "swiglu", "swiglu_bwd")  # fmt: skip


def plain_embedding(table, ids):
    return jnp.einsum("...v,vc->...c", jax.nn.one_hot(ids, table.shape[0]), table)


EMBED = ("embedding", "embedding_bwd")
IDS = np.array([[1, 4, 1], [1, 22, -1], [22, 23, 9]], "i4")  # duplicates, outsiders
case("embedding", P.embedding, plain_embedding, (normal(23, 4), IDS), ".m", *EMBED)
case("embedding_tiles", P.embedding, plain_embedding, (normal(23, 4), IDS), "mm",
     *EMBED, block=4)  # fmt: skip


def plain_cross_entropy(x, w, y, b=0.0, *, axis=0, z_loss=0.0, ignore=None):
    z = jnp.einsum("...c,vc->...v", x, w if axis == 0 else w.T) + b
    lse = jax.scipy.special.logsumexp(z, axis=-1)
    loss = lse - (z * jax.nn.one_hot(y, z.shape[-1])).sum(-1) + z_loss * lse**2
    return loss if ignore is None else jnp.where(y == ignore, 0, loss)


CE = ("softmax_cross_entropy", "softmax_cross_entropy_bwd")
case("cross_entropy", P.softmax_cross_entropy, plain_cross_entropy,
     (normal(2, 3, 5), normal(11, 5), np.array([[0, 10, 3], [3, 3, 1]])), "m.m",
     *CE)  # fmt: skip
case("cross_entropy_all", P.softmax_cross_entropy,
     functools.partial(plain_cross_entropy, axis=1, z_loss=0.1, ignore=-1),
     (normal(4, 5), normal(5, 23), np.array([0, -1, 22, 9]), normal(23)), "m.m.", *CE,
     vocab_axis=1, z_loss=0.1, ignore_index=-1, block=4)  # fmt: skip

# The last, richest case of each primitive: for the checks that take longest.
PRINCIPAL = list({c.composites: c for c in CASES}.values())
