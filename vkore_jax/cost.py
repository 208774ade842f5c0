"""What a command costs in work: bytes, multiply-adds, element operations.

Closed forms from the command's fields; no values are looked at.  The compiler (tile
choice), the ledger and the timing model read the same table.

Counting rules:

- Bytes are DRAM bytes.  A block that is still in its scratchpad slot is not moved
  again: a tile is moved once for every step of the grid axes up to the innermost one
  that cuts it.
- A multiply-accumulate counts once per partial product of the precision strategy, and
  is booked under the element type that the array multiplies.  Scales and the sums of
  partial products are the accumulators' work and cost nothing.
- Vector work is in lane-cycles: micro-op cycles times elements, twice for 64-bit lanes.
- Core work is in scalar element operations of the control core.
- The body of a LOOP counts `trips` times.  What runs a number of times that only the
  data decides (a WHILE body, a CASE branch) is a *dynamic body*; it has an account of
  its own, for one execution.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vkore_jax.isa import (
    COMMANDS,
    MICRO_OPS,
    NO_AXIS,
    STAGES,
    Block,
    Case,
    Concat,
    Conv,
    Copy,
    DynamicSlice,
    DynamicUpdate,
    Fft,
    FftKind,
    Gather,
    Gemm,
    Group,
    Host,
    Load,
    Loop,
    MicroProgram,
    Pad,
    Reduce,
    ReduceGeneric,
    ReduceKind,
    ReduceWindow,
    Scatter,
    SelectAndScatter,
    Sort,
    Store,
    Strategy,
    Tile,
    Transpose,
    Unit,
    Vec,
    View,
    While,
)
from vkore_jax.isa.rules import Rules
from vkore_jax.isa.strategies import STRATEGIES

PASSES: Mapping[Strategy, int] = {s: f.passes for s, f in STRATEGIES.items()}
"""Passes over the array (partial products) of each precision strategy."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Work of one command or stage on one unit.

    Attributes:
        unit: which engine does it.
        bytes_in: DRAM bytes read.
        bytes_out: DRAM bytes written.
        macs: multiply-accumulates of the systolic array.
        operand: element type that the array multiplies; a chip does some types at a
            multiple of its rate (`Chip.mac_rates`).
        vector_ops: lane-cycles of the vector unit.
        core_ops: element operations of the control core.
        turned: bytes that the layout engine moves within the scratchpad.
    """

    unit: Unit
    bytes_in: int = 0
    bytes_out: int = 0
    macs: int = 0
    operand: str = ""
    vector_ops: int = 0
    core_ops: int = 0
    turned: int = 0


CommandRule = Callable[[Any], Work]
StageRule = Callable[[Group, Any], Work]

COMMAND_WORK: Rules[CommandRule] = Rules(
    "command work", over=[c for c in COMMANDS.values() if c is not Group]
)
STAGE_WORK: Rules[StageRule] = Rules("stage work", over=STAGES.values())


# ----------------------------------------------------------------------------- stages


def moves(group: Group, tile: Tile) -> int:
    """Return how many times each byte of a tile crosses between DRAM and scratchpad."""
    last = max((a for a in tile.axes if a != NO_AXIS), default=-1)
    counts = [max(1, -(-axis.extent // axis.block)) for axis in group.grid[: last + 1]]
    return math.prod(n for axis, n in enumerate(counts) if axis not in tile.axes)


@STAGE_WORK.rule(Load)
def load_work(group: Group, stage: Load) -> Work:
    tile = group.tiles[stage.tile]
    return Work(unit=Unit.DMA, bytes_in=stage.src.nbytes * moves(group, tile))


@STAGE_WORK.rule(Store)
def store_work(group: Group, stage: Store) -> Work:
    return Work(unit=Unit.DMA, bytes_out=stage.dst.nbytes)


@STAGE_WORK.rule(Gemm)
def gemm_work(group: Group, stage: Gemm) -> Work:
    products = math.prod(group.tiles[stage.out].shape) * PASSES[stage.strategy]
    products *= group.tiles[stage.lhs].shape[-1]
    if stage.strategy is Strategy.LANES:
        return Work(unit=Unit.VPU, vector_ops=2 * products)
    operand = STRATEGIES[stage.strategy].needs
    return Work(unit=Unit.MXU, macs=products, operand=operand)


@STAGE_WORK.rule(Vec)
def vec_work(group: Group, stage: Vec) -> Work:
    elements = math.prod(group.tiles[stage.outs[0]].shape) if stage.outs else 0
    return Work(unit=Unit.VPU, vector_ops=lane_cycles(stage.program) * elements)


@STAGE_WORK.rule(Reduce)
def reduce_work(group: Group, stage: Reduce) -> Work:
    tile = group.tiles[stage.src]
    each = 2 if tile.dtype.is_wide else 1
    if stage.kind is ReduceKind.LOGSUMEXP:
        # maximum, difference, exponential and sum of every element
        each *= 3 + MICRO_OPS["exp"].cycles
    return Work(unit=Unit.VPU, vector_ops=math.prod(tile.shape) * each)


@STAGE_WORK.rule(Transpose)
def transpose_work(group: Group, stage: Transpose) -> Work:
    tile = group.tiles[stage.src]
    size = math.prod(tile.shape) * tile.dtype.itemsize
    return Work(unit=Unit.LAYOUT, turned=size * moves(group, tile))


STAGE_WORK.complete()


def lane_cycles(program: MicroProgram) -> int:
    """Return the cycles of a micro-program for one element on one lane."""
    return sum(i.op.cycles * (2 if i.dtype.is_wide else 1) for i in program.insns)


# --------------------------------------------------------------------------- commands


def unit_of(command: Any) -> Unit:
    """Return the engine that executes a command other than a group.

    A copy whose rows are not contiguous is the layout engine's.
    """
    if isinstance(command, Copy) and not command.src.has_contiguous_rows:
        return Unit.LAYOUT
    return command.UNIT


def _bytes(views: Iterable[View]) -> int:
    return sum(v.nbytes for v in views)


@COMMAND_WORK.rule(Conv)
def conv_work(cmd: Conv) -> Work:
    products = cmd.dst.size * math.prod(cmd.rhs.shape[:-1]) * PASSES[cmd.strategy]
    traffic = cmd.blocks.lhs_bytes() + cmd.rhs.nbytes
    if cmd.strategy is Strategy.LANES:
        return Work(
            unit=Unit.VPU,
            bytes_in=traffic,
            bytes_out=cmd.dst.nbytes,
            vector_ops=2 * products,
        )
    return Work(
        unit=Unit.MXU,
        bytes_in=traffic,
        bytes_out=cmd.dst.nbytes,
        macs=products,
        operand=STRATEGIES[cmd.strategy].needs,
    )


@COMMAND_WORK.rule(Copy)
def copy_work(cmd: Copy) -> Work:
    return Work(unit=unit_of(cmd), bytes_in=cmd.src.nbytes, bytes_out=cmd.dst.nbytes)


@COMMAND_WORK.rule(Concat)
def concat_work(cmd: Concat) -> Work:
    return Work(unit=Unit.DMA, bytes_in=_bytes(cmd.srcs), bytes_out=cmd.dst.nbytes)


@COMMAND_WORK.rule(Pad)
def pad_work(cmd: Pad) -> Work:
    moved = _bytes((cmd.src, cmd.value))
    return Work(unit=Unit.DMA, bytes_in=moved, bytes_out=cmd.dst.nbytes)


@COMMAND_WORK.rule(DynamicSlice)
def dynamic_slice_work(cmd: DynamicSlice) -> Work:
    moved = cmd.dst.nbytes + _bytes(cmd.starts)
    return Work(unit=Unit.DMA, bytes_in=moved, bytes_out=cmd.dst.nbytes)


@COMMAND_WORK.rule(DynamicUpdate)
def dynamic_update_work(cmd: DynamicUpdate) -> Work:
    moved = _bytes((cmd.src, cmd.update, *cmd.starts))
    return Work(
        unit=Unit.DMA, bytes_in=moved, bytes_out=cmd.dst.nbytes + cmd.update.nbytes
    )


@COMMAND_WORK.rule(Gather)
def gather_work(cmd: Gather) -> Work:
    return Work(
        unit=Unit.CORE,
        bytes_in=cmd.dst.nbytes + cmd.indices.nbytes,
        bytes_out=cmd.dst.nbytes,
        core_ops=cmd.dst.size,
    )


@COMMAND_WORK.rule(Scatter)
def scatter_work(cmd: Scatter) -> Work:
    updates = sum(v.size for v in cmd.updates)
    return Work(
        unit=Unit.CORE,
        bytes_in=_bytes((*cmd.operands, cmd.indices, *cmd.updates, *cmd.updates)),
        bytes_out=_bytes((*cmd.dsts, *cmd.updates)),
        core_ops=updates * (1 + len(cmd.combiner.insns)),
    )


@COMMAND_WORK.rule(Sort)
def sort_work(cmd: Sort) -> Work:
    first = cmd.srcs[0]
    rounds = max(1, math.ceil(math.log2(max(2, first.shape[cmd.axis]))))
    per_element = len(cmd.comparator.insns) + len(cmd.srcs)
    return Work(
        unit=Unit.CORE,
        bytes_in=_bytes(cmd.srcs),
        bytes_out=_bytes(cmd.dsts),
        core_ops=first.size * rounds * per_element,
    )


@COMMAND_WORK.rule(Fft)
def fft_work(cmd: Fft) -> Work:
    """5 n log2 n a transform, half of that for a real one.

    The customary count: Frigo and Johnson, "The design and implementation of FFTW3".
    """
    real = cmd.kind in (FftKind.RFFT, FftKind.IRFFT)
    points = (cmd.dst if cmd.kind is FftKind.IRFFT else cmd.src).size
    rounds = sum(max(1, math.ceil(math.log2(n))) for n in cmd.lengths)
    return Work(
        unit=Unit.CORE,
        bytes_in=cmd.src.nbytes,
        bytes_out=cmd.dst.nbytes,
        core_ops=5 * points * rounds // (2 if real else 1),
    )


@COMMAND_WORK.rule(ReduceWindow)
def reduce_window_work(cmd: ReduceWindow) -> Work:
    terms = cmd.dsts[0].size * math.prod(cmd.window)
    return Work(
        unit=Unit.CORE,
        bytes_in=_bytes((*cmd.srcs, *cmd.inits)),
        bytes_out=_bytes(cmd.dsts),
        core_ops=terms * max(1, len(cmd.combiner.insns)),
    )


@COMMAND_WORK.rule(SelectAndScatter)
def select_and_scatter_work(cmd: SelectAndScatter) -> Work:
    tests = cmd.source.size * math.prod(cmd.window) * max(1, len(cmd.select.insns))
    return Work(
        unit=Unit.CORE,
        bytes_in=_bytes((cmd.operand, cmd.source, cmd.init)),
        bytes_out=cmd.dst.nbytes,
        core_ops=tests + cmd.source.size * max(1, len(cmd.combiner.insns)),
    )


@COMMAND_WORK.rule(ReduceGeneric)
def reduce_generic_work(cmd: ReduceGeneric) -> Work:
    return Work(
        unit=Unit.CORE,
        bytes_in=_bytes((*cmd.srcs, *cmd.inits)),
        bytes_out=_bytes(cmd.dsts),
        core_ops=cmd.srcs[0].size * max(1, len(cmd.combiner.insns)),
    )


@COMMAND_WORK.rule(Loop, While)
def loop_work(cmd: Loop | While) -> Work:
    """The carries' copies in and out; the sequencer renames buffers in between."""
    moved = sum(c.enter.nbytes for c in cmd.carries)
    return Work(unit=Unit.CORE, bytes_in=2 * moved, bytes_out=2 * moved)


@COMMAND_WORK.rule(Case)
def case_work(cmd: Case) -> Work:
    merged = sum(m.dst.nbytes for m in cmd.merges)
    return Work(unit=Unit.CORE, bytes_in=cmd.index.nbytes + merged, bytes_out=merged)


@COMMAND_WORK.rule(Host)
def host_work(cmd: Host) -> Work:
    return Work(unit=Unit.HOST, bytes_in=_bytes(cmd.srcs), bytes_out=_bytes(cmd.dsts))


COMMAND_WORK.complete()


def works(command: Any) -> Iterator[tuple[str, Work]]:
    """Yield mnemonic and work of a command; of a group, one for each stage."""
    if isinstance(command, Group):
        for stage in command.stages:
            yield stage.MNEMONIC, STAGE_WORK[type(stage)](command, stage)
    else:
        yield command.MNEMONIC, COMMAND_WORK[type(command)](command)


# --------------------------------------------------------------------- static accounts


_QUANTITIES = ("bytes_in", "bytes_out", "macs", "vector_ops", "core_ops", "turned")


@dataclass
class UnitAccount:
    """What one unit did; `commands` counts a group's stages, each once per group."""

    commands: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    macs: int = 0
    vector_ops: int = 0
    core_ops: int = 0
    turned: int = 0

    def add(self, other: UnitAccount, times: int = 1) -> None:
        """Add another account a number of times."""
        for name in vars(other):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))


@dataclass
class Account:
    """Work of a block, or of several, by unit.

    Attributes:
        units: what each unit did.
        mnemonics: how many commands and stages of each kind ran.
        array_macs: multiply-accumulates of the array by element type.
    """

    units: dict[Unit, UnitAccount] = field(
        default_factory=lambda: {u: UnitAccount() for u in Unit}
    )
    mnemonics: Counter[str] = field(default_factory=Counter)
    array_macs: Counter[str] = field(default_factory=Counter)

    def add(self, other: Account, times: int = 1) -> None:
        """Add another account a number of times."""
        for unit, mine in self.units.items():
            mine.add(other.units[unit], times)
        for name, count in other.mnemonics.items():
            self.mnemonics[name] += times * count
        for name, count in other.array_macs.items():
            self.array_macs[name] += times * count

    def record(self, mnemonic: str, work: Work, times: int) -> None:
        """Add the work of one command or stage."""
        unit = self.units[work.unit]
        unit.commands += times
        for name in _QUANTITIES:
            setattr(unit, name, getattr(unit, name) + times * getattr(work, name))
        self.mnemonics[mnemonic] += times
        if work.operand:
            self.array_macs[work.operand] += times * work.macs

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the systolic array."""
        return self.units[Unit.MXU].macs

    @property
    def host_callbacks(self) -> int:
        """Calls of the user's own Python functions."""
        return self.units[Unit.HOST].commands


@dataclass(frozen=True)
class ProgramAccount:
    """What one execution of a program does.

    Attributes:
        static: everything whose number of executions is known.
        dynamic: one account for each dynamic body, for one execution of it, in the
            order of `dynamic_bodies`.
    """

    static: Account
    dynamic: tuple[Account, ...]

    def total(self, counts: Iterable[int]) -> Account:
        """Return the whole, given how often each dynamic body ran."""
        out = Account()
        out.add(self.static)
        for body, count in zip(self.dynamic, counts, strict=True):
            out.add(body, int(count))
        return out


def blocks_of(command: Any) -> tuple[Block, ...]:
    """Return the nested blocks of a command."""
    if isinstance(command, Loop):
        return (command.body,)
    if isinstance(command, While):
        return (command.cond, command.body)
    return command.branches if isinstance(command, Case) else ()


def dynamic_bodies(block: Block) -> int:
    """Return how many dynamic bodies a block holds, nested ones included.

    They are numbered in pre-order: a WHILE takes one number (its condition and body
    run together once an iteration), a CASE one for each branch; then come those inside
    their blocks, block by block.
    """
    total = 0
    for located in block:
        command = located.cmd
        if isinstance(command, While):
            total += 1
        elif isinstance(command, Case):
            total += len(command.branches)
        total += sum(map(dynamic_bodies, blocks_of(command)))
    return total


def account(block: Block) -> ProgramAccount:
    """Return the account of a program's command stream."""
    dynamic: list[Account] = []
    static = Account()
    _walk(block, static, 1, dynamic)
    return ProgramAccount(static, tuple(dynamic))


def _walk(block: Block, into: Account, times: int, dynamic: list[Account]) -> None:
    for located in block:
        command = located.cmd
        if isinstance(command, Group):
            into.mnemonics[command.MNEMONIC] += times
        for mnemonic, work in works(command):
            into.record(mnemonic, work, times)
        if isinstance(command, Loop):
            _walk(command.body, into, times * command.trips, dynamic)
        elif isinstance(command, While):
            _walk_while(command, into, times, dynamic)
        elif isinstance(command, Case):
            own = [Account() for _ in command.branches]
            dynamic.extend(own)
            for mine, branch in zip(own, command.branches):
                _walk(branch, mine, 1, dynamic)


def _walk_while(
    command: While, into: Account, times: int, dynamic: list[Account]
) -> None:
    """The condition runs once more than the body: that one is the enclosing block's."""
    own = Account()
    dynamic.append(own)
    first = Account()
    _walk(command.cond, first, 1, dynamic)
    into.add(first, times)
    own.add(first)
    _walk(command.body, own, 1, dynamic)
