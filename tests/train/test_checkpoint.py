"""Checkpoints that are damaged are never read: the one before is, or none."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from train import checkpoint, manifest
from train.checkpoint import CheckpointError, Checkpoints
from train.step import TrainState

TEMPLATE = TrainState(jnp.int32(0), {"w": np.zeros(300, np.float32)}, ())


def save(folder: Path, *steps: int, keep: int = 2) -> None:
    with Checkpoints(folder, keep=keep) as checkpoints:
        for step in steps:
            params = {"w": np.arange(300, dtype=np.float32) + step}
            state = TrainState(jnp.int32(step), params, ())
            checkpoints.save(state, {"seed": step})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder, 2, 4)
    return folder


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes()) or bytearray(1)
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if data else b"more")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flip": flip, "truncate": truncate, "delete": Path.unlink,
}  # fmt: skip


def copy(saved: Path, target: Path) -> Path:
    subprocess.run(["cp", "-r", saved, target], check=True)
    return target


def test_every_file_is_sealed(saved: Path, tmp_path: Path) -> None:
    newest = saved / "checkpoints" / "4"
    files = [p for p in newest.rglob("*") if p.is_file()]
    assert len(files) > 8
    for name, damage in DAMAGES.items():
        for file in files:
            path = copy(newest, tmp_path / "4") / file.relative_to(newest)
            damage(path)
            found = manifest.problem(tmp_path / "4")
            assert found is not None, (name, file)
            assert file.name in found, (name, file)
            subprocess.run(["rm", "-r", tmp_path / "4"], check=True)
    assert manifest.problem(newest) is None
    (copy(newest, tmp_path / "4") / "stray").touch()
    assert "stray was not there" in str(manifest.problem(tmp_path / "4"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name",
    ["manifest.json", "_CHECKPOINT_METADATA", "commit_success.txt", "identity/metadata",
     "state/_METADATA", "state/manifest.ocdbt", "state/d/*",
     "state/ocdbt.process_0/d/*"],
)  # fmt: skip
def test_the_one_before_takes_its_place(
    saved: Path,
    tmp_path: Path,
    name: str,
    damage: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = copy(saved, tmp_path / "run")
    damaged = list((run / "checkpoints" / "4").glob(name))
    assert damaged
    for path in damaged:
        DAMAGES[damage](path)
    with Checkpoints(run) as checkpoints:
        assert checkpoints.latest_step == 2
        assert checkpoints.arrays()[".params['w']"][0] == 2
        assert "the checkpoint of step 4" in capfd.readouterr().err
        checkpoints.set_damaged_aside()
        state = checkpoints.restore(TEMPLATE)
        assert int(state.step) == 2
        assert checkpoints.identity() == {"seed": 2}
    message = capfd.readouterr().err
    assert "step 4: " in message
    assert "going on from step 2" in message
    assert "Traceback" not in message
    assert (run / "damaged" / "4").is_dir()
    save(run, 4, 6)  # what was damaged can be saved again
    with Checkpoints(run) as checkpoints:
        assert checkpoints.latest_step == 6
        assert checkpoints.arrays()[".params['w']"][0] == 6


def test_none_whole_is_refused_by_name(saved: Path, tmp_path: Path) -> None:
    run = copy(saved, tmp_path / "run")
    for step in (2, 4):
        flip(run / "checkpoints" / str(step) / "identity" / "metadata")
    with Checkpoints(run) as checkpoints:
        for read in (checkpoints.set_damaged_aside, checkpoints.arrays):
            with pytest.raises(CheckpointError, match=r"step 4: identity/metadata is"):
                read()
    with Checkpoints(tmp_path / "empty") as checkpoints:
        checkpoints.set_damaged_aside()
        assert checkpoints.latest_step is None
        with pytest.raises(CheckpointError, match="no checkpoint in"):
            checkpoints.identity()


def test_a_save_that_fails_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        assert (folder.parent / "2").is_dir()  # still there: the new one is not sealed
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path, 2, keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.manifest, "write", full)
        with pytest.raises(CheckpointError, match=r"step 4 .* newest is step 2"):
            save(tmp_path, 4, keep=1)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.arrays()[".params['w']"][0] == 2


def test_a_checkpoint_that_the_disk_cannot_hold_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.statvfs(tmp_path)
    usage = type("Usage", (), {"total": free.f_blocks, "used": 0, "free": 100})
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(CheckpointError, match="needs 1,204 bytes, 100 are free"):
        save(tmp_path, 2)
    assert not list((tmp_path / "checkpoints").iterdir())


KILLED = """
import os, sys
from pathlib import Path
from train import manifest
from tests.train.test_checkpoint import save

folder = Path(sys.argv[1])
save(folder, 2)
seal = manifest.write

def die(path):
    if sys.argv[2] == "after":
        seal(path)
    os.kill(os.getpid(), 9)

manifest.write = die
save(folder, 4)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "newest"), [("before", 2), ("after", 4)])
def test_a_kill_during_a_save(tmp_path: Path, when: str, newest: int) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), when]
    root = Path(__file__).parents[2]
    assert subprocess.run(command, cwd=root).returncode == -signal.SIGKILL
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.set_damaged_aside()
        assert checkpoints.latest_step == newest
        assert checkpoints.arrays()[".params['w']"][0] == newest


FULL = """
import sys
from pathlib import Path
import numpy as np, jax.numpy as jnp
from train.checkpoint import CheckpointError, Checkpoints
from train.step import TrainState
from vkore_jax import errors  # JAX's plugins are loaded before the limit is set
import resource, signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Checkpoints(Path(sys.argv[1])) as checkpoints:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    state = TrainState(jnp.int32(4), {"w": np.random.rand(90_000)}, ())
    try:
        checkpoints.save(state, {})
    except CheckpointError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_write_that_fails_inside_of_orbax_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("cannot save the checkpoint of step 4 in ")
    assert done.stdout.endswith("File too large (none before it)\n")
    assert done.stdout.count("\n") == 1
