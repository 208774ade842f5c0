"""The public llama2.c format: exact parameters, logits and text."""

import struct
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from train import sample
from train.config import ConfigError, ModelConfig
from train.llama2c import Llama2cTokenizer, half_split, load_checkpoint
from train.model import abstract_decoder, rotary_table, rotate

DATA = Path(__file__).parents[2] / "../shared/data/stories260K"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the public checkpoint stories260K is not at hand"
)


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    return dict(np.load(DATA / "stories260K_ref_logits.npz"))


@pytest.fixture(scope="module")
def loaded() -> tuple:
    return sample.load_llama2c(DATA / "stories260K.bin", None)


@needs_data
def test_logits_equal_the_original_program(loaded: tuple, reference: dict) -> None:
    config, params, _ = loaded
    graph, _ = abstract_decoder(config)
    run = jax.jit(lambda p, t: nnx.merge(graph, p)(t))
    with jax.default_matmul_precision("highest"):
        logits = np.asarray(run(params, reference["tokens"][None]))[0]
    np.testing.assert_allclose(logits, reference["logits_numpy_f64"], atol=2e-4)
    np.testing.assert_allclose(logits, reference["logits_runc_f32"], atol=2e-4)
    # The choice at each position is the next token, so greedy text is the same.
    assert np.array_equal(logits.argmax(-1)[:-1], reference["tokens"][1:])


@pytest.mark.slow
@needs_data
def test_greedy_text_equals_the_original_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with jax.default_matmul_precision("highest"):
        status = sample.main(
            ["--checkpoint", str(DATA / "stories260K.bin"), "--temperature", "0"]
        )
    assert status == 0
    expected = (DATA / "expected_greedy_n200.txt").read_text()
    assert capsys.readouterr().out.strip() == expected.strip()


@needs_data
def test_tokenizer_agrees_with_the_original_tokens(
    loaded: tuple, reference: dict
) -> None:
    tokenizer = loaded[2]
    text = (DATA / "expected_greedy_n200.txt").read_text().strip()
    tokens = reference["tokens"].tolist()
    assert tokens[0] == tokenizer.start_id
    assert tokenizer.encode(text)[:199] == tokens[1:]
    for words in ("", " two  spaces", "naïve café\n", "日本"):
        assert tokenizer.decode(tokenizer.encode(words)) == words


def write_checkpoint(path: Path, vocab: int = 6) -> dict[str, np.ndarray]:
    """Write a random checkpoint of width 8 with 2 layers; return its blocks."""
    rng = np.random.default_rng(0)
    sizes = {
        "embedding": (6, 8), "attention_norm": (2, 8), "query": (2, 8, 8),
        "key": (2, 4, 8), "value": (2, 4, 8), "out": (2, 8, 8), "mlp_norm": (2, 8),
        "gate": (2, 12, 8), "down": (2, 8, 12), "up": (2, 12, 8), "norm": (8,),
        "tables": (2, 5, 2),
    }  # fmt: skip
    blocks = {k: rng.normal(size=s).astype("<f4") for k, s in sizes.items()}
    header = struct.pack("<7i", 8, 12, 2, 2, 1, vocab, 5)
    path.write_bytes(header + b"".join(b.tobytes() for b in blocks.values()))
    return blocks


def test_every_block_reaches_its_place(tmp_path: Path) -> None:
    blocks = write_checkpoint(tmp_path / "m.bin")
    config, params = load_checkpoint(tmp_path / "m.bin")
    assert config == ModelConfig(
        vocab_size=6, context=5, d_model=8, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=12
    )
    pure = nnx.to_pure_dict(params)
    assert np.array_equal(pure["embedding"]["embedding"], blocks["embedding"])
    assert np.array_equal(pure["norm"]["scale"], blocks["norm"])
    for i in range(2):
        block = pure["blocks"][i]
        assert np.array_equal(
            block["attention_norm"]["scale"], blocks["attention_norm"][i]
        )
        assert np.array_equal(block["mlp_norm"]["scale"], blocks["mlp_norm"][i])
        for ours, theirs in (("value", "value"), ("out", "out")):
            kernel = block["attention"][ours]["kernel"]
            assert np.array_equal(kernel, blocks[theirs][i].T)
        for ours, theirs in (("gate", "gate"), ("up", "up"), ("out", "down")):
            assert np.array_equal(block["mlp"][ours]["kernel"], blocks[theirs][i].T)
    _, shapes = abstract_decoder(config)
    assert jax.tree.structure(params) == jax.tree.structure(shapes)


def test_reordered_projections_give_the_same_scores() -> None:
    config = ModelConfig(d_model=16, n_heads=2, n_kv_heads=2, context=7)
    cos, sin = rotary_table(config)
    rng = np.random.default_rng(0)
    x, wq, wk = rng.normal(size=(7, 16)), *rng.normal(size=(2, 16, 16))

    def interleaved(w: np.ndarray) -> np.ndarray:
        y = (x @ w.T).reshape(7, 2, 4, 2)
        a, b = y[..., 0], y[..., 1]
        c, s = np.asarray(cos)[:, None], np.asarray(sin)[:, None]
        return np.stack([a * c - b * s, a * s + b * c], -1).reshape(7, 2, 8)

    def ours(w: np.ndarray) -> np.ndarray:
        y = jnp.asarray((x @ half_split(w, 2).T).reshape(1, 7, 2, 8), jnp.float32)
        return np.asarray(rotate(y, cos, sin))[0]

    expected = np.einsum("thd,shd->hts", interleaved(wq), interleaved(wk))
    found = np.einsum("thd,shd->hts", ours(wq), ours(wk))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:10], "no header"),
        (lambda data: data[:200], "ends inside 'embedding'"),
        (lambda data: b"\xff" * 28 + data[28:], "impossible sizes"),
    ],
)
def test_damaged_checkpoints_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "m.bin"
    write_checkpoint(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=message):
        load_checkpoint(path)


def test_untied_embeddings_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m.bin", vocab=-6)
    with pytest.raises(ConfigError, match="output matrix of its own"):
        load_checkpoint(tmp_path / "m.bin")


def test_tokenizer_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tokenizer file"):
        Llama2cTokenizer(tmp_path / "absent.bin", 3)
    short = tmp_path / "t.bin"
    short.write_bytes(struct.pack("<ifi", 3, 0.0, 1) + b"a")
    with pytest.raises(ConfigError, match="has 1 pieces, required 2"):
        Llama2cTokenizer(short, 2)
