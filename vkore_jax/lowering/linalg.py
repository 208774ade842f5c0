"""Small dense factorisations as loops of element code and row reductions.

JAX lowers `geqrf` and `householder_product` to custom calls named ``Qr`` and
``ProductOfElementaryHouseholderReflectors``; StableHLO has `cholesky` and
`triangular_solve`.  All products here run on the vector lanes in the operand type, not
on the array: factorisations do not survive bf16 operands.

Reference: Golub and Van Loan, Matrix Computations, 4th ed., 3.1, 4.2, 5.2; storage as
in LAPACK's xGEQRF.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from vkore_jax.dtypes import C64, F32, F64, I32
from vkore_jax.isa import DynamicSlice, ReduceKind
from vkore_jax.lowering import ir
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.custom_calls import PREFIX
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op, TensorType
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import attribute_in, kinds

rules = RuleSet(__name__)

FACTORED = kinds("fc", least_bits=32)
SOLVED = kinds("fc", least_bits=16)

Body = Callable[[Builder, Value, tuple[Value, ...]], Sequence[Value]]


def counted(b: Builder, trips: int, starts: Sequence[Value], body: Body) -> list[Value]:
    """Emit a loop: ``for j in range(trips): carry = body(b, j, carry)``."""
    if trips == 0:
        return list(starts)
    carries = (b.scalar(I32, 0), *starts)
    types = [TensorType(v.dtype, v.shape) for v in carries]
    test = b.child(loop=True)
    held = test.params(types)
    cond = test.graph(held, [test.vec("lt", held[0], test.scalar(I32, trips))])
    inner = b.child(loop=True)
    params = inner.params(types)
    outs = body(inner, params[0], params[1:])
    after = inner.vec("add", params[0], inner.scalar(I32, 1))
    loop = inner.graph(params, [after, *outs])
    results = b.emit(ir.While, carries, types, cond=cond, body=loop, trips=trips)
    return list(results[1:])


def _line(b: Builder, x: Value, j: Value, axis: int) -> Value:
    """Return row (axis -2) or column (axis -1) `j`; the axis keeps extent 1."""
    at = axis % len(x.shape)
    sizes = tuple(1 if i == at else e for i, e in enumerate(x.shape))
    zero = b.scalar(I32, 0)
    starts = [j if i == at else zero for i in range(len(x.shape))]
    counts = {"starts": len(starts)}
    types = ((x.dtype, sizes),)
    (out,) = b.direct(DynamicSlice, types, (x, *starts), {}, counts)
    return out


def _spread(b: Builder, x: Value, shape: ir.Shape) -> Value:
    return b.broadcast(x, shape, range(len(shape)))


def _where(
    b: Builder, compare: str, j: Value, axis: int, on_true: Value, on_false: Value
) -> Value:
    """Choose where ``index along axis <compare> j``."""
    shape = on_true.shape
    index = b.iota(I32, shape, axis % len(shape))
    return b.select(b.vec(compare, index, b.broadcast(j, shape, ())), on_true, on_false)


def _zero(b: Builder, like: Value) -> Value:
    return b.scalar(like.dtype, 0, like.shape)


def _real(b: Builder, x: Value) -> Value:
    if x.dtype.kind != "c":
        return x
    return b.vec("real", x, dtype=F32 if x.dtype is C64 else F64)


def _conj(b: Builder, x: Value) -> Value:
    if x.dtype.kind != "c":
        return x
    real = _real(b, x)
    imag = b.vec("neg", b.vec("imag", x, dtype=real.dtype))
    return b.vec("complex", real, imag, dtype=x.dtype)


def _square(b: Builder, x: Value) -> Value:
    """Return the squared magnitude, real."""
    if x.dtype.kind != "c":
        return b.vec("mul", x, x)
    real = _real(b, x)
    imag = b.vec("imag", x, dtype=real.dtype)
    return b.vec("add", b.vec("mul", real, real), b.vec("mul", imag, imag))


def _over(b: Builder, x: Value, divisor: Value) -> Value:
    """Divide by real numbers, part by part."""
    if x.dtype.kind != "c":
        return b.vec("div", x, divisor)
    parts = (b.vec(part, x, dtype=divisor.dtype) for part in ("real", "imag"))
    return b.vec("complex", *(b.vec("div", p, divisor) for p in parts), dtype=x.dtype)


def _unit(b: Builder, x: Value) -> Value:
    """Return a power of two by which columns can be divided to have squares.

    As `vkore_jax.linalg.common.unit` of each column's largest part: 1 for all but very
    small and very large columns, so that ordinary results keep their bits.
    """
    parts = [x]
    if x.dtype.kind == "c":
        real = _real(b, x)
        parts = [real, b.vec("imag", x, dtype=real.dtype)]
    sizes = [b.vec("abs", p) for p in parts]
    size = sizes[0] if len(sizes) == 1 else b.vec("max", *sizes)
    size = b.reduce(size, ReduceKind.MAX, (len(x.shape) - 2,))
    limit = 2.0 ** (int(ml_dtypes.finfo(size.dtype.numpy).maxexp) // 3)

    def all_(number: float) -> Value:
        return b.scalar(size.dtype, number, size.shape)

    large = b.vec("gt", size, all_(limit))
    power = b.select(large, all_(limit * limit), all_(1))
    small = b.vec("lt", size, all_(1 / limit))
    return b.select(small, all_(1 / limit / limit), power)


def _outer_update(b: Builder, x: Value, column: Value, row: Value) -> Value:
    """Return ``x - column row``."""
    product = b.vec("mul", _spread(b, column, x.shape), _spread(b, row, x.shape))
    return b.vec("sub", x, product)


def _reflect(b: Builder, x: Value, v: Value, tau: Value) -> Value:
    """Return ``(I - tau v v^H) x``."""
    rows = len(x.shape) - 2
    w = b.vec("mul", _spread(b, _conj(b, v), x.shape), x)
    w = b.reduce(w, ReduceKind.SUM, (rows,))
    return _outer_update(b, x, b.vec("mul", _spread(b, tau, v.shape), v), w)


@rules.lowers(PREFIX + "Qr", takes=FACTORED)
def qr(b: Builder, op: Op, a: Value) -> tuple[Value, Value]:
    """Householder QR: R above, reflectors below the diagonal, and their factors.

    Column j with x = a[j:, j], alpha = x[0]: beta = -sign(Re alpha) |x|,
    tau = (beta - alpha) / beta, v = (1, x[1:] / (alpha - beta)), H = I - tau v v^H,
    and H^H is applied.  A column that is real and zero below its first element has
    tau = 0.  Columns whose squares would vanish or overflow are scaled meanwhile, as in
    LAPACK's xLARFG.
    """
    m, n = a.shape[-2:]
    batch = a.shape[:-2]
    count = min(m, n)
    taus = b.scalar(a.dtype, 0, (*batch, count))
    if a.size == 0:
        return a, taus

    def step(c: Builder, j: Value, carry: tuple[Value, ...]) -> Sequence[Value]:
        x, factors = carry
        column = _line(c, x, j, -1)
        zero = _zero(c, column)
        scale = _unit(c, _where(c, "ge", j, -2, column, zero))
        scaled = _over(c, column, _spread(c, scale, column.shape))
        alpha = _line(c, scaled, j, -2)
        tail = _where(c, "gt", j, -2, scaled, zero)
        square = c.reduce(_square(c, tail), ReduceKind.SUM, (len(x.shape) - 2,))
        total = c.vec("add", square, _square(c, alpha))
        norm = c.vec("sqrt", total)
        none = c.vec("eq", square, _zero(c, square))
        if a.dtype.kind == "c":
            imag = c.vec("imag", alpha, dtype=norm.dtype)
            none = c.vec("and", none, c.vec("eq", imag, _zero(c, imag)))
        real = _real(c, alpha)
        flip = c.vec("ge", real, _zero(c, real))
        beta = c.select(flip, c.vec("neg", norm), norm)
        length = c.select(none, real, beta)
        beta = c.convert(length, a.dtype)
        one = c.scalar(a.dtype, 1, alpha.shape)
        divisor = c.select(none, _real(c, one), length)
        tau = _over(c, c.vec("sub", beta, alpha), divisor)
        tau = c.select(none, _zero(c, tau), tau)
        pivot = c.select(none, one, c.vec("sub", alpha, beta))
        v = c.vec("div", tail, _spread(c, pivot, tail.shape))
        ones = c.scalar(a.dtype, 1, v.shape)
        full = _where(c, "eq", j, -2, ones, v)
        updated = _where(c, "gt", j, -1, _reflect(c, x, full, _conj(c, tau)), x)
        kept = c.convert(c.vec("mul", length, scale), a.dtype)
        stored = _where(c, "eq", j, -2, _spread(c, kept, v.shape), v)
        stored = _where(c, "lt", j, -2, column, stored)
        spread = _spread(c, stored, x.shape)
        factor = _spread(c, c.reshape(tau, (*batch, 1)), factors.shape)
        return (
            _where(c, "eq", j, -1, spread, updated),
            _where(c, "eq", j, -1, factor, factors),
        )

    packed, factors = counted(b, count, (a, taus), step)
    return packed, factors


@rules.lowers(
    PREFIX + "ProductOfElementaryHouseholderReflectors",
    takes=FACTORED,
)
def householder_product(b: Builder, op: Op, a: Value, taus: Value) -> Value:
    """Q of a packed QR: H_0 H_1 ... applied to the first columns of the identity."""
    count = taus.shape[-1]
    if a.size == 0:
        return a
    rows, cols = len(a.shape) - 2, len(a.shape) - 1
    diagonal = b.vec("eq", b.iota(I32, a.shape, rows), b.iota(I32, a.shape, cols))
    eye = b.convert(diagonal, a.dtype)

    def step(c: Builder, i: Value, carry: tuple[Value, ...]) -> Sequence[Value]:
        j = c.vec("sub", c.scalar(I32, count - 1), i)
        column = _line(c, a, j, -1)
        ones = c.scalar(a.dtype, 1, column.shape)
        v = _where(c, "gt", j, -2, column, _zero(c, column))
        v = _where(c, "eq", j, -2, ones, v)
        tau = c.reshape(_line(c, taus, j, -1), (*a.shape[:-2], 1, 1))
        return (_reflect(c, carry[0], v, tau),)

    (q,) = counted(b, count, (eye,), step)
    return q


@rules.lowers("stablehlo.cholesky", takes=SOLVED)
def cholesky(b: Builder, op: Op, a: Value) -> Value:
    """Cholesky factor of the lower or upper triangle (outer-product form).

    A matrix that is not positive definite gives NaN everywhere, as LAPACK's failure
    does in JAX: the least pivot (or NaN) goes through the loop with the factor.
    """
    lower = op.flag("lower")
    axes = list(range(len(a.shape)))
    swap = [*axes[:-2], axes[-1], axes[-2]] if len(axes) >= 2 else axes
    if a.size == 0:
        return a
    work = a if lower else _conj(b, b.transpose(a, swap))

    def step(c: Builder, j: Value, carry: tuple[Value, ...]) -> Sequence[Value]:
        x, factor, least = carry
        column = _line(c, x, j, -1)
        square = _real(c, _line(c, column, j, -2))
        pivot = c.convert(c.vec("sqrt", square), a.dtype)
        scaled = c.vec("div", column, _spread(c, pivot, column.shape))
        scaled = _where(c, "ge", j, -2, scaled, _zero(c, column))
        row = _conj(c, c.transpose(scaled, swap))
        stored = _where(c, "eq", j, -1, _spread(c, scaled, x.shape), factor)
        return _outer_update(c, x, scaled, row), stored, c.vec("min", least, square)

    real = F32 if a.dtype is C64 else F64 if a.dtype.kind == "c" else a.dtype
    least = b.scalar(real, np.inf, (*a.shape[:-2], 1, 1))
    _, out, least = counted(b, a.shape[-1], (work, _zero(b, a), least), step)
    positive = _spread(b, b.vec("gt", least, _zero(b, least)), out.shape)
    out = b.select(positive, out, b.scalar(a.dtype, np.nan, out.shape))
    return out if lower else _conj(b, b.transpose(out, swap))


@rules.lowers(
    "stablehlo.triangular_solve",
    takes=SOLVED,
    requires=(
        attribute_in(
            "transpose_a", ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), "NO_TRANSPOSE"
        ),
    ),
)
def triangular_solve(b: Builder, op: Op, a: Value, rhs: Value) -> Value:
    """Solution of a triangular system by substitution.

    Every form becomes L X = B with L lower: transposing turns X op(A) = B into
    op(A)^T X^T = B^T, and reversing both axes turns an upper matrix into a lower one.
    An adjoint is the transpose of the conjugate.
    """
    axes = list(range(len(a.shape)))
    swap = [*axes[:-2], axes[-1], axes[-2]]
    rows, cols = axes[-2], axes[-1]
    left = op.flag("left_side")
    turned = (op.word("transpose_a", "NO_TRANSPOSE") != "NO_TRANSPOSE") == left
    lower = op.flag("lower") != turned
    unit = op.flag("unit_diagonal")
    if rhs.size == 0:
        return rhs
    if op.word("transpose_a") == "ADJOINT":
        a = _conj(b, a)
    matrix = b.transpose(a, swap) if turned else a
    x = rhs if left else b.transpose(rhs, swap)
    if not lower:
        matrix, x = b.reverse(matrix, (rows, cols)), b.reverse(x, (rows,))

    def step(c: Builder, j: Value, carry: tuple[Value, ...]) -> Sequence[Value]:
        (now,) = carry
        column = _line(c, matrix, j, -1)
        solved = _line(c, now, j, -2)
        if not unit:
            pivot = _line(c, column, j, -2)
            solved = c.vec("div", solved, _spread(c, pivot, solved.shape))
        below = _where(c, "gt", j, -2, column, _zero(c, column))
        updated = _outer_update(c, now, below, solved)
        return (_where(c, "eq", j, -2, _spread(c, solved, now.shape), updated),)

    (x,) = counted(b, a.shape[-1], (x,), step)
    if not lower:
        x = b.reverse(x, (rows,))
    return x if left else b.transpose(x, swap)
