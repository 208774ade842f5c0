"""Fourier transforms: all kinds, one to three axes, odd, even and prime lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.sim.builder import ProgramBuilder
from tests.sim.case import SimCase, normals, on_cpu
from vkore_jax.chips import Chip
from vkore_jax.dtypes import C64, C128, F32, F64, DType
from vkore_jax.isa import Fft, FftKind
from vkore_jax.program import Program
from vkore_jax.sim.contract import Tolerance, accumulate

HALF = {C64: F32, C128: F64}


def fft_case(
    id: str,
    kind: FftKind,
    batch: Sequence[int],
    lengths: Sequence[int],
    dtype: DType = C64,
) -> SimCase:
    """Transform of standard normal values; `dtype` is the spectrum's type."""
    points = (*batch, *lengths)
    halved = (*points[:-1], lengths[-1] // 2 + 1)
    types = {
        FftKind.FFT: ((dtype, points), (dtype, points)),
        FftKind.IFFT: ((dtype, points), (dtype, points)),
        FftKind.RFFT: ((HALF[dtype], points), (dtype, halved)),
        FftKind.IRFFT: ((dtype, halved), (HALF[dtype], points)),
    }
    source, result = types[kind]

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(*source)
        b.emit(Fft(b.result(*result), x, kind, tuple(lengths)))
        return b.build()

    def reference(x: np.ndarray) -> object:
        import jax

        return jax.lax.fft(x, kind.name, tuple(lengths))

    def bound(inputs: Sequence[np.ndarray]) -> Tolerance:
        # The error of a fast transform grows with the number of rounds, not of terms.
        scale = 1 if kind in (FftKind.FFT, FftKind.RFFT) else 1 / math.prod(lengths)
        total = float(np.abs(inputs[0]).sum()) * scale
        half = HALF[dtype].numpy
        rounds = math.ceil(math.log2(max(2, math.prod(lengths))))
        return accumulate(2 * rounds, total, half)

    return SimCase(
        id=f"fft/{id}",
        build=build,
        inputs=lambda rng: [normals(rng, *source)],
        tolerance=bound,
        oracle=on_cpu(reference),
    )


def _cases() -> list[SimCase]:
    sizes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((), (1,)),
        ((3,), (8,)),
        ((2, 3), (7,)),
        ((), (97,)),
        ((2,), (4, 6)),
        ((1,), (3, 5)),
        ((2,), (2, 3, 4)),
        ((0,), (4,)),
    )
    rows = []
    for kind in FftKind:
        for batch, lengths in sizes:
            name = "x".join(map(str, (*batch, *lengths)))
            rows.append(fft_case(f"{kind.name}-{name}", kind, batch, lengths))
        rows.append(fft_case(f"{kind.name}-wide", kind, (2,), (12,), C128))
    return rows


CASES: tuple[SimCase, ...] = tuple(_cases())
