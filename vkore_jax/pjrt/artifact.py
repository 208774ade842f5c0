"""The interface of a program, as JAX sees it.

A Program says what its parameters and results are.  The little that JAX wants to hear
again and a chip has no use for (which values are tokens, memory kinds, layouts) is read
from the StableHLO module and stored beside the Program: an `Interface`.  The signature
is made of both, in one place, for a program that was compiled and for one that was
loaded; a stored interface is checked against its Program, never believed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from vkore_jax import dtypes
from vkore_jax import program as programs
from vkore_jax.errors import InvalidArgument, InvalidProgram, UnsupportedOp
from vkore_jax.program import Program

TOKEN_TYPE = 23
"""PJRT_Buffer_Type of an ordering token (no data)."""

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")
"""Numbered as in the bridge (`vk_memory_kinds`)."""

MAX_RANK = 32
"""As in the bridge (`VK_MAX_RANK`)."""

_MEMORY_KIND = "mhlo.memory_kind"
_LAYOUT_MODE = "mhlo.layout_mode"


@dataclass(frozen=True)
class TensorSpec:
    """One parameter or result of a program, as its caller sees it.

    Attributes:
        pjrt_type: PJRT_Buffer_Type; `TOKEN_TYPE` for an ordering token.
        shape: extents.
        memory_kind: one of `MEMORY_KINDS`.
        layout: minor-to-major text such as "{1,0}".
    """

    pjrt_type: int
    shape: tuple[int, ...]
    memory_kind: str = "device"
    layout: str = ""

    @property
    def is_token(self) -> bool:
        """True for a value that only orders side effects."""
        return self.pjrt_type == TOKEN_TYPE


@dataclass(frozen=True)
class Extra:
    """What JAX knows of a parameter or result and the Program does not say.

    Attributes:
        token: it only orders side effects; the Program has a boolean scalar.
        memory_kind: one of `MEMORY_KINDS`.
        layout: minor-to-major text; empty for row-major.
    """

    token: bool = False
    memory_kind: str = "device"
    layout: str = ""


@dataclass(frozen=True)
class Interface:
    """The extras of all parameters and results."""

    params: tuple[Extra, ...]
    results: tuple[Extra, ...]

    def encode(self) -> bytes:
        """Return the interface as bytes, for `decode_interface`."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Signature:
    """The entry function's interface.

    Attributes:
        name: module name, JAX's `jit_` decoration included.
        params: one row per parameter.
        results: one row per result.
        donated: numbers of the parameters whose buffers a call may take over.
    """

    name: str
    params: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    donated: tuple[int, ...]


def signature_of(program: Program, interface: Interface) -> Signature:
    """Return what callers see of a program.

    Raises:
        InvalidProgram: the interface is not one of this program.
    """
    return Signature(
        name=program.name,
        params=_specs("parameter", program.params, interface.params),
        results=_specs("result", program.results, interface.results),
        donated=program.donated,
    )


def _specs(
    what: str, found: Sequence[programs.TensorSpec], extras: Sequence[Extra]
) -> tuple[TensorSpec, ...]:
    if len(found) != len(extras):
        raise InvalidProgram(
            f"the stored interface has {len(extras)} {what}s, its program {len(found)}"
        )
    return tuple(
        _joined(f"{what} {i}", spec, extra)
        for i, (spec, extra) in enumerate(zip(found, extras, strict=True))
    )


def _joined(where: str, spec: programs.TensorSpec, extra: Extra) -> TensorSpec:
    if len(spec.shape) > MAX_RANK:
        raise UnsupportedOp(
            f"{where} has rank {len(spec.shape)}; arrays have up to {MAX_RANK} axes"
        )
    problem, kind = "", extra.memory_kind
    axes = [str(i) for i in reversed(range(len(spec.shape)))]
    if extra.token and (spec.dtype is not dtypes.BOOL or spec.shape):
        problem = f"a token, in the program {spec.dtype}{list(spec.shape)}"
    elif kind not in MEMORY_KINDS:
        problem = f"in memory {kind!r}; there are {', '.join(MEMORY_KINDS)}"
    elif spec.memory_kind not in ("", kind):
        problem = f"in memory {kind!r}, in the program in {spec.memory_kind!r}"
    elif extra.layout and sorted(extra.layout[1:-1].split(",")) != sorted(axes or [""]):
        problem = f"laid out as {extra.layout!r}, which is none of rank {len(axes)}"
    if problem:
        raise InvalidProgram(f"the stored interface is damaged: {where} is {problem}")
    if extra.token:
        return TensorSpec(TOKEN_TYPE, (), layout="{}")
    return TensorSpec(
        spec.dtype.pjrt,
        spec.shape,
        kind,
        extra.layout or "{" + ",".join(axes) + "}",
    )


def decode_interface(text: bytes) -> Interface:
    """Read what `Interface.encode` wrote.

    Raises:
        InvalidProgram: the bytes are something else.
    """
    try:
        raw = json.loads(text)
        return Interface(
            params=tuple(_read_extra(x) for x in raw["params"]),
            results=tuple(_read_extra(x) for x in raw["results"]),
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise InvalidProgram(
            f"the stored interface is damaged: {type(error).__name__}: {error}"
        ) from None


def _read_extra(raw: dict[str, Any]) -> Extra:
    extra = Extra(**raw)
    for name, kind in (("token", bool), ("memory_kind", str), ("layout", str)):
        value = getattr(extra, name)
        if type(value) is not kind:
            raise TypeError(f"{name} is {value!r}, not {kind.__name__}")
    layout = extra.layout
    if layout and not (layout.isascii() and layout[0] + layout[-1] == "{}"):
        raise ValueError(f"layout {layout!r}")
    return extra


# ----------------------------------------------------------------------- from StableHLO


def read_interface(module: ir.Module) -> Interface:
    """Read the interface of `main`.

    Raises:
        InvalidArgument: there is no `main`, or an attribute is malformed.
        UnsupportedOp: a dynamic shape or a value that is no tensor.
    """
    main = _find_main(module)
    inputs, outputs = main.type.inputs, main.type.results
    arg_attrs = _attributes(main, "arg_attrs", len(inputs))
    result_attrs = _attributes(main, "res_attrs", len(outputs))
    return Interface(
        params=tuple(
            _extra(t, a, f"parameter {i}")
            for i, (t, a) in enumerate(zip(inputs, arg_attrs, strict=True))
        ),
        results=tuple(
            _extra(t, a, f"result {i}")
            for i, (t, a) in enumerate(zip(outputs, result_attrs, strict=True))
        ),
    )


def _find_main(module: ir.Module) -> func.FuncOp:
    for op in module.body.operations:
        if isinstance(op, func.FuncOp) and op.name.value == "main":
            return op
    raise InvalidArgument("the program has no function named main")


def _attributes(main: func.FuncOp, name: str, count: int) -> list[Any]:
    if name not in main.attributes:
        return [None] * count
    return [ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes[name])]


def _extra(type_: ir.Type, attributes: Any, where: str) -> Extra:
    def text(key: str) -> str:
        if attributes is None or key not in attributes:
            return ""
        return ir.StringAttr(attributes[key]).value

    if str(type_) == "!stablehlo.token":
        return Extra(token=True)
    if not isinstance(type_, ir.RankedTensorType):
        raise UnsupportedOp(f"{where} has type {type_}; only tensors can be passed")
    if not type_.has_static_shape:
        raise UnsupportedOp(
            f"{where} has the dynamic shape {type_}; this chip runs static programs "
            "only: export or jit the function for concrete shapes"
        )
    kind, layout = text(_MEMORY_KIND) or "device", text(_LAYOUT_MODE)
    if kind not in MEMORY_KINDS:
        raise InvalidArgument(
            f"{where}: memory kind {kind!r} does not exist on this device; it has "
            + ", ".join(MEMORY_KINDS)
        )
    return Extra(
        memory_kind=kind, layout="" if layout in ("default", "auto") else layout
    )
