"""The rules of a group: tiles, stages, the K loop, the scratchpad, the accumulators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from vkore_jax.dtypes import DType
from vkore_jax.errors import (
    HazardError,
    InvalidProgram,
    ResourceExhausted,
    VkoreError,
)
from vkore_jax.isa import (
    NO_AXIS,
    STAGES,
    Gemm,
    GridAxis,
    Group,
    Load,
    Phase,
    Reduce,
    ReduceKind,
    Store,
    Tile,
    Transpose,
    Vec,
    room,
)
from vkore_jax.isa.limits import BLOCKS, RANK
from vkore_jax.isa.micro import MICRO_OPS
from vkore_jax.isa.rules import Rules
from vkore_jax.verify.checks import ITEMSIZE, Context, numbers, registers

_IOTA = MICRO_OPS["iota"].code
_KINDS = {
    **dict.fromkeys((ReduceKind.SUM, ReduceKind.PROD), "biufc"),
    **dict.fromkeys((ReduceKind.MAX, ReduceKind.MIN, *room.ARGS), "biuf"),
    **dict.fromkeys((ReduceKind.AND, ReduceKind.OR, ReduceKind.XOR), "biu"),
    ReduceKind.LOGSUMEXP: "f",
}
_NEVER = 1 << 30


def slot_bytes(tile: Tile, grid: Sequence[GridAxis], align: int) -> int:
    """Return the distance of a tile's slots: a full block, rounded up to alignment."""
    return room.slot_bytes(tile.block_bytes(tuple(grid)), align)


class GroupCheck:
    """One group under verification.

    Attributes:
        written: execution position of the stage that writes a tile, or -1.
        last: execution position of the last stage that touches it.
        held: tiles whose value stays in the accumulators until the last K step.
        held_bytes: accumulator bytes that they occupy.
    """

    def __init__(self, ctx: Context, group: Group) -> None:
        self.ctx = ctx
        self.group = group
        self.tiles = group.tiles
        self.k = group.k_axis
        self.written = [-1] * len(group.tiles)
        self.last = [-1] * len(group.tiles)
        self.held: set[int] = set()
        self.held_bytes = 0
        self.position = 0
        self.phase = Phase.BODY

    def run(self) -> None:
        """Check everything about the group but its place in the stream."""
        self._check_grid()
        sizes = self._check_tiles()
        stages = self.group.stages
        number, position = -1, 0
        try:
            for phase in (Phase.BODY, Phase.TAIL):
                self.phase = phase
                for number, stage in enumerate(stages):  # noqa: B007 (used on error)
                    if stage.phase is phase:
                        self.position = position
                        _TABLE[type(stage)](self, stage)
                        position += 1
        except VkoreError as e:
            name = type(stages[number]).__name__.lower()
            raise e.with_context(f"in stage {number} ({name})") from None
        if self.held_bytes > self.ctx.chip.accumulator_bytes:
            raise ResourceExhausted(
                f"partial sums of the K loop need {self.held_bytes} bytes of "
                f"accumulators, the chip has {self.ctx.chip.accumulator_bytes}: "
                f"use smaller blocks"
            )
        self._check_overlap(sizes)

    def _check_grid(self) -> None:
        grid = self.group.grid
        if len(grid) > RANK:
            raise InvalidProgram(f"a grid has at most {RANK} axes, found {len(grid)}")
        blocks = 1
        for i, axis in enumerate(grid):
            if axis.block < 1:
                raise InvalidProgram(f"grid axis {i}: block must be >= 1, found 0")
            numbers(**{f"grid axis {i}": (axis.extent, axis.block)})
            blocks *= max(1, -(-axis.extent // axis.block))
        if blocks > BLOCKS:
            raise InvalidProgram(
                f"the grid has {blocks} blocks, the sequencer counts to {BLOCKS}: use "
                f"larger blocks"
            )
        if self.k != NO_AXIS and self.k != len(grid) - 1:
            raise InvalidProgram(
                f"the K axis must be the last of the {len(grid)} grid axes, "
                f"found {self.k}"
            )

    def _check_tiles(self) -> list[int]:
        """Check shape, placement and capacity; return the bytes of all slots."""
        grid, mask = self.group.grid, self.ctx.pad_align - 1
        capacity = self.ctx.scratchpad_bytes
        cuts = [(axis.extent, min(axis.extent, axis.block)) for axis in grid]
        sizes = []
        for i, t in enumerate(self.tiles):
            axes = t.axes
            if len(t.shape) != len(axes):
                raise InvalidProgram(
                    f"tile {i}: {len(t.shape)} extents but {len(axes)} axes"
                )
            seen = 0
            size = all_bytes = ITEMSIZE[t.dtype]
            for extent, a in zip(t.shape, axes):
                all_bytes *= extent or 1
                if a == NO_AXIS:
                    if extent < 0:
                        raise InvalidProgram(
                            f"tile {i}: extents {t.shape} must be >= 0"
                        )
                    size *= extent
                    continue
                if a >= len(cuts) or cuts[a][0] != extent or extent == 1:
                    raise InvalidProgram(self._bad_cut(i, extent, a))
                if seen >> a & 1:
                    raise InvalidProgram(f"tile {i}: grid axis {a} cuts it twice")
                seen |= 1 << a
                size *= cuts[a][1]
            if all_bytes > self.ctx.most_bytes or len(axes) > RANK:
                self.ctx.formed(f"tile {i}", t.shape, t.dtype)
            if not 1 <= t.slots <= 2:
                raise InvalidProgram(f"tile {i}: slots must be 1 or 2, found {t.slots}")
            if t.offset & mask:
                raise InvalidProgram(
                    f"tile {i}: scratchpad offset must be a multiple of {mask + 1}, "
                    f"found {t.offset}"
                )
            size = room.slot_bytes(size, mask + 1) * t.slots
            if t.offset + size > capacity:
                raise ResourceExhausted(
                    f"tile {i} ends at byte {t.offset + size} of the scratchpad; the "
                    f"program reserves {self.ctx.program.scratchpad_bytes} and chip "
                    f"{self.ctx.chip.name!r} has {self.ctx.chip.scratchpad_bytes}: "
                    f"use smaller blocks"
                )
            sizes.append(size)
        return sizes

    def _bad_cut(self, tile: int, extent: int, axis: int) -> str:
        grid = self.group.grid
        if axis >= len(grid):
            return f"tile {tile}: cut by grid axis {axis}, the grid has {len(grid)}"
        if extent == 1:
            return f"tile {tile}: an axis of extent 1 must not be cut"
        return (
            f"tile {tile}: extent {extent} is cut by grid axis {axis} of extent "
            f"{grid[axis].extent}; they must be equal"
        )

    def _check_overlap(self, sizes: Sequence[int]) -> None:
        """Tiles that share addresses must not hold live blocks at the same time.

        A double-buffered tile is filled for the next block while this one is worked
        on, so it is live all the time.
        """
        tiles = self.tiles
        order = sorted(range(len(tiles)), key=lambda i: tiles[i].offset)
        for n, i in enumerate(order):
            end = tiles[i].offset + sizes[i]
            for j in order[n + 1 :]:
                if tiles[j].offset >= end:
                    break
                if not sizes[j]:
                    continue
                a, b = self._life(i), self._life(j)
                if a[0] <= b[1] and b[0] <= a[1]:
                    raise HazardError(
                        f"tiles {i} and {j} overlap in the scratchpad "
                        f"([{tiles[i].offset}, {end}) and [{tiles[j].offset}, "
                        f"{tiles[j].offset + sizes[j]})) and are live together"
                    )

    def _life(self, tile: int) -> tuple[int, int]:
        if self.tiles[tile].slots > 1:
            return -1, _NEVER
        return self.written[tile], self.last[tile]

    # -------------------------------------------------------------- used by stage rules

    def read(self, tile: int) -> Tile:
        """Record that the present stage reads a tile; return it."""
        if tile >= len(self.tiles):
            raise InvalidProgram(
                f"tile {tile} does not exist; the group has {len(self.tiles)}"
            )
        if self.written[tile] < 0:
            raise InvalidProgram(f"tile {tile} is read before a stage writes it")
        t = self.tiles[tile]
        if self.phase is Phase.TAIL:
            if self.k in t.axes and self.k != NO_AXIS:
                raise InvalidProgram(
                    f"a TAIL stage reads tile {tile}, of which only the last K block "
                    f"exists"
                )
        elif tile in self.held:
            raise InvalidProgram(
                f"a BODY stage reads tile {tile}, whose sums leave the accumulators "
                f"after the last K step: make it a TAIL stage"
            )
        self.last[tile] = self.position
        return t

    def write(self, tile: int) -> Tile:
        """Record that the present stage writes a tile; return it."""
        if tile >= len(self.tiles):
            raise InvalidProgram(
                f"tile {tile} does not exist; the group has {len(self.tiles)}"
            )
        if self.written[tile] >= 0:
            raise InvalidProgram(f"tile {tile} is written by two stages")
        t = self.tiles[tile]
        if self.phase is Phase.TAIL and self.k != NO_AXIS and self.k in t.axes:
            raise InvalidProgram(f"a TAIL stage writes tile {tile}, which K cuts")
        self.written[tile] = self.last[tile] = self.position
        return t

    def hold(self, tile: int, element_bytes: int) -> None:
        """Record that a tile's partial results stay in the accumulators."""
        self.held.add(tile)
        shape = self.tiles[tile].block_shape(self.group.grid)
        self.held_bytes += math.prod(shape) * element_bytes


STAGE_RULES: Rules[Callable[..., None]] = Rules("verify stages", over=STAGES.values())


@STAGE_RULES.rule(Load)
def _load(g: GroupCheck, s: Load) -> None:
    t, v = g.write(s.tile), s.src
    g.ctx.view(v, "src")
    if v.shape != t.shape or v.dtype is not t.dtype:
        raise InvalidProgram(
            f"src {v.dtype}{list(v.shape)} must have the dtype and shape of tile "
            f"{s.tile}, {t.dtype}{list(t.shape)}"
        )
    if not v.has_contiguous_rows:
        raise InvalidProgram(
            f"the DMA engine moves contiguous rows, it does not transpose: shape "
            f"{v.shape} has strides {v.strides}; COPY it through the layout engine "
            f"first"
        )


@STAGE_RULES.rule(Store)
def _store(g: GroupCheck, s: Store) -> None:
    t, v = g.read(s.tile), s.dst
    g.ctx.whole(v, "dst")
    if v.shape != t.shape or v.dtype is not t.dtype:
        raise InvalidProgram(
            f"dst {v.dtype}{list(v.shape)} must have the dtype and shape of tile "
            f"{s.tile}, {t.dtype}{list(t.shape)}"
        )


@STAGE_RULES.rule(Gemm)
def _gemm(g: GroupCheck, s: Gemm) -> None:
    a, b = g.read(s.lhs), g.read(s.rhs)
    c = g.write(s.out)
    rank = len(c.shape)
    if rank < 2 or len(a.shape) != rank or len(b.shape) != rank:
        raise InvalidProgram(
            f"lhs, rhs and out must have one rank >= 2, found shapes {a.shape}, "
            f"{b.shape}, {c.shape}"
        )
    if (
        a.shape[-1] != b.shape[-2]
        or a.shape[-2] != c.shape[-2]
        or b.shape[-1] != c.shape[-1]
    ):
        raise InvalidProgram(
            f"(m, k) x (k, n) -> (m, n) does not fit shapes {a.shape}, {b.shape}, "
            f"{c.shape}; the matrix unit has no transposed read"
        )
    if a.axes[-2] != c.axes[-2] or b.axes[-1] != c.axes[-1]:
        raise InvalidProgram(
            f"m and n must be cut alike, found axes {a.axes}, {b.axes}, {c.axes}"
        )
    cut = a.axes[-1]
    if cut != b.axes[-2] or (cut != NO_AXIS and cut != g.k):
        raise InvalidProgram(
            f"k must be cut alike and only by the K axis ({g.k}), found grid axes "
            f"{cut} of lhs and {b.axes[-2]} of rhs"
        )
    for i in range(rank - 2):
        x, y, z = a.shape[i], b.shape[i], c.shape[i]
        if (x != z and x != 1) or (y != z and y != 1) or (x == y == 1 != z):
            raise InvalidProgram(
                f"batch axis {i}: extents {x} and {y} do not broadcast to {z}"
            )
        if (x != 1 and a.axes[i] != c.axes[i]) or (y != 1 and b.axes[i] != c.axes[i]):
            raise InvalidProgram(
                f"batch axis {i} must be cut alike, found axes {a.axes}, {b.axes}, "
                f"{c.axes}"
            )
    g.ctx.product(a.dtype, b.dtype, c.dtype, s.strategy)
    if cut != NO_AXIS:
        g.ctx.segments(g.group.grid[cut], s.strategy)
        g.hold(s.out, room.sum_bytes(s.strategy, a.dtype))


@STAGE_RULES.rule(Vec)
def _vec(g: GroupCheck, s: Vec) -> None:
    program, chip = s.program, g.ctx.chip
    if len(program.insns) > chip.vec_max_insns:
        raise ResourceExhausted(
            f"micro-program of {len(program.insns)} instructions; the vector "
            f"sequencer holds {chip.vec_max_insns}: split it"
        )
    if len(s.ins) + len(s.outs) > chip.vec_max_operands:
        raise ResourceExhausted(
            f"micro-program with {len(s.ins) + len(s.outs)} tiles; the vector unit "
            f"addresses {chip.vec_max_operands}: split it"
        )
    ins = [g.read(t) for t in s.ins]
    outs = [g.write(t) for t in s.outs]
    if not outs:
        raise InvalidProgram("a vec stage must have an output")
    regs = registers(program)
    _check_tile_types("inputs", ins, program.inputs)
    _check_tile_types("outputs", outs, tuple(regs[r] for r in program.outputs))
    shape, axes = outs[0].shape, outs[0].axes
    for t in outs:
        if t.shape != shape or t.axes != axes:
            raise InvalidProgram("output tiles must have one shape and be cut alike")
    for n, t in zip(s.ins, ins):
        if t.shape != shape or t.axes != axes:
            _check_broadcast(n, t, outs[0])
    for i in program.insns:
        if i.code == _IOTA and i.imm[0] >= len(shape):
            raise InvalidProgram(
                f"iota along axis {i.imm[0]} of a tensor of rank {len(shape)}"
            )


def _check_tile_types(
    what: str, tiles: Sequence[Tile], wanted: tuple[DType, ...]
) -> None:
    found = tuple(t.dtype for t in tiles)
    if found != wanted:
        raise InvalidProgram(
            f"{what} of the micro-program are {wanted}, the tiles are {found}"
        )


def _check_broadcast(number: int, tile: Tile, out: Tile) -> None:
    if len(tile.shape) != len(out.shape):
        raise InvalidProgram(
            f"tile {number} has rank {len(tile.shape)}, the outputs have "
            f"{len(out.shape)}"
        )
    for x, z, p, q in zip(tile.shape, out.shape, tile.axes, out.axes):
        if x != 1 and (x != z or p != q):
            raise InvalidProgram(
                f"tile {number} {tile.shape} cut by {tile.axes} does not broadcast to "
                f"{out.shape} cut by {out.axes}"
            )


@STAGE_RULES.rule(Reduce)
def _reduce(g: GroupCheck, s: Reduce) -> None:
    src = g.read(s.src)
    outs = [g.write(t) for t in s.outs]
    if src.dtype.kind not in _KINDS[s.kind]:
        raise InvalidProgram(f"{s.kind.name} does not reduce {src.dtype}")
    rank = len(src.shape)
    if not s.axes or len(set(s.axes)) != len(s.axes):
        raise InvalidProgram(f"axes must be distinct and at least one, found {s.axes}")
    if not all(0 <= a < rank for a in s.axes):
        raise InvalidProgram(f"axes {s.axes} do not exist in shape {src.shape}")
    is_arg = s.kind in room.ARGS
    if len(outs) != 1 + is_arg:
        raise InvalidProgram(
            f"{s.kind.name} writes {1 + is_arg} tiles, found {len(outs)}"
        )
    shape, axes, cut = list(src.shape), list(src.axes), False
    for a in s.axes:
        if axes[a] != NO_AXIS:
            if axes[a] != g.k:
                raise InvalidProgram(
                    f"reduced axis {a} is cut by grid axis {axes[a]}; only the K axis "
                    f"may cut it"
                )
            cut = True
        shape[a], axes[a] = 1, NO_AXIS
    for n, t in zip(s.outs, outs):
        if t.shape != tuple(shape) or t.axes != tuple(axes):
            raise InvalidProgram(
                f"tile {n} must have shape {tuple(shape)} cut by {tuple(axes)}, found "
                f"{t.shape} cut by {t.axes}"
            )
    _check_reduce_types(s, src, outs)
    if cut:
        g.hold(s.outs[0], room.sum_bytes(s.kind, src.dtype))
        g.held.update(s.outs)


@STAGE_RULES.rule(Transpose)
def _transpose(g: GroupCheck, s: Transpose) -> None:
    src, out = g.read(s.src), g.write(s.out)
    if len(src.shape) < 2:
        raise InvalidProgram(f"a tile of rank >= 2 can be turned, found {src.shape}")
    wanted = [(*x[:-2], x[-1], x[-2]) for x in (src.shape, src.axes)]
    if [out.shape, out.axes] != wanted or out.dtype is not src.dtype:
        raise InvalidProgram(
            f"tile {s.out} must be {src.dtype}{list(wanted[0])} cut by {wanted[1]}, "
            f"found {out.dtype}{list(out.shape)} cut by {out.axes}"
        )


def _check_reduce_types(s: Reduce, src: Tile, outs: Sequence[Tile]) -> None:
    value = outs[0].dtype
    wider = (
        s.kind in (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.LOGSUMEXP)
        and src.dtype.kind == value.kind == "f"
        and src.dtype.bits < value.bits == 32
    )
    if value is not src.dtype and not wider:
        raise InvalidProgram(
            f"{s.kind.name} of {src.dtype} gives {src.dtype} (or f32 sums of narrower "
            f"floats), found a tile of {value}"
        )
    if s.kind not in room.ARGS:
        return
    if len(s.axes) != 1:
        raise InvalidProgram(f"{s.kind.name} reduces one axis, found {s.axes}")
    if not outs[1].dtype.is_integer:
        raise InvalidProgram(f"indices must be integers, found {outs[1].dtype}")
    if src.shape[s.axes[0]] == 0:
        raise InvalidProgram(f"{s.kind.name} of an empty axis has no value")


STAGE_RULES.complete()
_TABLE = dict(STAGE_RULES)
