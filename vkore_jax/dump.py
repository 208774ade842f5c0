"""Write compiled programs to a folder, for people to look at.

`VKORE_DUMP=dir` makes the backend call `dump` for every program that it compiles or
loads: `NAME-FINGERPRINT.vkp` (the bytes; `vkore run` executes them) and the listing
beside it with the ending `.txt`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from vkore_jax.asm import disassemble
from vkore_jax.errors import InvalidArgument
from vkore_jax.program import Program

VARIABLE = "VKORE_DUMP"
_ELIDE_BYTES = 4096


def dump(program: Program) -> Path | None:
    """Write a program where `VKORE_DUMP` says; do nothing when it is not set.

    Returns:
        The path of the `.vkp` file, or None.

    Raises:
        InvalidArgument: the folder cannot be written.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", program.name)[:80] or "program"
    path = Path(folder) / f"{stem}-{program.fingerprint[:16]}.vkp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, program.encoded)
        listing = disassemble(program, elide_bytes=_ELIDE_BYTES)
        _replace(path.with_suffix(".txt"), listing.encode())
    except OSError as e:
        raise InvalidArgument(
            f"{VARIABLE}={folder!r}: cannot write the program there: {e}"
        ) from e
    return path


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that another process never sees half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)
