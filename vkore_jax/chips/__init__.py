"""Chip profiles: facts with their source, then derived facts, then invariants.

A profile is data.  Nothing in the compiler or the engines may ask for a chip's name;
they ask for a capability (`matrix_dtypes`, `scratchpad_bytes`, ...).
"""

from __future__ import annotations

from vkore_jax.chips.files import load_profile, loaded_profile
from vkore_jax.chips.profiles import CHIPS, TINY, VK1
from vkore_jax.chips.record import LEVELS, STORAGE, Chip
from vkore_jax.errors import InvalidArgument

__all__ = [
    "CHIPS",
    "DEFAULT_CHIP",
    "LEVELS",
    "STORAGE",
    "TINY",
    "VK1",
    "Chip",
    "get_chip",
    "load_profile",
    "named_chip",
]

DEFAULT_CHIP = VK1.name


def get_chip(name: str | None = None) -> Chip:
    """Return a profile: by name, from a TOML file, or the default one for None.

    Args:
        name: a profile of `CHIPS`, a path that ends in ``.toml``, or the name of a
            profile that this process has read from such a file.

    Raises:
        InvalidArgument: there is no such profile (the message lists them), or the file
            is not one (the message says what to write).
    """
    key = name or DEFAULT_CHIP
    return load_profile(key) if key.endswith(".toml") else named_chip(key)


def named_chip(key: str) -> Chip:
    """Return the profile that a program names; no file is opened for it.

    Raises:
        InvalidArgument: there is no such profile (the message lists them).
    """
    chip = CHIPS.get(key) or loaded_profile(key)
    if chip is None:
        raise InvalidArgument(
            f"unknown chip {key!r}; known profiles: {', '.join(sorted(CHIPS))}; a "
            "profile of your own is a file whose name ends in .toml"
        )
    return chip
