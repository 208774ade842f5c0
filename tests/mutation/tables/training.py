"""Mutants of what trains: primitives, `accelerate`, optimizers, `train`."""

from __future__ import annotations

from tests.mutation.record import Mutant, rows

_P = "vkore_jax/primitives/"
_R = "vkore_jax/rewrite/"
_O = "vkore_jax/optim/"
_ACCELERATE = (
    "tests/accelerate/test_look_alikes.py",
    "tests/accelerate/test_accelerate.py",
    "tests/accelerate/test_flax.py",
)
_PRIMITIVES = "tests/primitives/test_primitives.py"
_OPTIM = (
    "tests/optim/test_rounding.py",
    "tests/optim/test_scale.py",
    "tests/optim/test_training.py",
)
_STEP = (
    "tests/train/test_step.py",
    "tests/train/test_step.py -m slow",
    "tests/train/test_model.py",
)

MUTANTS: tuple[Mutant, ...] = (
    *rows(
        _P + "cross_entropy.py",
        (f"{_PRIMITIVES} -k cross", f"{_PRIMITIVES} -k 'wrong or types'"),
        (
            "return counts, counts & ((targets < 0) | (targets >= vocab))",
            "return counts, counts & ((targets < 0) | (targets > vocab))",
        ),
        (
            "        loss = loss + z_loss * lse * lse\n",
            "        loss = loss + z_loss * lse\n",
        ),
        ("weight = g * (1 + 2 * z_loss * lse)", "weight = g * (1 + z_loss * lse)"),
        ("total = total * jnp.exp(top - new) + jnp.sum(", "total = total + jnp.sum("),
        (
            "return (dx.astype(x.dtype), dw if vocab_axis == 0 else dw.T, *db)",
            "return (dx.astype(x.dtype), dw, *db)",
        ),
        (
            "g = jnp.where(wrong, jnp.nan, jnp.where(counts, dloss, 0))",
            "g = jnp.where(wrong, jnp.nan, dloss)",
        ),
        ("return z + wide(bias[0]) if bias else z", "return z"),
    ),
    *rows(
        _P + "attention.py",
        (f"{_PRIMITIVES} -k attention", "tests/train/test_primitives.py"),
        (
            "s = jnp.where(i[:, None] >= j[None, :], s, -jnp.inf)",
            "s = jnp.where(i[:, None] > j[None, :], s, -jnp.inf)",
        ),
        (
            "yield start, end, min(s, end) if causal else s",
            "yield start, end, min(s, start) if causal else s",
        ),
        ("base = jnp.where(new == -jnp.inf, 0, new)", "base = new"),
        (
            "lses.append(jnp.where(blind, jnp.inf, top + jnp.log(safe)))",
            "lses.append(top + jnp.log(safe))",
        ),
        (
            "ds = (p * (dp - deltai[..., None]) * scale).astype(q.dtype)",
            "ds = (p * (dp - deltai[..., None])).astype(q.dtype)",
        ),
        (
            "groups = (1, 1) if h == 1 else (g, h // g)",
            "groups = (1, 1) if h == 1 else (h // g, g)",
        ),
        ("key + k.shape[0] <= query + 1):", "key + k.shape[0] <= query + 2):"),
    ),
    *rows(
        _P + "embedding.py",
        (f"{_PRIMITIVES} -k embedding",),
        ("    return (jnp.where(inside[:, None], found, 0),)", "    return (found,)"),
        ("inside = (ids >= 0) & (ids < table.shape[0])", "inside = ids >= 0"),
    ),
    *rows(
        _P + "linear.py",
        (f"{_PRIMITIVES} -k linear",),
        (
            "return (wide(dy) * ACTIVATIONS[activation].slope(wide(h))).astype(dy.dtype)",
            "return dy",
        ),
        ("    if b is not None:\n        h = h + wide(b)\n", ""),
        (
            "return (dw, jnp.sum(wide(dh), axis=0).astype(x.dtype)) if bias else (dw,)",
            "return (dw, jnp.sum(wide(dy), axis=0).astype(x.dtype)) if bias else (dw,)",
        ),
    ),
    *rows(
        _P + "adamw.py",
        (f"{_PRIMITIVES} -k adamw",),
        (
            "v32 = b2 * v32 + (1 - b2) * g32 * g32",
            "v32 = b2 * v32 + (1 - b1) * g32 * g32",
        ),
        (
            "(jnp.sqrt(v32 * c2) + eps) + weight_decay * p32",
            "(jnp.sqrt(v32 * c2) + eps) - weight_decay * p32",
        ),
        (
            "c1, c2 = (1 / (1 - jnp.asarray(b, acc) ** t) for b in (b1, b2))",
            "c1, c2 = (1 / (1 - jnp.asarray(b, acc) ** (t + 1)) for b in (b1, b2))",
        ),
    ),
    *rows(
        _P + "_common.py",
        (_PRIMITIVES,),
        ("starts = [whole] if whole < length else []", "starts = []"),
        (
            "first = jnp.arange(full, dtype=jnp.int32) * block",
            "first = jnp.arange(full, dtype=jnp.int32)",
        ),
        (
            "wide = jnp.int64 if ids.dtype.itemsize > 4 else jnp.int32\n"
            "    return ids.astype(wide)",
            "return ids",
        ),
    ),
    *rows(
        _R + "rules/heads.py",
        _ACCELERATE,
        ("narrow or qk.precision == pv.precision,", "True,"),
        ("_need(len(qk.contract[0]) == 1,", "_need(True,"),
    ),
    *rows(
        _R + "rules/cross_entropy.py",
        _ACCELERATE,
        ("return jnp.clip(ids, 0, vocab - 1) if clips else ids", "return ids"),
    ),
    *rows(
        _R + "rules/masks.py",
        _ACCELERATE,
        (
            "    if jnp.issubdtype(view.value.dtype, jnp.unsignedinteger):\n"
            "        return None  # one less than zero is a large number\n",
            "",
        ),
        (
            "return (i, j, distance) if positive else (j, i, 1 - distance)",
            "return (i, j, distance) if positive else (j, i, -distance)",
        ),
        ("distance = b - a + least", "distance = a - b + least"),
        (
            "logic = view.value.dtype == jnp.bool_  # of integers, it works on their bits",
            "logic = True",
        ),
        ("if not np.isin(array, (0, 1)).all():", "if False:"),
        ("matrix = matrix if a < b else matrix.T", "pass"),
        ("        if array.dtype != jnp.bool_:\n            array = array != 0\n", ""),
        (
            "return whole and target.dtype.itemsize >= source.dtype.itemsize",
            "return True",
        ),
    ),
    *rows(
        _R + "rules/rope.py",
        _ACCELERATE,
        (
            '            if any(s != 1 for s in node.params["strides"] or ()):\n'
            "                return None\n",
            "",
        ),
        ("or 2 * new[axis] != old[axis]:", "or False:"),
    ),
    *rows(
        _R + "rules/norms.py",
        _ACCELERATE,
        ('        return "what is normalised is broadcast afterwards"', "        pass"),
        (
            'inputs = values(match.env, "x", "g", "b")\n'
            "    dtype = common_type(match.root, inputs[:1])",
            'inputs = values(match.env, "x", "g", "b")\n    dtype = match.root.dtype',
        ),
    ),
    *rows(
        _R + "algebra.py",
        _ACCELERATE,
        ("return {2: 2e-3, 4: 2e-6}.get(dtype.itemsize, 1e-9)", "return 0.2"),
        ("return env if env[name] == what else None", "return env"),
        (
            "        if any(node.params.get(k) != v for k, v in self.params.items()):\n"
            "            return\n",
            "",
        ),
        (
            '_COMMUTATIVE = frozenset({"add", "mul", "max", "and", "or", "eq", "ne"})',
            '_COMMUTATIVE = frozenset({"add", "mul", "max", "and", "or", "eq", "ne", '
            '"sub", "div"})',
        ),
    ),
    *rows(
        _R + "engine.py",
        _ACCELERATE,
        (
            "            reason = reason or _taken_elsewhere(rule, node, plan, graph)\n",
            "",
        ),
        (
            "            reason = _partitioned(root, *plan.inputs)\n",
            "            reason = None\n",
        ),
        (
            "return [plan.run(read).reshape(root.shape).astype(root.dtype)]",
            "return [plan.run(read).reshape(root.shape)]",
        ),
        (
            "    if not same or (isinstance(body, Jaxpr) and new.consts):\n",
            "    if isinstance(body, Jaxpr) and new.consts:\n",
        ),
    ),
    *rows(
        _O + "master.py",
        _OPTIM,
        (
            '    return step, (wanted if method == "f32" else kept)',
            "    return step, kept",
        ),
        (
            "        return step, rounding.nearest(rounding.widen(rest) + missed)\n",
            "        return step, rest\n",
        ),
        (
            "        return step, rounding.residual(wanted, new)\n",
            "        return step, rounding.residual(wanted, p)\n",
        ),
        (
            'return rounding.widen(p) if method == "f32" else jnp.zeros_like(p)',
            'return jnp.zeros_like(p, jnp.float32) if method == "f32" else '
            "jnp.zeros_like(p)",
        ),
    ),
    *rows(
        _O + "moments.py",
        _OPTIM,
        (
            "key = jax.random.fold_in(jax.random.key(seed), state.steps)",
            "key = jax.random.key(seed)",
        ),
        ("x.dtype != jnp.float32 or x.ndim == 0:", "x.dtype != jnp.float32:"),
    ),
    *rows(
        _O + "rounding.py",
        _OPTIM,
        (
            "return nearest(jnp.where(jnp.isfinite(hi), x - widen(hi), 0))",
            "return nearest(x - widen(hi))",
        ),
        (
            "large = jnp.abs(old) >= jnp.abs(step)",
            "large = jnp.abs(old) < jnp.abs(step)",
        ),
        (
            "return nearest(jnp.where(jnp.isfinite(x), drawn, x))",
            "return nearest(drawn)",
        ),
        (
            "return s, nearest(jnp.where(jnp.isfinite(s), lost, 0))",
            "return s, nearest(lost)",
        ),
        (
            "return jax.random.bits(jax.random.fold_in(key, name), shape, jnp.uint16)",
            "return jax.random.bits(key, shape, jnp.uint16)",
        ),
    ),
    *rows(
        _O + "scale.py",
        _OPTIM[1:2],
        ("grow = good >= interval", "grow = good > interval"),
        (
            "good = jnp.where(finite.last_finite & ~grow, good, 0)",
            "good = jnp.where(finite.last_finite, good, 0)",
        ),
        (
            "LossScaleState(jnp.clip(scale, smallest, largest), good, finite)",
            "LossScaleState(jnp.clip(scale, smallest, None), good, finite)",
        ),
        (
            "scale = jnp.where(finite.last_finite, up, state.loss_scale / factor)",
            "scale = jnp.where(finite.last_finite, up, state.loss_scale)",
        ),
        (
            "wide = jax.tree.map(lambda g: g.astype(jnp.float32) / scale, updates)",
            "wide = jax.tree.map(lambda g: (g / scale).astype(jnp.float32), updates)",
        ),
    ),
    *rows(
        "train/step.py",
        _STEP,
        ("return jax.tree.map(lambda x: x / n, total)", "return total"),
        ("key = jax.random.fold_in(dropout_root, state.step)", "key = dropout_root"),
        ("params, rows, jax.random.fold_in(key, i), scale", "params, rows, key, scale"),
        (
            "mask=lambda params: jax.tree.map(lambda p: p.ndim >= 2, params),",
            "mask=None,",
        ),
        ("lambda count: lr_schedule(config)(count + 1),", "lr_schedule(config),"),
        ("grad_norm=norm if scale is None else norm / scale,", "grad_norm=norm,"),
        ("return jax.jit(step, donate_argnums=0)", "return jax.jit(step)"),
        ("return (loss if scale is None else loss * scale), loss", "return loss, loss"),
    ),
    *rows(
        "train/model.py",
        ("tests/train/test_model.py",),
        (
            "frequency = config.rope_theta ** (-2.0 * pairs / config.head_dim)",
            "frequency = config.rope_theta ** (-1.0 * pairs / config.head_dim)",
        ),
        (
            "keys = jax.random.split(dropout_key, (len(self.blocks), 2))",
            "keys = jnp.stack([jnp.stack([dropout_key] * 2)] * len(self.blocks))",
        ),
        ("is_causal=True", "is_causal=False"),
        (
            "        x = x + self.dropout(y, deterministic=still, rngs=first)\n"
            "        y = self.mlp",
            "        x = x + y\n        y = self.mlp",
        ),
    ),
    *rows(
        "train/data.py",
        ("tests/train/test_data.py",),
        (
            'return int.from_bytes(digest[:8], "big") < share * 2**64',
            'return int.from_bytes(digest[:8], "big") > share * 2**64',
        ),
        (
            "*complete, rest = (rest + block).split(SEPARATOR)",
            "*complete, rest = block.split(SEPARATOR)",
        ),
        ('digest.update(b"\\1" if held_out else b"\\0")', "pass"),
        (
            "texts = (text for held_out, text in read() if not held_out)",
            "texts = (text for held_out, text in read())",
        ),
    ),
)
