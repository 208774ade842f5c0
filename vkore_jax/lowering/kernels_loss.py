"""Cross-entropy over vocabulary tiles, and the embedding's gradient as a product.

Logits exist in the scratchpad only, for some positions and one tile of the vocabulary:

    loss:  z = x w^T (+ b); lse and the target's logit are accumulated over the
           vocabulary, which is the K axis
    grad:  z again, dz = exp(z - lse) weight - [target] g; dx = dz w is accumulated
           over the vocabulary, dw = dz^T x and db are made tile by tile

With so many positions that dx does not fit the accumulators the gradient is two groups,
one that accumulates dx over the vocabulary and one that accumulates dw over positions.

The gradient of a lookup is a product with a one-hot matrix that the vector unit makes
on the spot: the chip has no scatter-add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.kernels import Maths, batch_of, with_batch
from vkore_jax.lowering.op import Op

LOSS = (2, 2, 1, 1)
LOSS_BACKWARD = (1, 2, 2, 1, 1, 1)
LOOKUP_BACKWARD = (2, 1)


def loss_fits(shapes: Sequence[Shape]) -> bool:
    """True when the batch of the logits is that of the whole call."""
    return _fits(shapes, LOSS, (0, 1))


def loss_backward_fits(shapes: Sequence[Shape]) -> bool:
    """True when the batch of the logits is that of the whole call."""
    return _fits(shapes, LOSS_BACKWARD, (1, 2))


def lookup_backward_fits(shapes: Sequence[Shape]) -> bool:
    """True when there is something to add up."""
    return not any(0 in s for s in shapes)


def _fits(shapes: Sequence[Shape], ranks: Sequence[int], pair: Sequence[int]) -> bool:
    if any(0 in s for s in shapes):
        return False
    some = batch_of([shapes[i] for i in pair], [ranks[i] for i in pair])
    return some == batch_of(shapes, ranks)


@dataclass(frozen=True)
class _Loss:
    """One call: positions m, channels c, vocabulary v; logits are (..., m, v)."""

    m: Maths
    batch: Shape
    vocab: int
    vocab_axis: int
    z_loss: float
    ignore: int | None
    rows: Value
    """(..., m, c), in the type that is multiplied."""
    table: Value
    """(..., v, c) or (..., c, v), likewise."""
    ids: Value
    """(..., m, 1)."""
    bias: tuple[Value, ...]
    """(..., 1, v), if there is one."""

    @staticmethod
    def of(
        b: Builder,
        op: Op,
        batch: Shape,
        x: Value,
        w: Value,
        targets: Value,
        bias: Sequence[Value],
    ) -> _Loss:
        """Bring the operands into the kernel's shapes."""
        m, params, rank = Maths.of(b, op, x.dtype), op.params(), len(batch)
        ignore = params.get("ignore_index")
        axis = int(params["vocab_axis"])
        lines = [with_batch(b, v, 1, rank) for v in bias]
        return _Loss(
            m=m,
            batch=batch,
            vocab=w.shape[axis - 2],
            vocab_axis=axis,
            z_loss=float(params["z_loss"]),
            ignore=None if ignore is None else int(ignore),
            rows=m.operand(with_batch(b, x, 2, rank)),
            table=m.operand(with_batch(b, w, 2, rank)),
            ids=column(b, targets, rank),
            bias=tuple(b.reshape(v, (*v.shape[:-1], 1, v.shape[-1])) for v in lines),
        )

    def logits(self) -> Value:
        """X w^T + b."""
        m = self.m
        columns = self.table if self.vocab_axis else m.swap(self.table)
        z = m.product(self.rows, columns)
        for b in self.bias:
            z = m.do("add", z, m.to(b, z.dtype))
        return z

    def hits(self, z: Value) -> Value:
        """True at the target's place of every row."""
        words = self.m.b.iota(self.ids.dtype, z.shape, len(z.shape) - 1)
        return self.m.do("eq", words, self.ids)

    def counted(self, x: Value) -> Value:
        """X where the target counts, 0 where it is ignored, NaN where it is wrong."""
        m, ids = self.m, self.ids
        wrong = m.do("lt", ids, m.number(0, ids))
        if self.vocab < 1 << (ids.dtype.bits - (ids.dtype.kind == "i")):
            high = m.do("ge", ids, m.number(self.vocab, ids))
            wrong = m.do("or", wrong, high)
        x = m.do("select", wrong, m.number(math.nan, x), x)
        if self.ignore is None:
            return x
        kept = m.do("ne", ids, m.number(self.ignore, ids))
        return m.do("select", kept, x, m.number(0, x))


def column(b: Builder, x: Value, rank: int) -> Value:
    """(..., m) -> (..., m, 1) with `rank` leading axes."""
    x = with_batch(b, x, 1, rank)
    return b.reshape(x, (*x.shape, 1))


def softmax_cross_entropy(
    b: Builder, op: Op, x: Value, w: Value, targets: Value, *bias: Value
) -> tuple[Value, ...]:
    """Logits, their log-sum-exp and the target's, accumulated over the vocabulary."""
    batch = batch_of([v.shape for v in (x, w, targets, *bias)], LOSS)
    at = _Loss.of(b, op, batch, x, w, targets, bias)
    m = at.m
    with b.scoped("cross_entropy"):
        z = at.logits()
        lse = m.lse(z, -1)
        picked = m.sum(m.where(at.hits(z), z, 0), -1)
        loss = m.do("sub", lse, picked)
        if at.z_loss:
            loss = m.do("add", loss, m.times(m.do("mul", lse, lse), at.z_loss))
        loss = at.counted(loss)
    shape = (*batch, x.shape[-2])
    return b.reshape(loss, shape), b.reshape(lse, shape)


def softmax_cross_entropy_bwd(
    b: Builder,
    op: Op,
    dloss: Value,
    x: Value,
    w: Value,
    targets: Value,
    lse: Value,
    *bias: Value,
) -> tuple[Value, ...]:
    """The logits again; dx is accumulated over the vocabulary, dw made tile by tile."""
    shapes = [v.shape for v in (dloss, x, w, targets, lse, *bias)]
    batch = batch_of(shapes, LOSS_BACKWARD)
    at = _Loss.of(b, op, batch, x, w, targets, bias)
    m = at.m
    base, outer = (column(b, v, len(batch)) for v in (lse, dloss))

    def slopes() -> Value:
        z = at.logits()
        g = weight = at.counted(outer)
        if at.z_loss:
            slope = m.times(base, 2 * at.z_loss)
            weight = m.do("mul", g, m.do("add", slope, m.number(1, slope)))
        p = m.do("mul", m.do("exp", m.do("sub", z, base)), weight)
        return m.do("sub", p, m.where(at.hits(z), m.fit(g, z.shape), 0))

    def for_rows(dz: Value) -> Value:
        table = m.swap(at.table) if at.vocab_axis else at.table
        return m.to(m.product(m.factor(dz, x.dtype), table), x.dtype)

    def for_table(dz: Value) -> list[Value]:
        factor = m.factor(dz, x.dtype)
        if at.vocab_axis:
            dw = m.product(m.swap(at.rows), factor)
        else:
            dw = m.product(m.swap(factor), at.rows)
        return [m.to(dw, w.dtype), *(m.to(m.sum(dz, -2), v.dtype) for v in bias)]

    if _one_group(b, x, w):
        with b.scoped("cross_entropy_bwd"):
            dz = slopes()
            dx, made = for_rows(dz), for_table(dz)
    else:
        with b.scoped("cross_entropy_bwd.dx"):
            dx = for_rows(slopes())
        with b.scoped("cross_entropy_bwd.dw"):
            made = for_table(slopes())
    dw, *sums = made
    return dx, dw, *(b.reshape(v, (*batch, at.vocab)) for v in sums)


def _one_group(b: Builder, x: Value, w: Value) -> bool:
    """True when all positions fit a block: dx in the accumulators, x and dx beside."""
    chip = b.chip
    rows, channels = x.shape[-2:]
    tile = chip.mxu_cols * max(rows, channels)
    sums = 4 * (rows * channels + tile)
    staged = 2 * rows * channels * (x.dtype.itemsize + x.dtype.itemsize)
    staged += 4 * rows * channels + 8 * tile * 4
    return sums <= chip.accumulator_bytes and staged <= chip.scratchpad_bytes


def embedding_bwd(b: Builder, op: Op, dy: Value, ids: Value) -> Value:
    """One-hot rows made by the vector unit, multiplied with dy in the same group."""
    batch = batch_of([dy.shape, ids.shape], LOOKUP_BACKWARD)
    m, vocab = Maths.of(b, op, dy.dtype), int(op.params()["vocab"])
    rank = len(batch)
    rows = m.operand(with_batch(b, dy, 2, rank))
    ids = with_batch(b, ids, 1, rank)
    line = b.reshape(ids, (*ids.shape[:-1], 1, ids.shape[-1]))
    with b.scoped("embedding.dtable"):
        shape = (*ids.shape[:-1], vocab, ids.shape[-1])
        words = b.iota(ids.dtype, shape, rank)
        hot = m.factor(m.do("eq", words, line), dy.dtype)
        table = m.to(m.product(hot, rows), dy.dtype)
    return table
