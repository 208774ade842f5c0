"""Blocks of a convolution: samples, output positions, features.

Samples share nothing, so they are cut first; then whatever makes the array read the
fewest input bytes twice: positions at the edge of a block are seen by its neighbour,
and every block of features sees the whole input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from vkore_jax import isa
from vkore_jax.chips import Chip
from vkore_jax.errors import ResourceExhausted
from vkore_jax.isa import room
from vkore_jax.lowering.ir import Direct


def schedule(node: Direct, chip: Chip) -> Direct:
    """Return a CONV node with its blocks.

    Raises:
        ResourceExhausted: not even one position of one feature fits.
    """
    lhs, rhs = node.operands
    out = node.result
    names = ("strides", "lhs_dilation", "rhs_dilation", "batch_groups")
    blocks = isa.ConvBlocks(
        lhs=lhs,
        rhs=rhs,
        dst=out,
        block_n=max(out.shape[0], 1),
        block_out=tuple(max(n, 1) for n in out.shape[1:-1]),
        block_o=max(out.shape[-1], 1),
        **{name: node.attrs[name] for name in names},
    )

    def staged(blocks: isa.ConvBlocks) -> int:
        return room.conv_staged_bytes(blocks, chip.scratchpad_align_bytes)

    def sums(blocks: isa.ConvBlocks) -> int:
        return room.conv_sum_bytes(blocks, node.attrs["strategy"])

    while (
        staged(blocks) > chip.scratchpad_bytes or sums(blocks) > chip.accumulator_bytes
    ):
        halves = list(_halved(blocks, chip.scratchpad_bytes))
        if not halves:
            raise ResourceExhausted(
                f"{node.loc}: one output of convolution {lhs} * {rhs} needs "
                f"{staged(blocks):,} bytes of scratchpad and {sums(blocks):,} of "
                f"accumulators, chip {chip.name!r} has {chip.scratchpad_bytes:,} and "
                f"{chip.accumulator_bytes:,}; use a smaller window, fewer input "
                "channels or a chip profile with more memory"
            )
        blocks = min(halves, key=isa.ConvBlocks.lhs_bytes)
    attrs = {
        **node.attrs,
        "block_n": blocks.block_n,
        "block_out": blocks.block_out,
        "block_o": blocks.block_o,
        "scratchpad_bytes": staged(blocks),
    }
    return dataclasses.replace(node, attrs=attrs)


def _halved(blocks: isa.ConvBlocks, scratchpad: int) -> Iterator[isa.ConvBlocks]:
    """Yield the schedules with one block halved, in order of preference."""
    fewer = dataclasses.replace(blocks, block_o=-(-blocks.block_o // 2))
    if blocks.block_o > 1 and 2 * blocks.staged_bytes()[1] > scratchpad // 2:
        # The window alone is too large: nothing else makes it smaller.
        yield fewer
        return
    if blocks.block_n > 1:
        yield dataclasses.replace(blocks, block_n=-(-blocks.block_n // 2))
        return
    for i, n in enumerate(blocks.block_out):
        if n > 1:
            out = (*blocks.block_out[:i], -(-n // 2), *blocks.block_out[i + 1 :])
            yield dataclasses.replace(blocks, block_out=out)
    if blocks.block_o > 1:
        yield fewer
