"""Convolution in the fixed layout of the array; dimension numbers become views."""

from __future__ import annotations

from vkore_jax.isa import Conv
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.contraction import Dims, contract, honoured_algorithm
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.precision import convert_operand, numerics
from vkore_jax.lowering.registry import RuleSet
from vkore_jax.lowering.requirements import kinds

rules = RuleSet(__name__)


def _positions(labels: str, ends: tuple[str, str]) -> tuple[int, int, Shape]:
    """Return the positions of two named axes and of the spatial axes 0, 1, ..."""
    names = [n.strip() for n in labels.split(",")]
    spatial = sorted((n for n in names if n.isdigit()), key=int)
    return (
        names.index(ends[0]),
        names.index(ends[1]),
        tuple(names.index(n) for n in spatial),
    )


@rules.lowers(
    "stablehlo.convolution", requires=(honoured_algorithm,), takes=kinds("biufc")
)
def convolution(b: Builder, op: Op, lhs: Value, rhs: Value) -> Value:
    """Convolution: any layout, strides, padding, dilations, reversal, groups."""
    text = op.source("dimension_numbers")
    labels = text[text.index("<") + 1 : text.rindex(">")]
    image, _, rest = labels.partition("]x[")
    window, _, result = rest.partition("]->[")
    n, c, spatial = _positions(image.strip("[]"), ("b", "f"))
    i, o, taps = _positions(window.strip("[]"), ("i", "o"))
    out_n, out_c, out_spatial = _positions(result.strip("[]"), ("b", "f"))
    dtype, shape = op.type
    rank = len(spatial)
    how = numerics(op, b.chip, lhs.dtype, rhs.dtype, dtype)
    if 0 in lhs.shape or 0 in rhs.shape:
        return b.scalar(dtype, 0, shape)
    lhs = b.transpose(convert_operand(b, lhs, how.operand), (n, *spatial, c))
    rhs = b.transpose(convert_operand(b, rhs, how.operand), (*taps, i, o))
    order = (out_n, *out_spatial, out_c)
    fixed = tuple(shape[p] for p in order)
    groups = op.int("feature_group_count", 1), op.int("batch_group_count", 1)
    if rank == 0 and groups == (1, 1):
        dims = Dims((), (), (1,), (0,))
        out = contract(b, lhs, rhs, dims, how.accumulator, how.strategy, False)
    else:
        low, high = op.pairs("padding", rank)
        ones = (1,) * rank
        backwards = op.ints("window_reversal", (0,) * rank)
        attrs = {
            "strides": op.ints("window_strides", ones),
            "pad_low": low,
            "pad_high": high,
            "lhs_dilation": op.ints("lhs_dilation", ones),
            "rhs_dilation": op.ints("rhs_dilation", ones),
            "reversal": tuple(int(r) for r in backwards),
            "feature_groups": groups[0],
            "batch_groups": groups[1],
            "strategy": how.strategy,
        }
        (out,) = b.direct(Conv, ((how.accumulator, fixed),), (lhs, rhs), attrs)
    inverse = tuple(order.index(p) for p in range(len(order)))
    return b.convert(b.transpose(out, inverse), dtype)
