"""Ops of StableHLO that have no lowering, as rows with the reason."""

from __future__ import annotations

from vkore_jax.lowering.registry import RuleSet

rules = RuleSet(__name__)

for _op in ("batch_norm_training", "batch_norm_inference", "batch_norm_grad"):
    rules.missing(
        f"stablehlo.{_op}",
        "the fused normalisation ops are not built (JAX does not emit them)",
        "write the normalisation with jnp",
    )
for _op in ("einsum", "unary_einsum", "torch_index_select", "cross-replica-sum"):
    rules.missing(f"stablehlo.{_op}", "a legacy op that JAX does not emit")
for _op in ("tuple", "get_tuple_element"):
    rules.missing(f"stablehlo.{_op}", "tuples do not exist in JAX programs")
for _op in ("uniform_quantize", "uniform_dequantize"):
    rules.missing(f"stablehlo.{_op}", "quantized types are not built yet")
rules.missing("stablehlo.collective_reduce", "needs programs for several devices")
for _op in ("async_start", "async_done"):
    rules.missing(f"stablehlo.{_op}", "asynchronous computations are not built yet")
