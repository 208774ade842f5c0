"""The fast engine's own promises: translation, callbacks, donation, dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.sim.builder import ProgramBuilder, binary, micro, nary
from tests.sim.cases import CASES
from tests.sim.cases_flow import searching
from vkore_jax.chips import TINY, VK1
from vkore_jax.dtypes import BF16, BOOL, F32, I32
from vkore_jax.errors import HostCallbackError, InvalidArgument, InvalidProgram
from vkore_jax.isa import (
    Carry,
    Case,
    Copy,
    Host,
    Loop,
    Merge,
    Phase,
    Sort,
    Strategy,
    View,
    While,
)
from vkore_jax.isa.view import row_major
from vkore_jax.program import Program, decode
from vkore_jax.sim.fast import FastProgram, run, translate, translate_program
from vkore_jax.sim.fast.emitter import Emitter
from vkore_jax.sim.fast.load import own_client, put
from vkore_jax.sim.ledger import ExecutableLedger

Builder = Callable[[ProgramBuilder], None]


def load(program: Program, **options: Any) -> FastProgram:
    client = own_client()
    return FastProgram(program.encoded, client, client.local_devices()[0], **options)


def arrays(loaded: FastProgram, *values: Any) -> list[Any]:
    params = loaded.program.params
    return [
        put(np.asarray(v, p.dtype.numpy), loaded.device)
        for v, p in zip(values, params, strict=True)
    ]


def text_of(program: Program) -> str:
    return translate(program.encoded)


# -------------------------------------------------------------------------- translation


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_operation_belongs_to_a_command(case: Any) -> None:
    assert translate_program(decode(case.build(TINY).encoded)).host_compute == 0


def test_an_operation_without_a_command_is_counted() -> None:
    e = Emitter()
    e.scalar(F32, 1.0)
    assert e.unattributed == 1
    e.owner = 7
    e.scalar(F32, 2.0)
    assert e.unattributed == 1
    e.owner = None
    e.scalar(F32, 3.0)
    assert e.unattributed == 2


def test_a_result_without_a_command_is_counted() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (4,))
    b.emit(Copy(b.result(F32, (4,)), x))
    program = b.build()
    # The result's buffer is bound to the parameter's value, but no command wrote it.
    aliased = Program(
        **{
            **{f: getattr(program, f) for f in program.__dataclass_fields__},
            "block": (),
        }
    )
    with pytest.raises(InvalidProgram, match="read before it is written"):
        translate_program(aliased)


def matmul(strategy: Strategy, lhs: Any = F32, rhs: Any = F32, k: int = 64) -> Program:
    b = ProgramBuilder(TINY)
    x, y = b.arg(lhs, (16, k)), b.arg(rhs, (k, 8))
    g = b.group([])
    g.store(b.result(F32, (16, 8)), g.gemm(g.load(x), g.load(y), F32, strategy))
    return b.build()


@pytest.mark.parametrize(
    ("strategy", "types", "dots", "roundings"),
    [
        (Strategy.BF16X1, (F32, F32), 1, 2),
        (Strategy.BF16X1, (BF16, F32), 1, 1),
        (Strategy.BF16X1, (BF16, BF16), 1, 0),
        (Strategy.BF16X3, (F32, F32), 2, 4),
        (Strategy.BF16X3, (BF16, F32), 1, 2),
        (Strategy.BF16X6, (F32, F32), 1, 2),
        (Strategy.BF16X6, (BF16, BF16), 1, 0),
        (Strategy.LANES, (F32, F32), 1, 0),
    ],
)
def test_no_pass_too_many(
    strategy: Strategy, types: tuple[Any, Any], dots: int, roundings: int
) -> None:
    text = text_of(matmul(strategy, *types))
    assert text.count("stablehlo.dot_general") == dots
    assert text.count("stablehlo.reduce_precision") == roundings


def test_a_tensor_is_rounded_once_and_below_its_transpose() -> None:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (8, 8))
    xt = b.temp(F32, (8, 8))
    b.emit(Copy(xt, View(x.buffer, F32, 0, (8, 8), (1, 8))))
    for _ in range(2):
        g = b.group([])
        g.store(b.result(F32, (8, 8)), g.gemm(g.load(xt), g.load(x)))
    text = text_of(b.build())
    assert text.count("stablehlo.reduce_precision") == 1
    # The first transpose is the copy's own value, which nothing uses any more.
    assert text.index("reduce_precision") < text.rindex("stablehlo.transpose")
    assert text.count("stablehlo.transpose") == 2


def test_row_values_stay_small_in_an_elementwise_chain() -> None:
    """rsqrt of a row statistic is computed on (8, 1), not on (8, 64)."""
    b = ProgramBuilder(TINY)
    x, row = b.arg(F32, (8, 64)), b.arg(F32, (8, 1))
    m = micro(F32, F32).op("rsqrt", 1).op("mul", 0, 2).out()
    b.elementwise(m, [b.result(F32, (8, 64))], [x, row])
    (line,) = [t for t in text_of(b.build()).splitlines() if "rsqrt" in t]
    assert "tensor<8x1xf32>" in line


@pytest.mark.parametrize("exact", [False, True])
def test_exact_keeps_both_roundings(exact: bool) -> None:
    b = ProgramBuilder(VK1)
    args = [b.arg(F32, (4096,)) for _ in range(3)]
    m = micro(F32, F32, F32).op("mul", 0, 1).op("add", 3, 2).out()
    b.elementwise(m, [b.result(F32, (4096,))], args)
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(4096).astype(np.float32) for _ in range(3))
    (out,) = run(b.build().encoded, [x, y, z], exact=exact)
    if exact:
        np.testing.assert_array_equal(out, x * y + z)
    np.testing.assert_allclose(out, x * y + z, rtol=1e-3, atol=1e-6)


def test_bf16_stores_round_between_commands() -> None:
    """XLA may not keep excess precision across an explicit rounding."""
    b = ProgramBuilder(VK1)
    x, y = b.arg(F32, (512,)), b.arg(F32, (512,))
    half = b.temp(BF16, (512,))
    b.elementwise(
        micro(F32, F32).op("mul", 0, 1).op("convert", 2, dtype=BF16).out(),
        [half],
        [x, y],
    )
    b.elementwise(
        micro(BF16, F32).op("convert", 0, dtype=F32).op("sub", 2, 1).out(),
        [b.result(F32, (512,))],
        [half, y],
    )
    rng = np.random.default_rng(1)
    a, c = (rng.standard_normal(512).astype(np.float32) for _ in range(2))
    (out,) = run(b.build().encoded, [a, c])
    expected = (a * c).astype(BF16.numpy).astype(np.float32) - c
    np.testing.assert_array_equal(out, expected)


# -------------------------------------------------------------------------------- views

VIEWS: dict[str, tuple[tuple[int, ...], View]] = {
    "diagonal": ((6, 6), View(0, F32, 0, (6,), (7,))),
    "windows": ((10,), View(0, F32, 1, (4, 3), (2, 1))),
    "reversed-windows": ((10,), View(0, F32, 9, (4, 3), (-2, -1))),
    "repeated-diagonal": ((5, 5), View(0, F32, 0, (3, 5), (0, 6))),
    "strided-both": ((8, 9), View(0, F32, 10, (3, 4), (18, 2))),
    "transposed-part": ((4, 6, 5), View(0, F32, 5, (5, 3, 4), (1, 10, 30))),
    "reversed-rows": ((4, 6), View(0, F32, 18, (4, 6), (-6, 1))),
    "broadcast-middle": ((4, 6), View(0, F32, 0, (4, 3, 6), (6, 0, 1))),
    "not-a-divisor": ((7,), View(0, F32, 1, (2, 2), (3, 1))),
}


@pytest.mark.parametrize(("shape", "view"), VIEWS.values(), ids=list(VIEWS))
def test_views(shape: tuple[int, ...], view: View) -> None:
    b = ProgramBuilder(TINY)
    b.arg(F32, shape)
    b.emit(Copy(b.result(F32, view.shape), view))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (out,) = run(b.build().encoded, [x])
    flat = x.reshape(-1)[view.offset :] if min(view.strides) >= 0 else None
    if flat is None:
        index = view.offset + sum(
            s * i for s, i in zip(view.strides, np.indices(view.shape))
        )
        expected = x.reshape(-1)[index]
    else:
        expected = np.lib.stride_tricks.as_strided(
            flat, view.shape, [4 * s for s in view.strides]
        )
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.int64], ids=str)
def test_bytes_read_as_another_type(dtype: Any) -> None:
    from vkore_jax.dtypes import by_numpy

    b = ProgramBuilder(TINY)
    b.arg(F32, (4, 6))
    target = by_numpy(dtype)
    shape = (4 * 6 * 4 // target.itemsize,)
    view = View(0, target, 0, shape, row_major(shape))
    b.emit(Copy(b.result(target, shape), view))
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    (out,) = run(b.build().encoded, [x])
    np.testing.assert_array_equal(out, x.reshape(-1).view(dtype))


# ----------------------------------------------------------------------- host callbacks


def host_program(effect: bool = True, kind: str = "pure") -> Program:
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (2, 3))
    b.emit(Host((b.result(F32, (3, 2)),), (x,), 7, kind, effect))
    return b.build()


@pytest.mark.parametrize("effect", [False, True])
def test_callback_gets_and_gives_row_major_arrays(effect: bool) -> None:
    seen: list[np.ndarray] = []

    def call(x: Any) -> list[Any]:
        seen.append(np.array(x))
        return [np.asarray(x).T + 1]

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (out,) = run(host_program(effect).encoded, [x], callbacks={7: call})
    np.testing.assert_array_equal(out, x.T + 1)
    np.testing.assert_array_equal(seen[0], x)


def test_an_error_in_a_callback_reaches_the_caller() -> None:
    def call(x: Any) -> list[Any]:
        raise KeyError("mine")

    loaded = load(host_program(), callbacks={7: call})
    for _ in range(2):
        with pytest.raises(HostCallbackError, match="KeyError") as caught:
            loaded.execute(arrays(loaded, np.zeros((2, 3))))
        assert isinstance(caught.value.__cause__, KeyError)


def test_a_callback_must_return_what_was_promised() -> None:
    loaded = load(host_program(), callbacks={7: lambda x: [np.zeros(5, np.float32)]})
    with pytest.raises(HostCallbackError, match="must return"):
        loaded.execute(arrays(loaded, np.zeros((2, 3))))


def test_a_missing_callback_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"\[7\]"):
        run(host_program().encoded, [np.zeros((2, 3), np.float32)])


def counting(b: ProgramBuilder, start: View, emit: Builder) -> Loop:
    """A loop of three trips over a counter; `emit` adds to the body."""
    current, following = b.temp(I32, ()), b.temp(I32, ())
    with b.block() as body:
        emit(b)
        b.emit(Host((), (current,), 1, "debug", True))
        add = micro(I32).imm(I32, 1).op("add", 0, 1).out()
        b.elementwise(add, [following], [current])
    carry = Carry(start, current, following, b.temp(I32, ()))
    return Loop(3, (carry,), b.close(body))


def test_effects_keep_their_order_in_and_around_a_loop() -> None:
    b = ProgramBuilder(TINY)
    start = b.arg(I32, ())
    b.emit(Host((), (start,), 0, "debug", True))
    b.emit(counting(b, start, lambda b: None))
    b.emit(Host((), (start,), 2, "debug", True))
    log: list[Any] = []
    callbacks = {
        i: lambda x, i=i: log.append((i, int(np.asarray(x)))) or () for i in range(3)
    }
    run(b.build().encoded, [np.array(10, np.int32)], callbacks=callbacks)
    assert log == [(0, 10), (1, 10), (1, 11), (1, 12), (2, 10)]


# --------------------------------------------------------------------- dynamic counters


def below(b: ProgramBuilder, x: View, limit: int) -> View:
    predicate = b.temp(BOOL, ())
    b.elementwise(micro(I32).imm(I32, limit).op("lt", 0, 1).out(), [predicate], [x])
    return predicate


def increment(b: ProgramBuilder, dst: View, x: View) -> None:
    b.elementwise(micro(I32).imm(I32, 1).op("add", 0, 1).out(), [dst], [x])


def up_to(
    b: ProgramBuilder, start: View, limit: int, body: Builder, loud: bool = False
) -> tuple[While, View]:
    """while x < limit: body; x += 1.  `loud`: the condition calls back."""
    current, following, leave = (b.temp(I32, ()) for _ in range(3))
    with b.block() as cond:
        if loud:
            b.emit(Host((), (current,), 0, "debug", True))
        predicate = below(b, current, limit)
    with b.block() as inside:
        body(b)
        increment(b, following, current)
    cmd = While(
        (Carry(start, current, following, leave),),
        b.close(cond),
        predicate,
        b.close(inside),
    )
    return cmd, leave


def branches(b: ProgramBuilder, index: View) -> Case:
    dst, one, two = (b.temp(I32, ()) for _ in range(3))
    blocks = []
    for out in (one, two):
        with b.block() as block:
            increment(b, out, index)
        blocks.append(b.close(block))
    return Case(index, tuple(blocks), (Merge(dst, (one, two)),))


def test_counters_of_nested_dynamic_bodies() -> None:
    """An outer WHILE of 3 trips holds a WHILE of 2 and a CASE; then one CASE alone."""
    b = ProgramBuilder(TINY)
    index, zero = b.arg(I32, ()), b.const(np.int32(0))

    def body(b: ProgramBuilder) -> None:
        inner, _ = up_to(b, zero, 2, lambda b: None)
        b.emit(inner, branches(b, index))

    outer, leave = up_to(b, zero, 3, body)
    b.emit(outer, branches(b, index))
    b.emit(Copy(b.result(I32, ()), leave))
    loaded = load(b.build())
    before = loaded.ledger.counts()
    (out,) = loaded.execute(arrays(loaded, 1))
    assert int(np.asarray(out)) == 3
    spent = np.subtract(loaded.ledger.counts(), before)
    # outer; inner; branch 0 and 1 in the loop; branch 0 and 1 outside.
    assert spent.tolist() == [3, 6, 0, 3, 0, 1]


def test_a_condition_with_effects_runs_once_more_than_the_body() -> None:
    b = ProgramBuilder(TINY)
    start = b.arg(I32, ())
    cmd, leave = up_to(b, start, 4, lambda b: None, loud=True)
    b.emit(cmd, Copy(b.result(I32, ()), leave))
    log: list[int] = []
    loaded = load(
        b.build(), callbacks={0: lambda x: log.append(int(np.asarray(x))) or ()}
    )
    before = loaded.ledger.total().host_callbacks
    loaded.execute(arrays(loaded, 1))
    assert log == [1, 2, 3, 4]
    assert loaded.ledger.total().host_callbacks - before == 4


@pytest.mark.parametrize("op", ["eq", "ne", "ge"])
def test_a_comparator_without_an_order_stays_inside(op: str) -> None:
    """Some permutation leaves; an unstable sort of XLA:CPU corrupts the heap."""
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (3, 200))
    code = micro(F32, F32).op(op, 0, 0).out()
    b.emit(Sort((b.result(F32, (3, 200)),), (x,), 1, False, code))
    assert "is_stable = true" in text_of(b.build())
    value = np.random.default_rng(0).integers(0, 9, (3, 200)).astype(np.float32)
    (found,) = run(b.build().encoded, [value])
    np.testing.assert_array_equal(np.sort(found, 1), np.sort(value, 1))


def test_loops_in_conditions_are_written_once() -> None:
    """Twice a level made a module of 2^depth loops."""
    sizes = [len(text_of(searching(depth)(TINY))) for depth in (2, 4, 8)]
    assert sizes[2] - sizes[1] < 6 * (sizes[1] - sizes[0])


def test_pages_read_counters_late() -> None:
    page = ExecutableLedger("x", "y", cost_of_branches())
    for _ in range(500):
        page.note_counts([1, 0])
    assert len(page._pending) < 200
    assert page.counts() == [500, 0]


def cost_of_branches() -> Any:
    from vkore_jax.cost import account

    b = ProgramBuilder(TINY)
    b.emit(branches(b, b.arg(I32, ())))
    return account(b.build().block)


# ----------------------------------------------------------------------------- donation


def donating() -> Program:
    b = ProgramBuilder(TINY)
    x, y = b.arg(F32, (64,)), b.arg(F32, (64,))
    b.elementwise(binary("add", F32), [b.result(F32, (64,))], [x, y])
    b.donated = (0,)
    return b.build()


def test_a_donated_parameter_is_consumed_and_its_memory_reused() -> None:
    loaded = load(donating())
    x, y = arrays(loaded, np.ones(64), np.ones(64))
    address = x.unsafe_buffer_pointer()
    (out,) = loaded.execute([x, y])
    assert x.is_deleted()
    assert not y.is_deleted()
    assert out.unsafe_buffer_pointer() == address


def test_a_kept_parameter_survives() -> None:
    loaded = load(donating())
    x, y = arrays(loaded, np.ones(64), np.ones(64))
    (out,) = loaded.execute([x, y], keep=(0,))
    np.testing.assert_array_equal(np.asarray(out), 2)
    np.testing.assert_array_equal(np.asarray(x), 1)


def test_donations_pair_like_with_like_in_order() -> None:
    b = ProgramBuilder(TINY)
    args = [b.arg(F32, (4,)), b.arg(F32, (5,)), b.arg(F32, (4,)), b.arg(BF16, (4,))]
    for shape in ((4,), (4,), (6,)):
        b.elementwise(micro().imm(F32, 1.0).out(), [b.result(F32, shape)], [])
    b.donated = (0, 1, 2, 3)
    head = text_of(b.build()).splitlines()[1]
    assert "%arg0: tensor<4xf32> {tf.aliasing_output = 0 : i32}" in head
    assert "%arg1: tensor<5xf32> {jax.buffer_donor = true}" in head
    assert "%arg2: tensor<4xf32> {tf.aliasing_output = 1 : i32}" in head
    assert "%arg3: tensor<4xbf16> {jax.buffer_donor = true}" in head
    assert len(args) == 4


# ------------------------------------------------------------------------------- errors


def test_an_error_names_the_command_and_its_place() -> None:
    b = ProgramBuilder(TINY)
    b.emit(Copy(b.result(F32, (4,)), b.temp(F32, (4,))))
    with pytest.raises(InvalidProgram, match=r"read before.*\n.*copy.*test\.py:1"):
        translate(b.build().encoded)


def test_inputs_must_fit() -> None:
    with pytest.raises(InvalidArgument, match="the program takes"):
        run(donating().encoded, [np.zeros(3, np.float32), np.zeros(64, np.float32)])


def test_a_k_split_epilogue_is_one_dot() -> None:
    """Schedules leave no trace in the translation."""
    b = ProgramBuilder(TINY)
    x, w = b.arg(F32, (8, 64)), b.arg(F32, (64, 8))
    g = b.group([(8, 4), (8, 4), (64, 16)], 2)
    out = g.gemm(g.load(x, (0, 2)), g.load(w, (2, 1)))
    act = g.vec(nary("tanh", F32), [out], phase=Phase.TAIL)
    g.store(b.result(F32, (8, 8)), act, Phase.TAIL)
    assert text_of(b.build()).count("dot_general") == 1
