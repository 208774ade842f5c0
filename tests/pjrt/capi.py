"""The plugin's function table, called as jaxlib calls it.

For what JAX does not let a test say: arguments that must not be donated, views of
device memory, functions that jaxlib calls in rare cases only.  Every argument struct is
a row of 8-byte fields (csrc/abi.h); the first two are its size and an extension.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vkore_jax.pjrt import client

HEADER = Path(client.__file__).parent / "csrc/abi.h"
SLOTS = re.findall(r"\b([XU])\((\w+)\)", HEADER.read_text().split("VK_SLOTS(X, U)")[1])
"""(X implemented or U not, name) of every function in order."""

UNIMPLEMENTED = 12
F32 = 11
_HEAD = 5  # struct_size, extension_start, and three words of the version


class CallError(Exception):
    """A function returned an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Table:
    """The functions of the plugin, by name or number."""

    def __init__(self) -> None:
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self._capsule = client.install()
        address = get(self._capsule, b"pjrt_c_api")
        self.size = ctypes.c_size_t.from_address(address).value
        count = (self.size - 8 * _HEAD) // 8
        self._slots = (ctypes.c_void_p * (count + 8)).from_address(address + 8 * _HEAD)
        self._names = [name for _, name in SLOTS]
        self.count = count

    def __call__(self, name: str | int, *fields: Any) -> list[int]:
        """Call a function.

        Args:
            name: its name without PJRT_, or its number in the table.
            fields: the struct's fields after the first two; numbers or addresses.

        Returns:
            The fields afterwards.

        Raises:
            CallError: what it returned.
        """
        number = name if isinstance(name, int) else self._names.index(name)
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        values = [_number(field) for field in fields]
        row = (ctypes.c_uint64 * (len(values) + 18))(8 * (len(values) + 2), 0, *values)
        error = function(self._slots[number])(ctypes.addressof(row))
        if error:
            code = self("Error_GetCode", error, 0)[1]
            _, text, size = self("Error_Message", error, 0, 0)
            message = ctypes.string_at(text, size).decode()
            self("Error_Destroy", error)
            raise CallError(code & 0xFFFFFFFF, message)
        return list(row[2 : 2 + len(values)])


def _number(field: Any) -> int:
    if isinstance(field, int):
        return field
    return ctypes.cast(field, ctypes.c_void_p).value or 0


class Device:
    """A client of our own with one chip."""

    def __init__(self, table: Table) -> None:
        self.call = table
        self.client = table("Client_Create", 0, 0, 0, 0, 0, 0, 0, 0, 0)[6]
        self.device = self._first(table("Client_Devices", self.client, 0, 0)[1])

    @staticmethod
    def _first(array: int) -> int:
        return ctypes.c_uint64.from_address(array).value

    def put(self, values: np.ndarray) -> int:
        """Return a buffer with f32 values."""
        dims = (ctypes.c_int64 * values.ndim)(*values.shape)
        data = values.ctypes.data
        place = (dims, values.ndim, 0, 0, 0, self.device, 0, 0, 0, 0)
        args = ("Client_BufferFromHostBuffer", self.client, data, F32, *place)
        return self.call(*args)[-1]

    def get(self, buffer: int, count: int) -> np.ndarray:
        """Return the values of a buffer of `count` f32 elements."""
        out = np.empty(count, np.float32)
        self.call("Buffer_ToHostBuffer", buffer, 0, out.ctypes.data, out.nbytes, 0)
        return out

    def is_deleted(self, buffer: int) -> bool:
        """Whether a buffer was deleted or donated."""
        return bool(self.call("Buffer_IsDeleted", buffer, 0)[1] & 1)

    def compile(self, text: str) -> int:
        """Compile a module with default options."""
        code, kind = text.encode(), b"mlir"
        program = (ctypes.c_uint64 * 6)(
            48, 0, _address(code), len(code), _address(kind), len(kind)
        )
        return self.call("Client_Compile", self.client, program, 0, 0, 0)[-1]

    def execute(
        self,
        program: int,
        buffers: Sequence[int],
        results: int,
        keep: Sequence[int] = (),
    ) -> list[int]:
        """Execute; arguments in `keep` must not be donated."""
        kept = (ctypes.c_int64 * (len(keep) + 1))(*keep)
        options = (ctypes.c_uint64 * 18)(144)
        options[7], options[8] = ctypes.addressof(kept), len(keep)
        given = (ctypes.c_uint64 * (len(buffers) + 1))(*buffers)
        made = (ctypes.c_uint64 * (results + 1))()
        lists = [(ctypes.c_uint64 * 1)(ctypes.addressof(x)) for x in (given, made)]
        args = (options, lists[0], 1, len(buffers), lists[1], 0, 0)
        self.call("LoadedExecutable_Execute", program, *args)
        return list(made[:results])

    def error(self, buffer: int) -> str:
        """Return the message of an error buffer, empty if it is none."""
        event = self.call("Buffer_ReadyEvent", buffer, 0)[1]
        try:
            self.call("Event_Error", event)
        except CallError as error:
            return str(error)
        return ""


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
