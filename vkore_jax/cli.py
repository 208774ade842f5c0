"""The `vkore` command: look inside the machine, its programs and its tables.

Every subcommand is thin: it reads files, calls one function and prints.  Errors of
this package are printed as one message; the exit status is then 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vkore_jax import __version__
from vkore_jax.errors import InvalidArgument, VkoreError

if TYPE_CHECKING:
    from vkore_jax.program import Program, TensorSpec

_USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = _parser().parse_args(argv)
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has left; keep the interpreter's exit quiet as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except VkoreError as e:
        print(f"vkore: {type(e).__name__}: {e}", file=sys.stderr)
        return _USAGE_ERROR
    except OSError as e:
        print(f"vkore: {e}", file=sys.stderr)
        return _USAGE_ERROR
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vkore", description="Look inside the emulated NPU and its programs."
    )
    parser.add_argument("--version", action="version", version=f"vkore {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[Any], None], text: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    add("isa", _isa, "print the manual of the instruction set (Markdown)")
    add("ops", _ops, "print which StableHLO operators are supported (Markdown)")
    add("chips", _chips, "print the chip profiles (Markdown)")

    comp = add("compile", _compile, "compile StableHLO (text or artifact) to a program")
    comp.add_argument(
        "module", type=Path, help="a module as text, bytecode or artifact"
    )
    comp.add_argument("-o", "--output", type=Path, required=True, metavar="PROGRAM")
    comp.add_argument("--chip", help="profile or its .toml file (default: vk1)")

    dis = add("dis", _dis, "print programs as assembly text")
    dis.add_argument("program", type=Path, nargs="+", help="a .vkp file")
    length = dis.add_mutually_exclusive_group()
    length.add_argument(
        "--short",
        action="store_true",
        help="leave out long constants; the text then cannot be assembled",
    )
    length.add_argument(
        "--full", action="store_true", help="keep everything (the default)"
    )

    asm = add("asm", _asm, "assemble a text into a program")
    asm.add_argument("text", type=Path, help="assembly text; - reads standard input")
    asm.add_argument("-o", "--output", type=Path, required=True, metavar="PROGRAM")

    run = add("run", _run, "execute a program, without JAX's compiler")
    run.add_argument("program", type=Path, help="a .vkp file")
    run.add_argument(
        "--chip", help="the .toml file of the program's profile, if it is your own"
    )
    run.add_argument(
        "--engine",
        choices=("fast", "golden"),
        default="fast",
        help="fast: translated; golden: the specification (default: fast)",
    )
    run.add_argument(
        "--input",
        type=Path,
        action="append",
        default=[],
        metavar="X.npy",
        help="the next parameter, once for each",
    )
    run.add_argument(
        "--random",
        type=int,
        metavar="SEED",
        help="fill the parameters that no --input gives with random numbers",
    )
    run.add_argument(
        "--output", type=Path, metavar="DIR", help="write result_0.npy ... there"
    )

    compare = add("compare", _compare, "compare the loss trajectories of training runs")
    compare.add_argument(
        "reference", type=Path, help="run directory (with metrics.jsonl) to measure by"
    )
    compare.add_argument("runs", type=Path, nargs="+", help="run directories")
    compare.add_argument(
        "--null", type=Path, metavar="RUN", help="the reference with another seed"
    )
    compare.add_argument(
        "--seeds",
        type=Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="the reference with other seeds, for a band",
    )
    for flag, what in (
        ("--again", "a run, and itself with its sums in another order: a self-control"),
        ("--pair", "reference and run at another seed; may be repeated, as --again"),
    ):
        compare.add_argument(
            flag, type=Path, nargs=2, action="append", default=[], metavar="RUN",
            help=what,
        )  # fmt: skip
    compare.add_argument(
        "--until", type=int, metavar="STEP", help="leave out the steps after this one"
    )
    compare.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write report.md, series.csv and plots there",
    )
    compare.add_argument(
        "--no-plots", action="store_true", help="leave the plots out (no matplotlib)"
    )
    return parser


# ------------------------------------------------------------------------ subcommands


def _isa(args: argparse.Namespace) -> None:
    from vkore_jax.docs_gen import isa_manual

    print(isa_manual(), end="")


def _ops(args: argparse.Namespace) -> None:
    from vkore_jax.docs_gen import ops_table

    print(ops_table(), end="")


def _chips(args: argparse.Namespace) -> None:
    from vkore_jax.docs_gen import chips_table

    print(chips_table(), end="")


def _compile(args: argparse.Namespace) -> None:
    from vkore_jax.chips import get_chip
    from vkore_jax.lowering import compile

    chip = get_chip(args.chip)
    _write(args.output, compile(args.module.read_bytes(), chip))


def _dis(args: argparse.Namespace) -> None:
    from vkore_jax.asm import disassemble

    for path in args.program:
        if len(args.program) > 1:
            print(f"; {path}")
        text = disassemble(_read(path), elide_bytes=256 if args.short else None)
        print(text, end="")


def _asm(args: argparse.Namespace) -> None:
    from vkore_jax.asm import assemble

    try:
        text = (
            sys.stdin.read() if str(args.text) == "-" else args.text.read_text("utf-8")
        )
    except UnicodeDecodeError as e:
        raise InvalidArgument(f"{args.text}: not UTF-8 text: {e}") from None
    _write(args.output, assemble(text))


def _run(args: argparse.Namespace) -> None:
    from vkore_jax.chips import get_chip

    program = _read(args.program)
    if args.chip and get_chip(args.chip).name != program.chip:
        raise InvalidArgument(
            f"{args.program} was compiled for chip {program.chip!r}, --chip is "
            f"{get_chip(args.chip).name!r}"
        )
    inputs = _inputs(program, args.input, args.random)
    results = _engine(args.engine)(program.encoded, inputs)
    for i, (spec, array) in enumerate(zip(program.results, results)):
        print(f"result {i}: {_describe(spec)} {_summary(np.asarray(array))}")
        if args.output:
            args.output.mkdir(parents=True, exist_ok=True)
            np.save(args.output / f"result_{i}.npy", np.asarray(array))


def _compare(args: argparse.Namespace) -> None:
    from vkore_jax.compare import compare, markdown, write_report

    found = compare(
        args.reference,
        args.runs,
        null=args.null,
        seeds=args.seeds,
        again=args.again,
        pairs=args.pair,
        until=args.until,
    )
    print(markdown(found, with_plots=False), end="")
    if args.output:
        path = write_report(found, args.output, with_plots=not args.no_plots)
        print(f"\nwritten to {path.parent}: {', '.join(sorted(_names(path.parent)))}")


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _engine(name: str) -> Callable[[bytes, Any], Any]:
    if name == "golden":
        from vkore_jax.sim import golden

        return golden.run
    from vkore_jax.sim import fast

    return fast.run


# ---------------------------------------------------------------------------- helpers


def _read(path: Path) -> Program:
    from vkore_jax import program

    return program.decode(path.read_bytes())


def _write(path: Path, program: Program) -> None:
    path.write_bytes(program.encoded)
    print(
        f"{path}: {len(program.encoded)} bytes, fingerprint {program.fingerprint[:16]}"
    )


def _describe(spec: TensorSpec) -> str:
    return f"{spec.dtype.short}[{','.join(map(str, spec.shape))}]"


def _inputs(
    program: Program, files: Sequence[Path], seed: int | None
) -> list[np.ndarray[Any, Any]]:
    params = program.params
    if len(files) > len(params):
        raise InvalidArgument(
            f"{len(files)} inputs given, {program.name!r} takes {len(params)}: "
            + ", ".join(map(_describe, params))
        )
    if len(files) < len(params) and seed is None:
        raise InvalidArgument(
            f"{program.name!r} takes {len(params)} parameters "
            f"({', '.join(map(_describe, params))}), {len(files)} given; add --input "
            "FILE.npy for each, or --random SEED"
        )
    arrays = [_load(path, spec) for path, spec in zip(files, params)]
    rng = np.random.default_rng(seed)
    return arrays + [_draw(spec, rng) for spec in params[len(files) :]]


def _load(path: Path, spec: TensorSpec) -> np.ndarray[Any, Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as e:
        raise InvalidArgument(f"{path}: not a .npy file: {e}") from None
    # NumPy stores the types of ml_dtypes (bf16, ...) as raw bytes of the same width.
    if array.dtype.kind == "V" and array.dtype.itemsize == spec.dtype.itemsize:
        array = array.view(spec.dtype.numpy)
    if array.dtype != spec.dtype.numpy or array.shape != spec.shape:
        raise InvalidArgument(
            f"{path}: needs {_describe(spec)}, found {array.dtype.name}"
            f"[{','.join(map(str, array.shape))}]"
        )
    return array


def _draw(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draw normal floats, small integers, fair bits."""
    kind, shape = spec.dtype.kind, spec.shape
    if kind == "f":
        drawn: Any = rng.standard_normal(shape)
    elif kind == "c":
        drawn = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    elif kind == "b":
        drawn = rng.integers(0, 2, shape)
    else:
        drawn = rng.integers(0, min(8, 2 ** (spec.dtype.bits - 1)), shape)
    return np.asarray(drawn).astype(spec.dtype.numpy)


def _summary(array: np.ndarray[Any, Any]) -> str:
    if array.size == 0:
        return "empty"
    if array.size == 1:
        return f"= {array.reshape(-1)[0]}"
    if array.dtype.kind == "c":
        return f"mean magnitude {np.abs(array).mean():.6g}"
    wide = array.astype(np.float64)
    return f"min {wide.min():.6g} max {wide.max():.6g} mean {wide.mean():.6g}"


if __name__ == "__main__":
    sys.exit(main())
