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
    Hazard(
        what="A dynamic slice of a dynamic slice, or of a gather at one index, adds "
        "the starts and clamps their sum only (the algebraic simplifier does it): it "
        "reads beyond the inner slice.  An unsigned start beyond the signed integers "
        "counts as negative.",
        seen=("0.10.2",),
        avoided="Clamp the starts of every dynamic slice, update and one-window "
        "gather, in the type of the index.",
        code=("indices.py:starts", "indices.py:gathered"),
        tests=(
            "tests/jax/test_differ.py::test_unsigned_index_beyond_the_signed",
            "tests/jax/test_differ.py::test_indices_out_of_range[slice_of_slice]",
            "tests/jax/test_differ.py::test_indices_out_of_range[slice_of_roll]",
            "tests/jax/test_differ.py::test_indices_out_of_range[element_of_slice]",
        ),
    ),
    Hazard(
        what="A scatter at one index that is out of range, into a dynamic slice, "
        "writes an element from beyond that slice.",
        seen=("0.10.2",),
        avoided="A slice at the clamped index, the combiner, a choice, and an update.",
        code=("once.py:scattered",),
        tests=(
            "tests/jax/test_differ.py::test_indices_out_of_range[set_in_slice]",
            "tests/jax/test_differ.py::test_indices_out_of_range"
            "[add_to_window_of_slice]",
        ),
    ),
    Hazard(
        what="An update (dynamic_update_slice, scatter) of a tensor that is seen "
        "through a bitcast, by what the same fusion reads of the tensor, writes before "
        "it reads.",
        seen=("0.10.2",),
        avoided="Update a copy that is made inside the fusion, by a select that only "
        "LLVM can fold.",
        code=("inplace.py:apart",),
        tests=(
            "tests/jax/test_differ.py::test_update_by_itself[set_shifted]",
            "tests/jax/test_differ.py::test_update_by_itself[set_reversed]",
            "tests/jax/test_found.py::test_found[update_turned]",
        ),
    ),
    Hazard(
        what="A convolution with negative padding at the low end reads before its "
        "input.",
        seen=("0.10.2",),
        avoided="Slice, so that no padding is negative.",
        code=("padding.py:cut", "matrix.py:conv"),
        tests=("tests/jax/test_differ.py::test_convolution_cropped[padding0-base0]",),
    ),
    Hazard(
        what="select_and_scatter visits the elements of a padded window out of order "
        "(of equal ones, or with NaN, another is selected), starts at the wrong "
        "element with negative padding, and gives the first element what belongs to "
        "windows of padding alone.",
        seen=("0.10.2",),
        avoided="Scan the windows position by position and scatter to the places.",
        code=("pooling.py:scattered", "padding.py:windows_inside"),
        tests=(
            "tests/jax/test_differ.py::test_pool_gradient[window0-strides0-padding0]",
            "tests/jax/test_differ.py::test_pool_gradient[window1-strides1-padding1]",
            "tests/jax/test_differ.py::test_pool_gradient[window3-strides3-padding3]",
        ),
        stock=False,
    ),
    Hazard(
        what="max and min over 4,096 elements or more lose a NaN and the order of "
        "zeros (YNNPACK).",
        seen=("0.10.2",),
        avoided="Along the last axis a reduction of two tensors, along others maxima "
        "of slices, otherwise a clamp as combiner: none is given to YNNPACK.",
        code=("reductions.py:fold",),
        tests=(
            "tests/sim/test_engines.py::test_agreement[large/max-f32-64x128-axes1]",
            "tests/sim/test_engines.py::test_agreement[large/max-f32-64x128-axes0]",
            "tests/sim/test_engines.py::test_agreement[large-window/pool]",
        ),
    ),
    Hazard(
        what="max and min beside a sum of 4,096 elements or more lose a NaN (YNNPACK).",
        seen=("0.10.2",),
        avoided="A clamp with an infinite other end.",
        code=("reductions.py:extreme",),
        tests=("tests/sim/test_engines.py::test_agreement[beside/extremes-f32]",),
    ),
    Hazard(
        what="A conversion of f32 to 8-bit integers beside a reduction rounds to "
        "nearest, one of f64 makes -128 of NaN (YNNPACK).",
        seen=("0.10.2",),
        avoided="Clamp, convert to 32 bits, drop the upper ones.",
        code=("emitter.py:_saturated",),
        tests=("tests/sim/test_engines.py::test_agreement[beside/conversions]",),
    ),
    Hazard(
        what="Arithmetic of 8-bit integers beside a reduction saturates, and rounds "
        "quotients (YNNPACK).",
        seen=("0.10.2",),
        avoided="Compute in 16 bits and drop the upper ones.",
        code=("micro.py:_doubled",),
        tests=("tests/sim/test_engines.py::test_agreement[beside/i8]",),
    ),
    Hazard(
        what="exp of 88.4 to 88.7 and expm1 of f64 near 709.5 are infinite beside a "
        "reduction (YNNPACK).",
        seen=("0.10.2",),
        avoided="Select infinity where it overflows: YNNPACK has no select, and takes "
        "no value with two readers.",
        code=("micro.py:_exponential",),
        tests=("tests/sim/test_engines.py::test_agreement[beside/exponentials]",),
    ),
    Hazard(
        what="-(+0) is +0 beside a reduction (YNNPACK).",
        seen=("0.10.2",),
        avoided="Change the sign bit.",
        code=("micro.py:neg",),
        tests=("tests/sim/test_engines.py::test_agreement[beside/negation]",),
    ),
    Hazard(
        what="reduce_window drops the base dilation of axes whose window is 1, or "
        "takes interior padding of a unit axis for a crop; only negative padding "
        "around windows of one element aborts the process.",
        seen=("0.10.2",),
        avoided="Dilation and negative padding are a pad of their own, windows of one "
        "element no windows.",
        code=("windows.py:reduce_window",),
        tests=(
            "tests/sim/test_engines.py::test_agreement[large-window/base]",
            "tests/sim/test_engines.py::test_agreement[large-window/ones-cropped]",
        ),
    ),
    Hazard(
        what="An initial value that is not neutral counts several times: in a tree "
        "of a long reduction, in blocks of a cumulative window.",
        seen=("0.10.2",),
        avoided="Start from the neutral element and join the initial value at the end; "
        "of an unknown combiner, flag the padding.",
        code=("windows.py:_starts", "windows.py:_flagged"),
        tests=(
            "tests/sim/test_engines.py::test_agreement[large-window/cumulative-from-5]",
            "tests/sim/test_engines.py::test_agreement[large-window/affine-cumulative]",
            "tests/sim/test_engines.py::test_agreement[large-reduce/add-i32-from-5]",
        ),
    ),
    Hazard(
        what="A sort whose comparator is x < x reverses the tensor.",
        seen=("0.10.2",),
        avoided="Write x > x, which is as false.",
        code=("core.py:_undirected",),
        tests=("tests/sim/test_engines.py::test_agreement[sort/all-equal]",),
    ),
    Hazard(
        what="The algebraic simplifier makes x of log(exp(x)), |x| of sqrt(x * x), "
        "y log(x) of log(x ** y), x * (1 / c) of x / c, and joins constants.",
        seen=("0.10.2",),
        avoided="That pass does not run (`load._OPTIONS`); the translation itself "
        "makes a product of a quotient where that is exact.",
        code=("micro.py:div",),
        tests=(
            "tests/sim/test_engines.py::test_agreement[algebra/by-three]",
            "tests/sim/test_engines.py::test_agreement[algebra/add-sub]",
            "tests/sim/test_engines.py::test_agreement[algebra/mul-mul]",
        ),
    ),
    Hazard(
        what="x + 0 is x, also where x is -0 (the simplifier of MLIR, which has no "
        "option).",
        seen=("0.10.2",),
        avoided="A constant +0 is hidden as bits.",
        code=("micro.py:_concealed",),
        tests=("tests/sim/test_engines.py::test_agreement[algebra/plus-zero]",),
    ),
    Hazard(
        what="Subnormals: cbrt makes -5.6e-16 of them, log another number on some "
        "processors, atan2 and pow do not take them for zeros, sin, tan, tanh and "
        "expm1 keep them.",
        seen=("0.10.2",),
        avoided="Make zeros of them first.",
        code=("micro.py:_flushed",),
        tests=(
            "tests/sim/test_engines.py::test_agreement[algebra/tiny-cbrt]",
            "tests/sim/test_engines.py::test_agreement[algebra/tiny-pow]",
        ),
    ),
    Hazard(
        what="Constants are folded by threads that do not flush subnormals; bf16 ones "
        "are converted by threads that do.",
        seen=("0.10.2",),
        avoided="Subnormal constants are hidden as bits, and zeros for arithmetic.",
        code=("emitter.py:hidden", "micro.py:_operand"),
        tests=("tests/sim/test_engines.py::test_agreement[algebra/tiny-constant]",),
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
