"""Attention and its gradient: scores live in the scratchpad only.

Forward, one group over batch, heads and query blocks; all keys of a row are in a block:

    s = q k^T,  lse = log sum exp(s),  y = exp(s - lse) v

Backward, one group over batch and key heads that walks the queries (the K axis) and
computes the scores again from lse; dk and dv stay in the accumulators:

    p = exp(s - lse),  dp = dy v^T,  ds = p (dp - delta) scale
    dq = ds k,  dv = sum p^T dy,  dk = sum ds^T q

The matrix unit has no transposed read: k^T, v^T, p^T and ds^T are turned on the chip.
With so many keys that a row block of scores (or dk and dv) does not fit, both become
two groups without any tensor that is whole along the keys; scores are formed twice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.kernels import Maths, batch_of, with_batch
from vkore_jax.lowering.op import Op

FORWARD = (3, 3, 3, 3)
BACKWARD = (3, 3, 3, 3, 3, 2, 3)


def forward_fits(shapes: Sequence[Shape]) -> bool:
    """True when the batch of the scores is that of the whole call."""
    return _fits(shapes, FORWARD, (0, 1))


def backward_fits(shapes: Sequence[Shape]) -> bool:
    """True when the batch of the scores is that of the whole call."""
    return _fits(shapes, BACKWARD, (1, 2)) and _fits(shapes, BACKWARD, (0, 3))


def _fits(shapes: Sequence[Shape], ranks: Sequence[int], pair: Sequence[int]) -> bool:
    if any(0 in s for s in shapes):
        return False
    some = batch_of([shapes[i] for i in pair], [ranks[i] for i in pair])
    return some == batch_of(shapes, ranks)


@dataclasses.dataclass(frozen=True)
class _Heads:
    """Operands of one call as (batch..., g, r, rows, columns)."""

    m: Maths
    batch: Shape
    groups: int
    repeats: int
    causal: bool
    scale: float

    def queries(self, x: Value) -> Value:
        """(..., t, h, d) -> (..., g, r, t, d)."""
        x = with_batch(self.m.b, x, 3, len(self.batch))
        *lead, t, _, d = x.shape
        x = self.m.b.reshape(x, (*lead, t, self.groups, self.repeats, d))
        n = len(lead)
        return self.m.b.transpose(x, (*range(n), n + 1, n + 2, n, n + 3))

    def keys(self, x: Value) -> Value:
        """(..., s, g, d) -> (..., g, 1, s, d)."""
        x = with_batch(self.m.b, x, 3, len(self.batch))
        *lead, s, g, d = x.shape
        x = self.m.b.reshape(x, (*lead, s, g, 1, d))
        n = len(lead)
        return self.m.b.transpose(x, (*range(n), n + 1, n + 2, n, n + 3))

    def statistic(self, x: Value) -> Value:
        """(..., h, t) -> (..., g, r, t, 1)."""
        x = with_batch(self.m.b, x, 2, len(self.batch))
        *lead, _, t = x.shape
        return self.m.b.reshape(x, (*lead, self.groups, self.repeats, t, 1))

    def mask(self, mask: Sequence[Value]) -> Value | None:
        """(..., 1 or h, t, s) -> (..., 1 or g, 1 or r, t, s)."""
        if not mask:
            return None
        x = with_batch(self.m.b, mask[0], 3, len(self.batch))
        *lead, h, t, s = x.shape
        pair = (1, 1) if h == 1 else (self.groups, self.repeats)
        return self.m.b.reshape(x, (*lead, *pair, t, s))

    def rows(self, x: Value) -> Value:
        """(..., g, r, t, d) -> (..., t, h, d)."""
        n = len(self.batch)
        x = self.m.b.transpose(x, (*range(n), n + 2, n, n + 1, n + 3))
        *lead, t, g, r, d = x.shape
        return self.m.b.reshape(x, (*lead, t, g * r, d))

    def scores(self, lhs: Value, rhs: Value, mask: Value | None) -> Value:
        """Scaled scores (..., t, s), -inf where the query does not see the key."""
        m = self.m
        s = m.times(m.product(lhs, rhs), self.scale)
        if self.causal:
            s = m.where(m.not_before(s.shape, -2, -1), s, -math.inf)
        return s if mask is None else m.where(mask, s, -math.inf)


def _heads(b: Builder, op: Op, q: Value, k: Value, batch: Shape) -> _Heads:
    params = op.params()
    groups = k.shape[-2]
    return _Heads(
        Maths.of(b, op, q.dtype),
        batch,
        groups,
        q.shape[-2] // groups,
        bool(params["causal"]),
        float(params["scale"]),
    )


def attention(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """Scores, softmax and the product with the values in one group."""
    q, k, v, *rest = operands
    shapes = [x.shape for x in operands]
    at = _heads(b, op, q, k, batch_of(shapes, FORWARD))
    m, mask = at.m, at.mask(rest)
    queries, keys, values = (
        m.operand(x) for x in (at.queries(q), at.keys(k), at.keys(v))
    )

    def softened(s: Value) -> Value:
        lse = m.lse(s, -1)
        # +inf makes every probability of a query that sees no key zero.
        blind = m.do("eq", lse, m.number(-math.inf, lse))
        return m.do("select", blind, m.number(math.inf, lse), lse)

    def mixed(s: Value, lse: Value) -> Value:
        p = m.factor(m.do("exp", m.do("sub", s, lse)), v.dtype)
        return m.to(m.product(p, values), q.dtype)

    def scores() -> Value:
        return at.scores(queries, m.swap(keys), mask)

    if b.chip.accumulator_bytes >= 4 * b.chip.mxu_rows * k.shape[-3]:
        with b.scoped("attention"):
            s = scores()
            lse = softened(s)
            y = mixed(s, lse)
    else:
        # A row of scores does not fit: form them twice, by key blocks.
        with b.scoped("attention.lse"):
            lse = softened(scores())
        with b.scoped("attention.y"):
            y = mixed(scores(), lse)
    h, t = q.shape[-2], q.shape[-3]
    return at.rows(y), b.reshape(lse, (*at.batch, h, t))


def attention_bwd(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """One group over query blocks that accumulates dk and dv (two for many keys)."""
    dy, q, k, v, y, lse, *rest = operands
    shapes = [x.shape for x in operands]
    at = _heads(b, op, q, k, batch_of(shapes, BACKWARD))
    m, mask = at.m, at.mask(rest)
    queries, keys, values, cotangents = (
        m.operand(x) for x in (at.queries(q), at.keys(k), at.keys(v), at.queries(dy))
    )
    outer, result, stat = at.queries(dy), at.queries(y), at.statistic(lse)

    def delta_() -> Value:
        wide = (m.to(x, m.wide) for x in (outer, result))
        return m.sum(m.do("mul", *wide), -1)

    def slopes(delta: Value) -> tuple[Value, Value]:
        """Probabilities and the scores' gradient, as factors of products."""
        s = at.scores(queries, m.swap(keys), mask)
        p = m.do("exp", m.do("sub", s, stat))
        dp = m.product(cotangents, m.swap(values))
        ds = m.times(m.do("mul", p, m.do("sub", dp, delta)), at.scale)
        return m.factor(p, v.dtype), m.factor(ds, q.dtype)

    def for_queries(ds: Value) -> Value:
        return m.to(m.product(ds, keys), q.dtype)

    def for_keys(p: Value, ds: Value) -> tuple[Value, Value]:
        dv = m.sum(m.product(m.swap(p), cotangents), -3)
        dk = m.sum(m.product(m.swap(ds), queries), -3)
        return m.to(dk, k.dtype), m.to(dv, v.dtype)

    width = at.repeats * (k.shape[-1] + v.shape[-1]) + b.chip.mxu_rows
    if b.chip.accumulator_bytes >= 4 * k.shape[-3] * width:
        with b.scoped("attention_bwd"):
            p, ds = slopes(delta_())
            dq = for_queries(ds)
            dk, dv = for_keys(p, ds)
    else:
        with b.scoped("attention_bwd.dq"):
            delta = delta_()
            dq = for_queries(slopes(delta)[1])
        with b.scoped("attention_bwd.dkv"):
            dk, dv = for_keys(*slopes(delta))
    return at.rows(dq), at.rows(dk), at.rows(dv)
