"""Checkpoints: the train state and its configuration, saved whole or not at all.

Owns the layout of `DIR/checkpoints` (orbax writes a step into a temporary folder and
renames it; `train/manifest.py` seals it).  The state is stored as {path: host array},
so neither the file nor its reader depends on a device, on Flax's containers or on
optax's tuples.  A checkpoint that is not what was saved is never read: the one before
takes its place, and the damaged one is moved to `DIR/damaged`.
"""

import contextlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp

from train import manifest
from train.config import ConfigError, differing_keys
from train.step import TrainState


class CheckpointError(ConfigError):
    """No checkpoint that can be trusted, or none that can be written."""


def to_host(state: Any) -> dict[str, np.ndarray]:
    """Return a pytree's leaves on the host, keyed by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.array(leaf) for path, leaf in leaves}


def from_host(template: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Put host arrays back into a pytree of the template's structure, on the device.

    Raises:
        ConfigError: a leaf is missing or has another shape or dtype.
    """

    def find(path: Any, like: Any) -> jax.Array:
        key = jax.tree_util.keystr(path)
        found = arrays.get(key)
        if found is None or found.shape != like.shape or found.dtype != like.dtype:
            has = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise ConfigError(
                f"checkpoint does not fit the model at {key}: "
                f"required {like.dtype}{list(like.shape)}, found {has}"
            )
        return jax.device_put(found)

    return jax.tree_util.tree_map_with_path(find, template)


class Checkpoints:
    """The checkpoints of one run directory; use as a context manager."""

    def __init__(self, run: Path, keep: int = 2):
        """Open `run/checkpoints`, keeping the newest `keep` when saving."""
        self.path = run.resolve() / "checkpoints"
        self._keep = keep
        self._problems: dict[int, str | None] = {}
        self._warned = False
        self._manager = ocp.CheckpointManager(
            self.path,
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "identity": ocp.JsonCheckpointHandler(),
            },
            # Old ones are deleted here, once the new one is sealed.
            options=ocp.CheckpointManagerOptions(
                max_to_keep=None, enable_async_checkpointing=False, create=True
            ),
        )

    def __enter__(self) -> Self:
        """Return the open checkpoints."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close orbax's manager."""
        self._manager.close()

    @property
    def latest_step(self) -> int | None:
        """Step of the newest checkpoint that is whole, None if there is none."""
        return next((s for s in self._steps() if self._problem(s) is None), None)

    def set_damaged_aside(self) -> None:
        """Move checkpoints that are newer than the newest whole one out of the way.

        Raises:
            CheckpointError: there are checkpoints, and none is whole.
        """
        steps, whole = self._steps(), self.latest_step
        damaged = [s for s in steps if whole is None or s > whole]
        named = "\n  ".join(f"step {s}: {self._problem(s)}" for s in damaged)
        if whole is None:
            if damaged:
                raise CheckpointError(
                    f"no checkpoint in {self.path} is whole:\n  {named}\n"
                    "Start again without --resume, or bring back a copy"
                )
            return
        for step in damaged:
            target = self.path.parent / "damaged" / str(step)
            target.parent.mkdir(exist_ok=True)
            if target.exists():
                shutil.rmtree(target)
            (self.path / str(step)).rename(target)
            del self._problems[step]
        if damaged:
            print(
                f"warning: damaged checkpoints in {self.path}:\n  {named}\n"
                f"moved to {self.path.parent / 'damaged'}; going on from step {whole}",
                file=sys.stderr,
            )
            self._manager.reload()

    def save(self, state: TrainState, identity: dict[str, Any]) -> None:
        """Save the state under its own step; a step that is there stays as it is.

        Args:
            state: the train state.
            identity: what a resuming run must agree with: the flat configuration and
                the hashes of data and tokenizer.

        Raises:
            CheckpointError: it cannot be written; the earlier ones are as they were.
        """
        step = int(state.step)
        if step == self.latest_step:
            return
        arrays = to_host(state)
        try:
            self._require_room(sum(a.nbytes for a in arrays.values()))
            with _without_log():
                self._manager.save(
                    step,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardSave(arrays),
                        identity=ocp.args.JsonSave(identity),
                    ),
                )
            manifest.write(self.path / str(step))
        except Exception as error:  # orbax and its storage raise many types
            # A full disk is no error of this program: one line, whatever its cause.
            before = self.latest_step
            kept = (
                "none before it" if before is None else f"the newest is step {before}"
            )
            raise CheckpointError(
                f"cannot save the checkpoint of step {step} in {self.path}: "
                f"{_reason(error)} ({kept})"
            ) from error
        self._problems[step] = None
        for old in self._steps()[self._keep :]:
            self._problems.pop(old, None)
            self._manager.delete(old)

    def _require_room(self, nbytes: int) -> None:
        free = shutil.disk_usage(self.path).free
        if free < nbytes:
            raise OSError(f"it needs {nbytes:,} bytes, {free:,} are free on the disk")

    def _steps(self) -> list[int]:
        """Return the steps that have a folder, newest first."""
        names = [path.name for path in self.path.iterdir() if path.is_dir()]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def _problem(self, step: int) -> str | None:
        if step not in self._problems:
            self._problems[step] = manifest.problem(self.path / str(step))
        return self._problems[step]

    def identity(self) -> dict[str, Any]:
        """Return the identity that the newest checkpoint was saved with."""
        return self._restore("identity", ocp.args.JsonRestore())

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the newest checkpoint's state as {path: host array}."""
        step = self._require_step()
        layout = self._manager.item_metadata(step)["state"]
        template = {
            key: np.empty(leaf.shape, leaf.dtype) for key, leaf in layout.items()
        }
        return self._restore("state", ocp.args.StandardRestore(template))

    def require_identity(self, identity: dict[str, Any]) -> None:
        """Check that the newest checkpoint belongs to a run with the same numbers.

        Raises:
            ConfigError: no checkpoint, or another run's; lists the differing keys.
        """
        step = self._require_step()
        if differing := differing_keys(self.identity(), identity):
            listed = "\n  ".join(differing)
            raise ConfigError(
                f"cannot resume {self.path} at step {step}: the configuration "
                f"differs in\n  {listed}\nUse the same options, or another --out."
            )

    def restore(self, template: TrainState) -> TrainState:
        """Return the newest state, on the device.

        Raises:
            ConfigError: no checkpoint, or one that does not fit the template.
        """
        return from_host(template, self.arrays())

    def _require_step(self) -> int:
        step = self.latest_step
        if step is not None:
            if (newest := self._steps()[0]) != step and not self._warned:
                print(
                    f"warning: the checkpoint of step {newest} in {self.path} is "
                    f"damaged ({self._problem(newest)}); using that of step {step}",
                    file=sys.stderr,
                )
                self._warned = True
            return step
        if steps := self._steps():
            raise CheckpointError(
                f"no checkpoint in {self.path} is whole; step {steps[0]}: "
                f"{self._problem(steps[0])}"
            )
        raise CheckpointError(f"no checkpoint in {self.path}")

    def _restore(self, item: str, how: Any) -> Any:
        args = ocp.args.Composite(**{item: how})
        return self._manager.restore(self._require_step(), args=args)[item]


def _reason(error: BaseException) -> str:
    """Return what an exception says in one line: the system's error, if it has one."""
    text = str(error)
    if code := re.search(r"os_error_code='(\d+)'", text):  # as tensorstore writes it
        return os.strerror(int(code[1]))
    return next(iter(text.splitlines()), "") or type(error).__name__


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Silence what orbax prints about an error that it also raises.

    It logs a traceback for each thread, and writes that fail late find the event loop
    of the failed save closed: they end in the hook for uncaught exceptions.
    """
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    except Exception:
        sys.excepthook = _all_but_closed_loops
        raise
    finally:
        logger.disabled = before


def _all_but_closed_loops(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if "Event loop is closed" not in str(error):
        sys.__excepthook__(kind, error, trace)
