"""Writing text with a trained decoder, from a run directory or a llama2.c file.

    python -m train.sample --checkpoint runs/smoke-cpu --prompt "Once upon a time"

One jitted step of fixed shape writes one token: the whole window is computed again,
without a cache, so a single program serves every length.
"""

import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import nnx

from train.checkpoint import Checkpoints, from_host
from train.config import ConfigError, ModelConfig, unflatten
from train.llama2c import Llama2cTokenizer, load_checkpoint
from train.model import abstract_decoder
from train.step import TrainState
from train.tokenizer import BpeTokenizer, Tokenizer

NextToken = Callable[[nnx.State, np.ndarray, int, jax.Array, float], jax.Array]


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """Write text with a trained decoder."""

    checkpoint: Path  # run directory of `python -m train`, or a llama2.c .bin file
    prompt: str = ""  # the text to continue
    tokens: int = 200  # tokens to write, at most
    temperature: float = 0.8  # 0: always the likeliest token
    seed: int = 0
    tokenizer: Path | None = None  # llama2.c only; None: the tok*.bin beside the file


@functools.lru_cache(maxsize=4)
def make_next_token(config: ModelConfig) -> NextToken:
    """Build `next(params, window (1, t) int32, at, key, temperature) -> id ()`.

    `at` is the position of the newest token; what follows it in the window is padding,
    which a causal model cannot see.
    """
    graph, _ = abstract_decoder(config)

    @jax.jit
    def next_token(
        params: nnx.State,
        window: jax.Array,
        at: jax.Array,
        key: jax.Array,
        temperature: jax.Array,
    ) -> jax.Array:
        logits = nnx.merge(graph, params)(window)[0, at]  # (v,)
        warm = logits / jnp.maximum(temperature, 1e-6)
        drawn = jax.random.categorical(key, warm)
        return jnp.where(temperature > 0, drawn, jnp.argmax(logits))

    return next_token


def write(
    config: ModelConfig,
    params: nnx.State,
    tokenizer: Tokenizer,
    *,
    prompt: str,
    tokens: int,
    temperature: float,
    seed: int,
) -> str:
    """Return the prompt and its continuation.

    Ends early when the model ends the document.  A text longer than the context is
    continued from its newest part.
    """
    next_token = make_next_token(config)
    root = jax.random.key(seed)
    ids = [tokenizer.start_id, *tokenizer.encode(prompt)]
    longest = len(ids) + tokens - 1
    width = min(config.context, 1 << (longest - 1).bit_length())  # few distinct shapes
    for i in range(tokens):
        seen = ids[-width:]
        window = np.zeros((1, width), np.int32)
        window[0, : len(seen)] = seen
        key = jax.random.fold_in(root, i)
        new = int(next_token(params, window, len(seen) - 1, key, temperature))
        if new == tokenizer.start_id:
            break
        ids.append(new)
    return tokenizer.decode(ids[1:])


def load_run(run: Path) -> tuple[ModelConfig, nnx.State, Tokenizer]:
    """Load the newest checkpoint of a run directory.

    Raises:
        ConfigError: not a run directory, or without a checkpoint.
    """
    if not (run / "run.json").is_file() or not (run / "checkpoints").is_dir():
        raise ConfigError(f"{run} is not a run directory with checkpoints")
    whole = unflatten(json.loads((run / "run.json").read_text())["config"])
    config = whole.model
    with Checkpoints(run) as checkpoints:
        arrays = checkpoints.arrays()
    _, shapes = abstract_decoder(config)
    if whole.param_dtype == "bf16":
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, jnp.bfloat16), shapes
        )
    # The paths in a checkpoint are those of the train state that holds the parameters.
    holder = TrainState(step=None, params=shapes, opt_state=None)  # type: ignore[arg-type]
    params = from_host(holder, arrays).params
    return config, params, BpeTokenizer.load(run / "tokenizer.json")


def load_llama2c(
    path: Path, tokenizer: Path | None
) -> tuple[ModelConfig, nnx.State, Tokenizer]:
    """Load a llama2.c checkpoint and its tokenizer.

    Raises:
        ConfigError: a file is missing or malformed.
    """
    config, params = load_checkpoint(path)
    if tokenizer is None:
        beside = sorted(path.parent.glob("tok*.bin"))
        tokenizer = beside[0] if beside else path.parent / "tokenizer.bin"
    reader = Llama2cTokenizer(tokenizer, config.vocab_size)
    return config, jax.tree.map(jnp.asarray, params), reader


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    args = tyro.cli(SampleConfig, prog="python -m train.sample", args=argv)
    try:
        if not args.checkpoint.exists():
            raise ConfigError(f"nothing at {args.checkpoint}")
        if args.checkpoint.is_dir():
            loaded = load_run(args.checkpoint)
        else:
            loaded = load_llama2c(args.checkpoint, args.tokenizer)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = write(
        *loaded,
        prompt=args.prompt,
        tokens=args.tokens,
        temperature=args.temperature,
        seed=args.seed,
    )
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
