"""The importer itself: structure, locations, errors, odd modules, speed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.lowering import artifacts, ir_eval
from tests.lowering.oracle import compare, nodes
from vkore_jax import dtypes, isa
from vkore_jax.chips import VK1
from vkore_jax.errors import InvalidArgument, NotYetImplemented, UnsupportedOp
from vkore_jax.isa import ReduceKind, Strategy
from vkore_jax.lowering import ir
from vkore_jax.lowering.importer import import_artifact

X = np.ones((4, 5), np.float32)
W = np.ones((5, 6), np.float32)


def of(module: ir.Module, kind: type) -> list[Any]:
    """Return the nodes of a class, or the commands of an ISA class."""
    return [
        n
        for n in nodes(module.graph)
        if isinstance(n, kind) or (isinstance(n, ir.Direct) and n.command is kind)
    ]


def text(body: str, more: str = "") -> bytes:
    return f"module {{ func.func @main{body} {more} }}".encode()


# ------------------------------------------------------------------------- precision


@pytest.mark.parametrize(
    ("precision", "strategy"),
    [
        (None, Strategy.BF16X1),
        ("high", Strategy.BF16X3),
        ("highest", Strategy.BF16X6),
        (lax.DotAlgorithmPreset.BF16_BF16_F32, Strategy.BF16X1),
        (lax.DotAlgorithmPreset.BF16_BF16_F32_X3, Strategy.BF16X3),
        (lax.DotAlgorithmPreset.BF16_BF16_F32_X6, Strategy.BF16X6),
        (lax.DotAlgorithmPreset.TF32_TF32_F32, Strategy.BF16X3),
        (lax.DotAlgorithmPreset.F32_F32_F32, Strategy.BF16X6),
    ],
)
def test_precision_selects_the_strategy(precision: Any, strategy: Strategy) -> None:
    module = artifacts.lower(lambda x, w: jnp.matmul(x, w, precision=precision), X, W)
    assert [g.strategy for g in of(module, ir.Gemm)] == [strategy]


def test_mixed_precision_takes_the_higher() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.dot(x, w, precision=("default", "highest"))

    assert of(artifacts.lower(f, X, W), ir.Gemm)[0].strategy is Strategy.BF16X6


def test_an_f64_algorithm_is_one_whatever_the_operands() -> None:
    """JAX converts the operands itself; another front end need not."""
    algorithm = (
        "<lhs_precision_type = f64, rhs_precision_type = f64, accumulation_type = f64, "
        "lhs_component_count = 1, rhs_component_count = 1, "
        "num_primitive_operations = 1, allow_imprecise_accumulation = false>"
    )
    types = "(tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>"
    body = f"""(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>) -> tensor<4x6xf32> {{
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0],
        algorithm = {algorithm} : {types}
      return %r : tensor<4x6xf32> }}"""
    (gemm,) = of(import_artifact(text(body), VK1), ir.Gemm)
    assert gemm.strategy is Strategy.LANES
    assert gemm.result.dtype is dtypes.F64


def test_unattainable_algorithm_is_refused_with_alternatives() -> None:
    def f(x: Any, w: Any) -> Any:
        preset = lax.DotAlgorithmPreset.BF16_BF16_F32_X9
        return jnp.matmul(x, w, precision=preset)

    with pytest.raises(UnsupportedOp, match="BF16_BF16_F32_X6"):
        artifacts.lower(f, X, W)


@pytest.mark.parametrize(
    ("dtype", "strategy", "result"),
    [
        ("float16", Strategy.BF16X3, "float16"),
        ("bfloat16", Strategy.BF16X1, "bfloat16"),
        ("float8_e4m3fn", Strategy.BF16X1, "float32"),
        ("int8", Strategy.INT8, "int32"),
        ("uint8", Strategy.LANES, "int32"),
        ("int32", Strategy.LANES, "int32"),
        ("complex64", Strategy.LANES, "complex64"),
    ],
)
def test_element_type_selects_the_strategy(
    dtype: str, strategy: Strategy, result: str
) -> None:
    x, w = jnp.ones((4, 5), dtype), jnp.ones((5, 6), dtype)
    gemm = of(artifacts.lower(lambda a, b: a @ b, x, w), ir.Gemm)[0]
    assert gemm.strategy is strategy
    assert gemm.result.dtype.name == result


@pytest.mark.parametrize("types", [("f16", "bf16"), ("bf16", "f16")])
def test_the_operand_with_more_digits_decides(types: tuple[str, str]) -> None:
    """JAX converts to one type first; another front end need not."""
    a, b = f"tensor<4x5x{types[0]}>", f"tensor<5x6x{types[1]}>"
    body = f"""(%a: {a}, %b: {b}) -> tensor<4x6xf32> {{
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : ({a}, {b}) -> tensor<4x6xf32>
      return %r : tensor<4x6xf32> }}"""
    (gemm,) = of(import_artifact(text(body), VK1), ir.Gemm)
    assert gemm.strategy is Strategy.BF16X3


def test_reversed_windows_stay_reversed() -> None:
    types = "(tensor<1x5x2xf32>, tensor<3x2x4xf32>) -> tensor<1x3x4xf32>"
    body = f"""(%a: tensor<1x5x2xf32>, %b: tensor<3x2x4xf32>) -> tensor<1x3x4xf32> {{
      %r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {{reverse = [true]}} {{batch_group_count = 1 : i64,
        feature_group_count = 1 : i64}} : {types}
      return %r : tensor<1x3x4xf32> }}"""
    (conv,) = of(import_artifact(text(body), VK1), ir.Direct)
    assert conv.attrs["reversal"] == (1,)


def test_float8_products_need_what_their_strategy_needs() -> None:
    """An array of e5m2 alone takes such operands as the bf16 that holds them."""
    x, w = jnp.ones((4, 5), "float8_e5m2"), jnp.ones((5, 6), "float8_e5m2")
    for types, strategy in (
        (("bf16", "f8E4M3FN", "f8E5M2"), Strategy.FP8),
        (("bf16", "f8E5M2"), Strategy.BF16X1),
    ):
        chip = dataclasses.replace(VK1, matrix_dtypes=types, mac_rates={})
        gemm = of(artifacts.lower(lambda a, b: a @ b, x, w, chip=chip), ir.Gemm)[0]
        assert gemm.strategy is strategy


# ------------------------------------------------------------------------- structure


def moves(f: Callable[..., Any], *args: Any) -> int:
    """Count moves that are not mere changes of extents."""
    module = artifacts.lower(f, *args)
    return sum(
        not isa.View(0, n.result.dtype, n.offset, n.result.shape, n.strides).is_dense
        for n in of(module, ir.Move)
    )


def test_dot_general_needs_few_transposed_copies() -> None:
    y = np.ones((4, 6), np.float32)

    def weight_gradient(x: Any, dy: Any) -> Any:
        dot = lax.dot_general(dy, x, (((0,), (0,)), ((), ())))
        return dot.T

    assert moves(lambda x, w: x @ w, X, W) == 0
    assert moves(weight_gradient, X, y) == 1
    assert moves(lambda x, w: x @ w.T, X, W.T.copy()) == 1
    # x^T w^T is (w x)^T: two operands that the layout engine turns block by block on
    # the chip, for less than one result copied in DRAM.
    assert moves(lambda x, w: x.T @ w.T, X, np.ones((6, 4), np.float32)) == 2


def test_broadcast_batch_axis_is_not_copied() -> None:
    def f(q: Any, k: Any) -> Any:
        return q @ jnp.broadcast_to(k, (2, 4, 5, 6))

    q, k = np.ones((2, 4, 3, 5), np.float32), np.ones((2, 1, 5, 6), np.float32)
    (gemm,) = of(artifacts.lower(f, q, k), ir.Gemm)
    assert gemm.operands[1].shape == (2, 1, 5, 6)


def test_splats_become_immediates() -> None:
    module = artifacts.lower(lambda x: 2 * x + 1, X)
    assert [type(n) for n in module.graph.nodes] == [ir.Vec, ir.Vec]
    assert all(len(n.operands) == 1 for n in module.graph.nodes)


def test_argmax_is_a_reduction_and_generic_reducers_are_not() -> None:
    (node,) = of(artifacts.lower(lambda x: jnp.argmax(x, 1), X), ir.Reduce)
    assert node.kind is ReduceKind.ARGMAX

    def last(x: Any) -> Any:
        index = lax.broadcasted_iota(jnp.int32, x.shape, 1)
        better = lambda a, b: (  # noqa: E731
            jnp.where(a[0] > b[0], a[0], b[0]),
            jnp.where(a[0] > b[0], a[1], b[1]),
        )
        return lax.reduce((x, index), (-np.inf, 0), better, (1,))[1]

    module = artifacts.lower(last, X)
    assert not of(module, ir.Reduce)
    assert len(of(module, isa.ReduceGeneric)) == 1


def test_cumsum_takes_logarithmically_many_steps() -> None:
    module = artifacts.lower(lambda x: jnp.cumsum(x), np.ones(1000, np.float32))
    assert len(of(module, isa.Pad)) == 10
    assert not of(module, isa.ReduceWindow)


def test_loops_that_count_have_a_trip_count() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(2, 9, lambda i, v: v * 2, x)

    (loop,) = of(artifacts.lower(f, X), ir.While)
    assert loop.trips == 7


def test_invariant_work_leaves_the_loop() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, 9, lambda i, v: v @ w.T.astype(jnp.float32), x)

    module = artifacts.lower(
        f, np.ones((4, 5), np.float32), jnp.ones((5, 5), "bfloat16")
    )
    (loop,) = of(module, ir.While)
    assert not any(isinstance(n, ir.Move) for n in loop.body.nodes)


def test_known_branch_is_inlined() -> None:
    module = artifacts.lower(
        lambda x: lax.switch(jnp.int32(5), [jnp.sin, jnp.cos], x), X
    )
    assert not of(module, ir.Case)


def test_unused_work_is_dropped() -> None:
    module = artifacts.lower(lambda x: (x @ x.T, x + 1)[1], X)
    assert [type(n) for n in module.graph.nodes] == [ir.Vec]


# ------------------------------------------------------------------------ interface


def test_donation_and_memory_kinds() -> None:
    module = artifacts.lower(lambda a, b: (b + 1, a[0]), X, X, donate_argnums=1)
    assert module.donated == (1,)
    assert module.result_memory_kinds == ("", "")
    body = (
        "(%a: tensor<2xf32> {jax.buffer_donor = true}) -> "
        '(tensor<2xf32> {mhlo.memory_kind = "pinned_host"}) '
        "{ return %a : tensor<2xf32> }"
    )
    module = import_artifact(text(body), VK1)
    assert module.donated == (0,)
    assert module.result_memory_kinds == ("pinned_host",)


def test_location_is_the_users_line() -> None:
    def user_function(x: Any) -> Any:
        return jnp.tanh(x)

    (node,) = artifacts.lower(user_function, X).graph.nodes
    assert node.loc.file == __file__
    assert node.loc.line == user_function.__code__.co_firstlineno + 1
    assert node.loc.function.endswith("user_function")
    assert node.loc.op.endswith("tanh")


def test_location_skips_libraries() -> None:
    import flax.linen as nn

    layer = nn.Dense(3)
    params = jax.tree.map(jnp.zeros_like, {"params": {"kernel": W, "bias": W[0]}})
    layer = nn.Dense(6)
    module = artifacts.lower(lambda p, x: layer.apply(p, x), params, X)
    assert {n.loc.file for n in nodes(module.graph) if n.operands} == {__file__}


def test_callbacks_become_host_calls_in_order() -> None:
    call = (
        "stablehlo.custom_call @vkore.py_callback(%t, %a) "
        '{backend_config = "3", has_side_effect = true} : '
        "(!stablehlo.token, tensor<2xf32>) -> (!stablehlo.token, tensor<2xf32>)"
    )
    body = (
        "(%t: !stablehlo.token {jax.token = true}, %a: tensor<2xf32>) -> "
        "(!stablehlo.token, tensor<2xf32>) { %r:2 = "
        + call
        + ' %u = "stablehlo.custom_call"(%a) {call_target_name = "vkore.py_callback", '
        'backend_config = "1", has_side_effect = true} : '
        "(tensor<2xf32>) -> tensor<2xf32> "
        "return %r#0, %r#1 : !stablehlo.token, tensor<2xf32> }"
    )
    module = import_artifact(text(body), VK1)
    calls = of(module, ir.HostCall)
    assert [(c.callback, c.effect) for c in calls] == [(3, True), (1, True)]
    assert [v.shape for v in module.graph.params] == [(), (2,)]
    data = np.array([1, 2], np.float32)
    found = ir_eval.evaluate(module, [np.bool_(False), data], lambda i, x: [x * i])
    np.testing.assert_array_equal(found[1], data * 3)


def test_a_sink_keeps_nothing() -> None:
    body = """(%a: tensor<f32>) -> tensor<f32> {
      %b = stablehlo.add %a, %a : tensor<f32>
      stablehlo.custom_call @dce_sink(%b) {has_side_effect = true} :
        (tensor<f32>) -> ()
      return %a : tensor<f32> }"""
    assert not import_artifact(text(body), VK1).graph.nodes


def test_effects_in_branches_and_loops_are_kept() -> None:
    body = """(%p: tensor<i1>, %a: tensor<f32>) {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %n = stablehlo.constant dense<3> : tensor<i32>
      %o = stablehlo.constant dense<1> : tensor<i32>
      %w = stablehlo.while(%i = %c) : tensor<i32>
        cond { %x = stablehlo.compare LT, %i, %n :
                 (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %x : tensor<i1> }
        do { %y = stablehlo.custom_call @vkore.py_callback(%a) {backend_config = "0",
               has_side_effect = true} : (tensor<f32>) -> tensor<f32>
             %z = stablehlo.add %i, %o : tensor<i32>
             stablehlo.return %z : tensor<i32> }
      return }"""
    module = import_artifact(text(body), VK1)
    assert len(of(module, ir.HostCall)) == 1
    seen: list[int] = []
    ir_eval.evaluate(
        module,
        [np.bool_(True), np.float32(1)],
        lambda i, x: (seen.append(i), [x])[1],
    )
    assert seen == [0, 0, 0]


def test_effect_in_a_branch_without_results_is_kept() -> None:
    body = """(%i: tensor<i32>, %a: tensor<f32>) {
      "stablehlo.case"(%i) ({
        stablehlo.custom_call @vkore.py_callback(%a) {backend_config = "4",
          has_side_effect = true} : (tensor<f32>) -> ()
        stablehlo.return
      }, { stablehlo.return }) : (tensor<i32>) -> ()
      return }"""
    module = import_artifact(text(body), VK1)
    seen: list[int] = []
    for index in (0, 1):
        args = [np.int32(index), np.float32(1)]
        ir_eval.evaluate(module, args, lambda i, x: seen.append(i) or [])
    assert seen == [4]


def test_deep_call_chain() -> None:
    depth = 3000
    functions = [
        f"func.func private @f{i}(%a: tensor<f32>) -> tensor<f32> {{ "
        f"%r = func.call @f{i + 1}(%a) : (tensor<f32>) -> tensor<f32> "
        "return %r : tensor<f32> }"
        for i in range(depth)
    ]
    functions.append(
        f"func.func private @f{depth}(%a: tensor<f32>) -> tensor<f32> "
        "{ %r = stablehlo.add %a, %a : tensor<f32> return %r : tensor<f32> }"
    )
    body = (
        "(%a: tensor<f32>) -> tensor<f32> { %r = func.call @f0(%a) : "
        "(tensor<f32>) -> tensor<f32> return %r : tensor<f32> }"
    )
    module = import_artifact(text(body, "\n".join(functions)), VK1)
    assert len(module.graph.nodes) == 1


def test_each_call_is_inlined_with_its_own_values() -> None:
    g = jax.jit(lambda x, y: jnp.where(x > y, x, 2 * y))
    compare(lambda a, b: g(a, b) + g(b, a) * g(a, a), X, 3 * X)


def test_one_device_shard_map() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")

    def f(x: Any) -> Any:
        def inner(v: Any) -> Any:
            return lax.psum(v, "d") + lax.axis_index("d")

        return jax.shard_map(inner, mesh=mesh, in_specs=spec, out_specs=spec)(x)

    wanted = np.asarray(f(X))
    (found,) = ir_eval.evaluate(artifacts.lower(f, X), [X])
    np.testing.assert_array_equal(found, wanted)


# --------------------------------------------------------------------------- errors

REFUSED: list[tuple[str, type, str, str]] = [
    (
        "custom call",
        UnsupportedOp,
        "my.target",
        "(%a: tensor<2xf32>) -> tensor<2xf32> { %r = stablehlo.custom_call "
        "@my.target(%a) : (tensor<2xf32>) -> tensor<2xf32> return %r : tensor<2xf32> }",
    ),
    (
        "dynamic shape",
        UnsupportedOp,
        "static",
        "(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }",
    ),
    (
        "kind",
        UnsupportedOp,
        "complex<f32>",
        "(%a: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> { %r = stablehlo.cbrt "
        "%a : tensor<2xcomplex<f32>> return %r : tensor<2xcomplex<f32>> }",
    ),
    (
        "complex order",
        UnsupportedOp,
        r"Unsupported dtype: .*complex<f32>.* work on jnp\.real",
        "(%a: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> { "
        "%r = stablehlo.maximum %a, %a : tensor<2xcomplex<f32>> "
        "return %r : tensor<2xcomplex<f32>> }",
    ),
    (
        "value from outside a region",
        UnsupportedOp,
        "outside the region",
        "(%a: tensor<4xf32>, %b: tensor<f32>) -> tensor<f32> { "
        '%r = "stablehlo.reduce"(%a, %b) <{dimensions = array<i64: 0>}> ({ '
        "^bb0(%x: tensor<f32>, %y: tensor<f32>): "
        "%m = stablehlo.multiply %y, %b : tensor<f32> "
        "%s = stablehlo.add %x, %m : tensor<f32> "
        "stablehlo.return %s : tensor<f32> }) : (tensor<4xf32>, tensor<f32>) -> "
        "tensor<f32> return %r : tensor<f32> }",
    ),
    (
        "gap",
        NotYetImplemented,
        "legacy op",
        '(%a: tensor<2x2xf32>) -> tensor<2x2xf32> { %r = "stablehlo.einsum"(%a, %a) '
        '{einsum_config = "ab,bc->ac"} : (tensor<2x2xf32>, tensor<2x2xf32>) -> '
        "tensor<2x2xf32> return %r : tensor<2x2xf32> }",
    ),
    (
        "unknown op",
        NotYetImplemented,
        "vendor.op",
        '(%a: tensor<2xf32>) -> tensor<2xf32> { %r = "vendor.op"(%a) : '
        "(tensor<2xf32>) -> tensor<2xf32> return %r : tensor<2xf32> }",
    ),
    (
        "threefry state",
        UnsupportedOp,
        "THREE_FRY needs 128 bits",
        "(%a: tensor<3xui64>) -> tensor<3xui64> { %r:2 = "
        "stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : (tensor<3xui64>) -> "
        "(tensor<3xui64>, tensor<3xui32>) return %r#0 : tensor<3xui64> }",
    ),
    (
        "recursion",
        InvalidArgument,
        "calls itself",
        "(%a: tensor<f32>) -> tensor<f32> { %r = func.call @main(%a) : "
        "(tensor<f32>) -> tensor<f32> return %r : tensor<f32> }",
    ),
]


@pytest.mark.parametrize(
    ("error", "part", "body"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refusals_are_typed_and_say_what(error: type, part: str, body: str) -> None:
    with pytest.raises(error, match=part):
        import_artifact(text(body), VK1)


def test_error_names_op_types_and_users_line() -> None:
    def user_function(x: Any) -> Any:
        return lax.rng_uniform(x[0, 0], x[0, 1], (4, 5))

    with pytest.raises(NotYetImplemented) as caught:
        artifacts.lower(user_function, X)
    message = str(caught.value)
    line = user_function.__code__.co_firstlineno + 1
    assert "stablehlo.rng" in message
    assert "f32[4, 5]" in message
    assert f"{__file__}:{line}" in message


def test_error_inside_a_loop_keeps_one_context() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, v: lax.rng_uniform(v, v, (4,))[0], x)

    with pytest.raises(NotYetImplemented) as caught:
        artifacts.lower(f, X[0, 0])
    assert str(caught.value).count("  at ") == 1


def test_partitioned_module_is_refused() -> None:
    module = text("() { return }").replace(
        b"module", b"module attributes {mhlo.num_partitions = 8 : i32}"
    )
    with pytest.raises(NotYetImplemented, match="8 devices"):
        import_artifact(module, VK1)


@pytest.mark.parametrize("junk", [b"", b"nonsense", b"ML\xefR" + bytes(40)])
def test_damaged_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(InvalidArgument):
        import_artifact(junk, VK1)


# ---------------------------------------------------------------------------- speed


def test_import_takes_microseconds_per_op() -> None:
    def f(x: Any) -> Any:
        for i in range(1000):
            x = jnp.sin(x) * 2 + i
        return x

    data = artifacts.artifact(f, np.ones(8, np.float32))
    import_artifact(data, VK1)
    start = time.process_time()
    module = import_artifact(data, VK1)
    spent = time.process_time() - start
    assert len(module.graph.nodes) == 3000
    # Measured 0.2 s; the bound only catches a quadratic walk.
    assert spent < 2.0
