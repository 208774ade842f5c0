"""`accelerate`: what comes in, and that values and gradients are as before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vkore_jax
from tests.accelerate.cases import CASES, IDS, Case, integer_labels, normal
from vkore_jax.errors import InvalidArgument
from vkore_jax.rewrite import Report, accelerate

each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Any:
    """The compiler of the chip is not what is tested here."""
    with (
        jax.default_device(jax.devices("cpu")[0]),
        jax.default_matmul_precision("highest"),
    ):
        yield


def value_and_grad(function: Any) -> Any:
    def scalar(args: Any) -> Any:
        y = function(*args)
        return jnp.sum(jnp.sin(y.astype(jnp.float32))), y

    return jax.value_and_grad(scalar, has_aux=True, allow_int=True)


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree) if x.dtype == jnp.float32]


@each_case
def test_same_values_and_gradients(case: Case) -> None:
    ours = value_and_grad(accelerate(case.function))
    plain = value_and_grad(case.function)
    both = jax.jit(lambda *a: (ours(a), plain(a))).lower(*case.args)
    found, wanted = both.compile({"xla_backend_optimization_level": "0"})(*case.args)
    for f, w in zip(leaves(found), leaves(wanted), strict=True):
        scale = max(1.0, float(np.abs(w).max(initial=0)))
        np.testing.assert_allclose(f / scale, w / scale, rtol=0, atol=1e-5)


@each_case
def test_what_is_replaced(case: Case) -> None:
    report = accelerate(case.function).report(*case.args)
    assert report.counts() == case.counts, str(report)
    if case.left and case.left != "sqrt":
        assert case.left in str(report).partition("left:")[2], str(report)


@pytest.mark.slow
def test_bfloat16() -> None:
    names = ("nano", "layer_norm_hand", "linear_gelu", "optax_tied", "rope", "jax_mask")
    for case in CASES:
        if case.name not in names:
            continue
        args = [a.astype("bfloat16") for a in case.args]
        function = accelerate(case.function)
        assert function.report(*args).counts() == case.counts, case.name
        found = function(*args)
        wanted = case.function(*case.args)
        assert found.dtype == jax.eval_shape(case.function, *args).dtype
        error = np.abs(np.asarray(found, "f4") - wanted).max()
        assert error < 0.05 * np.abs(wanted).max(), (case.name, error)


def model(params: Any, batch: Any, scale: float = 1.0, *, flag: bool = True) -> Any:
    """A loss with everything around it: trees, static arguments, integers."""
    x = params["table"][batch["ids"]]
    x = jax.nn.relu(x @ params["w"]) if flag else x
    return scale * integer_labels(x @ params["out"], batch["ids"]).mean()


PARAMS = {"table": normal(11, 8), "w": normal(8, 8), "out": normal(8, 11)}


def test_trees_and_static_arguments() -> None:
    batch = {"ids": IDS}
    fast = accelerate(model)
    grad = jax.jit(jax.grad(lambda p: fast(p, batch, 2.0, flag=True)))(PARAMS)
    wanted = jax.grad(lambda p: model(p, batch, 2.0, flag=True))(PARAMS)
    for name, g in grad.items():
        np.testing.assert_allclose(g, wanted[name], atol=1e-5)
    found = fast.report(PARAMS, batch, 2.0, flag=False).counts()
    assert found == {"vkore.embedding": 1, "vkore.softmax_cross_entropy": 1}
    assert getattr(fast, "__name__") == "model"  # noqa: B009


def test_closed_over_tracers() -> None:
    x = normal(3, 8)

    def outer(w: Any) -> Any:
        return accelerate(lambda x: (x @ w).sum())(x)

    np.testing.assert_allclose(
        jax.jit(jax.grad(outer))(PARAMS["w"]), jax.grad(outer)(PARAMS["w"]), atol=1e-5
    )
    text = jax.jit(jax.grad(outer)).lower(PARAMS["w"]).as_text()
    assert "vkore.linear_dw" in text


def test_vmap_and_nesting() -> None:
    fast = accelerate(accelerate(model))
    each = jax.vmap(jax.grad(fast), (None, 0))
    found = jax.jit(each)(PARAMS, {"ids": IDS})
    wanted = jax.vmap(jax.grad(model), (None, 0))(PARAMS, {"ids": IDS})
    jax.tree.map(
        lambda f, w: np.testing.assert_allclose(f, w, atol=1e-5), found, wanted
    )


def test_effects_stay(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any, w: Any) -> Any:
        y = x @ w
        jax.debug.print("sum {s}", s=y.sum())
        return y

    jax.block_until_ready(accelerate(f)(normal(2, 3), normal(3, 4)))
    jax.effects_barrier()
    assert "sum" in capsys.readouterr().out


def test_report() -> None:
    fast = vkore_jax.accelerate(model)
    report = fast.report(PARAMS, {"ids": jax.ShapeDtypeStruct((2, 5), jnp.int32)})
    assert isinstance(report, Report)
    assert {"replaced", "left"} == set(report.to_dict())
    text = str(report)
    assert "vkore.linear" in text
    assert "with relu" in text
    # The user's line, not one of JAX's or Flax's.
    line = model.__code__.co_firstlineno + 3
    assert f"test_accelerate.py:{line}" in text


def test_errors_keep_the_users_line() -> None:
    """A replaced operation is traced with the source of the original."""
    text = (
        jax.jit(accelerate(model)).lower(PARAMS, {"ids": IDS}).as_text(debug_info=True)
    )
    line = model.__code__.co_firstlineno + 3
    assert f'test_accelerate.py":{line}' in text


def test_names_of_scopes_stay() -> None:
    def f(x: Any, w: Any) -> Any:
        with jax.named_scope("attic"):
            return x @ w

    lowered = jax.jit(accelerate(f)).lower(normal(2, 3), normal(3, 4))
    assert "attic" in lowered.as_text(debug_info=True)


def test_no_logits_in_the_program() -> None:
    x, w, y = normal(13, 4), normal(4, 3001), jnp.arange(13)
    f = accelerate(lambda x, w: integer_labels(x @ w, y).sum())
    text = jax.jit(jax.grad(f)).lower(x, w).as_text()
    assert "13x3001" not in text


def test_forward_mode_says_so() -> None:
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(accelerate(jax.nn.gelu), (normal(3),), (normal(3),))


def test_errors_of_the_function_pass() -> None:
    def f(x: Any) -> Any:
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument, match="no"):
        accelerate(f)(normal(2))
