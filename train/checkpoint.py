"""Checkpoints: the train state and its configuration, saved whole or not at all.

Owns the layout of `DIR/checkpoints` (orbax writes a step into a temporary folder and
renames it).  The state is stored as {path: host array}, so neither the file nor its
reader depends on a device, on Flax's containers or on optax's tuples.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp

from train.config import ConfigError, differing_keys
from train.step import TrainState


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
        self._manager = ocp.CheckpointManager(
            self.path,
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "identity": ocp.JsonCheckpointHandler(),
            },
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, enable_async_checkpointing=False, create=True
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
        """Step of the newest checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(self, state: TrainState, identity: dict[str, Any]) -> None:
        """Save the state under its own step; a step that is there stays as it is.

        Args:
            state: the train state.
            identity: what a resuming run must agree with: the flat configuration and
                the hashes of data and tokenizer.
        """
        step = int(state.step)
        if step == self.latest_step:
            return
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(to_host(state)),
                identity=ocp.args.JsonSave(identity),
            ),
        )

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
        if self.latest_step is None:
            raise ConfigError(f"no checkpoint in {self.path}")
        return self.latest_step

    def _restore(self, item: str, how: Any) -> Any:
        args = ocp.args.Composite(**{item: how})
        return self._manager.restore(self._require_step(), args=args)[item]
