"""A bf16 run multiplies bf16 only, and what it keeps wider in DRAM is known by kind."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.lowering.artifacts import artifact
from train.config import ModelConfig, TrainConfig
from train.step import init_state, make_train_step
from vkore_jax import isa, lowering
from vkore_jax.chips import get_chip
from vkore_jax.isa.enums import Segment
from vkore_jax.program import Program

CONFIG = TrainConfig(
    model=ModelConfig(
        vocab_size=96, context=24, d_model=32, n_layers=1, n_heads=4, n_kv_heads=2,
        d_ff=80,
    ),
    batch_size=4, param_dtype="bf16", master="hilo", moments="hilo",
)  # fmt: skip


def compiled(config: TrainConfig) -> Program:
    """Return the program of a training step on a chip that stores 16 bits."""
    shapes = (config.batch_size, config.model.context + 1)
    state = jax.eval_shape(lambda: init_state(config))
    batch = jax.ShapeDtypeStruct(shapes, jnp.int32)
    step = artifact(make_train_step(config), state, batch)
    return lowering.compile(step, get_chip("vk1-bf16"), lowering.Options())


SLOW = [pytest.param(p, marks=pytest.mark.slow) for p in ("accelerate", "explicit")]


@pytest.fixture(scope="module", params=["none", *SLOW])
def program(request: pytest.FixtureRequest) -> Program:
    return compiled(dataclasses.replace(CONFIG, primitives=request.param))


# What a step keeps in float32 between two groups of commands, beside single numbers for
# a row, a column or a tensor (a norm's or softmax's statistics, partial sums) and
# copies of bf16 values that their readers want widened: by the function that owns it.
KEPT_WIDE = {
    "rotary_table": "cosines and sines, one table for all layers",
    "rotate": "their gradient's half-turned form",
    "attend": "softmax before its rounding, for its gradient",
    "Block.__call__": "a norm's input times its scale, for its gradient",
    "SwiGlu.__call__": "the next norm's, fused with this product",
    "Attention.__call__": "likewise, and moments between two passes over gradients",
    "compact_state.<locals>.update": "gradients scaled by the clip, moments",
    "join": "weights of the norms, joined from their pairs",
    "residual": "the step's count",
    "token_loss": "the loss",
    "linear": "as Attention and SwiGlu, of the primitives' run",
    "_vjp_fwd": "a primitive's norm",
    "rope": "a primitive's rotation",
    "_rope": "its tables",
}


@dataclasses.dataclass(frozen=True)
class Stored:
    """An arena buffer."""

    function: str  # of the user, whose command writes it
    shape: tuple[int, ...]
    nbytes: int
    dtype: str
    is_copy: bool  # a bf16 value, widened


def arena(program: Program) -> Iterator[Stored]:
    for located in program.block:
        cmd = located.cmd
        if isinstance(cmd, isa.Group):
            stores = [s for s in cmd.stages if isinstance(s, isa.Store)]
            made = [(s.dst, _is_widened(cmd, s.tile)) for s in stores]
        else:
            fields = dataclasses.fields(cmd)
            dsts = [getattr(cmd, f.name) for f in fields if f.name.startswith("dst")]
            made = [(view, False) for view in _views(dsts)]
        for view, is_copy in made:
            buffer = program.buffers[view.buffer]
            if buffer.segment == Segment.ARENA:
                yield Stored(
                    program.locations[located.loc].function, view.shape, buffer.nbytes,
                    view.dtype.name, is_copy,
                )  # fmt: skip


def _views(x: Any) -> Iterator[isa.View]:
    if isinstance(x, isa.View):
        yield x
    elif isinstance(x, list | tuple):
        for part in x:
            yield from _views(part)


def _is_widened(group: isa.Group, tile: int) -> bool:
    for stage in group.stages:
        if isinstance(stage, isa.Transpose) and stage.out == tile:
            return _is_widened(group, stage.src)
        if isinstance(stage, isa.Vec) and tile in stage.outs:
            code = stage.program
            i = code.outputs[stage.outs.index(tile)] - len(code.inputs)
            insn = code.insns[i] if i >= 0 else None
            if insn is not None and insn.op.name == "convert":
                return code.types()[insn.srcs[0]].name == "bfloat16"
    return False


def test_what_is_kept_in_f32_is_known_by_kind(program: Program) -> None:
    largest = CONFIG.batch_size * CONFIG.model.context  # rows of an activation
    wide = [b for b in arena(program) if b.dtype == "float32"]
    per_row = [b for b in wide if b.shape[-1:] in ((), (1,)) or 1 in b.shape[-2:]]
    assert all(math.prod(b.shape) <= 4 * largest for b in per_row)
    kept = [b for b in wide if not b.is_copy and b not in per_row]
    assert {b.function for b in kept} <= KEPT_WIDE.keys()
    # Neither logits nor their gradient, the largest arrays of a step, are among them.
    assert all(b.shape[-1:] != (CONFIG.model.vocab_size,) for b in wide)


def test_most_of_the_arena_is_narrow(program: Program) -> None:
    size: Counter[str] = Counter()
    for buffer in arena(program):
        size[buffer.dtype] += buffer.nbytes * (not buffer.is_copy)
    assert size["float32"] < size["bfloat16"]


def test_every_product_has_bf16_operands(program: Program) -> None:
    found = Counter(
        (group.tiles[stage.lhs].dtype.name, group.tiles[stage.rhs].dtype.name)
        for located in program.block
        if isinstance(group := located.cmd, isa.Group)
        for stage in group.stages
        if isinstance(stage, isa.Gemm)
    )
    assert found == {("bfloat16", "bfloat16"): sum(found.values())}
    assert sum(found.values()) >= 30
