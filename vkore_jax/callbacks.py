"""The process's table of host callbacks.

A HOST command names its callback by a number; the number means something only in the
process that traced the user's function.  Numbers start at a random place, so that a
program that calls back has a fingerprint of its own in every process and is never
taken from a compilation cache that another process wrote.
"""

from __future__ import annotations

import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from vkore_jax.errors import HostCallbackError, InvalidProgram, UnsupportedOp

Callback = Callable[..., Sequence[Any]]
"""Takes one NumPy array per operand and returns one per result."""


def callback_error(error: BaseException) -> HostCallbackError:
    """Return what a program fails with when a callback has raised `error`.

    To be called where it is caught.  The message is the one of JAX's CPU backend: from
    the script down to the line that raised, without source lines; the last line is the
    error's.
    """
    places = [(f.f_code, f.f_lineno) for f in _outer_frames(sys._getframe(1))]
    trace = error.__traceback__
    if trace is not None:
        trace = trace.tb_next or trace  # its first frame is the one that caught it
    places += [(f.f_code, line) for f, line in traceback.walk_tb(trace)]
    lines = [
        f'  File "{code.co_filename}", line {line}, in {code.co_name}'
        for code, line in places
    ]
    text = "\n".join(["Traceback (most recent call last):", *lines, said(error)])
    return HostCallbackError(f"{PREFIX}{text}")


def said(error: BaseException) -> str:
    """Return the last line of a callback's message."""
    return f"{type(error).__name__}: {error}"


def _outer_frames(frame: FrameType | None) -> Iterator[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return reversed(frames)


PREFIX = "CpuCallback error calling callback: "
"""Begins the message of every failed callback, as on JAX's CPU backend."""


class Entry:
    """Keeps a callback registered for as long as somebody holds this object."""

    def __init__(self, table: CallbackTable, index: int) -> None:
        self.index = index
        self._table = table

    def __del__(self) -> None:
        self._table.remove(self.index)


class CallbackTable:
    """Number -> callback; numbers are never used twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = secrets.randbits(31)
        self._functions: dict[int, Callback] = {}

    def add(self, function: Callback) -> Entry:
        """Register a function; it stays until the returned entry dies."""
        with self._lock:
            index = self._next
            self._next = (self._next + 1) % 2**32
            self._functions[index] = function
        return Entry(self, index)

    def get(self, index: int) -> Callback:
        """Return the function behind a number.

        Raises:
            InvalidProgram: the program was compiled by another process, or the traced
                function that owned the callback is gone.
        """
        try:
            return self._functions[index]
        except KeyError:
            raise InvalidProgram(
                f"host callback {index} is not registered in this process: a program "
                "with callbacks runs only in the process that traced it; trace the "
                "function again"
            ) from None

    def remove(self, index: int) -> None:
        """Forget a callback."""
        # dict.pop is atomic; no lock here because this runs inside deallocations.
        self._functions.pop(index, None)

    def __len__(self) -> int:
        return len(self._functions)


class HostBuffer:
    """What `jax.experimental.buffer_callback` hands to a function in place of memory.

    Args:
        array: the data; results are written into it.
        writeable: whether it belongs to a result.
    """

    def __init__(self, array: np.ndarray, writeable: bool) -> None:
        self._array = array.view()
        self._array.flags.writeable = writeable

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """Rank."""
        return self._array.ndim

    @property
    def writeable(self) -> bool:
        """Whether the function may write."""
        return self._array.flags.writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the data itself, unless a copy is asked for."""
        if dtype is None and not copy:
            return self._array
        return self._array.astype(dtype or self._array.dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Share the data with another library."""
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the host."""
        return self._array.__dlpack_device__()


class HostContext:
    """What `jax.experimental.buffer_callback` hands to a function as its context.

    Args:
        stage: JAX's mark of an execution.
    """

    def __init__(self, stage: Any) -> None:
        self.stage = stage

    @property
    def stream(self) -> int:
        """Refuse: the host has no stream.

        Raises:
            UnsupportedOp: always.
        """
        raise UnsupportedOp("buffer_callback: a callback on the host has no stream")


CALLBACKS = CallbackTable()
"""The table that the plugin fills while tracing and the engines read at load time."""

TARGET = "vkore.py_callback"
"""Custom-call target; `backend_config` is the number as a decimal string."""

NOT_STORED = "calls back into Python functions of this process and cannot be stored"
"""Part of the error that serializing a program with callbacks raises."""
