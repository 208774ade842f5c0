"""Runs in 16 bits, and what a run records for comparisons."""

import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train import gradients, report
from train.checkpoint import Checkpoints
from train.config import PRESETS, ConfigError, TrainConfig
from train.options import parse_args

NARROW = (
    *("--steps", 6, "--param_dtype", "bf16", "--master", "stochastic"),
    *("--moments", "stochastic", "--loss_scale", "dynamic", "--grad_every", 2),
    *("--model.dropout", 0, "--micro_batches", 1),
)


@pytest.fixture(scope="module")
def narrow(
    run_tiny: Callable[..., int], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A run in bfloat16, whole and in two parts."""
    whole, parts = (tmp_path_factory.mktemp("runs") / name for name in "ab")
    assert run_tiny(*NARROW, "--out", whole) == 0
    assert run_tiny(*NARROW, "--out", parts, "--stop_after", 3) == 0
    assert run_tiny(*NARROW, "--out", parts, "--resume") == 0
    return whole, parts


@pytest.mark.slow
def test_a_narrow_run_goes_on_to_the_last_bit(narrow: tuple[Path, Path]) -> None:
    lines = []
    for run in narrow:
        found = report.read_metrics(run / "metrics.jsonl")
        lines.append([{k: v for k, v in m.items() if k != "timing"} for m in found])
    assert lines[0] == lines[1]
    assert [m["step"] for m in lines[0]] == [1, 2, 3, 4, 5, 6]
    assert all(m["skipped"] == 0 and m["loss_scale"] == 2**15 for m in lines[0])
    assert all(np.isfinite(m["loss"]) and m["grad_norm"] < 100 for m in lines[0])


@pytest.mark.slow
def test_a_narrow_run_keeps_no_float32_array(narrow: tuple[Path, Path]) -> None:
    with Checkpoints(narrow[0]) as checkpoints:
        arrays = checkpoints.arrays()
    large = {a.dtype.name for a in arrays.values() if a.ndim}
    assert large == {"bfloat16"}


@pytest.mark.slow
def test_gradients_are_recorded_where_asked(narrow: tuple[Path, Path]) -> None:
    for run in narrow:
        found = sorted(p.name for p in (run / "gradients").iterdir())
        assert found == [f"step-{i:06}.npy" for i in (1, 2, 4, 6)]
        sketch = np.load(run / "gradients" / found[0])
        assert sketch.shape == (gradients.SIZE,)
        assert sketch.dtype == np.float32
        assert np.abs(sketch).max() > 0


@pytest.mark.slow
def test_a_run_says_what_a_comparison_asks(narrow: tuple[Path, Path]) -> None:
    facts = json.loads((narrow[0] / "run.json").read_text())
    assert facts["seed"] == 0
    assert facts["precision"] == "default"
    assert facts["gradients"] == gradients.describe()
    assert facts["config"]["master"] == "stochastic"
    assert len(facts["data"]["order_hash"]) == 64
    is_chip = facts["backend"] == "vkore"
    assert facts["chip"] == (facts["device_kind"] if is_chip else None)
    assert (facts["ledger"] is not None) is is_chip


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.1])
def test_a_sketch_keeps_the_angle(noise: float) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=50_000)
    b = a + noise * rng.normal(size=a.size)

    def apart(x: np.ndarray, y: np.ndarray) -> float:
        x, y = x.astype(np.float64), y.astype(np.float64)
        return 1 - float(x @ y) / float(np.sqrt((x @ x) * (y @ y)))

    tree = lambda x: {"v": x[:30_000].reshape(300, 100), "w": x[30_000:]}  # noqa: E731
    found = apart(gradients.sketch(tree(a)), gradients.sketch(tree(b)))
    assert found == pytest.approx(apart(a, b), rel=0.1)


def test_a_sketch_is_linear_and_reads_any_float() -> None:
    x = np.random.default_rng(0).normal(size=999).astype(np.float32)
    one = gradients.sketch([jnp.asarray(x, jnp.bfloat16)])
    two = gradients.sketch([jax.device_put(np.float32(2) * x)])
    np.testing.assert_allclose(two, 2 * gradients.sketch([x]), rtol=1e-6)
    np.testing.assert_allclose(one, gradients.sketch([x]), atol=0.05)


def test_a_master_belongs_to_narrow_weights() -> None:
    with pytest.raises(ConfigError, match="add --param_dtype bf16"):
        TrainConfig(master="hilo")
    _, config = parse_args(["smoke", "--master", "hilo", "--param_dtype", "bf16"])
    assert config.mixed_precision
    assert not TrainConfig().mixed_precision


def test_the_data_order_has_a_seed_of_its_own() -> None:
    assert TrainConfig(seed=3).order_seed == 3
    assert TrainConfig(seed=3, data_seed=0).order_seed == 0


def test_the_trajectory_preset_is_the_three_million_model() -> None:
    model = PRESETS["trajectory"].model
    assert model.n_params == PRESETS["tinystories-3m"].model.n_params
