from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from sapbert.encoder.adapters import trainable_parameters
from sapbert.errors import ConfigError, MissingExtraError
from sapbert.training.alignment.lora import LoraSettings, add_lora, merge_lora, save_lora
from tests.encoder.test_adapters import build, encode, stir
from tests.encoder.test_adapters import model as model


def test_a_new_lora_model_gives_the_vectors_of_its_base(model: PreTrainedModel) -> None:
    expected = encode(model)
    add_lora(model, LoraSettings())
    assert torch.allclose(encode(model), expected, atol=1e-6)


def test_merged_lora_gives_the_same_vectors_from_an_ordinary_model(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    base = encode(model)
    names = set(model.state_dict())
    add_lora(model, LoraSettings(rank=2, alpha=4))
    stir(trainable_parameters(model))
    expected = encode(model)
    assert (expected - base).abs().max() > 1e-2

    merge_lora(model)
    model.save_pretrained(tmp_path)
    reopened = type(model).from_pretrained(tmp_path).train(mode=False)

    assert set(model.state_dict()) == names
    assert not hasattr(model, "peft_config")
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.allclose(encode(model), expected, atol=1e-5)
    assert torch.allclose(encode(reopened), expected, atol=1e-5)


def test_lora_trains_every_update_it_adds_and_nothing_else(model: PreTrainedModel) -> None:
    add_lora(model, LoraSettings(rank=2))
    stir(trainable_parameters(model))
    encode(model)[:, 0].square().mul(torch.arange(32)).sum().backward()
    reached = {
        name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()
    }
    assert reached == {name for name, _ in model.named_parameters() if ".lora_" in name}


def test_the_same_seed_gives_the_same_lora() -> None:
    drawn = []
    for seed in (3, 3, 4):
        bert = build()
        before = torch.get_rng_state()
        add_lora(bert, LoraSettings(), seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        drawn.append(torch.cat([value.flatten() for value in trainable_parameters(bert)]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_merging_without_lora_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no LoRA"):
        merge_lora(build())


def test_without_peft_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"needs peft.*sapbert\[lora\]"):
        add_lora(build(), LoraSettings())


def test_saved_updates_can_be_added_to_the_base_by_peft(model: PreTrainedModel, tmp_path: Path) -> None:
    from peft import PeftModel

    base = copy.deepcopy(model)
    model.name_or_path = "example/base"
    add_lora(model, LoraSettings(rank=2, alpha=4))
    stir(trainable_parameters(model))
    save_lora(model, tmp_path)
    merge_lora(model)

    PeftModel.from_pretrained(base, tmp_path)  # in place

    assert torch.allclose(encode(base), encode(model), atol=1e-5)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="got rank 0 and alpha 16"):
        LoraSettings(rank=0)
    with pytest.raises(ConfigError, match="got rank 8 and alpha 0"):
        LoraSettings(alpha=0)
