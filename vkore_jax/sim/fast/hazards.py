"""What XLA:CPU gets wrong, and how the translation avoids it: one table.

The golden engine is the specification.  Where XLA:CPU does something else, the
translation writes another form, and this table says so: what goes wrong, in which
jaxlib it was seen, which code avoids it, and the test that fails without that code.
When XLA is cured of a row, the row and its code can go: `python -m
vkore_jax.sim.fast.hazards` prints the table; `tests/sim/test_hazards.py` holds it to
the code and the tests that it names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """One thing that XLA:CPU gets wrong.

    Attributes:
        what: what is computed, and what comes out instead.
        seen: versions of jaxlib in which it was seen.
        avoided: what the translation writes instead.
        code: where, as `file.py:name`, below `vkore_jax/sim/fast`.
        tests: what fails when the avoiding code is taken out, as pytest names it:
            `path::function[case]`.
        stock: true when a user of the stock CPU client meets it, too.
    """

    what: str
    seen: tuple[str, ...]
    avoided: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    stock: bool = True


HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        what="Concatenation of sub-byte elements whose part begins inside a byte "
        "aborts the process.",
        seen=("0.10.2",),
        avoided="Join whole bytes (bf16 for floats) and narrow the result.",
        code=("core.py:concat",),
        tests=("tests/test_op_matrix.py::test_claims[stablehlo.concatenate]",),
    ),
    Hazard(
        what="Elements of two bits cannot be sorted.",
        seen=("0.10.2",),
        avoided="Sort them as bytes; the comparator narrows them first.",
        code=("core.py:sort",),
        tests=("tests/test_op_matrix.py::test_claims[stablehlo.sort]",),
    ),
    Hazard(
        what="A power of integers reads six bits of the exponent.",
        seen=("0.10.2",),
        avoided="Squaring, bit by bit of the exponent.",
        code=("micro.py:pow_",),
        tests=("tests/sim/test_engines.py::test_agreement[micro/pow-i32]",),
    ),
    Hazard(
        what="The bit count of a narrow signed integer counts the eight bits of the "
        "sign-extended number.",
        seen=("0.10.2",),
        avoided="Count the bits of the unsigned type of that width.",
        code=("micro.py:popcnt",),
        tests=("tests/test_op_matrix.py::test_claims[stablehlo.popcnt]",),
    ),
    Hazard(
        what="-6 as f4E2M1FN becomes the integer -128.",
        seen=("0.10.2",),
        avoided="Go through f32, which holds every four-bit float.",
        code=("micro.py:convert",),
        tests=("tests/test_op_matrix.py::test_claims[stablehlo.convert]",),
    ),
    Hazard(
        what="Comparison in total order of the FNUZ types and of four-bit floats "
        "does not order their NaN and zeros.",
        seen=("0.10.2",),
        avoided="Compare integer keys with signed integer comparisons.",
        code=("micro.py:_total_key",),
        tests=(
            "tests/sim/test_engines.py::test_agreement[sort/f8E5M2FNUZ-total-order]",
        ),
    ),
)


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| XLA:CPU | seen in | instead | code | test |", "| --- " * 5 + "|"]
    for row in HAZARDS:
        what = row.what if row.stock else f"{row.what} (Not met on the stock client.)"
        cells = [what, ", ".join(row.seen), row.avoided]
        cells += [", ".join(f"`{x}`" for x in names) for names in (row.code, row.tests)]
        lines.append(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
