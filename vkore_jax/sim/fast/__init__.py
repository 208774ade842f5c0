"""The fast engine: a binary translator from Program bytes to an XLA executable.

Its only input is an encoded program.  It executes the algorithm of each command on
whole tensors, by buffer id, and ignores schedules; roundings, accumulation types and
saturation are part of what it emits.
"""

from vkore_jax import program as _program
from vkore_jax.sim.fast.load import FastProgram, run
from vkore_jax.sim.fast.translate import Translation, translate_program

__all__ = ["FastProgram", "Translation", "run", "translate", "translate_program"]


def translate(data: bytes) -> str:
    """Return the StableHLO module of an encoded program."""
    return translate_program(_program.decode(data)).text
