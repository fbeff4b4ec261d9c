from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5Model

from sapbert.encoder.loading import load_encoder
from sapbert.encoder.model_folder import SAPBERT_FILE, quiet_transformers
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError
from sapbert.tokens.pooling import Pooling
from tests.encoder.tiny import WIDTH, tiny_bert, tiny_modernbert


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def test_loading_prints_nothing_and_keeps_the_random_state(
    bert: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    state = torch.random.get_rng_state()
    model, _ = load_encoder(str(bert))

    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not [name for name, _ in model.named_parameters() if "pooler" in name]
    assert not model.training


def test_an_encoder_is_found_inside_a_language_model_of_any_precision(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "language-model")
    weights = load_file(folder / "model.safetensors")
    inside = {f"bert.{name}": weight.bfloat16() for name, weight in weights.items()}
    inside |= {"cls.predictions.bias": torch.zeros(9), "bert.pooler.dense.bias": torch.zeros(WIDTH)}
    save_file(inside, folder / "model.safetensors", metadata={"format": "pt"})
    model, _ = load_encoder(folder)

    loaded = model.state_dict()
    assert set(loaded) == set(weights)
    assert all(torch.equal(weight, weights[name].bfloat16().float()) for name, weight in loaded.items())
    assert {weight.dtype for weight in loaded.values()} == {torch.float32}


def test_a_pickled_checkpoint_with_old_layer_norm_names_loads(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "old")
    weights = load_file(folder / "model.safetensors")
    old = {
        key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value
        for key, value in weights.items()
    }
    (folder / "model.safetensors").unlink()
    torch.save(old, folder / "pytorch_model.bin")
    model, _ = load_encoder(folder)

    assert set(model.state_dict()) == set(weights)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def spoil_nothing_there(folder: Path) -> None:
    shutil.rmtree(folder)


def spoil_file_instead(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("weights")


def spoil_empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def spoil_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def spoil_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "crystal-ball"}')


def spoil_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def spoil_cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5_000])


def spoil_pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"these are no weights")


def spoil_other_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 8}))


def spoil_one_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "layer.1.output" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def spoil_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def spoil_other_tokenizer(folder: Path) -> None:
    spoil_tokenizer(folder)
    other = tiny_bert(folder.parent / "other", words=[f"word{number}" for number in range(90)])
    for file in other.glob("tokenizer*"):
        shutil.copy(file, folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_nothing_there, "model: no such folder"),
        (spoil_file_instead, "model is a file, expected the folder of a Hugging Face model"),
        (spoil_empty, "model: not a Hugging Face model: no config.json"),
        (spoil_config, "model: config.json is damaged or has an unknown model type"),
        (spoil_kind, "model: config.json is damaged or has an unknown model type"),
        (spoil_no_weights, "model: no weights: expected model.safetensors or pytorch_model.bin"),
        (spoil_cut_weights, "model: the weights are missing, damaged or do not match config.json"),
        (spoil_pickled_weights, "model: the weights are missing, damaged or do not match config.json"),
        (spoil_other_size, "model: the weights are missing, damaged or do not match config.json"),
        (spoil_one_layer, "model: 4 weights are missing, such as encoder.layer.1.output."),
        (spoil_tokenizer, "model: no tokenizer: expected tokenizer.json or a vocabulary file"),
        (spoil_other_tokenizer, "the tokenizer has token 94, the encoder only 37 tokens"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_bad_folder_is_refused_in_one_line(
    spoil: object, message: str, bert: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(bert, tmp_path / "model")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(ArtifactError) as caught:
        load_encoder(folder)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_modernbert_without_its_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = tiny_modernbert(tmp_path)
    spoil_tokenizer(folder)
    with pytest.raises(ArtifactError, match=r"no readable tokenizer \(tokenizer.json\)"):
        load_encoder(folder)


def test_an_encoder_with_a_decoder_is_refused(tmp_path: Path) -> None:
    config = T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    with quiet_transformers():
        T5Model(config).save_pretrained(tmp_path)
    with pytest.raises(ArtifactError, match="a t5 model is not an encoder"):
        load_encoder(tmp_path)


def test_an_unreachable_hub_id_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError) as caught:
        load_encoder("nobody/no-such-model")
    assert str(caught.value).startswith("nobody/no-such-model: no such folder, and no such model on the Hug")
    assert "\n" not in str(caught.value)


def test_a_hub_id_in_the_cache_opens_with_its_pooling(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--somebody--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    folder = shutil.copytree(bert, repository / "snapshots" / commit)
    (folder / SAPBERT_FILE).write_text('{"pooling": "mean", "max_length": 30}')
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    encoder = TransformerEncoder.open("somebody/tiny", device="cpu")

    assert (encoder.pooling, encoder.max_length) == (Pooling.MEAN, 30)


@pytest.mark.parametrize("name", ["default", "open-mini"])
def test_a_bundled_encoder_is_not_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(ArtifactError, match="sapbert export open-mini --format huggingface"):
        load_encoder(name)
