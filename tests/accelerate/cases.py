"""Functions as people write them, and the primitives that must come in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import nnx

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


@dataclass(frozen=True, eq=False)
class Case:
    """`counts` says what `accelerate` must put in; `left` what the report must say."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    counts: dict[str, int] = field(default_factory=dict)
    left: str = ""


CASES: list[Case] = []


def case(
    name: str, function: Callable[..., Any], *args: Any, left: str = "", **counts: int
) -> None:
    found = {f"vkore.{k}": n for k, n in counts.items()}
    CASES.append(Case(name, function, args, found, left))


def linen(
    name: str, module: nn.Module, *args: Any, left: str = "", **counts: Any
) -> None:
    shapes = jax.eval_shape(lambda *a: module.init(jax.random.key(0), *a), *args)
    # Not the initial values: a bias of zeros hides errors.
    params = jax.tree.map(lambda s: 0.5 * normal(*s.shape), shapes)
    floats = [i for i, a in enumerate(args) if a.dtype == np.float32]

    def function(params: Any, *some: Any) -> Any:
        full = list(args)
        for i, a in zip(floats, some, strict=True):
            full[i] = a
        return module.apply(params, *full, rngs={"dropout": jax.random.key(1)})

    case(name, function, params, *(args[i] for i in floats), left=left, **counts)


def module(name: str, make: Callable[[nnx.Rngs], Any], x: Any, **counts: Any) -> None:
    graph, state = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    state = jax.tree.map(lambda a: 0.5 * normal(*a.shape), state)

    def function(state: Any, *args: Any) -> Any:
        return nnx.merge(graph, state)(*args)

    if x.dtype == np.float32:
        case(name, function, state, x, **counts)
    else:
        case(name, lambda state: function(state, x), state, **counts)


X = normal(2, 5, 8)
IDS = RNG.integers(0, 11, (2, 5)).astype("i4")
W, B = normal(8, 7), normal(7)

# Normalisation ------------------------------------------------------------------------

linen("layer_norm", nn.LayerNorm(), X, layer_norm=1)
linen("layer_norm_slow", nn.LayerNorm(use_fast_variance=False), X, layer_norm=1)
linen("layer_norm_bare", nn.LayerNorm(use_bias=False, use_scale=False), X, layer_norm=1)
linen("rms_norm", nn.RMSNorm(), X, rms_norm=1)
module("nnx_layer_norm", lambda r: nnx.LayerNorm(8, rngs=r), X, layer_norm=1)
module("nnx_rms_norm", lambda r: nnx.RMSNorm(8, rngs=r), X, rms_norm=1)


def layer_norm(x, g, b):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def gemma_norm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * (1 + g)


case("layer_norm_hand", layer_norm, X, normal(8), normal(8), layer_norm=1)
case("residual_norm", lambda x, y, g, b: layer_norm(x + y, g, b),
     X, normal(2, 5, 8), normal(8), normal(8), layer_norm=1)  # fmt: skip
case("rms_norm_gemma", gemma_norm, X, normal(8), rms_norm=1)
case("norm_of_quantised", lambda x, g: gemma_norm(
     x.astype("float8_e4m3fn").astype("f4"), g), X, normal(8), rms_norm=1)  # fmt: skip
# Square shapes, where a wrong axis would go unnoticed by shapes.
case("norm_of_columns", lambda x, g, b: layer_norm(x.T, g, b).T,
     normal(6, 6), normal(6), normal(6), layer_norm=1)  # fmt: skip
case("scale_by_row", lambda x, g: gemma_norm(x, 0 * g) * g[:, None],
     normal(6, 6), normal(6), rms_norm=1)  # fmt: skip
case("norm_over_first", lambda x: x / jnp.sqrt((x * x).mean(0) + 1e-6), normal(6, 6),
     left="sqrt")  # fmt: skip

# Linear layers ------------------------------------------------------------------------

for act in ("gelu", "silu", "relu"):
    case(f"linear_{act}", lambda x, w, b, act=act: getattr(jax.nn, act)(x @ w + b), X,
         W, B, linear=1)  # fmt: skip
case("linear_gelu_exact", lambda x, w: jax.nn.gelu(x @ w, approximate=False), X, W,
     linear=1)  # fmt: skip
case("linear_transposed", lambda x, w, b: b + x @ w.T, X, normal(7, 8), B, linear=1)
case("linear_vector", lambda x, w, b: x @ w + b, normal(8), W, B, linear=1)
case("linear_and_product", lambda x, w, b: (x @ w + b) * (x @ w), X, W, B, linear=1)
case("linear_hidden_used", lambda x, w: jnp.tanh(h := x @ w) + jax.nn.silu(h), X, W,
     linear=1, left="used elsewhere")  # fmt: skip
case("add_rows", lambda x, w, y: x @ w + y, normal(7, 8), W, normal(7, 1), linear=1)
case("linear_wide", lambda x, w: jnp.dot(x.astype("bfloat16"), w.astype("bfloat16"),
     preferred_element_type=jnp.float32), X, W, left="wider")  # fmt: skip
case("batched", lambda x, y: jnp.einsum("bij,bjk->bik", x, y), X, normal(2, 8, 3),
     left="batched product")  # fmt: skip
linen("dense_general", nn.DenseGeneral((2, 3)), X, linear=1)
linen("dense_general_in", nn.DenseGeneral(4, axis=(-2, -1)), X, linear=1)
module("nnx_linear", lambda r: nnx.Linear(8, 3, rngs=r), X, linear=1)
case("swiglu", lambda x, w, u: jax.nn.silu(x @ w) * (x @ u), X, W, normal(8, 7),
     linear=2, swiglu=1)  # fmt: skip
case("gelu", jax.nn.gelu, X, gelu=1)


def new_gelu(x):
    inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * jnp.power(x, 3.0))
    return 0.5 * x * (1.0 + jnp.tanh(inner))


@jax.custom_jvp
def relu(x):
    """Named as JAX's, with a derivative of its own."""
    return jnp.maximum(x, 0)


relu.defjvp(lambda p, t: (relu(*p), 2 * t[0]))
case("gelu_hand", new_gelu, X, gelu=1)
case("own_relu", lambda x, w: relu(x @ w), X, W, linear=1, left="derivative of its own")
case("maximum", lambda x, w: jnp.maximum(x @ w, 0), X, W, linear=1)

# Lookup -------------------------------------------------------------------------------

OUTSIDE = IDS.copy()
OUTSIDE[0, :3] = -1, -12, 11
linen("embed", nn.Embed(11, 8), IDS, embedding=1)
module("nnx_embed", lambda r: nnx.Embed(11, 8, rngs=r), IDS, embedding=1)
case("indexing", lambda t: t[IDS - 4], normal(11, 8), embedding=1)
case("take_clip", lambda t: jnp.take(t, OUTSIDE, axis=0, mode="clip"), normal(11, 8),
     embedding=1)  # fmt: skip
case("one_hot", lambda t: jax.nn.one_hot(OUTSIDE, 11) @ t, normal(11, 8), embedding=1)
case("ids_wrapped", lambda t: jax.nn.one_hot((300 + IDS).astype("uint8"), 50) @ t,
     normal(50, 8), embedding=1)  # fmt: skip
case("take_columns", lambda t: jnp.take(t, IDS, axis=1), normal(8, 11), left="gather")

# Attention ----------------------------------------------------------------------------

SEE = (IDS > 4).astype("f4")


def masked_heads(x):
    pads = nn.make_attention_mask(SEE, SEE)
    return nn.combine_masks(pads, nn.make_causal_mask(x[..., 0]))


class Heads(nn.Module):
    """Multi-head attention of linen, masked."""

    mask: Any = None
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x):
        heads = nn.MultiHeadDotProductAttention(
            num_heads=2, dropout_rate=self.dropout, deterministic=not self.dropout
        )
        return heads(x, mask=None if self.mask is None else self.mask(x))


linen("linen_heads", Heads(), X, linear=4, attention=1)
linen("linen_causal", Heads(lambda x: nn.make_causal_mask(x[..., 0])), X, linear=4,
      attention=1)  # fmt: skip
linen("linen_blind", Heads(masked_heads), X, linear=4, attention=1)
linen("linen_dropout", Heads(dropout=0.5), X, left="dropout", linear=4)
module("nnx_heads", lambda r: nnx.MultiHeadAttention(2, 8, decode=False, rngs=r), X,
       linear=4, attention=1)  # fmt: skip

Q, K, V = normal(2, 5, 4, 6), normal(2, 5, 2, 6), normal(2, 5, 2, 6)
K7, V7 = normal(2, 7, 2, 6), normal(2, 7, 2, 6)
dpa = jax.nn.dot_product_attention
case("jax_causal", lambda *a: dpa(*a, is_causal=True), Q, K, V, attention=1)
case("jax_cross", dpa, Q, K7, V7, attention=1)
case("jax_mask", lambda *a: dpa(*a, mask=np.arange(7).reshape(1, 1, 1, 7) < 4),
     Q, K7, V7, attention=1)  # fmt: skip
case("jax_window", lambda *a: dpa(*a, is_causal=True, local_window_size=(2, 0)),
     Q, K, V, attention=1)  # fmt: skip
case("jax_bias", lambda b, *a: dpa(*a, bias=b), normal(1, 4, 5, 5), Q, K, V,
     left="softmax is of something else")  # fmt: skip
case("jax_one", lambda *a: dpa(*a, is_causal=True), Q[:1, :, :1], K[:1, :, :1],
     V[:1, :, :1], attention=1)  # fmt: skip
case("jax_decode", dpa, Q[:, :1], K7, V7, attention=1)


def repeated(q, k, v):
    k, v = (jnp.repeat(a, 2, axis=2) for a in (k, v))
    s = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    s = jnp.where(jnp.tril(jnp.ones((5, 5))) == 0, -jnp.inf, s)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s, -1), v)


def nano(x, wqkv, wo):
    b, t, c = x.shape
    q, k, v = jnp.split(x @ wqkv, 3, axis=-1)
    q, k, v = (a.reshape(b, t, 2, c // 2).transpose(0, 2, 1, 3) for a in (q, k, v))
    att = (q @ k.transpose(0, 1, 3, 2)) * (1 / np.sqrt(c // 2))
    att = jnp.where(np.tril(np.ones((8, 8)))[None, None, :t, :t] == 0, -1e9, att)
    y = jax.nn.softmax(att, axis=-1) @ v
    return y.transpose(0, 2, 1, 3).reshape(b, t, c) @ wo


def added_mask(q, k, v):
    s = jnp.einsum("btd,bsd->bts", q / 2, k)
    i = jnp.arange(5)
    s = s + jnp.where(i[None, :] > i[:, None], -1e9, 0.0)
    p = jnp.exp(s) / jnp.exp(s).sum(-1, keepdims=True)
    return jnp.einsum("bts,bsd->btd", p, v)


def infinite(q, k, v):
    q, k, v = jax.lax.stop_gradient((q, k, v))
    s = jnp.where(jnp.arange(5)[:, None] < 2, -jnp.inf, jnp.einsum("td,sd->ts", q, k))
    return jnp.nan_to_num(jax.nn.softmax(s, -1) @ v)


case("repeated_heads", repeated, Q, K, V, attention=1)
case("nano", nano, X, normal(8, 24), normal(8, 8), linear=2, attention=1)
case("added_mask", added_mask, X, X + 1, X - 1, attention=1)
case("blind_infinite", infinite, X[0], X[1], X[0], attention=1)
case("weights_returned", lambda q, k, v: (p := jax.nn.softmax(q @ k.T), p @ v)[1]
     + p.sum(), X[0], X[1], X[0], linear=2, left="used elsewhere")  # fmt: skip

# Rotary positions ---------------------------------------------------------------------


def rotate(x, cos, sin):
    left, right = jnp.split(x, 2, axis=-1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    turned = [left * cos - right * sin, right * cos + left * sin]
    return jnp.concatenate(turned, axis=-1)


def rotate_half(x, cos, sin):
    cos, sin = (jnp.concatenate([a, a], -1)[None, None] for a in (cos, sin))
    half = x.shape[-1] // 2
    return x * cos + jnp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


TABLES = normal(5, 4), normal(5, 4)
case("rope", rotate, normal(2, 5, 3, 8), *TABLES, rope=1)
case("rope_half", rotate_half, normal(2, 3, 5, 8), *TABLES, rope=1)

# Cross-entropy ------------------------------------------------------------------------

integer_labels = optax.softmax_cross_entropy_with_integer_labels
Z, ZB = normal(8, 11), normal(11)
FAR = IDS.copy()
FAR[0, 0] = 11


def lm1b(x, w):
    hot = IDS[..., None] == jnp.arange(11)[None, None]
    hot = jax.lax.select(hot, jnp.full(hot.shape, 1.0), jnp.full(hot.shape, 0.0))
    return (-jnp.sum(hot * nn.log_softmax(x @ w), axis=-1) - 0.3) * (IDS > 0)


def sequence_loss(x, w):
    z = (x @ w)[:, :-1].reshape(-1, 11)
    ids = IDS[: len(x), 1:].reshape(-1, 1)
    picked = jnp.take_along_axis(z, ids, -1)[..., 0]
    return (jax.nn.logsumexp(z, axis=-1) - picked).mean()


case("optax", lambda x, w: integer_labels(x @ w, IDS), X, Z, softmax_cross_entropy=1)
case("optax_one_row", lambda x, w: integer_labels(x[:1] @ w, IDS[:1]), X, Z,
     softmax_cross_entropy=1)  # fmt: skip
case("optax_vector", lambda x, w: integer_labels(x[0] @ w, IDS[0]), X, Z,
     softmax_cross_entropy=1)  # fmt: skip
case("optax_tied", lambda x, w, b: integer_labels(x @ w.T / 2 + b, IDS), X, Z.T, ZB,
     softmax_cross_entropy=1)  # fmt: skip
case("optax_far", lambda x, w: jnp.nan_to_num(
     integer_labels(jax.lax.stop_gradient(x) @ jax.lax.stop_gradient(w), FAR), nan=7.0),
     X, Z, softmax_cross_entropy=1)  # fmt: skip
case("optax_one_hot",
     lambda x, w: optax.softmax_cross_entropy(x @ w, jax.nn.one_hot(FAR, 11)), X, Z,
     softmax_cross_entropy=1)  # fmt: skip
case("lm1b_loss", lm1b, X, Z, softmax_cross_entropy=1)
case("sequence_loss", sequence_loss, X, Z, softmax_cross_entropy=1)
case("sequence_of_one", lambda x, w: sequence_loss(x[:1], w), X, Z,
     softmax_cross_entropy=1)  # fmt: skip
case("logits_transposed", lambda x, w: integer_labels(
     (x @ w).swapaxes(0, 1), IDS.T), X, Z, linear=1, left="last axis")  # fmt: skip
case("log_probabilities", lambda x, w: jnp.take_along_axis(
     nn.log_softmax(x @ w), IDS[..., None], -1)[..., 0], X, Z,
     softmax_cross_entropy=1)  # fmt: skip
case("logits_used", lambda x, w: integer_labels(z := x @ w, IDS) + z.max(), X, Z,
     linear=1, left="used elsewhere")  # fmt: skip
case("logits_given", lambda z: integer_labels(z, IDS), normal(2, 5, 11),
     left="no projection")  # fmt: skip
case("label_smoothing", lambda x, w: optax.softmax_cross_entropy(
     x @ w, optax.smooth_labels(jax.nn.one_hot(IDS, 11), 0.1)), X, Z, linear=1,
     left="exp")  # fmt: skip

# Bodies of loops and calls ------------------------------------------------------------


@jax.checkpoint
def block(x, w):
    return jax.nn.gelu(x @ w) @ w.T


WS = 0.1 * normal(3, 8, 8)
case("scan_of_checkpoint",
     lambda x, w: jax.lax.scan(lambda c, w: (block(c, w), None), x, w)[0], X, WS,
     linear=2)  # fmt: skip
case("cond", lambda x, w: jax.lax.cond(x.sum() > 0, lambda: x @ w, lambda: 2 * (x @ w)),
     X, W, linear=2)  # fmt: skip
case("jit", lambda x, w: jax.jit(lambda x: jax.nn.silu(x @ w))(x), X, W, linear=1)
case("fori", lambda x, w: jax.lax.fori_loop(0, 2, lambda i, x: x + block(x, w), x), X,
     WS[0], linear=2)  # fmt: skip
