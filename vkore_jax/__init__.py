"""vkore_jax: a JAX backend for an emulated inference-only NPU.

Nothing of this package needs to be imported to use it: JAX finds the plugin, and
`JAX_PLATFORMS=vkore python script.py` runs a script on the chip.  What is listed here
is for looking inside.  Importing this package is cheap and does not import JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vkore_jax import chips as chips
    from vkore_jax import errors as errors
    from vkore_jax.asm import assemble as assemble
    from vkore_jax.asm import disassemble as disassemble
    from vkore_jax.lowering import compile as compile
    from vkore_jax.rewrite import accelerate as accelerate
    from vkore_jax.sim.ledger import ledger as ledger

__version__ = "0.1.0"

# Public name -> (module, attribute); "" means the module itself.
_EXPORTS = {
    "accelerate": ("vkore_jax.rewrite", "accelerate"),
    "assemble": ("vkore_jax.asm", "assemble"),
    "chips": ("vkore_jax.chips", ""),
    "compile": ("vkore_jax.lowering", "compile"),
    "disassemble": ("vkore_jax.asm", "disassemble"),
    "errors": ("vkore_jax.errors", ""),
    "ledger": ("vkore_jax.sim.ledger", "ledger"),
}

__all__ = ["__version__", *sorted(_EXPORTS)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return list(__all__)
