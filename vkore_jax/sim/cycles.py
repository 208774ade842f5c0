"""Modelled time in closed form: a bound from the work of each unit, no simulation."""

from __future__ import annotations

from collections import defaultdict

from vkore_jax.chips import Chip
from vkore_jax.cost import Work, blocks_of, works
from vkore_jax.isa import Block, Loop, Unit


def work_cycles(work: Work, chip: Chip) -> float:
    """Return the cycles that a unit needs for its work, at its full rate."""
    return max(
        (work.bytes_in + work.bytes_out) / chip.dram_bytes_per_cycle,
        work.macs / (chip.peak_macs_per_cycle * chip.mac_rate(work.operand)),
        work.vector_ops / chip.vector_lanes,
        work.core_ops / chip.core_ops_per_cycle,
        # Assumed: the layout engine turns blocks at the rate of the DRAM.
        work.turned / chip.dram_bytes_per_cycle,
    )


def cycles(block: Block, chip: Chip) -> list[float]:
    """Return a lower bound of the cycles of each command of a block.

    The units of one command overlap perfectly, commands follow each other; each begins
    with one DRAM latency.  Loops count all their trips, dynamic bodies once.
    """
    found: list[float] = []
    for located in block:
        command = located.cmd
        units: dict[Unit, float] = defaultdict(float)
        for _, work in works(command):
            units[work.unit] += work_cycles(work, chip)
        trips = command.trips if isinstance(command, Loop) else 1
        inner = sum(sum(cycles(b, chip)) for b in blocks_of(command))
        longest = max(units.values(), default=0)
        found.append(chip.dma_latency_cycles + longest + trips * inner)
    return found
