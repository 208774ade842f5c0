"""Runs on disk: what a training program left, read and checked.

Owns the format.  A run is a directory with `metrics.jsonl`, one JSON object a line with
at least `step` and `loss`; a comparison also looks at

    eval_loss, eval_bits_per_byte    on held-out text, where a line has them
    skipped                          updates dropped so far as not finite
    run.json                         config.seed, data.order_hash, chip, precision, ...
    gradients/step-N.npy             a gradient, or a fixed linear sketch of it

`python -m train` writes all of them; any other program may.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vkore_jax.errors import InvalidArgument

T = TypeVar("T")

MIN_STEPS = 10
"""Fewer steps say nothing about a trajectory."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The series of one run; all arrays are float64 unless said otherwise."""

    name: str
    path: Path
    steps: np.ndarray  # (n,) int64, rising
    loss: np.ndarray  # (n,) nats a token
    skipped: int | None  # updates dropped as not finite; None: not recorded
    eval_loss: Mapping[int, float]  # step -> nats a token on held-out text
    bits_per_byte: Mapping[int, float]  # step -> on held-out text
    gradients: Mapping[int, Path] = field(default_factory=dict)  # step -> .npy
    facts: Mapping[str, Any] = field(default_factory=dict)  # run.json

    @property
    def non_finite(self) -> int:
        """Steps whose loss is infinite or NaN."""
        return int((~np.isfinite(self.loss)).sum())

    @property
    def order_hash(self) -> str | None:
        """Hash of the order of the training data, where recorded."""
        return (self.facts.get("data") or {}).get("order_hash")

    def until(self, last: int | None) -> Run:
        """Return the run without the steps after `last`; None: the whole run.

        Raises:
            InvalidArgument: fewer than `MIN_STEPS` are left.
        """
        if last is None:
            return self
        kept = self.steps <= last
        if kept.sum() < MIN_STEPS:
            raise InvalidArgument(
                f"{self.path} has {kept.sum()} steps until {last}; a comparison needs "
                f"{MIN_STEPS} or more"
            )
        return dataclasses.replace(
            self,
            steps=self.steps[kept],
            loss=self.loss[kept],
            eval_loss=_upto(self.eval_loss, last),
            bits_per_byte=_upto(self.bits_per_byte, last),
            gradients=_upto(self.gradients, last),
        )

    def gradient(self, step: int) -> np.ndarray:
        """Return the recorded gradient (or sketch) of a step, (k,) float64."""
        return _load(self.gradients[step])


def read_run(path: Path, name: str | None = None) -> Run:
    """Read a run directory.

    Args:
        path: directory with `metrics.jsonl`.
        name: in the report; None: the directory's name.

    Raises:
        InvalidArgument: no such directory or file, a line that is not a step, steps
            that do not rise, or fewer than `MIN_STEPS`.
    """
    metrics = path / "metrics.jsonl"
    if not path.is_dir():
        raise InvalidArgument(
            f"no run directory at {path}; a run is a directory with metrics.jsonl"
        )
    if not metrics.is_file():
        raise InvalidArgument(
            f"{path} has no metrics.jsonl: a run is a directory with that file, one "
            'JSON object a line: {"step": 1, "loss": 8.31}'
        )
    lines = _lines(metrics)
    steps = np.array([line["step"] for line in lines], np.int64)
    if (np.diff(steps) <= 0).any():
        at = int(np.argmax(np.diff(steps) <= 0)) + 2
        raise InvalidArgument(
            f"{metrics}, line {at}: steps must rise, found {steps[at - 1]} after "
            f"{steps[at - 2]}; is this the log of two runs?"
        )
    if len(steps) < MIN_STEPS:
        raise InvalidArgument(
            f"{metrics} has {len(steps)} steps; a comparison needs {MIN_STEPS} or more"
        )
    skipped = [line["skipped"] for line in lines if "skipped" in line]
    return Run(
        name=name or path.resolve().name,
        path=path,
        steps=steps,
        loss=np.array([line["loss"] for line in lines], np.float64),
        skipped=int(skipped[-1]) if skipped else None,
        eval_loss=_where(lines, "eval_loss"),
        bits_per_byte=_where(lines, "eval_bits_per_byte"),
        gradients={
            int(p.stem.rpartition("-")[2]): p
            for p in sorted((path / "gradients").glob("step-*.npy"))
        },
        facts=_facts(path / "run.json"),
    )


def _upto(values: Mapping[int, T], last: int) -> dict[int, T]:
    return {step: value for step, value in values.items() if step <= last}


def _lines(path: Path) -> list[dict[str, Any]]:
    texts = path.read_text(encoding="utf-8").splitlines()
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, start=1):
        try:
            line = json.loads(text)
            line = line | {"step": int(line["step"]), "loss": _number(line["loss"])}
        except json.JSONDecodeError as error:
            if number == len(texts):
                break  # the run was killed, or still runs, while writing this line
            raise InvalidArgument(f"{path}, line {number}: not JSON: {error}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{path}, line {number}: needs numbers `step` and `loss`, found "
                f"{text[:80]!r} ({type(error).__name__}: {error})"
            ) from None
        lines.append(line)
    return lines


def _number(value: Any) -> float:
    """Return a loss; null is how strict JSON writes NaN."""
    return math.nan if value is None else float(value)


def _where(lines: list[dict[str, Any]], key: str) -> dict[int, float]:
    return {line["step"]: float(line[key]) for line in lines if key in line}


def _facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{path}: not JSON: {error}") from None
    if not isinstance(facts, dict):
        raise InvalidArgument(f"{path}: needs a JSON object, found {facts!r:.40}")
    return facts


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False).astype(np.float64).ravel()
    except ValueError as error:
        raise InvalidArgument(f"{path}: not a .npy array: {error}") from None
