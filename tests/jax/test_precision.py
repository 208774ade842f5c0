"""What a precision, an algorithm and a type become on each chip, and what they give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.lowering.artifacts import artifact, lower
from vkore_jax import lowering
from vkore_jax.chips import CHIPS, TINY, VK1, Chip
from vkore_jax.errors import UnsupportedOp
from vkore_jax.isa import NO_AXIS, Conv, Group, Segment, Strategy
from vkore_jax.isa.access import accesses
from vkore_jax.lowering import ir
from vkore_jax.primitives import attention, embedding
from vkore_jax.sim import fast, golden
from vkore_jax.sim.contract import program_disagreement, strategy_error
from vkore_jax.verify import verify

ENGINES = {"specification": golden.run, "translator": fast.run}
PRESET = lax.DotAlgorithmPreset
S = Strategy
FP8 = dataclasses.replace(
    CHIPS["rngd"],
    name="rngd-fp8",
    precision={"DEFAULT": "fp8x1", "HIGH": "bf16x3", "HIGHEST": "bf16x6"},
)
NAIVE = dataclasses.replace(
    CHIPS["atom"],
    name="naive",
    precision={"DEFAULT": "fp16", "HIGH": "fp16x2", "HIGHEST": "int8x4"},
)
PROFILES: Mapping[str, Chip] = {**CHIPS, "rngd-fp8": FP8, "naive": NAIVE}


def strategies(module: ir.Module) -> list[Strategy]:
    """Return the strategies of a module's contractions, nested ones included."""

    def walk(graph: ir.Graph) -> Iterator[Strategy]:
        for node in graph.nodes:
            if isinstance(node, ir.Gemm):
                yield node.strategy
            elif isinstance(node, ir.Direct) and node.command is Conv:
                yield node.attrs["strategy"]
            for inner in node.graphs:
                yield from walk(inner)

    return list(walk(module.graph))


REQUESTS: list[tuple[Any, str, Mapping[str, Strategy]]] = [
    (
        None,
        "float32",
        {
            "vk1": S.BF16X1,
            "atom": S.FP16X1,
            "warboy": S.INT8X2,
            "rngd": S.BF16X1,
            "rngd-fp8": S.FP8X1,
            "naive": S.FP16,
        },
    ),
    ("high", "float32", {"atom": S.FP16X2, "warboy": S.INT8X3, "rngd": S.BF16X3}),
    ("highest", "float32", {"atom": S.FP16X3, "warboy": S.INT8X4, "naive": S.INT8X4}),
    (PRESET.BF16_BF16_F32, "float32", {"atom": S.FP16X1, "warboy": S.INT8X2}),
    (PRESET.BF16_BF16_F32_X3, "float32", {"atom": S.FP16X2, "warboy": S.INT8X3}),
    (PRESET.BF16_BF16_F32_X6, "float32", {"atom": S.FP16X3, "warboy": S.INT8X4}),
    (PRESET.TF32_TF32_F32, "float32", {"atom": S.FP16X1, "warboy": S.INT8X2}),
    (PRESET.TF32_TF32_F32_X3, "float32", {"atom": S.FP16X2, "warboy": S.INT8X4}),
    (PRESET.F32_F32_F32, "float32", {"atom": S.FP16X3, "warboy": S.INT8X4}),
    (PRESET.F16_F16_F16, "float16", {"vk1": S.BF16X3, "atom": S.FP16}),
    (
        None,
        "bfloat16",
        {
            "vk1": S.BF16X1,
            "atom": S.FP16X1,
            "warboy": S.INT8X2,
            "rngd-fp8": S.FP8X1,
        },
    ),
    ("highest", "bfloat16", {"vk1": S.BF16X1, "atom": S.FP16X3, "warboy": S.INT8X4}),
    (
        None,
        "float16",
        {"vk1": S.BF16X3, "atom": S.FP16, "warboy": S.INT8X2, "rngd": S.BF16X3},
    ),
    (
        None,
        "float8_e4m3fn",
        {"vk1": S.BF16X1, "atom": S.FP16, "warboy": S.INT8X2, "rngd": S.FP8},
    ),
    (None, "float8_e5m2", {"atom": S.FP16, "rngd": S.FP8}),
    (None, "float8_e4m3b11fnuz", {"rngd": S.BF16X1, "tiny": S.BF16X1}),
    (
        None,
        "int8",
        {"vk1": S.INT8, "atom": S.INT8, "warboy": S.INT8, "rngd": S.INT8},
    ),
    (None, "int32", {"warboy": S.LANES}),
    (None, "complex64", {"atom": S.LANES}),
]
CASES = [
    pytest.param(precision, dtype, chip, want, id=f"{precision}-{dtype}-{chip}")
    for precision, dtype, table in REQUESTS
    for chip, want in table.items()
]


@pytest.mark.parametrize(("precision", "dtype", "chip", "want"), CASES)
def test_request(precision: Any, dtype: str, chip: str, want: Strategy) -> None:
    x, w = jnp.ones((4, 5), dtype), jnp.ones((5, 6), dtype)
    module = lower(
        lambda a, b: jnp.matmul(a, b, precision=precision), x, w, chip=PROFILES[chip]
    )
    assert strategies(module) == [want]


def test_mixed_float8_types_meet_in_bf16() -> None:
    x = jnp.ones((4, 5), "float8_e4m3fn")
    w = jnp.ones((5, 6), "float8_e5m2")
    chip = CHIPS["rngd"]
    module = lower(
        lambda a, b: lax.dot(a, b, preferred_element_type="f4"), x, w, chip=chip
    )
    assert strategies(module) == [S.BF16X1]


@pytest.mark.parametrize("chip", ["atom", "warboy"])
def test_gradients_and_convolutions_take_the_same_way(chip: str) -> None:
    def loss(w: Any, k: Any, x: Any) -> Any:
        y = lax.conv(x, k, (1, 1), "SAME").reshape(2, -1) @ w
        return (y**2).sum()

    w, k, x = jnp.ones((75, 4)), jnp.ones((3, 2, 3, 3)), jnp.ones((2, 2, 5, 5))
    module = lower(jax.grad(loss, (0, 1, 2)), w, k, x, chip=CHIPS[chip])
    want = S[CHIPS[chip].precision["DEFAULT"].upper()]
    assert strategies(module) == [want] * 6


@pytest.mark.parametrize(
    ("types", "bits"), [(("f8E4M3FN",), 8), (("f8E4M3FN", "f8E5M2"), 8)]
)
def test_what_an_array_cannot_hold_is_refused(
    types: tuple[str, ...], bits: int
) -> None:
    levels = dict.fromkeys(("DEFAULT", "HIGH", "HIGHEST"), "fp8x1")
    chip = dataclasses.replace(
        CHIPS["rngd"], matrix_dtypes=types, mac_rates={}, precision=levels
    )
    x = jnp.ones((4, 5))
    for precision in (PRESET.BF16_BF16_F32, PRESET.F32_F32_F32):
        with pytest.raises(UnsupportedOp, match=r"no strategy of it holds \d+ signif"):
            lower(lambda a, p=precision: jnp.matmul(a, a.T, precision=p), x, chip=chip)


# ---------------------------------------------------------------- results, both engines

CASES_OF_VALUES = [
    (chip, precision, dtype)
    for chip in ("vk1", "atom", "warboy", "rngd", "rngd-fp8")
    for precision in ("default", "high", "highest")
    for dtype in ("float32", "bfloat16")
    if not (dtype == "bfloat16" and precision == "high")
]
LAYOUTS: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "plain": ("mk,kn->mn", (6, 200), (200, 7)),
    "transposed": ("km,nk->nm", (150, 5), (4, 150)),
    "batched": ("bhqd,bhkd->bhqk", (2, 3, 4, 20), (2, 3, 5, 20)),
    "broadcast": ("bqhd,kd->bhqk", (2, 4, 3, 20), (5, 20)),
    "vector": ("k,kn->n", (140,), (140, 3)),
    "several": ("abm,abn->mn", (3, 50, 4), (3, 50, 5)),
}


@pytest.mark.parametrize(("chip", "precision", "dtype"), CASES_OF_VALUES)
def test_values(chip: str, precision: str, dtype: str) -> None:
    """Every layout on both engines, within the strategy's bound of float64."""
    profile = PROFILES[chip]
    rng = np.random.default_rng(0)
    pairs = [
        tuple(rng.normal(size=s).astype(jnp.dtype(dtype)) for s in shapes)
        for _, *shapes in LAYOUTS.values()
    ]

    def f(*operands: Any) -> list[Any]:
        return [
            jnp.einsum(
                spec, a, b, precision=precision, preferred_element_type=jnp.float32
            )
            for (spec, *_), (a, b) in zip(LAYOUTS.values(), _paired(operands))
        ]

    flat = [x for pair in pairs for x in pair]
    code = artifact(f, *flat)
    program = lowering.compile(code, profile)
    verify(program, profile)
    used = set(strategies(lowering_module(code, profile)))
    results = {
        "specification": golden.run(program.encoded, flat, chip=profile),
        "translator": fast.run(program.encoded, flat, chip=profile),
    }
    for number, (spec, *_) in enumerate(LAYOUTS.values()):
        a, b = (x.astype(np.float64) for x in pairs[number])
        want = np.einsum(spec, a, b)
        bound = max(_bound(spec, a, b, s) for s in used)
        for name, outs in results.items():
            error = np.abs(outs[number] - want).max()
            assert error <= bound, f"{name} {spec}: {error:.3g} > {bound:.3g}"


def _paired(flat: Any) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2])


def lowering_module(code: bytes, chip: Chip) -> ir.Module:
    from vkore_jax.lowering.importer import import_artifact

    return import_artifact(code, chip)


def _bound(spec: str, a: np.ndarray, b: np.ndarray, strategy: Strategy) -> float:
    """Return the strategy's bound for the largest row and column of an einsum."""
    terms = np.einsum(spec, np.ones_like(a), np.ones_like(b)).max()
    row = np.full((1, int(terms)), np.abs(a).max())
    column = np.full((int(terms), 1), np.abs(b).max())
    return float(strategy_error(strategy, row, column)[0, 0])


SMALL = dataclasses.replace(TINY, scratchpad_bytes=1 << 16, accumulator_bytes=1 << 14)
ARRAYS = {
    "int8-tiny": dataclasses.replace(SMALL, precision=CHIPS["warboy"].precision),
    "fp16-tiny": dataclasses.replace(SMALL, precision=CHIPS["atom"].precision),
    "warboy": CHIPS["warboy"],
    "atom": CHIPS["atom"],
}


def _network(w1: Any, w2: Any, x: Any) -> Any:
    def loss(w1: Any, w2: Any) -> Any:
        return ((jax.nn.gelu(x @ w1) @ w2) ** 2).mean()

    return jax.value_and_grad(loss, (0, 1))(w1, w2)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jax.vjp(lambda *a: attention(*a, causal=True), q, k, v)[1](q)


@pytest.mark.parametrize("chip", ARRAYS)
@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (_network, [(30, 300), (300, 5), (700, 30)]),
        (_attention, [(1, 140, 2, 16)] * 3),
    ],
)
def test_tiled_programs(chip: str, f: Any, shapes: Any) -> None:
    """Groups cut k between segments, and both engines train alike."""
    profile = ARRAYS[chip]
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=s).astype("f4") for s in shapes]
    program = lowering.compile(artifact(f, *inputs), profile)
    verify(program, profile)
    if f is _network and chip.endswith("tiny"):
        assert any(
            x.cmd.k_axis != NO_AXIS for x in program.block if type(x.cmd) is Group
        )
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = jax.tree.leaves(jax.jit(f)(*inputs))
    found = golden.run(program.encoded, inputs, chip=profile)
    other = fast.run(program.encoded, inputs, chip=profile)
    for want, a, b in zip(wanted, found, other, strict=True):
        assert program_disagreement(a, b) is None
        np.testing.assert_allclose(a, want, rtol=0, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("chip", ["vk1", "atom", "warboy", "rngd-fp8"])
def test_rows_that_a_lookup_adds_up(chip: str) -> None:
    """A product with a one-hot matrix, which the translator replaces by additions."""
    profile = PROFILES[chip]
    rng = np.random.default_rng(0)
    table = rng.normal(size=(70, 6)).astype("f4")
    ids = rng.integers(0, 70, (3, 60)).astype("i4")
    g = rng.normal(size=(3, 60, 6)).astype("f4") * 10.0 ** rng.integers(
        -9, 3, (3, 60, 1)
    )
    g = g.astype("f4")

    def f(table: Any, ids: Any, g: Any) -> Any:
        return jax.vjp(lambda t: embedding(t, ids), table)[1](g)

    code = artifact(f, table, ids, g, keep_unused=True)
    program = lowering.compile(code, profile)
    wild = g.copy()
    wild[1, 5, 2], wild[2, 7, 0] = np.inf, np.nan
    for values in (g, wild):
        (a,) = golden.run(program.encoded, [table, ids, values], chip=profile)
        (b,) = fast.run(program.encoded, [table, ids, values], chip=profile)
        assert program_disagreement(a, b) is None
        assert np.isfinite(a[:, 1]).all()
        assert np.isfinite(a).all() == (values is g)


# ----------------------------------------------------------------------------- storage


def _state(w: Any, x: Any) -> Any:
    loss, g = jax.value_and_grad(lambda w: ((x @ w).astype(jnp.float32) ** 2).mean())(w)
    return {"w": w - 0.1 * g, "loss": loss}


def test_a_profile_without_f32_storage_trains_in_bf16() -> None:
    chip = CHIPS["vk1-bf16"]
    w, x = jnp.ones((8, 4), "bfloat16"), jnp.ones((2, 8), "bfloat16")
    program = lowering.compile(artifact(_state, w, x), chip)
    verify(program, chip)


@pytest.mark.parametrize(
    ("f", "args", "message"),
    [
        (
            _state,
            ((8, 4), (2, 8)),
            r"takes w: f32\[8,4\], x: f32\[2,8\] and returns re",
        ),
        (lambda x: x.astype("bfloat16"), ((3,),), r"takes x: f32\[3\]"),
        (lambda x: jnp.fft.fft(x.sum() * jnp.ones(4)), ((1,),), r"complex<f32>\[4\]"),
        (lambda x: (x,) * 6, ((3,),), r"and 2 more; chip 'vk1-bf16'"),
    ],
)
def test_wide_floats_do_not_stay_in_bf16_storage(
    f: Callable[..., Any], args: Any, message: str
) -> None:
    given = [jnp.ones(s, "float32") for s in args]
    with pytest.raises(UnsupportedOp, match=message):
        lower(f, *given, chip=CHIPS["vk1-bf16"])
    lower(f, *given, chip=VK1)


def test_scalars_and_integers_are_kept_anywhere() -> None:
    lower(
        lambda s, i: (s * 2, i + 1, i > 0),
        jnp.float32(1),
        jnp.ones(4, "int32"),
        chip=CHIPS["vk1-bf16"],
    )


def test_inside_of_a_program_every_chip_keeps_f32() -> None:
    """As the profile and docs/chips.md say: `storage` is about state, not spilling."""
    chip = dataclasses.replace(TINY, storage="bf16")
    x = jnp.ones((64, 64), "bfloat16")

    def f(x: Any) -> Any:
        wide = x.astype(jnp.float32)
        return jnp.cumsum(wide @ wide, 0).T.astype(jnp.bfloat16)

    program = lowering.compile(artifact(f, x), chip)
    verify(program, chip)
    arena = {i for i, b in enumerate(program.buffers) if b.segment is Segment.ARENA}
    views = [v for at in program.block for v in accesses(at.cmd).writes]
    spilled = [v for v in views if v.buffer in arena and v.dtype.short == "f32"]
    assert any(v.nbytes == 64 * 64 * 4 for v in spilled)
    assert "inside of one it does" in CHIPS["vk1-bf16"].description


def test_the_verifier_knows_the_storage_too() -> None:
    from vkore_jax.errors import InvalidProgram

    program = lowering.compile(artifact(lambda x: x * 2, jnp.ones(3)), TINY)
    with pytest.raises(InvalidProgram, match="keeps no float wider than bf16"):
        verify(program, dataclasses.replace(TINY, storage="bf16"))
