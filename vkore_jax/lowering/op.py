"""What a lowering rule sees of an MLIR operation.

Owns the reading of attributes; rules never touch the MLIR bindings, so that they can be
typed strictly and so that every attribute is read (slowly) at most once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from vkore_jax.dtypes import DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.lowering.artifact import reading
from vkore_jax.lowering.ir import Shape, Value

Array = np.ndarray[Any, Any]
P = ParamSpec("P")
R = TypeVar("R")


class TensorType(NamedTuple):
    """Element type and shape."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype.short}{list(self.shape)}"


class Tokens(NamedTuple):
    """Positions of the tokens among an op's operands and results."""

    operands: frozenset[int]
    results: frozenset[int]


def is_token(mlir_type: Any) -> bool:
    """True for ``!stablehlo.token``."""
    return str(mlir_type) == "!stablehlo.token"


class Region(Protocol):
    """A region of an op; `inline` lowers it into a builder."""

    @property
    def argument_types(self) -> tuple[TensorType, ...]:
        """Types of the block arguments."""
        ...

    @property
    def unchanged(self) -> frozenset[int]:
        """Positions whose block argument is returned at the same position."""
        ...

    def inline(self, b: Any, args: Sequence[Value]) -> tuple[Value, ...]:
        """Lower the body into `b` and return the values that it returns."""
        ...

    def output(self, b: Any, args: Sequence[Value], position: int) -> Value | None:
        """Lower what one returned value needs; None when that is not a few plain ops.

        What is lowered must not be used: the body is lowered again as a whole.
        """
        ...


def _reads(
    read: Callable[Concatenate[Op, str, P], R],
) -> Callable[Concatenate[Op, str, P], R]:
    """Make a reader of an attribute raise InvalidArgument when it is malformed."""

    @functools.wraps(read)
    def checked(self: Op, name: str, *args: P.args, **kwargs: P.kwargs) -> R:
        with reading(f"attribute `{name}`"):
            return read(self, name, *args, **kwargs)

    return checked


class Op:
    """One op with lowered operands; attributes are parsed when asked for.

    Attributes:
        name: MLIR name such as ``stablehlo.add``.
        operands: lowered operands.
        types: result types; a token is an ``i1[]``.
        regions: lowerable regions.
        name_path: JAX's name path (``jit(f)/add``), empty when unknown.
        dot: of a composite: a matrix product in its decomposition, whose precision is
            the composite's.
    """

    __slots__ = ("_mlir", "dot", "name", "name_path", "operands", "regions", "types")

    def __init__(
        self,
        mlir: Any,
        name: str,
        operands: tuple[Value, ...],
        types: tuple[TensorType, ...],
        regions: tuple[Region, ...] = (),
        name_path: str = "",
        dot: Op | None = None,
    ) -> None:
        self._mlir = mlir
        self.dot = dot
        self.name = name
        self.operands = operands
        self.types = types
        self.regions = regions
        self.name_path = name_path

    @property
    def type(self) -> TensorType:
        """The only result type."""
        (only,) = self.types
        return only

    def __str__(self) -> str:
        args = ", ".join(str(v) for v in self.operands)
        outs = ", ".join(str(t) for t in self.types)
        return f"{self.name}({args}) -> ({outs})"

    def has(self, name: str) -> bool:
        """True when the attribute is present."""
        return name in self._mlir.attributes

    @_reads
    def int(self, name: str, default: int = 0) -> int:
        """Value of an integer attribute."""
        attrs = self._mlir.attributes
        return int(attrs[name].value) if name in attrs else default

    @_reads
    def flag(self, name: str) -> bool:
        """Value of a boolean attribute (false when absent)."""
        attrs = self._mlir.attributes
        return bool(attrs[name].value) if name in attrs else False

    @_reads
    def ints(self, name: str, default: Shape | None = None) -> Shape:
        """Value of an array of integers; also of a dense vector."""
        attrs = self._mlir.attributes
        if name not in attrs:
            return default if default is not None else ()
        attr = attrs[name]
        try:
            return tuple(int(i) for i in attr)
        except TypeError:  # a tensor of more than one axis
            return tuple(int(i) for i in np.asarray(attr).reshape(-1))

    @_reads
    def pairs(self, name: str, count: int) -> tuple[Shape, Shape]:
        """Columns of an (n, 2) integer matrix such as `padding` (zeros when absent)."""
        attrs = self._mlir.attributes
        if name not in attrs:
            return (0,) * count, (0,) * count
        flat = [int(i) for i in np.asarray(attrs[name]).reshape(-1)]
        return tuple(flat[0::2]), tuple(flat[1::2])

    @_reads
    def text(self, name: str, default: str = "") -> str:
        """Value of a string attribute or the name of a symbol reference."""
        attrs = self._mlir.attributes
        return str(attrs[name].value) if name in attrs else default

    @_reads
    def word(self, name: str, default: str = "") -> str:
        """Value of a dialect's enumeration attribute, such as ``LT``."""
        attrs = self._mlir.attributes
        return _last_word(str(attrs[name])) if name in attrs else default

    @_reads
    def words(self, name: str) -> tuple[str, ...]:
        """Values of an array of enumeration attributes."""
        attrs = self._mlir.attributes
        if name not in attrs:
            return ()
        return tuple(_last_word(str(a)) for a in attrs[name])

    @_reads
    def fields(self, name: str) -> dict[str, Any]:
        """Fields of a structured attribute, as ints, strings and tuples of ints."""
        attrs = self._mlir.attributes
        return parse_fields(str(attrs[name])) if name in attrs else {}

    def params(self) -> dict[str, Any]:
        """Parameters of a composite: bool, int, float or str by name."""
        attrs = self._mlir.attributes
        if "composite_attributes" not in attrs:
            return {}
        with reading("`composite_attributes`"):
            return {a.name: a.attr.value for a in attrs["composite_attributes"]}

    @_reads
    def source(self, name: str) -> str:
        """MLIR text of an attribute, empty when absent."""
        attrs = self._mlir.attributes
        return str(attrs[name]) if name in attrs else ""

    def array(self, name: str) -> Array:
        """Value of a dense elements attribute, exact for every element type."""
        return dense_elements(self._mlir, name, self.type)

    @property
    def tokens(self) -> Tokens:
        """Positions of token operands and results."""
        mlir = self._mlir
        return Tokens(
            frozenset(i for i, v in enumerate(mlir.operands) if is_token(v.type)),
            frozenset(i for i, v in enumerate(mlir.results) if is_token(v.type)),
        )

    def result_users(self) -> list[tuple[str, Shape]]:
        """Name of every op that reads result 0, with its permutation if it has one."""
        users: list[tuple[str, Shape]] = []
        for use in self._mlir.results[0].uses:
            user = use.owner.operation
            perm: Shape = ()
            if user.name == "stablehlo.transpose":
                perm = tuple(int(i) for i in user.attributes["permutation"])
            users.append((user.name, perm))
        return users


def _last_word(text: str) -> str:
    return text.rstrip("> ").rsplit(" ", 1)[-1].rsplit("<", 1)[-1]


_FIELD = re.compile(r"(\w+) = (\[[^\]]*\]|[\w.]+)")


@lru_cache(maxsize=4096)
def _parse_fields(text: str) -> tuple[tuple[str, Any], ...]:
    out: list[tuple[str, Any]] = []
    for key, raw in _FIELD.findall(text):
        if raw.startswith("["):
            out.append((key, tuple(int(i) for i in raw[1:-1].split(",") if i.strip())))
        else:
            out.append((key, int(raw) if raw.lstrip("-").isdigit() else raw))
    return tuple(out)


def parse_fields(text: str) -> dict[str, Any]:
    """Parse ``#stablehlo.gather<offset_dims = [1], index_vector_dim = 1>``."""
    return dict(_parse_fields(text))


_TOKEN = re.compile(r"[^\[\],()\s]+")


def dense_elements(mlir: Any, name: str, type_: TensorType) -> Array:
    """Return a dense elements attribute as an array of `type_`.

    The buffer protocol of the bindings covers the usual types; for the others (bf16,
    fp8, sub-byte integers, complex) the printed form is exact and is parsed: hex
    strings for long tensors, decimal or hex literals for short ones.
    """
    dtype = type_.dtype.numpy
    if type_.dtype.kind != "c":
        try:
            attr = mlir.attributes[name]
            found = np.asarray(attr)
            if found.dtype == dtype and found.shape == type_.shape:
                return found
        except TypeError:
            pass
    text = mlir.get_asm(use_local_scope=True)
    start = text.find("dense<")
    if start < 0:
        raise UnsupportedOp(f"constant of type {type_} is not a dense attribute")
    return _parse_dense(text[start + 6 : text.rindex("> : tensor<")], type_)


def _parse_dense(body: str, type_: TensorType) -> Array:
    dtype, kind = type_.dtype.numpy, type_.dtype.kind
    if body.startswith('"0x'):
        raw = bytes.fromhex(body[3 : body.index('"', 3)])
        found = np.frombuffer(raw, dtype)
        if found.size == 1:
            return np.broadcast_to(found.reshape(()), type_.shape)
        return found.reshape(type_.shape)
    part = np.dtype(f"f{dtype.itemsize // 2}") if kind == "c" else dtype
    items = [_literal(t, part, kind) for t in _TOKEN.findall(body)]
    flat = np.array(items, part)
    if kind == "c":
        flat = flat.view(dtype)
    if flat.size == 1:
        return np.broadcast_to(flat.reshape(()), type_.shape)
    return flat.reshape(type_.shape)


def _literal(token: str, dtype: np.dtype[Any], kind: str) -> Any:
    if token in ("true", "false"):
        return token == "true"
    if token.startswith("0x") and kind in "fc":
        bits = int(token, 16).to_bytes(dtype.itemsize, "little")
        return np.frombuffer(bits, dtype)[0]
    return int(token) if kind in "iub" else dtype.type(float(token))
