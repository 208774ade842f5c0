"""Machine code that programs and processes share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pjrt.process import run_python
from vkore_jax.sim.fast import code_cache
from vkore_jax.sim.fast.code_cache import CodeCache, sweep

SCRIPT = """
from vkore_jax.pjrt.inner import inner_client
x = np.arange(12, dtype=np.float32).reshape(3, 4)
for _ in range(2):
    y = jax.jit(lambda a: jnp.exp(a - a.max(1, keepdims=True)) @ a.T)(x)
step = jax.jit(lambda a: a * 2 + 1, donate_argnums=0)
z = step(jnp.cumsum(x))
counts = inner_client(1).code.counts
print('OUT', counts.compiled, counts.disk_hits, counts.memory_hits,
      np.asarray(y).tobytes().hex(), np.asarray(z).tobytes().hex())
"""


def _run(variable: str = "", value: str = "") -> tuple[list[int], list[str]]:
    environment: dict[str, Any] = {variable: value} if variable else {}
    words = run_python(SCRIPT, **environment).split("OUT")[1].split()
    return [int(w) for w in words[:3]], words[3:]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.vkcode"))


@pytest.mark.parametrize(
    "variable",
    [
        "VKORE_CACHE_DIR",
        pytest.param("JAX_COMPILATION_CACHE_DIR", marks=pytest.mark.slow),
    ],
)
def test_second_process_compiles_nothing(variable: str, tmp_path: Path) -> None:
    (compiled, hits, same), values = _run(variable, str(tmp_path))
    assert compiled > 0
    assert hits == 0
    assert same >= 1  # the second lambda has the text of the first
    assert len(_files(tmp_path)) == compiled
    (again, hits, _), found = _run(variable, str(tmp_path))
    assert (again, hits) == (0, compiled)
    assert found == values
    (alone, hits, _), found = _run()
    assert (alone, hits) == (compiled, 0)
    assert found == values


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[:41] + bytes([data[41] ^ 1]) + data[42:],
        lambda data: data.replace(b"VKCODE\x02", b"VKCODE\x01"),
    ],
)
def test_damaged_code_is_replaced(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    for compiled in (1, 0, 1, 0):
        cache = CodeCache(tmp_path)
        cache.get("text", (), _Code, _load)
        assert cache.counts.compiled == compiled
        (file,) = _files(tmp_path)
        if not compiled:
            file.write_bytes(damage(file.read_bytes()))


def test_code_is_bound_to_its_key(tmp_path: Path) -> None:
    """A whole file of another program is not this program's."""
    CodeCache(tmp_path).get("text", (), _Code, _load)
    (file,) = _files(tmp_path)
    data = file.read_bytes()
    file.unlink()
    CodeCache(tmp_path).get("other text", (), _Code, _load)
    (other,) = _files(tmp_path)
    other.write_bytes(data)
    for compiled in (1, 0):
        cache = CodeCache(tmp_path)
        cache.get("other text", (), _Code, _load)
        assert cache.counts.compiled == compiled


def test_code_that_xla_refuses_is_compiled_again(tmp_path: Path) -> None:
    for load, compiled in ((_load, 1), (_refuse, 1), (_load, 0)):
        cache = CodeCache(tmp_path)
        cache.get("text", (), _Code, load)
        assert cache.counts.compiled == compiled
    assert len(_files(tmp_path)) == 1


class _Code:
    def serialize(self) -> bytes:
        return b"code"


def _load(code: bytes) -> bytes:
    assert code == b"code"
    return code


def _refuse(code: bytes) -> object:
    raise RuntimeError("no")


def test_an_unwritable_folder_costs_the_entry_only(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for _ in range(2):
        cache = CodeCache(blocked)
        cache.get("text", (), _Code, _refuse)
        assert cache.counts.compiled == 1


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_code_that_others_may_write_is_not_run(mode: int, tmp_path: Path) -> None:
    CodeCache(tmp_path).get("text", (), _Code, _load)
    (file,) = _files(tmp_path)
    file.chmod(mode)
    for compiled in (1, 0):  # replaced by a file of our own
        cache = CodeCache(tmp_path)
        cache.get("text", (), _Code, _load)
        assert cache.counts.compiled == compiled
    (file,) = _files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("inner", [False, True])
def test_a_folder_that_others_may_write_is_not_used(
    mode: int, inner: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may write there may put a file of this user's under another name."""
    code_cache._complain.cache_clear()
    CodeCache(tmp_path).get("text", (), _Code, _load)
    (file,) = _files(tmp_path)
    folder = file.parent if inner else tmp_path
    for change, compiled in ((mode, 1), (0o700, 0)):
        folder.chmod(change)
        cache = CodeCache(tmp_path)
        cache.get("text", (), _Code, _load)
        assert cache.counts.compiled == compiled
    (message,) = caplog.messages
    assert "another user owns or may write" in message


def _link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


@pytest.mark.parametrize("replace", [_link, _pipe, _folder])
def test_what_is_no_file_is_not_opened(
    replace: Callable[[Path], None], tmp_path: Path
) -> None:
    """In particular a pipe, which would wait for a writer."""
    CodeCache(tmp_path).get("text", (), _Code, _load)
    (file,) = _files(tmp_path)
    replace(file)
    cache = CodeCache(tmp_path)
    cache.get("text", (), _Code, _load)
    assert cache.counts.compiled == 1
    sweep(tmp_path, limit=0)


def test_code_of_another_user_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CodeCache(tmp_path).get("text", (), _Code, _load)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    cache = CodeCache(tmp_path)
    cache.get("text", (), _Code, _load)
    assert cache.counts.compiled == 1


def test_a_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "parent" / "code"
    before = os.umask(0)
    try:
        CodeCache(folder).get("text", (), _Code, _load)
    finally:
        os.umask(before)
    (file,) = _files(folder)
    for path in (folder, file.parent):
        assert path.stat().st_mode & 0o777 == 0o700


def test_sweep_removes_what_was_left_half_written(tmp_path: Path) -> None:
    (tmp_path / "00").mkdir()
    old, new = (tmp_path / "00" / name for name in ("old.part", "new.part"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    sweep(tmp_path)
    assert not old.exists()
    assert new.exists()


def test_processes_share_a_folder(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VKORE_", "JAX_"))}
    env.update(VKORE_CACHE_DIR=str(tmp_path), JAX_PLATFORMS="vkore,cpu")
    head = "import jax, jax.numpy as jnp, numpy as np\n"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", head + textwrap.dedent(SCRIPT)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    lines = [run.communicate(timeout=120)[0] for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert len({tuple(line.split()[4:]) for line in lines}) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_memory_is_bounded() -> None:
    cache = CodeCache()
    count = code_cache.MEMORY_ENTRIES + 10
    for i in range(count):
        cache.get(f"text {i}", (), _Code, _refuse)
    last, first = f"text {count - 1}", "text 0"
    for text, settings, fresh in (
        (last, (), 0),
        (first, (), 1),
        (last, ("other device",), 1),
        ("x" * (code_cache.MEMORY_TEXT_BYTES + 1), (), 1),
        ("x" * (code_cache.MEMORY_TEXT_BYTES + 1), (), 1),
    ):
        before = cache.counts.compiled
        cache.get(text, settings, _Code, _refuse)
        assert cache.counts.compiled == before + fresh
    cache.clear()
    cache.get(last, (), _Code, _refuse)
    assert cache.counts.compiled == count + 5


def test_sweep_removes_what_was_not_used_for_longest(tmp_path: Path) -> None:
    for i in range(8):
        path = tmp_path / f"{i:02d}" / "a.vkcode"
        path.parent.mkdir()
        path.write_bytes(bytes(100))
        os.utime(path, (i, i))
    sweep(tmp_path, limit=800)
    assert len(_files(tmp_path)) == 8
    sweep(tmp_path, limit=799)
    assert [f.parent.name for f in _files(tmp_path)] == ["05", "06", "07"]
