"""The figures of a trajectory comparison: series in, numbers out.

Owns the definitions.  The correlation of two falling curves is close to 1 whatever
they do in between: the correlation of their first differences looks at the steps, and
a null pair says what either figure is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vkore_jax.compare.runs import MIN_STEPS, Run
from vkore_jax.errors import InvalidArgument

TAIL = 0.1
"""Share of the steps, at the end, over which the mean final gap is taken."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run against the reference, over the steps that both have.

    Gaps are run minus reference, in nats a token; shares are of the reference's value
    there.  A figure is NaN where a series is not finite or has no variation.
    """

    run: Run
    steps: int  # compared
    pearson: float
    diff_pearson: float  # of the first differences
    max_gap: float  # the gap of largest magnitude
    max_gap_step: int
    max_gap_share: float
    mean_gap: float  # mean magnitude over all steps
    final_gap: float  # at the last common step
    final_gap_share: float
    tail_gap: float  # mean over the last tenth of the steps
    tail_gap_share: float
    eval_gap: float | None  # on held-out text, last common evaluation, nats a token
    eval_gap_share: float | None
    bits_per_byte: float | None  # of the run, on held-out text, last evaluation
    gradient_cosines: tuple[tuple[int, float], ...]  # (step, cosine)
    non_finite: int  # steps
    skipped: int | None  # updates


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation, NaN if a series does not vary or is not finite."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan  # what is left of a constant is the rounding of its mean
    return cosine(a - a.mean(), b - b.mean())


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine of two vectors, NaN if one is 0 or not finite."""
    norm = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / norm if norm > 0 and math.isfinite(norm) else math.nan


def common(reference: Run, run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps that both runs have, and the two losses there.

    Raises:
        InvalidArgument: too few steps in common.
    """
    steps, i, j = np.intersect1d(reference.steps, run.steps, return_indices=True)
    if len(steps) < MIN_STEPS:
        raise InvalidArgument(
            f"{run.path} and the reference {reference.path} have {len(steps)} steps in "
            f"common ({_span(run)} and {_span(reference)}); a comparison needs "
            f"{MIN_STEPS} or more"
        )
    return steps, reference.loss[i], run.loss[j]


def figures(reference: Run, run: Run) -> Figures:
    """Compare a run with the reference.

    Raises:
        InvalidArgument: too few steps in common, or gradients of different lengths.
    """
    steps, a, b = common(reference, run)
    with np.errstate(invalid="ignore"):  # inf - inf
        gap = b - a
    finite = np.isfinite(gap)
    at = int(np.argmax(np.where(finite, np.abs(gap), -1)))
    tail = max(1, round(TAIL * len(steps)))
    tail_gap = float(gap[-tail:].mean())
    evaluated = sorted(reference.eval_loss.keys() & run.eval_loss.keys())
    eval_gap = eval_share = None
    if evaluated:
        wanted = reference.eval_loss[evaluated[-1]]
        eval_gap = run.eval_loss[evaluated[-1]] - wanted
        eval_share = eval_gap / wanted
    bits = run.bits_per_byte
    return Figures(
        run=run,
        steps=len(steps),
        pearson=pearson(a, b),
        diff_pearson=pearson(np.diff(a), np.diff(b)),
        max_gap=float(gap[at]),
        max_gap_step=int(steps[at]),
        max_gap_share=float(gap[at] / a[at]),
        mean_gap=float(np.abs(gap).mean()),
        final_gap=float(gap[-1]),
        final_gap_share=float(gap[-1] / a[-1]),
        tail_gap=tail_gap,
        tail_gap_share=tail_gap / float(a[-tail:].mean()),
        eval_gap=eval_gap,
        eval_gap_share=eval_share,
        bits_per_byte=bits[max(bits)] if bits else None,
        gradient_cosines=_gradient_cosines(reference, run),
        non_finite=run.non_finite,
        skipped=run.skipped,
    )


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs that a comparison sets beside its own: a yardstick.

    A self-control ("self") is a run repeated with the same numbers and another order
    of the same sums; a seed pair ("seed") is reference and run at another seed.
    """

    kind: str
    base: Run
    found: Figures  # of the other run against the base


def self_bound(pairs: tuple[Pair, ...]) -> float | None:
    """Return the largest gap of the self-controls, nats a token; None without any.

    Two runs that are closer than this cannot be told from one run done twice.
    """
    gaps = [abs(p.found.max_gap) for p in pairs if p.kind == "self"]
    return max(gaps, default=None)


@dataclass(frozen=True, kw_only=True)
class Band:
    """How far runs of other seeds are from the reference, and who is within."""

    seeds: tuple[Run, ...]
    steps: np.ndarray  # (n,) int64
    low: np.ndarray  # (n,) the smallest loss among reference and seeds
    high: np.ndarray  # (n,) the largest

    @property
    def width(self) -> float:
        """Mean width over the last tenth of the steps, nats a token."""
        tail = max(1, round(TAIL * len(self.steps)))
        return float((self.high - self.low)[-tail:].mean())

    def largest(self, reference: Run) -> float:
        """Return the largest gap of a seed run to the reference, nats a token."""
        return max(abs(figures(reference, run).max_gap) for run in self.seeds)

    def share_within(self, run: Run) -> float:
        """Return the share of the run's steps within the band (where both are)."""
        _, i, j = np.intersect1d(self.steps, run.steps, return_indices=True)
        if not len(i):
            return math.nan
        loss = run.loss[j]
        return float(((self.low[i] <= loss) & (loss <= self.high[i])).mean())


def seed_band(reference: Run, seeds: tuple[Run, ...]) -> Band:
    """Return the band that the reference and runs of other seeds span."""
    steps = reference.steps
    for run in seeds:
        steps = np.intersect1d(steps, common(reference, run)[0])
    if len(steps) < MIN_STEPS:
        raise InvalidArgument(
            f"the seed runs have {len(steps)} steps in common with the reference "
            f"{reference.path}; a band needs {MIN_STEPS} or more"
        )
    rows = np.stack(
        [run.loss[np.isin(run.steps, steps)] for run in (reference, *seeds)]
    )
    return Band(seeds=seeds, steps=steps, low=rows.min(0), high=rows.max(0))


def _gradient_cosines(reference: Run, run: Run) -> tuple[tuple[int, float], ...]:
    found = []
    for step in sorted(reference.gradients.keys() & run.gradients.keys()):
        a, b = reference.gradient(step), run.gradient(step)
        if a.shape != b.shape:
            raise InvalidArgument(
                f"gradients of step {step} have {a.size} numbers in {reference.path} "
                f"and {b.size} in {run.path}: record both in the same way"
            )
        found.append((step, cosine(a, b)))
    return tuple(found)


def _span(run: Run) -> str:
    return f"{run.steps[0]} to {run.steps[-1]}"
