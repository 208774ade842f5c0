"""The error taxonomy: every class says whose problem it is.

Owns the classes and their PJRT status codes; knows nothing of the layers above.  A
message states what failed, where, what was required, what was found and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class StatusCode(IntEnum):
    """PJRT (absl) status codes that this backend reports."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13


class VkoreError(Exception):
    """Base of every error that this package raises on purpose."""

    def with_context(self, context: str) -> VkoreError:
        """Return the same class of error with one more line of context."""
        return type(self)(f"{self.args[0]}\n  {context}")


class UnsupportedOp(VkoreError):
    """The user's program asks for something that the chip cannot do."""


class UnsupportedPrimitive(UnsupportedOp, NotImplementedError):
    """A primitive that JAX lowers on other platforms only.

    JAX's own error for it is a NotImplementedError, which callers may expect.
    """


class NotYetImplemented(VkoreError):
    """The chip could do it; this compiler does not yet.  Our gap, not the user's."""


class ResourceExhausted(VkoreError):
    """It does not fit: the message says which memory, by how much, what to do."""


class InvalidProgram(VkoreError):
    """A malformed command stream: reserved bits, bounds, shapes, alignment."""


class HazardError(InvalidProgram):
    """Two accesses to overlapping bytes that the schedule does not order."""


class InvalidArgument(VkoreError):
    """A caller of the API passed something that is not acceptable."""


class VersionMismatch(VkoreError):
    """A JAX, jaxlib or program version outside the range that was tested."""


class HostCallbackError(VkoreError):
    """The user's own Python callback raised, or returned what it must not.

    Code and message are those of JAX's CPU backend (`callbacks.callback_error`), which
    libraries look into.
    """


class InternalError(VkoreError):
    """This is a bug in vkore_jax; please report it with the message."""


STATUS_CODES: Mapping[type[BaseException], StatusCode] = {
    UnsupportedOp: StatusCode.UNIMPLEMENTED,
    NotYetImplemented: StatusCode.UNIMPLEMENTED,
    ResourceExhausted: StatusCode.RESOURCE_EXHAUSTED,
    InvalidProgram: StatusCode.INVALID_ARGUMENT,
    HazardError: StatusCode.INVALID_ARGUMENT,
    InvalidArgument: StatusCode.INVALID_ARGUMENT,
    VersionMismatch: StatusCode.FAILED_PRECONDITION,
    HostCallbackError: StatusCode.INTERNAL,
    InternalError: StatusCode.INTERNAL,
    KeyboardInterrupt: StatusCode.CANCELLED,
    MemoryError: StatusCode.RESOURCE_EXHAUSTED,
}


def status_code(error: BaseException) -> StatusCode:
    """Return the PJRT status code of any exception (INTERNAL when unknown)."""
    for cls in type(error).__mro__:
        if cls in STATUS_CODES:
            return STATUS_CODES[cls]
    return StatusCode.INTERNAL
