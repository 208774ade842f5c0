"""Did it train the same?  Loss trajectories of runs against a reference run.

    vkore compare REFERENCE RUN [RUN ...] --null OTHER_SEED -o report

Needs NumPy; plots need matplotlib.  Nothing here imports JAX.
"""

from vkore_jax.compare.report import Comparison, compare, markdown, write_report
from vkore_jax.compare.runs import Run, read_run
from vkore_jax.compare.statistics import Figures, Pair, figures, pearson, self_bound

__all__ = [
    "Comparison", "compare", "markdown", "write_report",
    "Run", "read_run", "Figures", "figures", "pearson",
    "Pair", "self_bound",
]  # fmt: skip
