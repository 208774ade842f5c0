"""The commands of the VK ISA: layer-sized, an algorithm plus a schedule.

Every command writes whole DRAM buffers: its `dst` views are dense.  A buffer is
written by exactly one command (loop-carried buffers are described at LOOP and WHILE),
so buffer ids are single-assignment, whatever their addresses.

Encoding of a command: u16 opcode, u16 reserved (zero), u32 location index, u32 payload
bytes, payload = the declared fields in order.  Encoding of a stage: u8 opcode, u8
reserved (zero), fields in order.  Encoding of a block: u32 count, commands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from vkore_jax.dtypes import DType
from vkore_jax.errors import InvalidProgram
from vkore_jax.isa import codec
from vkore_jax.isa.codec import (
    DTYPE,
    FLAG,
    INTS,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Codec,
    Enum,
    Seq,
    Struct,
    f,
    record,
)
from vkore_jax.isa.enums import FftKind, Phase, ReduceKind, Strategy, Unit
from vkore_jax.isa.micro import MicroProgram
from vkore_jax.isa.view import View

NO_AXIS = 255
VIEW: Codec = Struct(View)
VIEWS: Codec = Seq(VIEW)
MICRO: Codec = Struct(MicroProgram)
C = TypeVar("C", bound=type)

STAGES: dict[int, type] = {}
COMMANDS: dict[int, type] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(f,))
def stage(opcode: int, unit: Unit) -> Callable[[C], C]:
    """Register a stage class under an opcode, executed by a unit."""

    def register(cls: C) -> C:
        if opcode in STAGES:
            raise InvalidProgram(f"stage opcode {opcode:#x} is used twice")
        made = record(cls)
        made.OPCODE, made.UNIT, made.MNEMONIC = opcode, unit, cls.__name__.lower()
        STAGES[opcode] = made
        return made

    return register


@dataclass_transform(frozen_default=True, field_specifiers=(f,))
def command(opcode: int, unit: Unit) -> Callable[[C], C]:
    """Register a command class under an opcode, executed by a unit."""

    def register(cls: C) -> C:
        if opcode in COMMANDS:
            raise InvalidProgram(f"command opcode {opcode:#x} is used twice")
        made = record(cls)
        made.OPCODE, made.UNIT = opcode, unit
        made.MNEMONIC = made.NAME or cls.__name__.lower()
        COMMANDS[opcode] = made
        return made

    return register


class Stage:
    """Base of the stages of a group."""

    OPCODE: ClassVar[int]
    UNIT: ClassVar[Unit]
    MNEMONIC: ClassVar[str]


class Command:
    """Base of the commands of a block."""

    OPCODE: ClassVar[int]
    UNIT: ClassVar[Unit]
    MNEMONIC: ClassVar[str]
    NAME: ClassVar[str] = ""


class StageCodec(Codec):
    """A stage with its opcode."""

    name = "stage"

    def pack(self, value: Any, out: bytearray) -> None:
        out += bytes((value.OPCODE, 0))
        codec.pack_fields(value, out)

    def unpack(self, data: bytes, pos: int) -> tuple[Any, int]:
        opcode, pos = U8.unpack(data, pos)
        reserved, pos = U8.unpack(data, pos)
        if opcode not in STAGES:
            raise InvalidProgram(f"byte {pos - 2}: unknown stage opcode {opcode:#x}")
        if reserved:
            raise InvalidProgram(f"byte {pos - 1}: reserved bits must be zero")
        return codec.unpack_fields(STAGES[opcode], data, pos)


class BlockCodec(Codec):
    """A counted sequence of commands; nests for control flow."""

    name = "block"

    def pack(self, value: Any, out: bytearray) -> None:
        U32.pack(len(value), out)
        for located in value:
            out += located.cmd.OPCODE.to_bytes(2, "little") + b"\0\0"
            U32.pack(located.loc, out)
            at = len(out)
            out += b"\0\0\0\0"
            codec.pack_fields(located.cmd, out)
            out[at : at + 4] = (len(out) - at - 4).to_bytes(4, "little")

    def unpack(self, data: bytes, pos: int) -> tuple[tuple[Located, ...], int]:
        count, pos = U32.unpack(data, pos)
        if count > len(data) - pos:
            raise InvalidProgram(f"block of {count} commands exceeds the stream")
        items: list[Located] = []
        for _ in range(count):
            opcode, pos = U16.unpack(data, pos)
            reserved, pos = U16.unpack(data, pos)
            if opcode not in COMMANDS:
                raise InvalidProgram(f"byte {pos - 4}: unknown opcode {opcode:#x}")
            if reserved:
                raise InvalidProgram(f"byte {pos - 2}: reserved bits must be zero")
            loc, pos = U32.unpack(data, pos)
            size, pos = U32.unpack(data, pos)
            cmd, end = codec.unpack_fields(COMMANDS[opcode], data, pos)
            if end != pos + size:
                raise InvalidProgram(
                    f"{COMMANDS[opcode].MNEMONIC} at byte {pos}: payload is "
                    f"{end - pos} bytes, header says {size}"
                )
            items.append(Located(cmd, loc))
            pos = end
        return tuple(items), pos


@record
class Located:
    """A command and the index of its source location in the program."""

    cmd: Any = f(U32, "the command (encoded by the block)")
    loc: int = f(U32, "index into the program's location table")


STAGE: Codec = StageCodec()
BLOCK: Codec = BlockCodec()
Block = tuple[Located, ...]


# --------------------------------------------------------------------------- groups


@record
class GridAxis:
    """One axis of a group's iteration space."""

    extent: int = f(U64, "elements")
    block: int = f(U64, "elements per block; the last block may be smaller")


@record
class Tile:
    """A tensor of a group that lives in the scratchpad only, block by block.

    `shape` is the logical whole-tensor shape.  Axis i is cut by grid axis `axes[i]`
    (255: not cut; an axis of extent 1 is never cut).  In the scratchpad a block is
    dense row-major at `offset`; with `slots` > 1 the block of linear index i lies in
    slot i modulo `slots` (double buffering).  A slot is a full block rounded up to the
    chip's scratchpad alignment; the slots of a tile are adjacent.
    """

    dtype: DType = f(DTYPE, "element type")
    shape: tuple[int, ...] = f(INTS, "logical extents")
    axes: tuple[int, ...] = f(Seq(U8), "grid axis that cuts each axis, or 255")
    offset: int = f(U64, "scratchpad byte address of slot 0")
    slots: int = f(U8, "1, or 2 for double buffering")

    def block_shape(self, grid: tuple[GridAxis, ...]) -> tuple[int, ...]:
        """Return the shape of a full (not a ragged last) block."""
        return tuple(
            e if a == NO_AXIS else min(e, grid[a].block)
            for e, a in zip(self.shape, self.axes)
        )

    def block_bytes(self, grid: tuple[GridAxis, ...]) -> int:
        """Return the bytes of a full block."""
        size = self.dtype.itemsize
        for extent in self.block_shape(grid):
            size *= extent
        return size


@stage(0x01, Unit.DMA)
class Load(Stage):
    """Move a block of a DRAM tensor into a tile.

    The view has the tile's logical shape and dtype, and contiguous rows
    (`View.has_contiguous_rows`): the DMA engine moves rows, it does not transpose.
    """

    tile: int = f(U16, "destination tile")
    src: View = f(VIEW, "DRAM tensor")
    phase: Phase = f(Enum(Phase), "body or tail")


@stage(0x02, Unit.DMA)
class Store(Stage):
    """Move a block of a tile to its place in a dense DRAM tensor."""

    dst: View = f(VIEW, "dense DRAM tensor of the tile's logical shape and dtype")
    tile: int = f(U16, "source tile")
    phase: Phase = f(Enum(Phase), "body or tail")


@stage(0x03, Unit.MXU)
class Gemm(Stage):
    """out[..., m, n] = sum over k of lhs[..., m, k] * rhs[..., k, n].

    Leading axes are batch axes and broadcast (extent 1 against any).  The array reads
    lhs with k innermost and rhs with n innermost, as tiles are stored; there is no
    transposed read.  When the grid's K axis cuts k, partial sums stay in the
    accumulators over the K steps and leave after the last one, converted to the out
    tile's dtype (f32 sums round to nearest even).  A sum over k = 0 is 0.

    Operands are any tiles, what other stages of the group made included: a group may
    hold several products, whose intermediate blocks never leave the scratchpad.
    """

    lhs: int = f(U16, "tile (..., m, k)")
    rhs: int = f(U16, "tile (..., k, n)")
    out: int = f(U16, "tile (..., m, n)")
    strategy: Strategy = f(Enum(Strategy), "precision strategy")
    phase: Phase = f(Enum(Phase), "body or tail")


@stage(0x04, Unit.VPU)
class Vec(Stage):
    """Run a micro-program on every element.

    All tiles have one rank; inputs of extent 1 on an axis broadcast along it.  The
    outputs have the full (broadcast) shape and are cut alike.
    """

    ins: tuple[int, ...] = f(Seq(U16), "input tiles")
    outs: tuple[int, ...] = f(Seq(U16), "output tiles")
    program: MicroProgram = f(MICRO, "element code")
    phase: Phase = f(Enum(Phase), "body or tail")


@stage(0x05, Unit.VPU)
class Reduce(Stage):
    """Reduce axes of a tile with a monoid; reduced axes keep extent 1.

    A reduced axis may be cut only by the group's K axis; partial results then stay in
    the accumulators until the last K step.
    """

    src: int = f(U16, "source tile")
    outs: tuple[int, ...] = f(Seq(U16), "result tile (value, index for ARG kinds)")
    kind: ReduceKind = f(Enum(ReduceKind), "monoid")
    axes: tuple[int, ...] = f(INTS, "reduced axes (one for ARG kinds)")
    phase: Phase = f(Enum(Phase), "body or tail")


@stage(0x06, Unit.LAYOUT)
class Transpose(Stage):
    """out[..., j, i] = src[..., i, j]: the layout engine turns a block on the chip.

    For a product whose operand was made, or is also read, the other way round; what
    several groups read transposed is better copied once in DRAM (COPY).
    """

    src: int = f(U16, "source tile")
    out: int = f(U16, "result tile")
    phase: Phase = f(Enum(Phase), "body or tail")


@command(0x0010, Unit.CORE)
class Group(Command):
    """Run stages over the blocks of a grid, intermediates in the scratchpad only.

    Blocks run in row-major order of the grid; an axis of extent 0 has one empty block.
    With `k_axis` set (it must be the last grid axis) BODY stages run on each K step,
    TAIL stages after the last one.  A tile that accumulates over K is read in TAIL
    stages only, and TAIL stages touch no tile that K cuts.
    """

    grid: tuple[GridAxis, ...] = f(Seq(Struct(GridAxis)), "iteration space")
    k_axis: int = f(U8, "grid axis that contracts, or 255")
    tiles: tuple[Tile, ...] = f(Seq(Struct(Tile)), "scratchpad tensors")
    stages: tuple[Any, ...] = f(Seq(STAGE), "stages in order")


# ------------------------------------------------------------------------ convolution


@command(0x0020, Unit.MXU)
class Conv(Command):
    """Convolution on the systolic array (StableHLO `convolution`, fixed layout).

    lhs is (n, *spatial, c), rhs (*window, c / feature_groups, o), dst (n, *out, o),
    rows contiguous.  The schedule cuts the result: the engine computes `block_n`
    samples, `block_out` positions along each spatial axis and `block_o` features at a
    time, and stages the result and what it sees of the operands (neighbouring blocks
    see some elements twice) in the scratchpad twice (double buffering), see
    `staged_bytes`.  Blocks of one feature block follow one another.

    Zeros of the padding and between elements of a dilated lhs are multiplied as
    elements are: 0 times an infinite or NaN weight is NaN.  (The contract between
    engines leaves such NaNs open for dilated lhs and for groups of samples.)
    """

    dst: View = f(VIEW, "dense (n, *out, o)")
    lhs: View = f(VIEW, "(n, *spatial, c)")
    rhs: View = f(VIEW, "(*window, c_per_group, o)")
    strides: tuple[int, ...] = f(INTS, "window strides")
    pad_low: tuple[int, ...] = f(INTS, "padding before each spatial axis; may be < 0")
    pad_high: tuple[int, ...] = f(INTS, "padding after each spatial axis; may be < 0")
    lhs_dilation: tuple[int, ...] = f(INTS, "dilation of the input")
    rhs_dilation: tuple[int, ...] = f(INTS, "dilation of the window")
    reversal: tuple[int, ...] = f(INTS, "1 where the window axis runs backwards")
    feature_groups: int = f(U32, "feature group count")
    batch_groups: int = f(U32, "batch group count")
    strategy: Strategy = f(Enum(Strategy), "precision strategy")
    block_n: int = f(U32, "schedule: samples per block")
    block_out: tuple[int, ...] = f(
        INTS, "schedule: output positions per block, by axis"
    )
    block_o: int = f(U32, "schedule: output features per block")

    def staged_bytes(self) -> tuple[int, int, int]:
        """Return the bytes of one block of lhs, rhs and dst."""
        return self.blocks.staged_bytes()

    @property
    def blocks(self) -> ConvBlocks:
        """Return the schedule with the shapes that it cuts."""
        return ConvBlocks(
            lhs=self.lhs,
            rhs=self.rhs,
            dst=self.dst,
            strides=self.strides,
            lhs_dilation=self.lhs_dilation,
            rhs_dilation=self.rhs_dilation,
            batch_groups=self.batch_groups,
            block_n=self.block_n,
            block_out=self.block_out,
            block_o=self.block_o,
        )


@dataclass(frozen=True, kw_only=True)
class ConvBlocks:
    """What the blocks of a convolution hold and read.

    Attributes:
        lhs: anything with `shape` (n, *spatial, c) and `dtype`, as are the next two.
        rhs: (*window, c_per_group, o).
        dst: (n, *out, o).
        strides, lhs_dilation, rhs_dilation: of the window, one per spatial axis.
        batch_groups: batch group count; a sample of dst reads that many of lhs.
        block_n: samples of dst per block.
        block_out: positions of dst per block, one per spatial axis.
        block_o: features of dst per block.
    """

    lhs: Any
    rhs: Any
    dst: Any
    strides: tuple[int, ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    batch_groups: int
    block_n: int
    block_out: tuple[int, ...]
    block_o: int

    def seen(self, axis: int, positions: int) -> int:
        """Return how many elements of lhs some output positions see along an axis."""
        extent = self.lhs.shape[1 + axis]
        if positions >= self.dst.shape[1 + axis]:
            return int(extent)
        reach = (self.rhs.shape[axis] - 1) * self.rhs_dilation[axis] + 1
        span = (positions - 1) * self.strides[axis] + reach
        return min(int(extent), -(-span // self.lhs_dilation[axis]))

    def staged_bytes(self) -> tuple[int, int, int]:
        """Return the bytes of one block of lhs, rhs and dst."""
        lhs, rhs, dst = self.lhs, self.rhs, self.dst
        seen = math.prod(self.seen(i, n) for i, n in enumerate(self.block_out))
        samples = self.block_n * self.batch_groups
        return (
            samples * seen * lhs.shape[-1] * lhs.dtype.itemsize,
            math.prod(rhs.shape[:-1]) * self.block_o * rhs.dtype.itemsize,
            self.sums * dst.dtype.itemsize,
        )

    @property
    def sums(self) -> int:
        """Accumulators of one block."""
        return self.block_n * math.prod(self.block_out) * self.block_o

    def lhs_bytes(self) -> int:
        """Return the bytes of lhs that all blocks together read."""
        lhs, out = self.lhs, self.dst.shape[1:-1]
        seen = 1
        for i, (extent, block) in enumerate(zip(out, self.block_out)):
            whole, rest = divmod(extent, max(block, 1))
            seen *= whole * self.seen(i, block) + (self.seen(i, rest) if rest else 0)
        steps = -(-self.dst.shape[-1] // max(self.block_o, 1))
        row = lhs.shape[-1] * lhs.dtype.itemsize
        return int(lhs.shape[0] * seen * row * steps)


# ------------------------------------------------------------------------ data movement


@command(0x0030, Unit.DMA)
class Copy(Command):
    """dst = src, any strides: DMA when rows are contiguous, else the layout engine."""

    dst: View = f(VIEW, "dense tensor")
    src: View = f(VIEW, "any view of the same shape and dtype")


@command(0x0031, Unit.DMA)
class Concat(Command):
    """dst = the sources one after another along an axis."""

    dst: View = f(VIEW, "dense tensor")
    srcs: tuple[View, ...] = f(VIEWS, "any views")
    axis: int = f(U8, "axis of concatenation")


@command(0x0032, Unit.DMA)
class Pad(Command):
    """dst = src with edges of `value`; low (and the implied high) may be negative."""

    dst: View = f(VIEW, "dense tensor")
    src: View = f(VIEW, "any view")
    value: View = f(VIEW, "one element")
    low: tuple[int, ...] = f(INTS, "elements before each axis; negative trims")
    interior: tuple[int, ...] = f(INTS, "elements between neighbours, >= 0")


@command(0x0033, Unit.DMA)
class DynamicSlice(Command):
    """dst = the window of src at run-time start indices, clamped into range."""

    NAME = "dynamic_slice"
    dst: View = f(VIEW, "dense tensor")
    src: View = f(VIEW, "any view")
    starts: tuple[View, ...] = f(VIEWS, "one integer scalar per axis")


@command(0x0034, Unit.DMA)
class DynamicUpdate(Command):
    """dst = src with the window at run-time start indices (clamped) replaced."""

    NAME = "dynamic_update"
    dst: View = f(VIEW, "dense tensor")
    src: View = f(VIEW, "any view")
    update: View = f(VIEW, "any view of the window")
    starts: tuple[View, ...] = f(VIEWS, "one integer scalar per axis")


# ------------------------------------------------------------------------ control core


@command(0x0040, Unit.CORE)
class Gather(Command):
    """StableHLO `gather`; start indices are clamped into range."""

    dst: View = f(VIEW, "dense result")
    operand: View = f(VIEW, "dense operand")
    indices: View = f(VIEW, "dense start indices")
    offset_dims: tuple[int, ...] = f(INTS, "result axes that hold the slice")
    collapsed_dims: tuple[int, ...] = f(INTS, "operand axes dropped from the slice")
    operand_batching_dims: tuple[int, ...] = f(INTS, "batched operand axes")
    indices_batching_dims: tuple[int, ...] = f(INTS, "batched index axes")
    start_index_map: tuple[int, ...] = f(INTS, "operand axis of each index component")
    index_vector_dim: int = f(U8, "axis of `indices` with the components")
    slice_sizes: tuple[int, ...] = f(INTS, "window extents, 1 on dropped axes")


@command(0x0041, Unit.CORE)
class Scatter(Command):
    """StableHLO `scatter`: windows out of range are skipped, duplicates combine.

    The combiner takes (current_0.., update_0..) and gives the new values.  Updates
    are applied in row-major order of the index space.
    """

    dsts: tuple[View, ...] = f(VIEWS, "dense results")
    operands: tuple[View, ...] = f(VIEWS, "dense inputs")
    indices: View = f(VIEW, "dense scatter indices")
    updates: tuple[View, ...] = f(VIEWS, "dense updates")
    update_window_dims: tuple[int, ...] = f(INTS, "update axes of the window")
    inserted_dims: tuple[int, ...] = f(INTS, "operand axes missing in the window")
    operand_batching_dims: tuple[int, ...] = f(INTS, "batched operand axes")
    indices_batching_dims: tuple[int, ...] = f(INTS, "batched index axes")
    scatter_dims: tuple[int, ...] = f(INTS, "operand axis of each index component")
    index_vector_dim: int = f(U8, "axis of `indices` with the components")
    unique: bool = f(FLAG, "the program promises that no two windows overlap")
    sorted: bool = f(FLAG, "the program promises sorted indices")
    combiner: MicroProgram = f(MICRO, "scalar code")


@command(0x0042, Unit.CORE)
class Sort(Command):
    """Sort tensors together along an axis; the comparator takes (a0, b0, a1, b1..)."""

    dsts: tuple[View, ...] = f(VIEWS, "dense results")
    srcs: tuple[View, ...] = f(VIEWS, "dense inputs")
    axis: int = f(U8, "axis to sort along")
    stable: bool = f(FLAG, "equal elements keep their order")
    comparator: MicroProgram = f(MICRO, "scalar code; true when a precedes b")


@command(0x0043, Unit.CORE)
class ReduceWindow(Command):
    """StableHLO `reduce_window`; the combiner takes (acc_0.., value_0..)."""

    NAME = "reduce_window"
    dsts: tuple[View, ...] = f(VIEWS, "dense results")
    srcs: tuple[View, ...] = f(VIEWS, "dense inputs")
    inits: tuple[View, ...] = f(VIEWS, "one element each")
    window: tuple[int, ...] = f(INTS, "window extents")
    strides: tuple[int, ...] = f(INTS, "window strides")
    base_dilation: tuple[int, ...] = f(INTS, "dilation of the input")
    window_dilation: tuple[int, ...] = f(INTS, "dilation of the window")
    pad_low: tuple[int, ...] = f(INTS, "padding before each axis")
    pad_high: tuple[int, ...] = f(INTS, "padding after each axis")
    combiner: MicroProgram = f(MICRO, "scalar code")


@command(0x0044, Unit.CORE)
class SelectAndScatter(Command):
    """StableHLO `select_and_scatter` (the gradient of max pooling)."""

    NAME = "select_and_scatter"
    dst: View = f(VIEW, "dense result")
    operand: View = f(VIEW, "dense operand")
    source: View = f(VIEW, "dense source, one element per window")
    init: View = f(VIEW, "one element")
    window: tuple[int, ...] = f(INTS, "window extents")
    strides: tuple[int, ...] = f(INTS, "window strides")
    pad_low: tuple[int, ...] = f(INTS, "padding before each axis")
    pad_high: tuple[int, ...] = f(INTS, "padding after each axis")
    select: MicroProgram = f(MICRO, "(kept, candidate) -> true to keep")
    combiner: MicroProgram = f(MICRO, "(current, source) -> new value")


@command(0x0045, Unit.CORE)
class ReduceGeneric(Command):
    """StableHLO `reduce` with any combiner (acc_0.., value_0..), any arity."""

    NAME = "reduce_generic"
    dsts: tuple[View, ...] = f(VIEWS, "dense results without the reduced axes")
    srcs: tuple[View, ...] = f(VIEWS, "dense inputs")
    inits: tuple[View, ...] = f(VIEWS, "one element each")
    axes: tuple[int, ...] = f(INTS, "reduced axes")
    combiner: MicroProgram = f(MICRO, "scalar code")


@command(0x0046, Unit.CORE)
class Fft(Command):
    """Discrete Fourier transform over the last `len(lengths)` axes (1 to 3).

    f32 goes with complex<f32>, f64 with complex<f64>.  Sums are rounded in the type of
    the operand or better; the contract has the bound.
    """

    dst: View = f(VIEW, "dense result")
    src: View = f(VIEW, "dense input")
    kind: FftKind = f(Enum(FftKind), "which transform")
    lengths: tuple[int, ...] = f(INTS, "points of each transformed axis, >= 1")


# ------------------------------------------------------------------------ control flow


@record
class Carry:
    """One loop-carried tensor: four buffers of one dtype and shape.

    `enter` is copied to `current` before the first iteration; `next` becomes `current`
    for the following one (all `next` are read before any `current` is written); when
    the loop ends `current` is copied to `leave`.  `current` is read by condition and
    body and written by neither.  `next` is any value that the end of the body sees:
    written by the body, this or another carry's `current`, or a value from outside.
    What the condition writes is not visible in the body.  `leave` may not overlap
    `current` in address.
    """

    enter: View = f(VIEW, "dense value before the loop")
    current: View = f(VIEW, "dense value of this iteration")
    next: View = f(VIEW, "dense value for the next iteration")
    leave: View = f(VIEW, "dense value after the loop")


CARRIES: Codec = Seq(Struct(Carry))


@command(0x0050, Unit.CORE)
class Loop(Command):
    """Run the body a fixed number of times."""

    trips: int = f(U64, "iterations")
    carries: tuple[Carry, ...] = f(CARRIES, "loop-carried tensors")
    body: Block = f(BLOCK, "commands")


@command(0x0051, Unit.CORE)
class While(Command):
    """Run the body as long as the condition's predicate is true."""

    carries: tuple[Carry, ...] = f(CARRIES, "loop-carried tensors")
    cond: Block = f(BLOCK, "commands that compute the predicate")
    predicate: View = f(VIEW, "one i1 element, written by `cond`")
    body: Block = f(BLOCK, "commands")


@record
class Merge:
    """A result of a CASE: the branch taken copies its source to `dst`."""

    dst: View = f(VIEW, "dense result")
    srcs: tuple[View, ...] = f(VIEWS, "one dense value per branch")


@command(0x0052, Unit.CORE)
class Case(Command):
    """Run the branch that `index` names; out of range runs the last branch.

    Branches may share addresses; a merge's `dst` may not overlap its sources.
    """

    index: View = f(VIEW, "one i32 element")
    branches: tuple[Block, ...] = f(Seq(BLOCK), "one block per branch")
    merges: tuple[Merge, ...] = f(Seq(Struct(Merge)), "results")


@command(0x0060, Unit.HOST)
class Host(Command):
    """Call a user's Python function on the host; counted in the ledger."""

    dsts: tuple[View, ...] = f(VIEWS, "dense results")
    srcs: tuple[View, ...] = f(VIEWS, "dense operands")
    callback: int = f(U32, "index into the process's callback table")
    kind: str = f(TEXT, "what the user wrote, for messages and the ledger")
    effect: bool = f(FLAG, "has side effects: may not be dropped or reordered")


def encode_block(block: Block) -> bytes:
    """Encode a block of commands."""
    out = bytearray()
    BLOCK.pack(block, out)
    return bytes(out)


def decode_block(data: bytes) -> Block:
    """Decode a block; raises InvalidProgram on any malformed byte."""
    try:
        block, end = BLOCK.unpack(data, 0)
    except RecursionError:
        raise InvalidProgram("blocks are nested too deeply to decode") from None
    if end != len(data):
        raise InvalidProgram(f"{len(data) - end} bytes behind the last command")
    return block
