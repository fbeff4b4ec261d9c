from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from sapbert.artifacts import load_manifest
from sapbert.encoder.onnx import OnnxEncoder
from sapbert.encoder.onnx_export.restore import restore_model
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError
from tests.encoder.conftest import POOLINGS, Exported

NAMES = ["heart attack", "", "chronic renal failure with fever", "感冒", "neuropathy", "a b c d e " * 50]


def without_floats(exported: Path, folder: Path) -> Path:
    """An export with only the int8 variant, as in the package."""
    OnnxEncoder.open(exported, variant="int8").copy_to(folder)
    return folder


@pytest.mark.parametrize("family", POOLINGS)
def test_an_int8_export_is_restored_to_a_model_with_the_same_vectors(
    family: str, exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    small = without_floats(exported(family).onnx, tmp_path / "small")

    restore_model(small, tmp_path / "model")

    encoder = TransformerEncoder.open(tmp_path / "model", device="cpu")
    truth = OnnxEncoder.open(small)
    assert (encoder.pooling, encoder.max_length) == (truth.pooling, truth.max_length)
    assert (encoder.encode(NAMES) * truth.encode(NAMES)).sum(axis=1).min() > 0.98


def test_an_fp32_export_is_restored_without_loss(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    folders = exported("bert")

    restore_model(folders.onnx, tmp_path / "model")

    before = TransformerEncoder.open(folders.model, max_length=60, device="cpu")
    after = TransformerEncoder.open(tmp_path / "model", device="cpu")
    assert after.fingerprint == before.fingerprint
    assert load_manifest(tmp_path / "model").fingerprint == after.fingerprint


def test_sentence_transformers_opens_a_restored_model(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    small = without_floats(exported("roberta").onnx, tmp_path / "small")
    restore_model(small, tmp_path / "model")

    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(NAMES[:3])

    assert (vectors * OnnxEncoder.open(small).encode(NAMES[:3])).sum(axis=1).min() > 0.98


def test_a_restored_model_can_be_trained(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    restore_model(without_floats(exported("bert").onnx, tmp_path / "small"), tmp_path / "model")
    encoder = TransformerEncoder.open(tmp_path / "model", device="cpu")
    ids = torch.tensor([[2, 5, 6, 3]])

    encoder.model(input_ids=ids).last_hidden_state.sum().backward()

    assert all(parameter.grad is not None for parameter in encoder.model.parameters())


def test_no_local_path_is_exported(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    folders = exported("bert")
    small = without_floats(folders.onnx, tmp_path / "small")

    for file in (small / "huggingface").iterdir():
        assert str(folders.model.parent) not in file.read_text()
    config = json.loads((small / "huggingface" / "config.json").read_text())
    assert config["model_type"] == "bert"


def test_a_folder_of_an_older_export_is_refused(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    small = without_floats(exported("bert").onnx, tmp_path / "small")
    shutil.rmtree(small / "huggingface")

    with pytest.raises(ArtifactError, match=r"cannot be converted to .*; export it again"):
        restore_model(small, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_missing_weight_is_named(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    small = without_floats(exported("bert").onnx, tmp_path / "small")
    table = small / "huggingface" / "weights.json"
    places = json.loads(table.read_text())
    del places["encoder.layer.1.output.dense.weight"]
    table.write_text(json.dumps(places))

    with pytest.raises(
        ArtifactError, match=r"its graph has no weight encoder\.layer\.1\.output\.dense\.weight"
    ):
        restore_model(small, tmp_path / "model")


def test_a_weight_in_the_wrong_place_is_an_error(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    small = without_floats(exported("bert").onnx, tmp_path / "small")
    table = small / "huggingface" / "weights.json"
    places = json.loads(table.read_text())
    wrong = places["encoder.layer.0.attention.self.query.weight"]
    places["encoder.layer.1.attention.self.value.weight"] = wrong
    table.write_text(json.dumps(places))

    with pytest.raises(ArtifactError, match="vectors differ"):
        restore_model(small, tmp_path / "model")
