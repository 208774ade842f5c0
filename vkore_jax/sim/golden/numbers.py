"""Number formats of the golden engine: lifting, rounding, flushing, conversion.

The vector unit computes 16-bit and narrower floats in f32 and rounds every result to
its type (nearest even); 4- and 2-bit integers compute in 8 bits and wrap.  In f32 and
f64 arithmetic, and so in bf16's, subnormal operands and results are flushed to a zero
of their sign; f16's subnormals are normal numbers of f32 and survive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkore_jax import dtypes
from vkore_jax.dtypes import DType


def type_of(x: np.ndarray) -> DType:
    """Return the machine's type of an array."""
    return dtypes.by_numpy(x.dtype)


def lift(x: np.ndarray) -> np.ndarray:
    """Return the values in the type that the lanes compute in."""
    t = type_of(x)
    if t.kind == "f" and t.bits < 32:
        return x.astype(np.float32)
    if t.is_integer and t.bits < 8:
        return x.astype(np.int8 if t.kind == "i" else np.uint8)
    return x


def flush(x: np.ndarray) -> np.ndarray:
    """Replace f32 and f64 subnormals by zeros of their sign."""
    if x.dtype not in (np.float32, np.float64):
        return x
    tiny = np.finfo(x.dtype).smallest_normal
    return np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)


def operand(x: np.ndarray) -> np.ndarray:
    """Return an operand as the lanes see it: lifted and flushed."""
    return flush(lift(x))


def wide(x: np.ndarray) -> np.ndarray:
    """Return an operand with spare precision, for functions that round once.

    f32 and narrower in f64; f64 in the platform's widest float; complex likewise.
    """
    t = type_of(x)
    if t.kind == "c":
        return x.astype(np.complex128 if t.bits == 64 else np.clongdouble)
    return operand(x).astype(np.longdouble if t.bits == 64 else np.float64)


def settle(x: Any, dtype: DType) -> np.ndarray:
    """Round a computed value to a type: once for f32 and f64, through f32 below."""
    x = np.asarray(x)
    if dtype.kind != "f":
        return x.astype(dtype.numpy)
    if dtype.bits == 64:
        return flush(x.astype(np.float64))
    return flush(x.astype(np.float32)).astype(dtype.numpy)


def convert(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert values: the meaning of the micro-op and of every epilogue.

    Float to integer truncates and saturates, NaN gives 0; integer to integer wraps;
    integer to a 16-bit or narrower float rounds through f32; complex to real keeps the
    real part; anything to bool is "not zero".
    """
    t = type_of(x)
    if t is dtype:
        return x.copy()
    if dtype.kind == "b":
        return np.asarray(operand(x) != 0)
    if dtype.kind == "c":
        if t.kind == "c":
            return x.astype(dtype.numpy)
        part = dtypes.F32 if dtype is dtypes.C64 else dtypes.F64
        return convert(x, part).astype(dtype.numpy)
    if t.kind == "c":
        return convert(np.ascontiguousarray(np.real(x)), dtype)
    if t.kind == "f" and dtype.is_integer:
        return _saturate(operand(x).astype(np.float64), dtype)
    if t.kind == "f":
        return settle(operand(x), dtype)
    if dtype.kind == "f":
        return settle(lift(x), dtype)
    return lift(x).astype(dtype.numpy)


def _saturate(x: np.ndarray, dtype: DType) -> np.ndarray:
    signed = dtype.kind == "i"
    low = -(1 << (dtype.bits - 1)) if signed else 0
    high = (1 << (dtype.bits - signed)) - 1
    work = np.int64 if signed else np.uint64
    inside = (x >= low) & (x < float(high + 1))
    out = np.where(inside, x, 0).astype(work)
    out = np.where(np.isnan(x) | inside, out, np.where(x < 0, work(low), work(high)))
    return out.astype(dtype.numpy)


def total_order_key(x: np.ndarray) -> np.ndarray:
    """Return integers that order floats as IEEE 754 totalOrder does.

    -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN, by payload among NaNs.
    """
    t = type_of(x)
    raw = np.ascontiguousarray(x).view(f"u{t.itemsize}").reshape(x.shape)
    bits = raw.view(f"i{t.itemsize}").astype(np.int64)
    if t.short == "f8E8M0FNU":  # no sign bit
        return raw.astype(np.int64)
    if t.bits < 8 * t.itemsize:  # a sub-byte type: move its sign bit to the top
        shift = 8 * t.itemsize - t.bits
        bits = (raw << shift).view(f"i{t.itemsize}").astype(np.int64)
    width = 8 * t.itemsize
    flip = np.int64((1 << (width - 1)) - 1)
    key = np.where(bits < 0, bits ^ flip, bits)
    # The one NaN of the FNUZ types has the bits of -0: with a sign, so it comes first.
    return np.where(np.isnan(x), -flip - 2, key) if "FNUZ" in t.short else key


def reduce_precision(x: np.ndarray, exponent: int, mantissa: int) -> np.ndarray:
    """Round to a float format of fewer bits, as XLA's `reduce-precision` does.

    Rounds the mantissa to nearest even on the bit pattern; exponents beyond the
    format's range become infinity, those below it zero (no subnormals); NaN stays.
    """
    layout = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
    t = type_of(x)
    if t.short not in layout:
        return settle(reduce_precision(lift(x), exponent, mantissa), t)
    exp_bits, man_bits = layout[t.short]
    unsigned = np.dtype(f"u{t.itemsize}")
    raw = np.ascontiguousarray(x).view(unsigned).reshape(x.shape)
    one = unsigned.type(1)
    bits = raw
    if mantissa < man_bits:
        drop = unsigned.type(man_bits - mantissa)
        last = one << drop
        bias = (raw >> drop & one) + (last >> one) - one
        bits = (raw + bias) & ~(last - one)
    if exponent < exp_bits:
        mask = unsigned.type(((1 << exp_bits) - 1) << man_bits)
        middle = (1 << (exp_bits - 1)) - 1
        reach = (1 << (exponent - 1)) - 1
        sign = bits & unsigned.type(1 << (exp_bits + man_bits))
        level = bits & mask
        over = level > unsigned.type((middle + reach) << man_bits)
        under = level <= unsigned.type((middle - reach) << man_bits)
        bits = np.where(over, sign | mask, np.where(under, sign, bits))
    out = bits.astype(unsigned).view(t.numpy).reshape(x.shape)
    return np.where(np.isnan(lift(x)), x, out).astype(t.numpy)
