"""Tokenizers: a byte-level BPE by the `tokenizers` library, behind a small protocol.

Owns text <-> token ids.  `train/llama2c.py` brings the second implementation of the
protocol, for the public llama2.c checkpoints.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from train.config import ConfigError

SEPARATOR = "<|endoftext|>"


class Tokenizer(Protocol):
    """Text to ids and back; every document starts with `start_id`."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def start_id(self) -> int:
        """Id that precedes a document, and therefore also ends the one before."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without the start id."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; the start id has no text."""
        ...


class BpeTokenizer:
    """Byte-level BPE: any text is encodable, and decoding returns it exactly."""

    def __init__(self, backend: tokenizers.Tokenizer):
        """Wrap a tokenizer of the `tokenizers` library.

        Raises:
            ConfigError: its vocabulary lacks the document separator.
        """
        self._backend = backend
        start = backend.token_to_id(SEPARATOR)
        if start is None:
            raise ConfigError(f"the tokenizer has no {SEPARATOR!r} token")
        self.start_id = int(start)

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "BpeTokenizer":
        """Train on texts; a small text may give fewer than `vocab_size` tokens."""
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        if vocab_size <= len(alphabet):
            raise ConfigError(
                f"model.vocab_size must exceed the {len(alphabet)} bytes and the "
                f"separator of a byte-level BPE, got {vocab_size}"
            )
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[SEPARATOR],
            initial_alphabet=sorted(alphabet),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend)

    @classmethod
    def load(cls, path: Path) -> "BpeTokenizer":
        """Load a tokenizer.json.

        Raises:
            ConfigError: no such file, or not a tokenizer of this library.
        """
        if not path.is_file():
            raise ConfigError(f"no tokenizer file at {path}")
        try:
            return cls(tokenizers.Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises bare Exception
            raise ConfigError(f"{path} is not a tokenizer.json: {error}") from error

    def save(self, path: Path) -> None:
        """Write tokenizer.json."""
        path.write_text(self._backend.to_str(), encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self._backend.get_vocab_size()

    @property
    def hash(self) -> str:
        """SHA-256 of the tokenizer's definition."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without the start id."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: list[str]) -> Iterator[list[int]]:
        """Encode many texts on all cores."""
        for encoding in self._backend.encode_batch_fast(
            texts, add_special_tokens=False
        ):
            yield encoding.ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; the start id has no text."""
        return self._backend.decode(list(ids), skip_special_tokens=True)
