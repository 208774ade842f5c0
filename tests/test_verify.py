"""The verifier: programs that break one rule each, and what it says about them."""

from __future__ import annotations

import pytest

from tests.sim.builder import ProgramBuilder
from tests.sim.cases import CASES
from tests.wrong_commands import BASES, WRONG_COMMANDS, Base, valid
from tests.wrong_groups import WRONG_GROUPS
from tests.wrong_limits import WITHIN, WRONG_LIMITS, Build
from tests.wrong_programs import WRONG, Wrong, branches
from vkore_jax.chips import TINY
from vkore_jax.dtypes import F32
from vkore_jax.errors import (
    InvalidProgram,
)
from vkore_jax.isa import (
    Carry,
    Copy,
    Loop,
)
from vkore_jax.verify import verify

ALL_WRONG = [*WRONG, *WRONG_GROUPS, *WRONG_COMMANDS, *WRONG_LIMITS]


@pytest.mark.parametrize("case", ALL_WRONG, ids=lambda c: c.id)
def test_rejected(case: Wrong) -> None:
    b = ProgramBuilder(case.chip)
    program = case.build(b) or b.build()
    with pytest.raises(case.error) as info:
        verify(program, case.chip)
    assert type(info.value) is case.error
    assert case.says in str(info.value)


@pytest.mark.parametrize("make", BASES, ids=lambda m: m.__name__)
def test_bases_pass(make: Base) -> None:
    """What the rows of `wrong_commands` change was valid before."""
    verify(valid(make).build(), TINY)


@pytest.mark.parametrize("build", [x for _, x in WITHIN], ids=[x for x, _ in WITHIN])
def test_limits_are_reached(build: Build) -> None:
    b = ProgramBuilder(TINY)
    verify(build(b) or b.build(), TINY)


def test_valid_programs_pass() -> None:
    for case in CASES[:: max(1, len(CASES) // 100)]:
        verify(case.build(TINY), TINY)


def test_branches_share_addresses() -> None:
    b = ProgramBuilder(TINY)
    branches(b, same_address=True, dst_at=None)
    verify(b.build(), TINY)


def test_message_has_command_and_line() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (2,))
    current = b.temp(F32, (2,))
    with b.block() as body:
        b.emit(Copy(b.temp(F32, (3,)), current))
    carry = Carry(x, current, current, b.result(F32, (2,)))
    b.emit(Copy(b.result(F32, (2,)), x), Loop(2, (carry,), b.close(body)))
    with pytest.raises(InvalidProgram) as info:
        verify(b.build(), TINY)
    assert "in command 1.body.0 (copy), test at test.py:1 (case)" in str(info.value)
    assert str(info.value).count("in command") == 1
