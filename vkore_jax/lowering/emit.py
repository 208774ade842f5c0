"""Emission: scheduled nodes with buffers become commands; nothing is decided here."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.errors import InternalError
from vkore_jax.isa import View
from vkore_jax.isa.commands import VIEW, VIEWS
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.allocate import Allocation
from vkore_jax.lowering.ir import (
    Case,
    Const,
    Direct,
    Graph,
    HostCall,
    Module,
    Move,
    Node,
    Value,
    While,
)
from vkore_jax.lowering.plan import TiledGroup
from vkore_jax.program import Location, Program, TensorSpec, folded_at


def emit(module: Module, chip: Chip, views: Views, allocation: Allocation) -> Program:
    """Return the program of an allocated module."""
    return _Emitter(module, chip, views, allocation).program()


class _Emitter:
    def __init__(
        self, module: Module, chip: Chip, views: Views, allocation: Allocation
    ) -> None:
        self.module, self.chip = module, chip
        self.views, self.allocation = views, allocation
        self.ids = allocation.ids
        self.locations: dict[Location, int] = {}
        self.scratchpad = 0

    def program(self) -> Program:
        module, graph = self.module, self.module.graph
        block = self._block(graph)
        kinds = module.result_memory_kinds or ("",) * len(graph.outputs)
        return Program(
            name=module.name,
            chip=self.chip.name,
            scratchpad_bytes=self.scratchpad,
            arena_bytes=self.allocation.arena_bytes,
            buffers=tuple(self.allocation.buffers),
            constants=bytes(self.allocation.constants),
            params=tuple(
                TensorSpec(self.ids[v], v.dtype, v.shape, "") for v in graph.params
            ),
            results=tuple(
                TensorSpec(self._view(v).buffer, v.dtype, v.shape, kind)
                for v, kind in zip(graph.outputs, kinds, strict=True)
            ),
            donated=tuple(sorted(module.donated)),
            locations=(*self.locations, *self._folded()),
            block=block,
        )

    def _folded(self) -> list[Location]:
        """Return the provenance of what no command computes."""
        return [folded_at(at, n) for at, n in Counter(self.module.folded).items()]

    def _block(self, graph: Graph) -> isa.Block:
        block: list[isa.Located] = []
        for node in graph.nodes:
            if isinstance(node, Const | Move):
                continue
            loc = self.locations.setdefault(node.loc, len(self.locations))
            block.append(isa.Located(self._command(node), loc))
        return tuple(block)

    def _view(self, value: Value) -> View:
        """Return the strided read of a value."""
        access = self.views[value]
        return View(
            self.ids[access.value],
            value.dtype,
            access.offset,
            access.shape,
            access.strides,
        )

    def _dense(self, value: Value) -> View:
        """Return the dense view of a value that is written or carried."""
        return View.dense(self._view(value).buffer, value.dtype, value.shape)

    def _command(self, node: Node) -> Any:
        if isinstance(node, TiledGroup):
            return self._group(node)
        if isinstance(node, Direct):
            return self._direct(node)
        if isinstance(node, While):
            return self._loop(node)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, HostCall):
            return isa.Host(
                dsts=tuple(self._dense(v) for v in node.results),
                srcs=tuple(self._view(v) for v in node.operands),
                callback=node.callback,
                kind=node.kind,
                effect=node.effect,
            )
        raise InternalError(f"{node.loc}: no command for {type(node).__name__}")

    def _group(self, node: TiledGroup) -> isa.Group:
        values = (*node.operands, *node.results)
        self.scratchpad = max(self.scratchpad, node.scratchpad_bytes)

        def bound(view: View) -> View:
            return dataclasses.replace(view, buffer=self.ids[values[view.buffer]])

        stages: list[Any] = []
        for stage in node.stages:
            if isinstance(stage, isa.Load):
                stage = isa.Load(stage.tile, bound(stage.src), stage.phase)
            elif isinstance(stage, isa.Store):
                stage = isa.Store(bound(stage.dst), stage.tile, stage.phase)
            stages.append(stage)
        return isa.Group(node.grid, node.k_axis, node.tiles, tuple(stages))

    def _direct(self, node: Direct) -> Any:
        operands = iter(node.operands)
        fields: dict[str, Any] = {}
        for x in node.command.FIELDS:  # type: ignore[attr-defined]
            if x.name == "dst":
                fields[x.name] = self._dense(node.result)
            elif x.name == "dsts":
                fields[x.name] = tuple(self._dense(v) for v in node.results)
            elif x.codec is VIEW:
                fields[x.name] = self._view(next(operands))
            elif x.codec is VIEWS:
                count = node.counts[x.name]
                fields[x.name] = tuple(self._view(next(operands)) for _ in range(count))
            else:
                fields[x.name] = node.attrs[x.name]
        if node.command is isa.Conv:
            self.scratchpad = max(self.scratchpad, node.attrs["scratchpad_bytes"])
        return node.command(**fields)

    def _loop(self, node: While) -> Any:
        carries = tuple(
            isa.Carry(
                enter=self._view(enter),
                current=self._dense(current),
                next=self._dense(after),
                leave=self._dense(leave),
            )
            for enter, current, after, leave in zip(
                node.operands,
                node.body.params,
                node.body.outputs,
                node.results,
                strict=True,
            )
        )
        if node.trips is not None:
            return isa.Loop(node.trips, carries, self._block(node.body))
        (predicate,) = node.cond.outputs
        return isa.While(
            carries,
            self._block(node.cond),
            self._view(predicate),
            self._block(node.body),
        )

    def _case(self, node: Case) -> isa.Case:
        merges = tuple(
            isa.Merge(
                self._dense(value),
                tuple(self._view(b.outputs[i]) for b in node.branches),
            )
            for i, value in enumerate(node.results)
        )
        branches = tuple(self._block(b) for b in node.branches)
        return isa.Case(self._view(node.operands[0]), branches, merges)
