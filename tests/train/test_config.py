"""Presets, the command line and its errors."""

import dataclasses
import math
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from train.config import (
    PRESETS,
    RANGES,
    ConfigError,
    ModelConfig,
    TrainConfig,
    differing_keys,
    field_types,
    flatten,
    unflatten,
)
from train.options import parse_args


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("smoke", 1),
        ("tinystories-3m", 3),
        ("tinystories-15m", 15),
        ("tinystories-46m", 46),
    ],
)
def test_presets_have_the_size_of_their_name(preset: str, millions: int) -> None:
    assert PRESETS[preset].model.n_params / 1e6 == pytest.approx(millions, rel=0.06)


def test_options_reach_nested_fields_with_their_types() -> None:
    line = (
        "smoke --steps 7 --model.d_model=64 --data.path a/b.txt --resume "
        "--learning-rate 1e-4 --no-overfit --precision highest"
    )
    preset, config = parse_args(line.split())
    assert preset == "smoke"
    expected = PRESETS["smoke"]
    assert config == dataclasses.replace(
        expected,
        steps=7,
        model=dataclasses.replace(expected.model, d_model=64),
        data=dataclasses.replace(expected.data, path=Path("a/b.txt")),
        resume=True,
        learning_rate=1e-4,
        precision="highest",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "name a preset first: smoke, "),
        ("--steps 3", "name a preset first: smoke, "),
        ("smok", "unknown preset 'smok'; did you mean 'smoke'?"),
        (
            "smoke --model.d_modle 3",
            "unknown config key 'model.d_modle'; did you mean 'model.d_model'?",
        ),
        ("smoke --learning_rte=1", "did you mean 'learning_rate'?"),
        ("smoke --zzz 1", "unknown config key 'zzz'"),
        ("smoke --seed x", "seed must be int, got 'x'"),
        ("smoke --learning_rate=fast", "learning_rate must be float, got 'fast'"),
        ("smoke --stop_after soon", "stop_after must be int, got 'soon'"),
        (
            "smoke --data.source web",
            "data.source must be one of 'corpus', 'hub', got 'web'",
        ),
        ("smoke --resume yes", "resume is a switch: --resume or --no_resume"),
        ("smoke --seed", "seed needs a value"),
    ],
)
def test_mistyped_options_are_named_with_the_remedy(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_args(line.split())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 65}, "model.d_model must be a multiple of 2 * n_heads = 8"),
        ({"n_kv_heads": 3}, "model.n_kv_heads must be a divisor of n_heads = 4"),
        ({"dropout": 1.0}, "model.dropout must be in [0, 1), got 1.0"),
        ({"n_layers": 0}, "model.n_layers must be at least 1, got 0"),
    ],
)
def test_impossible_models_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        ModelConfig(**fields)


def test_micro_batches_must_divide_the_batch() -> None:
    with pytest.raises(ConfigError, match="micro_batches must be a divisor"):
        TrainConfig(batch_size=8, micro_batches=3)


def numbers() -> list[tuple[str, type]]:
    found = []
    for key, kind in field_types().items():
        options = {kind, *typing.get_args(kind)}
        found += [(key, n) for n in (int, float) if n in options]
    return found


def changed(key: str, value: Any) -> dict[str, Any]:
    return flatten(TrainConfig()) | {key: value}


def test_every_number_has_a_range() -> None:
    assert {key for key, _ in numbers()} == RANGES.keys()


@pytest.mark.parametrize(("key", "kind"), numbers())
def test_senseless_numbers_are_refused(key: str, kind: type) -> None:
    unflatten(changed(key, flatten(TrainConfig())[key]))
    bad = [-1, 2**31] if kind is int else [math.nan, math.inf, -math.inf, -1.0]
    if 0 not in RANGES[key]:
        bad.append(kind(0))
    for value in bad:
        with pytest.raises(ConfigError, match=f"{re.escape(key)} must be .* got"):
            unflatten(changed(key, value))


@pytest.mark.parametrize(
    ("key", "text"),
    [("learning_rate", "nan"), ("learning_rate", "0"), ("clip_norm", "inf"),
     ("beta1", "1.0"), ("sample_temperature", "-0.5"), ("weight_decay", "nan")],
)  # fmt: skip
def test_the_command_line_refuses_them_too(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} must be"):
        parse_args(["smoke", f"--{key}", text])


@pytest.mark.parametrize("preset", PRESETS)
def test_flat_form_is_complete_and_invertible(preset: str) -> None:
    flat = flatten(PRESETS[preset])
    assert flat.keys() == field_types().keys()
    assert unflatten(flat) == PRESETS[preset]


def test_differing_keys_ignore_how_a_session_is_run() -> None:
    old = flatten(PRESETS["smoke"])
    new = old | {"out": "elsewhere", "resume": True, "seed": 3, "model.d_ff": 5}
    assert differing_keys(old, new) == [
        f"model.d_ff: {old['model.d_ff']} before, 5 now",
        "seed: 0 before, 3 now",
    ]
