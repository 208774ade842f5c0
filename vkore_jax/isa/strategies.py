"""The facts of the precision strategies: one table for engines, verifier, cost, docs.

A strategy says how a contraction of floats is formed from products that the array can
multiply.  Each operand element becomes `parts` numbers of the array's type; `products`
names the pairs of parts (left, right) that are multiplied and summed.

Segments.  The scaled strategies cut the contracted axis into segments of `segment`
elements from its beginning.  A row (of the left operand; a column of the right one) of
one segment has one scale, a power of two: 2^e with e = floor(log2(max |x|)) over its
finite elements, not below `LEAST_EXPONENT`.  The feeder of the matrix unit finds the
maximum when it reads the tile, so scales cost no DRAM traffic and no command; applying
them to a sum is an addition of exponents.  A K axis of a group must therefore cut at
multiples of the segment, and no scale depends on the schedule.  In a
convolution every tap of the window starts new segments along the channels (of its
feature group), so a scale belongs to one pixel and is the same under every tap.

Slices.  A sliced int8 strategy writes an operand in units of 2^(e - 6), as s0 + s1 2^-7
+ s2 2^-14 ...: each slice is what is left, in its own unit, rounded to the nearest
integer (ties to the even one) and clipped to +-127.  Pairs of slices whose numbers add
up to the same form a level; its products over one segment are integers, and so is their
sum, exact, below 2^24.  Levels below the number of slices are formed and added in f32,
the highest number first; the sum is multiplied by both units, and rounded once more
only where it leaves f32's normal numbers.  Segments are added in f32 in their order.
These are all roundings: both engines give the same bits.  An element that is not finite
has no part in this; its row (column) of the segment gives what IEEE arithmetic makes of
it and the signs of the finite elements.

Error.  With A the largest finite magnitude of an element's segment, an operand's
parts add up to the operand within `relative` x |x| + `floor` x A, and the products that
a strategy leaves out are at most `left_out` x A x B a term, B being the largest
magnitude of the other operand's segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vkore_jax.isa.enums import Strategy

SEGMENT = 128
"""Elements of K that share a scale: the depth of one pass over a 128-high array."""

FP8_SEGMENT = 32
"""The block of the OCP microscaling formats (MX v1.0)."""

LEAST_EXPONENT = -98
"""Smallest exponent of a scale: keeps the last bit of four slices, 2**(e - 27), a
normal f32 number."""

INT8_SHIFT = 6
"""A sliced segment's largest magnitude is in [2**6, 2**7) units of the first slice."""

FP16_SHIFT = 14
"""A scaled fp16 segment has its largest magnitude in [2**14, 2**15]; what rounds below
fp16's normal numbers, 2**-14, is 0."""

FP8_SHIFT = 7
"""A scaled fp8 segment has its largest magnitude in [2**7, 2**8]."""

Products = tuple[tuple[int, int], ...]


def _triangle(parts: int) -> Products:
    """Return the products whose parts' numbers add up to less than `parts`.

    The smallest come first: small sums lose less when they are added first.
    """
    pairs = [(i, j) for i in range(parts) for j in range(parts) if i + j < parts]
    return tuple(sorted(pairs, key=lambda p: (-sum(p), p[1])))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about one strategy.

    Attributes:
        needs: element type that the array must multiply; empty for none.
        products: pairs of parts that are multiplied, in the order of the sum.
        parts: numbers that one operand element becomes.
        segment: elements of K that share a scale, 0 without scales.
        bits: significant bits of an operand (sliced integers: of the largest element
            of a segment).
        relative: operand error relative to the element.
        floor: operand error relative to the largest magnitude of the segment.
        left_out: products left out, relative to both segments' largest magnitudes.
        passes: times that the array is filled for one product of matrices.
        meaning: one line for the manual.
    """

    needs: str
    meaning: str
    products: Products = ((0, 0),)
    parts: int = 1
    segment: int = 0
    bits: int
    relative: float = 0.0
    floor: float = 0.0
    left_out: float = 0.0

    @property
    def passes(self) -> int:
        """Passes over the array: one for each partial product."""
        return len(self.products)


def _bf16(parts: int) -> Facts:
    return Facts(
        needs="bf16",
        parts=parts,
        products=_triangle(parts),
        bits=8 * parts,
        relative=2.0 ** (-8 * parts),
        left_out=(0.0, 2.0**-16, 3 * 2.0**-24)[parts - 1],
        meaning=f"{parts} bf16 part{'s'[: parts > 1]}, f32 sums",
    )


def _fp16(parts: int) -> Facts:
    # Part i holds 11 bits at 2**(-11 i); an element too small for part 0 begins at a
    # later one, so the last part's quantum is the floor.
    quantum = 2.0 ** (-FP16_SHIFT - 11 * (parts - 1))
    return Facts(
        needs="f16",
        parts=parts,
        products=_triangle(parts),
        segment=SEGMENT,
        bits=min(24, 11 * parts),
        relative=2.0 ** (-11 * parts),
        floor=quantum / 2.0**FP16_SHIFT,
        left_out=(0.0, 2.0**-22, 3 * 2.0**-33)[parts - 1],
        meaning=f"power-of-two scales, {parts} fp16 part{'s'[: parts > 1]}, f32 sums",
    )


def _sliced(slices: int) -> Facts:
    # Slice i > 0 is at most half a unit of the slice before, 2**(-7 i) of the scale;
    # where that one saturates (x within 2**-7 of twice the scale) a whole unit, but
    # there the largest magnitude is almost twice the scale.  The last remainder, the
    # error, likewise.
    saturated = 128 / 127
    left = sum(
        2.0 ** (-7 * (i + j))
        for i in range(slices)
        for j in range(slices)
        if i + j >= slices
    )
    return Facts(
        needs="i8",
        parts=slices,
        products=_triangle(slices),
        segment=SEGMENT,
        bits=min(24, 7 * slices),
        floor=saturated * 2.0 ** (-7 * slices),
        left_out=saturated**2 * left,
        meaning=f"power-of-two scales, {slices} int8 slice{'s'[: slices > 1]}, exact "
        "i32 sums of a segment",
    )


STRATEGIES: Mapping[Strategy, Facts] = MappingProxyType(
    {
        Strategy.LANES: Facts(
            needs="", bits=24, meaning="vector lanes in the operand type"
        ),
        Strategy.BF16X1: _bf16(1),
        Strategy.BF16X3: _bf16(2),
        Strategy.BF16X6: _bf16(3),
        Strategy.INT8: Facts(needs="i8", bits=8, meaning="i8 operands, i32 sums"),
        Strategy.FP16: Facts(
            needs="f16",
            bits=11,
            relative=2.0**-11,
            meaning="f16 operands, f32 sums; f32 operands overflow",
        ),
        Strategy.FP16X1: _fp16(1),
        Strategy.FP16X2: _fp16(2),
        Strategy.FP16X3: _fp16(3),
        Strategy.INT8X1: _sliced(1),
        Strategy.INT8X2: _sliced(2),
        Strategy.INT8X3: _sliced(3),
        Strategy.INT8X4: _sliced(4),
        Strategy.FP8: Facts(
            needs="f8E4M3FN", bits=4, meaning="float8 operands, f32 sums"
        ),
        Strategy.FP8X1: Facts(
            needs="f8E4M3FN",
            segment=FP8_SEGMENT,
            bits=4,
            relative=2.0**-4,
            floor=2.0 ** (-10 - FP8_SHIFT),
            meaning="power-of-two scales for blocks of 32, e4m3 operands, f32 sums",
        ),
    }
)
"""Every strategy's facts."""


def runs(extent: int, run: int, segment: int) -> tuple[tuple[int, int], ...]:
    """Return (first, end) of the segments of a contracted axis.

    Args:
        extent: elements of the axis.
        run: elements after which segments start anew (a tap's channels).
        segment: elements that share a scale; 0 for the whole axis.
    """
    if not extent or not segment:
        return ((0, extent),)
    step = min(segment, run)
    return tuple(
        (i, min(i + step, first + run))
        for first in range(0, extent, run)
        for i in range(first, first + run, step)
    )
