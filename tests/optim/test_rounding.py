"""The arithmetic: what a split loses, what a sum remembers, what chance rounds to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vkore_jax import optim
from vkore_jax.optim import rounding

U = 2.0**-8  # unit roundoff of bfloat16
CPU = jax.devices("cpu")[0]


@pytest.fixture(autouse=True)
def _on_cpu():
    with jax.default_device(CPU):
        yield


def bf16(x) -> np.ndarray:
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16)


def wide(x) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


normal = st.floats(
    min_value=2.0**-100, max_value=2.0**100, allow_nan=False, width=32
).flatmap(lambda x: st.sampled_from([x, -x]))


@given(st.lists(normal, min_size=32, max_size=32))
def test_a_pair_holds_sixteen_bits(values: list[float]) -> None:
    x = np.array(values, np.float32)
    pair = jax.jit(optim.split)(x)
    assert pair.hi.dtype == pair.lo.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(pair.hi), bf16(x))
    error = np.abs(wide(x) - (wide(pair.hi) + wide(pair.lo)))
    assert (error <= U * np.abs(wide(x) - wide(pair.hi))).all()
    assert (error <= U**2 * np.abs(wide(x))).all()


@pytest.mark.parametrize("x", [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.4e38])
def test_special_values_have_no_low_part_or_stay_what_they_are(x: float) -> None:
    pair = jax.jit(optim.split)(jnp.float32([x]))
    # NumPy does not know that bfloat16 has NaN: compare as float64.
    np.testing.assert_array_equal(wide(pair.hi), wide(bf16([x])))
    assert np.isfinite(wide(pair.lo)).all()
    np.testing.assert_array_equal(wide(optim.join(pair)), wide(bf16([x])))


def test_the_rounding_survives_excess_precision() -> None:
    """XLA may drop f32 -> bf16 -> f32; then the low part would be 0 under jit."""
    x = jnp.float32([1.001])
    low = jax.jit(lambda x: optim.split(x * 1.0).lo)(x)
    assert wide(low) == pytest.approx(wide(x) - 1.0, rel=U)


def test_kahan_sum_of_many_small_terms() -> None:
    """1 + 1,000 x 1e-3: rounding to nearest never leaves 1."""
    n, term = 1000, 1e-3

    def total(add):
        def body(_, carry):
            return add(*carry, jnp.float32(term))

        start = (jnp.bfloat16(1), jnp.bfloat16(0))
        return jax.jit(lambda: jax.lax.fori_loop(0, n, body, start))()

    naive = total(lambda s, r, t: (optim.nearest(rounding.widen(s) + t), r))
    kahan = total(optim.kahan_add)
    assert float(naive[0]) == 1.0
    error = abs(1 + n * term - float(wide(kahan[0]) + wide(kahan[1])))
    assert error <= (2 * U + n * U**2) * n * term  # Kahan's bound, on sum |terms|


@given(normal, normal)
def test_kahan_keeps_exactly_what_the_sum_lost(a: float, b: float) -> None:
    total, term = bf16([a]), bf16([b])
    s, rest = jax.jit(optim.kahan_add)(
        total, jnp.zeros(1, jnp.bfloat16), jnp.asarray(term, jnp.float32)
    )
    np.testing.assert_array_equal(np.asarray(s), bf16(wide(total) + wide(term)))
    exact = wide(total) + wide(term) - wide(s)  # exact in float64 where exponents meet
    if 2.0**-40 < abs(a / b) < 2.0**40:
        np.testing.assert_array_equal(wide(rest), exact)


@pytest.mark.parametrize("x", [1.001, -1.001, 0.3, 1e-30, -7.7e20, 1e-39])
def test_stochastic_rounding_is_right_in_the_mean(x: float) -> None:
    n = 1 << 16
    every = jnp.arange(n, dtype=jnp.uint16)  # each draw once: the mean is exact
    value = jnp.full(n, x, jnp.float32)
    found = wide(jax.jit(optim.stochastic)(value, every))
    assert len(np.unique(found)) <= 2
    target = float(np.float32(x))
    assert found.mean() == pytest.approx(target, rel=1e-9, abs=0)
    assert found.min() <= target <= found.max()


def test_stochastic_rounding_of_drawn_bits_is_unbiased() -> None:
    n = 200_000
    x = jax.random.normal(jax.random.key(3), (n,))
    bits = rounding.leaf_bits(jax.random.key(0), (jax.tree_util.DictKey("w"),), (n,))
    found = wide(optim.stochastic(x, bits))
    spacing = 2.0 ** (np.floor(np.log2(np.abs(wide(x)))) - 7)
    z = (found - wide(x)) / spacing  # in (-1, 1), mean 0, variance at most 1 / 4
    assert (np.abs(z) < 1).all()
    assert abs(z.mean()) < 4 * 0.5 / np.sqrt(n)
    # ... and no correlation with the value that is rounded.
    assert abs(np.corrcoef(z, wide(x))[0, 1]) < 4 / np.sqrt(n)


@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("bits", [0, 1, 0xFFFF])
def test_what_bfloat16_holds_is_not_moved(x: float, bits: int) -> None:
    found = optim.stochastic(jnp.float32([x]), jnp.uint16([bits]))
    np.testing.assert_array_equal(wide(found), wide(bf16([x])))


def test_bits_depend_on_key_and_path_alone() -> None:
    key, other = jax.random.split(jax.random.key(0))
    a, b = ((jax.tree_util.DictKey(name),) for name in "ab")
    draw = rounding.leaf_bits
    first = draw(key, a, (4, 8))
    assert first.dtype == jnp.uint16
    np.testing.assert_array_equal(first, draw(key, a, (4, 8)))
    for different in (draw(key, b, (4, 8)), draw(other, a, (4, 8))):
        assert (np.asarray(first) != np.asarray(different)).mean() > 0.9
