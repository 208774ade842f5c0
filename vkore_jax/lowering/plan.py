"""Nodes that exist between fusion and emission only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vkore_jax.isa import NO_AXIS, GridAxis, Tile
from vkore_jax.lowering.ir import Node
from vkore_jax.lowering.space import Space


@dataclass(frozen=True, eq=False, kw_only=True)
class FusedGroup(Node):
    """Vec, Reduce and Gemm nodes that share one grid.

    `members` are in dependency order; `operands` and `results` are the values that
    come from and go to DRAM.  Members read other members' results through moves too.
    Without a space the group is a scope of an import rule: see `scoped`.
    """

    members: tuple[Node, ...]
    space: Space | None


@dataclass(frozen=True, eq=False, kw_only=True)
class TiledGroup(Node):
    """A group with its schedule; views name buffer i = (operands + results)[i]."""

    grid: tuple[GridAxis, ...]
    k_axis: int = NO_AXIS
    tiles: tuple[Tile, ...]
    stages: tuple[Any, ...]
    scratchpad_bytes: int
