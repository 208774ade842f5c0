"""The record of a chip profile, its derived facts and its invariants."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from vkore_jax import dtypes
from vkore_jax.dtypes import DType
from vkore_jax.errors import InvalidArgument
from vkore_jax.isa import Strategy
from vkore_jax.isa.strategies import STRATEGIES

LEVELS = ("DEFAULT", "HIGH", "HIGHEST")
"""JAX's precisions, the least first."""

STORAGE = ("f64", "f32", "bf16")
"""Widest float that a profile may keep in DRAM between programs (`Chip.storage`)."""

MATRIX_DTYPES = ("bf16", "f16", "f8E4M3FN", "f8E5M2", "i8")
"""Element types that an array may multiply: those that strategies need."""


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
    mac_rates: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Multiply-accumulates of a cell of the array per cycle, by element type; 1 for a
    type that is not named."""
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
    storage: str = "f64"
    """Widest float that parameters and results of a program may have, single elements
    excepted.  With `bf16` what lives in DRAM from program to program (weights,
    optimizer state, batches) has at most 16 bits; inside a program the scratchpad and
    the accumulators keep f32, and what is spilled is spilled bit by bit."""
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
                raise self._error(f"{name} must be a power of two, got {value!r}")
        for x in dataclasses.fields(self):
            value = getattr(self, x.name)
            if isinstance(value, int | float) and not 0 < value < math.inf:
                raise self._error(f"{x.name} must be positive, got {value!r}")
        needed = 8 * self.mxu_rows * self.mxu_cols * 4
        if self.scratchpad_bytes < needed // 2:
            raise self._error(
                f"scratchpad_bytes={self.scratchpad_bytes} cannot hold the tiles of "
                f"one array pass; at least {needed // 2} needed"
            )
        self._one_of("storage", (self.storage,), STORAGE)
        self._one_of("matrix_dtypes", self.matrix_dtypes, MATRIX_DTYPES)
        self._one_of("mac_rates", self.mac_rates, self.matrix_dtypes)
        for dtype, rate in self.mac_rates.items():
            if rate <= 0:
                raise self._error(f"mac_rates.{dtype} must be positive, got {rate!r}")
        self._one_of(
            "sources", self.sources, [x.name for x in dataclasses.fields(self)]
        )
        self._check_precision()

    def _check_precision(self) -> None:
        self._one_of("precision", self.precision, LEVELS)
        missing = [level for level in LEVELS if level not in self.precision]
        if missing:
            raise self._error(f"precision must name {', '.join(LEVELS)}; no {missing}")
        names = [s.name.lower() for s in self.strategies]
        for level, strategy in self.precision.items():
            self._one_of(f"precision.{level}", (strategy,), names)

    def _one_of(self, name: str, found: Iterable[str], allowed: Iterable[str]) -> None:
        allowed = list(allowed)
        for item in found:
            if item not in allowed:
                raise self._error(
                    f"{name}: {item!r} is not one of {', '.join(allowed)}"
                    + nearest(item, allowed)
                )

    def _error(self, message: str) -> InvalidArgument:
        return InvalidArgument(f"chip {self.name!r}: {message}")

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Strategies that the array can do for operands of any float type."""
        native = (Strategy.INT8, Strategy.FP8)
        return tuple(
            s
            for s, facts in STRATEGIES.items()
            if facts.needs in self.matrix_dtypes and s not in native
        )

    @property
    def storage_bits(self) -> int:
        """Bits of the widest float that may be kept in DRAM."""
        return dtypes.by_short(self.storage).bits

    def stores(self, dtype: DType, shape: Sequence[int]) -> bool:
        """Return whether an array may be a parameter or result of a program."""
        parts = {"f": 1, "c": 2}.get(dtype.kind)
        if parts is None or math.prod(shape) <= 1:
            return True
        return dtype.bits // parts <= self.storage_bits

    def mac_rate(self, dtype: str) -> int:
        """Return multiply-accumulates per cell and cycle for an element type."""
        return self.mac_rates.get(dtype, 1)

    def array_cycles(self, macs: Mapping[str, int]) -> float:
        """Return the least cycles of the array for multiply-accumulates by type.

        Args:
            macs: element type -> multiply-accumulates (`cost.Account.array_macs`).
        """
        cycles = (count / self.mac_rate(dtype) for dtype, count in macs.items())
        return sum(cycles) / self.peak_macs_per_cycle

    @property
    def peak_macs_per_cycle(self) -> int:
        """Multiply-accumulates per cycle of the systolic array at rate 1."""
        return self.mxu_rows * self.mxu_cols

    @property
    def peak_flops(self) -> float:
        """Peak matrix FLOP/s at rate 1 (two per multiply-accumulate)."""
        return 2.0 * self.peak_macs_per_cycle * self.clock_hz

    @property
    def digest(self) -> str:
        """Eight hex digits that change with any fact but the sources."""
        facts = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        facts["sources"] = None
        text = repr(sorted((k, str(v)) for k, v in facts.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or nothing when no name is close."""
    names = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower(), list(names), 1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""
