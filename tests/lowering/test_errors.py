"""Compile errors of four kinds: operator, types, shapes, place, remedy in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.matrix.cells import FILE, LINE, Cell, located, tensor
from vkore_jax import dtypes, lowering
from vkore_jax.chips import TINY, Chip
from vkore_jax.dtypes import C64, F32, I32, U64
from vkore_jax.errors import (
    InternalError,
    InvalidArgument,
    NotYetImplemented,
    ResourceExhausted,
    UnsupportedOp,
    VkoreError,
)
from vkore_jax.lowering.artifact import read_module
from vkore_jax.lowering.importer import import_module
from vkore_jax.lowering.registry import Rule, RuleSet


@dataclass(frozen=True)
class Row:
    """One refused program.

    Attributes:
        id: name of the case.
        error: whose problem it is.
        body: the operator; its inputs are zeros of the `inputs` types.
        inputs: types of the inputs.
        results: types of the results.
        says: what the message must contain besides operator, types and place.
        chip: what it is compiled for.
    """

    id: str
    error: type[VkoreError]
    body: str
    inputs: tuple[tuple[dtypes.DType, tuple[int, ...]], ...]
    results: tuple[str, ...]
    says: tuple[str, ...]
    chip: Chip = TINY

    @property
    def cell(self) -> Cell:
        values = tuple(np.zeros(shape, t.numpy) for t, shape in self.inputs)
        return Cell(self.body, values, self.results)


F4, C4 = tensor(F32, 4), tensor(C64, 4)
LOOP = f"""%r = "stablehlo.reduce"(%a, %b) ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %z = stablehlo.while(%w = %x) : tensor<f32>
          cond {{
            %p = stablehlo.compare LT, %w, %y, FLOAT :
              (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            %q = stablehlo.add %w, %w : tensor<f32>
            stablehlo.return %q : tensor<f32>
          }}
        stablehlo.return %z : tensor<f32>
      }}) {{dimensions = array<i64: 0>}} : ({F4}, tensor<f32>) -> tensor<f32>"""

ROWS = [
    Row(
        "order-of-complex",
        UnsupportedOp,
        f"%r = stablehlo.compare LT, %a, %b, FLOAT : ({C4}, {C4}) -> tensor<4xi1>",
        ((C64, (4,)), (C64, (4,))),
        ("tensor<4xi1>",),
        ("only compared for equality", "jnp.real"),
    ),
    Row(
        "dot-algorithm",
        UnsupportedOp,
        """%r = "stablehlo.dot_general"(%a, %b) {algorithm = #stablehlo.dot_algorithm<
      lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32,
      lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 9,
      allow_imprecise_accumulation = false>, dot_dimension_numbers =
      #stablehlo.dot<lhs_contracting_dimensions = [1],
      rhs_contracting_dimensions = [0]>} :
      (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>""",
        ((F32, (2, 3)), (F32, (3, 2))),
        ("tensor<2x2xf32>",),
        ("bf16 x bf16 -> f32 with 9 products", "use BF16_BF16_F32"),
    ),
    Row(
        "loop-in-a-combiner",
        UnsupportedOp,
        LOOP,
        ((F32, (4,)), (F32, ())),
        ("tensor<f32>",),
        ("must be element code", "compute that outside"),
    ),
    Row(
        "state-of-random-bits",
        UnsupportedOp,
        "%s, %r = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : "
        "(tensor<3xui64>) -> (tensor<3xui64>, tensor<4xui32>)",
        ((U64, (3,)),),
        ("tensor<4xui32>",),
        ("128 bits of state", "found ui64[3]", "jax.random.key"),
    ),
    Row(
        "bits-of-complex",
        UnsupportedOp,
        "%r = stablehlo.bitcast_convert %a : (tensor<2xcomplex<f32>>) -> "
        "tensor<complex<f64>>",
        ((C64, (2,)),),
        ("tensor<complex<f64>>",),
        ("no integer type of its width", "real and imaginary part"),
    ),
    Row(
        "unknown-target",
        UnsupportedOp,
        f"%r = stablehlo.custom_call @cublas$gemm(%a) : ({F4}) -> {F4}",
        ((F32, (4,)),),
        (F4,),
        ("'cublas$gemm'", "jax.pure_callback"),
    ),
    Row(
        "initial-value-of-top-k",
        UnsupportedOp,
        f"""%c = stablehlo.constant dense<0.0> : tensor<f32>
      %d = stablehlo.constant dense<-1> : tensor<i32>
      %r:2 = stablehlo.custom_call @ApproxTopK(%a, %b, %c, %d) {{mhlo.backend_config =
      {{reduction_dim = 0 : i64, top_k = 2 : i64}}}} :
      ({F4}, tensor<4xi32>, tensor<f32>, tensor<i32>) ->
      (tensor<2xf32>, tensor<2xi32>)""",
        ((F32, (4,)), (I32, (4,))),
        ("tensor<2xf32>", "tensor<2xi32>"),
        ("must be an infinity", "jax.lax.approx_max_k"),
    ),
    Row(
        "einsum",
        NotYetImplemented,
        '%r = "stablehlo.einsum"(%a, %b) {einsum_config = "i,i->i"} : '
        f"({F4}, {F4}) -> {F4}",
        ((F32, (4,)), (F32, (4,))),
        (F4,),
        ("legacy op", "please report"),
    ),
    Row(
        "batch-norm",
        NotYetImplemented,
        f"""%r = "stablehlo.batch_norm_inference"(%a, %b, %b, %b, %b)
      {{epsilon = 1.0e-5 : f32, feature_index = 1 : i64}} :
      (tensor<2x4xf32>, {F4}, {F4}, {F4}, {F4}) -> tensor<2x4xf32>""",
        ((F32, (2, 4)), (F32, (4,))),
        ("tensor<2x4xf32>",),
        ("write the normalisation with jnp",),
    ),
    Row(
        "legacy-random",
        NotYetImplemented,
        "%s = stablehlo.constant dense<4> : tensor<1xi64>\n"
        "%r = stablehlo.rng %a, %b, %s, distribution = UNIFORM : "
        f"(tensor<f32>, tensor<f32>, tensor<1xi64>) -> {F4}",
        ((F32, ()), (F32, ())),
        (F4,),
        ("use jax.random",),
    ),
    Row(
        "window-too-large",
        ResourceExhausted,
        """%r = stablehlo.convolution(%a, %b)
      dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
      window = {stride = [1], pad = [[0, 0]]}
      {feature_group_count = 1 : i64, batch_group_count = 1 : i64} :
      (tensor<1x3x9000xf32>, tensor<3x9000x2xf32>) -> tensor<1x1x2xf32>""",
        ((F32, (1, 3, 9000)), (F32, (3, 9000, 2))),
        ("tensor<1x1x2xf32>",),
        ("bytes of scratchpad", "chip 'tiny' has 16,384", "fewer input channels"),
    ),
    Row(
        "array-too-large",
        ResourceExhausted,
        "%r = stablehlo.broadcast %a, sizes = [1048576, 1024] : "
        "(tensor<f32>) -> tensor<1048576x1024xf32>",
        ((F32, ()),),
        ("tensor<1048576x1024xf32>",),
        ("bytes of DRAM", "too many", "largest", "use a smaller batch"),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_messages(row: Row) -> None:
    """Operator, element types, shapes, the user's line, and what to do."""
    with pytest.raises(row.error) as caught:
        lowering.compile(located(row.cell).encode(), row.chip)
    text = str(caught.value)
    assert type(caught.value) is row.error
    shown = [f"{t.short}{list(shape)}" for t, shape in row.inputs]
    for part in (f"{FILE}:{LINE}", *shown, *row.says):
        assert part in text, f"lacks {part!r}:\n{text}"
    assert "\n\n" not in text
    assert len(text) < 1200


def compile_text(text: str) -> None:
    lowering.compile(text.encode(), TINY)


@pytest.mark.parametrize(
    ("text", "error", "parts"),
    [
        (
            "module {func.func public @main(%a: tensor<?xf32>) -> tensor<?xf32> "
            "{return %a : tensor<?xf32>}}",
            UnsupportedOp,
            ("tensor<?xf32>", "static shape", "jit the function for concrete shapes"),
        ),
        (
            "module {func.func public @main(%a: tensor<4x!quant.uniform<i8:f32, 0.5>>)"
            " -> tensor<4x!quant.uniform<i8:f32, 0.5>> "
            "{return %a : tensor<4x!quant.uniform<i8:f32, 0.5>>}}",
            UnsupportedOp,
            ("quant.uniform", "it has i1, i8"),
        ),
        (
            "module attributes {mhlo.num_partitions = 2 : i32} "
            "{func.func public @main() {return}}",
            NotYetImplemented,
            ("2 devices", "jit without a mesh"),
        ),
        ("module {}", InvalidArgument, ("no function `main`",)),
        (
            "module {func.func public @main() {call @main() : () -> () return}}",
            InvalidArgument,
            ("calls itself",),
        ),
        ("what", InvalidArgument, ("neither",)),
    ],
    ids=["dynamic", "quantized", "devices", "no-main", "recursive", "no-module"],
)
def test_messages_about_modules(
    text: str, error: type[VkoreError], parts: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        compile_text(text)
    for part in parts:
        assert part in str(caught.value)


def test_a_rule_that_fails_is_our_bug() -> None:
    """Any other exception of a rule is an internal error with the same facts."""

    def broken(b: object, op: object, *operands: object) -> None:
        raise KeyError("surprise")

    rules = RuleSet("broken")
    rules.add(Rule("stablehlo.sine", broken))
    cell = Cell(f"%r = stablehlo.sine %a : {F4}", (np.zeros(4, np.float32),), (F4,))
    with pytest.raises(InternalError) as caught:
        import_module(read_module(located(cell).encode()), TINY, rules)
    text = str(caught.value)
    for part in ("KeyError: 'surprise'", "f32[4]", f"{FILE}:{LINE}", "report it"):
        assert part in text, text
