"""Machine code of translated programs, kept for whoever translates to the same text.

Most of the time that a small program takes until its first result is XLA's code
generation (25 to 40 ms of CPU a kernel with jaxlib 0.10 to 0.12, against some 5 ms for
everything that this package does and 1.3 ms for loading stored code).  Small programs
are also the ones that come again: the eager operations of a script, a test suite, the
same script tomorrow.  So code is kept by the text that it was generated from:

- in memory, for programs whose text is short: the last `MEMORY_ENTRIES` of them;
- on disk, when the owner of the cache names a folder: for every process that uses it.

The text says everything about a program but its name.  Code from a cache is the code
that compilation would have produced, so a result cannot depend on where it came from.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jaxlib.version

Executable = Any
"""A loaded executable of the inner client."""

MEMORY_ENTRIES = 256
"""Loaded code of a small program takes a quarter of a megabyte."""
MEMORY_TEXT_BYTES = 1 << 14
"""Longer programs are compiled once by whoever wrote them, and their code is large."""

DISK_BYTES = 1 << 29
"""Size at which the least recently used half of a folder is removed."""

_MAGIC = b"VKCODE\x02\n"
_HEAD = len(_MAGIC) + 32
_SUFFIX = ".vkcode"
_PART = ".part"
_PART_AGE = 3600.0
"""Seconds after which nobody writes a file any more."""

_SWEEP_KEYS = "00"
"""One entry in 256 looks at the size of the folder, whichever process stores it."""


@dataclass
class CacheCounts:
    """Where code came from."""

    memory_hits: int = 0
    disk_hits: int = 0
    compiled: int = 0


@dataclass
class CodeCache:
    """Code of one inner client.

    Attributes:
        folder: where code is stored for other processes; None keeps it in memory only.
            Stored code runs in this process.  A folder that does not exist is created
            for its owner alone; a file or folder that anybody else owns or may write
            is not used (see `_own`), nor is a file that is not the one of its key.
        counts: hits and misses so far.
    """

    folder: Path | None = None
    counts: CacheCounts = field(default_factory=CacheCounts)
    _memory: OrderedDict[str, Executable] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(
        self,
        text: str,
        settings: tuple[str, ...],
        compile_: Callable[[], Executable],
        load: Callable[[bytes], Executable],
    ) -> Executable:
        """Return code for a module, from the nearest place that has it.

        Args:
            text: the module, without anything that does not change its code.
            settings: device and compile options, as text.
            compile_: generates the code.
            load: makes an executable of stored bytes.
        """
        key = _key(text, settings)
        with self._lock:
            found = self._memory.get(key)
            if found is not None:
                self._memory.move_to_end(key)
                self.counts.memory_hits += 1
                return found
        found = self._from_disk(key, load)
        if found is not None:
            self.counts.disk_hits += 1
        else:
            found = compile_()
            self.counts.compiled += 1
            self._to_disk(key, found)
        if len(text) <= MEMORY_TEXT_BYTES:
            with self._lock:
                self._memory[key] = found
                while len(self._memory) > MEMORY_ENTRIES:
                    self._memory.popitem(last=False)
        return found

    def clear(self) -> None:
        """Forget what is in memory."""
        with self._lock:
            self._memory.clear()

    # --------------------------------------------------------------------------- disk

    def _from_disk(
        self, key: str, load: Callable[[bytes], Executable]
    ) -> Executable | None:
        """Load stored code; a file that cannot be used is removed and not missed."""
        if self.folder is None:
            return None
        path = self._path(key)
        data = _read_own(self.folder, path)
        if data is None:
            return None
        code = data[_HEAD:]
        if data[:_HEAD] == _head(key, code):
            try:
                found = load(code)
            except Exception:  # whatever XLA dislikes about old code: compile again
                found = None
            if found is not None:
                with contextlib.suppress(OSError):
                    os.utime(path)  # the sweep removes what was not used for longest
                return found
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def _to_disk(self, key: str, executable: Executable) -> None:
        """Store code.  A full or read-only disk costs the entry, not the program."""
        if self.folder is None:
            return
        try:
            code: bytes = executable.serialize()
        except Exception:  # XLA cannot store every executable
            return
        path = self._path(key)
        with contextlib.suppress(OSError):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            for folder in (self.folder, path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            handle, part = tempfile.mkstemp(suffix=_PART, dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_head(key, code) + code)
                os.replace(part, path)  # other processes see all of it or nothing
            except BaseException:  # Ctrl-C too
                with contextlib.suppress(OSError):
                    os.unlink(part)
                raise
        if key.startswith(_SWEEP_KEYS):
            sweep(self.folder)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / (key[2:] + _SUFFIX)


def sweep(folder: Path, limit: int = DISK_BYTES) -> None:
    """Remove the least recently used code when a folder holds more than `limit` bytes.

    Half of the limit stays.  What a killed process left half written goes in any case.
    Files that another process removes meanwhile are gone, which is what was wanted.
    """
    files: list[tuple[float, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if path.suffix == _SUFFIX:
                    files.append((status.st_mtime, status.st_size, path))
                elif path.suffix == _PART and time.time() - status.st_mtime > _PART_AGE:
                    path.unlink()
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files, key=lambda row: row[:2]):
        if total <= limit // 2:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _head(key: str, code: bytes) -> bytes:
    """Return the first bytes of a file: they bind the code to its key.

    A file under another key's name would be code of another program.
    """
    return _MAGIC + hashlib.sha256(bytes.fromhex(key) + code).digest()


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HERE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _read_own(folder: Path, path: Path) -> bytes | None:
    """Return a file that nobody but this process's user can have written, or None.

    What lies there may be anything: links are not followed below `folder`, and to open
    a pipe or a device does not wait.  Each step starts at what was checked before, so
    who may write above `folder` can put another in its place, but none that passes.
    """
    opened: list[int] = []
    try:
        opened.append(os.open(folder, _FOLDER))
        opened.append(os.open(path.parent.name, _FOLDER | _HERE, dir_fd=opened[-1]))
        if not all(_own(handle, stat.S_ISDIR) for handle in opened):
            _complain(folder)
            return None
        opened.append(os.open(path.name, _HERE, dir_fd=opened[-1]))
        if not _own(opened[-1], stat.S_ISREG):
            return None
        with os.fdopen(opened.pop(), "rb") as file:
            return file.read()
    except OSError:
        return None
    finally:
        for handle in opened:
            os.close(handle)


def _own(handle: int, kind: Callable[[int], bool]) -> bool:
    """Whether an open file is of a kind, this user's, and writable by nobody else."""
    status = os.fstat(handle)
    others = stat.S_IWGRP | stat.S_IWOTH
    mine = status.st_uid == os.geteuid() and not status.st_mode & others
    return mine and kind(status.st_mode)


@cache
def _complain(folder: Path) -> None:
    """Say once why nothing is loaded from a folder."""
    logging.getLogger("vkore_jax").warning(
        "%s: code is not loaded from a folder that another user owns or may write; "
        "make it yours alone (chmod -R go-w) or name another one",
        folder,
    )


def _key(text: str, settings: tuple[str, ...]) -> str:
    digest = hashlib.sha256(_MAGIC)
    for part in (machine(), *settings, text):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@cache
def machine() -> str:
    """Return what code depends on beside its text: XLA, its flags, the processor.

    XLA splits a loop by the number of threads that it has, one for each processor that
    this process may use unless the environment says otherwise.
    """
    features = [platform.machine(), platform.processor(), str(_processors())]
    features += [os.environ.get(name, "") for name in ("PJRT_NPROC", "NPROC")]
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "flags", "Features", "CPU part")):
                features.append(line)
            elif not line:
                break  # the other processors are the same
    version = f"{jaxlib.version.__version__} {os.environ.get('XLA_FLAGS', '')}"
    return "\n".join([version, *features])


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
