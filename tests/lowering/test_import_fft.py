"""Fourier transforms of jnp, forward and backward, against the stock CPU client."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.artifacts import lower
from tests.lowering.op_cases import Case, f32
from tests.lowering.oracle import compare
from vkore_jax.errors import UnsupportedOp

Z = (f32(3, 4, 5) + 1j * f32(3, 4, 5, seed=1)).astype(np.complex64)
CASES: list[Case] = [
    ("fft", jnp.fft.fft, (Z,)),
    ("ifft", lambda x: jnp.fft.ifft(x, axis=0), (Z,)),
    ("rfft", jnp.fft.rfft, (f32(3, 7),)),
    ("irfft", lambda x: jnp.fft.irfft(x, 7), (Z[0],)),
    ("fft2", jnp.fft.fft2, (Z,)),
    ("rfftn", lambda x: jnp.fft.rfftn(x, axes=(0, 1, 2)), (f32(3, 4, 5),)),
    ("irfftn", jnp.fft.irfftn, (Z,)),
    ("hfft", jnp.fft.hfft, (Z[0],)),
    ("batch_of_none", lambda x: jnp.fft.rfft(x[:0]), (f32(3, 8),)),
    ("jit_grad", jax.grad(lambda x: jnp.abs(jnp.fft.rfft(x)).sum()), (f32(3, 8),)),
    ("vmap", jax.vmap(jnp.fft.fft2), (Z,)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_fft(case: Case) -> None:
    _, f, args = case
    compare(f, *args)


def test_wide() -> None:
    with jax.enable_x64(True):
        compare(jnp.fft.fft, Z.astype(np.complex128))
        compare(jnp.fft.rfft, f32(3, 8).astype(np.float64))


def test_no_points() -> None:
    with pytest.raises(UnsupportedOp, match="no points"):
        lower(lambda z: jax.lax.fft(z, "IRFFT", (0,)), Z[0, 0, :1])
