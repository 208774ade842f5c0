"""What the rules of the training kernels share: shapes, products, masks.

A rule writes a kernel as tensor arithmetic, in as many scopes as it wants groups; how
that is cut into blocks is the tile pass's business (`scoped`).  Tensors of a kernel
have one rank: axes that a tensor lacks have one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vkore_jax.dtypes import F32, F64, I32, DType
from vkore_jax.isa import ReduceKind
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.precision import Numerics, convert_operand, numerics


def batch_of(shapes: Sequence[Shape], ranks: Sequence[int]) -> Shape:
    """Return the common leading axes of operands, given their core ranks."""
    leads = [s[: len(s) - r] for s, r in zip(shapes, ranks)]
    return tuple(int(n) for n in np.broadcast_shapes(*leads))


def with_batch(b: Builder, x: Value, core: int, rank: int) -> Value:
    """Give an operand `rank` leading axes, new ones of one element."""
    ones = rank - (len(x.shape) - core)
    return b.reshape(x, (*[1] * ones, *x.shape))


def broadcasting(b: Builder) -> Callable[..., Value]:
    """Return a function that applies a micro-op to operands that broadcast."""

    def do(micro: str, *operands: Value) -> Value:
        shape = tuple(int(n) for n in np.broadcast_shapes(*(x.shape for x in operands)))
        return b.vec(micro, *(fit(b, x, shape) for x in operands))

    return do


def fit(b: Builder, x: Value, shape: Shape) -> Value:
    """Repeat along the axes where `x` has one element."""
    return x if x.shape == shape else b.broadcast(x, shape, tuple(range(len(shape))))


@dataclass(frozen=True)
class Maths:
    """Broadcasting arithmetic and products of one kernel.

    Attributes:
        b: where nodes go.
        how: how the kernel's products are formed.
    """

    b: Builder
    how: Numerics

    @staticmethod
    def of(b: Builder, op: Op, dtype: DType) -> Maths:
        """Return the arithmetic of a composite whose operands are of `dtype`.

        Precision is what the products of its decomposition ask for.
        """
        wide = dtype if dtype is F64 else F32
        dot = op.dot
        assert dot is not None
        return Maths(b, numerics(dot, b.chip, dtype, dtype, wide))

    @property
    def wide(self) -> DType:
        """Type of sums."""
        return self.how.accumulator

    def fit(self, x: Value, shape: Shape) -> Value:
        """Repeat along the axes where `x` has one element."""
        return fit(self.b, x, shape)

    def do(self, micro: str, *operands: Value) -> Value:
        """Apply a micro-op to operands that broadcast."""
        return broadcasting(self.b)(micro, *operands)

    def number(self, value: float, like: Value) -> Value:
        """Return a constant of the type and shape of another value."""
        return self.b.scalar(like.dtype, value, like.shape)

    def times(self, x: Value, factor: float) -> Value:
        """Multiply by a constant."""
        return x if factor == 1 else self.do("mul", x, self.number(factor, x))

    def to(self, x: Value, dtype: DType) -> Value:
        """Convert."""
        return self.b.convert(x, dtype)

    def operand(self, x: Value) -> Value:
        """Return a DRAM tensor in the type that the matrix unit takes."""
        return convert_operand(self.b, x, self.how.operand)

    def factor(self, x: Value, dtype: DType) -> Value:
        """Round to `dtype`, then give what the matrix unit takes."""
        return self.to(self.to(x, dtype), self.how.operand)

    def product(self, lhs: Value, rhs: Value) -> Value:
        """(..., m, k) x (..., k, n) in the accumulation type."""
        return self.b.gemm(lhs, rhs, self.how.accumulator, self.how.strategy)

    def sum(self, x: Value, axis: int) -> Value:
        """Sum along an axis that keeps one element."""
        axis %= len(x.shape)
        return x if x.shape[axis] == 1 else self.b.reduce(x, ReduceKind.SUM, (axis,))

    def lse(self, x: Value, axis: int) -> Value:
        """Log of the sum of exponentials along an axis that keeps one element."""
        axis %= len(x.shape)
        return self.b.reduce(x, ReduceKind.LOGSUMEXP, (axis,))

    def swap(self, x: Value) -> Value:
        """Exchange the last two axes of a DRAM tensor."""
        rank = len(x.shape)
        return self.b.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def not_before(self, shape: Shape, rows: int, cols: int) -> Value:
        """True where the index along `rows` is at least that along `cols`."""
        rank = len(shape)
        i, j = (self.b.iota(I32, shape, a % rank) for a in (rows, cols))
        return self.do("ge", i, j)

    def where(self, which: Value, x: Value, other: float) -> Value:
        """Return `x` where a condition holds, else a number."""
        return self.do("select", self.fit(which, x.shape), x, self.number(other, x))
