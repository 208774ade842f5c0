"""The fast engine against golden: what the search for differences found, and a few of
its programs.

`python -m tests.jax.differ` runs thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.jax import differ
from tests.lowering.artifacts import artifact
from vkore_jax import lowering
from vkore_jax.chips import VK1
from vkore_jax.sim import fast, golden
from vkore_jax.sim.contract import VALUES, disagreement
from vkore_jax.sim.fast.load import own_client, put

Array = Any
LINE = np.arange(12, dtype=np.float32)
FLAT = np.arange(6, dtype=np.float32).reshape(3, 2)


def part(x: Array, i: Array, n: int) -> Array:
    return lax.dynamic_slice(x, (i,), (n,))


def slice_of_slice(x: Array, i: Array, j: Array) -> Array:
    return part(part(x, i, 4), j, 1)


def slice_of_roll(x: Array, i: Array, j: Array) -> Array:
    return part(jnp.roll(x, i), j, 4)


def element_of_slice(x: Array, i: Array, j: Array) -> Array:
    return part(x, i, 4).at[j].get(mode="clip")


def row_of_rows(x: Array, i: Array, j: Array) -> Array:
    rows = lax.dynamic_slice(x.reshape(6, 2), (i, 0), (3, 2))
    return jnp.take(rows, j, 0, mode="clip")


def slice_of_slice_in_loop(x: Array, i: Array, j: Array) -> Array:
    def body(n: Array, c: Array) -> Array:
        return c.at[:4].add(part(part(c, i + n, 5), j - n, 4))

    return lax.fori_loop(0, 3, body, x)


def slice_of_slice_in_branch(x: Array, i: Array, j: Array) -> Array:
    y = part(x, i, 6)
    return lax.cond(j > 0, lambda: part(y, j, 4), lambda: part(y, j + 1, 4))


def set_in_slice(x: Array, i: Array, j: Array) -> Array:
    return part(x, i, 4).at[j].set(-7, mode="drop")


def add_to_window_of_slice(x: Array, i: Array, j: Array) -> Array:
    rows = lax.dynamic_slice(x.reshape(6, 2), (i, 0), (3, 2))
    return rows.at[jnp.stack([j])].add(x[:2], mode="drop")


def slice_of_update(x: Array, i: Array, j: Array) -> Array:
    return part(lax.dynamic_update_slice(x, x[:4] * 2, (i,)), j, 4)


INDEXED = (
    *(slice_of_slice, slice_of_roll, element_of_slice, row_of_rows, set_in_slice),
    *(slice_of_slice_in_loop, slice_of_slice_in_branch, add_to_window_of_slice),
    slice_of_update,
)


def both(f: Callable[..., Any], *inputs: Any, more: Sequence[Any] = ()) -> None:
    """Run on both engines; the values are the same.

    Args:
        f: compiled once.
        inputs: its run-time values.
        more: other inputs to run on.
    """
    arrays = [np.asarray(x) for x in inputs]
    code = lowering.compile(artifact(f, *arrays, keep_unused=True), VK1).encoded
    client = own_client()
    device = client.local_devices()[0]
    loaded = fast.FastProgram(code, client, device)
    for values in (arrays, *more):
        want = golden.run(code, values)
        have = loaded.execute([put(np.asarray(x), device) for x in values])
        for w, h in zip(want, have, strict=True):
            assert disagreement(w, np.asarray(h), VALUES) is None


@pytest.mark.parametrize("f", INDEXED, ids=lambda f: f.__name__)
def test_indices_out_of_range(f: Callable[..., Any]) -> None:
    pairs = ((9, 0), (3, 6), (-3, 9), (2, -1), (30, 1))
    first, *more = [(LINE, np.int32(i), np.int32(j)) for i, j in pairs]
    both(f, *first, more=more)


def test_unsigned_index_beyond_the_signed() -> None:
    with jax.enable_x64(True):
        both(lambda x, i: part(x, i, 4), LINE, np.uint64(2**63 + 5))


def set_shifted(x: Array) -> Array:
    return jax.vmap(lambda b: b.at[1:].set(b[:-1]))(x[None] + 1)


def set_reversed(x: Array) -> Array:
    return (x + 1).reshape(1, 6).at[:, 1:].set(jnp.flip(x + 1).reshape(1, 6)[:, :-1])


def update_unit_axis(x: Array) -> Array:
    y = x + 1
    return lax.dynamic_update_slice(y.reshape(3, 1, 2), y[:2].reshape(2, 1, 2), [1] * 3)


def update_plain_by_reshaped(x: Array) -> Array:
    y = x + 1
    return lax.dynamic_update_slice(y, y.reshape(6)[:4].reshape(2, 2), [1, 0])


def set_shifted_in_loop(x: Array) -> Array:
    def body(_: Array, c: Array) -> Array:
        return c.reshape(1, 6).at[:, 1:].set(c.reshape(1, 6)[:, :-1]).reshape(3, 2)

    return lax.fori_loop(0, 2, body, x)


def set_one_row_by_another(x: Array) -> Array:
    y = (x + 1).reshape(1, 3, 2)
    return y.at[:, 2].set(y.reshape(3, 2)[:1] + y.reshape(3, 2)[2:])


ITSELF = (
    *(set_shifted, set_reversed, update_unit_axis, update_plain_by_reshaped),
    *(set_shifted_in_loop, set_one_row_by_another),
)


@pytest.mark.parametrize("f", ITSELF, ids=lambda f: f.__name__)
def test_update_by_itself(f: Callable[..., Any]) -> None:
    both(f, FLAT)


def test_update_by_itself_of_other_types() -> None:
    types = (jnp.int8, jnp.bool_, jnp.complex64, jnp.bfloat16)
    inputs = [FLAT.astype(t) for t in types]
    both(lambda *x: [set_shifted(v).astype(t) for v, t in zip(x, types)], *inputs)


def conv(
    x: Array, k: Array, padding: Any, base: tuple[int, int] = (1, 1)
) -> tuple[Array, ...]:
    """Return a convolution and both gradients."""

    def f(x: Array, k: Array) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, k, (1, 1), padding, base, None, numbers)

    out, back = jax.vjp(f, x, k)
    return out, *back(jnp.arange(out.size, dtype=out.dtype).reshape(out.shape) % 5)


@pytest.mark.parametrize(
    ("padding", "base"),
    [
        (((0, 0), (3, 1)), (1, 1)),
        (((-5, 1), (0, 0)), (1, 1)),
        (((-1, -3), (-2, 4)), (1, 2)),
        (((-4, 1), (1, -2)), (3, 1)),
        (((-8, 9), (0, 0)), (1, 1)),  # nothing of the input is left
    ],
)
def test_convolution_cropped(padding: Any, base: tuple[int, int]) -> None:
    """Negative padding, also of the gradients of what is padded beyond the kernel."""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (1, 6, 6, 3)).astype(np.float32)
    k = rng.integers(-4, 5, (1, 3, 3, 3)).astype(np.float32)
    both(partial(conv, padding=padding, base=base), x, k)


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [
        ((2, 2), (1, 1), ((0, 0), (0, 1))),  # equal elements in a padded window
        ((2, 2), (1, 1), ((-1, 1), (2, -2))),
        ((3, 2), (4, 1), ((2, 3), (0, 2))),  # elements in no window
        ((2, 2), (1, 2), ((-1, 4), (3, 0))),  # windows without an element
        ((8, 9), (1, 1), ((4, 4), (4, 4))),  # a loop over the positions
    ],
)
def test_pool_gradient(window: Any, strides: Any, padding: Any) -> None:
    def gradient(x: Array) -> Array:
        def f(x: Array) -> Array:
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)

        out, back = jax.vjp(f, x)
        return back(jnp.arange(out.size, dtype=out.dtype).reshape(out.shape))[0]

    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (7, 9)).astype(np.float32)
    x[2, 3] = x[5, 1] = np.nan
    both(gradient, x)


def test_power_with_a_constant() -> None:
    x = np.array([-np.inf, -0.0, np.inf, 4, -2, np.nan], np.float32)
    both(lambda x: [x**0.5, x**-0.5, x**2.0, x**-1.0], x)


@pytest.mark.parametrize("number", range(3))
def test_random_program(number: int) -> None:
    found = differ.described(f"quick:{number}")
    assert not found, found


@pytest.mark.slow
def test_random_programs() -> None:
    count, found = differ.search("slow", 0, 300)
    assert count == 300
    assert not found, "\n\n".join(found)
