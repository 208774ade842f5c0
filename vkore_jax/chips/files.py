"""Profiles of the user's own, from TOML files, with errors that teach the format.

A file has the fields of `Chip`, or `base`, the name of a profile, and the fields that
differ::

    name = "my-npu"
    base = "vk1"
    matrix_dtypes = ["f16", "i8"]
    scratchpad_bytes = 8_388_608

    [precision]
    DEFAULT = "fp16x1"
    HIGH = "fp16x2"
    HIGHEST = "fp16x3"

    [sources]
    scratchpad_bytes = "data sheet, page 3"
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vkore_jax.chips.profiles import CHIPS, VK1
from vkore_jax.chips.record import Chip, nearest
from vkore_jax.errors import InvalidArgument

_LOADED: dict[str, Chip] = {}
"""Profiles read from files, by name: programs name the profile they are for."""

_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = MappingProxyType(
    {
        "str": (str, "text"),
        "int": (int, "a whole number"),
        "float": ((int, float), "a number"),
        "tuple[str, ...]": (list, "a list of texts"),
        "Mapping[str, str]": (dict, "a table of texts"),
        "Mapping[str, int]": (dict, "a table of whole numbers"),
    }
)
_ITEMS = {"Mapping[str, int]": int}


def loaded_profile(name: str) -> Chip | None:
    """Return a profile that this process has read from a file, by its name."""
    return _LOADED.get(name)


def clear_loaded_profiles() -> None:
    """Forget the profiles that were read from files (tests)."""
    _LOADED.clear()


def load_profile(path: str | Path) -> Chip:
    """Read a profile from a TOML file.

    Raises:
        InvalidArgument: the file cannot be read, or is not a profile; the message
            names the field, what is allowed, what was found, and an example.
    """
    try:
        found = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as e:
        raise InvalidArgument(f"profile {path}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InvalidArgument(f"profile {path}: not a TOML file: {e}") from None
    try:
        chip = _profile(found)
    except InvalidArgument as e:
        raise InvalidArgument(f"profile {path}: {e}") from None
    known = CHIPS.get(chip.name)
    if known is not None and known != chip:
        raise InvalidArgument(
            f"profile {path}: name: {chip.name!r} is a profile of this package; choose "
            f"another, for example {example('name', 'my-' + chip.name)}"
        )
    _LOADED[chip.name] = chip
    return chip


def _profile(found: Mapping[str, Any]) -> Chip:
    fields = {x.name: x for x in dataclasses.fields(Chip)}
    for key in found:
        if key not in fields and key != "base":
            raise InvalidArgument(
                f"{key}: there is no such field"
                + nearest(key, fields)
                + f"; the fields are base, {', '.join(fields)}"
            )
    given = {
        k: _value(k, v, str(fields[k].type)) for k, v in found.items() if k in fields
    }
    if "name" not in given:
        raise InvalidArgument(
            f"name is missing; for example {example('name', 'my-npu')}"
        )
    base = found.get("base")
    if base is not None:
        if not isinstance(base, str) or base not in CHIPS:
            raise InvalidArgument(
                f"base: {base!r} is not one of {', '.join(CHIPS)}"
                + nearest(str(base), CHIPS)
                + f"; for example {example('base', 'vk1')}"
            )
        # What a base says of a number's source holds only where the number stays.
        kept = {k: v for k, v in CHIPS[base].sources.items() if k not in given}
        given["sources"] = MappingProxyType({**kept, **given.get("sources", {})})
        return dataclasses.replace(CHIPS[base], **given)
    missing = [
        x.name
        for x in fields.values()
        if x.name not in given
        and x.default is dataclasses.MISSING
        and x.default_factory is dataclasses.MISSING
    ]
    if missing:
        lines = "\n".join(f"  {example(k, getattr(VK1, k))}" for k in missing)
        raise InvalidArgument(
            f"{', '.join(missing)} missing; write them, or start from a profile with "
            f"{example('base', 'vk1')}; those of vk1 are\n{lines}"
        )
    return Chip(**given)


def _value(name: str, value: Any, kind: str) -> Any:
    """Check the type of a field's value and freeze it."""
    wanted, words = _KINDS[kind]
    good = isinstance(value, wanted) and not isinstance(value, bool)
    if good and isinstance(value, int):
        good = value < 1 << 63  # TOML's integers have 64 bits
    if good and name == "name":
        good = value.isprintable() and bool(value.strip())
    if good and isinstance(value, list):
        good = all(isinstance(v, str) for v in value)
    if good and isinstance(value, dict):
        item = _ITEMS.get(kind, str)
        good = all(type(v) is item for v in value.values())
    if not good:
        raise InvalidArgument(
            f"{name} must be {words}, found {value!r}; for example "
            f"{example(name, getattr(VK1, name))}"
        )
    if isinstance(value, list):
        return tuple(value)
    return MappingProxyType(value) if isinstance(value, dict) else value


def example(name: str, value: Any) -> str:
    """Return the line of TOML that sets a field."""
    if isinstance(value, Mapping):
        items = ", ".join(f"{k} = {_literal(v)}" for k, v in value.items())
        return f"{name} = {{ {items} }}"
    return f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, int):
        return f"{value:_}"
    return f'"{value}"' if isinstance(value, str) else repr(value)
