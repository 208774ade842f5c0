"""`accelerate`: the transformation of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from vkore_jax.rewrite.engine import Log, rewrite
from vkore_jax.rewrite.report import Report
from vkore_jax.rewrite.rule import Rule
from vkore_jax.rewrite.rules import RULES

P = ParamSpec("P")
R = TypeVar("R")


class Accelerated(Generic[P, R]):
    """A function that runs with the primitives in place of what they cover."""

    def __init__(self, fn: Callable[P, R], rules: tuple[Rule, ...]):
        """Wrap; the function is traced when it is called."""
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._rules = rules

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the rewritten function."""
        closed, leaves, rebuild = _trace(self._fn, args, kwargs)
        graph = rewrite(closed, self._rules, Log())
        return rebuild(graph.evaluate(leaves))

    def report(self, *args: P.args, **kwargs: P.kwargs) -> Report:
        """Say what a call with these arguments would replace and leave, and why.

        Nothing is computed; `jax.ShapeDtypeStruct`s may stand for arrays.
        """
        closed, _, _ = _trace(self._fn, args, kwargs)
        log = Log()
        rewrite(closed, self._rules, log)
        return log.report()


def accelerate(
    fn: Callable[P, R], *, rules: tuple[Rule, ...] = RULES
) -> Accelerated[P, R]:
    """Make a function use the primitives of `vkore_jax`, and so their VJP rules.

    The function is traced, what the primitives cover is replaced, and everything else
    stays as it was.  Put it inside of `jax.grad` and `jax.jit`, around the loss:

        jax.jit(jax.value_and_grad(accelerate(loss)))(params, batch)

    The result computes the same on every backend, up to rounding.  It cannot be
    differentiated in forward mode where a primitive came in.

    Args:
        fn: of pytrees.  Arrays among the arguments are traced; all else (flags,
            functions, Python numbers) is handed to the function as it is.
        rules: which replacements to try, in order.

    Returns:
        A function of the same signature, with a method `report`.
    """
    return Accelerated(fn, rules)


def _is_array(x: Any) -> bool:
    return isinstance(x, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))


def _trace(
    fn: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, list[Any], Callable[[list[Any]], Any]]:
    """Return the jaxpr of a call, its array arguments, and how to pack its results."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    which = [i for i, x in enumerate(leaves) if _is_array(x)]
    packed: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        full = list(leaves)
        for i, array in zip(which, arrays, strict=True):
            full[i] = array
        inner_args, inner_kwargs = jax.tree.unflatten(tree, full)
        out, out_tree = jax.tree.flatten(fn(*inner_args, **inner_kwargs))
        packed[:] = [out_tree]
        return out

    arrays = [leaves[i] for i in which]
    closed = jax.make_jaxpr(flat)(*arrays)
    return closed, arrays, lambda out: jax.tree.unflatten(packed[0], out)
