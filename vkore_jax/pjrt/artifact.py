"""Reading a StableHLO module as far as the plugin itself must understand it.

The plugin needs the entry function's signature: element types, shapes, memory kinds,
layouts and donation.  Everything else is the compiler's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from vkore_jax import dtypes
from vkore_jax.errors import InvalidArgument, UnsupportedOp

TOKEN_TYPE = 23
"""PJRT_Buffer_Type of an ordering token (no data)."""

_MEMORY_KIND = "mhlo.memory_kind"
_LAYOUT_MODE = "mhlo.layout_mode"
_ALIASING = "tf.aliasing_output"
_DONOR = "jax.buffer_donor"


@dataclass(frozen=True)
class TensorSpec:
    """One parameter or result of a program, as its caller sees it.

    Attributes:
        pjrt_type: PJRT_Buffer_Type; `TOKEN_TYPE` for an ordering token.
        shape: extents.
        memory_kind: "device", "pinned_host" or "unpinned_host".
        layout: minor-to-major text such as "{1,0}".
        sharding: serialized OpSharding; empty means replicated.
    """

    pjrt_type: int
    shape: tuple[int, ...]
    memory_kind: str = "device"
    layout: str = ""
    sharding: bytes = b""

    @property
    def is_token(self) -> bool:
        """True for a value that only orders side effects."""
        return self.pjrt_type == TOKEN_TYPE

    @property
    def nbytes(self) -> int:
        """Bytes in memory; sub-byte elements take one byte each."""
        size = 1 if self.is_token else dtypes.by_pjrt(self.pjrt_type).itemsize
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class Signature:
    """The entry function's interface.

    Attributes:
        name: module name without JAX's `jit_` decoration removed (as it arrived).
        params: one row per parameter.
        results: one row per result.
        donated: numbers of the parameters whose buffers a call may take over.
    """

    name: str
    params: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    donated: tuple[int, ...]


def read_signature(module: ir.Module) -> Signature:
    """Read the interface of `main`.

    Raises:
        InvalidArgument: there is no `main`, or an attribute is malformed.
        UnsupportedOp: a dynamic shape or an element type that the chip lacks.
    """
    main = _find_main(module)
    inputs, outputs = main.type.inputs, main.type.results
    arg_attrs = _attributes(main, "arg_attrs", len(inputs))
    result_attrs = _attributes(main, "res_attrs", len(outputs))
    name = module.operation.attributes
    return Signature(
        name=ir.StringAttr(name["sym_name"]).value if "sym_name" in name else "main",
        params=tuple(
            _spec(t, a, f"parameter {i}")
            for i, (t, a) in enumerate(zip(inputs, arg_attrs, strict=True))
        ),
        results=tuple(
            _spec(t, a, f"result {i}")
            for i, (t, a) in enumerate(zip(outputs, result_attrs, strict=True))
        ),
        donated=tuple(i for i, a in enumerate(arg_attrs) if is_donated(a)),
    )


def is_donated(attributes: Any) -> bool:
    """Tell whether a parameter's attributes let the program take over its buffer.

    `tf.aliasing_output = k` pairs it with result k; `jax.buffer_donor = true` gives it
    away without a partner.  Both mean the same to a chip that does not alias: the
    buffer is free after the call.
    """
    if attributes is None:
        return False
    if _ALIASING in attributes:
        return True
    return _DONOR in attributes and bool(ir.BoolAttr(attributes[_DONOR]).value)


def _find_main(module: ir.Module) -> func.FuncOp:
    for op in module.body.operations:
        if isinstance(op, func.FuncOp) and op.name.value == "main":
            return op
    raise InvalidArgument("the program has no function named main")


def _attributes(main: func.FuncOp, name: str, count: int) -> list[Any]:
    if name not in main.attributes:
        return [None] * count
    return [ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes[name])]


def _spec(type_: ir.Type, attributes: Any, where: str) -> TensorSpec:
    def text(key: str) -> str:
        if attributes is None or key not in attributes:
            return ""
        return ir.StringAttr(attributes[key]).value

    if str(type_) == "!stablehlo.token":
        return TensorSpec(TOKEN_TYPE, (), layout="{}")
    if not isinstance(type_, ir.RankedTensorType):
        raise UnsupportedOp(f"{where} has type {type_}; only tensors can be passed")
    if not type_.has_static_shape:
        raise UnsupportedOp(
            f"{where} has the dynamic shape {type_}; this chip runs static programs "
            "only: export or jit the function for concrete shapes"
        )
    shape = tuple(type_.shape)
    default = "{" + ",".join(str(i) for i in reversed(range(len(shape)))) + "}"
    layout = text(_LAYOUT_MODE)
    if layout in ("", "default", "auto"):
        layout = default
    return TensorSpec(
        dtypes.by_short(str(type_.element_type)).pjrt,
        shape,
        memory_kind=text(_MEMORY_KIND) or "device",
        layout=layout,
    )
