"""Any bytes given to the compiler give a program or a typed error, nothing else."""

from __future__ import annotations

import functools
import random
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from vkore_jax import lowering
from vkore_jax.chips import get_chip
from vkore_jax.errors import InternalError, InvalidArgument, VkoreError

TINY = get_chip("tiny")


def step(x: Any) -> Any:
    y = lax.fori_loop(0, 3, lambda i, c: c.at[i].set(jnp.tanh(c[i]).sum()), x @ x.T)
    y = lax.composite(lambda v, flag: v + flag, "test.add")(jnp.sort(y, -1), flag=1)
    y = lax.conv_general_dilated(y[None, None], x[None, None], (1, 1), "SAME")
    return jnp.linalg.qr(y[0, 0]), jax.pure_callback(lambda v: v, x, x)


@functools.cache
def texts() -> list[str]:
    """Return the module as JAX prints it, and in MLIR's generic form."""
    lowered = jax.jit(step, donate_argnums=0).trace(jnp.zeros((3, 4)))
    made = lowered.lower(lowering_platforms=("vkore",))
    plain = made.as_text(debug_info=True)
    module = lowering.read_module(plain.encode())
    return [plain, module.operation.get_asm(print_generic_op_form=True)]


VALUES = (r'"\FF"', r'"\00"', '""', '"x"', "1 : i32", "true", "[]", "{}", "unit", "@no",
          "dense<1.0> : tensor<2xf32>", "i32", "array<i64: 1>", "1.5")  # fmt: skip
WORDS = ("\xff", "99999999999999999999", "-1", "tensor<?xf32>", "!stablehlo.token",
         "@main", "tuple<f32>", "complex<f32>", "", "{}", "#loc", "none")  # fmt: skip
ATTRIBUTE = re.compile(
    r'= *("[^"]*"|-?[0-9.]+( : [a-z0-9]+)?|true|false|unit|array<[^>]*>|@\w+)'
)
TOKEN = re.compile(r'[-\w.%@!#"]+|[<>\[\](){},:=]')


def damaged(rng: random.Random) -> bytes:
    """Return a module with an attribute, a word, a number, a line or a bit changed."""
    text = rng.choice(texts())
    kind = rng.choice(
        ("attribute", "attribute", "word", "number", "line", "cut", "bit")
    )
    if kind == "cut":
        return text[: rng.randrange(len(text))].encode()
    if kind == "bit":
        raw = bytearray(text.encode())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        return bytes(raw)
    if kind == "line":
        lines = text.split("\n")
        lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
        return "\n".join(lines).encode()
    pattern = {"attribute": ATTRIBUTE, "word": TOKEN}.get(kind, re.compile(r"(\d+)"))
    found = rng.choice(list(pattern.finditer(text)))
    start, stop = found.span(1 if pattern.groups else 0)
    values = {"attribute": VALUES, "word": WORDS}.get(kind, ("0", "1", "2", "7", "64"))
    return (text[:start] + rng.choice(values) + text[stop:]).encode()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
def test_damaged_text(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        module = damaged(rng)
        try:
            lowering.compile(module, TINY)
        except InternalError as error:
            pytest.fail(f"{error}\n{module.decode(errors='replace')}")
        except VkoreError:
            pass


EMPTY = "func.func @main(%a: tensor<2xf32> {A}) -> (tensor<2xf32> {R}) {return %a : tensor<2xf32>}"  # fmt: skip  # noqa: E501
MODULES = {
    "count_is_text": f'module attributes {{mhlo.num_partitions = "2"}} {{{EMPTY}}}',
    "count_is_unit": f"module attributes {{mhlo.num_replicas = unit}} {{{EMPTY}}}",
    "name_is_not_utf8": f'module @"\\FF" {{{EMPTY}}}',
    "result_info_is_a_number": EMPTY.replace("{R}", "{jax.result_info = [1]}"),
    "memory_kind_is_a_list": EMPTY.replace("{R}", "{mhlo.memory_kind = [1]}"),
    "bytes": b"\xff\xfe\x00",
    "nothing": b"",
    "bytecode": b"ML\xefR\x00\x01",
}


@pytest.mark.parametrize("name", MODULES)
def test_what_is_read_outside_of_operators(name: str) -> None:
    module = MODULES[name]
    if isinstance(module, str):
        module = module.replace("{A}", "").replace("{R}", "").encode()
    with pytest.raises(InvalidArgument):
        lowering.compile(module, TINY)
