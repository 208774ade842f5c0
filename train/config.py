"""Configuration: frozen dataclasses, presets as values.

Owns every number a run depends on.  One level of nesting; derived numbers are
properties.  Nothing here imports JAX.
"""

import dataclasses
import math
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


class ConfigError(ValueError):
    """A configuration that cannot be: the user must change the command line."""


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes; NaN and infinities are in none."""

    low: float
    high: float = math.inf
    without: str = ""  # "low", "high": the ends that are left out

    def __contains__(self, value: float) -> bool:
        """Whether a number is in the range."""
        if not math.isfinite(value) or not self.low <= value <= self.high:
            return False
        ends = {"low": self.low, "high": self.high}
        return all(value != ends[end] for end in self.without.split())

    def __str__(self) -> str:
        """Return "at least 1", "above 0", "in [0, 1)"."""
        if self.high in (math.inf, LARGEST):
            return f"{'above' if self.without else 'at least'} {self.low:g}"
        left = "(" if "low" in self.without else "["
        right = ")" if "high" in self.without else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


LARGEST = 2**31 - 1  # counts and seeds are int32 on the device
COUNT, COUNT_OR_NONE = Range(1, LARGEST), Range(0, LARGEST)
POSITIVE, SHARE = Range(0, without="low"), Range(0, 1, without="low high")
BELOW_ONE = Range(0, 1, without="high")

# What each number may be; one without a row here fails when its class is made.
RANGES: dict[str, Range] = {
    "model.vocab_size": COUNT,
    "model.context": COUNT,
    "model.d_model": COUNT,
    "model.n_layers": COUNT,
    "model.n_heads": COUNT,
    "model.n_kv_heads": COUNT,
    "model.d_ff": COUNT,
    "model.rope_theta": POSITIVE,
    "model.norm_eps": POSITIVE,
    "model.dropout": BELOW_ONE,
    "data.stories": Range(100, LARGEST),
    "data.valid_share": SHARE,
    "data.tokenizer_stories": COUNT,
    "steps": COUNT,
    "batch_size": COUNT,
    "micro_batches": COUNT,
    "learning_rate": POSITIVE,
    "min_lr_ratio": Range(0, 1),
    "warmup_steps": COUNT_OR_NONE,
    "weight_decay": Range(0),
    "beta1": BELOW_ONE,
    "beta2": BELOW_ONE,
    "clip_norm": POSITIVE,
    "seed": COUNT_OR_NONE,
    "data_seed": COUNT_OR_NONE,
    "eval_every": COUNT,
    "eval_batches": COUNT,
    "grad_every": COUNT_OR_NONE,
    "sample_tokens": COUNT_OR_NONE,
    "sample_temperature": Range(0),
    "stop_after": COUNT,
    "checkpoint_every": COUNT,
    "keep_checkpoints": COUNT,
    "log_every": COUNT,
}


def _require(holds: bool, key: str, what: str, config: Any) -> None:
    if not holds:
        found = getattr(config, key.rpartition(".")[2])
        raise ConfigError(f"{key} must be {what}, got {found!r}")


def _check_numbers(config: Any, section: str = "") -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            allowed = RANGES[section + field.name]
            _require(value in allowed, section + field.name, str(allowed), config)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape of the decoder."""

    vocab_size: int = 1024  # rows of the embedding; the tokenizer has at most as many
    context: int = (
        128  # tokens of one training sequence, and the longest the model sees
    )
    d_model: int = 128  # channels of the residual stream
    n_layers: int = 4
    n_heads: int = 4  # query heads
    n_kv_heads: int = 2  # key/value heads; each serves n_heads / n_kv_heads query heads
    d_ff: int = 448  # hidden width of the gated MLP
    rope_theta: float = 10_000.0  # base of the rotary wavelengths
    norm_eps: float = 1e-5
    dropout: float = 0.0  # on the output of each sub-layer

    def __post_init__(self) -> None:
        """Check that heads and sizes fit together."""
        _check_numbers(self, "model.")
        _require(
            self.d_model % (2 * self.n_heads) == 0,
            "model.d_model",
            f"a multiple of 2 * n_heads = {2 * self.n_heads} (rotary pairs)",
            self,
        )
        _require(
            self.n_heads % self.n_kv_heads == 0,
            "model.n_kv_heads",
            f"a divisor of n_heads = {self.n_heads}",
            self,
        )

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.d_model // self.n_heads

    @property
    def n_params(self) -> int:
        """Number of parameters; the embedding is shared with the output."""
        attention = 2 * self.d_model * (self.n_heads + self.n_kv_heads) * self.head_dim
        layer = attention + 3 * self.d_model * self.d_ff + 2 * self.d_model
        return self.vocab_size * self.d_model + self.n_layers * layer + self.d_model


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where text comes from, and how it becomes tokens."""

    path: Path | None = None  # text file, stories separated by <|endoftext|>; wins
    valid_path: Path | None = None  # held-out text file; None: a share of the stories
    source: Literal["corpus", "hub"] = "corpus"  # built-in grammar, or `datasets`
    hub_name: str = "roneneldan/TinyStories"  # hub data set, or a local folder of one
    stories: int = 5_000  # stories of the built-in corpus
    valid_share: float = 0.04  # held out, chosen by each story's hash
    tokenizer: Path | None = None  # tokenizer.json to load; None: train a BPE
    tokenizer_stories: int = 20_000  # stories that the BPE is trained on, at most
    cache: Path = Path("runs/cache")  # token cache, keyed by content

    def __post_init__(self) -> None:
        """Check shares and counts."""
        _check_numbers(self, "data.")
        if self.valid_path is not None and self.path is None:
            raise ConfigError("data.valid_path needs data.path, the text to train on")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()

    steps: int = 200  # optimiser steps
    batch_size: int = 8  # sequences of one optimiser step
    micro_batches: int = 1  # parts a batch is cut into, gradients accumulated
    learning_rate: float = 3e-3  # peak, reached after warm-up
    min_lr_ratio: float = 0.1  # the cosine ends at this share of the peak
    warmup_steps: int = 20
    weight_decay: float = 0.1  # on matrices only
    beta1: float = 0.9
    beta2: float = 0.95  # 0.999 forgets too slowly for runs this short
    clip_norm: float = 1.0  # global norm of the gradient
    seed: int = 0  # fixes initialisation, data order, dropout and sampling
    data_seed: int | None = None  # fixes the data order alone; None: seed does
    precision: Literal["default", "high", "highest"] = "default"  # of matmuls
    # none: plain Flax; accelerate: rewritten by vkore_jax; explicit: train/explicit.py
    primitives: Literal["none", "accelerate", "explicit"] = "none"
    param_dtype: Literal["f32", "bf16"] = "f32"  # of weights, gradients, activations
    # How a bf16 weight keeps small updates, and how moments are stored: vkore_jax.optim
    master: Literal["f32", "hilo", "kahan", "stochastic", "nearest"] = "f32"
    moments: Literal["f32", "hilo", "stochastic", "nearest"] = "f32"
    loss_scale: Literal["none", "dynamic"] = "none"  # dynamic: skips overflows
    overfit: bool = False  # train on the first batch only: the loss must go to zero

    eval_every: int = 50  # steps between evaluations on held-out text
    eval_batches: int = 8
    grad_every: int = 0  # steps between recorded gradient sketches, and step 1; 0: none
    sample_tokens: int = 120  # length of the text written at the end
    sample_temperature: float = 0.8
    prompt: str = "Once upon a time"

    out: Path | None = None  # run directory; None: runs/PRESET-BACKEND
    resume: bool = False  # continue from the newest checkpoint in the run directory
    stop_after: int | None = None  # leave after so many steps, as if interrupted
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    log_every: int = 10  # steps between log lines when there is no terminal

    def __post_init__(self) -> None:
        """Check counts that divide or must be positive."""
        _check_numbers(self)
        _require(
            self.batch_size % self.micro_batches == 0,
            "micro_batches",
            f"a divisor of batch_size = {self.batch_size}",
            self,
        )
        if self.param_dtype == "f32" and self.master != "f32":
            raise ConfigError(
                f"master={self.master} is a way to keep bf16 weights: add "
                "--param_dtype bf16"
            )

    @property
    def order_seed(self) -> int:
        """Seed of the data order."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def mixed_precision(self) -> bool:
        """Whether the optimizer needs vkore_jax.optim."""
        return (
            self.param_dtype != "f32"
            or self.moments != "f32"
            or (self.loss_scale != "none")
        )

    @property
    def step_tokens(self) -> int:
        """Tokens that one optimiser step learns from."""
        return self.batch_size * self.model.context


# Fields that may differ between a run and its resumption: they steer the session,
# not the numbers.
SESSION_FIELDS = frozenset(
    {"out", "resume", "stop_after", "checkpoint_every", "keep_checkpoints", "log_every"}
    | {"data.cache", "sample_tokens", "sample_temperature", "prompt"}
)

_STORIES = DataConfig(source="hub")
PRESETS: dict[str, TrainConfig] = {
    "smoke": TrainConfig(),
    "tinystories-3m": TrainConfig(
        model=ModelConfig(
            vocab_size=4096, context=256, d_model=192, n_layers=6, n_heads=6,
            n_kv_heads=2, d_ff=512,
        ),
        data=_STORIES, steps=5_000, batch_size=32, learning_rate=2e-3,
        warmup_steps=200, eval_every=500,
    ),
    # The model of tinystories-3m, with steps small enough to compare many runs.
    "trajectory": TrainConfig(
        model=ModelConfig(
            vocab_size=4096, context=64, d_model=192, n_layers=6, n_heads=6,
            n_kv_heads=2, d_ff=512,
        ),
        data=_STORIES, steps=500, batch_size=4, learning_rate=3e-4,
        warmup_steps=50, eval_every=100, eval_batches=16, grad_every=50,
        checkpoint_every=50,
    ),
    "tinystories-15m": TrainConfig(
        model=ModelConfig(
            vocab_size=4096, context=256, d_model=384, n_layers=8, n_heads=6,
            n_kv_heads=2, d_ff=1152,
        ),
        data=_STORIES, steps=20_000, batch_size=64, micro_batches=2,
        learning_rate=1e-3, warmup_steps=500, eval_every=500,
    ),
    "tinystories-46m": TrainConfig(
        model=ModelConfig(
            vocab_size=4096, context=512, d_model=576, n_layers=12, n_heads=9,
            n_kv_heads=3, d_ff=1600,
        ),
        data=_STORIES, steps=40_000, batch_size=64, micro_batches=4,
        learning_rate=6e-4, warmup_steps=1_000, eval_every=1_000,
    ),
}  # fmt: skip


def flatten(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration as {dotted key: JSON value}."""
    flat: dict[str, Any] = {}
    for key, value in dataclasses.asdict(config).items():
        nested = value if isinstance(value, dict) else {"": value}
        for name, leaf in nested.items():
            full = f"{key}.{name}" if name else key
            flat[full] = str(leaf) if isinstance(leaf, Path) else leaf
    return flat


def unflatten(flat: dict[str, Any]) -> TrainConfig:
    """Rebuild a configuration from `flatten`'s result; the inverse up to Paths."""
    paths = {key for key, kind in field_types().items() if "Path" in str(kind)}
    parts: dict[str, dict[str, Any]] = {"": {}, "model": {}, "data": {}}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        if value is not None and key in paths:
            value = Path(value)
        parts[section][name] = value
    return TrainConfig(
        model=ModelConfig(**parts["model"]),
        data=DataConfig(**parts["data"]),
        **parts[""],
    )


def differing_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List the keys that matter to the numbers and differ, one line each."""
    return [
        f"{key}: {old.get(key)!r} before, {new.get(key)!r} now"
        for key in sorted(old.keys() | new.keys())
        if key not in SESSION_FIELDS and old.get(key) != new.get(key)
    ]


def field_types() -> dict[str, Any]:
    """Return {dotted key: type} of every option."""
    kinds: dict[str, Any] = {}
    for key, kind in typing.get_type_hints(TrainConfig).items():
        if dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind)
            kinds |= {f"{key}.{name}": inner for name, inner in hints.items()}
        else:
            kinds[key] = kind
    return kinds
