"""The optional dependency of this room, with an error that says what to install."""

from __future__ import annotations

try:
    import optax as optax
except ModuleNotFoundError as error:  # pragma: no cover - optax is in every test run
    raise ModuleNotFoundError(
        "vkore_jax.optim builds on optax, which is not installed: "
        "pip install 'vkore_jax[train]' (or: pip install 'optax>=0.2.5')",
        name="optax",
    ) from error
