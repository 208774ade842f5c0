"""Fusion: what shares a group, what must not, and that nothing is computed twice."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering import artifacts, programs
from tests.lowering.graphs import LOC, GraphBuilder, f32, gelu, module, softmax
from tests.lowering.programs import MEMORIES, PROGRAMS, groups, names
from vkore_jax import isa
from vkore_jax.chips import TINY, VK1, Chip
from vkore_jax.dtypes import F32, I32
from vkore_jax.isa import ReduceKind
from vkore_jax.lowering import Options, compile, compile_module, ir
from vkore_jax.lowering.ir import Value
from vkore_jax.program import Program
from vkore_jax.verify import verify

KINDS = pytest.mark.parametrize("chip", MEMORIES, ids=lambda c: c.name)
LAYER = (2, 24, 64)


def jitted(f: Callable[..., object], chip: Chip, *shapes: tuple[int, ...]) -> Program:
    args = [np.zeros(s, np.float32) for s in shapes]
    made = compile(artifacts.artifact(f, *args), chip, Options(verify=True))
    verify(made, chip)
    return made


def rms_norm(x: jax.Array, g: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * g + b


def dense(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w + b)


def masked(q: jax.Array, k: jax.Array) -> jax.Array:
    """Scores, causal mask, softmax."""
    s = q @ k / 8.0
    return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e9))


ONE_GROUP: dict[str, tuple[Callable[..., object], tuple[tuple[int, ...], ...]]] = {
    "softmax": (jax.nn.softmax, (LAYER,)),
    "softmax backward": (jax.grad(lambda x: (jax.nn.softmax(x) * x).sum()), (LAYER,)),
    "log_softmax": (jax.nn.log_softmax, (LAYER,)),
    "layer norm": (norm, (LAYER, (64,), (64,))),
    "layer norm backward": (
        jax.grad(lambda *a: (norm(*a) ** 2).sum(), (0, 1, 2)),
        (LAYER, (64,), (64,)),
    ),
    "rms norm": (rms_norm, (LAYER, (64,))),
    "rms norm backward": (
        jax.grad(lambda *a: (rms_norm(*a) ** 2).sum(), (0, 1)),
        (LAYER, (64,)),
    ),
    "product, bias, gelu": (dense, (LAYER, (64, 48), (48,))),
    "product, residual": (lambda x, w, r: r + x @ w, (LAYER, (64, 64), LAYER)),
    "product, silu, mul": (
        lambda x, w, g: jax.nn.silu(x @ w) * g,
        (LAYER, (64, 48), (2, 24, 48)),
    ),
    "product, mask, softmax": (masked, ((2, 3, 20, 8), (2, 3, 8, 20))),
    "bias gradient with its producer": (
        lambda x, dy: ((d := dy * (1 - x * x)), d.sum((0, 1))),
        (LAYER, LAYER),
    ),
}


@KINDS
@pytest.mark.parametrize("name", ONE_GROUP)
def test_is_one_group(name: str, chip: Chip) -> None:
    f, shapes = ONE_GROUP[name]
    assert names(jitted(f, chip, *shapes)) == ["group"]


@KINDS
@pytest.mark.parametrize("name", ["softmax_rows", "norm", "mlp"])
def test_hand_written_is_one_group(name: str, chip: Chip) -> None:
    made = programs.compiled(PROGRAMS[name](), chip)
    assert names(made) == ["group"]
    assert made.arena_bytes == 0


def test_adamw_is_one_group_for_each_parameter() -> None:
    def adamw(p, m, v, g, lr):  # type: ignore[no-untyped-def]
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - lr * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p), m, v

    made = jitted(adamw, VK1, *[(64, 64)] * 4, ())
    assert names(made) == ["group"]
    (group,) = groups(made)
    assert sum(isinstance(s, isa.Vec) for s in group.stages) == 1
    assert sum(isinstance(s, isa.Load) for s in group.stages) == 5
    assert sum(isinstance(s, isa.Store) for s in group.stages) == 3


def test_groups_have_low_rank() -> None:
    """Axes that no operand tells apart are one axis."""
    x = f32(2, 3, 4, 5, 6)
    b = GraphBuilder(x)
    made = programs.compiled(module(b.done(b.op("exp", b.op("neg", x)))), VK1)
    (group,) = groups(made)
    assert {t.shape for t in group.tiles} == {(720,)}


def test_no_cycle_through_other_commands() -> None:
    made = programs.agree(PROGRAMS["around"](), VK1)
    assert names(made) == ["group", "concat", "group"]


def test_expensive_work_is_done_once() -> None:
    """exp is needed by two groups (a product is between them): it is stored."""
    x, w = f32(24, 24), f32(24, 24)
    b = GraphBuilder(x, w)
    e = b.op("exp", x)
    y = b.op("mul", b.gemm(e, w), e)
    made = programs.agree(module(b.done(y)), VK1)
    ops = [
        i.op.name
        for g in groups(made)
        for s in g.stages
        if isinstance(s, isa.Vec)
        for i in s.program.insns
    ]
    assert ops.count("exp") == 1
    assert len(groups(made)) == 2


def test_products_do_not_share_a_group() -> None:
    made = programs.compiled(PROGRAMS["attention"](), VK1)
    for group in groups(made):
        assert sum(isinstance(s, isa.Gemm) for s in group.stages) <= 1
    assert names(made) == ["group", "group", "copy"]


def test_independent_chains_stay_apart() -> None:
    x, y = f32(8, 8), f32(9, 9)
    b = GraphBuilder(x, y)
    made = programs.compiled(module(b.done(b.op("exp", x), b.op("exp", y))), VK1)
    assert names(made) == ["group", "group"]


def test_scalars_do_not_tie_large_groups_together() -> None:
    """A computed scale is stored once and loaded by every update."""
    g, x, y = f32(), f32(40, 40), f32(50, 50)
    b = GraphBuilder(g, x, y)
    s = b.op("sqrt", b.op("abs", g))
    out = [b.op("mul", v, b.broadcast(s, v.shape, ())) for v in (x, y)]
    made = programs.agree(module(b.done(*out)), VK1)
    assert names(made) == ["group", "group", "group"]


def test_effects_keep_their_order() -> None:
    x = f32(4)
    b = GraphBuilder(x)
    for callback in (3, 1, 2):
        b.add(
            ir.HostCall(
                operands=(b.op("exp", x) if callback == 3 else x,), results=(),
                loc=LOC, callback=callback, kind="print", effect=True,
            )
        )  # fmt: skip
    made = programs.compiled(module(b.done()), VK1)
    calls = [c.cmd.callback for c in made.block if isinstance(c.cmd, isa.Host)]
    assert calls == [3, 1, 2]


def test_an_effect_waits_for_one_whose_operand_is_late() -> None:
    """The operand's group grows by a node that needs a copy made after the calls."""
    x = f32(16, 16)
    b = GraphBuilder(x)
    y = b.op("exp", x)
    for callback, operand in enumerate((y, x)):
        b.add(
            ir.HostCall(
                operands=(operand,), results=(), loc=LOC, callback=callback,
                kind="print", effect=True,
            )
        )  # fmt: skip
    turned = b.direct(isa.Copy, (b.transpose(x, 1, 0),), f32(16, 16))
    made = programs.compiled(module(b.done(b.op("add", y, turned))), VK1)
    calls = [c.cmd.callback for c in made.block if isinstance(c.cmd, isa.Host)]
    assert calls == [0, 1]


def test_what_nobody_reads_is_not_stored() -> None:
    x = f32(30, 24)
    b = GraphBuilder(x)
    value, index = Value(F32, (30, 1)), Value(I32, (30, 1))
    b.add(
        ir.Reduce(
            operands=(x,), results=(value, index), loc=LOC, kind=ReduceKind.ARGMAX,
            axes=(1,),
        )
    )  # fmt: skip
    (group,) = groups(programs.compiled(module(b.done(index)), VK1))
    stored = [s.dst.dtype for s in group.stages if isinstance(s, isa.Store)]
    assert stored == [I32]


def test_too_long_rows_are_not_fused_but_right() -> None:
    made = programs.agree(PROGRAMS["long_softmax"](), TINY)
    assert len(groups(made)) > 1
    assert names(programs.compiled(PROGRAMS["long_softmax"](), VK1)) == ["group"]


def test_vector_sequencer_bounds_a_group() -> None:
    x = f32(16)
    b = GraphBuilder(x)
    y = x
    for _ in range(40):
        y = b.op("tanh", b.op("mul", y, x))
    small = dataclasses.replace(VK1, name="vk1", vec_max_insns=16)
    made = compile_module(module(b.done(y)), small, Options(verify=True))
    verify(made, small)
    assert len(groups(made)) > 4


def test_options_switch_fusion_off() -> None:
    made = programs.compiled(PROGRAMS["softmax_rows"](), VK1, fuse=False)
    assert names(made) == ["group"] * 5


def test_compile_time_is_linear() -> None:
    """Twice the graph costs about twice the time (and not a second)."""

    def deep(n: int) -> float:
        x, w = f32(64, 64), f32(64, 64)
        b = GraphBuilder(x, w)
        y = x
        for _ in range(n):
            y = softmax(b, b.op("add", gelu(b, b.gemm(y, w)), y))
        m = module(b.done(y))
        start = time.process_time()
        compile_module(m, VK1)
        return time.process_time() - start

    deep(4)
    short, long = (min(deep(n) for _ in range(3)) for n in (10, 40))
    assert long < 8 * short + 0.1
