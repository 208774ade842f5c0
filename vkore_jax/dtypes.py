"""The element types of the machine: one table, every other name derives from it.

Storage rule: elements are byte-addressable; sub-byte types occupy one byte each in
DRAM and scratchpad (the DMA engine unpacks them), as `ml_dtypes` stores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from vkore_jax.errors import UnsupportedOp


@dataclass(frozen=True, eq=False)
class DType:
    """One element type.

    Attributes:
        code: number in the ISA's encoding.
        short: name in assembly text, also the MLIR type name.
        numpy: NumPy (or ml_dtypes) scalar type.
        kind: "b" bool, "i" signed, "u" unsigned, "f" float, "c" complex.
        bits: significant bits of one element.
        pjrt: value of PJRT_Buffer_Type.
    """

    code: int
    short: str
    numpy: np.dtype[Any]
    kind: str
    bits: int
    pjrt: int

    @property
    def name(self) -> str:
        """NumPy's name of the type, as users write it."""
        return self.numpy.name

    @property
    def itemsize(self) -> int:
        """Bytes that one element occupies in memory."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_wide(self) -> bool:
        """64-bit lanes: executed at a fraction of the vector rate."""
        return self.bits >= 64 and self.kind != "c"

    def __repr__(self) -> str:
        return self.short

    def __reduce__(self) -> tuple[Any, ...]:
        return (by_code, (self.code,))


def _rows() -> tuple[DType, ...]:
    f = ml_dtypes
    rows: list[tuple[int, str, Any, str, int, int]] = [
        (1, "i1", np.bool_, "b", 1, 1),
        (2, "i8", np.int8, "i", 8, 2),
        (3, "i16", np.int16, "i", 16, 3),
        (4, "i32", np.int32, "i", 32, 4),
        (5, "i64", np.int64, "i", 64, 5),
        (6, "ui8", np.uint8, "u", 8, 6),
        (7, "ui16", np.uint16, "u", 16, 7),
        (8, "ui32", np.uint32, "u", 32, 8),
        (9, "ui64", np.uint64, "u", 64, 9),
        (10, "f16", np.float16, "f", 16, 10),
        (11, "f32", np.float32, "f", 32, 11),
        (12, "f64", np.float64, "f", 64, 12),
        (13, "bf16", f.bfloat16, "f", 16, 13),
        (14, "complex<f32>", np.complex64, "c", 64, 14),
        (15, "complex<f64>", np.complex128, "c", 128, 15),
        (16, "f8E5M2", f.float8_e5m2, "f", 8, 16),
        (17, "f8E4M3FN", f.float8_e4m3fn, "f", 8, 17),
        (18, "f8E4M3B11FNUZ", f.float8_e4m3b11fnuz, "f", 8, 18),
        (19, "f8E5M2FNUZ", f.float8_e5m2fnuz, "f", 8, 19),
        (20, "f8E4M3FNUZ", f.float8_e4m3fnuz, "f", 8, 20),
        (21, "i4", f.int4, "i", 4, 21),
        (22, "ui4", f.uint4, "u", 4, 22),
        (24, "i2", f.int2, "i", 2, 24),
        (25, "ui2", f.uint2, "u", 2, 25),
        (26, "f8E4M3", f.float8_e4m3, "f", 8, 26),
        (27, "f8E3M4", f.float8_e3m4, "f", 8, 27),
        (28, "f8E8M0FNU", f.float8_e8m0fnu, "f", 8, 28),
        (29, "f4E2M1FN", f.float4_e2m1fn, "f", 4, 29),
    ]
    return tuple(DType(c, s, np.dtype(n), k, b, p) for c, s, n, k, b, p in rows)


ALL: tuple[DType, ...] = _rows()
_BY_CODE = {d.code: d for d in ALL}
_BY_SHORT = {d.short: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL}
_BY_PJRT = {d.pjrt: d for d in ALL}

BOOL = _BY_SHORT["i1"]
I8, I16, I32, I64 = (_BY_SHORT[n] for n in ("i8", "i16", "i32", "i64"))
U8, U16, U32, U64 = (_BY_SHORT[n] for n in ("ui8", "ui16", "ui32", "ui64"))
F16, BF16, F32, F64 = (_BY_SHORT[n] for n in ("f16", "bf16", "f32", "f64"))
C64, C128 = _BY_SHORT["complex<f32>"], _BY_SHORT["complex<f64>"]


def by_code(code: int) -> DType:
    """Return the type with an ISA code.  Raises UnsupportedOp when there is none."""
    return _lookup(_BY_CODE, code, "ISA dtype code")


def by_short(short: str) -> DType:
    """Return the type with an assembly/MLIR name such as ``bf16`` or ``ui32``."""
    return _lookup(_BY_SHORT, short, "element type")


def by_numpy(dtype: Any) -> DType:
    """Return the type of a NumPy dtype, scalar type or dtype name."""
    return _lookup(_BY_NUMPY, np.dtype(dtype), "NumPy dtype")


def by_pjrt(code: int) -> DType:
    """Return the type of a PJRT_Buffer_Type value."""
    return _lookup(_BY_PJRT, code, "PJRT buffer type")


def _lookup(table: dict[Any, DType], key: Any, what: str) -> DType:
    try:
        return table[key]
    except KeyError:
        raise UnsupportedOp(
            f"{what} {key!r} does not exist on this machine; it has "
            + ", ".join(d.short for d in ALL)
        ) from None
