"""Rule sets: which StableHLO op is lowered how, and which is a known gap.

Each rule module exports one `RuleSet` named `rules`; `importer.RULES` is their explicit
union.  An op that is in no set is one that we forgot, which the importer says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vkore_jax import dtypes
from vkore_jax.dtypes import DType
from vkore_jax.errors import (
    InternalError,
    NotYetImplemented,
    UnsupportedOp,
    VkoreError,
)
from vkore_jax.lowering.op import Op

ISSUES = "this is a gap of vkore_jax: please report it with this message"

Requirement = Callable[[Op], "str | None"]
"""None when an op satisfies it, else what was found.  Its docstring is the sentence in
the support table."""

RuleFunction = Callable[..., Any]
"""(builder, op, *operands) -> Value | tuple of values."""


@dataclass(frozen=True)
class Types:
    """The element types that an op takes: a column set of the support matrix.

    Attributes:
        accepted: the types.
        operands: positions of the operands that are asked (None: all of them).
        results: positions of the results that are asked.
    """

    accepted: frozenset[DType] = frozenset(dtypes.ALL)
    operands: tuple[int, ...] | None = None
    results: tuple[int, ...] = ()

    @property
    def asks(self) -> bool:
        """True when some value of the op is asked: it has cells in the matrix."""
        return self.operands != () or bool(self.results)

    def problem(self, op: Op) -> str | None:
        """Return the sentence that refuses an op, None when all its types are taken."""
        at = range(len(op.operands)) if self.operands is None else self.operands
        found = [(f"operand {i}", op.operands[i]) for i in at]
        found += [(f"result {i}", op.types[i]) for i in self.results]
        for place, value in found:
            if value.dtype not in self.accepted:
                return (
                    f"Unsupported dtype: {place} is {value}, the chip takes "
                    f"{listing(self.accepted)} here; {self._instead(value.dtype)}"
                )
        return None

    def _instead(self, found: DType) -> str:
        """Return what the user can write."""
        if found.kind == "c":
            return "work on jnp.real(x) and jnp.imag(x)"
        wanted = dtypes.I32 if found.is_integer else dtypes.F32
        order = (wanted, dtypes.F32, dtypes.I32, dtypes.U64)
        best = next((t for t in order if t in self.accepted), dtypes.F32)
        return f"convert it first, as in x.astype(jnp.{best.name})"


ANY = Types()
UNTYPED = Types(operands=())
"""Of ops to which element types mean nothing, such as tokens."""


def listing(types: Iterable[DType]) -> str:
    """Return element types in the order of the machine's table."""
    wanted = set(types)
    return ", ".join(t.short for t in dtypes.ALL if t in wanted)


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
        takes: element types that it takes.
        doc: one sentence for the table.
        gap: set when there is no lowering.
    """

    op: str
    function: RuleFunction | None
    requires: tuple[Requirement, ...] = ()
    doc: str = ""
    gap: Gap | None = None
    takes: Types = ANY

    @property
    def typed(self) -> bool:
        """True when it has a row in the matrix.

        A composite has none: it takes what the ops of its decomposition take.
        """
        return (
            self.gap is None
            and self.takes.asks
            and not self.op.startswith("composite:")
        )

    def apply(self, b: Any, op: Op) -> Any:
        """Check element types and requirements, and run the rule.

        Raises:
            UnsupportedOp: it takes other types, or a requirement does not hold.
            UnsupportedOp, NotYetImplemented: the row is a gap.
        """
        if self.gap is not None or self.function is None:
            gap = self.gap or Gap(NotYetImplemented, "no rule")
            raise gap.error(f"{gap.reason}; {gap.instead or ISSUES}")
        refused = self.takes.problem(op)
        if refused is not None:
            raise UnsupportedOp(refused)
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
        self, *ops: str, requires: tuple[Requirement, ...] = (), takes: Types = ANY
    ) -> Callable[[RuleFunction], RuleFunction]:
        """Register the decorated function as the rule of the named ops."""

        def register(function: RuleFunction) -> RuleFunction:
            doc = (function.__doc__ or "").strip().split("\n")[0]
            for op in ops:
                self.add(Rule(op, function, requires, doc, takes=takes))
            return function

        return register

    def rows(
        self,
        table: Mapping[str, str],
        make: Callable[[str], tuple[RuleFunction, Types, str]],
    ) -> None:
        """Register one rule per row: op name -> argument of `make`."""
        for op, argument in table.items():
            function, takes, doc = make(argument)
            self.add(Rule(op, function, doc=doc, takes=takes))

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
