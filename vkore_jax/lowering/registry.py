"""Rule sets: which StableHLO op is lowered how, and which is a known gap.

Each rule module exports one `RuleSet` named `rules`; `importer.RULES` is their explicit
union.  An op that is in no set is one that we forgot, which the importer says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vkore_jax.errors import (
    InternalError,
    NotYetImplemented,
    UnsupportedOp,
    VkoreError,
)
from vkore_jax.lowering.op import Op

Requirement = Callable[[Op], "str | None"]
"""None when an op satisfies it, else what was found.  Its docstring is the sentence in
the support table."""

RuleFunction = Callable[..., Any]
"""(builder, op, *operands) -> Value | tuple of values."""


@dataclass(frozen=True)
class Gap:
    """Why an op has no lowering, whose problem that is, and what to do instead."""

    error: type[VkoreError]
    reason: str
    instead: str = ""


@dataclass(frozen=True)
class Rule:
    """One row of the support table.

    Attributes:
        op: MLIR name, ``composite:NAME`` or ``custom_call:TARGET``.
        function: the lowering rule, or None for a gap.
        requires: predicates that must hold.
        doc: one sentence for the table.
        gap: set when there is no lowering.
    """

    op: str
    function: RuleFunction | None
    requires: tuple[Requirement, ...] = ()
    doc: str = ""
    gap: Gap | None = None

    def apply(self, b: Any, op: Op) -> Any:
        """Check the requirements and run the rule.

        Raises:
            UnsupportedOp: a requirement does not hold.
            UnsupportedOp, NotYetImplemented: the row is a gap.
        """
        if self.gap is not None or self.function is None:
            gap = self.gap or Gap(NotYetImplemented, "no rule")
            tail = f"; {gap.instead}" if gap.instead else ""
            raise gap.error(f"{gap.reason}{tail}")
        for requirement in self.requires:
            problem = requirement(op)
            if problem is not None:
                sentence = " ".join((requirement.__doc__ or "").split())
                raise UnsupportedOp(f"{sentence} Found: {problem}.")
        return self.function(b, op, *op.operands)


@dataclass
class RuleSet:
    """Rules keyed by op name.  Filled while its module is imported, then only read."""

    name: str
    _rules: dict[str, Rule] = field(default_factory=dict)

    def add(self, rule: Rule) -> None:
        """Add a row.  Raises InternalError when the op has one already."""
        if rule.op in self._rules:
            raise InternalError(f"{self.name}: two rules for {rule.op!r}")
        self._rules[rule.op] = rule

    def lowers(
        self, *ops: str, requires: tuple[Requirement, ...] = ()
    ) -> Callable[[RuleFunction], RuleFunction]:
        """Register the decorated function as the rule of the named ops."""

        def register(function: RuleFunction) -> RuleFunction:
            doc = (function.__doc__ or "").strip().split("\n")[0]
            for op in ops:
                self.add(Rule(op, function, requires, doc))
            return function

        return register

    def rows(
        self,
        table: Mapping[str, str],
        make: Callable[[str], tuple[RuleFunction, tuple[Requirement, ...], str]],
    ) -> None:
        """Register one rule per row: op name -> argument of `make`."""
        for op, argument in table.items():
            function, requires, doc = make(argument)
            self.add(Rule(op, function, requires, doc))

    def unsupported(self, op: str, reason: str, instead: str = "") -> None:
        """Record that the chip cannot do the op."""
        self.add(Rule(op, None, gap=Gap(UnsupportedOp, reason, instead)))

    def missing(self, op: str, reason: str, instead: str = "") -> None:
        """Record that this compiler does not do the op yet."""
        self.add(Rule(op, None, gap=Gap(NotYetImplemented, reason, instead)))

    def get(self, op: str) -> Rule | None:
        """Return the row of an op."""
        return self._rules.get(op)

    def __iter__(self) -> Iterator[Rule]:
        return iter(sorted(self._rules.values(), key=lambda r: r.op))

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, op: object) -> bool:
        return op in self._rules

    @staticmethod
    def union(*sets: RuleSet) -> RuleSet:
        """Merge rule sets.  Raises InternalError when two of them have the same op."""
        merged = RuleSet("+".join(s.name.rsplit(".", 1)[-1] for s in sets))
        for rules in sets:
            for rule in rules:
                if rule.op in merged:
                    raise InternalError(f"{rules.name}: second rule for {rule.op!r}")
                merged.add(rule)
        return merged


def identity_rows(rules: RuleSet, ops: Iterable[str], doc: str) -> None:
    """Register ops whose results are their operands."""

    def identity(b: Any, op: Op, *operands: Any) -> Any:
        return operands

    for op in ops:
        rules.add(Rule(op, identity, (), doc))
