"""Byte-level BPE: exact round trips, the same training twice, helpful errors."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from train import corpus
from train.config import ConfigError
from train.tokenizer import SEPARATOR, BpeTokenizer

TEXTS = list(corpus.stories(seed=2, count=60))
TOKENIZER = BpeTokenizer.train(TEXTS, 400)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text.replace(SEPARATOR, "")


def test_known_text_is_compressed_and_ids_are_in_range() -> None:
    ids = TOKENIZER.encode(TEXTS[0])
    assert TOKENIZER.decode(ids) == TEXTS[0]
    assert len(ids) < 0.6 * len(TEXTS[0])
    assert TOKENIZER.vocab_size == 400
    assert max(ids) < 400
    assert TOKENIZER.start_id not in ids


def test_batches_encode_like_single_texts() -> None:
    expected = [TOKENIZER.encode(t) for t in TEXTS]
    assert list(TOKENIZER.encode_batch(TEXTS)) == expected


def test_training_is_deterministic_and_survives_a_file(tmp_path: Path) -> None:
    again = BpeTokenizer.train(TEXTS, 400)
    assert again.hash == TOKENIZER.hash
    again.save(tmp_path / "tokenizer.json")
    loaded = BpeTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.hash == TOKENIZER.hash
    assert loaded.encode(TEXTS[3]) == TOKENIZER.encode(TEXTS[3])


def test_errors_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocab_size must exceed the 256 bytes"):
        BpeTokenizer.train(TEXTS, 256)
    with pytest.raises(ConfigError, match="no tokenizer file"):
        BpeTokenizer.load(tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    with pytest.raises(ConfigError, match=r"not a tokenizer\.json"):
        BpeTokenizer.load(broken)
    with pytest.raises(ConfigError, match=r"has no .*endoftext"):
        BpeTokenizer(tokenizers.Tokenizer(tokenizers.models.BPE()))
