"""Every cell of docs/ops.md: values against the stock CPU, or a typed refusal.

The programs of the cells are in `tests/matrix/`.  All types of an operator are one
module, compiled once for the stock CPU and once by the compiler; both engines run it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.matrix import elementwise, movement, runner, structured
from tests.matrix.cells import FILE, LINE, Array, Cell, Make, located, module, special
from vkore_jax import dtypes, lowering
from vkore_jax.chips import TINY
from vkore_jax.errors import UnsupportedOp
from vkore_jax.lowering.importer import RULES
from vkore_jax.sim import golden

CELLS: Mapping[str, Make] = {
    **elementwise.CELLS,
    **movement.CELLS,
    **structured.CELLS,
}
ROWS = {rule.op: rule for rule in RULES if rule.typed}


def test_every_row_has_a_program_and_every_program_a_row() -> None:
    assert set(CELLS) == set(ROWS)


def claimed(op: str) -> list[tuple[dtypes.DType, Cell]]:
    """Return the cells that the rule table claims."""
    accepted = ROWS[op].takes.accepted
    return [(t, CELLS[op](t)) for t in dtypes.ALL if t in accepted]


@pytest.mark.parametrize("op", sorted(ROWS))
def test_claims(op: str) -> None:
    """What the table claims is StableHLO, and both engines give the CPU's values."""
    cells = claimed(op)
    problems = [
        f"{t}: not a program: {why}" for t, c in cells if (why := runner.refused(c))
    ]
    assert not problems, "\n".join(problems)
    only = [c for _, c in cells]
    program = lowering.compile(module(only).encode(), TINY)
    inputs = [x for c in only for x in c.inputs]
    want = runner.wanted(only)
    fast = runner.split(only, runner.translated(program, inputs))
    literal = runner.split(only, golden.run(program.encoded, inputs))
    for (t, cell), w, f, g in zip(cells, want, fast, literal, strict=True):
        problems.append(_wrong(f"fast, {t}", cell, w, f, None))
        problems.append(_wrong(f"golden, {t}", cell, w, g, cell.unpromised))
    assert not any(problems), "\n".join(filter(None, problems))


def _wrong(
    who: str,
    cell: Cell,
    want: tuple[Array, ...],
    have: object,
    ignore: Callable[[Cell, Array], Array] | None,
) -> str:
    text = runner.wrong(cell, want, have, ignore)
    return f"{who}: {text}" if text else ""


WHOLE = (
    "stablehlo.add",
    "stablehlo.convolution",
    "stablehlo.dot_general",
    "stablehlo.dynamic_update_slice",
    "stablehlo.gather",
    "stablehlo.power",
    "stablehlo.reduce",
    "stablehlo.scatter",
    "stablehlo.sort",
    "stablehlo.tanh",
)
"""One of each kind: through PJRT, XLA optimises fully and takes five times as long."""


@pytest.mark.slow
@pytest.mark.parametrize("op", WHOLE)
def test_claims_through_pjrt(op: str) -> None:
    """The same, compiled and run as a user's program is."""
    cells = claimed(op)
    only = [c for _, c in cells]
    found = runner.split(only, runner.on_vkore(only))
    problems = [
        _wrong(str(t), cell, w, f, None)
        for (t, cell), w, f in zip(cells, runner.wanted(only), found, strict=True)
    ]
    assert not any(problems), "\n".join(filter(None, problems))


@pytest.mark.parametrize("op", sorted(ROWS))
def test_refusals(op: str) -> None:
    """Every other type that StableHLO has for it is refused, with all facts."""
    for t in dtypes.ALL:
        if t in ROWS[op].takes.accepted:
            continue
        cell = CELLS[op](t)
        if runner.refused(cell):
            continue
        with pytest.raises(UnsupportedOp) as caught:
            lowering.compile(located(cell).encode(), TINY)
        text = str(caught.value)
        name = op.removeprefix("custom_call:")
        shapes = [
            f"{t.short}{list(x.shape)}" for x in cell.inputs if x.dtype == t.numpy
        ]
        expected = ["the chip takes", f"{FILE}:{LINE}", "; ", *shapes[:1]]
        missing = [w for w in expected if w not in text]
        assert not missing, f"{name} of {t}: {text}\nlacks {missing}"


def test_refusals_name_what_to_write() -> None:
    """The suggestion fits what was found and what is taken."""
    for op, t, words in (
        ("stablehlo.sine", dtypes.by_short("f8E8M0FNU"), "x.astype(jnp.float32)"),
        ("stablehlo.clamp", dtypes.C64, "jnp.real(x)"),
        ("stablehlo.add", dtypes.by_short("f4E2M1FN"), "x.astype(jnp.float32)"),
    ):
        with pytest.raises(UnsupportedOp, match=re.escape(words)):
            lowering.compile(located(CELLS[op](t)).encode(), TINY)


def test_inputs_hold_what_goes_wrong() -> None:
    x = special(dtypes.F32)
    assert np.isnan(x).any()
    assert np.isinf(x).any()
    assert ((x == 0) & np.signbit(x)).any()
    assert ((np.abs(x) < np.finfo(np.float32).tiny) & (x != 0)).any()
