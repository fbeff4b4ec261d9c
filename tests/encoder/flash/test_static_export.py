from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from sapbert.encoder.flash.encoder import FlashEncoder, write_flash_encoder
from sapbert.encoder.flash.features import FeatureKind, FeatureSpec, FeatureTable, words
from sapbert.encoder.flash.product_codes import quantize_table
from sapbert.encoder.flash.static_export import export_static
from sapbert.errors import ConfigError
from tests.encoder.flash.tiny_flash import write_tiny_flash

NAMES = [
    "Type-2 diabetes",
    "ménière's disease",
    "2型糖尿病",
    "ロコモ症候群",
    "грипп A/H1N1",
    "β-thalassaemia",
]
SPEC = FeatureSpec(
    (
        FeatureTable(FeatureKind.WORD, 9),
        FeatureTable(FeatureKind.CHARACTERS, 9, 4),
        FeatureTable(FeatureKind.SOUNDS, 8),
    )
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> FlashEncoder:
    table = np.random.default_rng(0).standard_normal((SPEC.rows, 16)).astype(np.float32)
    folder = tmp_path_factory.mktemp("flash")
    write_flash_encoder(folder, SPEC, quantize_table(table, 2))
    return FlashEncoder.open(folder, threads=1)


def static_vectors(folder: Path, names: list[str]) -> NDArray[np.float32]:
    """Encode as sentence-transformers and model2vec do: the normalized mean of token vectors."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    table = load_file(folder / "model.safetensors")["embeddings"]
    means = np.stack(
        [table[tokenizer.encode(name, add_special_tokens=False).ids].mean(axis=0) for name in names]
    )
    vectors: NDArray[np.float32] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return vectors


def test_words_are_distinct_tokens_without_case_and_accents() -> None:
    assert words(["Type-2 Diabetes", "2型 diabétes"]) == {"type", "2", "diabetes", "型"}
    assert words([]) == set()


def test_vectors_of_known_words_are_those_of_the_encoder(encoder: FlashEncoder, tmp_path: Path) -> None:
    manifest = export_static(encoder, [NAMES[:3], NAMES[3:]], tmp_path / "static")
    assert manifest.counts["words"] == len(words(NAMES))
    mixed = [*NAMES, "DIABETES (type 2)", "thalassaemia disease"]
    assert np.allclose(static_vectors(tmp_path / "static", mixed), encoder.encode(mixed), atol=1e-5)


def test_unknown_words_are_ignored(encoder: FlashEncoder, tmp_path: Path) -> None:
    export_static(encoder, [["diabetes"]], tmp_path / "static")
    known, unknown = static_vectors(tmp_path / "static", ["diabetes", "juvenile diabetes"])
    assert np.allclose(known, unknown)


def test_sentence_transformers_opens_the_folder(encoder: FlashEncoder, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    export_static(encoder, [NAMES], tmp_path / "static")
    opened = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert np.allclose(opened.encode(NAMES), encoder.encode(NAMES), atol=1e-5)


def test_an_encoder_with_pairs_of_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flash").mkdir()
    write_tiny_flash(tmp_path / "flash")
    with pytest.raises(ConfigError, match="has no pairs of words"):
        export_static(FlashEncoder.open(tmp_path / "flash"), [], tmp_path / "static")
