"""The training run: `python -m train` from its options to its last line.

Reads like a page: prepare, then batch -> step -> log -> evaluate -> checkpoint, then
report.  The numbers of a run depend on its configuration alone.
"""

import contextlib
import errno
import importlib.metadata
import math
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train import data, gradients, report, sample
from train.checkpoint import Checkpoints
from train.config import ConfigError, TrainConfig, flatten
from train.options import parse_args
from train.step import StepMetrics, init_state, make_eval_step, make_train_step

_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "tokenizers",
    "vkore_jax",
)
_ORDER_STEPS = 100  # steps whose data order is hashed into run.json
EXIT_USAGE, EXIT_INTERRUPTED = 2, 130
# What the user's disk says, and no traceback of ours explains better.
_FROM_OUTSIDE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES),
    *(errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}


def train(preset: str, config: TrainConfig) -> int:
    """Train, and leave a run directory with everything that describes the run.

    Returns:
        The exit status: 0, or 130 after an interrupt (a checkpoint is saved).

    Raises:
        ConfigError: the configuration, the data or a checkpoint do not fit.
    """
    device = jax.devices()[0]
    run = config.out or Path("runs") / f"{preset}-{device.platform}"
    prepare_directory(run, resume=config.resume)
    began = time.perf_counter()

    dataset = data.load(config.data, config.model.vocab_size)
    context, batch_size = config.model.context, config.batch_size
    batches = data.Batches(dataset.train, batch_size, context, config.order_seed)
    held_out = list(
        data.eval_batches(dataset.valid, batch_size, context, config.eval_batches)
    )
    facts = describe(preset, config, dataset, batches)
    identity = flatten(config) | {
        "data_hash": dataset.data_hash,
        "tokenizer_hash": dataset.tokenizer.hash,
    }
    print(
        f"{preset}: {config.model.n_params:,} parameters on {device.platform} "
        f"({device.device_kind}); {dataset.source}, {len(dataset.train):,} tokens",
        flush=True,
    )

    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(run, config.keep_checkpoints))
        if config.resume:
            checkpoints.set_damaged_aside()
            checkpoints.require_identity(identity)
            state = checkpoints.restore(jax.eval_shape(lambda: init_state(config)))
        else:
            state = init_state(config)
        train_step, eval_step = make_train_step(config), make_eval_step(config)
        first = int(state.step)
        last = min(config.steps, first + (config.stop_after or config.steps))
        metrics = report.Metrics(run / "metrics.jsonl", keep_until=first)
        stack.callback(metrics.close)
        dataset.tokenizer.save(run / "tokenizer.json")
        report.write_json(run / "run.json", facts)
        show = stack.enter_context(
            report.progress(first, config.steps, config.log_every)
        )
        interrupted = stack.enter_context(interrupt_flag())

        for step in range(first + 1, last + 1):
            started = time.perf_counter()
            batch = batches(0 if config.overfit else step - 1)
            state, found = train_step(state, batch)
            line: dict[str, Any] = {"step": step} | scalars(found)
            seconds = time.perf_counter() - started

            if config.grad_every and (step == 1 or step % config.grad_every == 0):
                gradients.record(run, step, found.gradient)

            if step % config.eval_every == 0 or step == config.steps:
                loss = float(np.mean([eval_step(state.params, b) for b in held_out]))
                bits = loss / math.log(2)
                line["eval_loss"] = loss
                line["eval_bits_per_byte"] = bits / dataset.valid_bytes_per_token
            speed = config.step_tokens / seconds
            line["timing"] = {
                "seconds": round(time.perf_counter() - began, 4),
                "step_seconds": round(seconds, 6),
                "tokens_per_s": round(speed, 1),
            }
            metrics.add(line)
            show(step, line["loss"], speed)
            if interrupted:
                break
            if step % config.checkpoint_every == 0:
                checkpoints.save(state, identity)
        checkpoints.save(state, identity)

    done = int(state.step)
    title = (
        f"{preset}, {config.model.n_params / 1e6:.1f} M parameters, {device.platform}"
    )
    report.plot_loss(run / "loss.png", metrics.lines, title)
    if done < config.steps:
        print(f"stopped at step {done}/{config.steps}, checkpoint saved in {run}")
        print(f"continue with: the same options, --out {run} --resume")
        return EXIT_INTERRUPTED if interrupted else 0

    texts = write_samples(config, state.params, dataset.tokenizer)
    report.write_text(run / "sample.txt", texts)
    seconds = time.perf_counter() - began
    facts["result"] = summarize(metrics.lines, seconds)
    ledger = vkore_ledger()
    facts["ledger"] = None if ledger is None else ledger.to_dict()
    report.write_json(run / "run.json", facts)
    print_summary(run, facts["result"], texts)
    if ledger is not None:
        print(ledger)
    return 0


def scalars(found: StepMetrics) -> dict[str, Any]:
    """Return the numbers of a step as JSON values, without those not asked for."""
    values = found._replace(gradient=None)._asdict()
    return {name: np.asarray(x).item() for name, x in values.items() if x is not None}


def prepare_directory(run: Path, *, resume: bool) -> None:
    """Create the run directory; an earlier run in it is moved aside, not lost."""
    try:
        is_folder = run.is_dir() or not run.exists()
    except OSError:  # a name that the file system does not take
        is_folder = False
    if not is_folder:
        raise ConfigError(f"--out must be a folder or new, found a file: {run}")
    if resume:
        if not (run / "checkpoints").is_dir():
            raise ConfigError(f"nothing to resume in {run}")
        return
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder of --out: {error}") from error
    if moved := report.set_aside(run):
        print(f"the earlier run in {run} was moved to {moved}")


def describe(
    preset: str, config: TrainConfig, dataset: data.Dataset, batches: data.Batches
) -> dict[str, Any]:
    """Return what run.json says about a run before it starts."""
    device = jax.devices()[0]
    return {
        "preset": preset,
        "config": flatten(config),
        "n_params": config.model.n_params,
        "backend": device.platform,
        "device_kind": device.device_kind,
        # The emulated chip is a profile: its name is the kind of the device.
        "chip": device.device_kind if device.platform == "vkore" else None,
        "seed": config.seed,
        "precision": config.precision,
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
        "data": {
            "source": dataset.source,
            "hash": dataset.data_hash,
            "order_hash": batches.order_hash(min(config.steps, _ORDER_STEPS)),
            "tokenizer_hash": dataset.tokenizer.hash,
            "train_tokens": len(dataset.train),
            "valid_tokens": len(dataset.valid),
            "valid_bytes_per_token": dataset.valid_bytes_per_token,
        },
        "gradients": gradients.describe() if config.grad_every else None,
        "result": None,
        "ledger": None,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None  # vkore_jax on a machine that only makes the reference run


@contextlib.contextmanager
def interrupt_flag() -> Iterator[list[int]]:
    """Yield a list that becomes true when Ctrl-C or SIGTERM asks to stop.

    The step in progress is finished; a second signal acts as usual.
    """
    received: list[int] = []
    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: object) -> None:
        received.append(number)
        for which, handler in previous.items():
            signal.signal(which, handler)

    try:
        for number in previous:
            signal.signal(number, note)
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def write_samples(config: TrainConfig, params: Any, tokenizer: Any) -> str:
    """Return a greedy and a warm continuation of the prompt, under headings."""
    parts: list[str] = []
    for temperature in (0.0, config.sample_temperature):
        text = sample.write(
            config.model,
            params,
            tokenizer,
            prompt=config.prompt,
            tokens=config.sample_tokens,
            temperature=temperature,
            seed=config.seed,
        )
        heading = "greedy" if temperature == 0 else f"temperature {temperature}"
        parts.append(f"--- {heading} ---\n{text}\n")
    return "\n".join(parts)


def summarize(lines: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return the figures of a finished run."""
    steady = sorted(m["timing"]["tokens_per_s"] for m in lines)
    return {
        "steps": lines[-1]["step"],
        "first_loss": lines[0]["loss"],
        "final_loss": lines[-1]["loss"],
        "loss_ratio": lines[-1]["loss"] / lines[0]["loss"],
        "eval_loss": lines[-1]["eval_loss"],
        "eval_bits_per_byte": lines[-1]["eval_bits_per_byte"],
        "median_tokens_per_s": steady[len(steady) // 2],
        "session_seconds": round(seconds, 2),
    }


def print_summary(run: Path, result: dict[str, Any], texts: str) -> None:
    """Print the figures, the samples and where the files are."""
    print(
        f"loss {result['first_loss']:.3f} -> {result['final_loss']:.3f} "
        f"({result['loss_ratio']:.0%} of the start) in {result['steps']} steps; "
        f"held-out {result['eval_loss']:.3f} nats a token, "
        f"{result['eval_bits_per_byte']:.3f} bits a byte; "
        f"{result['median_tokens_per_s']:,.0f} tokens/s, "
        f"{result['session_seconds']:.0f} s\n\n{texts}\n"
        f"written to {run}: metrics.jsonl, run.json, loss.png, sample.txt, checkpoints"
    )


def vkore_ledger() -> Any:
    """Return the ledger of the emulated NPU, or None on any other backend."""
    if jax.default_backend() != "vkore":
        return None
    import vkore_jax  # only here: on another backend it need not be installed

    return vkore_jax.ledger()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    try:
        preset, config = parse_args(sys.argv[1:] if argv is None else argv)
        precise: Any = contextlib.nullcontext()
        if config.precision != "default":
            precise = jax.default_matmul_precision(config.precision)
        with precise:
            return train(preset, config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        if error.errno not in _FROM_OUTSIDE:
            raise
        print(f"error: cannot write: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("interrupted outside of the training loop", file=sys.stderr)
        return EXIT_INTERRUPTED
