"""Data: documents from a source, a token cache on disk, batches by (seed, step).

Owns everything between text and token arrays.  The cache is keyed by the content of
the text and of the tokenizer, never by file names or times.  `Batches` is a pure
function of (seed, step): nothing is iterated, so a run can start at any step.
"""

import functools
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train import corpus
from train.config import ConfigError, DataConfig
from train.tokenizer import SEPARATOR, BpeTokenizer

if TYPE_CHECKING:
    import datasets

Document = tuple[bool, str]  # (held out?, text)
_READ_BYTES = 1 << 20
_ENCODE_DOCUMENTS = 1000


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Tokens of both splits; each document is preceded by the start id."""

    tokenizer: BpeTokenizer
    data_hash: str  # SHA-256 over the documents
    train: np.ndarray  # (n,) uint16
    valid: np.ndarray  # (n,) uint16
    valid_bytes: int  # UTF-8 bytes of the held-out documents
    source: str  # in words, for run.json

    @property
    def valid_bytes_per_token(self) -> float:
        """Mean bytes of text that one held-out token stands for."""
        return self.valid_bytes / len(self.valid)


def read_documents(path: Path) -> Iterator[str]:
    """Yield the stories of a text file, separated by `<|endoftext|>`.

    Raises:
        ConfigError: the file is not UTF-8 text.
    """
    rest = ""
    try:
        with path.open(encoding="utf-8") as file:
            while block := file.read(_READ_BYTES):
                *complete, rest = (rest + block).split(SEPARATOR)
                yield from filter(None, map(str.strip, complete))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    if rest.strip():
        yield rest.strip()


def _held_out(text: str, share: float) -> bool:
    """Decide the split by content, so that it does not move when a file grows."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def _file_documents(config: DataConfig, path: Path) -> Iterator[Document]:
    for text in read_documents(path):
        split_here = config.valid_path is None
        yield split_here and _held_out(text, config.valid_share), text
    if config.valid_path is not None:
        for text in read_documents(config.valid_path):
            yield True, text


def _corpus_documents(config: DataConfig) -> Iterator[Document]:
    for text in corpus.stories(seed=0, count=config.stories):
        yield _held_out(text, config.valid_share), text


def _load_hub(name: str) -> "datasets.DatasetDict":
    try:
        import datasets  # slow to import, and only this source needs it
    except ImportError as error:
        raise ConfigError(
            f"the data set {name!r} needs the package `datasets`: pip install datasets"
        ) from error
    try:
        splits = datasets.load_dataset(name)
    except Exception as error:  # many kinds: offline, no such name, bad file
        raise ConfigError(
            f"cannot load the data set {name!r}: {error}\n"
            "Without a network, give a text file with --data.path FILE, or use the "
            "built-in stories with --data.source corpus."
        ) from error
    if "train" not in splits or "text" not in splits["train"].column_names:
        raise ConfigError(
            f"data set {name!r} needs a 'train' split with a 'text' column, found "
            f"{ {split: rows.column_names for split, rows in splits.items()} }"
        )
    return splits


def _hub_documents(
    config: DataConfig, splits: "datasets.DatasetDict"
) -> Iterator[Document]:
    valid = next((n for n in ("validation", "valid", "test") if n in splits), None)
    for name in filter(None, ("train", valid)):
        for text in map(str.strip, splits[name]["text"]):
            held_out = name == valid
            if valid is None:
                held_out = _held_out(text, config.valid_share)
            if text:
                yield held_out, text


def documents(config: DataConfig) -> tuple[str, Callable[[], Iterable[Document]]]:
    """Open the configured source.

    Returns:
        The source in words, and a function that reads its documents from the start
        (large texts are read several times rather than held in memory).

    Raises:
        ConfigError: a file does not exist, or the hub data set cannot be loaded.
    """
    path = config.path
    if path is not None:
        for file in filter(None, (path, config.valid_path)):
            if not file.is_file():
                raise ConfigError(f"no text file at {file}")
        return f"file {path.name}", lambda: _file_documents(config, path)
    if config.source == "hub":
        splits = _load_hub(config.hub_name)
        return f"data set {config.hub_name}", lambda: _hub_documents(config, splits)
    stories = list(_corpus_documents(config))
    return "built-in stories", lambda: stories


def load(config: DataConfig, vocab_size: int) -> Dataset:
    """Read the source, train or load the tokenizer, and return cached tokens.

    Raises:
        ConfigError: unusable source or tokenizer, or no text in a split.
    """
    source, read = documents(config)
    data_hash = _hash(read())
    given = BpeTokenizer.load(config.tokenizer) if config.tokenizer else None
    wanted = given.hash if given else f"bpe-{vocab_size}-{config.tokenizer_stories}"
    key = hashlib.sha256(f"{data_hash}/{wanted}/v1".encode()).hexdigest()[:20]
    folder = config.cache / key
    if not (folder / "meta.json").is_file():
        texts = (text for held_out, text in read() if not held_out)
        texts = itertools.islice(texts, config.tokenizer_stories)
        _write_cache(folder, read(), given or BpeTokenizer.train(texts, vocab_size))
    tokenizer = BpeTokenizer.load(folder / "tokenizer.json")
    if tokenizer.vocab_size > vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size} tokens: "
            f"model.vocab_size must be at least that, got {vocab_size}"
        )
    return Dataset(
        tokenizer=tokenizer,
        data_hash=data_hash,
        train=np.memmap(folder / "train.bin", np.uint16, mode="r"),
        valid=np.memmap(folder / "valid.bin", np.uint16, mode="r"),
        valid_bytes=json.loads((folder / "meta.json").read_text())["valid_bytes"],
        source=source,
    )


def _hash(docs: Iterable[Document]) -> str:
    digest = hashlib.sha256()
    for held_out, text in docs:
        digest.update(b"\1" if held_out else b"\0")
        digest.update(text.encode())
    return digest.hexdigest()


def _write_cache(
    folder: Path, docs: Iterable[Document], tokenizer: BpeTokenizer
) -> None:
    """Encode both splits into a new cache folder, which appears whole or not at all."""
    if tokenizer.vocab_size > 1 << 16:
        raise ConfigError(f"a vocabulary of {tokenizer.vocab_size} exceeds 65536 ids")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        part = Path(scratch) / "part"
        part.mkdir()
        counts, valid_bytes = [0, 0], 0
        stream = iter(docs)
        with (part / "train.bin").open("wb") as a, (part / "valid.bin").open("wb") as b:
            while block := list(itertools.islice(stream, _ENCODE_DOCUMENTS)):
                encoded = tokenizer.encode_batch([text for _, text in block])
                for (held_out, text), ids in zip(block, encoded, strict=True):
                    line = np.array([tokenizer.start_id, *ids], np.uint16)
                    line.tofile(b if held_out else a)
                    counts[held_out] += 1
                    valid_bytes += len(text.encode()) if held_out else 0
        if 0 in counts:
            raise ConfigError(
                f"{counts[0]} documents to train on, {counts[1]} held out: both must "
                "have some; use more text or another data.valid_share"
            )
        tokenizer.save(part / "tokenizer.json")
        (part / "meta.json").write_text(json.dumps({"valid_bytes": valid_bytes}))
        try:
            os.replace(part, folder)
        except OSError:  # another process made the same cache meanwhile
            if not (folder / "meta.json").is_file():
                raise


@dataclass(frozen=True)
class Batches:
    """Training batches as a pure function of (seed, step).

    Every epoch visits each window of `context + 1` tokens once, in a fresh order and
    with a fresh offset of the window grid.
    """

    tokens: np.ndarray  # (n,) uint16
    batch_size: int
    context: int
    seed: int

    def __post_init__(self) -> None:
        """Check that an epoch has at least one batch."""
        if self.windows < self.batch_size:
            raise ConfigError(
                f"{len(self.tokens)} training tokens give {max(self.windows, 0)} "
                f"windows of {self.context} tokens: fewer than batch_size = "
                f"{self.batch_size}; use more text or smaller batches"
            )

    @property
    def windows(self) -> int:
        """Windows of one epoch; one window is left free for the offset."""
        return (len(self.tokens) - 1) // self.context - 1

    @property
    def epoch_steps(self) -> int:
        """Steps of one epoch; the incomplete last batch is dropped."""
        return self.windows // self.batch_size

    def starts(self, step: int) -> np.ndarray:
        """Return where the sequences of this step begin, (batch_size,) int64."""
        epoch, i = divmod(step, self.epoch_steps)
        order, offset = _epoch_order(self.seed, epoch, self.windows, self.context)
        rows = order[i * self.batch_size : (i + 1) * self.batch_size]
        return rows * self.context + offset

    def __call__(self, step: int) -> np.ndarray:
        """Return the batch of this step, (batch_size, context + 1) int32."""
        span = np.arange(self.context + 1)
        return self.tokens[self.starts(step)[:, None] + span].astype(np.int32)

    def order_hash(self, steps: int) -> str:
        """Return the SHA-256 of the sequence positions of the first steps."""
        digest = hashlib.sha256()
        for step in range(steps):
            digest.update(self.starts(step).astype("<i8").tobytes())
        return digest.hexdigest()


@functools.lru_cache(maxsize=2)
def _epoch_order(
    seed: int, epoch: int, windows: int, context: int
) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(windows), int(rng.integers(context))


def eval_batches(
    tokens: np.ndarray, batch_size: int, context: int, count: int
) -> Iterator[np.ndarray]:
    """Yield up to `count` evenly spaced batches of (batch_size, context + 1) int32.

    The same every time.  A split shorter than one batch repeats its windows.

    Raises:
        ConfigError: the tokens do not fill one window.
    """
    windows = (len(tokens) - 1) // context
    if windows < 1:
        raise ConfigError(
            f"{len(tokens)} held-out tokens do not fill one window of {context}"
        )
    count = min(count, -(-windows // batch_size))
    rows = np.linspace(0, windows - 1, count * batch_size).astype(np.int64)
    span = np.arange(context + 1)
    for part in rows.reshape(count, batch_size):
        yield tokens[part[:, None] * context + span].astype(np.int32)
