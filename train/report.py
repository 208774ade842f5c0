"""What a run writes and shows: metrics, run.json, the plot, the progress line.

Owns the files of a run directory except the checkpoints.  In metrics.jsonl the
fields of a line are deterministic, apart from those under "timing".
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

RUN_FILES = ("metrics.jsonl", "run.json", "loss.png", "sample.txt", "tokenizer.json",
             "checkpoints", "gradients", "damaged")  # fmt: skip


class ShowStep(Protocol):
    """Shows one finished step to the person who waits."""

    def __call__(self, step: int, loss: float, tokens_per_s: float) -> None:
        """Show the step."""
        ...


def write_text(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: Any) -> None:
    """Write an indented JSON file that is never seen half written."""
    write_text(path, json.dumps(value, indent=2, default=str) + "\n")


def set_aside(run: Path) -> Path | None:
    """Move the files of an earlier run into `run/previous-N`; nothing is lost."""
    old = [run / name for name in RUN_FILES if (run / name).exists()]
    if not old:
        return None
    n = 1
    while (target := run / f"previous-{n}").exists():
        n += 1
    target.mkdir()
    for path in old:
        path.rename(target / path.name)
    return target


class Metrics:
    """The lines of metrics.jsonl: appended one a step, flushed at once."""

    def __init__(self, path: Path, *, keep_until: int):
        """Open the file; lines of steps after `keep_until` are dropped.

        A run that stopped between two checkpoints has written steps that its
        resumption does again.
        """
        self.lines = [m for m in read_metrics(path) if m["step"] <= keep_until]
        write_text(path, "".join(json.dumps(m) + "\n" for m in self.lines))
        self._file = path.open("a", encoding="utf-8")

    def add(self, line: dict[str, Any]) -> None:
        """Append one step."""
        self.lines.append(line)
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl; a torn last line is left out."""
    lines: list[dict[str, Any]] = []
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                break  # the process died while writing this line
    return lines


@contextmanager
def progress(first: int, last: int, log_every: int) -> Iterator[ShowStep]:
    """Show progress from step `first` to `last`: a bar, or plain lines in a log."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:

        def show(step: int, loss: float, tokens_per_s: float) -> None:
            if step % log_every == 0 or step == last:
                print(
                    f"step {step:>6}/{last}  loss {loss:.4f}  "
                    f"{tokens_per_s:,.0f} tokens/s",
                    flush=True,
                )

        yield show
        return
    columns = (
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("{task.fields[speed]:,.0f} tokens/s"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=last, completed=first, loss=float("nan"), speed=0)

        def show(step: int, loss: float, tokens_per_s: float) -> None:
            bar.update(task, completed=step, loss=loss, speed=tokens_per_s)

        yield show


def plot_loss(path: Path, lines: list[dict[str, Any]], title: str) -> None:
    """Draw training and held-out loss over steps as a PNG."""
    import matplotlib

    matplotlib.use("Agg")  # no display is needed or wanted
    from matplotlib import pyplot as plt

    steps = [m["step"] for m in lines]
    losses = [m["loss"] for m in lines]
    held_out = [(m["step"], m["eval_loss"]) for m in lines if "eval_loss" in m]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, losses, color="tab:blue", alpha=0.3, linewidth=1, label="step")
    smooth = _centred_average(losses)
    axes.plot(steps, smooth, color="tab:blue", linewidth=2, label="step, smoothed")
    if held_out:
        x, y = zip(*held_out, strict=True)
        axes.plot(x, y, "o-", color="tab:orange", markersize=4, label="held-out text")
    axes.set(xlabel="optimiser step", ylabel="loss (nats per token)", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    part = path.with_name("part-" + path.name)
    figure.savefig(part, dpi=120)
    plt.close(figure)
    os.replace(part, path)


def _centred_average(values: list[float], share: float = 0.05) -> list[float]:
    """Average over a window around each value, so that the curve does not lag."""
    half = max(1, int(len(values) * share / 2))
    windows = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]
