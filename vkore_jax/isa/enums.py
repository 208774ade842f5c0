"""Small enumerations of the ISA: units, strategies, reductions, segments."""

from __future__ import annotations

from enum import IntEnum


class Unit(IntEnum):
    """The engines of the chip; the ledger counts commands for each."""

    MXU = 0
    """Systolic array: GEMM and CONV."""
    VPU = 1
    """Vector unit: element micro-programs and row reductions."""
    DMA = 2
    """Transfers between DRAM and scratchpad, row-contiguous copies."""
    LAYOUT = 3
    """Layout engine: transposes and other element-granular copies."""
    CORE = 4
    """Control core: what has no engine (slow), and control flow."""
    LINK = 5
    """Chip-to-chip links."""
    HOST = 6
    """A user's own Python callback on the host."""


class Segment(IntEnum):
    """Where a DRAM buffer lives."""

    ARGUMENT = 0
    RESULT = 1
    CONSTANT = 2
    ARENA = 3


class Strategy(IntEnum):
    """How the matrix unit (or the lanes) multiplies operands.

    Of the scaled strategies (FP16X1 to FP8X1 but FP8) `isa/strategies.py` has the
    segments, the scales and the error.  In all of them an infinite or NaN element is
    not scaled or split: it takes part in the sums as IEEE arithmetic has it, and the
    largest magnitude is that of the finite elements.
    """

    LANES = 0
    """Multiply-add on the vector lanes in the operand type: exact for integers
    (wrapping), slow, for types that the array does not take.  Integers accumulate in
    the operand type and are converted when they leave."""
    BF16X1 = 1
    """f32 operands rounded to bf16 (nearest even), products summed in f32."""
    BF16X3 = 2
    """Operands split into two bf16 parts; three partial products summed in f32.  A
    non-finite operand is not split: its low part is 0."""
    BF16X6 = 3
    """Operands split into three bf16 parts; six partial products summed in f32."""
    INT8 = 4
    """i8 x i8 products summed exactly in i32 (wrapping)."""
    FP16 = 5
    """Operands in f16, products summed in f32.  f32 operands are rounded: beyond the
    range to infinity, below f16's normal numbers to 0; f16 operands are taken as they
    are, subnormals included."""
    FP16X1 = 6
    """f32 operands scaled by a power of two for each segment (see below), rounded to
    f16, products summed in f32 and scaled back."""
    FP16X2 = 7
    """Scaled operands split into two f16 parts, the second one times 2**11; three
    partial products."""
    FP16X3 = 8
    """Scaled operands split into three f16 parts; six partial products."""
    INT8X1 = 9
    """Scaled operands in one i8 slice: 7 bits and a sign; see INT8X2."""
    INT8X2 = 10
    """Ozaki's scheme.  f32 operands scaled by a power of two for each segment and cut
    into two i8 slices of 7 bits: the first is x * 2**(6 - e) rounded (nearest even)
    and saturated to +-127, each next one the remainder times 2**7 likewise.  Slice
    products are summed exactly in i32 over a segment, then in f32, smallest first, and
    scaled.  Three products."""
    INT8X3 = 11
    """Three slices, six products."""
    INT8X4 = 12
    """Four slices, ten products: f32 quality."""
    FP8 = 13
    """float8 operands as they are, products summed in f32."""
    FP8X1 = 14
    """Operands scaled by a power of two for blocks of 32 elements of K and rounded to
    e4m3 (subnormals kept), products summed in f32 and scaled back."""


class ReduceKind(IntEnum):
    """Monoids that the vector unit reduces with.

    SUM and PROD of 16-bit floats accumulate in f32 and round once (or leave as f32).
    MAX and MIN return NaN when any element is NaN; of nothing, the identity.  ARGMAX
    and ARGMIN give value and index: the first of equal elements, and the first NaN
    when there is one.  LOGSUMEXP gives log(sum(exp(x))); the partial result of some
    elements is their maximum and the sum of their exp(x - maximum), in f32 or f64, so
    it can be accumulated over K (Milakov & Gimelshein, arXiv 1805.02867).  Where the
    maximum is infinite nothing is subtracted: of -inf only, and of nothing, it is -inf.
    """

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AND = 4
    OR = 5
    XOR = 6
    ARGMAX = 7
    ARGMIN = 8
    LOGSUMEXP = 9


class FftKind(IntEnum):
    """Fourier transforms; the last transformed axis is the one that real kinds halve.

    Forward transforms use exp(-2 pi i jk / n) unscaled, inverse ones
    exp(+2 pi i jk / n) and the factor 1 / n of every axis.
    """

    FFT = 0
    """Complex to complex."""
    IFFT = 1
    """Complex to complex, inverse."""
    RFFT = 2
    """Real to complex: n / 2 + 1 elements of the last axis leave."""
    IRFFT = 3
    """Complex to real, inverse: n / 2 + 1 elements come in; the imaginary parts of
    element 0 and, for even n, of element n / 2 are not read in the last step."""


class Phase(IntEnum):
    """When a stage of a group runs, if the group has a K axis."""

    BODY = 0
    """On every block, K steps included."""
    TAIL = 1
    """Once per block of the other axes, after the last K step."""
