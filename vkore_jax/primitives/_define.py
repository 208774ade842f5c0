"""One way to make a primitive: everything follows from its reference.

A reference is a pure jnp function of arrays of fixed *core* ranks.  `define` turns it
into a JAX primitive whose shapes, eager evaluation, batching and lowering come from
that function and nothing else.

- **Batching.** The primitive accepts leading batch axes on any operand, aligned from
  the right and broadcast as NumPy does, and gives every result all of them.  So `vmap`
  only moves axes and binds again: the composite survives, and an operand that is not
  mapped (a weight) is not copied.
- **Lowering.** `jax.lax.composite` with the primitive's name: a compiler that knows
  the name may use a kernel, all others inline the decomposition, which makes every
  other backend this package's reference.

Forward mode is out of scope: the public functions are `jax.custom_vjp`s, and JAX says
so when `jvp` or `jacfwd` meets one.  So are second derivatives, which differentiate the
primitives themselves.  Knows nothing of the compiler but the names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from vkore_jax.errors import UnsupportedOp

PREFIX = "vkore."
"""Start of every composite's name."""

VERSION = 1
"""Of every composite.  Raise it when a reference changes what it computes."""

Reference = Callable[..., tuple[jax.Array, ...]]


def define(name: str, reference: Reference, ranks: Sequence[int]) -> Primitive:
    """Make the primitive `vkore.NAME` of a reference.

    Args:
        name: without the prefix; it is the name of primitive and composite.
        reference: `reference(*operands, **params)`, a tuple of arrays.  The operands
            have their core ranks; params are None, bool, int, float or str, and become
            the composite's attributes.
        ranks: core rank of each operand; those that a param leaves out come last.  All
            zero declares elementwise work.

    Returns:
        A primitive with several results (`bind` returns a list).
    """
    primitive = Primitive(PREFIX + name)
    primitive.multiple_results = True
    extended = functools.partial(_extended, reference, tuple(ranks))

    def decomposition(*args: jax.Array, **params: Any) -> tuple[jax.Array, ...]:
        return extended(params, *args)

    decomposition.__name__ = name
    composite = jax.lax.composite(decomposition, name=primitive.name, version=VERSION)

    def abstract(*avals: Any, **params: Any) -> list[Any]:
        args = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        found = jax.eval_shape(functools.partial(extended, params), *args)
        return [ShapedArray(a.shape, a.dtype) for a in found]

    @functools.lru_cache(maxsize=256)
    def compiled(params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
        return jax.jit(functools.partial(composite, **dict(params)))

    def evaluate(*args: Any, **params: Any) -> list[jax.Array]:
        return list(compiled(tuple(sorted(params.items())))(*args))

    primitive.def_abstract_eval(abstract)
    primitive.def_impl(evaluate)
    batching.primitive_batchers[primitive] = functools.partial(
        _batch, primitive, tuple(ranks)
    )
    ad.primitive_jvps[primitive] = functools.partial(_refuse, primitive.name)
    mlir.register_lowering(primitive, mlir.lower_fun(composite, multiple_results=True))
    return primitive


def _refuse(name: str, *_: Any, **__: Any) -> Any:
    """Stand in for a rule of forward mode.

    Raises:
        UnsupportedOp: always.
    """
    raise UnsupportedOp(
        f"{name} has no derivative of its own: the training kernels are differentiated "
        "once, by jax.grad or jax.vjp. For second derivatives (grad of grad, hessian) "
        "call the plain function, without vkore_jax.accelerate and vkore_jax.primitives"
    )


def _batch(
    primitive: Primitive,
    ranks: tuple[int, ...],
    args: Sequence[Any],
    dims: Sequence[int | None],
    **params: Any,
) -> tuple[list[jax.Array], list[int]]:
    """Put the mapped axis first, in front of all batch axes, and bind again."""

    def depth(arg: Any, rank: int, dim: int | None) -> int:
        return arg.ndim - rank - (dim is not None)

    deepest = max(map(depth, args, ranks, dims))
    moved = []
    for arg, rank, dim in zip(args, ranks, dims, strict=False):
        if dim is not None:
            ones = deepest - depth(arg, rank, dim)
            arg = jnp.moveaxis(arg, dim, 0)
            arg = arg.reshape(arg.shape[0], *[1] * ones, *arg.shape[1:])
        moved.append(arg)
    out = primitive.bind(*moved, **params)
    return out, [0] * len(out)


def _extended(
    reference: Reference, ranks: tuple[int, ...], params: dict[str, Any], *args: Any
) -> tuple[jax.Array, ...]:
    """Apply a reference over broadcast leading axes; see the module docstring."""
    batches = [a.shape[: a.ndim - r] for a, r in zip(args, ranks, strict=False)]
    full = jnp.broadcast_shapes(*batches)
    function = functools.partial(reference, **params)
    if not any(ranks):
        return tuple(jnp.broadcast_to(y, full) for y in function(*args))
    # An axis is mapped where the operand has it in full; where it broadcasts (size one
    # or missing), the operand is handed on whole.
    mapped = [
        [len(b) >= d and b[-d] == full[-d] for d in range(len(full), 0, -1)]
        for b in batches
    ]
    operands = []
    for arg, batch, has in zip(args, batches, mapped, strict=True):
        kept = [n for n, yes in zip(full, has, strict=True) if yes]
        operands.append(arg.reshape(*kept, *arg.shape[len(batch) :]))
    for axis in reversed(range(len(full))):
        axes = tuple(0 if has[axis] else None for has in mapped)
        function = jax.vmap(function, in_axes=axes)
    return function(*operands)
