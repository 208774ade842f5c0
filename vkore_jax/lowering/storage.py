"""What may live in DRAM from one program to the next: the profile's `storage`.

Parameters and results are the user's state, so a chip whose storage is bf16 refuses a
wide one: it never rounds it on the quiet.  That is all that `storage` restricts.
Between the commands of one program a value keeps the type that the user's program gives
it, in DRAM as well: an f32 intermediate of a train step is an f32 array in the arena
(as 32-bit words, which every chip moves), so it never depends on the schedule whether a
value was rounded.  Constants are part of the program and keep their type likewise.
Single elements (a loss, a step size) travel in registers of the control core.  Who
wants activations and gradients in bf16 computes in bf16: `vkore dis` shows the type of
every array.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkore_jax.chips import Chip
from vkore_jax.dtypes import DType
from vkore_jax.errors import UnsupportedOp
from vkore_jax.lowering.ir import Shape

Named = tuple[str, tuple[DType, Shape]]
_SHOWN = 4


def check_storage(
    chip: Chip, name: str, params: Sequence[Named], results: Sequence[Named]
) -> None:
    """Check that a program's parameters and results can be kept.

    Args:
        chip: profile.
        name: of the program.
        params: name and type of every parameter.
        results: likewise.

    Raises:
        UnsupportedOp: some are wider floats than the chip keeps.
    """
    taken = [_show(n, t) for n, t in params if not chip.stores(*t)]
    given = [_show(n, t) for n, t in results if not chip.stores(*t)]
    if not taken and not given:
        return
    does = [f"takes {_some(taken)}"] if taken else []
    does += [f"returns {_some(given)}"] if given else []
    raise UnsupportedOp(
        f"{name} {' and '.join(does)}; chip {chip.name!r} keeps no float wider than "
        f"{chip.storage} in DRAM between programs (single elements excepted). Make "
        "parameters, optimizer state and batches bfloat16: param_dtype=jnp.bfloat16 "
        "for the model, jnp.asarray(x, jnp.bfloat16) of a NumPy array, "
        "x.astype(jnp.bfloat16) at the end of the jitted function; optimizers that "
        "train with bfloat16 weights are in vkore_jax.optim. Inside a jitted function "
        "f32 is free"
    )


def _show(name: str, of: tuple[DType, Shape]) -> str:
    dtype, shape = of
    return f"{name}: {dtype}[{','.join(map(str, shape))}]"


def _some(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    text = ", ".join(items[:_SHOWN])
    return f"{text} and {rest} more" if rest > 0 else text
