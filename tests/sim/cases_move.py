"""Data movement: copies of every view, concat, pad, dynamic slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.sim.builder import ProgramBuilder
from tests.sim.case import SimCase, on_cpu, pool, randoms
from vkore_jax.chips import Chip
from vkore_jax.dtypes import BF16, BOOL, F32, I8, I32, I64, U8, U32, DType, by_short
from vkore_jax.isa import (
    Concat,
    Copy,
    DynamicSlice,
    DynamicUpdate,
    Pad,
    View,
    row_major,
)
from vkore_jax.isa.limits import NUMBER
from vkore_jax.program import Program
from vkore_jax.sim.contract import BITS


def _reread_one(chip: Chip) -> Program:
    """One element as many, and many as one."""
    b = ProgramBuilder(chip)
    x, y = b.arg(F32, ()), b.arg(U8, (4,))
    b.emit(
        Copy(b.result(U8, (2,)), View(x.buffer, U8, 1, (2,), (1,))),
        Copy(b.result(F32, ()), View.dense(y.buffer, F32, ())),
    )
    return b.build()


def _reread_start(chip: Chip) -> Program:
    """The low byte of an i32 is the start."""
    b = ProgramBuilder(chip)
    x, i = b.arg(F32, (7,)), b.arg(I32, ())
    start = View.dense(i.buffer, U8, ())
    b.emit(DynamicSlice(b.result(F32, (2,)), x, (start,)))
    return b.build()


def _no_constant_buffer(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    b.emit(Copy(b.result(F32, (4,)), b.arg(F32, (4,))))
    b.constants += bytes(24)
    return b.build()


def _far_stride(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x = b.arg(F32, (4,))
    far = View(x.buffer, F32, 0, (1, 4), (NUMBER, 1))
    b.emit(Copy(b.result(F32, (1, 4)), far))
    return b.build()


def copy_case(
    id: str,
    shape: Sequence[int],
    view: tuple[int, Sequence[int], Sequence[int]],
    oracle: Callable[[np.ndarray], np.ndarray],
    dtype: DType = F32,
) -> SimCase:
    """Copy the view (offset, shape, strides) of a dense tensor."""
    offset, extents, strides = view

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(dtype, shape)
        src = View(x.buffer, dtype, offset, tuple(extents), tuple(strides))
        b.emit(Copy(b.result(dtype, extents), src))
        return b.build()

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        size = int(np.prod(shape))
        x = pool(rng, dtype, size) if size else randoms(rng, dtype, (0,))
        if dtype is F32 and size > 40:
            x[30] = np.array(0x7F812345, np.uint32).view(np.float32)  # a signalling NaN
            x[31] = np.float32(1e-40)
        return [x.reshape(shape)]

    return SimCase(
        id=f"copy/{id}",
        build=build,
        inputs=inputs,
        tolerance=BITS,
        oracle=lambda x: [oracle(x)],
    )


def _windows(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, 4)


def _reread(chip: Chip) -> Program:
    """The same bytes read as another type of the same width, and a part of them."""
    b = ProgramBuilder(chip)
    x = b.arg(F32, (6, 4))
    b.emit(
        Copy(b.result(U32, (6, 4)), View(x.buffer, U32, 0, (6, 4), (4, 1))),
        Copy(b.result(U8, (24, 4)), View(x.buffer, U8, 0, (24, 4), (4, 1))),
    )
    return b.build()


def _chain(chip: Chip) -> Program:
    """Arena buffers, one address used twice by buffers that do not live together."""
    b = ProgramBuilder(chip)
    x = b.arg(F32, (5, 3))
    t1 = b.temp(F32, (3, 5))
    t2 = b.temp(F32, (5, 3))
    t3 = b.temp(F32, (3, 5), at=b.buffers[t1.buffer].offset)
    b.emit(
        Copy(t1, View(x.buffer, F32, 0, (3, 5), (1, 3))),
        Copy(t2, View(t1.buffer, F32, 0, (5, 3), (1, 5))),
        Copy(t3, View(t2.buffer, F32, 14, (3, 5), (-5, -1))),
        Copy(b.result(F32, (3, 5)), t3),
    )
    return b.build()


def _constants(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    f = b.const(np.array([[1.5, -0.0], [np.inf, 3.0]], np.float32))
    n = b.const(np.arange(5, dtype=np.int8))
    b.emit(Copy(b.result(F32, (2, 2)), f), Copy(b.result(I8, (5,)), n))
    return b.build()


def _concat(axis: int, dtype: DType = F32) -> SimCase:
    shapes = [[(2, 5), (3, 5), (0, 5), (1, 5)], [(4, 2), (4, 0), (4, 3), (4, 1)]][axis]
    total = tuple(
        sum(s[i] for s in shapes) if i == axis else shapes[0][i] for i in range(2)
    )

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        args = [b.arg(dtype, s) for s in shapes]
        flipped = args[0].shape
        args[0] = View(  # the first source runs backwards
            args[0].buffer,
            dtype,
            flipped[0] * flipped[1] - 1,
            flipped,
            tuple(-s for s in row_major(flipped)),
        )
        b.emit(Concat(b.result(dtype, total), tuple(args), axis))
        return b.build()

    return SimCase(
        id=f"concat/axis{axis}-{dtype}",
        build=build,
        inputs=lambda rng: [randoms(rng, dtype, s) for s in shapes],
        tolerance=BITS,
        oracle=lambda *a: [np.concatenate([a[0][::-1, ::-1], *a[1:]], axis)],
    )


def _pad(
    id: str,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
    shape: Sequence[int] = (4, 5),
    dtype: DType = F32,
) -> SimCase:
    out = [
        lo + hi + e + max(e - 1, 0) * i
        for lo, hi, e, i in zip(low, high, shape, interior)
    ]

    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, v = b.arg(dtype, shape), b.arg(dtype, ())
        b.emit(Pad(b.result(dtype, out), x, v, tuple(low), tuple(interior)))
        return b.build()

    def reference(x: Any, v: Any) -> Any:
        import jax

        return jax.lax.pad(x, v, list(zip(low, high, interior)))

    return SimCase(
        id=f"pad/{id}-{dtype}",
        build=build,
        inputs=lambda rng: [randoms(rng, dtype, shape), randoms(rng, dtype, ())],
        tolerance=BITS,
        oracle=on_cpu(reference),
    )


def _slice(id: str, starts: Sequence[int], dtype: DType = I32) -> SimCase:
    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x = b.arg(F32, (7, 6))
        at = tuple(b.arg(dtype, ()) for _ in starts)
        b.emit(DynamicSlice(b.result(F32, (3, 4)), x, at))
        return b.build()

    def reference(x: Any, *at: Any) -> Any:
        i, j = (int(np.clip(int(a), 0, m)) for a, m in zip(at, (4, 2)))
        return [x[i : i + 3, j : j + 4]]

    return SimCase(
        id=f"dynamic_slice/{id}",
        build=build,
        inputs=lambda rng: [
            randoms(rng, F32, (7, 6)),
            *(np.array(s).astype(dtype.numpy) for s in starts),
        ],
        tolerance=BITS,
        oracle=reference,
    )


def _update(id: str, starts: Sequence[int]) -> SimCase:
    def build(chip: Chip) -> Program:
        b = ProgramBuilder(chip)
        x, u = b.arg(F32, (7, 6)), b.arg(F32, (4, 3))
        at = tuple(b.arg(I32, ()) for _ in starts)
        turned = View(u.buffer, F32, 0, (3, 4), (1, 3))
        b.emit(DynamicUpdate(b.result(F32, (7, 6)), x, turned, at))
        return b.build()

    def reference(x: Any, u: Any, *at: Any) -> Any:
        i, j = (int(np.clip(int(a), 0, m)) for a, m in zip(at, (4, 2)))
        out = x.copy()
        out[i : i + 3, j : j + 4] = u.T
        return [out]

    return SimCase(
        id=f"dynamic_update/{id}",
        build=build,
        inputs=lambda rng: [
            randoms(rng, F32, (7, 6)),
            randoms(rng, F32, (4, 3)),
            *(np.array(s, np.int32) for s in starts),
        ],
        tolerance=BITS,
        oracle=reference,
    )


def _empty(chip: Chip) -> Program:
    b = ProgramBuilder(chip)
    x, v, at = b.arg(F32, (0, 3)), b.arg(F32, ()), b.arg(I32, ())
    b.emit(
        Copy(b.result(F32, (3, 0)), View(x.buffer, F32, 0, (3, 0), (1, 3))),
        Pad(b.result(F32, (2, 3)), x, v, (1, 0), (0, 0)),
        DynamicSlice(b.result(F32, (0, 2)), x, (at, at)),
        Concat(b.result(F32, (0, 6)), (x, x), 1),
    )
    return b.build()


CASES = [
    copy_case("dense", (4, 15), (0, (4, 15), (15, 1)), lambda x: x),
    copy_case("transpose", (6, 8), (0, (8, 6), (1, 8)), lambda x: x.T),
    copy_case("transpose-bf16", (6, 8), (0, (8, 6), (1, 8)), lambda x: x.T, BF16),
    copy_case("transpose-i8", (6, 8), (0, (8, 6), (1, 8)), lambda x: x.T, I8),
    copy_case("transpose-i64", (6, 8), (0, (8, 6), (1, 8)), lambda x: x.T, I64),
    copy_case("transpose-bool", (6, 8), (0, (8, 6), (1, 8)), lambda x: x.T, BOOL),
    copy_case(
        "transpose-i4", (6, 8), (0, (8, 6), (1, 8)), lambda x: x.T, by_short("i4")
    ),
    copy_case(
        "transpose-f8",
        (6, 8),
        (0, (8, 6), (1, 8)),
        lambda x: x.T,
        by_short("f8E4M3FN"),
    ),
    copy_case(
        "transpose-complex",
        (6, 8),
        (0, (8, 6), (1, 8)),
        lambda x: x.T,
        by_short("complex<f32>"),
    ),
    copy_case(
        "permute3",
        (2, 5, 6),
        (0, (6, 2, 5), (1, 30, 6)),
        lambda x: x.transpose(2, 0, 1),
    ),
    copy_case("reverse", (6, 8), (47, (6, 8), (-8, -1)), lambda x: x[::-1, ::-1]),
    copy_case("reverse-rows", (6, 8), (40, (6, 8), (-8, 1)), lambda x: x[::-1]),
    copy_case(
        "broadcast-row",
        (48,),
        (0, (5, 48), (0, 1)),
        lambda x: np.broadcast_to(x, (5, 48)).copy(),
    ),
    copy_case(
        "broadcast-column",
        (48,),
        (0, (48, 3), (1, 0)),
        lambda x: np.broadcast_to(x[:, None], (48, 3)).copy(),
    ),
    copy_case(
        "broadcast-scalar",
        (),
        (0, (4, 3), (0, 0)),
        lambda x: np.broadcast_to(x, (4, 3)).copy(),
    ),
    copy_case("slice", (6, 8), (19, (3, 4), (8, 1)), lambda x: x[2:5, 3:7]),
    copy_case("slice-step", (6, 8), (9, (3, 3), (16, 2)), lambda x: x[1::2, 1:6:2]),
    copy_case(
        "slice-step-back", (6, 8), (46, (3, 4), (-16, -2)), lambda x: x[5::-2, 6::-2]
    ),
    copy_case("windows", (48,), (0, (45, 4), (1, 1)), _windows),
    copy_case(
        "windows-back", (48,), (3, (45, 4), (1, -1)), lambda x: _windows(x)[:, ::-1]
    ),
    copy_case("diagonal", (7, 7), (0, (7,), (8,)), lambda x: np.diagonal(x).copy()),
    copy_case(
        "slice-broadcast-transpose",
        (6, 8),
        (2, (4, 3, 6), (1, 0, 8)),
        lambda x: np.broadcast_to(x[:, 2:6].T[:, None, :], (4, 3, 6)).copy(),
    ),
    copy_case("scalar-of", (6, 8), (13, (), ()), lambda x: x[1, 5]),
    copy_case(
        "unit-axes",
        (6, 8),
        (0, (1, 6, 1, 8), (0, 8, 99, 1)),
        lambda x: x[None, :, None],
    ),
    SimCase(
        id="copy/reread",
        build=_reread,
        inputs=lambda rng: [randoms(rng, F32, (6, 4))],
        tolerance=BITS,
        oracle=lambda x: [x.view(np.uint32), x.view(np.uint8).reshape(24, 4)],
    ),
    SimCase(
        id="copy/reread-one-element",
        build=_reread_one,
        inputs=lambda rng: [randoms(rng, F32, ()), randoms(rng, U8, (4,))],
        tolerance=BITS,
        oracle=lambda x, y: [
            np.frombuffer(x.tobytes(), np.uint8)[1:3],
            y.view(np.float32).reshape(()),
        ],
    ),
    SimCase(
        id="dynamic_slice/reread-start",
        build=_reread_start,
        inputs=lambda rng: [randoms(rng, F32, (7,)), np.array(0x0501, np.int32)],
        tolerance=BITS,
        oracle=lambda x, i: [x[1:3]],
    ),
    SimCase(
        id="copy/constants-without-a-buffer",
        build=_no_constant_buffer,
        inputs=lambda rng: [randoms(rng, F32, (4,))],
        tolerance=BITS,
        oracle=lambda x: [x],
    ),
    SimCase(
        id="copy/far-stride-of-one-element",
        build=_far_stride,
        inputs=lambda rng: [randoms(rng, F32, (4,))],
        tolerance=BITS,
        oracle=lambda x: [x.reshape(1, 4)],
    ),
    SimCase(
        id="copy/arena-chain",
        build=_chain,
        inputs=lambda rng: [randoms(rng, F32, (5, 3))],
        tolerance=BITS,
        oracle=lambda x: [x.reshape(-1)[::-1].reshape(3, 5)],
    ),
    SimCase(
        id="copy/constants",
        build=_constants,
        inputs=lambda rng: [],
        tolerance=BITS,
        oracle=lambda: [
            np.array([[1.5, -0.0], [np.inf, 3.0]], np.float32),
            np.arange(5, dtype=np.int8),
        ],
    ),
    _concat(0),
    _concat(1),
    _concat(1, BF16),
    _pad("edges", (1, 2), (3, 0), (0, 0)),
    _pad("interior", (1, 0), (0, 2), (2, 1)),
    _pad("negative", (-1, 2), (1, -2), (0, 0)),
    _pad("negative-interior", (-2, -1), (-1, 3), (1, 2)),
    _pad("trim-all", (-4, 0), (0, 0), (0, 0)),
    _pad("i8", (1, 1), (1, 1), (0, 3), dtype=I8),
    _slice("inside", (2, 1)),
    _slice("clamp-high", (6, 100)),
    _slice("clamp-negative", (-3, 1)),
    _slice("i64", (1 << 40, -(1 << 40)), I64),
    _slice("u8", (200, 1), U8),
    _update("inside", (2, 1)),
    _update("clamp", (100, -5)),
    SimCase(
        id="copy/zero-size",
        build=_empty,
        inputs=lambda rng: [
            np.zeros((0, 3), np.float32),
            np.array(2.5, np.float32),
            np.array(1, np.int32),
        ],
        tolerance=BITS,
        oracle=lambda x, v, at: [
            np.zeros((3, 0), np.float32),
            np.full((2, 3), 2.5, np.float32),
            np.zeros((0, 2), np.float32),
            np.zeros((0, 6), np.float32),
        ],
    ),
]
