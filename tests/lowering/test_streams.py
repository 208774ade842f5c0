"""The command streams of small programs on `tiny`, as text to review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lowering import programs
from tests.lowering.programs import PROGRAMS
from vkore_jax.asm import assemble, disassemble
from vkore_jax.chips import TINY

STREAMS = (
    "softmax_rows",
    "norm",
    "mlp",
    "attention",
    "column_sums",
    "deep_product",
    "gradients",
    "views",
    "outputs",
    "scan",
    "switch",
)


@pytest.mark.parametrize("name", STREAMS)
def test_stream(name: str, golden: Callable[[str, Path], None]) -> None:
    made = programs.compiled(PROGRAMS[name](), TINY)
    text = disassemble(made)
    golden(text, Path("tests/golden/streams") / f"{name}.txt")
    assert assemble(text).encoded == made.encoded
