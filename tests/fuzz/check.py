"""What must hold for the bytes of a case, and the process that executes it."""

from __future__ import annotations

import os
import pickle
import selectors
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vkore_jax.asm import assemble, disassemble
from vkore_jax.chips import TINY, Chip, named_chip
from vkore_jax.cost import account, dynamic_bodies
from vkore_jax.errors import (
    HazardError,
    InvalidArgument,
    InvalidProgram,
    ResourceExhausted,
    VersionMismatch,
    VkoreError,
)
from vkore_jax.isa import (
    Block,
    Group,
    Loop,
    MicroProgram,
    SelectAndScatter,
    Sort,
)
from vkore_jax.isa.access import accesses
from vkore_jax.program import Program, decode
from vkore_jax.sim.fast import translate_program
from vkore_jax.verify import verify

REFUSALS = (InvalidProgram, HazardError, ResourceExhausted)
"""What the verifier may say."""

STEPS, BYTES = 3_000, 1 << 24
"""Most block steps, and bytes moved, of a program that is executed here."""


class Finding(Exception):
    """A law that a case breaks."""


@dataclass(frozen=True)
class Examined:
    """How far a case comes: `stage` is decode, verify or run."""

    stage: str
    refusal: str = ""
    program: Program | None = None


def examine(data: bytes) -> Examined:
    """Decode, disassemble and assemble again, verify, account for, translate.

    Raises:
        Finding: anything but a typed refusal.
    """
    try:
        program = decode(data)
    except (InvalidProgram, VersionMismatch) as e:
        return Examined("decode", type(e).__name__)
    except Exception as e:
        raise Finding(f"decode: {type(e).__name__}: {e}") from e
    _round_trip(program, data)
    try:
        verify(program, chip_of(program))
    except VkoreError as e:
        if type(e) not in REFUSALS:
            raise Finding(f"verify: {type(e).__name__}: {e}") from e
        return Examined("verify", type(e).__name__, program)
    except Exception as e:
        raise Finding(f"verify: {type(e).__name__}: {e}") from e
    try:
        account(program.block).total([1] * dynamic_bodies(program.block))
        translate_program(program)
    except Exception as e:
        raise Finding(f"translate: {type(e).__name__}: {e}") from e
    return Examined("run", program=program)


def chip_of(program: Program) -> Chip:
    """Return the chip that a program is verified for, whatever it names."""
    try:
        return named_chip(program.chip)
    except InvalidArgument:
        return TINY


def _round_trip(program: Program, data: bytes) -> None:
    infos: tuple[Any, ...] = getattr(Program, "FIELDS")  # noqa: B009
    values = {x.name: getattr(program, x.name) for x in infos}
    if Program(**values).encoded != data:
        raise Finding("encode(decode(bytes)) has other bytes")
    try:
        again = assemble(disassemble(program)).encoded
    except Exception as e:
        raise Finding(f"assembly: {type(e).__name__}: {e}") from e
    if again != data:
        raise Finding("assembly: the text gives other bytes")


def steps(block: Block) -> int:
    """Return how many block steps golden takes, dynamic bodies counted once."""
    total = 0
    for located in block:
        cmd = located.cmd
        count = 1
        if isinstance(cmd, Group):
            for axis in cmd.grid:
                count *= max(1, -(-axis.extent // axis.block))
        inner = sum(steps(b) for _, b in accesses(cmd).blocks)
        total += count + inner * (cmd.trips if isinstance(cmd, Loop) else 1)
    return total


_MONOIDS = {"add", "mul", "max", "min", "and", "or", "xor"}
_ORDERS = {"lt", "gt", "lt_total", "gt_total"}


def _is_one(program: MicroProgram, names: set[str]) -> bool:
    """Return whether scalar code is one instruction of these on its two inputs."""
    if len(program.insns) != 1 or program.outputs != (2,):
        return False
    (insn,) = program.insns
    return insn.op.name in names and sorted(insn.srcs) == [0, 1]


def comparable(block: Block) -> bool:
    """Return whether the ISA says what a program's results are, but for roundings.

    Not with a comparator that is no order, a combiner that is no monoid, a broken
    promise; nor can a norm judge sums in floats of 16 bits or fewer.
    """
    for located in block:
        cmd = located.cmd
        code = getattr(cmd, "combiner", None)
        if code is not None and not _is_one(code, _MONOIDS):
            return False
        if isinstance(cmd, Sort) and not _is_one(cmd.comparator, _ORDERS):
            return False
        if isinstance(cmd, SelectAndScatter) or getattr(cmd, "unique", False):
            return False
        access = accesses(cmd)
        held = (*access.reads, *access.writes, *getattr(cmd, "tiles", ()))
        if any(x.dtype.is_float and x.dtype.bits < 32 for x in held):
            return False
        if not all(comparable(b) for _, b in access.blocks):
            return False
    return True


def affordable(program: Program) -> bool:
    """Return whether both engines run a program in a moment."""
    found = account(program.block)
    total = found.total([1] * len(found.dynamic))
    units = total.units.values()
    moved = sum(u.bytes_in + u.bytes_out + u.core_ops + u.vector_ops for u in units)
    held = sum(b.nbytes for b in program.buffers)
    moved += total.macs
    return steps(program.block) <= STEPS and moved + held <= BYTES


class Runner:
    """The worker process; started when needed, and again after it died.

    What counts is the processor time of the worker: the machine may be busy.
    """

    def __init__(self, seconds: float = 40.0, wall: float = 900.0) -> None:
        self.seconds = seconds
        self.wall = wall
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, data: bytes, seed: int, seconds: float | None = None
    ) -> tuple[str, str]:
        """Execute on both engines; verdicts of the worker, or crash or timeout."""
        limit = self.seconds if seconds is None else seconds
        body = pickle.dumps((data, seed))
        try:
            worker = self._worker()
            assert worker.stdin is not None
            worker.stdin.write(struct.pack("<I", len(body)) + body)
            worker.stdin.flush()
            return self._answer(worker, limit)
        except (BrokenPipeError, EOFError):
            code = self._process.wait() if self._process else None
            self.close()
            return "crash", f"the worker ended with status {code}"
        except TimeoutError:
            self.close()
            return "timeout", f"no answer within {limit} s of processor time"

    def _worker(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
            )
            self._answer(self._process, self.seconds)  # it has imported everything
        return self._process

    def _answer(self, worker: subprocess.Popen[bytes], seconds: float) -> Any:
        assert worker.stdout is not None
        used, end = _seconds(worker.pid) + seconds, time.monotonic() + self.wall
        stream, out, size = worker.stdout, b"", 4
        with selectors.DefaultSelector() as waiting:
            waiting.register(stream, selectors.EVENT_READ)
            while len(out) < size:
                if not waiting.select(1.0):
                    if _seconds(worker.pid) > used or time.monotonic() > end:
                        raise TimeoutError
                    continue
                part = os.read(stream.fileno(), size - len(out))
                if not part:
                    raise EOFError
                out += part
                if len(out) == 4:
                    size += struct.unpack("<I", out)[0]
        return pickle.loads(out[4:])

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def _seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
