"""Random graphs: whatever shares a group, is tiled or copied, means the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lowering import programs
from tests.lowering.graphs import GraphBuilder, f32, module
from vkore_jax import isa
from vkore_jax.chips import CHIPS
from vkore_jax.lowering import ir
from vkore_jax.lowering.ir import Value

UNARY = ("neg", "abs", "tanh")
BINARY = ("add", "sub", "mul", "max")


def random_graph(seed: int) -> ir.Module:
    """About twenty nodes on tensors of a few related shapes."""
    rng = np.random.default_rng(seed)

    def pick(items):  # type: ignore[no-untyped-def]
        return items[int(rng.integers(len(items)))]

    b_, t, c = (int(v) for v in rng.integers(1, 7, 3))
    x, w, g = f32(b_, t, c), f32(c, c), f32(c)
    b = GraphBuilder(x, w, g)
    full: list[Value] = [x]
    rows: list[Value] = []
    for _ in range(int(rng.integers(6, 22))):
        v = pick(full)
        choice = int(rng.integers(12))
        if choice < 2:
            full.append(b.op(pick(UNARY), v))
        elif choice < 4:
            full.append(b.op(pick(BINARY), v, pick(full)))
        elif choice == 4:
            rows.append(b.sum(v, 2) if rng.integers(2) else b.max(v, 2))
        elif choice == 5 and rows:
            r = pick(rows)
            if rng.integers(2):
                r = b.op(pick(UNARY), r)
                rows.append(r)
            full.append(b.op("sub", v, b.broadcast(r, x.shape, (0, 1))))
        elif choice == 6:
            column = b.sum(v, 0, 1)
            full.append(b.op("mul", v, b.broadcast(column, x.shape, (2,))))
        elif choice == 7:
            flat = b.gemm(b.reshape(v, b_ * t, c), w)
            full.append(b.op("tanh", b.reshape(flat, *x.shape)))
        elif choice == 8:
            full.append(b.op("mul", v, b.broadcast(g, x.shape, (2,))))
        elif choice == 9:
            turned = b.op(pick(UNARY), b.transpose(v, 1, 0, 2))
            full.append(b.transpose(turned, 1, 0, 2))
        elif choice == 10:
            scale = b.sum(v, 0, 1, 2)
            scale = b.op("tanh", scale)
            full.append(b.op("mul", pick(full), b.broadcast(scale, x.shape, ())))
        else:
            both = b.direct(
                isa.Concat, (v, pick(full)), f32(b_, t, 2 * c), axis=2, n_srcs=2
            )
            full.append(b.move(both, x.shape, (2 * t * c, 2 * c, 1), c // 2))
    outs = [full[-1], pick(full), b.transpose(pick(full), 2, 1, 0)]
    return module(b.done(*outs, *rows[-2:]), f"random{seed}")


@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed: int) -> None:
    m = random_graph(seed)
    for chip in CHIPS.values():
        for fuse in (True, False):
            programs.agree(m, chip, fuse, seed, noise=1e-5)
