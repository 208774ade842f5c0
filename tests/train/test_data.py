"""Documents, the token cache, and batches as a pure function of (seed, step)."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from train import corpus, data
from train.config import ConfigError, DataConfig
from train.tokenizer import SEPARATOR

VOCAB = 300


@pytest.fixture
def config(text_file: Path, tmp_path: Path) -> DataConfig:
    return DataConfig(path=text_file, cache=tmp_path / "cache")


def test_text_files_split_at_separators_that_cross_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.txt"
    texts = ["one\n\ntwo", "é" * 9, "three"]
    path.write_text(f"\n{SEPARATOR}\n".join([*texts, "", " "]), encoding="utf-8")
    for size in range(1, 40):
        monkeypatch.setattr(data, "_READ_BYTES", size)
        assert list(data.read_documents(path)) == texts


def test_tokens_are_the_documents_in_order(config: DataConfig, text_file: Path) -> None:
    dataset = data.load(config, VOCAB)
    texts = list(data.read_documents(text_file))
    start = dataset.tokenizer.start_id

    def split(tokens: np.ndarray) -> list[str]:
        assert tokens[0] == start
        parts = np.split(tokens, np.flatnonzero(tokens == start))[1:]
        return [dataset.tokenizer.decode(p[1:]) for p in parts]

    train, valid = split(dataset.train), split(dataset.valid)
    assert valid
    assert sorted(train + valid) == sorted(texts)
    assert train == [t for t in texts if t in set(train)]
    assert dataset.valid_bytes == sum(len(t.encode()) for t in valid)


def test_held_out_stories_stay_held_out_when_the_file_grows(
    config: DataConfig, text_file: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.txt"
    extra = f"\n{SEPARATOR}\n".join(corpus.stories(seed=5, count=30))
    more.write_text(f"{text_file.read_text()}\n{SEPARATOR}\n{extra}")
    _, small = data.documents(config)
    _, large = data.documents(dataclasses.replace(config, path=more))
    assert {t for held, t in small() if held} <= {t for held, t in large() if held}
    assert not {t for held, t in small() if held} & {
        t for held, t in large() if not held
    }


def test_cache_is_keyed_by_content(
    config: DataConfig, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = data.load(config, VOCAB)
    copy = tmp_path / "copy.txt"
    copy.write_bytes(text_file.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(data, "_write_cache", None)  # a hit writes nothing
        again = data.load(dataclasses.replace(config, path=copy), VOCAB)
    assert again.data_hash == first.data_hash
    assert np.array_equal(again.train, first.train)
    copy.write_text(copy.read_text().replace("Once", "Twice"))
    changed = data.load(dataclasses.replace(config, path=copy), VOCAB)
    assert changed.data_hash != first.data_hash
    larger = data.load(config, VOCAB + 20)
    assert larger.tokenizer.vocab_size == VOCAB + 20
    assert not list(config.cache.glob("tmp*"))


def test_a_given_tokenizer_and_a_validation_file_are_used(
    config: DataConfig, tmp_path: Path
) -> None:
    given = tmp_path / "tokenizer.json"
    data.load(config, VOCAB).tokenizer.save(given)
    valid = tmp_path / "valid.txt"
    valid.write_text("A dog ran.\n<|endoftext|>\nA cat sat.")
    with_files = dataclasses.replace(config, tokenizer=given, valid_path=valid)
    dataset = data.load(with_files, VOCAB)
    assert dataset.valid_bytes == len("A dog ran.A cat sat.")
    assert dataset.tokenizer.decode(dataset.valid) == "A dog ran.A cat sat."
    with pytest.raises(ConfigError, match="vocab_size must be at least that, got 280"):
        data.load(with_files, 280)


def test_hub_data_set_from_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    folder = tmp_path / "hub"
    folder.mkdir()
    texts = list(corpus.stories(seed=3, count=40))
    for name, part in (("train", texts[:36]), ("validation", texts[36:])):
        rows = [json.dumps({"text": text}) for text in part]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    config = DataConfig(source="hub", hub_name=str(folder), cache=tmp_path / "cache")
    source, read = data.documents(config)
    assert str(folder) in source
    assert list(read()) == [(i >= 36, text) for i, text in enumerate(texts)]
    dataset = data.load(config, VOCAB)
    assert dataset.valid_bytes == sum(len(t.encode()) for t in texts[36:])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": Path("/no/such.txt")}, "no text file at /no/such.txt"),
        ({"source": "hub", "hub_name": "/no/such"}, "--data.path FILE"),
    ],
)
def test_unusable_sources_say_what_to_do(fields: dict, message: str) -> None:
    if "hub_name" in fields:
        pytest.importorskip("datasets")
    with pytest.raises(ConfigError, match=message):
        data.load(DataConfig(**fields), VOCAB)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ConfigError, match=r"image\.png is not UTF-8 text"):
        data.load(DataConfig(path=path, cache=tmp_path), VOCAB)


def test_a_split_without_documents_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("Only one story.")
    with pytest.raises(ConfigError, match="1 documents to train on, 0 held out"):
        data.load(DataConfig(path=path, cache=tmp_path), VOCAB)


def test_batches_depend_on_seed_and_step_only() -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    batches = data.Batches(tokens, batch_size=4, context=8, seed=0)
    late_first = [batches(step) for step in (70, 3, 0)]
    fresh = data.Batches(tokens, batch_size=4, context=8, seed=0)
    for step, batch in zip((70, 3, 0), late_first, strict=True):
        assert batch.shape == (4, 9)
        assert batch.dtype == np.int32
        assert np.array_equal(fresh(step), batch)
        assert np.array_equal(np.diff(batch), np.ones((4, 8)))  # windows of the text
    other = data.Batches(tokens, batch_size=4, context=8, seed=1)
    assert not np.array_equal(other(0), fresh(0))
    assert other.order_hash(5) != fresh.order_hash(5)
    assert fresh.order_hash(5) == batches.order_hash(5)


def test_an_epoch_visits_every_window_once_and_the_next_differs() -> None:
    batches = data.Batches(np.zeros(1000, np.uint16), batch_size=3, context=8, seed=0)
    steps = batches.epoch_steps
    epochs = [
        np.concatenate(
            [batches.starts(step) for step in range(e * steps, (e + 1) * steps)]
        )
        for e in range(2)
    ]
    for starts in epochs:
        assert len(set(starts)) == len(starts) == 3 * steps
        assert len(set(starts % 8)) == 1
        assert starts.max() + 9 <= 1000
    assert not np.array_equal(epochs[0], epochs[1])


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="fewer than batch_size = 4"):
        data.Batches(np.zeros(30, np.uint16), batch_size=4, context=8, seed=0)
    with pytest.raises(ConfigError, match="5 held-out tokens do not fill one window"):
        list(data.eval_batches(np.zeros(5, np.uint16), 4, 8, 2))


def test_evaluation_reads_the_same_spread_windows() -> None:
    tokens = np.arange(500, dtype=np.uint16)
    found = list(data.eval_batches(tokens, batch_size=4, context=8, count=3))
    assert [b.shape for b in found] == [(4, 9)] * 3
    starts = np.concatenate([b[:, 0] for b in found])
    assert starts[0] == 0
    assert starts[-1] == 488
    assert len(set(starts)) == 12
