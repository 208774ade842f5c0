"""Pictures of a comparison, by matplotlib: an optional dependency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vkore_jax.compare.statistics import common
from vkore_jax.errors import InvalidArgument

if TYPE_CHECKING:
    from vkore_jax.compare.report import Comparison

_SMOOTH = 0.04  # share of the steps that a smoothed curve averages over


def require_matplotlib() -> Any:
    """Return pyplot without a display.

    Raises:
        InvalidArgument: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InvalidArgument(
            "the plots of a comparison need matplotlib, which is not installed: "
            "pip install 'vkore_jax[train]', or leave them out with --no-plots"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_losses(comparison: Comparison, path: Path) -> None:
    """Draw every loss series, smoothed, with the seed band if there is one."""
    plt = require_matplotlib()
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    if comparison.band is not None:
        band = comparison.band
        axes.fill_between(
            band.steps, smooth(band.low), smooth(band.high), color="0.85",
            label=f"{len(band.seeds) + 1} seeds",
        )  # fmt: skip
    reference = comparison.reference
    axes.plot(
        reference.steps, smooth(reference.loss), color="black", linewidth=2.5,
        label=f"{reference.name} (reference)",
    )  # fmt: skip
    for run, style in _styled(comparison):
        axes.plot(run.steps, smooth(run.loss), label=run.name, **style)
    axes.set(
        xlabel="optimiser step",
        ylabel="training loss (nats a token), smoothed",
    )
    _finish(plt, figure, axes, path)


def draw_gaps(comparison: Comparison, path: Path) -> None:
    """Draw |run - reference| of every run, smoothed, on a logarithmic scale."""
    plt = require_matplotlib()
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for run, style in _styled(comparison):
        steps, a, b = common(comparison.reference, run)
        gap = np.abs(b - a)
        if np.nanmax(gap, initial=0) > 0:  # a logarithm has no place for equal runs
            axes.plot(steps, smooth(gap), label=run.name, **style)
    axes.set_yscale("log")
    axes.set(
        xlabel="optimiser step",
        ylabel="|loss - reference| (nats a token), smoothed",
    )
    _finish(plt, figure, axes, path)


def smooth(values: np.ndarray) -> np.ndarray:
    """Average over a window centred on each value, so that a curve does not lag."""
    half = max(1, round(len(values) * _SMOOTH / 2))
    total = np.concatenate([[0.0], np.cumsum(values)])
    i = np.arange(len(values))
    low, high = np.maximum(i - half, 0), np.minimum(i + half + 1, len(values))
    return (total[high] - total[low]) / (high - low)


def _styled(comparison: Comparison) -> list[tuple[Any, dict[str, Any]]]:
    styled = [
        (found.run, {"color": f"C{i % 10}", "linewidth": 1.2})
        for i, found in enumerate(comparison.runs)
    ]
    if comparison.null is not None:
        style = {"color": "0.5", "linewidth": 1.2, "linestyle": "--"}
        styled.append((comparison.null.run, style))
    return styled


def _finish(plt: Any, figure: Any, axes: Any, path: Path) -> None:
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", ncols=2)
    # No date: the same runs give the same file.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, dpi=100, metadata=metadata)
    plt.close(figure)
