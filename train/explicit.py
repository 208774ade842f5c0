"""The decoder's loss on the primitives of `vkore_jax`, written out.

The mathematics of `train/model.py`, one call for each kernel; parameters, names and
results are the same.  Imported only where a run asks for it (`--primitives explicit`).
Dimensions: b batch, t time, c channels, h heads, d channels of a head, v vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from train.model import Attention, Block, Decoder, SwiGlu, rotary_table
from vkore_jax import primitives


def token_losses(
    decoder: Decoder,
    tokens: jax.Array,
    targets: jax.Array,
    dropout_key: jax.Array | None = None,
) -> jax.Array:
    """Return the negative log-likelihood (b, t) of `targets`, nats, float32.

    The logits are not stored: projection and loss are one kernel.

    Args:
        decoder: with its parameters.
        tokens: (b, t) ids.
        targets: (b, t) ids.
        dropout_key: as the decoder's.
    """
    config = decoder.config
    cos, sin = (table[: tokens.shape[1]] for table in rotary_table(config))
    keys = None
    if dropout_key is not None and config.dropout > 0:
        keys = jax.random.split(dropout_key, (len(decoder.blocks), 2))
    table = decoder.embedding.embedding[...]
    x = primitives.embedding(table, tokens)
    for i, block in enumerate(decoder.blocks):
        x = _block(block, x, cos, sin, None if keys is None else keys[i])
    x = _norm(decoder.norm, x)
    return primitives.softmax_cross_entropy(x, table.astype(x.dtype), targets)


def _block(
    block: Block,
    x: jax.Array,
    cos: jax.Array,
    sin: jax.Array,
    keys: jax.Array | None,
) -> jax.Array:
    still = keys is None
    first, second = (None, None) if still else (keys[0], keys[1])
    y = _attention(block.attention, _norm(block.attention_norm, x), cos, sin)
    x = x + block.dropout(y, deterministic=still, rngs=first)
    y = _mlp(block.mlp, _norm(block.mlp_norm, x))
    return x + block.dropout(y, deterministic=still, rngs=second)


def _norm(norm: nnx.RMSNorm, x: jax.Array) -> jax.Array:
    assert norm.scale is not None  # the decoder's norms have one
    return primitives.rms_norm(x, norm.scale[...], eps=norm.epsilon)


def _linear(layer: nnx.Linear, x: jax.Array) -> jax.Array:
    return primitives.linear(x, layer.kernel[...].astype(x.dtype))


def _attention(
    attention: Attention, x: jax.Array, cos: jax.Array, sin: jax.Array
) -> jax.Array:
    b, t, _ = x.shape
    config = attention.config
    q = _linear(attention.query, x).reshape(b, t, config.n_heads, -1)
    k = _linear(attention.key, x).reshape(b, t, config.n_kv_heads, -1)
    v = _linear(attention.value, x).reshape(b, t, config.n_kv_heads, -1)
    q, k = primitives.rope(q, cos, sin), primitives.rope(k, cos, sin)
    y = primitives.attention(q, k, v, causal=True)
    return _linear(attention.out, y.reshape(b, t, -1))


def _mlp(mlp: SwiGlu, x: jax.Array) -> jax.Array:
    y = primitives.swiglu(_linear(mlp.gate, x), _linear(mlp.up, x))
    return _linear(mlp.out, y)


def mean_loss(
    decoder: Decoder, batch: jax.Array, dropout_key: jax.Array | None = None
) -> jax.Array:
    """Return the mean of `token_losses` over a batch (b, t + 1) of ids."""
    losses = token_losses(decoder, batch[:, :-1], batch[:, 1:], dropout_key)
    return jnp.mean(losses)
