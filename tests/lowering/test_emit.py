"""The whole back half: every program means the same on every chip, fused or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.lowering import programs
from tests.lowering.graphs import GraphBuilder, f32, module
from tests.lowering.programs import MEMORIES, PROGRAMS
from vkore_jax import isa, program
from vkore_jax.chips import TINY, VK1
from vkore_jax.dtypes import BF16, F32
from vkore_jax.lowering import ir
from vkore_jax.lowering.ir import Value

KINDS = pytest.mark.parametrize("chip", MEMORIES, ids=lambda c: c.name)


@KINDS
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "single"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_means_the_same(name: str, fuse: bool, chip: object) -> None:
    programs.agree(PROGRAMS[name](), chip, fuse)  # type: ignore[arg-type]


@pytest.mark.parametrize("which", [0, 1, 2, 7, -1])
def test_every_branch_of_a_case(which: int) -> None:
    m = PROGRAMS["switch"]()
    args = programs.inputs(m)
    args[0] = args[0] * 0 + which
    made = programs.compiled(m, TINY)
    wanted = programs.ir_eval.evaluate(m, args)
    for got, want in zip(programs.golden.run(made.encoded, args), wanted):
        programs.same(got, want)


@KINDS
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_load_is_transposed_and_bytes_round_trip(name: str, chip: object) -> None:
    made = programs.compiled(PROGRAMS[name](), chip)  # type: ignore[arg-type]
    for group in programs.groups(made):
        for stage in group.stages:
            if isinstance(stage, isa.Load):
                assert stage.src.has_contiguous_rows
    assert program.decode(made.encoded) == made


def test_signature_and_donation() -> None:
    x, y = f32(2, 3), Value(BF16, (4,))
    b = GraphBuilder(x, y)
    graph = b.done(b.op("neg", y), b.op("exp", x))
    made = programs.compiled(
        ir.Module(
            name="f", graph=graph, donated=(1, 0), result_memory_kinds=("", "device")
        ),
        VK1,
    )
    assert [(s.dtype, s.shape) for s in made.params] == [(F32, (2, 3)), (BF16, (4,))]
    assert [(s.dtype, s.shape) for s in made.results] == [(BF16, (4,)), (F32, (2, 3))]
    assert [s.memory_kind for s in made.results] == ["", "device"]
    assert made.donated == (0, 1)
    assert made.name == "f"
    assert made.chip == "vk1"


def test_commands_know_where_they_come_from() -> None:
    made = programs.compiled(PROGRAMS["gradients"](), VK1)
    assert {str(made.locations[x.loc]) for x in made.block} == {"test at ?"}


def test_known_trip_counts_do_not_run_the_condition() -> None:
    made = programs.compiled(PROGRAMS["scan"](), TINY)
    (loop,) = [x.cmd for x in made.block if isinstance(x.cmd, isa.Loop)]
    assert loop.trips == 5
    assert len(loop.carries) == 4


def test_invariant_and_dead_carries_go() -> None:
    made = programs.compiled(PROGRAMS["search"](), TINY)
    (loop,) = [x.cmd for x in made.block if isinstance(x.cmd, isa.While)]
    assert len(loop.carries) == 1


def test_bytes_do_not_depend_on_the_process() -> None:
    """Hash seeds differ between processes; the program must not."""
    script = (
        "from tests.lowering.programs import MEMORIES, PROGRAMS, compiled\n"
        "for n in sorted(PROGRAMS):\n"
        "    for c in MEMORIES:\n"
        "        print(n, c.name, compiled(PROGRAMS[n](), c).fingerprint)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PATH": "", "JAX_PLATFORMS": "cpu"},
            cwd=programs.__file__.rsplit("/tests/", 1)[0],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == len(PROGRAMS) * len(MEMORIES)


def test_compiling_twice_gives_equal_bytes() -> None:
    m = PROGRAMS["attention"]()
    first = programs.compiled(m, VK1).encoded
    assert programs.compiled(m, VK1).encoded == first
    assert module(m.graph).name == "test"
