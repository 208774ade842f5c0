"""The profiles that come with the package.

Array shapes of the Korean chips are not public; a shape here is one that gives the
published peak at the clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vkore_jax.chips.record import Chip

_INT8 = MappingProxyType({"DEFAULT": "int8x2", "HIGH": "int8x3", "HIGHEST": "int8x4"})
_FP16 = MappingProxyType({"DEFAULT": "fp16x1", "HIGH": "fp16x2", "HIGHEST": "fp16x3"})


def _map(**items: Any) -> Mapping[str, Any]:
    return MappingProxyType(items)


TINY = Chip(
    name="tiny",
    description="4x4 array of every type, 16 KiB scratchpad: everything tiles and "
    "spills (tests)",
    clock_hz=100_000_000,
    mxu_rows=4,
    mxu_cols=4,
    matrix_dtypes=("bf16", "f16", "f8E4M3FN", "f8E5M2", "i8"),
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
    mac_rates=_map(i8=2),
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
    sources=_map(
        scratchpad_bytes="FuriosaAI Warboy: 32 MB on chip (public brief)",
        dram_bytes="Rebellions ATOM: 16 GB GDDR6 (public brief)",
        dram_bytes_per_cycle="Rebellions ATOM: 256 GB/s at an assumed 1 GHz",
    ),
)

VK1_BF16 = dataclasses.replace(
    VK1,
    name="vk1-bf16",
    description="vk1 that keeps no f32 array from one program to the next; inside of "
    "one it does",
    storage="bf16",
)

ATOM = dataclasses.replace(
    VK1,
    name="atom",
    description="fp16/int8 chip after Rebellions ATOM",
    matrix_dtypes=("f16", "i8"),
    mac_rates=_map(i8=4),
    scratchpad_bytes=64 * 1024**2,
    precision=_FP16,
    sources=_map(
        matrix_dtypes="Rebellions ATOM: FP16 and INT8 (public brief)",
        mac_rates="128 TOPS int8 (assumed) to 32 TFLOPS fp16",
        mxu_rows="32 TFLOPS fp16 (public brief) at an assumed 1 GHz, assumed square",
        mxu_cols="32 TFLOPS fp16 (public brief) at an assumed 1 GHz, assumed square",
        scratchpad_bytes="Rebellions ATOM: 64 MB on chip (public brief)",
    ),
)

WARBOY = dataclasses.replace(
    VK1,
    name="warboy",
    description="int8-only chip after FuriosaAI Warboy, its two elements as one core",
    clock_hz=2_000_000_000,
    matrix_dtypes=("i8",),
    mac_rates=_map(),
    dram_bytes_per_cycle=33,
    precision=_INT8,
    sources=_map(
        clock_hz="FuriosaAI Warboy: 2 GHz (public brief)",
        matrix_dtypes="FuriosaAI Warboy: INT8 only (public brief)",
        mxu_rows="64 TOPS (public brief) at 2 GHz, assumed square",
        mxu_cols="64 TOPS (public brief) at 2 GHz, assumed square",
        scratchpad_bytes="FuriosaAI Warboy: 32 MB on chip (public brief)",
        dram_bytes_per_cycle="FuriosaAI Warboy: 66 GB/s LPDDR4X (public brief)",
    ),
)

RNGD = dataclasses.replace(
    VK1,
    name="rngd",
    description="bf16/fp8/int8 chip after FuriosaAI RNGD, its eight elements as one "
    "core",
    mxu_cols=8 * 128,
    matrix_dtypes=("bf16", "f8E4M3FN", "f8E5M2", "i8"),
    mac_rates=_map(f8E4M3FN=2, f8E5M2=2, i8=2),
    vector_lanes=8 * 1024,
    scratchpad_bytes=256 * 1024**2,
    accumulator_bytes=8 * 4 * 1024**2,
    dram_bytes=48 * 1024**3,
    dram_bytes_per_cycle=1500,
    core_ops_per_cycle=8.0,
    sources=_map(
        clock_hz="FuriosaAI RNGD: 1 GHz (public brief)",
        matrix_dtypes="FuriosaAI RNGD: BF16, FP8, INT8 (public brief; its INT4 is not "
        "modelled)",
        mac_rates="512 TFLOPS fp8 and 512 TOPS int8 to 256 TFLOPS bf16 (public brief)",
        mxu_rows="256 TFLOPS bf16 (public brief) at 1 GHz, assumed 8 of 128 x 128",
        mxu_cols="256 TFLOPS bf16 (public brief) at 1 GHz, assumed 8 of 128 x 128",
        scratchpad_bytes="FuriosaAI RNGD: 256 MB on chip (public brief)",
        dram_bytes="FuriosaAI RNGD: 48 GB HBM3 (public brief)",
        dram_bytes_per_cycle="FuriosaAI RNGD: 1.5 TB/s (public brief) at 1 GHz",
    ),
)

CHIPS: Mapping[str, Chip] = MappingProxyType(
    {c.name: c for c in (VK1, VK1_BF16, ATOM, WARBOY, RNGD, TINY)}
)
