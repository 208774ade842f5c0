"""The programs that are mutated: all of the ISA, by hand and from the compiler."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from tests.lowering import programs
from tests.lowering.artifacts import artifact
from tests.sim.builder import ProgramBuilder, unary
from tests.sim.cases import CASES
from vkore_jax import lowering
from vkore_jax.chips import TINY, VK1
from vkore_jax.dtypes import F32, I32
from vkore_jax.errors import VkoreError
from vkore_jax.isa import Host
from vkore_jax.program import Program

Families = dict[str, list[Program]]


def host_calls() -> Program:
    """Two calls of host functions, one with an effect."""
    b = ProgramBuilder(TINY)
    x = b.arg(F32, (3,))
    t = b.temp(F32, (3,))
    b.elementwise(unary("neg", F32), [t], [x])
    b.emit(Host((b.result(F32, (3,)), b.result(I32, ())), (t,), 7, "callback", True))
    b.emit(Host((), (x, t), 8, "debug", False))
    return b.build()


def train_step() -> Program:
    """Loss and updated weights of a perceptron with an embedding and a scan."""

    def loss(p, tokens):  # type: ignore[no-untyped-def]
        x = p["embed"][tokens]  # (B, T, D)

        def cell(h, x):  # type: ignore[no-untyped-def]
            h = jnp.tanh(h @ p["mix"] + x)
            return h, h

        _, hs = jax.lax.scan(cell, jnp.zeros(x[:, 0].shape), x.swapaxes(0, 1))
        logits = jax.nn.log_softmax(jax.nn.gelu(hs) @ p["head"])
        rows = jnp.take_along_axis(logits, tokens.T[..., None], -1)
        return -rows.mean()

    def step(p, tokens):  # type: ignore[no-untyped-def]
        value, grads = jax.value_and_grad(loss)(p, tokens)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, p, grads)

    shapes = {"embed": (11, 8), "mix": (8, 8), "head": (8, 11)}
    p = {k: np.zeros(s, np.float32) for k, s in shapes.items()}
    tokens = np.zeros((2, 5), np.int32)
    return lowering.compile(artifact(step, p, tokens, donate_argnums=0), TINY)


def small() -> Families:
    """Hand-built programs only: made in a moment."""
    families: Families = {"host": [host_calls()]}
    for case in CASES:
        family = families.setdefault(case.id.partition("/")[0], [])
        family.append(case.build(TINY))
    return families


@cache
def whole() -> Families:
    """Everything, programs of the compiler for two chips included."""
    families = small()
    compiled = families["compiled"] = []
    for make in programs.PROGRAMS.values():
        for chip in (TINY, VK1):
            try:
                compiled.append(programs.compiled(make(), chip))
            except VkoreError:
                continue  # does not fit this chip: not what is tested here
    families["train"] = [train_step()]
    return families
