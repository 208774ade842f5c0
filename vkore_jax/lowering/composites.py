"""Composites with a lowering of their own, and ops that only order or annotate.

An unknown composite never gets here: the importer lowers its decomposition.  So it does
with a known name in another version, and where a kernel does not take the shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from vkore_jax.dtypes import BOOL
from vkore_jax.lowering import kernels_attention, kernels_loss, kernels_rope
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Shape, Value
from vkore_jax.lowering.op import Op
from vkore_jax.lowering.registry import (
    UNTYPED,
    Rule,
    RuleFunction,
    RuleSet,
    identity_rows,
)

rules = RuleSet(__name__)

PREFIX = "composite:"
"""Rules of composites are keyed by this prefix and the composite's name."""

VERSION = 1
"""Version of the training kernels that this compiler knows."""


@dataclass(frozen=True)
class Kernel:
    """How a composite of the training kernels is lowered.

    Attributes:
        rule: its own rule, or None to lower the decomposition.
        takes: whether the rule takes operands of these shapes.
        doc: one sentence for the support table.
    """

    rule: RuleFunction | None = None
    takes: Callable[[Sequence[Shape]], bool] = lambda shapes: True
    doc: str = "Its decomposition, which ordinary fusion makes groups of."


_PLAIN = Kernel()

KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "vkore.linear": _PLAIN,
        "vkore.linear_dx": _PLAIN,
        "vkore.linear_dw": _PLAIN,
        "vkore.attention": Kernel(
            kernels_attention.attention, kernels_attention.forward_fits
        ),
        "vkore.attention_bwd": Kernel(
            kernels_attention.attention_bwd, kernels_attention.backward_fits
        ),
        "vkore.rms_norm": _PLAIN,
        "vkore.rms_norm_bwd": _PLAIN,
        "vkore.layer_norm": _PLAIN,
        "vkore.layer_norm_bwd": _PLAIN,
        "vkore.rope": Kernel(kernels_rope.rope, kernels_rope.fits),
        "vkore.rope_tables_bwd": _PLAIN,
        "vkore.gelu": _PLAIN,
        "vkore.gelu_bwd": _PLAIN,
        "vkore.swiglu": _PLAIN,
        "vkore.swiglu_bwd": _PLAIN,
        "vkore.embedding": _PLAIN,
        "vkore.embedding_bwd": Kernel(
            kernels_loss.embedding_bwd, kernels_loss.lookup_backward_fits
        ),
        "vkore.softmax_cross_entropy": Kernel(
            kernels_loss.softmax_cross_entropy, kernels_loss.loss_fits
        ),
        "vkore.softmax_cross_entropy_bwd": Kernel(
            kernels_loss.softmax_cross_entropy_bwd, kernels_loss.loss_backward_fits
        ),
        "vkore.adamw_update": _PLAIN,
    }
)
"""Every composite of `vkore_jax.primitives`; a test compares the names."""


def is_lowered(name: str, version: int, shapes: Sequence[Shape], kernels: bool) -> bool:
    """True when a composite that has a row is lowered by its rule.

    Args:
        name: of the composite.
        version: of the composite.
        shapes: of its operands.
        kernels: the user wants the kernels' own rules.
    """
    kernel = KERNELS.get(name)
    if kernel is None:
        return True
    known = kernels and version == VERSION and kernel.rule is not None
    return known and kernel.takes(shapes)


def _decomposition(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    raise NotImplementedError  # the importer inlines it, see `is_lowered`


for _name, _kernel in KERNELS.items():
    _rule = _kernel.rule or _decomposition
    _doc = _kernel.doc
    if _kernel.rule is not None:
        _doc = (_kernel.rule.__doc__ or "").strip().split("\n")[0]
    rules.add(Rule(PREFIX + _name, _rule, (), _doc))

identity_rows(
    rules,
    ("sdy.sharding_constraint",),
    "An annotation: passes its operand on (one device).",
)


@rules.lowers("stablehlo.create_token", "stablehlo.after_all", takes=UNTYPED)
def token(b: Builder, op: Op, *tokens: Value) -> Value:
    """A token; order is kept by the order of the nodes with effects."""
    return b.scalar(BOOL, False)


@rules.lowers("sdy.manual_computation")
def manual_computation(b: Builder, op: Op, *operands: Value) -> tuple[Value, ...]:
    """The body of a shard_map over one device."""
    return op.regions[0].inline(b, operands)
