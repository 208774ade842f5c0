"""Factorisations for a chip without LAPACK, written in jnp.

JAX lowers eigenvalues, singular values and pivoted QR to LAPACK, cuSOLVER or the TPU
only; these functions are lowered in their place.
"""

from __future__ import annotations

from vkore_jax.linalg.banded import tridiagonal_solve
from vkore_jax.linalg.householder import hessenberg, pivoted_qr, tridiagonal
from vkore_jax.linalg.jacobi import eigh, svd
from vkore_jax.linalg.schur import eig, schur

__all__ = [
    "eig",
    "eigh",
    "hessenberg",
    "pivoted_qr",
    "schur",
    "svd",
    "tridiagonal",
    "tridiagonal_solve",
]
