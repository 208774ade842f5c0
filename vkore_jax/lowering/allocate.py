"""DRAM allocation: buffers, their lifetimes in the structured stream, the arena.

Positions number the commands of the stream in program order, nested blocks inside
their command.  A buffer lives from the command that writes it to the last one that
reads it, both included, so a command never shares bytes between what it reads and
writes.  What a nested block reads from outside lives until the block's command ends.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from vkore_jax.chips import Chip
from vkore_jax.errors import ResourceExhausted
from vkore_jax.isa import Segment
from vkore_jax.lowering.access import Views
from vkore_jax.lowering.ir import Case, Const, Graph, Module, Move, Node, Value, While
from vkore_jax.program import Buffer, dram_bytes


@dataclass
class Allocation:
    """The buffer table and what the emitter needs to name buffers."""

    buffers: list[Buffer] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    ids: dict[Value, int] = field(default_factory=dict)
    arena_bytes: int = 0


@dataclass
class _Life:
    value: Value
    start: int
    end: int


def allocate(module: Module, chip: Chip, views: Views) -> Allocation:
    """Give every value that owns a buffer its place.

    Raises:
        ResourceExhausted: arguments, results, constants and arena exceed the DRAM.
    """
    return _Allocator(module, chip, views).run()


def _largest(graph: Graph, count: int = 3) -> str:
    """Return the largest tensors of a program and the user's lines that make them."""
    found: dict[Value, str] = dict.fromkeys(graph.params, "an argument")
    todo = [graph]
    while todo:
        for node in todo.pop().nodes:
            found.update(dict.fromkeys(node.results, str(node.loc)))
            todo += node.graphs
    top = sorted(found, key=lambda v: -v.nbytes)[:count]
    return ", ".join(f"{v} ({found[v]})" for v in top if v.nbytes)


class _Allocator:
    def __init__(self, module: Module, chip: Chip, views: Views) -> None:
        self.module, self.chip, self.views = module, chip, views
        self.out = Allocation()
        self.lives: dict[Value, _Life] = {}
        self.position = 0
        self.pool: dict[bytes, int] = {}

    def run(self) -> Allocation:
        graph = self.module.graph
        align = self.chip.dram_align_bytes
        at = 0
        for value in graph.params:
            self._buffer(value, Segment.ARGUMENT, at)
            at = _round_up(at + value.nbytes, align)
        arguments = at
        at = 0
        for value in graph.outputs:
            root = self.views.root(value)
            self._buffer(root, Segment.RESULT, at)
            at = _round_up(at + root.nbytes, align)
        results = at
        self._block(graph)
        self._arena()
        self._check_room(arguments, results)
        return self.out

    def _check_room(self, arguments: int, results: int) -> None:
        """Refuse what would not fit if nothing else were on the chip.

        Raises:
            ResourceExhausted: with the excess, the largest arrays, and what to do.
        """
        graph, chip, arena = self.module.graph, self.chip, self.out.arena_bytes
        constants = len(self.out.constants)
        donated = sum(graph.params[n].nbytes for n in set(self.module.donated))
        total = dram_bytes(
            arguments=arguments,
            results=results,
            constants=constants,
            arena=arena,
            donated=donated,
        )
        if total <= chip.dram_bytes:
            return
        raise ResourceExhausted(
            f"{self.module.name}: needs {total:,} bytes of DRAM (arguments "
            f"{arguments:,}, of these {donated:,} donated, results {results:,}, "
            f"constants {constants:,}, intermediates {arena:,}); chip {chip.name!r} "
            f"has {chip.dram_bytes:,}: {total - chip.dram_bytes:,} too many; the "
            f"largest are {_largest(graph)}; use a smaller batch or model, or "
            "rematerialisation (jax.checkpoint), donate arguments that are not needed "
            "any more (jax.jit(..., donate_argnums=...)), or choose a larger chip "
            "(VKORE_CHIP, VKORE_DRAM_BYTES)"
        )

    def _buffer(self, value: Value, segment: Segment, offset: int) -> None:
        self.out.ids[value] = len(self.out.buffers)
        self.out.buffers.append(Buffer(segment, offset, value.nbytes))

    # ------------------------------------------------------------------ lifetimes

    def _block(self, graph: Graph) -> None:
        for node in graph.nodes:
            if isinstance(node, Move):
                continue
            if isinstance(node, Const):
                self._constant(node)
                continue
            start = self.position
            self.position += 1
            self._read(node.operands, start)
            if isinstance(node, While):
                self._loop(node, start)
            elif isinstance(node, Case):
                self._case(node, start)
            else:
                for value in node.results:
                    self._define(value, start)

    def _loop(self, node: While, start: int) -> None:
        """Lifetimes of a loop: `current` all along, `leave` at the end."""
        outer = set(self.lives)
        for c, b in zip(node.cond.params, node.body.params, strict=True):
            # Condition and body name one buffer, the carry's `current`.
            self.lives[c] = self.lives[b] = _Life(b, start, start)
        self._block(node.cond)
        self._block(node.body)
        end = self._leave(node, outer)
        # A body's output stays until it becomes `current` at the end of the trip.
        self._read(node.body.params, end)
        self._read(node.cond.outputs, end)
        self._read(node.body.outputs, end)
        for value in node.results:
            self._define(value, end)

    def _case(self, node: Case, start: int) -> None:
        for value in node.results:
            self._define(value, start)
        outer = set(self.lives)
        for branch in node.branches:
            self._block(branch)
        end = self._leave(node, outer)
        for branch in node.branches:
            self._read(branch.outputs, end)
        self._read(node.results, end)

    def _leave(self, node: Node, outer: set[Value]) -> int:
        """End a command with nested blocks; what they captured lives until here."""
        end = self.position
        self.position += 1
        for graph in node.graphs:
            reads = _all_reads(graph)
            self._read((v for v in reads if self.views.root(v) in outer), end)
        return end

    def _define(self, value: Value, at: int) -> None:
        if value not in self.lives and value not in self.out.ids:
            self.lives[value] = _Life(value, at, at)

    def _read(self, values: Iterable[Value], at: int) -> None:
        for value in values:
            life = self.lives.get(self.views.root(value))
            if life is not None and life.end < at:
                life.end = at

    # ------------------------------------------------------------------ placement

    def _constant(self, node: Const) -> None:
        value = node.result
        data = np.ascontiguousarray(node.data).tobytes()
        if data not in self.pool:
            pad = -len(self.out.constants) % self.chip.dram_align_bytes
            self.out.constants += bytes(pad)
            self.pool[data] = len(self.out.buffers)
            self.out.buffers.append(
                Buffer(Segment.CONSTANT, len(self.out.constants), len(data))
            )
            self.out.constants += data
        self.out.ids[value] = self.pool[data]

    def _arena(self) -> None:
        """Place buffers by time of birth, each in the smallest hole that holds it."""
        align = self.chip.dram_align_bytes
        lives = sorted(
            {id(x): x for x in self.lives.values()}.values(), key=lambda x: x.start
        )
        holes: list[tuple[int, int]] = []
        top = 0
        dying: list[tuple[int, int, int]] = []
        placed: dict[int, int] = {}
        for life in lives:
            while dying and dying[0][0] < life.start:
                _, offset, size = dying.pop(0)
                _release(holes, offset, size)
            size = max(_round_up(life.value.nbytes, align), align)
            best = min(
                ((n, o, i) for i, (o, n) in enumerate(holes) if n >= size),
                default=None,
            )
            if best is None:
                # Grow from the last hole when it touches the top.
                if holes and sum(holes[-1]) == top:
                    offset = holes.pop()[0]
                else:
                    offset = top
                top = offset + size
            else:
                n, offset, i = best
                del holes[i]
                if n > size:
                    holes.insert(i, (offset + size, n - size))
            bisect.insort(dying, (life.end, offset, size))
            placed[id(life)] = len(self.out.buffers)
            self.out.buffers.append(Buffer(Segment.ARENA, offset, life.value.nbytes))
        for value, life in self.lives.items():
            self.out.ids[value] = placed[id(life)]
        self.out.arena_bytes = top


def _release(holes: list[tuple[int, int]], offset: int, size: int) -> None:
    """Return bytes to the free list, joining neighbours."""
    i = bisect.bisect_left(holes, (offset, 0))
    if i < len(holes) and offset + size == holes[i][0]:
        size += holes.pop(i)[1]
    if i > 0 and sum(holes[i - 1]) == offset:
        offset, below = holes[i - 1]
        size += below
        holes.pop(i - 1)
        i -= 1
    holes.insert(i, (offset, size))


def _all_reads(graph: Graph) -> set[Value]:
    reads: set[Value] = set(graph.outputs)
    for node in graph.nodes:
        reads.update(node.operands)
        for nested in node.graphs:
            reads |= _all_reads(nested)
    return reads


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
