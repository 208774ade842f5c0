"""Fourier transforms: one command of the control core."""

from __future__ import annotations

from vkore_jax.dtypes import C64, C128, F32, F64
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import Fft
from vkore_jax.isa.enums import FftKind
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import only

rules = RuleSet(__name__)

TRANSFORMED = only((F32, F64, C64, C128))


@rules.lowers("stablehlo.fft", takes=TRANSFORMED)
def fft(b: Builder, op: Op, x: Value) -> Value:
    """Fourier transform (FFT, IFFT, RFFT, IRFFT) of one to three trailing axes."""
    lengths = op.ints("fft_length")
    if x.size == 0:
        return b.scalar(op.type.dtype, 0, op.type.shape)
    if 0 in lengths:
        raise UnsupportedOp(f"a Fourier transform of no points: lengths {lengths}")
    attrs = {"kind": FftKind[op.word("fft_type")], "lengths": lengths}
    (out,) = b.direct(Fft, (op.type,), (x,), attrs)
    return out
