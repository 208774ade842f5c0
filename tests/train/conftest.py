"""A small text and a tiny model, for tests that run in seconds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# ruff: noqa: SIM905 - a command line reads better as one
import pytest

from train import corpus, run
from train.config import SESSION_FIELDS, TrainConfig, flatten
from train.tokenizer import SEPARATOR

TINY = (
    "smoke --model.vocab_size 300 --model.context 16 --model.d_model 16 "
    "--model.n_layers 1 --model.n_heads 4 --model.n_kv_heads 2 --model.d_ff 24 "
    "--batch_size 4 --warmup_steps 2 --eval_every 4 --eval_batches 2 "
    "--sample_tokens 4 --model.dropout 0.1 --micro_batches 2"
).split()


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred stories in the format of the TinyStories files."""
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    texts = corpus.stories(seed=1, count=100)
    path.write_text(f"\n{SEPARATOR}\n".join(texts), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_args(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Command line of a run that takes milliseconds a step."""
    cache = tmp_path_factory.mktemp("cache")
    return [*TINY, "--data.path", str(text_file), "--data.cache", str(cache)]


@pytest.fixture(scope="session")
def run_tiny(tiny_args: list[str]) -> Iterator[Callable[..., int]]:
    """Train in this process: run_tiny("--steps", 8, ...) -> exit status.

    Runs that differ in nothing a step depends on share one compiled step: here,
    compilation is nearly all of a run's time.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("make_train_step", "make_eval_step"):
            patch.setattr(run, name, _shared(getattr(run, name)))
        yield lambda *args: run.main([*tiny_args, *map(str, args)])


def _shared(make: Callable[[TrainConfig], Any]) -> Callable[[TrainConfig], Any]:
    made: dict[str, Any] = {}

    def look_up(config: TrainConfig) -> Any:
        numbers = {k: v for k, v in flatten(config).items() if k not in SESSION_FIELDS}
        key = repr(sorted((k, v) for k, v in numbers.items() if k != "overfit"))
        if key not in made:
            made[key] = make(config)
        return made[key]

    return look_up
