"""The seam between the plugin and the compiler plus engine behind it.

TEMPORARY: until the compiler is connected, `compile_artifact` hands the module to the
inner XLA:CPU client as it is.  The interface stays; only the body changes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jaxlib.mlir import ir

from vkore_jax.callbacks import CALLBACKS, NOT_STORED, TARGET
from vkore_jax.chips import Chip
from vkore_jax.errors import InvalidProgram, NotYetImplemented
from vkore_jax.pjrt.artifact import (
    Signature,
    TensorSpec,
    drop_layouts,
    make_context,
    read_module,
    read_signature,
)
from vkore_jax.pjrt.inner import Array, Execute, InnerClient
from vkore_jax.pjrt.options import CompileOptions

INNER_CALLBACK = "xla_ffi_python_cpu_callback"
"""Custom call of XLA:CPU that runs element `index` of the `host_callbacks` list."""


TOKEN = "!stablehlo.token"


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

    def serialize(self) -> bytes: ...
    def optimized_mlir(self) -> bytes: ...
    def cost_analysis(self) -> dict[str, float]: ...


@dataclass(frozen=True, kw_only=True)
class _DirectProgram:
    """TEMPORARY: the artifact compiled by the inner client."""

    signature: Signature
    artifact: bytes
    fingerprint: str
    executable: Any
    execute: Execute
    calls_back: bool

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
    def consumed(self) -> tuple[int, ...]:
        return self.signature.donated

    @property
    def temp_bytes(self) -> int:
        return int(self.executable.get_compiled_memory_stats().temp_size_in_bytes)

    @property
    def code_bytes(self) -> int:
        return len(self.artifact)

    def serialize(self) -> bytes:
        if self.calls_back:
            raise NotYetImplemented(f"{self.name} {NOT_STORED}")
        return self.artifact

    def optimized_mlir(self) -> bytes:
        with make_context() as context:
            return _bytecode(read_module(context, self.artifact))

    def cost_analysis(self) -> dict[str, float]:
        costs = self.executable.cost_analysis()
        if isinstance(costs, list):
            costs = costs[0]
        return {k: float(v) for k, v in costs.items()}


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
    # TEMPORARY body: no lowering, no ISA.
    with make_context() as context:
        module = read_module(context, artifact)
        signature = read_signature(module)
        drop_layouts(module)
        callbacks = _connect_callbacks(module)
        custom = _has_custom_call(module)
        executable = inner.compile(module, options.device_id, callbacks)
    identity = {"chip": chip.name, "devices": options.num_devices}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode() + artifact)
    return _DirectProgram(
        signature=signature,
        artifact=artifact,
        fingerprint=digest.hexdigest(),
        executable=executable,
        execute=inner.caller(
            executable, signature.results, options.device_id, can_fail=custom
        ),
        calls_back=bool(callbacks),
    )


def load_program(
    data: bytes, *, chip: Chip, options: CompileOptions, inner: InnerClient
) -> LoadedProgram:
    """Load what `LoadedProgram.serialize` wrote.

    Raises:
        InvalidProgram: when the bytes are damaged or for another chip.
    """
    # TEMPORARY body.
    return compile_artifact(data, chip=chip, options=options, inner=inner)


def _connect_callbacks(module: ir.Module) -> list[Callable[..., Any]]:
    """Turn `vkore.py_callback` into the inner client's callback call, in place.

    The inner call has the same operands and results, `api_version = 4` and
    `backend_config = {index = k : ui64}`, which names element k of the list that goes
    with `compile_and_load(module, ..., host_callbacks=list)`.  A leading token is an
    operand like any other: the function gets something for it and returns it first.
    """
    functions: list[Callable[..., Any]] = []
    for op in list(_walk(module.operation)):
        attributes = op.attributes
        if op.name != "stablehlo.custom_call" or _target(op) != TARGET:
            continue
        text = ir.StringAttr(attributes["backend_config"]).value
        if not text.isdigit():
            raise InvalidProgram(f"{TARGET}: backend_config {text!r} is not a number")
        function = CALLBACKS.get(int(text))
        attributes["call_target_name"] = ir.StringAttr.get(INNER_CALLBACK)
        attributes["api_version"] = ir.IntegerAttr.get(
            ir.IntegerType.get_signless(32), 4
        )
        number = ir.IntegerAttr.get(ir.IntegerType.get_unsigned(64), len(functions))
        attributes["backend_config"] = ir.DictAttr.get({"index": number})
        if "sdy.sharding" in attributes:
            del attributes["sdy.sharding"]
        ordered = bool(op.operands) and str(op.operands[0].type) == TOKEN
        functions.append(_ordered(function) if ordered else function)
    return functions


def _ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(token: Any, *arrays: Any) -> tuple[Any, ...]:
        return (token, *function(*arrays))

    return call


def _has_custom_call(module: ir.Module) -> bool:
    return any(op.name == "stablehlo.custom_call" for op in _walk(module.operation))


def _target(op: Any) -> str:
    return ir.StringAttr(op.attributes["call_target_name"]).value


def _walk(op: Any) -> Any:
    for region in op.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _walk(inner.operation)


def _bytecode(module: ir.Module) -> bytes:
    out = io.BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()


__all__ = ["Array", "LoadedProgram", "compile_artifact", "load_program"]
