"""Chip profiles: facts with their source, then derived facts, then invariants.

A profile is data.  Nothing in the compiler or the engines may ask for a chip's name;
they ask for a capability (`matrix_dtypes`, `scratchpad_bytes`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from vkore_jax.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One NPU core.  Every quantity is per core."""

    name: str
    description: str
    clock_hz: int
    mxu_rows: int
    mxu_cols: int
    matrix_dtypes: tuple[str, ...]
    """Element types that the systolic array multiplies natively."""
    vector_lanes: int
    """32-bit lanes of the vector unit; one micro-op per lane and cycle."""
    scratchpad_bytes: int
    scratchpad_align_bytes: int
    accumulator_bytes: int
    dram_bytes: int
    dram_bytes_per_cycle: int
    dram_align_bytes: int
    dma_latency_cycles: int
    core_ops_per_cycle: float
    """Scalar element operations of the control core per cycle."""
    vec_max_insns: int
    """Longest micro-program that the vector sequencer holds."""
    vec_max_operands: int
    """Most tiles that one micro-program reads plus writes."""
    precision: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType(
            {"DEFAULT": "bf16x1", "HIGH": "bf16x3", "HIGHEST": "bf16x6"}
        )
    )
    """JAX precision -> matrix strategy (`isa.Strategy` names)."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Field -> where the number comes from; every other number is assumed."""

    def __post_init__(self) -> None:
        for name in ("scratchpad_align_bytes", "dram_align_bytes"):
            value = getattr(self, name)
            if value <= 0 or value & (value - 1):
                raise InvalidArgument(
                    f"chip {self.name!r}: {name} must be a power of two, got {value!r}"
                )
        for name in ("clock_hz", "mxu_rows", "mxu_cols", "vector_lanes", "dram_bytes"):
            if getattr(self, name) <= 0:
                raise InvalidArgument(
                    f"chip {self.name!r}: {name} must be positive, got "
                    f"{getattr(self, name)!r}"
                )
        needed = 8 * self.mxu_rows * self.mxu_cols * 4
        if self.scratchpad_bytes < needed // 2:
            raise InvalidArgument(
                f"chip {self.name!r}: scratchpad_bytes={self.scratchpad_bytes} cannot "
                f"hold the tiles of one array pass; at least {needed // 2} needed"
            )

    @property
    def peak_macs_per_cycle(self) -> int:
        """Multiply-accumulates per cycle of the systolic array."""
        return self.mxu_rows * self.mxu_cols

    @property
    def peak_flops(self) -> float:
        """Peak matrix FLOP/s (two per multiply-accumulate)."""
        return 2.0 * self.peak_macs_per_cycle * self.clock_hz


TINY = Chip(
    name="tiny",
    description="4x4 array, 16 KiB scratchpad: everything tiles and spills (tests)",
    clock_hz=100_000_000,
    mxu_rows=4,
    mxu_cols=4,
    matrix_dtypes=("bf16", "i8"),
    vector_lanes=4,
    scratchpad_bytes=16 * 1024,
    scratchpad_align_bytes=16,
    accumulator_bytes=4 * 1024,
    dram_bytes=256 * 1024**2,
    dram_bytes_per_cycle=8,
    dram_align_bytes=16,
    dma_latency_cycles=16,
    core_ops_per_cycle=0.25,
    vec_max_insns=1024,
    vec_max_operands=48,
)

VK1 = Chip(
    name="vk1",
    description="bf16/int8 inference chip in the class of ATOM, RNGD and Warboy",
    clock_hz=1_000_000_000,
    mxu_rows=128,
    mxu_cols=128,
    matrix_dtypes=("bf16", "i8"),
    vector_lanes=1024,
    scratchpad_bytes=32 * 1024**2,
    scratchpad_align_bytes=64,
    accumulator_bytes=4 * 1024**2,
    dram_bytes=16 * 1024**3,
    dram_bytes_per_cycle=256,
    dram_align_bytes=64,
    dma_latency_cycles=500,
    core_ops_per_cycle=1.0,
    vec_max_insns=1024,
    vec_max_operands=48,
    sources=MappingProxyType(
        {
            "scratchpad_bytes": "FuriosaAI Warboy: 32 MB on chip (public brief)",
            "dram_bytes": "Rebellions ATOM: 16 GB GDDR6 (public brief)",
            "dram_bytes_per_cycle": "Rebellions ATOM: 256 GB/s at an assumed 1 GHz",
        }
    ),
)

CHIPS: Mapping[str, Chip] = MappingProxyType({c.name: c for c in (VK1, TINY)})
DEFAULT_CHIP = VK1.name


def get_chip(name: str | None = None) -> Chip:
    """Return a profile by name (the default chip for None).

    Raises:
        InvalidArgument: when there is no such profile; the message lists them.
    """
    key = name or DEFAULT_CHIP
    try:
        return CHIPS[key]
    except KeyError:
        raise InvalidArgument(
            f"unknown chip {key!r}; known profiles: {', '.join(sorted(CHIPS))}"
        ) from None
