"""Steps that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.jax.generate import WIDE, Generator, Value
from tests.jax.rules import (
    largest,
    product_plus,
    product_rule,
    scaled,
    sums,
)

# name: function, slope bound, size of the result (None: as the operand)
SMOOTH_UNARY: dict[str, tuple[Callable[[Any], Any], float, float | None]] = {
    "tanh": (jnp.tanh, 1, 1),
    "sin": (jnp.sin, 1, 1),
    "cos": (jnp.cos, 1, 1),
    "neg": (jnp.negative, 1, None),
    "logistic": (jax.nn.sigmoid, 1, 1),
    "exp_tanh": (lambda x: jnp.exp(jnp.tanh(x)), 3, 3),
    "softplus": (jax.nn.softplus, 1, 70),
    "log1p_square": (lambda x: jnp.log1p(x * x), 2, 10),
    "rsqrt_square": (lambda x: lax.rsqrt(1 + x * x), 2, 1),
    "sqrt_square": (lambda x: jnp.sqrt(1 + x * x), 2, None),
    "atan": (jnp.arctan, 1, 2),
    "erf": (lax.erf, 2, 1),
    "expm1_tanh": (lambda x: jnp.expm1(jnp.tanh(x)), 3, 3),
    "gelu": (jax.nn.gelu, 2, None),
    "silu": (jax.nn.silu, 2, None),
    "half": (lambda x: x * jnp.asarray(0.5, x.dtype), 1, None),
    "asinh": (jnp.arcsinh, 1, 6),
    "cbrt": (lambda x: jnp.cbrt(2 + jnp.sin(x)), 1, 2),
}
KINKED_UNARY: dict[str, tuple[Callable[[Any], Any], float, float | None]] = {
    "abs": (jnp.abs, 1, None),
    "relu": (jax.nn.relu, 1, None),
    "clip": (lambda x: jnp.clip(x, -1.5, 2.0), 1, 2),
}
EXACT_UNARY: dict[str, Callable[[Any], Any]] = {
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "isfinite": jnp.isfinite,
    "isnan": jnp.isnan,
    "signbit": jnp.signbit,
    "nan_to_num0": lambda x: jnp.where(jnp.isnan(x), jnp.zeros_like(x), x),
}
COMPLEX_UNARY: dict[str, tuple[Callable[[Any], Any], float, float | None]] = {
    "conj": (jnp.conj, 1, None),
    "neg": (jnp.negative, 1, None),
    "real": (jnp.real, 1, None),
    "imag": (jnp.imag, 1, None),
    "abs": (jnp.abs, 1, None),
    "turn": (lambda z: z * jnp.asarray(0.6 + 0.8j, z.dtype), 2, None),
    "exp": (lambda z: jnp.exp(z / (1 + jnp.abs(z)).astype(z.dtype)), 8, 3),
    "sqrt": (lambda z: jnp.sqrt(z * 0 + jnp.abs(z) + (1 + 1j)), 2, 8),
    "log": (lambda z: jnp.log(1 + jnp.abs(z) + 1j * jnp.real(z)), 4, 8),
    "sin": (lambda z: jnp.sin(z / (1 + jnp.abs(z)).astype(z.dtype)), 6, 2),
    "tanh": (lambda z: jnp.tanh(z / (2 + 2 * jnp.abs(z)).astype(z.dtype)), 6, 2),
}
INTEGER_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": jnp.negative,
    "not": jnp.invert,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "popcount": lax.population_count,
    "clz": lax.clz,
    "square": jnp.square,
    "cube": lambda x: lax.integer_pow(x, 3),
}
INTEGER_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "div": lax.div,
    "rem": lax.rem,
    "floor_divide": jnp.floor_divide,
    "mod": jnp.mod,
    "shift_left": lax.shift_left,
    "shift_right": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "power": lambda x, y: x ** (y & jnp.asarray(3, y.dtype)),
}
BITS: dict[str, tuple[str, ...]] = {
    "float64": ("uint64", "int32", "uint16"),
    "float32": ("uint32", "int32", "uint16", "uint8"),
    "bfloat16": ("uint16", "int8"),
    "float16": ("int16", "uint8"),
    "float8_e5m2": ("uint8", "int8"),
    "int64": ("uint64", "uint32"),
    "uint64": ("int64", "uint16"),
    "int32": ("uint32", "uint8"),
    "uint32": ("int32", "int16"),
    "int16": ("uint16", "uint8"),
    "uint8": ("int8",),
}
"""Types that the bits of a value may be read as: integers, whose values are exact."""
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}
BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {
    "and": jnp.logical_and,
    "or": jnp.logical_or,
    "xor": jnp.logical_xor,
}


def unary(g: Generator) -> None:
    v = g.any(lambda v: v.floating)
    if v is None:
        return
    table = SMOOTH_UNARY if g.smooth or g.choose(3) else KINKED_UNARY
    name = g.pick(list(table))
    f, slope, size = table[name]
    if size is None:
        size = v.size + 1
    g.add(name, f, [v], rule=scaled(slope), size=size)


def complex_unary(g: Generator) -> None:
    v = g.any(lambda v: v.complex)
    if v is None:
        v = g.any(lambda v: v.floating and (v.dtype == "float64" or not g.x64))
        if v is not None and not g.special:
            wide = "complex128" if v.dtype == "float64" else "complex64"
            g.convert(v, wide)
        return
    name = g.pick(list(COMPLEX_UNARY))
    f, slope, size = COMPLEX_UNARY[name]
    size = v.size + 1 if size is None else size
    exact = name in ("conj", "neg", "real", "imag")
    g.add(name, f, [v], rule=scaled(slope), size=size, exact=exact)


def complex_binary(g: Generator) -> None:
    two = pair(g, lambda v: v.complex)
    if two is None:
        two = pair(g, lambda v: v.dtype in ("float32", "float64"))
        if two is not None and not g.special:
            g.add("complex", lax_complex, two, rule=sums, exact=True)
        return
    a, b = two
    kind = g.choose(5)
    if kind == 0:
        g.add("add", jnp.add, two, rule=sums, size=a.size + b.size)
    elif kind == 1:
        g.add("sub", jnp.subtract, two, rule=sums, size=a.size + b.size)
    elif kind == 2:
        g.add("mul", jnp.multiply, two, rule=product_rule, size=a.size * b.size)
    elif kind == 3 and a.exact and b.exact:
        g.add("eq", jnp.equal, two)
    else:

        def quotient(x: Any, y: Any) -> Any:
            return x / (1 + jnp.abs(y) + 0j).astype(y.dtype)

        def rule(x: Any, e: Any, out: Any) -> float:
            return e[0] + largest(x[0]) * e[1]

        g.add("div", quotient, two, rule=rule, size=a.size)


def lax_complex(x: Any, y: Any) -> Any:
    return lax.complex(*jnp.broadcast_arrays(x, y))


def exact_unary(g: Generator) -> None:
    v = g.any(lambda v: v.floating and v.exact)
    if v is not None:
        name = g.pick(list(EXACT_UNARY))
        g.add(name, EXACT_UNARY[name], [v], exact=True, size=v.size + 1)


def integer_unary(g: Generator) -> None:
    v = g.any(lambda v: v.integral)
    if v is not None:
        name = g.pick(list(INTEGER_UNARY))
        g.add(name, INTEGER_UNARY[name], [v])


def pair(g: Generator, test: Callable[[Value], bool]) -> tuple[Value, Value] | None:
    """Return two values of a type whose shapes broadcast."""
    a = g.any(test)
    if a is None:
        return None

    def fits(v: Value) -> bool:
        if v.dtype != a.dtype or not test(v):
            return False
        return all(
            m == n or m == 1 or n == 1 for m, n in zip(v.shape[::-1], a.shape[::-1])
        )

    b = g.any(fits)
    if b is None:
        return None
    if g.choose(4) == 0:  # not the same shape: a row, a column or a single number
        axes = tuple(i for i in range(b.rank) if g.flip() and b.shape[i])
        if axes:
            b = g.add(
                f"first of {axes}",
                lambda x: x[
                    tuple(
                        slice(0, 1) if i in axes else slice(None) for i in range(x.ndim)
                    )
                ],
                [b],
                exact=True,
            )[0]
    return (b, a) if g.flip() else (a, b)


def binary(g: Generator) -> None:
    two = pair(g, lambda v: v.floating)
    if two is None:
        return
    a, b = two
    kind = g.choose(5 if g.smooth else 8)
    if kind == 0:
        g.add("add", jnp.add, two, rule=sums, size=a.size + b.size)
    elif kind == 1:
        g.add("sub", jnp.subtract, two, rule=sums, size=a.size + b.size)
    elif kind == 2:
        g.add("mul", jnp.multiply, two, rule=product_rule, size=a.size * b.size)
    elif kind == 3:

        def quotient(x: Any, y: Any) -> Any:
            return x / (1 + y * y)

        def rule(x: Any, e: Any, out: Any) -> float:
            return e[0] + largest(x[0]) * e[1]

        g.add("div", quotient, two, rule=rule, size=a.size)
    elif kind == 4:
        g.add("atan2", lambda x, y: jnp.arctan2(x, 1 + y * y), two, rule=product_plus)
    elif kind == 5:
        g.add("max", jnp.maximum, two, exact=True)
    elif kind == 6:
        g.add("min", jnp.minimum, two, exact=True)
    elif a.exact and b.exact:
        g.add("rem", lambda x, y: lax.rem(*jnp.broadcast_arrays(x, y)), two, exact=True)


def integer_binary(g: Generator) -> None:
    two = pair(g, lambda v: v.integral)
    if two is not None:
        name = g.pick(list(INTEGER_BINARY))
        f = INTEGER_BINARY[name]
        g.add(name, lambda x, y: f(*jnp.broadcast_arrays(x, y)), two)


def compare(g: Generator) -> None:
    two = pair(g, lambda v: v.exact)
    if two is not None:
        name = g.pick(list(COMPARE)[: 2 if two[0].complex else None])
        g.add(name, COMPARE[name], two)


def boolean(g: Generator) -> None:
    two = pair(g, lambda v: v.dtype == "bool")
    if two is None:
        return
    if g.choose(4) == 0:
        g.add("not", jnp.logical_not, two[:1])
    else:
        name = g.pick(list(BOOLEAN))
        g.add(name, BOOLEAN[name], two)


def where(g: Generator) -> None:
    two = pair(g, lambda v: True)
    if two is None:
        return
    mask = g.any(lambda v: v.dtype == "bool" and v.shape in ((), two[0].shape))
    if mask is not None:
        g.add("where", jnp.where, [mask, *two], exact=True)


def convert(g: Generator) -> None:
    v = g.any(lambda v: True)
    if v is not None:
        g.convert(v, g.dtype())


def bitcast(g: Generator) -> None:
    v = g.any(lambda v: v.exact and v.dtype in BITS)
    if v is not None and not g.smooth:
        to = g.pick([t for t in BITS[v.dtype] if g.x64 or t not in WIDE])
        if v.rank == 0 and jnp.dtype(to).itemsize > jnp.dtype(v.dtype).itemsize:
            return
        g.add(f"bits {to}", lambda x: lax.bitcast_convert_type(x, to), [v])
