"""Cells of the operators that move elements, and of those with a region."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.matrix.cells import (
    I32,
    Cell,
    Make,
    real_of,
    special,
    tensor,
    where_special,
)
from vkore_jax.dtypes import BOOL, DType


def _moves(text: str, *out: int) -> Make:
    """Return cells of an operator on one (4, 6) tensor."""

    def make(t: DType) -> Cell:
        r = tensor(t, *out)
        body = f"%r = stablehlo.{text} : ({tensor(t, 4, 6)}) -> {r}"
        return Cell(body, (where_special(t, 4, 6),), (r,))

    return make


def _identity(text: str) -> Make:
    def make(t: DType) -> Cell:
        x, a = where_special(t, 4, 6), tensor(t, 4, 6)
        return Cell(text.replace("TYPE", a), (x,), (a,), want=(x,))

    return make


def reverse(t: DType) -> Cell:
    a = tensor(t, 4, 6)
    body = f"%r = stablehlo.reverse %a, dims = [0, 1] : {a}"
    return Cell(body, (where_special(t, 4, 6),), (a,))


def barrier(t: DType) -> Cell:
    a = tensor(t, 4, 6)
    body = f"%r = stablehlo.optimization_barrier %a : {a}"
    return Cell(body, (where_special(t, 4, 6),), (a,))


def pad(t: DType) -> Cell:
    r = tensor(t, 9, 7)
    body = (
        "%r = stablehlo.pad %a, %b, low = [1, -1], high = [1, 2], interior = [1, 0] : "
        f"({tensor(t, 4, 6)}, {tensor(t)}) -> {r}"
    )
    return Cell(body, (where_special(t, 4, 6), np.asarray(special(t)[1])), (r,))


def concatenate(t: DType) -> Cell:
    r = tensor(t, 4, 9)
    body = (
        f"%r = stablehlo.concatenate %a, %b, dim = 1 : "
        f"({tensor(t, 4, 6)}, {tensor(t, 4, 3)}) -> {r}"
    )
    parts = where_special(t, 4, 6), where_special(t, 4, 3)
    # The stock CPU aborts on sub-byte types (see `vkore_jax.sim.fast.core.concat`).
    return Cell(body, parts, (r,), want=(np.concatenate(parts, 1),))


def get_dimension_size(t: DType) -> Cell:
    body = (
        f"%r = stablehlo.get_dimension_size %a, dim = 1 : "
        f"({tensor(t, 4, 6)}) -> {tensor(I32)}"
    )
    six = np.asarray(6, np.int32)
    return Cell(body, (where_special(t, 4, 6),), (tensor(I32),), want=(six,))


START, FAR = np.asarray(2, np.int32), np.asarray(99, np.int32)


def dynamic_slice(t: DType) -> Cell:
    r = tensor(t, 2, 3)
    body = (
        "%r = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3] : "
        f"({tensor(t, 4, 6)}, {tensor(I32)}, {tensor(I32)}) -> {r}"
    )
    return Cell(body, (where_special(t, 4, 6), START, FAR), (r,))


def dynamic_update_slice(t: DType) -> Cell:
    r = tensor(t, 4, 6)
    body = (
        "%r = stablehlo.dynamic_update_slice %a, %b, %c, %d : "
        f"({r}, {tensor(t, 2, 3)}, {tensor(I32)}, {tensor(I32)}) -> {r}"
    )
    update = where_special(t, 2, 3)[:, ::-1].copy()
    return Cell(body, (where_special(t, 4, 6), update, START, FAR), (r,))


AT = np.array([[3], [0], [9], [-2], [1]], np.int32)


def gather(t: DType) -> Cell:
    r = tensor(t, 5, 6)
    body = f"""%r = "stablehlo.gather"(%a, %b) {{dimension_numbers =
      #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, 6>}} : ({tensor(t, 4, 6)}, {tensor(I32, 5, 1)}) ->
      {r}"""
    return Cell(body, (where_special(t, 4, 6), AT), (r,))


def scatter(t: DType) -> Cell:
    r, s = tensor(t, 4, 6), tensor(t)
    body = f"""%r = "stablehlo.scatter"(%a, %b, %c) ({{
      ^bb0(%x: {s}, %y: {s}):
        stablehlo.return %y : {s}
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}} : ({r}, {tensor(I32, 5, 1)}, {tensor(t, 5, 6)}) -> {r}"""
    update = where_special(t, 5, 6)[:, ::-1].copy()
    return Cell(body, (where_special(t, 4, 6), AT, update), (r,))


def sort(t: DType) -> Cell:
    s, i = tensor(t), tensor(I32)
    n = max(special(t).size, 8)
    n = min(n, 48)
    a, b = tensor(t, n), tensor(I32, n)
    kind = "UNSIGNED" if t.kind in "bu" else "SIGNED"
    if t.kind == "f":
        kind = "TOTALORDER"
    less = f"%z = stablehlo.compare LT, %x, %y, {kind} : ({s}, {s}) -> {tensor(BOOL)}"
    if t.kind == "c":
        f = tensor(real_of(t))
        less = f"""%u = stablehlo.real %x : ({s}) -> {f}
        %v = stablehlo.real %y : ({s}) -> {f}
        %z = stablehlo.compare LT, %u, %v, TOTALORDER : ({f}, {f}) -> {tensor(BOOL)}"""
    body = f"""%r:2 = "stablehlo.sort"(%a, %b) ({{
      ^bb0(%x: {s}, %y: {s}, %p: {i}, %q: {i}):
        {less}
        stablehlo.return %z : {tensor(BOOL)}
      }}) {{dimension = 0 : i64, is_stable = true}} : ({a}, {b}) -> ({a}, {b})"""
    x, at = np.resize(special(t)[::-1], n), np.arange(n, dtype=np.int32)
    want = None
    if t.bits == 2:  # which the stock CPU does not sort
        order = np.argsort(x.astype(np.int32), kind="stable")
        want = (x[order], at[order])
    return Cell(body, (x, at), (a, b), want=want)


def while_(t: DType) -> Cell:
    a, i = tensor(t, 4, 6), tensor(I32)
    body = f"""%r:2 = stablehlo.while(%x = %a, %i = %b) : {a}, {i}
      cond {{
        %l = stablehlo.constant dense<3> : {i}
        %z = stablehlo.compare LT, %i, %l, SIGNED : ({i}, {i}) -> {tensor(BOOL)}
        stablehlo.return %z : {tensor(BOOL)}
      }} do {{
        %o = stablehlo.constant dense<1> : {i}
        %j = stablehlo.add %i, %o : {i}
        %y = stablehlo.reverse %x, dims = [1] : {a}
        stablehlo.return %y, %j : {a}, {i}
      }}"""
    return Cell(body, (where_special(t, 4, 6), np.asarray(0, np.int32)), (a, i))


def if_(t: DType) -> Cell:
    a = tensor(t, 4, 6)
    body = f"""%r = "stablehlo.if"(%b) ({{
        %y = stablehlo.reverse %a, dims = [1] : {a}
        stablehlo.return %y : {a}
      }}, {{
        stablehlo.return %a : {a}
      }}) : ({tensor(BOOL)}) -> {a}"""
    return Cell(body, (where_special(t, 4, 6), np.asarray(True)), (a,))


def case(t: DType) -> Cell:
    a = tensor(t, 4, 6)
    body = f"""%r = "stablehlo.case"(%b) ({{
        stablehlo.return %a : {a}
      }}, {{
        %y = stablehlo.reverse %a, dims = [1] : {a}
        stablehlo.return %y : {a}
      }}) : ({tensor(I32)}) -> {a}"""
    return Cell(body, (where_special(t, 4, 6), np.asarray(7, np.int32)), (a,))


def approx_top_k(t: DType) -> Cell:
    n, k = 16, 5
    order = np.random.default_rng(3).permutation(n)
    x = order.astype(np.int8).astype(t.numpy)
    a, i = tensor(t, n), tensor(I32, n)
    least = {16: "0xFC00", 32: "0xFF800000", 64: "0xFFF0000000000000"}.get(t.bits, "0")
    least = "0xFF80" if t.short == "bf16" else least if t.kind == "f" else "0"
    body = f"""%c = stablehlo.constant dense<{least}> : {tensor(t)}
      %d = stablehlo.constant dense<-1> : {tensor(I32)}
      %r:2 = stablehlo.custom_call @ApproxTopK(%a, %b, %c, %d) {{
      mhlo.backend_config = {{reduction_dim = 0 : i64, top_k = {k} : i64,
      recall_target = 0.95 : f32, reduction_input_size_override = -1 : i64,
      aggregate_to_topk = true, is_fallback = false}} }} :
      ({a}, {i}, {tensor(t)}, {tensor(I32)}) ->
      ({tensor(t, k)}, {tensor(I32, k)})"""
    best = np.argsort(-order, kind="stable")[:k]
    inputs = x, np.arange(n, dtype=np.int32)
    return Cell(
        body,
        inputs,
        (tensor(t, k), tensor(I32, k)),
        want=(x[best], best.astype(np.int32)),
    )


def collective(name: str, attributes: str, *, region: str = "") -> Make:
    """Return cells of a collective over one device."""

    def make(t: DType) -> Cell:
        a = tensor(t, 4, 6)
        inner = ""
        if region:
            s = tensor(t)
            inner = f"""({{
              ^bb0(%x: {s}, %y: {s}):
                %z = stablehlo.{region} %x, %y : {s}
                stablehlo.return %z : {s}
              }})"""
        x = where_special(t, 4, 6)
        body = f'%r = "stablehlo.{name}"(%a) {inner} {{{attributes}}} : ({a}) -> {a}'
        return Cell(body, (x,), (a,), want=(x,))

    return make


ONE = "replica_groups = dense<0> : tensor<1x1xi64>"
MESH = 'sdy.mesh @one = <["x"=1]>'


def sharding_constraint(t: DType) -> Cell:
    x, a = where_special(t, 4, 6), tensor(t, 4, 6)
    body = f"%r = sdy.sharding_constraint %a <@one, [{{}}, {{}}]> : {a}"
    return Cell(body, (x,), (a,), want=(x,), preamble=MESH)


def manual_computation(t: DType) -> Cell:
    x, a = where_special(t, 4, 6), tensor(t, 4, 6)
    body = f"""%r = sdy.manual_computation(%a) in_shardings=[<@one, [{{}}, {{}}]>]
      out_shardings=[<@one, [{{}}, {{}}]>] manual_axes={{"x"}} (%x: {a}) {{
        sdy.return %x : {a}
      }} : ({a}) -> {a}"""
    return Cell(body, (x,), (a,), want=(x,), preamble=MESH)


ANNOTATIONS = (
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "LayoutConstraint",
    "MoveToHost",
    "MoveToDevice",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
)

CELLS: Mapping[str, Make] = {
    "stablehlo.reshape": _moves("reshape %a", 3, 8),
    "stablehlo.transpose": _moves("transpose %a, dims = [1, 0]", 6, 4),
    "stablehlo.broadcast_in_dim": _moves("broadcast_in_dim %a, dims = [0, 2]", 4, 5, 6),
    "stablehlo.broadcast": _moves("broadcast %a, sizes = [3]", 3, 4, 6),
    "stablehlo.slice": _moves("slice %a [1:4:2, 0:6:3]", 2, 2),
    "stablehlo.reverse": reverse,
    "stablehlo.optimization_barrier": barrier,
    "stablehlo.pad": pad,
    "stablehlo.concatenate": concatenate,
    "stablehlo.get_dimension_size": get_dimension_size,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather,
    "stablehlo.scatter": scatter,
    "stablehlo.sort": sort,
    "stablehlo.while": while_,
    "stablehlo.if": if_,
    "stablehlo.case": case,
    "custom_call:ApproxTopK": approx_top_k,
    "stablehlo.all_reduce": collective("all_reduce", ONE, region="maximum"),
    "stablehlo.all_gather": collective(
        "all_gather", f"all_gather_dim = 0 : i64, {ONE}"
    ),
    "stablehlo.all_to_all": collective(
        "all_to_all",
        "split_dimension = 0 : i64, concat_dimension = 0 : i64, "
        f"split_count = 1 : i64, {ONE}",
    ),
    "stablehlo.reduce_scatter": collective(
        "reduce_scatter", f"scatter_dimension = 0 : i64, {ONE}", region="maximum"
    ),
    "stablehlo.collective_permute": collective(
        "collective_permute", "source_target_pairs = dense<0> : tensor<1x2xi64>"
    ),
    "stablehlo.collective_broadcast": collective("collective_broadcast", ONE),
    "sdy.sharding_constraint": sharding_constraint,
    "sdy.manual_computation": manual_computation,
    **{
        f"custom_call:{name}": _identity(
            f"%r = stablehlo.custom_call @{name}(%a) : (TYPE) -> TYPE"
        )
        for name in ANNOTATIONS
    },
}
