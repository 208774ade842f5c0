"""What `vkore_jax.accelerate` changes: losses, step time, cycles and DRAM bytes.

    JAX_PLATFORMS=vkore,cpu python benchmarks/accelerate.py decoder nano
    JAX_PLATFORMS=cpu python benchmarks/accelerate.py lm1b --lm1b flax/examples/lm1b

Each model is trained for a few steps with and without, from the same parameters and on
the same batches, on the default backend.  Models: `decoder` is the one of `train/` as
plain Flax NNX; `nano` a GPT in jnp, in the public style; `lm1b` the transformer of
Flax's example, from a checkout.  Cycles are those of a machine whose units work one
after the other (`serial`) or all at once (`overlapped`), by the chip's profile.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import nnx
from flax.training import common_utils

import vkore_jax
from train.config import ModelConfig
from train.model import abstract_decoder, init_params


@dataclass(frozen=True)
class Task:
    """A loss of parameters and token ids (b, t + 1), and its parameters."""

    loss: Callable[[Any, Any], jax.Array]
    params: Any
    vocab: int
    context: int


def decoder_task(args: argparse.Namespace) -> Task:
    """Build the decoder of `train/`, without any primitive named in it."""
    config = ModelConfig()
    graph, _ = abstract_decoder(config)

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        logits = nnx.merge(graph, params)(ids[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, ids[:, 1:]
        ).mean()

    params = init_params(config, jax.random.key(0))
    return Task(loss, params, config.vocab_size, config.context)


def nano_task(args: argparse.Namespace) -> Task:
    """Build a GPT-2 in jnp: learned positions, GELU, tied embeddings."""
    layers, heads, c, vocab, context = 4, 4, 128, 1024, 128
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return 0.02 * rng.standard_normal(shape).astype("f4")

    def norm() -> dict[str, np.ndarray]:
        return {"g": np.ones(c, "f4"), "b": np.zeros(c, "f4")}

    params = {
        "wte": weight(vocab, c),
        "wpe": weight(context, c),
        "ln_f": norm(),
        "h": [
            {
                "ln_1": norm(), "ln_2": norm(),
                "attn": {"w": weight(c, 3 * c), "b": np.zeros(3 * c, "f4")},
                "proj": {"w": weight(c, c), "b": np.zeros(c, "f4")},
                "fc": {"w": weight(c, 4 * c), "b": np.zeros(4 * c, "f4")},
                "out": {"w": weight(4 * c, c), "b": np.zeros(c, "f4")},
            }
            for _ in range(layers)
        ],
    }  # fmt: skip

    def linear(p: Any, x: jax.Array) -> jax.Array:
        return x @ p["w"] + p["b"]

    def layer_norm(p: Any, x: jax.Array) -> jax.Array:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * p["g"] + p["b"]

    def attend(p: Any, x: jax.Array) -> jax.Array:
        b, t, _ = x.shape
        q, k, v = jnp.split(linear(p["attn"], x), 3, axis=-1)
        q, k, v = (a.reshape(b, t, heads, -1).transpose(0, 2, 1, 3) for a in (q, k, v))
        scores = (q @ k.transpose(0, 1, 3, 2)) / np.sqrt(q.shape[-1])
        scores = jnp.where(jnp.tril(jnp.ones((t, t))) == 0, -jnp.inf, scores)
        y = jax.nn.softmax(scores, axis=-1) @ v
        return linear(p["proj"], y.transpose(0, 2, 1, 3).reshape(b, t, -1))

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        x = params["wte"][ids[:, :-1]] + params["wpe"][: ids.shape[1] - 1]
        for p in params["h"]:
            x = x + attend(p, layer_norm(p["ln_1"], x))
            h = jax.nn.gelu(linear(p["fc"], layer_norm(p["ln_2"], x)))
            x = x + linear(p["out"], h)
        logits = layer_norm(params["ln_f"], x) @ params["wte"].T
        logp = jax.nn.log_softmax(logits.reshape(-1, vocab))
        targets = ids[:, 1:].reshape(-1, 1)
        return -jnp.take_along_axis(logp, targets, axis=-1).mean()

    return Task(loss, params, vocab, context)


def lm1b_task(args: argparse.Namespace) -> Task:
    """Build the transformer of Flax's lm1b example, without dropout."""
    if args.lm1b is None:
        raise SystemExit("lm1b needs --lm1b DIR: the example's folder in a checkout")
    spec = importlib.util.spec_from_file_location("models", args.lm1b / "models.py")
    assert spec is not None
    assert spec.loader is not None
    models = importlib.util.module_from_spec(spec)
    sys.modules["models"] = models
    spec.loader.exec_module(models)
    vocab, context = 1024, 64
    config = models.TransformerConfig(
        vocab_size=vocab, output_vocab_size=vocab, emb_dim=128, num_heads=4,
        num_layers=3, qkv_dim=128, mlp_dim=512, max_len=context,
        dropout_rate=args.dropout, attention_dropout_rate=args.dropout,
        deterministic=not args.dropout,
    )  # fmt: skip
    model = models.TransformerLM(config)

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        ids = ids[:, 1:]
        logits = model.apply(params, ids, rngs={"dropout": jax.random.key(2)})
        weights = jnp.where(ids > 0, 1, 0).astype(jnp.float32)
        hot = common_utils.onehot(ids, vocab, on_value=1.0, off_value=0.0)
        losses = -jnp.sum(hot * nn.log_softmax(logits), axis=-1) * weights
        return losses.sum() / weights.sum()

    example = jnp.ones((2, context), jnp.int32)
    boxed = jax.jit(model.init)(jax.random.key(0), example)
    return Task(loss, nn.unbox(boxed), vocab, context)


TASKS = {"decoder": decoder_task, "nano": nano_task, "lm1b": lm1b_task}


def batches(task: Task, args: argparse.Namespace) -> list[np.ndarray]:
    """Return token ids with something to learn: mostly counting, some padding."""
    rng = np.random.default_rng(1)
    shape = (args.steps, args.batch, task.context + 1)
    start = rng.integers(1, task.vocab, shape[:2])[..., None]
    ids = (start + np.arange(shape[-1])) % (task.vocab - 1) + 1
    noise = rng.random(shape) < 0.1
    ids = np.where(noise, rng.integers(1, task.vocab, shape), ids)
    ids[:, 0, -5:] = 0
    return list(ids.astype("i4"))


def train(task: Task, loss: Any, data: list[np.ndarray]) -> dict[str, Any]:
    """Take the steps; return losses, times and the ledger's figures of a step."""
    tx = optax.adamw(1e-3)

    @jax.jit
    def step(params: Any, state: Any, ids: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, ids)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    params = jax.tree.map(jnp.asarray, task.params)
    state = jax.jit(tx.init)(params)
    began = time.perf_counter()
    compiled = step.lower(params, state, data[0]).compile()
    compile_seconds = time.perf_counter() - began
    vkore_jax.ledger().reset()
    losses, seconds = [], []
    for ids in data:
        began = time.perf_counter()
        params, state, value = compiled(params, state, ids)
        losses.append(float(value))
        seconds.append(time.perf_counter() - began)
    return {
        "losses": losses,
        "compile_seconds": compile_seconds,
        "step_seconds": statistics.median(seconds[1:]),
        **_machine(len(data)),
    }


def _machine(steps: int) -> dict[str, float]:
    """Return the work of one step, if it ran on the chip."""
    found = vkore_jax.ledger().to_dict()
    if not found["executions"]:
        return {}
    chip = vkore_jax.chips.get_chip()
    read, written = (sum(found[k].values()) for k in ("bytes_in", "bytes_out"))
    cycles = {
        "MXU": found["macs"] / (chip.mxu_rows * chip.mxu_cols),
        "VPU": sum(found["vector_ops"].values()) / chip.vector_lanes,
        "DMA": (read + written) / chip.dram_bytes_per_cycle,
        "core": sum(found["core_ops"].values()) / chip.core_ops_per_cycle,
    }
    return {
        "dram_bytes": (read + written) / steps,
        "commands": sum(found["mnemonics"].values()) / steps,
        "cycles_serial": sum(cycles.values()) / steps,
        "cycles_overlapped": max(cycles.values()) / steps,
        **{f"cycles_{unit}": n / steps for unit, n in cycles.items()},
    }


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Train with and without."""
    task = TASKS[name](args)
    data = batches(task, args)
    fast = vkore_jax.accelerate(task.loss)
    report = fast.report(task.params, data[0])
    print(f"\n{name} on {jax.default_backend()}\n{report}", flush=True)
    found = {"plain": train(task, task.loss, data), "fast": train(task, fast, data)}
    gap = np.abs(np.subtract(*(np.array(f["losses"]) for f in found.values())))
    return {
        "model": name,
        "backend": jax.default_backend(),
        "load": os.getloadavg()[0],
        "replaced": report.counts(),
        "left": len(report.left),
        "largest_loss_gap": float(gap.max()),
        **found,
    }


def show(row: dict[str, Any]) -> None:
    """Print a comparison."""
    plain, fast = row["plain"], row["fast"]
    print(f"losses {plain['losses'][0]:.6f} to {plain['losses'][-1]:.6f}, ", end="")
    print(f"largest gap {row['largest_loss_gap']:.2e}; load {row['load']:.1f}")
    for key, value in plain.items():
        if key != "losses" and value:
            ratio = fast[key] / value
            print(f"  {key:18} {value:14.5g} {fast[key]:14.5g}   x {ratio:.3f}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", choices=sorted(TASKS))
    parser.add_argument("--lm1b", type=Path, help="folder of Flax's example")
    parser.add_argument("--dropout", type=float, default=0.0, help="of lm1b")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--out", type=Path, help="a file to write the figures to")
    args = parser.parse_args()
    rows = [measure(name, args) for name in args.models]
    for row in rows:
        print(f"\n{row['model']} ({row['backend']}): plain, accelerated")
        show(row)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
