"""The command line: `PRESET [--key value ...]`, read by tyro.

Owns the errors that a mistyped option gets.  The keys, types and defaults are those
of `train/config.py`.
"""

import difflib
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal

import tyro

from train.config import PRESETS, RANGES, ConfigError, TrainConfig, field_types


def parse_args(argv: Sequence[str]) -> tuple[str, TrainConfig]:
    """Read `PRESET [--key value ...]`.

    Returns:
        The preset's name and the configuration.

    Raises:
        ConfigError: unknown preset or key, wrong type, impossible combination.
        SystemExit: after --help.
    """
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        raise ConfigError(f"name a preset first: {', '.join(PRESETS)} (or --help)")
    if not argv[0].startswith("-") and argv[0] not in PRESETS:
        close = difflib.get_close_matches(argv[0], PRESETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"unknown preset {argv[0]!r}{hint} (presets: {', '.join(PRESETS)})"
        )
    if "--help" not in argv and "-h" not in argv:
        _check_options(argv[1:])
    described = {
        name: (f"{config.model.n_params / 1e6:.1f} M parameters.", config)
        for name, config in PRESETS.items()
    }
    config = tyro.extras.overridable_config_cli(
        described, prog="python -m train", args=list(argv), use_underscores=True
    )
    return argv[0], config


def _check_options(args: Sequence[str]) -> None:
    """Check keys and values before tyro does, for messages that name the remedy."""
    kinds = field_types()
    for i, arg in enumerate(args):
        if not arg.startswith("--"):
            continue
        name, given, value = arg[2:].replace("-", "_").partition("=")
        section, dot, leaf = name.rpartition(".")
        if kinds.get(section + dot + leaf.removeprefix("no_")) is bool:
            if given or (i + 1 < len(args) and not args[i + 1].startswith("--")):
                raise ConfigError(f"{name} is a switch: --{name} or --no_{name}")
            continue
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"unknown config key {name!r}{hint}")
        if given:
            value = arg.partition("=")[2]
        elif i + 1 < len(args):
            value = args[i + 1]
        else:
            raise ConfigError(f"{name} needs a value")
        _check_value(name, kinds[name], value)


def _check_value(name: str, kind: Any, value: str) -> None:
    if typing.get_origin(kind) is Literal:
        options = typing.get_args(kind)
        if value not in options:
            listed = ", ".join(map(repr, options))
            raise ConfigError(f"{name} must be one of {listed}, got {value!r}")
        return
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if types.NoneType in options and value == "None":
        return
    for number in (int, float):
        if number in options:
            try:
                found = number(value)
            except ValueError:
                raise ConfigError(
                    f"{name} must be {number.__name__}, got {value!r}"
                ) from None
            if found not in RANGES[name]:
                raise ConfigError(f"{name} must be {RANGES[name]}, got {found!r}")
