"""The seam between the plugin and the compiler plus engine behind it.

A module becomes a Program (`vkore_jax.lowering`), the Program's bytes go to an engine
(`vkore_jax.sim`), and nothing else passes between the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vkore_jax import cost, lowering
from vkore_jax import program as programs
from vkore_jax.callbacks import CALLBACKS, NOT_STORED
from vkore_jax.chips import Chip
from vkore_jax.dump import dump
from vkore_jax.errors import InvalidProgram, NotYetImplemented
from vkore_jax.pjrt.artifact import (
    Interface,
    Signature,
    TensorSpec,
    decode_interface,
    read_interface,
    signature_of,
)
from vkore_jax.pjrt.container import seal, unseal
from vkore_jax.pjrt.engines import host_callbacks, load_engine
from vkore_jax.pjrt.inner import Execute, InnerClient, Launch
from vkore_jax.pjrt.options import CompileOptions
from vkore_jax.program import Program
from vkore_jax.sim.fast.small import Small
from vkore_jax.verify import verify

_KIND = b"VKSIGN"


class LoadedProgram(Protocol):
    """A program that is ready to run on one device."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> Sequence[TensorSpec]: ...
    @property
    def results(self) -> Sequence[TensorSpec]: ...

    @property
    def donated(self) -> Sequence[int]:
        """Parameters whose buffers JAX gives away with a call."""
        ...

    @property
    def consumed(self) -> Sequence[int]:
        """Parameters whose *inner* arrays `execute` destroys (inner donation).

        The bridge passes an array that nobody else can see, copying it if need be.
        """
        ...

    @property
    def fingerprint(self) -> str:
        """Hex digest, equal in every process that compiles the same program."""
        ...

    @property
    def temp_bytes(self) -> int:
        """Device memory that a call needs beside arguments and results."""
        ...

    @property
    def code_bytes(self) -> int: ...

    @property
    def execute(self) -> Execute:
        """The hot callable: list of inner arrays in, list of inner arrays out.

        It must return complete arrays and raise what went wrong.
        """
        ...

    @property
    def calls_host(self) -> bool:
        """Whether it runs functions of the user."""
        ...

    @property
    def launch(self) -> Launch | None:
        """The same in two steps, the second of which is `handlers`' (see `Launch`)."""
        ...

    @property
    def handlers(self) -> list[Any]: ...

    @property
    def small(self) -> Small:
        """What goes through a table rather than through `launch`."""
        ...

    def serialize(self) -> bytes: ...
    def optimized_mlir(self) -> bytes: ...
    def cost_analysis(self) -> dict[str, float]: ...


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A Program on an engine, with the interface that JAX asked for."""

    signature: Signature
    interface: Interface
    program: Program
    consumed: tuple[int, ...]
    execute: Execute
    launch: Launch | None
    handlers: list[Any]
    small: Small

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def params(self) -> tuple[TensorSpec, ...]:
        return self.signature.params

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        return self.signature.results

    @property
    def donated(self) -> tuple[int, ...]:
        return self.signature.donated

    @property
    def fingerprint(self) -> str:
        return self.program.fingerprint

    @property
    def temp_bytes(self) -> int:
        return self.program.arena_bytes

    @property
    def code_bytes(self) -> int:
        return len(self.program.encoded)

    @property
    def calls_host(self) -> bool:
        return next(host_callbacks(self.program.block), None) is not None

    def serialize(self) -> bytes:
        if self.calls_host:
            raise NotYetImplemented(f"{self.name} {NOT_STORED}")
        head = self.interface.encode()
        body = len(head).to_bytes(8, "little") + head + self.program.encoded
        return seal(_KIND, body)

    def optimized_mlir(self) -> bytes:
        """Return what the fast engine makes of the command stream, as StableHLO."""
        from vkore_jax.sim import fast

        return fast.translate(self.program.encoded).encode()

    def cost_analysis(self) -> dict[str, float]:
        """Return JAX's names for the work of one execution (dynamic bodies: once)."""
        account = cost.account(self.program.block)
        total = account.total([1] * len(account.dynamic))
        units = total.units.values()
        return {
            "flops": 2.0 * total.macs + sum(u.vector_ops + u.core_ops for u in units),
            "bytes accessed": float(sum(u.bytes_in + u.bytes_out for u in units)),
            "matrix macs": float(total.macs),
            "vector ops": float(sum(u.vector_ops for u in units)),
            "core ops": float(sum(u.core_ops for u in units)),
        }


def kernels_wanted() -> bool:
    """Return whether training kernels are lowered by their own rules."""
    return os.environ.get("VKORE_KERNELS") != "0"


def compile_artifact(
    artifact: bytes, *, chip: Chip, options: CompileOptions, inner: InnerClient
) -> LoadedProgram:
    """Compile a StableHLO artifact for a chip and load it on one device.

    Args:
        artifact: portable StableHLO, as jaxlib sends it.
        chip: profile of the chip.
        options: the caller's options; `device_id` says where to run.
        inner: client that owns the devices' memory.

    Raises:
        VkoreError: the program cannot be compiled; the message says why.
    """
    module = lowering.read_module(artifact)
    with module.context, lowering.reading("the interface"):
        interface = read_interface(module)
    wanted = lowering.Options(kernels=kernels_wanted())
    program = lowering.compile(module, chip, wanted)
    return _load(interface, program, chip, options, inner)


def load_program(
    data: bytes, *, chip: Chip, options: CompileOptions, inner: InnerClient
) -> LoadedProgram:
    """Load what `LoadedProgram.serialize` wrote.

    Raises:
        InvalidProgram: when the bytes are damaged or for another chip.
        VersionMismatch: another version stored them.
    """
    body = unseal(_KIND, data)
    end = 8 + int.from_bytes(body[:8], "little")
    interface = decode_interface(body[8:end])
    program = programs.decode(body[end:])
    if program.chip != chip.name:
        raise InvalidProgram(
            f"{program.name} was compiled for chip {program.chip!r}, this device is a "
            f"{chip.name!r}: compile it again"
        )
    return _load(interface, program, chip, options, inner)


def _load(
    interface: Interface,
    program: Program,
    chip: Chip,
    options: CompileOptions,
    inner: InnerClient,
) -> LoadedProgram:
    signature = signature_of(program, interface)
    dump(program)
    verify(program, chip)
    engine = load_engine(
        os.environ.get("VKORE_ENGINE") or "fast",
        program,
        inner=inner,
        device_id=options.device_id,
        callbacks=CALLBACKS,
    )
    return _Loaded(
        signature=signature,
        interface=interface,
        program=program,
        consumed=engine.consumed,
        execute=engine.execute,
        launch=engine.launch,
        handlers=engine.handlers,
        small=engine.small,
    )


__all__ = ["LoadedProgram", "compile_artifact", "load_program"]
