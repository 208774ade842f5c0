"""Programs on an engine: the table of engines that the plugin can run.

`VKORE_ENGINE` chooses one by name.  An engine gets the program as bytes, the inner
client that owns the memory, and the callbacks that the program names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from vkore_jax.callbacks import Callback, CallbackTable
from vkore_jax.cost import blocks_of
from vkore_jax.errors import InvalidArgument
from vkore_jax.isa import Block, Host
from vkore_jax.pjrt.inner import Execute, InnerClient, Launch
from vkore_jax.pjrt.tiers import MovementTier, moves_only
from vkore_jax.program import Program
from vkore_jax.sim.fast import FastProgram
from vkore_jax.sim.fast.load import put
from vkore_jax.sim.fast.small import NOTHING, Small


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A program that an engine has loaded on one device.

    Attributes:
        execute: inner arrays in, inner arrays out.
        consumed: parameters whose inner arrays `execute` destroys.
        launch: the same in two steps, if the engine can.
        handlers: argument of the second step.
        small: parameters and results that go through a table, not through `launch`.
    """

    execute: Execute
    consumed: tuple[int, ...]
    launch: Launch | None = None
    handlers: list[Any] = field(default_factory=list)
    small: Small = NOTHING


Loader = Callable[[Program, InnerClient, int, Mapping[int, Callback]], Engine]


def _fast(
    program: Program,
    inner: InnerClient,
    device_id: int,
    callbacks: Mapping[int, Callback],
) -> Engine:
    device = inner.devices[device_id]

    def load(tables: bool) -> FastProgram:
        return FastProgram(
            program.encoded,
            inner.client,
            device,
            callbacks,
            cache=inner.code,
            tables=tables,
        )

    if moves_only(program):
        tier = MovementTier(program, device, lambda: load(False).execute)
        return Engine(execute=tier.execute, consumed=program.donated)
    loaded = load(True)
    return Engine(
        execute=loaded.execute,
        consumed=program.donated,
        launch=loaded.launch,
        handlers=loaded.handlers,
        small=loaded.small,
    )


def _golden(
    program: Program,
    inner: InnerClient,
    device_id: int,
    callbacks: Mapping[int, Callback],
) -> Engine:
    from vkore_jax.sim.golden import GoldenProgram

    device = inner.devices[device_id]
    loaded = GoldenProgram(program.encoded, callbacks=callbacks)

    def execute(arguments: list[Any]) -> list[Any]:
        values = [np.asarray(a) for a in arguments]
        return [put(np.asarray(r), device) for r in loaded.execute(values)]

    return Engine(execute=execute, consumed=())


ENGINES: Mapping[str, Loader] = MappingProxyType({"fast": _fast, "golden": _golden})


def load_engine(
    name: str,
    program: Program,
    *,
    inner: InnerClient,
    device_id: int,
    callbacks: CallbackTable,
) -> Engine:
    """Load a program on an engine.

    Raises:
        InvalidArgument: there is no such engine.
        VkoreError: the engine refuses the program.
    """
    if name not in ENGINES:
        raise InvalidArgument(
            f"VKORE_ENGINE={name!r}: no such engine; there are {', '.join(ENGINES)}"
        )
    functions = {i: callbacks.get(i) for i in host_callbacks(program.block)}
    return ENGINES[name](program, inner, device_id, functions)


def host_callbacks(block: Block) -> Iterator[int]:
    """Yield the callback numbers of the HOST commands of a block, nested ones too."""
    for located in block:
        if isinstance(located.cmd, Host):
            yield located.cmd.callback
        for nested in blocks_of(located.cmd):
            yield from host_callbacks(nested)
