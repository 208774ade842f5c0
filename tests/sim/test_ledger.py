"""The ledger: counts by unit, sharing of pages, lazy counters, text and plain data."""

from __future__ import annotations

import importlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.artifacts import artifact
from tests.sim.builder import ProgramBuilder, binary
from tests.sim.case import SimCase
from tests.sim.cases_flow import CASES as FLOW
from tests.sim.conftest import Engine
from vkore_jax import lowering
from vkore_jax.chips import TINY
from vkore_jax.cost import account
from vkore_jax.dtypes import F32
from vkore_jax.isa import Copy, Host, View
from vkore_jax.program import Program, decode
from vkore_jax.sim import golden
from vkore_jax.sim.fast import FastProgram, run
from vkore_jax.sim.fast.emitter import Val
from vkore_jax.sim.fast.load import own_client, put
from vkore_jax.sim.fast.small import Small
from vkore_jax.sim.fast.state import State
from vkore_jax.sim.golden.machine import Machine
from vkore_jax.sim.ledger import Ledger, ledger


@pytest.fixture(autouse=True)
def _clean() -> Any:
    ledger().reset()
    yield
    ledger().reset()


def linear() -> Program:
    """Return x @ w.T and a callback that looks at it."""
    b = ProgramBuilder(TINY, name="linear")
    x, w = b.arg(F32, (8, 16)), b.arg(F32, (4, 16))
    wt, y = b.temp(F32, (16, 4)), b.result(F32, (8, 4))
    b.emit(Copy(wt, View(w.buffer, F32, 0, (16, 4), (1, 16))))
    g = b.group([(8, 4)])
    g.store(y, g.gemm(g.load(x, (0, None)), g.load(wt)))
    b.emit(Host((), (y,), 0, "debug", True))
    return b.build()


def execute(times: int) -> None:
    client = own_client()
    device = client.local_devices()[0]
    loaded = FastProgram(linear().encoded, client, device, {0: lambda x: ()})
    args = [put(np.ones(s, np.float32), device) for s in ((8, 16), (4, 16))]
    for _ in range(times):
        loaded.execute(args)


def test_figures_by_unit() -> None:
    execute(3)
    found = ledger().to_dict()
    assert found["executions"] == 3
    assert found["host_compute"] == 0
    assert found["host_callbacks"] == 3
    assert found["macs"] == 3 * 8 * 16 * 4
    assert found["commands"] == {"MXU": 3, "DMA": 9, "LAYOUT": 3, "HOST": 3}
    assert found["bytes_in"]["LAYOUT"] == 3 * 256
    assert found["bytes_in"]["DMA"] == 3 * (512 + 256)
    assert found["bytes_out"]["DMA"] == 3 * 128
    assert found["mnemonics"] == {
        "copy": 3,
        "gemm": 3,
        "group": 3,
        "host": 3,
        "load": 6,
        "store": 3,
    }
    (page,) = found["executables"]
    assert page["name"] == "linear"
    assert page["macs"] == found["macs"]


def test_plain_data_is_json() -> None:
    execute(1)
    assert json.loads(json.dumps(ledger().to_dict())) == ledger().to_dict()


def test_the_same_program_shares_a_page() -> None:
    execute(1)
    execute(2)
    (page,) = ledger().executables
    assert page.executions == 3


def test_reset_forgets_but_goes_on_counting() -> None:
    execute(2)
    ledger().reset()
    assert ledger().to_dict()["commands"] == {}
    execute(1)
    assert ledger().executions == 1


def test_reset_forgets_the_counts_of_dynamic_bodies() -> None:
    """Those that were added up, and those that nobody has read yet."""
    book = Ledger()
    programs = (case.build(TINY) for case in FLOW)
    page = book.open(next(p for p in programs if account(p.block).dynamic), 0)
    bodies = len(page.account.dynamic)
    page.executions += 1
    page.note_counts([np.int64(3)] * bodies)
    assert page.counts() == [3] * bodies
    page.note_counts([np.int64(4)] * bodies)
    book.reset()
    assert page.counts() == [0] * bodies
    assert page.executions == 0
    assert page.total().mnemonics.total() == 0
    page.executions += 1
    page.note_counts([np.int64(2)] * bodies)
    assert page.counts() == [2] * bodies


def test_table_names_units_and_facts() -> None:
    execute(1000)
    text = str(ledger())
    assert "1 executables, 1000 executions" in text
    (row,) = [line for line in text.splitlines() if line.split()[:1] == ["MXU"]]
    assert row.split() == ["MXU", "1,000", "0", "0", "512.0k", *["0"] * 3]
    assert "host compute: 0" in text
    assert "host callbacks: 1,000" in text
    assert "linear: 1000 executions" in str(ledger().executables[0])


def test_host_compute_is_reported_per_execution() -> None:
    book = Ledger()
    page = book.open(linear(), host_compute=2)
    page.executions += 5
    assert book.host_compute == 10
    assert book.to_dict()["host_compute"] == 10


class _Meddler(Machine):
    """Doubles the first result itself when the commands are done."""

    def run(self, block: Any, path: str = "") -> None:
        super().run(block, path)
        if not path:
            view = self.program.results[0].view
            self.dram.write(view, 2 * self.dram.read(view))


_TRANSLATE = importlib.import_module("vkore_jax.sim.fast.translate")
_RESULTS = _TRANSLATE._results


def _doubled(s: State, small: Small) -> tuple[list[Val], int]:
    vals, strays = _RESULTS(s, small)
    first = vals[0]
    text = f"stablehlo.add {first.name}, {first.name} : {first.type}"
    s.e.owner = None
    return [s.e.op(text, first.dtype, first.shape), *vals[1:]], strays


def test_what_no_command_made_is_seen(
    monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    """An engine that computes a value beside the commands shows in the ledger."""
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (4,))
    b.elementwise(binary("add", F32), [b.result(F32, (4,))], [x, x])
    data, ones = b.build().encoded, np.ones(4, np.float32)
    for wrong in (False, True):
        if wrong:
            monkeypatch.setattr("vkore_jax.sim.golden.Machine", _Meddler)
            monkeypatch.setattr(_TRANSLATE, "_results", _doubled)
        ledger()._entries.clear()
        (out,) = engine(data, [ones])
        assert out[0] == (4 if wrong else 2)
        assert ledger().host_compute == wrong
        assert f"host compute: {int(wrong)} " in str(ledger())


def test_integers_that_the_compiler_computed_are_counted() -> None:
    def f(x: jax.Array) -> jax.Array:
        three, four = (jax.lax.full((4,), n, jnp.int32) for n in (3, 4))
        return x * (three + four) * (three - four)

    x = np.arange(4, dtype=np.int32)
    program = lowering.compile(artifact(f, x), TINY)
    assert program.folded == 2
    (row,) = [p for p in program.locations if "add" in p.op]
    assert row.op == "folded 1 of jit(f)/add"
    assert row.line
    (out,) = run(decode(program.encoded).encoded, [x])
    np.testing.assert_array_equal(out, -7 * x)
    assert ledger().folded == ledger().to_dict()["folded"] == 2
    assert ledger().host_compute == 0
    plain = lowering.compile(artifact(lambda x: x + 3, x), TINY)
    assert plain.folded == 0


def test_programs_that_never_ran_are_not_listed() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (4,))
    b.elementwise(binary("add", F32), [b.result(F32, (4,))], [x, x])
    run(b.build().encoded, [np.ones(4, np.float32)])
    book = Ledger()
    book.open(b.build(), 0)
    assert book.executables == ()
    assert len(ledger().executables) == 1


@pytest.mark.parametrize("case", FLOW, ids=[c.id for c in FLOW])
def test_engines_count_alike(case: SimCase) -> None:
    data = case.build(TINY).encoded
    inputs = case.inputs(np.random.default_rng(0))
    pages = []
    for engine in (golden.run, run):
        ledger().reset()
        engine(data, inputs)
        pages.append(ledger().to_dict())
    assert pages[0]["executions"] == 1
    assert pages[0] == pages[1]
