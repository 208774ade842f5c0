"""Folding gives the bits that the machine computes: the golden engine says which."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vkore_jax import dtypes
from vkore_jax.dtypes import BOOL, I8, I32, U8, U64, DType
from vkore_jax.isa import MICRO_OPS, MicroInsn, MicroProgram
from vkore_jax.lowering import fold
from vkore_jax.sim.golden.micro import evaluate

TYPES = (BOOL, I8, U8, I32, U64)
ARITY = {"not": 1, "neg": 1, "convert": 1, "clamp": 3, "select": 3}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
NAMES = (
    *("add", "sub", "mul", "max", "min", "and", "or", "xor", "not", "neg", "clamp"),
    *("select", "convert"),
    *COMPARE,
)


def values(t: DType) -> np.ndarray:
    if t is BOOL:
        return np.array([False, True])
    info = np.iinfo(t.numpy)
    some = {0, 1, 2, 7, int(info.max), int(info.min), int(info.max) // 2}
    return np.array(sorted(some | ({-1, -3} if info.min else set())), t.numpy)


@pytest.mark.parametrize("name", NAMES)
def test_as_the_machine(name: str) -> None:
    """All pairs and triples of what wraps, saturates or changes sign."""
    count, seen = ARITY.get(name, 2), 0
    for t in TYPES:
        inputs = (BOOL, t, t) if name == "select" else (t,) * count
        for result in TYPES if name == "convert" else (t,):
            result = BOOL if name in COMPARE else result
            insn = MicroInsn(MICRO_OPS[name].code, result, tuple(range(count)))
            program = MicroProgram(inputs, (insn,), (count,))
            rows = list(itertools.product(*(values(i) for i in inputs)))
            folded = [
                fold.integers(
                    name,
                    result,
                    b"",
                    tuple((i, x.tobytes()) for i, x in zip(inputs, row)),
                )
                for row in rows
            ]
            if None in folded:
                assert t is BOOL, f"{name} of {t} is not folded"
                continue
            arrays = [np.array(column) for column in zip(*rows)]
            with np.errstate(all="ignore"):
                (wanted,) = evaluate(program, arrays, (len(rows),))
            found = np.frombuffer(b"".join(map(bytes, folded)), result.numpy)  # type: ignore[arg-type]
            np.testing.assert_array_equal(found, wanted, err_msg=f"{name} of {t}")
            seen += 1
    assert seen >= 4


@pytest.mark.parametrize("t", [dtypes.F32, dtypes.BF16, dtypes.C64], ids=str)
def test_floats_are_the_machines(t: DType) -> None:
    one = np.ones((), t.numpy).tobytes()
    assert fold.integers("add", t, b"", ((t, one), (t, one))) is None
    assert fold.integers("convert", dtypes.I32, b"", ((t, one),)) is None
