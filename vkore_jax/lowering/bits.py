"""Reinterpretation of bits between element types.

Equal widths are one micro-op.  Between widths the wide element is cut into (or joined
from) narrow ones by integer shifts, least significant first, as StableHLO orders them.
"""

from __future__ import annotations

from vkore_jax import dtypes
from vkore_jax.dtypes import DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value

UNSIGNED = {
    2: dtypes.by_short("ui2"),
    4: dtypes.by_short("ui4"),
    8: dtypes.U8,
    16: dtypes.U16,
    32: dtypes.U32,
    64: dtypes.U64,
}


def cast_bits(b: Builder, x: Value, dtype: DType) -> Value:
    """Return `x` reread as `dtype`; a last axis appears or disappears with the width.

    Raises:
        UnsupportedOp: for bool, complex and float4, which have no integer of their
            width on the lanes.
    """
    source = x.dtype
    if source is dtype:
        return x
    if source.bits == dtype.bits and source.kind != "c" and dtype.kind != "c":
        return b.vec("bitcast", x, dtype=dtype)
    for t in (source, dtype):
        if t.bits not in UNSIGNED or t.kind in "bc":
            raise UnsupportedOp(
                f"bitcast from {source} to {dtype}: {t} has no integer type of its "
                "width; take real and imaginary part, or convert to ui8, first"
            )
    wide, narrow = UNSIGNED[source.bits], UNSIGNED[dtype.bits]
    if wide is not source:
        x = b.vec("bitcast", x, dtype=wide)
    if source.bits > dtype.bits:
        x = split(b, x, narrow)
    else:
        x = join(b, x, narrow)
    return x if narrow is dtype else b.vec("bitcast", x, dtype=dtype)


def split(b: Builder, x: Value, narrow: DType) -> Value:
    """Cut unsigned elements into narrower ones along a new last axis."""
    parts: list[Value] = []
    for i in range(x.dtype.bits // narrow.bits):
        amount = b.scalar(x.dtype, i * narrow.bits, x.shape)
        part = b.vec("shr_l", x, amount) if i else x
        parts.append(b.reshape(b.convert(part, narrow), (*x.shape, 1)))
    return (
        b.concatenate(parts, len(x.shape))
        if x.size
        else b.empty(narrow, (*x.shape, len(parts)))
    )


def join(b: Builder, x: Value, wide: DType) -> Value:
    """Join the narrow unsigned elements of the last axis into wide ones."""
    shape = x.shape[:-1]
    total: Value | None = None
    for i in range(x.shape[-1]):
        start = (0,) * len(shape) + (i,)
        part = b.reshape(b.slice(x, start, (*shape, i + 1)), shape)
        part = b.convert(part, wide)
        if i:
            part = b.vec("shl", part, b.scalar(wide, i * x.dtype.bits, shape))
        total = part if total is None else b.vec("or", total, part)
    if total is None:
        raise UnsupportedOp(f"bitcast of {x} to {wide}: the last axis is empty")
    return total
