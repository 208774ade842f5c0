"""Compiler options: choices that never change what a program computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a caller may choose about a compilation.

    Attributes:
        fuse: join nodes into groups whose intermediates stay in the scratchpad; off
            gives one command for each node (for bisecting and for tests).
        kernels: lower composites of `vkore_jax.primitives` by rules of their own; off
            lowers their decompositions (to compare).
        verify: check the IR's rules after every pass (tests; costs compile time).
    """

    fuse: bool = True
    kernels: bool = True
    verify: bool = False
