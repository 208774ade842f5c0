"""Small arrays: what a call copies instead of handing arrays over.

As an argument an array of the inner client costs a microsecond, as a result another,
whatever its size.  A model has hundreds of norms, biases and counters.  Their values
are copied in and out by two calls inside the module, which find them through a table;
its address is the module's first argument.  The caller fills the table and reads it
(`pjrt/csrc/table.c`, which defines the two functions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from vkore_jax.dtypes import BOOL
from vkore_jax.program import Program, TensorSpec
from vkore_jax.sim.fast.emitter import tensor_type

LOAD, STORE = "vkore_load", "vkore_store"
"""Targets of the calls, as the bridge registers them."""

MAX_BYTES = 4096
"""Of one array: copying as much costs a tenth of what handing it over costs."""

TABLE = "%table"
_TABLE_TYPE = "tensor<i64>"
_LOADED = "%small"


@dataclass(frozen=True)
class Small:
    """The parameters and results, by number, that go through the table."""

    params: tuple[int, ...] = ()
    results: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.params or self.results)

    @cached_property
    def loaded(self) -> dict[int, int]:
        """Position among the small parameters, by number of the parameter."""
        return {number: i for i, number in enumerate(self.params)}

    @cached_property
    def stored(self) -> frozenset[int]:
        """The small results."""
        return frozenset(self.results)

    @property
    def argument(self) -> list[str]:
        """The declaration of the table, if there is one."""
        return [f"{TABLE}: {_TABLE_TYPE}"] if self else []

    def name(self, number: int) -> str:
        """Return the value of a parameter."""
        if number not in self.loaded:
            return f"%arg{number}"
        return f"{_LOADED}#{self.loaded[number]}"

    def load(self, program: Program) -> list[str]:
        """Return the statement that gives the small parameters their names."""
        if not self.params:
            return []
        types = ", ".join(_type(program.params[n]) for n in self.params)
        return [
            f"{_LOADED}:{len(self.params)} = stablehlo.custom_call @{LOAD}({TABLE}) "
            f"{_EFFECT} : ({_TABLE_TYPE}) -> ({types})"
        ]

    def store(self, names: Sequence[str], types: Sequence[str]) -> list[str]:
        """Return the statement that hands all results over that are small."""
        if not self.results:
            return []
        values = ", ".join([TABLE, *(names[n] for n in self.results)])
        given = ", ".join([_TABLE_TYPE, *(types[n] for n in self.results)])
        return [f"stablehlo.custom_call @{STORE}({values}) {_EFFECT} : ({given}) -> ()"]


_EFFECT = "{has_side_effect = true, api_version = 4 : i32}"

NOTHING = Small()


def small_arrays(program: Program) -> Small:
    """Choose what goes through the table: all that is small, or nothing."""
    return Small(
        tuple(n for n, spec in enumerate(program.params) if is_small(spec)),
        tuple(n for n, spec in enumerate(program.results) if is_small(spec)),
    )


def is_small(spec: TensorSpec) -> bool:
    """Return whether an array is small, in device memory and of whole bytes."""
    nbytes = spec.view.nbytes
    return (
        (spec.dtype.bits >= 8 or spec.dtype is BOOL)
        and 0 < nbytes <= MAX_BYTES
        and spec.memory_kind in ("", "device")
    )


def loaded_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape that a small parameter is given: groups read it flat.

    The table knows sizes only, and a reshape of each costs a fifth of the compilation
    of a program that has thousands.
    """
    return (spec.view.size,) if spec.shape else ()


def _type(spec: TensorSpec) -> str:
    return tensor_type(spec.dtype, loaded_shape(spec))
