"""A process that executes programs for the driver, under limits, and may die of it.

Frames on standard input and output: u32 length, pickle.  In: (bytes, seed).  Out:
(verdict, detail), the verdict one of ok, differ, errors, failed.
"""

from __future__ import annotations

import os
import pickle
import resource
import struct
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.case import normals, pool
from vkore_jax.errors import HostCallbackError, InvalidArgument, VkoreError
from vkore_jax.isa import Block, Command, Host, Sort
from vkore_jax.isa.access import accesses
from vkore_jax.program import Program, decode
from vkore_jax.sim import fast, golden
from vkore_jax.sim.contract import program_disagreement

MEMORY = 6 << 30
"""Address space: XLA reserves much more than it touches."""


def inputs(program: Program, seed: int) -> list[np.ndarray]:
    """Return arguments: small numbers, or now and then the corners of the type."""
    rng = np.random.default_rng(seed)
    # A NaN is in no order.
    sorts = any(isinstance(cmd, Sort) for cmd in commands(program.block))
    corners = rng.random() < 0.15 and not sorts
    out = []
    for spec in program.params:
        if spec.dtype.kind == "b":
            out.append(np.asarray(rng.random(spec.shape) < 0.5))
        elif corners:
            drawn = rng.permutation(pool(rng, spec.dtype, max(spec.view.size, 20)))
            out.append(drawn[: spec.view.size].reshape(spec.shape))
        else:
            out.append(np.asarray(normals(rng, spec.dtype, spec.shape)))
    return [np.asarray(x, s.dtype.numpy) for x, s in zip(out, program.params)]


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block, nested ones included."""
    for located in block:
        yield located.cmd
        for _, nested in accesses(located.cmd).blocks:
            yield from commands(nested)


def callbacks(program: Program) -> dict[int, Any]:
    """Return a function that answers with zeros for every callback."""
    found: dict[int, Any] = {}
    for cmd in commands(program.block):
        if not isinstance(cmd, Host):
            continue
        made = [np.zeros(v.shape, v.dtype.numpy) for v in cmd.dsts]
        found.setdefault(cmd.callback, lambda *_, made=made: list(made))
    return found


def outcome(engine: Any, data: bytes, args: Any, calls: Any) -> Any:
    """Return the results, or the error as a value."""
    try:
        return [np.array(x) for x in engine.run(data, args, callbacks=calls)]
    except Exception as e:
        return e


def compare(data: bytes, seed: int) -> tuple[str, str]:
    """Run both engines; say how they agree."""
    program = decode(data)
    args, calls = inputs(program, seed), callbacks(program)
    want = outcome(golden, data, args, calls)
    have = outcome(fast, data, args, calls)
    for x in (want, have):
        if isinstance(x, Exception) and not isinstance(x, VkoreError):
            text = "".join(traceback.format_exception(x))
            return "failed", f"{type(x).__name__}: {x}"[:600] + "\n" + text[-1500:]
    if isinstance(want, Exception) or isinstance(have, Exception):
        good = (HostCallbackError, InvalidArgument)
        if type(want) is type(have) and isinstance(want, good):
            return "ok", type(want).__name__
        return "errors", f"golden: {_said(want)}\nfast: {_said(have)}"
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        problem = program_disagreement(w, h)
        if problem:
            return "differ", f"result {i}: {problem}"
    return "ok", ""


def _said(x: Any) -> str:
    return f"{type(x).__name__}: {x}"[:1500] if isinstance(x, Exception) else "runs"


def main() -> None:
    """Answer until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not meet the frames
    stream = sys.stdin.buffer

    def say(answer: Any) -> None:
        body = pickle.dumps(answer)
        out.write(struct.pack("<I", len(body)) + body)
        out.flush()

    say("ready")
    while head := stream.read(4):
        data, seed = pickle.loads(stream.read(*struct.unpack("<I", head)))
        say(compare(data, seed))


if __name__ == "__main__":
    main()
