"""Custom calls: a few targets are known, every other one is refused by its name."""

from __future__ import annotations

from vkore_jax.dtypes import BOOL
from vkore_jax.errors import InvalidArgument
from vkore_jax.lowering import ir
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import UNTYPED, RuleSet, identity_rows

rules = RuleSet(__name__)

PREFIX = "custom_call:"
"""Rules of custom calls are keyed by this prefix and the target name."""

CALLBACK = "vkore.py_callback"

identity_rows(
    rules,
    [
        PREFIX + target
        for target in (
            "Sharding",
            "SPMDFullToShardShape",
            "SPMDShardToFullShape",
            "LayoutConstraint",
            "MoveToHost",
            "MoveToDevice",
            "annotate_device_placement",
            "xla.sdy.FuncResultSharding",
            "xla.sdy.GlobalToLocalShape",
            "xla.sdy.LocalToGlobalShape",
        )
    ],
    "An annotation: passes its operand on (one device).",
)


@rules.lowers(PREFIX + "dce_sink", takes=UNTYPED)
def dce_sink(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """A mark that a value is used: nothing can observe it, so nothing is kept."""
    return ()


@rules.lowers(PREFIX + CALLBACK, takes=UNTYPED)
def py_callback(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """A user's Python callback; it runs on the host and is counted.

    Tokens carry no data: a call with effect keeps its place among the others.
    """
    text = op.text("backend_config")
    if not text.isdigit():
        raise InvalidArgument(
            f"{CALLBACK} must name an entry of the callback table in backend_config, "
            f"found {text!r}"
        )
    tokens = op.tokens
    data = [v for i, v in enumerate(operands) if i not in tokens.operands]
    types = [t for i, t in enumerate(op.types) if i not in tokens.results]
    kind = op.name_path.rsplit("/", 1)[-1] or "callback"
    results = iter(
        b.emit(
            ir.HostCall,
            data,
            types,
            callback=int(text),
            kind=kind,
            effect=op.flag("has_side_effect"),
        )
    )
    token = b.scalar(BOOL, False)
    return tuple(
        token if i in tokens.results else next(results) for i in range(len(op.types))
    )
