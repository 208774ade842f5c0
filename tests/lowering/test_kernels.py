"""Rules of the training kernels: groups of their own, on both engines and chips."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.artifacts import artifact
from vkore_jax import cost, isa, lowering, primitives
from vkore_jax.chips import CHIPS, TINY, VK1, Chip
from vkore_jax.dtypes import F32
from vkore_jax.lowering import Options, composites, ir
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.op import TensorType
from vkore_jax.program import Location, Program
from vkore_jax.sim import fast, golden
from vkore_jax.sim.contract import program_disagreement
from vkore_jax.verify import verify

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(jnp.asarray(RNG.standard_normal(shape), dtype))


def both(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return (arguments..., cotangent, rest...) -> value and gradients of the first."""

    def run(*args: Any) -> Any:
        first, ct, rest = args[:count], args[count], args[count + 1 :]
        y, vjp = jax.vjp(lambda *some: function(*some, *rest), *first)
        return y, vjp(ct)

    return run


def attention(*, mask: bool = False, **params: Any) -> Callable[..., Any]:
    def call(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return primitives.attention(q, k, v, *rest, **params)

    return both(call, 3)


def heads(
    t: int, s: int, h: int, g: int, d: int, e: int, lead: Sequence[int] = (2,),
    dtype: Any = np.float32,
) -> list[np.ndarray]:  # fmt: skip
    return [
        normal(*lead, t, h, d, dtype=dtype),
        normal(*lead, s, g, d, dtype=dtype),
        normal(*lead, s, g, e, dtype=dtype),
        normal(*lead, t, h, e, dtype=dtype),
    ]


def masks(*shape: int) -> np.ndarray:
    mask = RNG.random(shape) > 0.3
    mask[..., 3, :] = False  # a query that sees nothing
    return mask


def loss(bias: bool, **params: Any) -> Callable[..., Any]:
    def call(x: Any, w: Any, *rest: Any) -> Any:
        b, targets = rest if bias else (None, *rest)
        return primitives.softmax_cross_entropy(x, w, targets, b, **params)

    return both(call, 3 if bias else 2)


def ids(count: int, vocab: int) -> np.ndarray:
    found = RNG.integers(0, vocab, count).astype(np.int32)
    found[1] = -1
    return found


def rotation(x: Any, ct: Any) -> Any:
    t, d = x.shape[-3], x.shape[-1]
    angle = jnp.arange(t)[:, None] * 0.3 ** jnp.arange(d // 2)
    return both(lambda x: primitives.rope(x, jnp.cos(angle), jnp.sin(angle)), 1)(x, ct)


def lookup(table: Any, ct: Any, words: Any) -> Any:
    return both(lambda t: primitives.embedding(t, words, block=16), 1)(table, ct)


@dataclass(frozen=True, eq=False)
class Case:
    id: str
    function: Callable[..., Any]
    arguments: Sequence[np.ndarray]
    groups: int
    """Commands of the kernels, beside copies of the results and a gather."""
    chips: tuple[Chip, ...] = (TINY, VK1)


BF16 = jnp.bfloat16
CASES = [
    Case("attention", attention(), heads(13, 11, 2, 2, 8, 5), 2),
    Case("attention-causal", attention(causal=True), heads(16, 16, 2, 2, 8, 8), 2),
    Case("attention-gqa", attention(scale=1.0), heads(9, 7, 4, 2, 4, 4), 2),
    Case("attention-mask", attention(mask=True),
         [*heads(9, 7, 4, 2, 4, 3), masks(2, 1, 9, 7)], 2),
    Case("attention-head-mask", attention(mask=True, causal=True),
         [*heads(8, 8, 2, 1, 4, 4), masks(2, 2, 8, 8)], 2),
    Case("attention-long", attention(causal=True), heads(300, 300, 1, 1, 4, 4, ()), 4,
         (TINY,)),
    Case("attention-bf16", attention(causal=True),
         heads(40, 40, 4, 2, 8, 8, dtype=BF16), 3, (TINY,)),
    Case("attention-vmap", jax.vmap(attention(causal=True), (0, 0, 0, 0)),
         heads(8, 8, 2, 2, 4, 4, (3, 2)), 2),
    Case("loss", loss(False, ignore_index=-1),
         [normal(21, 12), normal(37, 12), normal(21), ids(21, 37)], 2),
    Case("loss-columns", loss(True, ignore_index=-1, z_loss=0.01, vocab_axis=1),
         [normal(21, 12), normal(12, 37), normal(37), normal(21), ids(21, 37)], 2),
    Case("loss-many", loss(True, ignore_index=-1),
         [normal(150, 24), normal(70, 24), normal(70), normal(150), ids(150, 70)], 3,
         (TINY,)),
    Case("loss-bf16", loss(False, ignore_index=-1),
         [normal(20, 8, dtype=BF16), normal(33, 8, dtype=BF16), normal(20),
          ids(20, 33)], 2),
    Case("rope", rotation, [normal(2, 7, 3, 8), normal(2, 7, 3, 8)], 2),
    Case("rope-bf16", jax.vmap(rotation),
         [normal(3, 5, 2, 6, dtype=BF16), normal(3, 5, 2, 6, dtype=BF16)], 2),
    Case("embedding", lookup, [normal(40, 6), normal(21, 6), ids(21, 44)], 2),
]  # fmt: skip
each = pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)


@functools.cache
def module(case: Case) -> bytes:
    return artifact(case.function, *case.arguments)


@functools.cache
def made(case: Case, name: str, kernels: bool) -> Program:
    options, chip = Options(kernels=kernels, verify=True), CHIPS[name]
    program = lowering.compile(module(case), chip, options)
    verify(program, chip)
    return program


def compiled(case: Case, chip: Chip, kernels: bool = True) -> Program:
    return made(case, chip.name, kernels)


@functools.cache
def results(case: Case, name: str, kernels: bool = True) -> list[Any]:
    """Return what the fast engine makes of a case."""
    program = made(case, name, kernels)
    return [np.asarray(x) for x in fast.run(program.encoded, case.arguments)]


def traffic(program: Program) -> int:
    units = cost.account(program.block).static.units.values()
    return sum(u.bytes_in + u.bytes_out for u in units)


@each
def test_engines_agree(case: Case) -> None:
    for chip in case.chips:
        program = compiled(case, chip)
        a = golden.run(program.encoded, case.arguments)
        for x, y in zip(a, results(case, chip.name), strict=True):
            assert program_disagreement(np.asarray(x), y) is None, chip


@each
def test_against_the_decomposition(case: Case) -> None:
    """The same numbers (but for other bf16 roundings), less traffic."""
    kernel, plain = (compiled(case, VK1, kernels) for kernels in (True, False))
    pairs = zip(results(case, VK1.name), results(case, VK1.name, False), strict=True)
    for x, y in pairs:
        x, y = np.asarray(x, "f4"), np.asarray(y, "f4")
        scale = np.abs(y).max(initial=1e-3)
        np.testing.assert_allclose(x / scale, y / scale, rtol=0, atol=1e-2)
    assert traffic(kernel) < traffic(plain)


@each
def test_one_group(case: Case) -> None:
    for chip in case.chips:
        commands = [x.cmd for x in compiled(case, chip).block]
        groups = [c for c in commands if isinstance(c, isa.Group)]
        assert len(groups) == case.groups, chip
        rest = {type(c) for c in commands if not isinstance(c, isa.Group)}
        assert rest <= {isa.Copy, isa.Gather}


def decoder_loss(p: dict[str, Any], tokens: Any) -> Any:
    """Next-token loss of a one-layer decoder that is primitives all the way."""
    x = primitives.embedding(p["table"], tokens[:, :-1])
    b, t, c = x.shape
    angle = jnp.arange(t)[:, None] * 0.3 ** jnp.arange(4)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    y = primitives.rms_norm(x, p["scale"])
    q, k, v = (primitives.linear(y, p[n]).reshape(b, t, -1, 8) for n in "qkv")
    q, k = primitives.rope(q, cos, sin), primitives.rope(k, cos, sin)
    y = primitives.attention(q, k, v, causal=True).reshape(b, t, c)
    x = x + primitives.linear(y, p["out"], activation="gelu")
    y = primitives.layer_norm(x, p["scale"], p["shift"])
    x = x + primitives.linear(primitives.swiglu(y @ p["gate"], y @ p["up"]), p["down"])
    return primitives.softmax_cross_entropy(x, p["table"], tokens[:, 1:]).mean()


def train_step(p: dict[str, Any], tokens: Any) -> Any:
    loss, grads = jax.value_and_grad(decoder_loss)(p, tokens)
    return loss, {
        k: primitives.adamw_update(
            p[k], g, 0 * g, 0 * g, step=1, learning_rate=0.01, eps=1.0
        )[0]
        for k, g in grads.items()
    }


SHAPES = {
    "table": (40, 16), "scale": (16,), "shift": (16,), "q": (16, 16), "k": (16, 8),
    "v": (16, 8), "out": (16, 16), "gate": (16, 24), "up": (16, 24), "down": (24, 16),
}  # fmt: skip


@pytest.mark.slow
def test_whole_step() -> None:
    """A train step of primitives only: golden on `tiny`, fast, and the stock CPU."""
    p = {k: 0.3 * normal(*s) for k, s in SHAPES.items()}
    arguments = (p, RNG.integers(0, 40, (2, 13)).astype(np.int32))
    program = lowering.compile(artifact(train_step, *arguments), TINY)
    verify(program, TINY)
    flat = [np.asarray(x) for x in jax.tree.leaves(arguments)]
    a, b = (engine.run(program.encoded, flat) for engine in (golden, fast))
    wanted = jax.tree.leaves(jax.jit(train_step)(*arguments))
    for x, y, z in zip(a, b, wanted, strict=True):
        x, y, z = np.asarray(x), np.asarray(y), np.asarray(z)
        assert program_disagreement(x, y) is None
        np.testing.assert_allclose(x, z, rtol=0, atol=5e-3 * np.abs(z).max())


def test_a_scope_that_shares_no_axes() -> None:
    """Rows that are cut in two between products: fused as if there were no hint."""
    b = Builder(VK1, Location("test", "", 0, ""))
    x, w, v = b.params([TensorType(F32, s) for s in ((12, 8), (8, 6), (3, 5))])
    with b.scoped("broken"):
        y = b.gemm(x, w, F32, isa.Strategy.BF16X1)
        y = b.vec("neg", b.reshape(y, (24, 3)))
        y = b.gemm(y, v, F32, isa.Strategy.BF16X1)
        again = b.gemm(b.transpose(y, (1, 0)), y, F32, isa.Strategy.BF16X1)
    module = ir.Module(name="test", graph=b.graph((x, w, v), (y, again)))
    program = lowering.compile_module(module, VK1, Options(verify=True))
    verify(program, VK1)
    inputs = [normal(12, 8), normal(8, 6), normal(3, 5)]
    for a, c in zip(
        golden.run(program.encoded, inputs), fast.run(program.encoded, inputs)
    ):
        assert program_disagreement(np.asarray(a), np.asarray(c)) is None
    groups = [x.cmd for x in program.block if isinstance(x.cmd, isa.Group)]
    assert all(
        sum(isinstance(s, isa.Gemm) for s in group.stages) == 1 for group in groups
    )
    assert len(groups) == 3


def test_names() -> None:
    assert set(composites.KERNELS) == {p.name for p in primitives.ALL}
    assert composites.VERSION == primitives.VERSION


def test_other_version() -> None:
    case = CASES[0]
    name = next(iter(composites.KERNELS))
    assert not composites.is_lowered("vkore.attention", 2, [], True)
    assert not composites.is_lowered(name, composites.VERSION, [], True)
    shapes = [a.shape for a in case.arguments[:3]]
    assert composites.is_lowered("vkore.attention", 1, shapes, True)
    assert not composites.is_lowered("vkore.attention", 1, shapes, False)
