"""DRAM allocation: reuse, loops, constants, limits.  Overlaps are the verifier's."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering import programs
from tests.lowering.artifacts import artifact
from tests.lowering.graphs import GraphBuilder, f32, module
from tests.lowering.programs import MEMORIES, PROGRAMS
from vkore_jax import isa, lowering
from vkore_jax.chips import TINY, VK1
from vkore_jax.errors import ResourceExhausted
from vkore_jax.isa import Segment
from vkore_jax.lowering import Options, compile_module, ir
from vkore_jax.program import Program
from vkore_jax.verify import verify


def chain(length: int) -> ir.Module:
    """Products in a row: each intermediate dies with the next."""
    x, w = f32(32, 32), f32(32, 32)
    b = GraphBuilder(x, w)
    y = x
    for _ in range(length):
        y = b.gemm(y, w)
    return module(b.done(y))


def arena(p: Program) -> list[int]:
    return [b.nbytes for b in p.buffers if b.segment is Segment.ARENA]


def test_a_chain_needs_two_buffers() -> None:
    made = programs.agree(chain(10), VK1)
    assert len(arena(made)) == 9
    assert made.arena_bytes == 2 * 32 * 32 * 4


@pytest.mark.parametrize("chip", MEMORIES, ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["scan", "attention", "norm"])
def test_the_arena_is_smaller_than_its_buffers(name: str, chip: object) -> None:
    made = programs.compiled(PROGRAMS[name](), chip, fuse=False)  # type: ignore[arg-type]
    assert made.arena_bytes < sum(arena(made))


def test_parameters_and_results_have_their_own_segments() -> None:
    made = programs.compiled(PROGRAMS["outputs"](), VK1)
    segments = [made.buffers[s.buffer].segment for s in made.params]
    assert segments == [Segment.ARGUMENT]
    results = [s.buffer for s in made.results]
    assert len(set(results)) == len(results)
    assert {made.buffers[i].segment for i in results} == {Segment.RESULT}


def test_equal_constants_are_stored_once() -> None:
    x = f32(64)
    b = GraphBuilder(x)
    data = np.arange(64, dtype=np.float32)
    y = b.op("add", b.op("mul", x, b.const(data)), b.const(data.copy()))
    z = b.gemm(b.reshape(y, 8, 8), b.reshape(b.const(data.copy()), 8, 8))
    made = programs.agree(module(b.done(z)), VK1)
    assert len(made.constants) == data.nbytes


def test_constants_are_aligned() -> None:
    x = f32(3)
    b = GraphBuilder(x)
    y = b.op("add", x, b.const(np.array([1, 2, 3], np.float32)))
    y = b.op("mul", y, b.const(np.array([3, 1, 2], np.float32)))
    made = programs.agree(module(b.done(y)), VK1)
    offsets = [b.offset for b in made.buffers if b.segment is Segment.CONSTANT]
    assert offsets == [0, VK1.dram_align_bytes]


def test_captures_live_through_the_loop() -> None:
    """The captured product is read in every trip; nothing of the body may cover it."""
    x, w = f32(16, 16), f32(16, 16)
    b = GraphBuilder(x, w)
    captured = b.gemm(x, w)
    h = f32(16, 16)
    body = GraphBuilder(h)
    y = body.gemm(h, captured)
    y = body.gemm(y, w)
    y = body.op("tanh", body.gemm(y, w))
    cond = GraphBuilder(f32(16, 16))
    (out,) = b.add(
        ir.While(
            operands=(x,), results=(f32(16, 16),), loc=programs.LOC, trips=3,
            cond=cond.done(), body=body.done(y),
        )
    )  # fmt: skip
    made = programs.agree(module(b.done(out)), TINY)
    (loop,) = [c.cmd for c in made.block if isinstance(c.cmd, isa.Loop)]
    (carry,) = loop.carries
    ids = {v.buffer for v in (carry.enter, carry.current, carry.next, carry.leave)}
    assert len(ids) == 4


def test_a_view_captured_by_a_nested_loop_lives_through_both() -> None:
    """Read by the inner body alone, as its transpose; the outer body goes on after."""
    x, w = f32(16, 16), f32(16, 16)
    b = GraphBuilder(x, w)
    turned = b.transpose(b.gemm(x, w), 1, 0)

    def loop(of: GraphBuilder, start: ir.Value, body: ir.Graph) -> ir.Value:
        none = GraphBuilder(f32(16, 16)).done()
        node = ir.While(
            operands=(start,), results=(f32(16, 16),), loc=programs.LOC, trips=2,
            cond=none, body=body,
        )  # fmt: skip
        return of.add(node)[0]

    def products(of: GraphBuilder, y: ir.Value) -> ir.Value:
        return of.op("tanh", of.gemm(of.gemm(y, w), w))

    inner = GraphBuilder(h := f32(16, 16))
    body = inner.done(products(inner, inner.gemm(h, turned)))
    outer = GraphBuilder(g := f32(16, 16))
    out = loop(b, x, outer.done(products(outer, loop(outer, g, body))))
    programs.agree(module(b.done(out)), TINY)


def test_neighbours_that_are_freed_become_one_hole() -> None:
    x, w, p, q, r = f32(32, 32), f32(32, 32), f32(64, 32), f32(128, 64), f32(32, 128)
    b = GraphBuilder(x, w, p, q, r)
    first = b.gemm(x, w)
    third = b.gemm(p, b.gemm(first, w))
    fourth = b.gemm(third, first)  # the lowest address is freed last
    made = programs.agree(module(b.done(b.gemm(r, b.gemm(q, fourth)))), VK1)
    assert made.arena_bytes == 24 * 1024


def test_a_predicate_is_read_at_the_end_of_its_condition() -> None:
    """Commands behind it, which have an effect, must not use its bytes."""

    def f(x: jax.Array) -> jax.Array:
        def more(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
            again = jnp.sum(carry[1]) < 100
            jax.debug.callback(lambda y: None, jnp.cumsum(carry[1]) @ carry[1])
            return again

        return jax.lax.while_loop(
            more, lambda c: (c[0] + 1, c[1] * 2), (jnp.int32(0), x)
        )[1]

    made = lowering.compile(artifact(f, np.ones(8, np.float32)), TINY)
    verify(made, TINY)


def test_dram_that_is_too_small_is_reported_with_the_excess() -> None:
    m = chain(3)
    need = 3 * 4096 + 2 * 4096
    small = dataclasses.replace(VK1, dram_bytes=need - 4096)
    with pytest.raises(ResourceExhausted) as e:
        compile_module(m, small, Options())
    for part in ("20,480 bytes", "16,384", "4,096 too many", "jax.checkpoint"):
        assert part in str(e.value)
    compile_module(m, dataclasses.replace(VK1, dram_bytes=need), Options())
    given = dataclasses.replace(m, donated=(0,))
    compile_module(given, small, Options())
