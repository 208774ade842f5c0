"""The decoder: a Llama-style transformer in plain Flax NNX and jnp.

Owns the network's mathematics: RMSNorm, rotary positions, grouped-query attention,
SwiGLU, tied embeddings.  No kernel of any backend is named here.  Dimensions: b
batch, t time, c channels, h heads, d channels of a head, v vocabulary.  Layers are
unrolled: twelve at most, and the program that results shows each one.  The network
computes in the type of its weights: with bf16 weights every product has bf16 operands;
norms, softmax and loss are computed in float32 and rounded.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from train.config import ModelConfig


def rotary_table(config: ModelConfig) -> tuple[jax.Array, jax.Array]:
    """Return cosines and sines of every position, each (t, d / 2) float32."""
    pairs = jnp.arange(config.head_dim // 2, dtype=jnp.float32)
    frequency = config.rope_theta ** (-2.0 * pairs / config.head_dim)
    angle = jnp.arange(config.context, dtype=jnp.float32)[:, None] * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Turn the channel pairs (i, i + d/2) of `x` (b, t, h, d) by their angles.

    Source: Su et al., arXiv 2104.09864, in the half-split order of Llama ports: it
    needs two slices, where interleaved pairs need strided reads.
    """
    left, right = jnp.split(x, 2, axis=-1)  # (b, t, h, d/2) each
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    # Rounded before they are joined: what is wider than `x` is never stored.
    turned = (left * cos - right * sin, right * cos + left * sin)
    return jnp.concatenate([half.astype(x.dtype) for half in turned], axis=-1)


def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention of `q` (b, t, h, d) to `k` and `v` (b, t, g, d), g divides h.

    In float32 it is JAX's own.  That keeps the scores of narrower operands in float32,
    between the two passes and as operands of the backward products; here they are
    rounded, so that nothing wider than the operands is multiplied or kept.  The
    softmax is computed in float32.
    """
    if q.dtype == jnp.float32:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)
    b, t, h, d = q.shape
    grouped = q.reshape(b, t, k.shape[2], -1, d)
    scores = jnp.einsum("btgnd,bsgd->bgnts", grouped, k)
    seen = jnp.tril(jnp.ones((t, t), bool))
    scores = jnp.where(seen, scores.astype(jnp.float32) * d**-0.5, -jnp.inf)
    weights = jax.nn.softmax(scores).astype(q.dtype)
    return jnp.einsum("bgnts,bsgd->btgnd", weights, v).reshape(b, t, h, d)


class Attention(nnx.Module):
    """Causal self-attention; a key/value head serves a group of query heads."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        """Create the four projections."""
        self.config = config
        c, d = config.d_model, config.head_dim
        init = nnx.initializers.normal(0.02)
        out_init = nnx.initializers.normal(0.02 / (2 * config.n_layers) ** 0.5)

        def linear(n_in: int, n_out: int, kernel_init=init) -> nnx.Linear:
            return nnx.Linear(
                n_in, n_out, use_bias=False, kernel_init=kernel_init, rngs=rngs
            )

        self.query = linear(c, config.n_heads * d)
        self.key = linear(c, config.n_kv_heads * d)
        self.value = linear(c, config.n_kv_heads * d)
        self.out = linear(config.n_heads * d, c, out_init)

    def __call__(self, x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        """Map (b, t, c) to (b, t, c)."""
        b, t, _ = x.shape
        q = self.query(x).reshape(b, t, self.config.n_heads, -1)
        k = self.key(x).reshape(b, t, self.config.n_kv_heads, -1)
        v = self.value(x).reshape(b, t, self.config.n_kv_heads, -1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = attend(q, k, v)  # (b, t, h, d)
        return self.out(y.reshape(b, t, -1))


class SwiGlu(nnx.Module):
    """Gated MLP: out(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        """Create the three projections."""
        init = nnx.initializers.normal(0.02)
        out_init = nnx.initializers.normal(0.02 / (2 * config.n_layers) ** 0.5)
        c, f = config.d_model, config.d_ff
        self.gate = nnx.Linear(c, f, use_bias=False, kernel_init=init, rngs=rngs)
        self.up = nnx.Linear(c, f, use_bias=False, kernel_init=init, rngs=rngs)
        self.out = nnx.Linear(f, c, use_bias=False, kernel_init=out_init, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map (b, t, c) to (b, t, c)."""
        return self.out(jax.nn.silu(self.gate(x)) * self.up(x))


class Block(nnx.Module):
    """One layer: normalised attention and normalised MLP, each added back."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        """Create norms and sub-layers."""

        def norm() -> nnx.RMSNorm:
            return nnx.RMSNorm(config.d_model, epsilon=config.norm_eps, rngs=rngs)

        self.attention_norm = norm()
        self.attention = Attention(config, rngs=rngs)
        self.mlp_norm = norm()
        self.mlp = SwiGlu(config, rngs=rngs)
        self.dropout = nnx.Dropout(config.dropout)

    def __call__(
        self, x: jax.Array, cos: jax.Array, sin: jax.Array, keys: jax.Array | None
    ) -> jax.Array:
        """Map (b, t, c) to (b, t, c); `keys` are dropout keys, None in evaluation."""
        still = keys is None
        first, second = (None, None) if still else (keys[0], keys[1])
        y = self.attention(self.attention_norm(x), cos, sin)
        x = x + self.dropout(y, deterministic=still, rngs=first)
        y = self.mlp(self.mlp_norm(x))
        return x + self.dropout(y, deterministic=still, rngs=second)


class Decoder(nnx.Module):
    """Token ids to logits; the embedding table is also the output projection."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        """Create the embedding, the layers and the final norm."""
        self.config = config
        self.embedding = nnx.Embed(
            config.vocab_size,
            config.d_model,
            embedding_init=nnx.initializers.normal(0.02),
            rngs=rngs,
        )
        self.embedding.dtype = None  # the table's, not that of its creation
        self.blocks = nnx.List(
            [Block(config, rngs=rngs) for _ in range(config.n_layers)]
        )
        self.norm = nnx.RMSNorm(config.d_model, epsilon=config.norm_eps, rngs=rngs)

    def __call__(
        self, tokens: jax.Array, dropout_key: jax.Array | None = None
    ) -> jax.Array:
        """Return next-token logits (b, t, v) of `tokens` (b, t), t <= context.

        Args:
            tokens: ids, int32.
            dropout_key: randomness of dropout; None switches dropout off.
        """
        t = tokens.shape[1]
        cos, sin = (table[:t] for table in rotary_table(self.config))
        keys = None
        if dropout_key is not None and self.config.dropout > 0:
            keys = jax.random.split(dropout_key, (len(self.blocks), 2))
        x = self.embedding(tokens)  # (b, t, c)
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin, None if keys is None else keys[i])
        return self.embedding.attend(self.norm(x))  # (b, t, v)


def abstract_decoder(config: ModelConfig) -> tuple[nnx.GraphDef, nnx.State]:
    """Return the decoder's structure, with shapes in place of parameters."""
    return nnx.split(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0))))


def init_params(config: ModelConfig, key: jax.Array) -> nnx.State:
    """Draw the parameters.

    Not jitted: the layers repeat a few shapes, whose small programs are compiled once
    each, while one program with every draw inlined takes longer to compile.
    """
    return nnx.state(Decoder(config, rngs=nnx.Rngs(key)), nnx.Param)
