"""Random programs on random chips: whatever the compiler emits the verifier takes.

Programs are compiled, never run, so shapes may be large.  For a long search:
`python -m tests.lowering.any_chip COUNT [FIRST_SEED]`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vkore_jax import lowering, primitives
from vkore_jax.chips import Chip, get_chip
from vkore_jax.errors import (
    InvalidArgument,
    NotYetImplemented,
    ResourceExhausted,
    UnsupportedOp,
    VkoreError,
)
from vkore_jax.verify import verify

Choose = Callable[[int], int]
"""Returns an integer in [0, n)."""
REFUSALS = (ResourceExhausted, UnsupportedOp, NotYetImplemented)
SIZES = (1, 2, 3, 7, 16, 65, 128, 450, 1000, 4096)
DTYPES = ("f4", "f4", "f4", "bfloat16", "f2", "i4", "f8", "c8")


def pick(choose: Choose, items: Sequence[Any]) -> Any:
    return items[choose(len(items))]


def chip(choose: Choose) -> Chip:
    """Return a profile with random memories, array and capabilities."""
    base = get_chip(pick(choose, ("tiny", "tiny", "vk1", "warboy")))
    while True:
        facts: dict[str, Any] = {
            "mxu_rows": 2 ** choose(8),
            "mxu_cols": 2 ** choose(8),
            "accumulator_bytes": pick(choose, (1, 3, 1 << 4)) * 2 ** choose(18),
            "scratchpad_align_bytes": 2 ** choose(9),
            "vec_max_insns": pick(choose, (1, 2, 5, 16, 64, 1024)),
            "vec_max_operands": pick(choose, (2, 3, 5, 9, 12, 48)),
            "dram_bytes": pick(choose, (1 << 16, 1 << 24, 1 << 28, 1 << 40)),
        }
        least = 16 * facts["mxu_rows"] * facts["mxu_cols"]
        facts["scratchpad_bytes"] = max(least, 1 << (8 + choose(16))) + choose(999)
        try:
            return dataclasses.replace(base, **facts)
        except InvalidArgument:
            continue


def _float(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.floating) else jnp.abs(x).astype("float32")


def _plain(x: Any) -> Any:
    return x.real if jnp.iscomplexobj(x) else x


def _attention(choose: Choose, x: Any) -> Any:
    heads, width = pick(choose, (1, 2)), pick(choose, (4, 16, 64))
    q = jnp.resize(_float(x), (1, pick(choose, (3, 16, 300)), heads, width))
    return primitives.attention(q, q * 2, q + 1, causal=bool(choose(2)))


def _entropy(choose: Choose, x: Any) -> Any:
    width, vocabulary = pick(choose, (4, 64)), pick(choose, (7, 130, 1000))
    h = jnp.resize(_float(x), (pick(choose, (2, 33, 200)), width))
    w = jnp.resize(_float(x) * 2, (vocabulary, width))
    labels = jnp.arange(h.shape[0]) % vocabulary
    return primitives.softmax_cross_entropy(h, w, labels)


def _conv(choose: Choose, x: Any) -> Any:
    c = pick(choose, (1, 3, 8))
    image = jnp.resize(x, (pick(choose, (1, 2)), pick(choose, (5, 17, 33)), 9, c))
    kernel = jnp.resize(x + x, (pick(choose, (1, 3)), 3, c, pick(choose, (1, 5, 16))))
    stride = 1 + choose(2)
    return lax.conv_general_dilated(
        image, kernel, (stride, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _matmul(choose: Choose, x: Any) -> Any:
    x = jnp.atleast_2d(x)
    n = pick(choose, SIZES[:8])
    other = jnp.resize(x * 2, (n, x.shape[-1]) if choose(2) else (x.shape[-1], n))
    turned = other.shape[-1] == x.shape[-1]
    out = jnp.matmul(
        x, other.T if turned else other, precision=pick(choose, (None, "highest"))
    )
    return out + jnp.sum(out, -1, keepdims=True) if choose(2) else out


def _axis(choose: Choose, x: Any) -> int:
    return choose(max(x.ndim, 1)) if x.ndim else 0


def _reduced(function: Callable[..., Any], keep: bool = False) -> Callable[..., Any]:
    def step(choose: Choose, x: Any) -> Any:
        x = jnp.atleast_1d(x)
        x = x if function not in (_lse, _softmax) else _float(x)
        if function in (jnp.argmax, jnp.argmin, jnp.max, jnp.sort):
            x = x if not jnp.iscomplexobj(x) else x.real
        y = function(x, axis=_axis(choose, x))
        if not keep and choose(2):
            return x + jnp.sum(y).astype(x.dtype)
        return y

    return step


def _lse(x: Any, axis: int) -> Any:
    return jax.nn.logsumexp(x, axis=axis)


def _softmax(x: Any, axis: int) -> Any:
    return jax.nn.softmax(x, axis=axis)


def _loop(choose: Choose, x: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        return (c * 2 + 1).astype(c.dtype), c.sum()

    return lax.scan(body, x, None, length=1 + choose(3))[0]


def _gather(choose: Choose, x: Any) -> Any:
    x = jnp.atleast_1d(x)
    at = (jnp.arange(pick(choose, SIZES)) * 7) % x.shape[0]
    if choose(2):
        return x[at]
    return x.at[at].add(jnp.ones((), x.dtype))


STEPS: dict[str, Callable[[Choose, Any], Any]] = {
    "sum": _reduced(jnp.sum),
    "max": _reduced(jnp.max),
    "argmax": _reduced(jnp.argmax),
    "argmin": _reduced(jnp.argmin),
    "logsumexp": _reduced(_lse),
    "softmax": _reduced(_softmax, keep=True),
    "cumsum": _reduced(jnp.cumsum, keep=True),
    "sort": _reduced(jnp.sort, keep=True),
    "matmul": _matmul,
    "conv": _conv,
    "attention": _attention,
    "entropy": _entropy,
    "loop": _loop,
    "gather": _gather,
    "transpose": lambda _, x: x.T,
    "tanh": lambda _, x: jnp.tanh(_float(x)) * 2 + 1,
    "long": lambda _, x: jnp.exp(jnp.sin(x * 2) + jnp.cos(x) * x - x / 3),
    "flip": lambda c, x: jnp.flip(jnp.atleast_1d(x), _axis(c, jnp.atleast_1d(x))),
    "concat": lambda c, x: jnp.concatenate([jnp.atleast_1d(x)] * 2, 0)[1:],
    "reshape": lambda c, x: x.reshape(-1),
    "outer": lambda c, x: jnp.broadcast_to(x, (pick(c, SIZES[:6]), *x.shape)),
    "norm": lambda c, x: _float(x) / jnp.sqrt((_float(x) ** 2).mean(-1, keepdims=True)),
    "convert": lambda c, x: _plain(x).astype(pick(c, DTYPES)),
    "iota": lambda c, x: x + jnp.arange(x.shape[-1] if x.ndim else 1).astype(x.dtype),
}  # fmt: skip


def program(choose: Choose) -> tuple[Callable[[Any], Any], Any, str]:
    """Return a function, its argument's type and what it is."""
    rank = pick(choose, (1, 2, 2, 2, 3))
    shape = tuple(pick(choose, SIZES if rank < 3 else SIZES[:8]) for _ in range(rank))
    dtype = pick(choose, DTYPES)
    names = [pick(choose, tuple(STEPS)) for _ in range(1 + choose(4))]
    grad = not choose(4) and np.dtype(dtype).kind == "f"
    made = [choose(1 << 16) for _ in range(400)]

    def function(x: Any) -> Any:
        rest = iter(made)

        def again(n: int) -> int:
            return next(rest, 0) % n

        seen = [x]
        for name in names:
            y = STEPS[name](again, seen[-1])
            if y.size > 1 << 22:
                break
            seen.append(y)
        return seen[-1], (seen[1] if len(seen) > 2 and again(2) else None)

    def scalar(x: Any) -> Any:
        y = function(x)[0]
        return jnp.sum(y.real if jnp.iscomplexobj(y) else y).astype("float32")

    what = f"{dtype}{list(shape)} {' '.join(names)}{' grad' if grad else ''}"
    given = jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
    return jax.grad(scalar) if grad else function, given, what


def artifact(function: Callable[[Any], Any], given: Any) -> bytes | None:
    """Return the module, None when JAX itself refuses the program."""
    try:
        with jax.enable_x64(True):
            lowered = (
                jax.jit(function).trace(given).lower(lowering_platforms=("vkore",))
            )
            return lowered.as_text().encode()
    except (TypeError, ValueError, IndexError, VkoreError):
        return None


def problem(module: bytes, on: Chip) -> str:
    """Return what is wrong with compiling a program, "" when nothing is."""
    try:
        made = lowering.compile(module, on, lowering.Options(verify=True))
    except REFUSALS as error:
        return "" if "this is a bug" not in str(error) else str(error)
    except Exception as error:
        return f"compile: {type(error).__name__}: {error}"
    try:
        verify(made, on)
    except Exception as error:
        return f"verify: {type(error).__name__}: {error}"
    return ""


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    chips_each, tried, bad = 5, 0, 0
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)

        def choose(n: int, rng: Any = rng) -> int:
            return int(rng.integers(n))

        function, given, what = program(choose)
        module = artifact(function, given)
        if module is None:
            continue
        for _ in range(chips_each):
            on = chip(choose)
            tried += 1
            found = problem(module, on)
            if found:
                bad += 1
                print(seed, what, on, found[:600], "", sep="\n", flush=True)
    print(f"{tried} pairs, {bad} bad")


if __name__ == "__main__":
    main()
