from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sapbert.artifacts import load_manifest
from sapbert.encoder.flash.encoder import FlashEncoder
from sapbert.encoder.open import open_encoder
from sapbert.errors import ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.training.flash import teacher as teacher_module
from sapbert.training.flash.teacher import open_teacher
from sapbert.training.flash.trainer import train_flash
from sapbert.training.held_out import retrieval_accuracy
from sapbert.training.metrics import read_metrics
from tests.encoder.flash.tiny_flash import write_tiny_flash
from tests.training.flash.conftest import short

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def uninterrupted(tiny_pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("flash") / "model"
    train_flash(tiny_pairs, model, short(), device=CPU)
    return model


def codes(model: Path) -> bytes:
    return b"".join((model / name).read_bytes() for name in ("codes.npy", "scales.npy", "centroids.npy"))


def tiny_flash(folder: Path) -> str:
    folder.mkdir()
    write_tiny_flash(folder)
    return str(folder)


def test_training_pulls_the_names_of_a_concept_together(tiny_pairs: Pairs, tmp_path: Path) -> None:
    settings = short(steps=60, dimension=16, bits=8, misspelt=0.0)
    train_flash(tiny_pairs, tmp_path / "model", settings, device=CPU)
    metrics = read_metrics(tmp_path / "model" / "metrics.jsonl")
    losses = [row["loss"] for row in metrics if "loss" in row]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    everything = np.arange(len(tiny_pairs))
    assert retrieval_accuracy(tiny_pairs, everything, FlashEncoder.open(tmp_path / "model")) > 0.8


def test_the_folder_opens_as_an_encoder_and_describes_itself(tiny_pairs: Pairs, uninterrupted: Path) -> None:
    encoder, manifest = open_encoder(str(uninterrupted)), load_manifest(uninterrupted, kind="encoder")
    assert manifest.fingerprint == encoder.fingerprint
    assert encoder.dimension == 8
    assert manifest.settings["batch_size"] == 16
    assert manifest.settings["pairs"] == tiny_pairs.manifest.fingerprint
    last = read_metrics(uninterrupted / "metrics.jsonl")[-1]
    assert set(last) == {"step", "quantized_retrieval"}
    card = (uninterrupted / "README.md").read_text(encoding="utf-8")
    assert "| temperature | 0.07 |" in card
    assert "| steps | quantized_retrieval | retrieval |" in card
    assert not uninterrupted.with_name("model.run").exists()


def test_a_resumed_run_equals_an_uninterrupted_one(
    tiny_pairs: Pairs, tmp_path: Path, uninterrupted: Path
) -> None:
    def stop(done: int, _total: int, _figures: Any) -> None:
        if done == 6:
            raise OSError("stopped")

    with pytest.raises(OSError, match="stopped"):
        train_flash(tiny_pairs, tmp_path / "model", short(), device=CPU, on_step=stop)
    train_flash(tiny_pairs, tmp_path / "model", short(), device=CPU, resume=True)
    assert codes(tmp_path / "model") == codes(uninterrupted)


def test_the_seed_decides(tiny_pairs: Pairs, tmp_path: Path, uninterrupted: Path) -> None:
    for seed, same in ((33, True), (34, False)):
        train_flash(tiny_pairs, tmp_path / str(seed), short(seed=seed), device=CPU)
        assert (codes(tmp_path / str(seed)) == codes(uninterrupted)) is same


def test_training_continues_from_a_base_and_keeps_rows_that_it_does_not_use(
    tiny_pairs: Pairs, tmp_path: Path
) -> None:
    base = tiny_flash(tmp_path / "base")
    settings = short(features={}, dimension=None, learning_rate=1e-3, bits=8, held_out=0)
    train_flash(tiny_pairs, tmp_path / "model", settings, base=base, device=CPU)
    before, after = (FlashEncoder.open(tmp_path / name) for name in ("base", "model"))
    assert after.features == before.features
    changed = np.abs(after.table() - before.table()).max(axis=1) > 0.1
    assert np.corrcoef(before.table().ravel(), after.table().ravel())[0, 1] > 0.9
    assert not changed.all()
    assert load_manifest(tmp_path / "model").inputs["base"]["fingerprint"] == before.fingerprint


def test_features_and_dimension_of_a_base_cannot_be_changed(tiny_pairs: Pairs, tmp_path: Path) -> None:
    base = tiny_flash(tmp_path / "base")
    with pytest.raises(ConfigError, match="are those of the base"):
        train_flash(tiny_pairs, tmp_path / "model", short(), base=base, device=CPU)


def test_a_teacher_is_encoded_once_and_recorded(
    tiny_pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPBERT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(teacher_module, "_PART", 50)
    tiny_flash(tmp_path / "teacher")
    first = open_teacher(str(tmp_path / "teacher"), tiny_pairs)
    expected = FlashEncoder.open(tmp_path / "teacher").encode(
        tiny_pairs.names.take(range(len(first.vectors)))
    )
    assert np.allclose(first.vectors, expected, atol=1e-3)
    parts = sorted((tmp_path / "home").glob("teachers/*/*"))
    written = [(part / "vectors.npy").stat().st_mtime_ns for part in parts]
    (parts[1] / "vectors.npy").write_bytes(b"damaged")
    again = open_teacher(str(tmp_path / "teacher"), tiny_pairs)
    assert np.array_equal(again.vectors, first.vectors)
    rewritten = [(part / "vectors.npy").stat().st_mtime_ns for part in parts]
    assert [old == new for old, new in zip(written, rewritten, strict=True)] == [True, False, True]

    train_flash(tiny_pairs, tmp_path / "model", short(steps=3), teacher=again, device=CPU)
    assert load_manifest(tmp_path / "model").inputs["teacher"]["fingerprint"] == first.fingerprint


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"features": {"words": 8}}, "no table of features is called words=8"),
        ({"features": {"characters": 8}}, "characters"),
        ({"features": {"word": 8.5}}, r"word=8\.5"),
        ({"batch_size": 1}, "no negatives"),
        ({"bits": 3}, "8, 4 or 2"),
        ({"misspelt": 1.0}, "misspelt must be a fraction"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(
    tiny_pairs: Pairs, tmp_path: Path, wrong: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        train_flash(tiny_pairs, tmp_path / "model", short(**wrong), device=CPU)
