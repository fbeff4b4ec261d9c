from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import BertJapaneseTokenizer, PreTrainedTokenizerBase

from sapbert.encoder import transformer
from sapbert.encoder.loading import load_encoder, max_input_tokens
from sapbert.encoder.model_folder import SAPBERT_FILE
from sapbert.encoder.transformer import TransformerEncoder, tokenize
from sapbert.errors import ConfigError
from sapbert.protocols import Encoder
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling, pool
from tests.encoder.test_loading import spoil_tokenizer
from tests.encoder.tiny import (
    FAMILIES,
    POSITIONS,
    WIDTH,
    WORDS,
    tiny_bert,
    tiny_modernbert,
    truncating_left,
)

NAMES = (
    "heart attack",
    "",
    "acute myocardial infarction of the heart with fever and chronic renal failure",
    "fever",
    "common cold",
    "neuropathy",
    "type b diabetes mellitus",
    "感冒",
    "e",
    "   ",
)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(bert: Path) -> TransformerEncoder:
    return TransformerEncoder.open(bert, device="cpu")


def encode_slowly(encoder: TransformerEncoder, name: str) -> NDArray[np.float32]:
    """Encode one name with transformers alone."""
    options = {"padding": "max_length"} if encoder.pooling is Pooling.MEAN_ALL else {}
    tokens = encoder.tokenizer(
        [name],
        truncation=True,
        max_length=encoder.max_length,
        return_special_tokens_mask=True,
        return_tensors="pt",
        **options,
    )
    special = tokens.pop("special_tokens_mask")
    with torch.no_grad():
        hidden = encoder.model(**tokens).last_hidden_state
    vector = pool(hidden, tokens["attention_mask"], special, encoder.pooling)[0]
    unit: NDArray[np.float32] = (vector / vector.norm()).numpy()
    return unit


def test_names_become_unit_vectors_in_their_order(encoder: TransformerEncoder) -> None:
    vectors = encoder.encode(["heart attack", "fever", "heart attack"])

    assert vectors.shape == (3, WIDTH) == (3, encoder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert abs(vectors[0] @ vectors[1]) < 0.9


def test_it_implements_the_encoder_protocol(encoder: TransformerEncoder) -> None:
    seam: Encoder = encoder
    assert len(seam.fingerprint) == 32


@pytest.mark.parametrize("pooling", list(Pooling))
def test_every_family_and_pooling_gives_what_plain_transformers_gives(family: Path, pooling: Pooling) -> None:
    encoder = TransformerEncoder.open(family, pooling=pooling, device="cpu", max_length=24)
    vectors = encoder.encode(NAMES)

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for name, vector in zip(NAMES, vectors, strict=True):
        np.testing.assert_allclose(vector, encode_slowly(encoder, name), atol=1e-5)


def test_names_are_truncated_on_the_side_of_the_tokenizer(bert: Path, tmp_path: Path) -> None:
    encoder = TransformerEncoder.open(truncating_left(bert, tmp_path / "left"), device="cpu", max_length=5)

    tokens = tokenize(encoder.tokenizer, ["a b c d e"], max_length=5)

    assert encoder.tokenizer.convert_ids_to_tokens(tokens.ids.tolist()) == ["[CLS]", "c", "d", "e", "[SEP]"]


@pytest.mark.parametrize("pooling", list(Pooling))
@given(names=st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=12))
@settings(max_examples=15)
def test_a_vector_does_not_depend_on_the_other_names(
    encoder: TransformerEncoder, pooling: Pooling, names: list[str]
) -> None:
    choice = TransformerEncoder(encoder.model, encoder.tokenizer, pooling=pooling, max_length=8)
    together = choice.encode(names)

    assert together.shape == (len(names), WIDTH)
    for name, vector in zip(names, together, strict=True):
        np.testing.assert_allclose(vector, choice.encode([name])[0], atol=1e-5)


def test_a_repeated_name_is_computed_once(
    encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watch(tokenizer: PreTrainedTokenizerBase, names: list[str], *, max_length: int) -> TokenRows:
        seen.extend(names)
        return tokenize(tokenizer, names, max_length=max_length)

    monkeypatch.setattr(transformer, "tokenize", watch)
    encoder.encode(["fever", "cold", "fever", "", "fever", ""])
    assert seen == ["fever", "cold", ""]


def test_a_pure_python_tokenizer_works(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "japanese")
    spoil_tokenizer(folder)
    letters = tmp_path / "vocab.txt"
    letters.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"感冒発熱心"]), encoding="utf-8"
    )
    options = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "character"}
    tokenizer = BertJapaneseTokenizer(str(letters), **options)  # type: ignore[no-untyped-call]  # left untyped
    tokenizer.save_pretrained(folder)
    encoder = TransformerEncoder.open(folder, pooling=Pooling.NO_SPECIAL, device="cpu")
    names = ["感冒", "", "発熱 心", "熱"]

    assert not hasattr(encoder.tokenizer, "backend_tokenizer")
    assert len(encoder.fingerprint) == 32
    for name, vector in zip(names, encoder.encode(names), strict=True):
        np.testing.assert_allclose(vector, encode_slowly(encoder, name), atol=1e-5)


def test_encoding_is_deterministic_and_keeps_training_mode(bert: Path) -> None:
    model, tokenizer = load_encoder(bert)
    model.train(mode=True)
    encoder = TransformerEncoder(model, tokenizer, pooling=Pooling.CLS, max_length=16)

    np.testing.assert_array_equal(encoder.encode(NAMES), encoder.encode(NAMES))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_half_precision_is_close(bert: Path, encoder: TransformerEncoder) -> None:
    half = TransformerEncoder.open(bert, device="cpu", dtype=torch.bfloat16)
    vectors = half.encode(NAMES)

    assert vectors.dtype == np.float32
    assert 0 < np.abs(vectors - encoder.encode(NAMES)).max() < 0.05
    assert half.fingerprint == encoder.fingerprint


def test_the_fingerprint_changes_with_everything_that_changes_vectors(bert: Path, tmp_path: Path) -> None:
    def mark(folder: Path, pooling: Pooling = Pooling.CLS, max_length: int = 16) -> str:
        return TransformerEncoder.open(
            folder, pooling=pooling, max_length=max_length, device="cpu"
        ).fingerprint

    other_heads = shutil.copytree(bert, tmp_path / "heads")
    config = json.loads((other_heads / "config.json").read_text())
    (other_heads / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}))
    changed = [
        mark(bert, Pooling.MEAN),
        mark(bert, max_length=17),
        mark(tiny_bert(tmp_path / "seed", seed=1)),
        mark(tiny_bert(tmp_path / "words", words=WORDS[::-1])),
        mark(other_heads),
    ]
    assert mark(tiny_bert(tmp_path / "same")) == mark(bert)
    assert len({mark(bert), *changed}) == 6


def test_the_defaults_are_cls_pooling_and_64_tokens(encoder: TransformerEncoder) -> None:
    assert (encoder.pooling, encoder.max_length) == (Pooling.CLS, 64)


@pytest.mark.parametrize(("name", "limit"), [("bert", POSITIONS), ("roberta", POSITIONS - 2)])
def test_max_length_is_limited_by_the_positions(name: str, limit: int, tmp_path: Path) -> None:
    model, tokenizer = load_encoder(FAMILIES[name](tmp_path))
    encoder = TransformerEncoder(model, tokenizer, pooling=Pooling.CLS, max_length=limit)

    assert max_input_tokens(model) == limit
    assert np.isfinite(encoder.encode(["a b c d e " * 50])).all()
    for bad in (limit + 1, 2, 0):
        with pytest.raises(ConfigError, match=f"from 3 to {limit} tokens, got {bad}"):
            TransformerEncoder(model, tokenizer, pooling=Pooling.CLS, max_length=bad)


def test_a_stored_length_beyond_the_positions_is_reduced(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "long")
    (folder / SAPBERT_FILE).write_text('{"max_length": 512}')
    assert TransformerEncoder.open(folder, device="cpu").max_length == POSITIONS


def test_padding_does_not_change_local_attention(tmp_path: Path) -> None:
    folder = tiny_modernbert(tmp_path)
    encoder = TransformerEncoder.open(folder, pooling=Pooling.MEAN, max_length=90, device="cpu")
    alone = encoder.encode(["fever"])
    np.testing.assert_allclose(encoder.encode(["fever", "heart " * 80])[:1], alone, atol=1e-5)
