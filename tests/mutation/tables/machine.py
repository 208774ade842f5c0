"""Mutants of the machine's description: ISA, container, assembler, verifier, cost."""

from __future__ import annotations

from tests.mutation.record import Mutant, rows

_V = "vkore_jax/verify/"
_VERIFY = ("tests/test_verify.py",)
_ISA = ("tests/test_isa.py", "tests/test_asm.py")

MUTANTS: tuple[Mutant, ...] = (
    *rows(
        "vkore_jax/isa/codec.py",
        _ISA,
        ("if value > 1:", "if value > 2:"),
        ("if 8 * count > len(data) - pos:", "if count > len(data) - pos:"),
        ("out.append(1 if value else 0)", "out.append(0 if value else 1)"),
        (
            "        if value not in self._members:\n            raise InvalidProgram("
            'f"byte {pos}: {value} is not a {self.name} code")\n'
            "        return self._members[value], end",
            "        return self._members.get(value, next(iter(self.cls))), end",
        ),
    ),
    *rows(
        "vkore_jax/isa/access.py",
        ("tests/test_isa.py",),
        (
            "return Access((cmd.src, cmd.update, *cmd.starts), (cmd.dst,))",
            "return Access((cmd.src, *cmd.starts), (cmd.dst,))",
        ),
        (
            "return Access((*cmd.operands, cmd.indices, *cmd.updates), cmd.dsts)",
            "return Access((*cmd.operands, cmd.indices), cmd.dsts)",
        ),
        (
            "return Access(reads, writes, (*late, cmd.predicate), blocks)",
            "return Access(reads, writes, late, blocks)",
        ),
        (
            "return Access((*cmd.srcs, *cmd.inits), cmd.dsts)",
            "return Access(cmd.srcs, cmd.dsts)",
        ),
        ("            yield from written_buffers(nested)", "            pass"),
        (
            "return Access((cmd.src, cmd.value), (cmd.dst,))",
            "return Access((cmd.src,), (cmd.dst,))",
        ),
    ),
    *rows(
        "vkore_jax/isa/view.py",
        ("tests/test_isa.py",),
        ("if extent != 1 and stride != step:", "if stride != step:"),
        ("return self.offset == 0 and self.is_contiguous", "return self.is_contiguous"),
        (
            "low, high = low + min(reach, 0), high + max(reach, 0)",
            "low, high = low, high + max(reach, 0)",
        ),
        (
            "if first + (extent - 1) * jump >= dim:",
            "if first + (extent - 1) * jump > dim:",
        ),
        (
            "unit = stride if above % stride == 0 else math.gcd(above, stride)",
            "unit = stride",
        ),
        ("if a >= 0 and view.strides[a] < 0),", "if a >= 0 and view.strides[a] > 0),"),
        (
            "            if extent != 1:\n                return stride == 1",
            "            if extent != 1:\n                return stride in (0, 1)",
        ),
    ),
    *rows(
        "vkore_jax/isa/strategies.py",
        ("tests/sim/test_strategies.py", "tests/test_cost.py"),
        ("if i + j < parts]", "if i + j <= parts]"),
        (
            "return tuple(sorted(pairs, key=lambda p: (-sum(p), p[1])))",
            "return tuple(sorted(pairs, key=lambda p: (sum(p), p[1])))",
        ),
        ("LEAST_EXPONENT = -98", "LEAST_EXPONENT = -126"),
        ("step = min(segment, run)", "step = segment"),
        ("for first in range(0, extent, run)", "for first in range(0, extent, step)"),
        ("FP8_SHIFT = 7", "FP8_SHIFT = 9"),
    ),
    *rows(
        "vkore_jax/isa/micro.py",
        ("tests/test_isa.py", "tests/test_verify.py"),
    ),
    *rows(
        "vkore_jax/program.py",
        (
            "tests/test_isa.py",
            "tests/lowering/test_allocate.py",
            "tests/sim/test_engines.py -k damaged",
        ),
        ("if hashlib.sha256(body).digest() != bytes(data[16:_HEADER]):", "if False:"),
        ("    if end != len(body):\n", "    if False:\n"),
        ('if data[12:16] != b"\\0\\0\\0\\0":', "if False:"),
        (
            "return arguments + constants + max(0, results + arena - donated)",
            "return arguments + constants + results + arena - donated",
        ),
        (
            "return arguments + constants + max(0, results + arena - donated)",
            "return arguments + max(0, results + arena - donated)",
        ),
    ),
    *rows(
        "vkore_jax/asm/inline.py",
        ("tests/test_asm.py",),
        (
            "if v.offset == 0 and v.strides == row_major(v.shape):",
            "if v.strides == row_major(v.shape):",
        ),
        (
            'return "0x" + struct.pack(">d", value).hex()',
            'return "0x" + struct.pack("<d", value).hex()',
        ),
        (
            'kind = scan.string() if scan.accept("kind=") else ""',
            'kind = (scan.string(), "")[1] if scan.accept("kind=") else ""',
        ),
        (
            'text + format_ints(v.strides, "{}") + f"{v.offset:+d}"',
            'text + format_ints(v.strides, "{}") + f"+{abs(v.offset)}"',
        ),
    ),
    *rows(
        _V + "checks.py",
        _VERIFY,
        (
            "if segment and axis.block < axis.extent and axis.block % segment:",
            "if segment and axis.block < axis.extent and False:",
        ),
        (
            "if low < 0 or (high + 1) * ITEMSIZE[v.dtype] > self.sizes[v.buffer]:",
            "if low < 0 or high * ITEMSIZE[v.dtype] > self.sizes[v.buffer]:",
        ),
        (
            "if low < 0 or (high + 1) * ITEMSIZE[v.dtype] > self.sizes[v.buffer]:",
            "if (high + 1) * ITEMSIZE[v.dtype] > self.sizes[v.buffer]:",
        ),
        (
            "        if size != self.sizes[v.buffer]:\n",
            "        if size > self.sizes[v.buffer]:\n",
        ),
        ("if v.size != 1 or not v.dtype.is_integer:", "if v.size != 1:"),
        ("if v.size != 1 or v.dtype is not dtype:", "if v.dtype is not dtype:"),
        ("            fits = fits and lhs.bits <= 32 and rhs.bits <= 32\n", ""),
        ("if need and need not in takes:", "if False:"),
        (
            'fits = lhs is dtypes.I8 and rhs is dtypes.I8 and out.kind in "iuf"',
            'fits = lhs is dtypes.I8 and out.kind in "iuf"',
        ),
        (
            "                low += (extent - 1) * stride",
            "                low += extent * stride",
        ),
    ),
    *rows(
        _V + "group.py",
        _VERIFY,
        (
            "        self.held_bytes += math.prod(shape) * element_bytes\n",
            "        self.held_bytes += math.prod(shape)\n",
        ),
        (
            "        if self.phase is Phase.TAIL and self.k != NO_AXIS and self.k in t.axes:\n"
            '            raise InvalidProgram(f"a TAIL stage writes',
            '        if False:\n            raise InvalidProgram(f"a TAIL stage writes',
        ),
        (
            "if self.held_bytes > self.ctx.chip.accumulator_bytes:",
            "if self.held_bytes > 2 * self.ctx.chip.accumulator_bytes:",
        ),
        ("if self.k != NO_AXIS and self.k != len(grid) - 1:", "if False:"),
        (
            "if a >= len(cuts) or cuts[a][0] != extent or extent == 1:",
            "if a >= len(cuts) or cuts[a][0] != extent:",
        ),
        ("                if seen >> a & 1:\n", "                if False:\n"),
        ("size = ((size + mask) & ~mask) * t.slots", "size = (size + mask) & ~mask"),
        ("if t.offset + size > capacity:", "if t.offset > capacity:"),
        ("if a[0] <= b[1] and b[0] <= a[1]:", "if a[0] < b[1] and b[0] < a[1]:"),
        ("        if self.tiles[tile].slots > 1:\n            return -1, _NEVER\n", ""),
        ("        elif tile in self.held:\n", "        elif False:\n"),
        ("        if self.written[tile] >= 0:\n", "        if False:\n"),
        ("if not 1 <= t.slots <= 2:", "if not 1 <= t.slots <= 3:"),
        ("            if t.offset & mask:\n", "            if False:\n"),
    ),
    *rows(
        _V + "hazards.py",
        _VERIFY,
        ("            self._end[spec.buffer] = FOREVER\n", ""),
        ("if depth < len(self._loops):", "if depth > len(self._loops):"),
        ("        for b in self._scope:\n            self._state[b] = _GONE\n", ""),
        ("            self._state[current] = _GONE\n", ""),
        (
            "            self._points += [(m.dst.buffer, self.time) for m in cmd.merges]\n",
            "",
        ),
        ("while ends and ends[0][0] < start:", "while ends and ends[0][0] <= start:"),
        (
            "for near in live[max(at - 1, 0) : at + 1]:",
            "for near in live[at : at + 1]:",
        ),
        (
            "for near in live[max(at - 1, 0) : at + 1]:",
            "for near in live[max(at - 1, 0) : at]:",
        ),
        (
            "            if located.loc >= locations:\n",
            "            if located.loc > locations:\n",
        ),
        (
            "            if b.segment is Segment.CONSTANT:\n",
            "            if b.segment is not Segment.RESULT:\n",
        ),
        (
            "                    if v.buffer in reads:\n",
            "                    if False:\n",
        ),
        ("        if not self._writable[buffer]:\n", "        if False:\n"),
        (
            '        self._inner(cmd.cond, f"{path}cond.", [cmd.predicate])\n',
            '        self._inner(cmd.cond, f"{path}cond.", [])\n',
        ),
    ),
    *rows(
        _V + "shapes.py",
        _VERIFY,
        ("if any(w > e for w, e in zip(window.shape, src.shape)):", "if False:"),
        ("        or lhs[0] % cmd.batch_groups\n", ""),
        ("        or rhs[-1] % (cmd.feature_groups * cmd.batch_groups)\n", ""),
        ("    at_least(0, interior=cmd.interior)\n", ""),
        ("if total != shape[cmd.axis]:", "if total > shape[cmd.axis]:"),
        (
            "    return (padded - reach) // stride + 1",
            "    return padded // stride + 1",
        ),
        ("    if have != components:\n", "    if have < components:\n"),
        ("    if vector_dim in batching:\n", "    if False:\n"),
        ("if operand.shape[a] != indices.shape[b]:", "if False:"),
        ("    if len(set(all_axes)) != len(all_axes):\n", "    if False:\n"),
        ("    if sums > ctx.chip.accumulator_bytes:\n", "    if False:\n"),
        ("    if staged > ctx.chip.scratchpad_bytes:\n", "    if False:\n"),
        ("if cmd.feature_groups > 1 and cmd.batch_groups > 1:", "if False:"),
    ),
    *rows(
        "vkore_jax/cost.py",
        ("tests/test_cost.py", "tests/sim/test_ledger.py"),
        (
            "counts = [max(1, -(-axis.extent // axis.block)) for axis in group.grid"
            "[: last + 1]]",
            "counts = [max(1, -(-axis.extent // axis.block)) for axis in group.grid]",
        ),
        (
            "bytes_in=_bytes((*cmd.operands, cmd.indices, *cmd.updates, *cmd.updates)),",
            "bytes_in=_bytes((*cmd.operands, cmd.indices, *cmd.updates)),",
        ),
        ("bytes_out=_bytes((*cmd.dsts, *cmd.updates)),", "bytes_out=_bytes(cmd.dsts),"),
        (
            "core_ops=updates * (1 + len(cmd.combiner.insns)),",
            "core_ops=updates * len(cmd.combiner.insns),",
        ),
        ("vector_ops=2 * products)\n    operand", "vector_ops=products)\n    operand"),
        ("each = 2 if tile.dtype.is_wide else 1", "each = 1"),
        (
            "return sum(i.op.cycles * (2 if i.dtype.is_wide else 1) for i in "
            "program.insns)",
            "return sum(i.op.cycles for i in program.insns)",
        ),
        (
            "    if isinstance(command, Copy) and not command.src.has_contiguous_rows:\n",
            "    if isinstance(command, Copy) and command.src.has_contiguous_rows:\n",
        ),
        ('        each *= 3 + MICRO_OPS["exp"].cycles\n', "        each *= 3\n"),
        ("bytes_out=cmd.dst.nbytes + cmd.update.nbytes", "bytes_out=cmd.dst.nbytes"),
    ),
    *rows(
        "vkore_jax/sim/ledger.py",
        ("tests/sim/test_ledger.py", "tests/pjrt/test_interfaces.py"),
        (
            "        self._counts, self._pending = [], []\n\n    def to_dict",
            "\n    def to_dict",
        ),
        (
            "            **_figures(self.total(), self.host_compute * self.executions),",
            "            **_figures(self.total(), self.host_compute),",
        ),
        (
            "out.add(self.account.static, self.executions)",
            "out.add(self.account.static, 1)",
        ),
    ),
    *rows(
        "vkore_jax/sim/contract.py",
        ("tests/sim/test_engines.py", "tests/sim/test_strategies.py"),
    ),
)
