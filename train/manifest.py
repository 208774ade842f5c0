"""What a folder of files held when it was written, and whether it still does.

Owns `manifest.json` of a checkpoint: the SHA-256 and the size of every other file.  It
is written last, in one rename: a folder without it was never finished.
"""

import hashlib
import json
import os
from pathlib import Path

NAME = "manifest.json"


def write(folder: Path) -> None:
    """Describe every file of a folder; the manifest appears whole, after them."""
    files = {name: _facts(path) for name, path in _files(folder).items()}
    text = json.dumps({"files": files}, indent=1, sort_keys=True)
    seal = hashlib.sha256(text.encode()).hexdigest()
    part = folder.with_name(f"{folder.name}.{NAME}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(f"{seal}\n{text}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, folder / NAME)


def problem(folder: Path) -> str | None:
    """Say what is wrong with a folder, in a few words; None: it is as written."""
    path = folder / NAME
    if not path.is_file():
        return f"{NAME} is missing: it was not saved to its end"
    try:
        seal, _, text = path.read_bytes().partition(b"\n")
        if hashlib.sha256(text.removesuffix(b"\n")).hexdigest().encode() != seal:
            return f"{NAME} is damaged"
        wanted: dict[str, dict[str, object]] = json.loads(text)["files"]
        found = _files(folder)
        for name, facts in wanted.items():
            if name not in found:
                return f"{name} is missing"
            size = found[name].stat().st_size
            if size != facts["bytes"]:
                return f"{name} has {size} bytes instead of {facts['bytes']}"
            if _facts(found[name]) != facts:
                return f"{name} is damaged: another SHA-256 than when it was saved"
    except OSError as error:
        return f"cannot be read: {error}"
    if stray := sorted(found.keys() - wanted.keys()):
        return f"{stray[0]} was not there when it was saved"
    return None


def _files(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and path != folder / NAME
    }


def _facts(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
