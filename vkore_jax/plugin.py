"""Entry point of the `jax_plugins` group: registration, nothing else."""

from __future__ import annotations

import atexit

import jax

from vkore_jax import _jax_compat

PLATFORM = "vkore"

PRIORITY = 500
"""Above JAX's 400 for plugins: an installed vkore is the default backend."""

_registered = False


def initialize() -> None:
    """Register the `vkore` backend.  JAX calls this once, when it looks for plugins.

    Raises:
        VersionMismatch: JAX is outside the tested range.  Nothing is registered then.
    """
    global _registered
    if _registered:
        return
    _jax_compat.check()
    # The heavy imports wait until it is known that this JAX can be served.
    from vkore_jax.pjrt import _bridge, client, inner

    _jax_compat.register(PLATFORM, client.install(), PRIORITY)
    _jax_compat.enable_callbacks(PLATFORM)
    _jax_compat.enable_views(PLATFORM, _bridge.export_buffers)
    _jax_compat.enable_linalg(PLATFORM)
    _jax_compat.enable_storage(PLATFORM)
    _jax_compat.explain_missing_rules(PLATFORM)
    _jax_compat.enable_cache(PLATFORM)
    _jax_compat.on_clear_caches(inner.clear_code)
    _add_cpu()
    atexit.register(_bridge.shut_down)
    _registered = True


def _add_cpu() -> None:
    """Make the cpu backend available when JAX_PLATFORMS names vkore only.

    JAX hands the operands of host callbacks over as arrays on cpu.  The default backend
    is the first one listed, so adding cpu at the end changes nothing else.
    """
    platforms: str | None = getattr(jax.config, "jax_platforms")  # noqa: B009
    if not platforms:
        return
    names = platforms.split(",")
    if PLATFORM in names and "cpu" not in names:
        jax.config.update("jax_platforms", f"{platforms},cpu")
