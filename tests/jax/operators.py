"""Random programs out of the steps of each family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.jax.arithmetic import (
    arg,
    bit_reduction,
    conv,
    cumulative,
    dot,
    einsum,
    fft,
    layer_norm,
    pair_reduction,
    reduction,
    searchsorted,
    softmax,
    sort,
    sort_keys,
    sort_pairs,
    top_k,
    window,
    window_of,
)
from tests.jax.elementwise import (
    binary,
    bitcast,
    boolean,
    compare,
    complex_binary,
    complex_unary,
    convert,
    exact_unary,
    integer_binary,
    integer_unary,
    unary,
    where,
)
from tests.jax.flow import control_flow, nest, random_numbers
from tests.jax.generate import Generator, Program
from tests.jax.movement import (
    broadcast,
    concatenate,
    dynamic_slice,
    dynamic_update,
    index,
    pad,
    reshape,
    reverse,
    roll,
    scatter,
    stack,
    take,
    take_along,
    take_pairs,
    transpose,
)

Operator = Callable[[Generator], Any]


STRUCTURE: tuple[Operator, ...] = (
    *(reshape, transpose, index, reverse, roll, pad, concatenate, stack, broadcast),
    *(dynamic_slice, dynamic_update, take, take_along, take_pairs, scatter, scatter),
)
DISCRETE: tuple[Operator, ...] = (
    *(exact_unary, integer_unary, integer_binary, integer_binary, compare, boolean),
    *(where, where, convert, convert, bitcast, sort, sort_pairs, top_k, arg),
    *(searchsorted, bit_reduction, random_numbers, sort_keys, pair_reduction),
    *(complex_unary, complex_unary, complex_binary),
)
FLOATING: tuple[Operator, ...] = (
    *(unary, unary, binary, binary, cumulative, reduction, reduction, window, dot, dot),
    *(einsum, conv, softmax, layer_norm, control_flow, nest, nest, window_of, fft),
)


def build(
    choose: Callable[[int], int],
    *,
    smooth: bool,
    special: bool,
    steps: int,
    x64: bool = False,
) -> Program:
    """Return a random program.

    Args:
        choose: returns an integer in [0, n).
        smooth: f32, differentiable and without ties.
        special: inputs hold NaN, infinities and negative zeros.
        steps: number of operators tried.
        x64: types of 64 bits and complex128 exist.
    """
    g = Generator(choose, smooth, special, x64)
    first = g.shape()
    real = "float64" if x64 else "float32"
    for i in range(g.between(1, 4)):
        shape = first if i and g.flip() else g.shape()
        kind = g.pick((real, real, "int32")) if smooth else g.dtype()
        g.input(shape, real if smooth and i == 0 else kind)
    if g.flip():
        g.input((), g.pick(("int32", "uint32")))
    families = (STRUCTURE, FLOATING) if smooth else (STRUCTURE, FLOATING, DISCRETE)
    for _ in range(steps):
        g.pick(g.pick(families))(g)
    p = g.program
    read = {i for s in p.steps for i in s.operands}
    ends = [v.index for v in p.values if v.index not in read]
    p.outputs = ends[:8] or [0]
    g.program.outputs = p.outputs
    return p
