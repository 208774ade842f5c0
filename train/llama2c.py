"""Reader of the public llama2.c checkpoints (github.com/karpathy/llama2.c).

Owns that file format and its tokenizer.  A checkpoint is seven int32 (dim, hidden,
layers, heads, kv heads, vocabulary, context) and float32 blocks; it becomes the
parameters of the same decoder that `train` trains.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx

from train.config import ConfigError, ModelConfig
from train.model import abstract_decoder

_HEADER_BYTES = 28
_BYTE_OFFSET = 3  # ids 3..258 are the single bytes, after <unk>, <s> and </s>


def load_checkpoint(path: Path) -> tuple[ModelConfig, nnx.State]:
    """Read a checkpoint.

    Returns:
        The decoder's configuration and its float32 parameters.

    Raises:
        ConfigError: not such a file, too short, or without tied embeddings.
    """
    data = path.read_bytes()
    if len(data) < _HEADER_BYTES:
        raise ConfigError(f"{path} is not a llama2.c checkpoint: no header")
    dim, hidden, layers, heads, kv_heads, vocab, context = struct.unpack_from(
        "<7i", data
    )
    if min(dim, hidden, layers, heads, kv_heads, context) < 1 or dim > 1 << 16:
        raise ConfigError(f"{path} is not a llama2.c checkpoint: impossible sizes")
    if vocab < 0:
        raise ConfigError(
            f"{path} has an output matrix of its own (vocabulary {vocab}); "
            "this decoder shares the embedding"
        )
    config = ModelConfig(
        vocab_size=vocab,
        context=context,
        d_model=dim,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=kv_heads,
        d_ff=hidden,
        rope_theta=10_000.0,
        norm_eps=1e-5,
    )
    kv_dim = kv_heads * config.head_dim
    shapes = {
        "embedding": (vocab, dim),
        "attention_norm": (layers, dim),
        "query": (layers, dim, dim),  # matrices are (out, in)
        "key": (layers, kv_dim, dim),
        "value": (layers, kv_dim, dim),
        "attention_out": (layers, dim, dim),
        "mlp_norm": (layers, dim),
        "gate": (layers, hidden, dim),
        "mlp_out": (layers, dim, hidden),
        "up": (layers, hidden, dim),
        "norm": (dim,),
    }
    blocks: dict[str, np.ndarray] = {}
    offset = _HEADER_BYTES
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        if offset + 4 * count > len(data):
            raise ConfigError(f"{path} ends inside {name!r}: {len(data)} bytes")
        blocks[name] = np.frombuffer(data, "<f4", count, offset).reshape(shape)
        offset += 4 * count
    return config, _as_params(config, blocks)


def _as_params(config: ModelConfig, blocks: dict[str, np.ndarray]) -> nnx.State:
    def layer(i: int) -> dict[str, Any]:
        def kernel(name: str) -> dict[str, np.ndarray]:
            return {"kernel": np.ascontiguousarray(blocks[name][i].T)}

        query = half_split(blocks["query"][i], config.n_heads)
        key = half_split(blocks["key"][i], config.n_kv_heads)
        return {
            "attention_norm": {"scale": blocks["attention_norm"][i]},
            "attention": {
                "query": {"kernel": np.ascontiguousarray(query.T)},
                "key": {"kernel": np.ascontiguousarray(key.T)},
                "value": kernel("value"),
                "out": kernel("attention_out"),
            },
            "mlp_norm": {"scale": blocks["mlp_norm"][i]},
            "mlp": {
                "gate": kernel("gate"),
                "up": kernel("up"),
                "out": kernel("mlp_out"),
            },
        }

    _, params = abstract_decoder(config)
    nnx.replace_by_pure_dict(
        params,
        {
            "embedding": {"embedding": blocks["embedding"]},
            "blocks": {i: layer(i) for i in range(config.n_layers)},
            "norm": {"scale": blocks["norm"]},
        },
    )
    return params


def half_split(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the output rows (h * d, c) of a query or key projection.

    llama2.c turns the channel pairs (2i, 2i + 1), our decoder (i, i + d/2).  Scores are
    sums over a head's channels, so one permutation of both q and k changes nothing.
    """
    rows, columns = matrix.shape
    pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, columns)


class Llama2cTokenizer:
    """The tokenizer.bin of llama2.c: scored pieces, merged best score first."""

    start_id = 1  # <s>

    def __init__(self, path: Path, vocab_size: int):
        """Read `vocab_size` pieces.

        Raises:
            ConfigError: the file is missing or holds fewer pieces.
        """
        if not path.is_file():
            raise ConfigError(f"no tokenizer file at {path}; name one with --tokenizer")
        data = path.read_bytes()
        self._pieces: list[bytes] = []
        self._scores: list[float] = []
        offset = 4  # the longest piece, which we do not need
        for i in range(vocab_size):
            if offset + 8 > len(data):
                raise ConfigError(f"{path} has {i} pieces, required {vocab_size}")
            score, size = struct.unpack_from("<fi", data, offset)
            offset += 8
            self._pieces.append(data[offset : offset + size])
            self._scores.append(score)
            offset += size
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without the start id."""
        if not text:
            return []
        ids: list[int] = []
        for character in " " + text:  # sentencepiece's dummy prefix
            piece = character.encode()
            known = self._ids.get(piece)
            ids += [b + _BYTE_OFFSET for b in piece] if known is None else [known]
        while merge := self._best_merge(ids):
            i, joined = merge
            ids[i : i + 2] = [joined]
        return ids

    def _best_merge(self, ids: list[int]) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        for i in range(len(ids) - 1):
            joined = self._ids.get(self._pieces[ids[i]] + self._pieces[ids[i + 1]])
            if joined is None:
                continue
            if best is None or self._scores[joined] > self._scores[best[1]]:
                best = i, joined
        return best

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; the start id has no text."""
        text = b"".join(self._bytes(i) for i in ids if i != self.start_id)
        return text.decode(errors="replace").removeprefix(" ")

    def _bytes(self, token: int) -> bytes:
        if _BYTE_OFFSET <= token < _BYTE_OFFSET + 256:
            return bytes([token - _BYTE_OFFSET])
        return self._pieces[token]
