"""MLIR contexts for many modules, none of which stays in memory.

A context never frees a constant that it has seen: it interns them.  Making and freeing
one takes 2 ms, a third of what compiling an eager operation takes beside XLA.  So small
modules share a context until they have filled it, and a large module has its own, which
goes with the module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

SHARED_BYTES = 1 << 20
"""Bytes of modules that one context reads before it is replaced."""


class Contexts:
    """The contexts of one kind of module."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """Make none yet.

        Args:
            make: returns a new context with the dialects that the modules need.
        """
        self._make = make
        self._shared: Any = None
        self._left = 0
        self._lock = threading.Lock()

    def get(self, size: int) -> Any:
        """Return a context for a module that is `size` bytes long."""
        if size > SHARED_BYTES // 16:
            return self._make()
        with self._lock:
            self._left -= size
            if self._left < 0:
                self._shared, self._left = self._make(), SHARED_BYTES - size
            return self._shared

    def clear(self) -> None:
        """Forget the shared context."""
        with self._lock:
            self._shared, self._left = None, 0
