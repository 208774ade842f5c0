"""Mutants of both engines: `vkore_jax/sim`."""

from __future__ import annotations

from tests.mutation.record import Mutant, rows

_G = "vkore_jax/sim/golden/"
_F = "vkore_jax/sim/fast/"
_CASES = "tests/sim/test_engines.py"
_WHOLE = ("tests/sim/test_engines.py", "tests/sim/test_whole_programs.py")
_STRATEGIES = "tests/sim/test_strategies.py"

MUTANTS: tuple[Mutant, ...] = (
    *rows(
        _G + "core.py",
        (f"{_CASES} -k 'gather or scatter or sort or reduce or fft or host'",),
        ("starts = np.clip(starts, 0, highest)", "starts = np.clip(starts, 0, None)"),
        (
            "inside = ((starts >= 0) & (starts + sizes <= shape)).all(-1)",
            "inside = ((starts >= 0) & (starts + sizes <= shape)).any(-1)",
        ),
        (
            "inside = ((starts >= 0) & (starts + sizes <= shape)).all(-1)",
            "inside = (starts + sizes <= shape).all(-1)",
        ),
        ("position = tied if tied < vector_dim else tied - 1", "position = tied"),
        ("now = order[turn == r]", "now = order[turn == turn.max() - r]"),
        (
            "real = asks(i, j) | (~asks(j, i) & (i < j))",
            "real = asks(i, j) | (~asks(j, i) & (i > j))",
        ),
        ("vectors = np.minimum(vectors, np.uint64(np.iinfo(np.int64).max))", "pass"),
        (
            "        out = combine(cmd.combiner, out, [x[0] for x in values])\n",
            "        out = [x[0] for x in values]\n",
        ),
        (
            "values = [np.concatenate([h, x[pairs:]]) for h, x in zip(head, values)]",
            "values = [h for h, x in zip(head, values)]",
        ),
        (
            'x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)',
            'x = x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)',
        ),
        (
            "if value.dtype != dst.dtype.numpy or value.shape != dst.shape:",
            "if value.shape != dst.shape:",
        ),
    ),
    *rows(
        _G + "matrix.py",
        (
            f"{_CASES} -k 'reduce or arg or logsumexp or gemm or group'",
            _STRATEGIES,
            "tests/sim/test_whole_programs.py",
        ),
        (
            "            better |= np.isnan(new) & ~np.isnan(old)\n",
            "            pass\n",
        ),
        ("better = new > old", "better = new >= old"),
        (
            "return np.where(top == 0, np.where(plus, 0.0, -0.0), top).astype(x.dtype)",
            "return top",
        ),
        ("return np.where(np.isinf(top), np.zeros((), top.dtype), top)", "return top"),
        (
            "return np.where(total == 0, total, total * np.exp(_base(top) - base))",
            "return total * np.exp(_base(top) - base)",
        ),
        (
            "return value, index.astype(np.int64) + origin",
            "return value, index.astype(np.int64)",
        ),
        ('return -key if key.dtype.kind == "f" else np.invert(key)', "return -key"),
        (
            "return np.prod(x, axes, dtype=x.dtype, keepdims=True)",
            "return np.prod(x, axes, keepdims=True)",
        ),
        (
            "return total | part if total.dtype == np.bool_ else total + part",
            "return total ^ part if total.dtype == np.bool_ else total + part",
        ),
        (
            "top = np.max(x, axes, keepdims=True, initial=least)",
            "top = np.nanmax(x, axes, keepdims=True, initial=least)",
        ),
    ),
    *rows(
        _G + "move.py",
        (f"{_CASES} -k 'pad or dynamic or concat or copy'",),
        (
            "min(max(int(m.dram.read(v).reshape(())), 0), extent - size)",
            "max(int(m.dram.read(v).reshape(())), 0)",
        ),
        (
            "min(max(int(m.dram.read(v).reshape(())), 0), extent - size)",
            "min(int(m.dram.read(v).reshape(())), extent - size)",
        ),
        (
            "first = max(0, -(lo // step)) if lo < 0 else 0",
            "first = max(0, -lo // step) if lo < 0 else 0",
        ),
        (
            "last = min(extent, max(first, -(-(size - lo) // step)))",
            "last = min(extent, max(first, (size - lo) // step))",
        ),
    ),
    *rows(
        _G + "windows.py",
        (f"{_CASES} -k 'conv or window or select'",),
        ("rhs = np.flip(rhs, flips)", "pass"),
        (
            "(0, *[d - 1 for d in cmd.lhs_dilation], 0),",
            "(0, *[0 for d in cmd.lhs_dilation], 0),",
        ),
        ("first = batch_group * cmd.dst.shape[0]", "first = 0"),
        ("feature_group * depth : (feature_group + 1) * depth,", ": depth,"),
        (
            "ok = (place % base_dilation[i] == 0) & (source >= 0) & (source < shape[i])",
            "ok = (source >= 0) & (source < shape[i])",
        ),
        ("+ at[i] * window_dilation[i] - low[i]", "+ at[i] - low[i]"),
        (
            "stays = evaluate(cmd.select, [kept, value], out)[0] & found",
            "stays = evaluate(cmd.select, [value, kept], out)[0] & found",
        ),
        (
            "stays = evaluate(cmd.select, [kept, value], out)[0] & found",
            "stays = evaluate(cmd.select, [kept, value], out)[0]",
        ),
        (
            "        np.broadcast_to(m.dram.read(v).reshape(()), out).copy() for v in "
            "cmd.inits",
            "        np.zeros(out, v.dtype.numpy) for v in cmd.inits",
        ),
        (
            "sums = strategies.multiply(a, b, cmd.strategy, depth)",
            "sums = strategies.multiply(a, b, cmd.strategy)",
        ),
    ),
    *rows(
        _G + "numbers.py",
        (
            f"{_CASES} -k 'micro or convert'",
            "tests/test_op_matrix.py -k 'claims and "
            "(convert or reduce_precision or compare or bitcast or add)'",
        ),
        (
            "return np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)",
            "return np.where(np.abs(x) < tiny, x.dtype.type(0), x)",
        ),
        (
            "inside = (x >= low) & (x < float(high + 1))",
            "inside = (x >= low) & (x <= float(high + 1))",
        ),
        (
            "np.where(x < 0, work(low), work(high))",
            "np.where(x < 0, work(high), work(low))",
        ),
        (
            "bias = (raw >> drop & one) + (last >> one) - one",
            "bias = (last >> one) - one",
        ),
        (
            "over = level > unsigned.type((middle + reach) << man_bits)",
            "over = level >= unsigned.type((middle + reach) << man_bits)",
        ),
        (
            "under = level <= unsigned.type((middle - reach) << man_bits)",
            "under = level < unsigned.type((middle - reach) << man_bits)",
        ),
        (
            "return np.where(np.isnan(lift(x)), x, out).astype(t.numpy)",
            "return out.astype(t.numpy)",
        ),
        (
            'return np.where(np.isnan(x), -flip - 2, key) if "FNUZ" in t.short else key',
            "return key",
        ),
        (
            "    return flush(x.astype(np.float32)).astype(dtype.numpy)",
            "    return x.astype(np.float32).astype(dtype.numpy)",
        ),
    ),
    *rows(
        _G + "group.py",
        _WHOLE,
        (
            "            if self.first_k:\n                self.accumulators.clear()\n",
            "",
        ),
        ("self.block[-1] == self._counts[-1] - 1", "self.block[-1] == 0"),
        (
            "stage.kind, run.read(stage.src), stage.axes, start[stage.axes[0]]",
            "stage.kind, run.read(stage.src), stage.axes, 0",
        ),
        ("total = part if total is None else matrix.add(total, part)", "total = part"),
        ("shape.append(min(size, extent - start[-1]))", "shape.append(size)"),
        (
            "[run.read(t) for t in stage.ins], shape, start)",
            "[run.read(t) for t in stage.ins], shape)",
        ),
    ),
    *rows(
        _G + "flow.py",
        (
            f"{_CASES} -k 'loop or while or case or flow'",
            "tests/sim/test_ledger.py",
            "tests/sim/test_golden.py",
        ),
        (
            "    taken = index if 0 <= index <= last else last",
            "    taken = min(max(index, 0), last)",
        ),
        ("        m.ran[id(cmd), 0] += 1\n", ""),
        ("    m.ran[id(cmd), taken] += 1\n", ""),
        (
            "        m.dram.forget(inner)\n        m.run(cmd.body",
            "        m.run(cmd.body",
        ),
        ("for _ in range(cmd.trips):", "for _ in range(max(cmd.trips, 1)):"),
    ),
    *rows(
        _G + "memory.py",
        ("tests/sim/test_golden.py",),
        ("        self._bytes[first:last] = POISON\n", ""),
        ("        self._owner[:] = NOBODY\n", ""),
        ("first = t.offset + (self._step % t.slots) * size", "first = t.offset"),
    ),
    *rows(
        _G + "micro.py",
        (f"{_CASES} -k micro", "tests/test_op_matrix.py -k claims"),
        (
            "return np.where(zeros, -((-x) + (-y)), np.minimum(x, y))",
            "return np.minimum(x, y)",
        ),
        ("    q = np.where(wraps, x.dtype.type(0) - x, q)\n", ""),
        (
            "return np.where(zero, ~x.dtype.type(0), q)",
            "return np.where(zero, x.dtype.type(0), q)",
        ),
        ("return np.where(y == 0, x, np.fmod(x, safe))", "return np.fmod(x, safe)"),
        (
            "n = np.minimum(_bits(by), np.uint64(insn.dtype.bits - 1)).astype(np.int64)",
            "n = np.minimum(_bits(by), np.uint64(insn.dtype.bits)).astype(np.int64)",
        ),
        (
            "np.where(np.abs(x - whole) >= 0.5, away, whole)",
            "np.where(np.abs(x - whole) > 0.5, away, whole)",
        ),
        (
            "np.where((x == 0) | np.isnan(x), x, np.copysign(x.dtype.type(1), x))",
            "np.where(np.isnan(x), x, np.copysign(x.dtype.type(1), x))",
        ),
        ("odd = np.where(y & 1, x, x * x)", "odd = x"),
        ("    for step in (1, 2, 4, 8, 16, 32):", "    for step in (1, 2, 4, 8, 16):"),
        (
            "index = np.arange(shape[axis], dtype=np.int64) + origin[axis]",
            "index = np.arange(shape[axis], dtype=np.int64)",
        ),
        ('("log1p", np.log1p),', '("log1p", lambda x: np.log(1 + x)),'),
    ),
    *rows(
        _G + "strategies.py",
        (_STRATEGIES,),
        (
            "part = np.clip(np.rint(scaled), -127, 127)",
            "part = np.clip(np.rint(scaled), -128, 127)",
        ),
        (
            "rest = flush(np.where(finite, rest - part, np.float32(0)))",
            "rest = flush(rest - part)",
        ),
        ("return np.where(hit, np.matmul(whole[0], whole[1]), out)", "return out"),
        (
            "return np.maximum(np.frexp(top)[1] - 1, strategies.LEAST_EXPONENT)",
            "return np.frexp(top)[1] - 1",
        ),
        (
            "a, b = (p[0], q[0]) if whole else (_tame(p[i]), _tame(q[j]))",
            "a, b = p[i], q[j]",
        ),
        (
            'unit = np.float64 if facts.needs == "i8" else np.float32',
            "unit = np.float32",
        ),
    ),
    *rows(
        _F + "matrix.py",
        (f"{_CASES} -k 'gemm or conv or group'", _STRATEGIES, "tests/sim/test_fast.py"),
        (
            "right = [i for i in range(r) if rhs.shape[i] != 1 and i not in both]",
            "right = []",
        ),
        (
            "        return e.scalar(dtype, 0).standing_for(shape)\n    small",
            "        return e.scalar(dtype, 1).standing_for(shape)\n    small",
        ),
        (
            'flips = ", ".join("true" if r else "false" for r in cmd.reversal)',
            'flips = ", ".join("false" for r in cmd.reversal)',
        ),
        ("channels = cmd.rhs.shape[-2]", "channels = 1"),
        (
            "limit = int8_terms(lhs.dtype, rhs.dtype) if strategy is Strategy.INT8 else "
            "terms",
            "limit = terms",
        ),
        ("    for part in parts[1:]:\n", "    for part in parts[2:]:\n"),
    ),
    *rows(
        _F + "groups.py",
        (f"{_CASES} -k 'reduce or arg or logsumexp or group'",),
        ("return np.inf if highest else -np.inf", "return 0.0"),
        (
            'hit = e.op(f"stablehlo.or {hit.name}, {nan.name} : {hit.type}", BOOL, '
            "hit.shape)",
            "pass",
        ),
        ('base = _select(e, _compare(e, "EQ", size, limit), zero, top)', "base = top"),
        (
            "value = _fold(e, _select(e, here, wide, least), monoid, (axis,))",
            "value = best",
        ),
        (
            'return True if dtype.kind == "b" else (-1 if dtype.kind == "i" else '
            "_top(dtype))",
            "return 0",
        ),
        (
            "wide = s.e.convert(v, F32) if micro.narrower(v.dtype) else v\n        fold",
            "wide = v\n        fold",
        ),
    ),
    *rows(
        _F + "onehot.py",
        (
            "tests/sim/test_fast.py",
            f"{_CASES} -k 'hot or lookup or group'",
            "tests/lowering/test_kernels.py",
            "tests/primitives/test_primitives.py -k emb",
        ),
        (
            'text = f\'"stablehlo.if"({every.name}) ({regions})',
            'text = f\'"stablehlo.if"({yes.name}) ({regions})',
        ),
        ("and iota.imm == bytes((axis,))\n", ""),
        ("        if FACTS[strategy].segment:\n", "        if False:\n"),
        ("alike = line[-2] == 1 and line[-1] == hot.shape[-1]", "alike = True"),
    ),
    *rows(
        _F + "views.py",
        ("tests/sim/test_fast.py -k 'views or bytes'", f"{_CASES} -k 'view or copy'"),
        ("    v = e.reverse(v, d.reverse)\n", ""),
        ("if low < 0 or high >= source.size:", "if low < 0:"),
        (
            "        if stride == 0 or view.shape[axis] == 1:\n",
            "        if stride <= 0 or view.shape[axis] == 1:\n",
        ),
        ("address = e.scalar(word, view.offset)", "address = e.scalar(word, 0)"),
        (
            "if source.logical == view.shape and view.is_dense:",
            "if source.logical == view.shape:",
        ),
    ),
    *rows(
        _F + "control.py",
        (
            f"{_CASES} -k 'loop or while or case or flow'",
            "tests/sim/test_fast.py",
            "tests/sim/test_ledger.py",
        ),
        ("        s.next_body += dynamic_bodies(cmd.body)\n", ""),
        ("            s.next_body = first + dynamic_bodies(cmd.cond)\n", ""),
        (
            "            again = test()\n            s.next_body = after\n",
            "            again = test()\n",
        ),
        ("    if in_cond or _has_effect(cmd.cond):\n", "    if in_cond:\n"),
        ("            s.count(own + number)\n", "            s.count(own)\n"),
        ("    s.next_body += len(cmd.branches)\n", "    s.next_body += 1\n"),
        (
            '({index.type}, {trips.type}) -> tensor<i1>"\n        return [s.e.op('
            "text, BOOL, ())]",
            '({index.type}, {trips.type}) -> tensor<i1>"\n'
            '        text = text.replace("LT", "LE")\n'
            "        return [s.e.op(text, BOOL, ())]",
        ),
    ),
    *rows(
        _F + "core.py",
        (f"{_CASES} -k 'not micro'",),
        ("    if not s.may_overtake(src, cmd.update):\n", "    if True:\n"),
        ("d - low - (n + max(n - 1, 0) * inner)", "d - low - (n + (n - 1) * inner)"),
        (
            "    if not cmd.window:  # one element: XLA would leave the initial value out\n",
            "    if False:\n",
        ),
        ("unique_indices = {_flag(cmd.unique)}", "unique_indices = true"),
        (
            'narrow = all(v.dtype.kind == "i" and v.dtype.bits <= 32 for v in starts)',
            "narrow = True",
        ),
        (
            'wide = {"i": I8, "u": U8, "f": BF16}[own.kind] if 1 < own.bits < 8 else '
            "own",
            "wide = own",
        ),
        ("is_stable = {_flag(cmd.stable)}", "is_stable = false"),
    ),
    *rows(
        _F + "small.py",
        ("tests/pjrt/test_tables.py",),
        ("and 0 < nbytes <= MAX_BYTES", "and nbytes <= MAX_BYTES"),
        ('and spec.memory_kind in ("", "device")', "and True"),
        ("(spec.dtype.bits >= 8 or spec.dtype is BOOL)", "(True)"),
    ),
    *rows(
        _F + "emitter.py",
        ("tests/sim/test_fast.py", "tests/sim/test_ledger.py"),
        ("            self.unattributed += 1\n", "            pass\n"),
    ),
    *rows(
        _F + "load.py",
        ("tests/sim/test_fast.py", "tests/pjrt/test_callbacks.py"),
        ("        self._failure.clear()\n", ""),
        ("for number in self._donated.intersection(keep):", "for number in keep:"),
        ("            page.executions += 1\n", ""),
        (
            "overrides = _OPTIONS + _EXACT if exact else _OPTIONS",
            "overrides = _OPTIONS",
        ),
        ("            del outs[-self._counters :]\n", ""),
    ),
    *rows(
        _F + "code_cache.py",
        ("tests/pjrt/test_code_cache.py",),
    ),
    *rows(
        _F + "scaled.py",
        (_STRATEGIES,),
        (
            "above = (2 * _BIAS + shift) << _FRACTION_BITS",
            "above = (2 * _BIAS + shift + 1) << _FRACTION_BITS",
        ),
        (
            "return _joined(e, select(e, finite(e, x), left, _constant(e, x, 0)), at)",
            "return _joined(e, left, at)",
        ),
        (
            "return _joined(e, select(e, finite(e, x), made, x), at)",
            "return _joined(e, made, at)",
        ),
        (
            "step, runs = min(segment, run), v.shape[axis] // run",
            "step, runs = segment, v.shape[axis] // run",
        ),
        (
            'tame = _compare(e, "LT", bits, _constant(e, bits, _INFINITY))',
            'tame = _compare(e, "LE", bits, _constant(e, bits, _INFINITY))',
        ),
        ('return _binary_with(e, "maximum", top, least)', "return top"),
    ),
    *rows(
        _F + "strategies.py",
        (_STRATEGIES,),
        ("    if e.is_bf16(lhs):\n        return out\n", "    return out\n"),
    ),
    *rows(
        _F + "micro.py",
        (f"{_CASES} -k micro", "tests/test_op_matrix.py -k claims"),
        ('    raised = _binary(e, "subtract", key, sign)\n', "    raised = key\n"),
        ("choice(minus, sign, number(0))", "choice(minus, number(-1), number(0))"),
        ('for bit in range(t.bits - (t.kind == "i")):', "for bit in range(6):"),
        (
            "        v = e.convert(v, F32)  # XLA:CPU makes -128 of -6 (f4E2M1FN to i8)\n",
            "        pass\n",
        ),
    ),
)
