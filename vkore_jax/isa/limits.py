"""The limits of the machine that no chip changes: what descriptors and counters hold.

The decoder and the verifier read them here.  Within them (and within a chip's
memories) every engine can run a program with the memory that the chip has: whatever
an engine forms in between (patches of a convolution, positions of a sort, an edge
before it is trimmed) is bounded by a tensor that the verifier has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

RANK = 32
NESTING = 96
NUMBER = 2**40
BLOCKS = 2**32
TRIPS = 2**63 - 1

LIMITS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "axes of a view, a tile, a window or a grid": (
            f"{RANK}",
            "what engines put together from two of them stays below NumPy's 64",
        ),
        "blocks inside blocks": (
            f"{NESTING}",
            "walks of nested blocks stay within Python's and MLIR's stacks",
        ),
        "magnitude of an extent, stride, offset, edge, gap, window or dilation": (
            "2^40",
            "sums and byte addresses of them fit 64 bits",
        ),
        "blocks of a group's grid": ("2^32", "the sequencer's counter"),
        "iterations of a LOOP": ("2^63 - 1", "a signed counter"),
        "bytes that a view presents, empty axes counted as one": (
            "the chip's DRAM",
            "repeated elements (stride 0) count as often as they are presented",
        ),
        "elements that a tile stands for, empty axes counted as one": (
            "as many as the chip's DRAM has bytes",
            "what is stored in the narrowest type may be computed in the widest",
        ),
        "bytes of a tensor with its edges and gaps (PAD, CONV, windows), before any "
        "is trimmed, and of a window with its gaps": (
            "the chip's DRAM",
            "engines may form it",
        ),
        "end of a buffer in its segment": ("the chip's DRAM", "addresses"),
    }
)
"""What is limited: the limit, and why.  A table of the manual."""
