"""The verifier: the executable rules of the ISA.

`verify(program, chip)` either returns or raises a typed error that names the command,
the user's line, what was required and what was found.  It runs on every compile and
before every golden run, so it is written flat: one pass, no copies.
"""

from __future__ import annotations

from vkore_jax.chips import Chip
from vkore_jax.errors import InvalidProgram, ResourceExhausted
from vkore_jax.isa import Segment
from vkore_jax.program import Program, TensorSpec, check_nesting, dram_bytes
from vkore_jax.verify.checks import Context
from vkore_jax.verify.group import slot_bytes
from vkore_jax.verify.hazards import Walk

__all__ = ["slot_bytes", "verify"]


def verify(program: Program, chip: Chip) -> None:
    """Check every rule of the ISA on a program for a chip.

    Raises:
        InvalidProgram: a malformed command, shape, type, view or address.
        HazardError: two accesses that the stream does not order, or live buffers or
            tiles that share addresses.
        ResourceExhausted: DRAM, scratchpad, accumulators or the vector sequencer.
    """
    ctx = Context(program, chip)
    check_nesting(program.block)
    _check_memory(program, chip)
    _check_signature(ctx)
    Walk(ctx).run()


def _check_memory(program: Program, chip: Chip) -> None:
    if program.scratchpad_bytes > chip.scratchpad_bytes:
        raise ResourceExhausted(
            f"program {program.name!r} needs {program.scratchpad_bytes} bytes of "
            f"scratchpad, chip {chip.name!r} has {chip.scratchpad_bytes}"
        )
    limits = {Segment.ARENA: program.arena_bytes}
    limits[Segment.CONSTANT] = len(program.constants)
    outside: dict[Segment, int] = dict.fromkeys(Segment, 0)
    align = chip.dram_align_bytes
    for i, b in enumerate(program.buffers):
        if b.offset % align:
            raise InvalidProgram(
                f"buffer {i}: offset must be a multiple of {align}, found {b.offset}"
            )
        limit = limits.get(b.segment)
        if limit is None:
            outside[b.segment] += b.nbytes
            if b.offset + b.nbytes > chip.dram_bytes:
                raise ResourceExhausted(
                    f"buffer {i} ends at byte {b.offset + b.nbytes} of segment "
                    f"{b.segment.name}; chip {chip.name!r} has {chip.dram_bytes} bytes "
                    f"of DRAM"
                )
        elif b.offset + b.nbytes > limit:
            raise InvalidProgram(
                f"buffer {i} ends at byte {b.offset + b.nbytes} of segment "
                f"{b.segment.name}, which has {limit}"
            )
    total = dram_bytes(
        arguments=outside[Segment.ARGUMENT],
        results=outside[Segment.RESULT],
        constants=len(program.constants),
        arena=program.arena_bytes,
        donated=sum(
            spec.view.nbytes
            for number, spec in enumerate(program.params)
            if number in program.donated
        ),
    )
    if total > chip.dram_bytes:
        raise ResourceExhausted(
            f"program {program.name!r} needs {total} bytes of DRAM (arguments, "
            f"results, constants, arena, but what is donated), chip {chip.name!r} has "
            f"{chip.dram_bytes}"
        )


def _check_signature(ctx: Context) -> None:
    program = ctx.program
    for i, spec in enumerate(program.params):
        _check_spec(ctx, spec, Segment.ARGUMENT, f"parameter {i}")
    buffers = [spec.buffer for spec in program.params]
    if len(set(buffers)) != len(buffers):
        raise InvalidProgram("two parameters share a buffer")
    for i, spec in enumerate(program.results):
        _check_spec(ctx, spec, Segment.RESULT, f"result {i}")
    for i in program.donated:
        if not 0 <= i < len(program.params):
            raise InvalidProgram(f"donated parameter {i} does not exist")


def _check_spec(ctx: Context, spec: TensorSpec, segment: Segment, what: str) -> None:
    ctx.whole(spec.view, what)
    if not ctx.chip.stores(spec.dtype, spec.shape):
        raise InvalidProgram(
            f"{what}: chip {ctx.chip.name!r} keeps no float wider than "
            f"{ctx.chip.storage} between programs (single elements excepted), found "
            f"{spec.dtype}{list(spec.shape)}"
        )
    found = ctx.program.buffers[spec.buffer].segment
    if found is not segment:
        raise InvalidProgram(
            f"{what} must be in segment {segment.name}, found {found.name}"
        )
