"""Training with adapters and LoRA: trained parameters, saved files, and opening them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from sapbert.artifacts import load_manifest
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError, ConfigError
from sapbert.pairs.artifact import Pairs
from sapbert.training.alignment.trainer import train
from sapbert.training.settings import TrainSettings
from tests.encoder.tiny import tiny_bert

CPU = torch.device("cpu")
NAMES = ["heart attack", "chronic renal failure", "migraine"]


def settings(adapter: str, **changes: object) -> TrainSettings:
    short = {"batch_size": 8, "epochs": 0.2, "held_out": 5, "checkpoint_every": 2, "learning_rate": 1e-2}
    return TrainSettings(**{"adapter": adapter, "reduction": 4, "rank": 2, **short, **changes})  # type: ignore[arg-type]


def vectors(model: Path) -> np.ndarray:
    return TransformerEncoder.open(model, device="cpu").encode(NAMES)


def stop_after(step: int) -> object:
    def stop(done: int, _total: int, _figures: Mapping[str, float]) -> None:
        if done == step:
            raise RuntimeError("stopped")

    return stop


@pytest.fixture(scope="module")
def pfeiffer(tiny_pairs: Pairs, tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("pfeiffer") / "model"
    train(tiny_pairs, str(tiny_base), model, settings("pfeiffer"), device=CPU)
    return model


@pytest.fixture(scope="module")
def lora(tiny_pairs: Pairs, tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("lora") / "model"
    train(tiny_pairs, str(tiny_base), model, settings("lora"), device=CPU)
    return model


def test_trained_adapters_open_with_the_same_vectors(pfeiffer: Path, tiny_base: Path) -> None:
    manifest = load_manifest(pfeiffer, kind="model")
    encoder = TransformerEncoder.open(pfeiffer, device="cpu")

    assert np.abs(vectors(pfeiffer) - vectors(tiny_base)).max() > 1e-3
    assert (manifest.fingerprint, encoder.pooling, encoder.max_length) == (encoder.fingerprint, "cls", 25)
    assert manifest.inputs["base"]["fingerprint"]


def test_the_folder_of_an_adapter_model_contains_adapters_and_no_base(
    pfeiffer: Path, tiny_base: Path
) -> None:
    adapters = load_file(pfeiffer / "adapter" / "adapter.safetensors")

    assert all(".adapter." in name for name in adapters)
    assert not list(pfeiffer.glob("model.safetensors*"))
    assert load_manifest(pfeiffer / "adapter").inputs["base"]["name"] == str(tiny_base)


def test_transformers_refuses_an_adapter_model(pfeiffer: Path) -> None:
    for opening in (AutoModel.from_pretrained, SentenceTransformer):
        with pytest.raises(ValueError, match="sapbert-adapter"):
            opening(str(pfeiffer))


def test_a_missing_base_is_named_in_the_error(tiny_pairs: Pairs, tmp_path: Path) -> None:
    base = tiny_bert(tmp_path / "base")
    train(tiny_pairs, str(base), tmp_path / "model", settings("pfeiffer", epochs=0.02), device=CPU)
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match=r"model has only adapters.*base: no such folder"):
        TransformerEncoder.open(tmp_path / "model")


def test_another_base_at_the_same_path_is_refused(tiny_pairs: Pairs, tmp_path: Path) -> None:
    base = tiny_bert(tmp_path / "base")
    train(tiny_pairs, str(base), tmp_path / "model", settings("pfeiffer", epochs=0.02), device=CPU)
    tiny_bert(base, seed=1)
    with pytest.raises(ArtifactError, match="was trained on"):
        TransformerEncoder.open(tmp_path / "model")


def test_a_base_given_by_a_relative_path_is_found_from_elsewhere(
    tiny_pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_bert(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    train(tiny_pairs, "base", Path("model"), settings("pfeiffer", epochs=0.02), device=CPU)
    monkeypatch.chdir(tmp_path.parent)
    assert TransformerEncoder.open(tmp_path / "model", device="cpu").encode(NAMES).shape == (3, 32)


def test_merged_lora_opens_as_an_ordinary_model_here_and_in_sentence_transformers(
    lora: Path, tiny_base: Path
) -> None:
    ours = vectors(lora)
    theirs = SentenceTransformer(str(lora), device="cpu").encode(NAMES)

    assert np.abs(ours - vectors(tiny_base)).max() > 1e-3
    assert np.abs(ours - theirs).max() < 1e-5
    assert load_manifest(lora).fingerprint == TransformerEncoder.open(lora, device="cpu").fingerprint


def test_lora_updates_are_also_written_separately(lora: Path) -> None:
    updates = load_file(lora / "adapter" / "adapter_model.safetensors")
    assert all(".lora_" in name for name in updates)
    assert sum(part.numel() for part in updates.values()) < sum(
        part.numel() for part in load_file(lora / "model.safetensors").values()
    )


@pytest.mark.parametrize("adapter", ["pfeiffer", "lora"])
def test_an_interrupted_run_resumes_bit_for_bit_from_small_checkpoints(
    adapter: str, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = tmp_path / "model"
    with pytest.raises(RuntimeError, match="stopped"):
        train(
            tiny_pairs,
            str(tiny_base),
            model,
            settings(adapter),
            device=CPU,
            on_step=stop_after(3),  # type: ignore[arg-type]  # an OnStep
        )
    saved = torch.load(tmp_path / "model.run" / "step-00000002" / "state.pt")["model"]
    assert all(".adapter." in name or ".lora_" in name for name in saved)

    train(tiny_pairs, str(tiny_base), model, settings(adapter), device=CPU, resume=True)

    assert np.array_equal(vectors(model), vectors(request.getfixturevalue(adapter)))


def test_a_run_is_not_resumed_on_another_base(tiny_pairs: Pairs, tmp_path: Path) -> None:
    base, model = tiny_bert(tmp_path / "base"), tmp_path / "model"
    with pytest.raises(RuntimeError, match="stopped"):
        train(
            tiny_pairs,
            str(base),
            model,
            settings("pfeiffer"),
            device=CPU,
            on_step=stop_after(3),  # type: ignore[arg-type]  # an OnStep
        )
    tiny_bert(base, seed=1)
    with pytest.raises(ConfigError, match="base_fingerprint"):
        train(tiny_pairs, str(base), model, settings("pfeiffer"), device=CPU, resume=True)


def test_existing_adapters_of_a_base_are_trained_further(
    pfeiffer: Path, tiny_pairs: Pairs, tiny_base: Path, tmp_path: Path
) -> None:
    train(tiny_pairs, str(pfeiffer), tmp_path / "model", settings("pfeiffer"), device=CPU)

    assert np.abs(vectors(tmp_path / "model") - vectors(pfeiffer)).max() > 1e-3
    assert load_manifest(tmp_path / "model" / "adapter").inputs["base"]["name"] == str(tiny_base)


@pytest.mark.parametrize("other", [settings("none"), settings("lora"), settings("pfeiffer", reduction=2)])
def test_a_base_with_adapters_is_refused_for_other_training(
    other: TrainSettings, pfeiffer: Path, tiny_pairs: Pairs, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="give --adapter pfeiffer --reduction 4"):
        train(tiny_pairs, str(pfeiffer), tmp_path / "model", other, device=CPU)
    assert not (tmp_path / "model.run").exists()
