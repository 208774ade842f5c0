"""The suites: which release, where its tests are, what is left out and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One library's tests.

    `git` is the repository for those whose source distribution has no tests (tag
    `v` + version); `every` keeps one test of so many; `without` are files and tests
    that are left out on every platform, each with the reason.
    """

    name: str
    version: str
    files: tuple[str, ...]
    git: str = ""
    needs: tuple[str, ...] = ()
    every: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)


_KIDGER = "https://github.com/patrick-kidger/"
_NO_TF = "needs TensorFlow"

SUITES: tuple[Suite, ...] = (
    Suite(
        name="equinox",
        version="0.13.8",
        files=("tests/test_*.py",),
        git=_KIDGER + "equinox",
        needs=("beartype", "optax"),
        without={"tests/test_onnx.py": _NO_TF},
    ),
    Suite(
        name="diffrax",
        version="0.7.2",
        files=("test/test_*.py",),
        git=_KIDGER + "diffrax",
        needs=("beartype", "optax", "scipy", "tqdm"),
        every=8,
    ),
    Suite(
        name="optimistix",
        version="0.1.0",
        files=("tests/test_*.py",),
        git=_KIDGER + "optimistix",
        needs=("beartype", "diffrax", "optax", "sif2jax", "pytest-benchmark"),
        every=8,
        without={"tests/test_compat.py": "is about other libraries' versions"},
    ),
    Suite(
        name="lineax",
        version="0.1.1",
        files=("tests/test_*.py",),
        git=_KIDGER + "lineax",
        needs=("beartype",),
        every=8,
    ),
    Suite(
        name="numpyro",
        version="0.22.0",
        files=("test/test_*.py",),
        needs=("scikit-learn", "scipy", "tfp-nightly", "dm-haiku", "flax", "optax"),
        every=16,
        without={
            "test/test_examples.py": "downloads data",
            "test/test_example_utils.py": "downloads data",
            "test/test_model_rendering.py": "needs graphviz",
        },
    ),
    Suite(
        name="keras",
        version="3.15.1",
        files=("keras/src/layers/**/*_test.py", "keras/src/ops/*_test.py"),
        every=24,
        needs=("scipy",),
        environment={"KERAS_BACKEND": "jax"},
        without={
            "keras/src/layers/core/dense_test.py::DenseTest::test_dense_sparse": _NO_TF,
        },
    ),
    Suite(
        name="dm-haiku",
        version="0.0.17",
        files=("haiku/_src/*_test.py",),
        needs=("dm-tree", "flax", "mock"),
        every=4,
    ),
    Suite(
        name="chex",
        version="0.1.92",
        files=("chex/_src/*_test.py",),
        needs=("dm-tree",),
    ),
    Suite(
        name="distrax",
        version="0.1.9",
        files=("distrax/_src/**/*_test.py",),
        needs=("dm-haiku", "mock"),
        every=24,
    ),
)
