"""Mutants of the compiler: `vkore_jax/lowering`."""

from __future__ import annotations

from tests.mutation.record import Mutant, rows

_L = "vkore_jax/lowering/"
_OPS = "tests/lowering/test_import_ops.py"
_IMPORT = "tests/lowering/test_import.py"
_MATRIX = "tests/test_op_matrix.py"

MUTANTS: tuple[Mutant, ...] = (
    *rows(
        _L + "simplify.py",
        ("tests/lowering/test_simplify.py", "tests/lowering/test_streams.py"),
        (
            'return ("vec", node.program, node.operands, shape, node.scope)',
            'return ("vec", node.program, node.operands, node.scope)',
        ),
        (
            'return ("gemm", node.operands, node.strategy, dtype, node.scope)',
            'return ("gemm", node.operands, dtype, node.scope)',
        ),
        (
            'return ("gemm", node.operands, node.strategy, dtype, node.scope)',
            'return ("gemm", node.operands, node.strategy, node.scope)',
        ),
        (
            'return ("move", node.operands, node.offset, node.strides, node.result.shape)',
            'return ("move", node.operands, node.strides, node.result.shape)',
        ),
        (
            'return ("reduce", node.operands, node.kind, node.axes, types, node.scope)',
            'return ("reduce", node.operands, node.axes, types, node.scope)',
        ),
        (
            'return ("const", node.result.dtype, node.result.shape, data.tobytes())',
            'return ("const", node.result.shape, data.tobytes())',
        ),
        (
            "if not left and node.trips is not None and not _has_effect(node):",
            "if not left and not _has_effect(node):",
        ),
    ),
    *rows(
        _L + "reduction.py",
        (
            "tests/lowering/test_import_ops.py -k 'reduce or cumul or window'",
            f"{_MATRIX} -k 'claims and reduce'",
        ),
        (
            "if b.element(value) == identity(kind, value.dtype):\n        return True",
            "if b.element(value) == identity(kind, value.dtype) or "
            "kind is ReduceKind.PROD:\n        return True",
        ),
        (
            "            if not _is_identity(b, inits[0], kind):\n"
            "                out = b.vec(COMBINE[kind]",
            "            if False:\n                out = b.vec(COMBINE[kind]",
        ),
        ("backwards = high == reach", "backwards = low == reach"),
        (
            "return bool(zero and known is not None and known == 0)",
            "return bool(known is not None and known == 0)",
        ),
    ),
    *rows(
        _L + "indexing.py",
        (
            "tests/lowering/test_import_ops.py -k 'top or sort or gather or scatter'",
            "tests/jax/test_found.py",
        ),
        (
            'compare = MICRO_OPS["gt" if limit < 0 else "lt"].code',
            'compare = MICRO_OPS["ge" if limit < 0 else "le"].code',
        ),
        (
            'compare = MICRO_OPS["gt" if limit < 0 else "lt"].code',
            'compare = MICRO_OPS["lt" if limit < 0 else "gt"].code',
        ),
    ),
    *rows(
        _L + "kernels_loss.py",
        (
            "tests/lowering/test_kernels.py",
            "tests/primitives/test_primitives.py -k cross",
        ),
        (
            'x = m.do("select", wrong, m.number(math.nan, x), x)\n'
            "        if self.ignore is None:",
            "if self.ignore is None:",
        ),
        (
            'high = m.do("ge", ids, m.number(self.vocab, ids))',
            'high = m.do("gt", ids, m.number(self.vocab, ids))',
        ),
        (
            'kept = m.do("ne", ids, m.number(self.ignore, ids))',
            'kept = m.do("ge", ids, m.number(self.ignore, ids))',
        ),
    ),
    *rows(
        _L + "convolution.py",
        ("tests/lowering/test_import_ops.py -k conv", f"{_MATRIX} -k convolution"),
        ('"reversal": tuple(int(r) for r in backwards),', '"reversal": (0,) * rank,'),
        (
            '"rhs_dilation": op.ints("rhs_dilation", ones),',
            '"rhs_dilation": op.ints("lhs_dilation", ones),',
        ),
        (
            "inverse = tuple(order.index(p) for p in range(len(order)))",
            "inverse = tuple(order)",
        ),
    ),
    *rows(
        _L + "precision.py",
        (
            "tests/jax/test_precision.py",
            "tests/test_profiles.py",
            "tests/test_chips.py",
        ),
        (
            'if any(t.kind in "biu" and t.bits > 8 for t in pair):\n'
            "        return Numerics(F32, acc, cheapest(chip, 24))",
            "if False:\n        return Numerics(F32, acc, cheapest(chip, 24))",
        ),
        ("if F32 in pair or STRATEGIES[usual].bits >= need:", "if F32 in pair:"),
        ("if F32 in pair or STRATEGIES[usual].bits >= need:", "if True:"),
        (
            "all(_holds(native, t) for t in pair)",
            "any(_holds(native, t) for t in pair)",
        ),
    ),
    *rows(
        _L + "allocate.py",
        (
            "tests/lowering/test_allocate.py",
            "tests/lowering/test_emit.py",
            "tests/lowering/test_streams.py",
        ),
        (
            "while dying and dying[0][0] < life.start:",
            "while dying and dying[0][0] <= life.start:",
        ),
        ("        self._read(node.cond.outputs, end)\n", ""),
        ("        self._read(node.body.outputs, end)\n", ""),
        (
            "self._read((v for v in reads if self.views.root(v) in outer), end)",
            "self._read((v for v in reads if v in outer), end)",
        ),
        ("reads |= _all_reads(nested)", "reads.update(nested.outputs)"),
        (
            "            self._read(branch.outputs, end)\n        self._read(node.results",
            "            pass\n        self._read(node.results",
        ),
        ("pad = -len(self.out.constants) % self.chip.dram_align_bytes", "pad = 0"),
        ("if i < len(holes) and offset + size == holes[i][0]:", "if False:"),
        (
            "donated = sum(graph.params[n].nbytes for n in set(self.module.donated))",
            "donated = 0",
        ),
        (
            "            self._read(branch.outputs, end)\n        self._read(node.results, end)\n",
            "            self._read(branch.outputs, end)\n",
        ),
        (
            "if life is not None and life.end < at:",
            "if life is not None:",
            "equivalent: positions only grow during the walk, so a later read never has a smaller one",
        ),
        (
            "if n > size:\n                    holes.insert(i, (offset + size, n - size))",
            "pass",
        ),
    ),
    *rows(
        _L + "blocking.py",
        ("tests/lowering/test_tile.py", "tests/lowering/test_emit.py"),
        (
            "if self.accumulators(blocks) > self.chip.accumulator_bytes:\n"
            "            return None",
            "if False:\n            return None",
        ),
        (
            "if life[o][0] <= life[t][1] and life[t][0] <= life[o][1]",
            "if life[o][0] < life[t][1] and life[t][0] < life[o][1]",
        ),
        (
            "life = [always if t.external else x for t, x in zip(tiles, life)]",
            "pass",
            "equivalent: place() is asked to reuse addresses with one slot only (see `solve`)",
        ),
        (
            "at = max(at, high)",
            "at = high",
            "needs two tiles that are dead to each other, one inside the other's bytes",
        ),
        ("block -= block % self.grain.get(axis, 1)", "pass"),
        ("grains[axis] = max(segment, grains.get(axis, 1))", "grains[axis] = 1"),
        (
            "            self.accumulators(blocks) <= self.chip.accumulator_bytes\n"
            "            and self.footprint(blocks, slots) <= limit",
            "            self.footprint(blocks, slots) <= limit",
        ),
    ),
    *rows(
        _L + "tile.py",
        ("tests/lowering/test_tile.py", "tests/lowering/test_kernels.py"),
        ("for comfortable in (True, False):", "for comfortable in (True,):"),
        ("if made is not None and self._small_programs(plan):", "if made is not None:"),
        ("key = plan.traffic_key()", "key = 0"),
    ),
    *rows(
        _L + "fuse.py",
        (
            "tests/lowering/test_fuse.py",
            "tests/lowering/test_streams.py",
            "tests/lowering/test_fuzz.py",
        ),
        (
            "if self._reaches(item, [other]) or self._reaches(other, [item]):\n"
            "            return preds",
            "pass",
        ),
        (
            "            if self._reaches(item, preds - {item}):\n                continue\n",
            "",
        ),
        ("if item is None or self._reaches(item, preds - {item}):", "if item is None:"),
        (
            "return all(self.uses[v] == item.inside[v] + reads[v] for v in item.outs)",
            "return True",
        ),
        (
            "if item.space.gemm is not None and other.space.gemm is not None:\n"
            "            return preds",
            "pass",
        ),
        ("                preds.add(self.effect)\n", "                pass\n"),
        (
            "item.outs.update(v for v in node.results if self.uses[v])",
            "item.outs.update(node.results)",
        ),
        (
            "if insns > chip.vec_max_insns:\n            return False",
            "if False:\n            return False",
            "what fusion takes too much, tiling cuts again: other groups, same values",
        ),
        (
            "is not other or access.offset:",
            "is not other:",
            "a second guard: the node is placed again, which checks every element",
        ),
        (
            "return used <= chip.scratchpad_bytes * 3 // 4 and "
            "sums <= chip.accumulator_bytes",
            "return sums <= chip.accumulator_bytes",
            "what fusion takes too much, tiling cuts again: other groups, same values",
        ),
        ("                reads |= self._reads(inner)\n", "                pass\n"),
    ),
    *rows(
        _L + "fold.py",
        ("tests/lowering/test_fold.py", _IMPORT),
        (
            '"clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),',
            '"clamp": lambda low, x, high: np.minimum(np.maximum(x, high), low),',
        ),
        (
            '        "max": np.maximum,\n        "min": np.minimum,',
            '        "max": np.minimum,\n        "min": np.maximum,',
        ),
        ('        "ge": np.greater_equal,', '        "ge": np.greater,'),
        (
            '{"sub": np.subtract, "neg": np.negative}',
            '{"sub": lambda x, y: y - x, "neg": np.negative}',
        ),
    ),
    *rows(
        _L + "control_flow.py",
        (
            "tests/lowering/test_trips.py",
            _IMPORT,
            f"{_OPS} -k 'while or loop or scan or cond or switch or fori'",
            f"{_MATRIX} -k 'claims and (if] or case] or while])'",
        ),
        ('distance += 1 if compare == "le" else -1', "pass"),
        ('if compare == "ne" and distance % stride:\n        return None', "pass"),
        (
            "return trips if low <= first + trips * stride <= high else None",
            "return trips",
        ),
        (
            "trips = -(-abs(distance) // abs(stride))",
            "trips = abs(distance) // abs(stride)",
        ),
        (
            "return regions[int(known) if 0 <= known <= last else last].inline(b, ())",
            "return regions[max(0, min(int(known), last))].inline(b, ())",
        ),
        ('elif step[0] == "sub" and not step[3]:', 'elif step[0] == "sub":'),
        (
            "return choose(b, op, b.convert(pred, I32), (on_false, on_true))",
            "return choose(b, op, b.convert(pred, I32), (on_true, on_false))",
        ),
        ("name = MIRRORED.get(name, name)", "pass"),
        (
            "if known is not None and not known:\n        return 0",
            "if known is not None and known:\n        return 0",
        ),
        ("trips = _trips(b, cond, body, starts)", "trips = None"),
    ),
    *rows(
        _L + "bits.py",
        (f"{_MATRIX} -k bitcast", _OPS),
        (
            "i * narrow.bits, x.shape)",
            "(x.dtype.bits // narrow.bits - 1 - i) * narrow.bits, x.shape)",
        ),
        ("i * x.dtype.bits, shape)", "(i - 1) * x.dtype.bits, shape)"),
    ),
    *rows(
        _L + "storage.py",
        ("tests/test_profiles.py", "tests/lowering/test_errors.py"),
        (
            "given = [_show(n, t) for n, t in results if not chip.stores(*t)]",
            "given = []",
        ),
        ("if not taken and not given:", "if not taken or not given:"),
    ),
    *rows(
        _L + "legalize/layout.py",
        (
            "tests/lowering/test_simplify.py",
            "tests/lowering/test_streams.py",
            "tests/lowering/test_import_ops.py",
            "tests/lowering/test_fuzz.py",
        ),
        (
            "return any(e > 1 and s == 0 for e, s in "
            "zip(access.shape[-2:], access.strides[-2:]))",
            "return False",
        ),
        (
            "        return access.has_contiguous_rows\n    return access.is_dense",
            "        return True\n    return access.is_dense",
        ),
    ),
    *rows(
        _L + "philox.py",
        (f"{_MATRIX} -k rng", "tests/lowering/test_import_ops.py -k rng"),
        ('b.vec("xor", high1, x1), k0)', 'b.vec("xor", high1, x1), k1)'),
        (
            'carry = b.convert(b.vec("lt", total, low), U64)',
            'carry = b.convert(b.vec("lt", low, total), U64)',
        ),
        (
            "b.scalar(U64, blocks)))[: len(words)]",
            "b.scalar(U64, count)))[: len(words)]",
        ),
    ),
    *rows(
        _L + "composites.py",
        (
            "tests/lowering/test_kernels.py",
            "tests/lowering/test_registry.py",
            "tests/primitives/test_primitives.py",
        ),
        (
            "known = kernels and version == VERSION and kernel.rule is not None",
            "known = kernels and kernel.rule is not None",
        ),
        ("return known and kernel.takes(shapes)", "return known"),
    ),
)
