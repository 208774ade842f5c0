"""Runs a random program on the engines and on the stock CPU, and compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax.generate import FLOATS, INEXACT, Program, numbers
from tests.lowering.artifacts import artifact
from vkore_jax import lowering
from vkore_jax.chips import CHIPS
from vkore_jax.sim import golden

VKORE = jax.devices("vkore")[0]
CPU = jax.devices("cpu")[0]
BATCH = 3
CHEAP = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
UNFUSED = {**CHEAP, "xla_disable_hlo_passes": "fusion"}
"""The second opinion.  XLA:CPU (jaxlib 0.10.2) updates in place what a fused update
still has to read: `w = x.reshape(15); dynamic_update_slice(w, 3 * w[:10], (5,))`.
Without fusion it transposes some arrays wrongly: dot_general of u8[1,2,5,3] with itself
over the axes 0 and 1."""
GRADIENT = 2e-4
"""Difference of gradients relative to the largest (f32, smooth programs)."""


@dataclass(frozen=True)
class Case:
    """A program and how it is used.

    Attributes:
        program: the program.
        seed: of the inputs.
        special: inputs hold NaN, infinities and negative zeros.
        batch: run under vmap.
        grad: compare the gradient of a scalar of the float results.
        chip: profile that golden's program is compiled for.
        x64: types of 64 bits exist.
    """

    program: Program
    seed: int
    special: bool
    batch: bool
    grad: bool
    chip: str
    x64: bool = False

    def inputs(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.seed)
        lead = (BATCH,) if self.batch else ()
        return [
            numbers(rng, lead + shape, dtype, self.special)
            for shape, dtype in self.program.inputs
        ]

    def function(self) -> Callable[..., Any]:
        p = self.program

        def results(*x: Any) -> list[Any]:
            known = p.run(*x)
            return [known[i] for i in p.outputs]

        if not self.grad:
            return jax.vmap(results) if self.batch else results
        places = [i for i, (_, d) in enumerate(p.inputs) if d in FLOATS]

        def loss(*x: Any) -> Any:
            total = jnp.zeros((), jnp.float32)
            for out in results(*x):
                if out.dtype.name in FLOATS:
                    total = total + jnp.tanh(out.astype(jnp.float32)).sum()
            return total

        one = jax.value_and_grad(loss, tuple(places))
        return jax.vmap(one) if self.batch else one


def on_cpu(
    f: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    options: Mapping[str, Any] = CHEAP,
) -> Any:
    """Return the stock CPU's results; compiled cheaply, it runs once."""
    with jax.default_device(CPU):
        lowered = (
            jax.jit(f, keep_unused=True)
            .trace(*inputs)
            .lower(lowering_platforms=("cpu",))
        )
        out = lowered.compile(compiler_options=dict(options))(*inputs)
    return jax.tree.map(np.asarray, out)


def expected(
    case: Case, inputs: Sequence[np.ndarray], options: Mapping[str, Any] = CHEAP
) -> tuple[list[np.ndarray], list[float]]:
    """Return the CPU's results and how far each may be missed."""
    p = case.program
    if case.grad:
        want = jax.tree.leaves(on_cpu(case.function(), inputs, options))
        sizes = [float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in want]
        return want, [GRADIENT * max(1.0, *sizes)] * len(want)
    known = on_cpu(jax.vmap(p.run) if case.batch else p.run, inputs, options)
    errors = p.errors(known)
    return [known[i] for i in p.outputs], [errors[i] for i in p.outputs]


def problems(case: Case) -> list[str]:
    """Return what differs, one sentence for each wrong result."""
    with jax.enable_x64(case.x64):
        return _problems(case)


def _problems(case: Case) -> list[str]:
    f, inputs = case.function(), case.inputs()
    on_chip = jax.jit(f)(*(jax.device_put(x, VKORE) for x in inputs))
    program = lowering.compile(artifact(f, *inputs, keep_unused=True), CHIPS[case.chip])
    engines = {
        "fast": [np.asarray(x) for x in jax.tree.leaves(on_chip)],
        "golden": golden.run(program.encoded, inputs),
    }
    found: list[str] = []
    for options in (CHEAP, UNFUSED):
        found = compared(engines, *expected(case, inputs, options))
        if not found:
            break
    return found


def compared(
    engines: Mapping[str, Sequence[np.ndarray]],
    want: Sequence[np.ndarray],
    limits: Sequence[float],
) -> list[str]:
    """Return what differs from the CPU, one sentence for each result."""
    found = []
    for name, have in engines.items():
        for i, (w, h, limit) in enumerate(zip(want, have, limits, strict=True)):
            text = different(w, h, limit)
            if text:
                found.append(f"{name}, result {i}: {text}")
    return found


def different(want: np.ndarray, have: np.ndarray, limit: float) -> str | None:
    """Compare with the CPU: exact when the limit is zero."""
    if want.shape != have.shape or want.dtype != have.dtype:
        return f"{have.dtype}{have.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind == "c":
        parts = [
            different(w, h, limit)
            for w, h in zip(
                (np.real(want), np.imag(want)), (np.real(have), np.imag(have))
            )
        ]
        return next((p for p in parts if p), None)
    if want.dtype.name not in INEXACT and "float" not in want.dtype.name:
        bad = want != have
    else:
        w, h = want.astype(np.float64), have.astype(np.float64)
        same = (w == h) | (np.isnan(w) & np.isnan(h))
        if limit == 0:
            same &= np.isnan(w) | (np.signbit(w) == np.signbit(h))
        with np.errstate(all="ignore"):
            near = np.abs(w - h) <= limit
        bad = ~(same | (near & (limit > 0)))
    if not bad.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(bad))
    return (
        f"{int(bad.sum())} of {bad.size} differ; at {at} CPU {want[at]!r}, "
        f"found {have[at]!r}, limit {limit:.3g}"
    )
