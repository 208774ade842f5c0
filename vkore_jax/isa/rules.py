"""Complete rule tables: a table says what it must cover and checks itself at import.

Engines, verifier and cost model attach behaviour to the ISA's data classes through
such tables; a class without a rule fails when the module is imported, not when a
program first meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from vkore_jax.errors import InternalError

R = TypeVar("R", bound=Callable[..., Any])


class Rules(Mapping[Any, R], Generic[R]):
    """A table from keys (classes, names) to rules that must be complete.

    Example::

        RULES: Rules[Rule] = Rules("golden", over=COMMANDS.values())

        @RULES.rule(Copy)
        def copy(...): ...

        RULES.complete()
    """

    def __init__(self, name: str, over: Iterable[Any]) -> None:
        self.name = name
        self._over = frozenset(over)
        self._rules: dict[Any, R] = {}

    def rule(self, *keys: Any) -> Callable[[R], R]:
        """Return a decorator that registers one function for the keys.

        Raises:
            InternalError: a key has a rule already or is not one to be covered.
        """

        def register(function: R) -> R:
            for key in keys:
                if key not in self._over:
                    raise InternalError(
                        f"rules {self.name!r}: {key!r} is not in the table"
                    )
                if key in self._rules:
                    raise InternalError(f"rules {self.name!r}: {key!r} has two rules")
                self._rules[key] = function
            return function

        return register

    def update(self, rules: Mapping[Any, R]) -> None:
        """Register every rule of a mapping (rows of trivial cases)."""
        for key, function in rules.items():
            self.rule(key)(function)

    def complete(self) -> None:
        """Check that nothing is missing.

        Raises:
            InternalError: naming every key without a rule.
        """
        missing = self._over - self._rules.keys()
        if missing:
            names = sorted(getattr(k, "__name__", str(k)) for k in missing)
            raise InternalError(f"rules {self.name!r}: no rule for {', '.join(names)}")

    def __getitem__(self, key: Any) -> R:
        return self._rules[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)
