"""dot_general as a batched matrix product in the layout that the array reads.

The array reads its left operand with k innermost and its right operand with n
innermost; any other layout costs a transposed copy.  Since C = A B is also
C^T = B^T A^T, and since the order of several contracting axes is free, there are up to
four ways to lay one dot_general out; the cheapest in copied elements is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vkore_jax.dtypes import DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import Strategy, row_major
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.precision import convert_operand, named_algorithm, numerics
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import kinds
from vkore_jax.lowering.views import Layout

rules = RuleSet(__name__)


def honoured_algorithm(op: Op) -> str | None:
    """A named dot algorithm is one that the matrix unit matches or betters: bf16 (1, 3
    or 6 products), tf32 (1 or 3), f16, f32, f64 or float8 operands.
    """
    try:
        named_algorithm(op)
    except UnsupportedOp as error:
        return str(error.args[0])
    return None


@dataclass(frozen=True)
class Dims:
    """Axes of a dot_general: positions in each operand."""

    lhs_batch: Shape
    rhs_batch: Shape
    lhs_contracting: Shape
    rhs_contracting: Shape

    def lhs_free(self, rank: int) -> Shape:
        """Axes of the left operand that stay."""
        taken = self.lhs_batch + self.lhs_contracting
        return tuple(i for i in range(rank) if i not in taken)

    def rhs_free(self, rank: int) -> Shape:
        """Axes of the right operand that stay."""
        taken = self.rhs_batch + self.rhs_contracting
        return tuple(i for i in range(rank) if i not in taken)


@dataclass(frozen=True)
class Side:
    """One operand laid out as (batch..., rows, columns).

    `view` is None when the extents cannot be merged without a copy; the copy is then
    made of `permuted`.
    """

    permuted: Layout
    shape: Shape
    view: Layout | None

    @property
    def cost(self) -> int:
        """Elements that are copied before the array can read it, times four.

        What has contiguous rows the other way round is turned on the chip, block by
        block, without a trip to DRAM: that counts once.
        """
        size = math.prod(self.permuted.shape)
        if self.view is None:
            return 4 * size
        if self.view.has_contiguous_rows:
            return 0
        rank = len(self.view.shape)
        other = self.view.transposed((*range(rank - 2), rank - 1, rank - 2))
        return size if other.has_contiguous_rows else 4 * size

    def value(self, b: Builder) -> Value:
        """Return the operand in its canonical shape."""
        if self.view is not None:
            return b.move(self.view)
        copied = b.move(self.permuted)
        return b.move(Layout(copied, 0, self.shape, row_major(self.shape)))


@rules.lowers(
    "stablehlo.dot_general", requires=(honoured_algorithm,), takes=kinds("biufc")
)
def dot_general(b: Builder, op: Op, lhs: Value, rhs: Value) -> Value:
    """Batched matrix product over any batch and contracting axes."""
    fields = op.fields("dot_dimension_numbers")
    dims = Dims(
        fields.get("lhs_batching_dimensions", ()),
        fields.get("rhs_batching_dimensions", ()),
        fields.get("lhs_contracting_dimensions", ()),
        fields.get("rhs_contracting_dimensions", ()),
    )
    dtype, shape = op.type
    how = numerics(op, b.chip, lhs.dtype, rhs.dtype, dtype)
    lhs = convert_operand(b, lhs, how.operand)
    rhs = convert_operand(b, rhs, how.operand)
    swapped = _wanted_swapped(op, dims, lhs, rhs)
    out = contract(b, lhs, rhs, dims, how.accumulator, how.strategy, swapped)
    return b.convert(b.reshape(out, shape), dtype)


@rules.lowers("stablehlo.dot", requires=(honoured_algorithm,), takes=kinds("biufc"))
def dot(b: Builder, op: Op, lhs: Value, rhs: Value) -> Value:
    """Matrix, vector or mixed product over the last and the first axis."""
    dims = Dims((), (), (len(lhs.shape) - 1,), (0,))
    dtype, shape = op.type
    how = numerics(op, b.chip, lhs.dtype, rhs.dtype, dtype)
    lhs, rhs = b.convert(lhs, how.operand), b.convert(rhs, how.operand)
    out = contract(b, lhs, rhs, dims, how.accumulator, how.strategy, False)
    return b.convert(b.reshape(out, shape), dtype)


def _wanted_swapped(op: Op, dims: Dims, lhs: Value, rhs: Value) -> bool:
    """True when every reader transposes the result to (batch, rhs, lhs)."""
    batch = len(dims.lhs_batch)
    rows = len(dims.lhs_free(len(lhs.shape)))
    cols = len(dims.rhs_free(len(rhs.shape)))
    order = (
        *range(batch),
        *range(batch + rows, batch + rows + cols),
        *range(batch, batch + rows),
    )
    users = op.result_users()
    return bool(users) and all(perm == order for _, perm in users)


def contract(
    b: Builder,
    lhs: Value,
    rhs: Value,
    dims: Dims,
    dtype: DType,
    strategy: Strategy,
    swapped: bool,
) -> Value:
    """Return the product as (batch..., lhs free..., rhs free...) of `dtype`.

    Args:
        b: where the nodes go.
        lhs: left operand, already of the type that is multiplied.
        rhs: right operand, likewise.
        dims: batch and contracting axes.
        dtype: what leaves the accumulators.
        strategy: how the products are formed.
        swapped: the readers transpose the result, so B^T A^T saves their copy.
    """
    lhs_free, rhs_free = dims.lhs_free(len(lhs.shape)), dims.rhs_free(len(rhs.shape))
    batch = tuple(lhs.shape[i] for i in dims.lhs_batch)
    rows = tuple(lhs.shape[i] for i in lhs_free)
    cols = tuple(rhs.shape[i] for i in rhs_free)
    full = (*batch, *rows, *cols)
    if 0 in full:
        return b.empty(dtype, full)
    if any(lhs.shape[i] == 0 for i in dims.lhs_contracting):
        return b.scalar(dtype, 0, full)
    m, n = math.prod(rows), math.prod(cols)
    turn = 4 * math.prod(full) if m > 1 and n > 1 else 0
    best: tuple[int, bool, Side, Side] | None = None
    for lhs_k, rhs_k in _contracting_orders(dims):
        plain = (
            _side(b, lhs, dims.lhs_batch, lhs_free, lhs_k),
            _side(b, rhs, dims.rhs_batch, rhs_k, rhs_free),
        )
        turned = (
            _side(b, rhs, dims.rhs_batch, rhs_free, rhs_k),
            _side(b, lhs, dims.lhs_batch, lhs_k, lhs_free),
        )
        for flip, (left, right) in ((False, plain), (True, turned)):
            cost = left.cost + right.cost + (turn if flip != swapped else 0)
            if best is None or cost < best[0]:
                best = (cost, flip, left, right)
    assert best is not None
    _, flip, left, right = best
    product = b.gemm(left.value(b), right.value(b), dtype, strategy)
    # A batch axis that both operands only repeat is one product, repeated.
    whole = (*batch, *product.shape[len(batch) :])
    product = b.broadcast(product, whole, range(len(whole)))
    if not flip:
        return b.reshape(product, full)
    product = b.reshape(product, (*batch, *cols, *rows))
    order = [
        *range(len(batch)),
        *range(len(batch) + len(cols), len(full)),
        *range(len(batch), len(batch) + len(cols)),
    ]
    return b.transpose(product, order)


def _contracting_orders(dims: Dims) -> Iterator[tuple[Shape, Shape]]:
    pairs = list(zip(dims.lhs_contracting, dims.rhs_contracting))
    seen: set[tuple[tuple[int, int], ...]] = set()
    for position in (0, 1):
        order = tuple(sorted(pairs, key=lambda p: p[position]))
        if order not in seen:
            seen.add(order)
            yield tuple(p[0] for p in order), tuple(p[1] for p in order)


def _side(
    b: Builder, x: Value, batch: Shape, rows: Sequence[int], cols: Sequence[int]
) -> Side:
    layout = b.layout(x).transposed((*batch, *rows, *cols))
    # A batch axis that only repeats the operand is left to the array's broadcast.
    count = len(batch)
    kept = tuple(
        1 if i < count and layout.strides[i] == 0 else e
        for i, e in enumerate(layout.shape)
    )
    layout = layout._replace(shape=kept)
    shape = (
        *kept[:count],
        math.prod(x.shape[i] for i in rows),
        math.prod(x.shape[i] for i in cols),
    )
    return Side(layout, shape, layout.reshaped(shape))
