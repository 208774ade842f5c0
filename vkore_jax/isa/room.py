"""What a schedule occupies on the chip.

One arithmetic for the compiler, which chooses blocks, the verifier, which checks them,
and golden, which lays them out.
"""

from __future__ import annotations

from vkore_jax.dtypes import DType
from vkore_jax.isa.commands import ConvBlocks
from vkore_jax.isa.enums import ReduceKind, Strategy

ARGS = frozenset({ReduceKind.ARGMAX, ReduceKind.ARGMIN})
"""Reductions that find an index, too."""
INDEX_BYTES = 8
"""Accumulator bytes of an index."""


def slot_bytes(block_bytes: int, align: int) -> int:
    """Return the distance of a tile's slots: a full block, rounded up to alignment."""
    return -(-block_bytes // align) * align


def sum_bytes(how: Strategy | ReduceKind, dtype: DType) -> int:
    """Return the accumulator bytes of one element of a product or reduction.

    Args:
        how: the product's strategy, or what is reduced.  LOGSUMEXP keeps a maximum and
            a sum, the reductions in `ARGS` a value and its index.
        dtype: type of what is multiplied (of the left operand) or reduced.
    """
    wide = max(4, dtype.itemsize)
    if isinstance(how, Strategy):
        return wide if how is Strategy.LANES else 4
    if how is ReduceKind.LOGSUMEXP:
        return 2 * wide
    return wide + INDEX_BYTES if how in ARGS else wide


def conv_staged_bytes(blocks: ConvBlocks, align: int) -> int:
    """Return the scratchpad bytes of a convolution: two slots of lhs, rhs and dst."""
    return sum(slot_bytes(2 * n, align) for n in blocks.staged_bytes())


def conv_sum_bytes(blocks: ConvBlocks, strategy: Strategy) -> int:
    """Return the accumulator bytes of one block of a convolution."""
    return blocks.sums * sum_bytes(strategy, blocks.lhs.dtype)
