from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel

from sapbert.artifacts import create, load_manifest
from sapbert.encoder.adapters import (
    KIND,
    AdapterSettings,
    Bottleneck,
    add_adapters,
    load_adapters,
    reduction_of,
    save_adapters,
    trainable_parameters,
)
from sapbert.errors import ArtifactError, ConfigError

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "cls_token_id": 0,
    "sep_token_id": 2,
}
FAMILIES = ("bert", "roberta", "xlm-roberta", "mpnet", "modernbert")
INPUT_IDS = torch.tensor([[0, 5, 6, 7, 2, 1], [0, 8, 9, 2, 1, 1]])  # (batch, tokens)
encoder_from: Callable[[PreTrainedConfig], PreTrainedModel] = AutoModel.from_config
masked_language_model_from: Callable[[PreTrainedConfig], PreTrainedModel] = AutoModelForMaskedLM.from_config
SMALL = AdapterSettings(reduction=4)


@pytest.fixture(autouse=True)
def _few_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return build(request.param)


def build(family: str = "bert", *, seed: int = 0, **changes: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = encoder_from(config_of(family, **changes))
    model.train(mode=False)
    return model


def config_of(family: str, **changes: int) -> PreTrainedConfig:
    config: PreTrainedConfig = AutoConfig.for_model(family, **(SIZES | changes))
    return config


def encode(model: PreTrainedModel) -> Tensor:
    mask = (INPUT_IDS != 1).long()
    hidden: Tensor = model(input_ids=INPUT_IDS, attention_mask=mask).last_hidden_state
    return hidden  # (batch, tokens, width)


def stir(parameters: list[torch.nn.Parameter]) -> None:
    """Change new parameters as training would, so that none is zero."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)


# Size and shape


@pytest.mark.parametrize(("reduction", "count", "percent"), [(1, 14_470_272, 13.22), (16, 1_190_592, 1.09)])
def test_bert_base_gets_as_many_parameters_as_in_the_paper(
    reduction: int, count: int, percent: float
) -> None:
    with torch.device("meta"):
        bert = encoder_from(AutoConfig.for_model("bert"))
    base = bert.num_parameters()
    add_adapters(bert, AdapterSettings(reduction=reduction))

    trainable = sum(parameter.numel() for parameter in trainable_parameters(bert))

    inner = 768 // reduction
    layer = 768 * inner + inner + inner * 768 + 768
    half = 384 * 192 + 192 + 192 * 384 + 384
    assert trainable == 12 * layer + 2 * half == count
    assert round(100 * trainable / base, 2) == percent


def test_adapters_are_submodules_and_rename_no_parameter() -> None:
    bert = build()
    before = set(bert.state_dict())
    add_adapters(bert, SMALL)

    added = set(bert.state_dict()) - before

    assert before <= set(bert.state_dict())
    layers = {
        f"encoder.layer.{layer}.output.LayerNorm.adapter.{part}.{kind}"
        for layer in range(2)
        for part in ("down", "up")
        for kind in ("weight", "bias")
    }
    embeddings = {
        f"embeddings.adapter.{side}.{part}.{kind}"
        for side in ("shift_left", "shift_right")
        for part in ("down", "up")
        for kind in ("weight", "bias")
    }
    assert added == layers | embeddings


# Vectors


def test_a_new_adapter_model_gives_exactly_the_vectors_of_its_base(model: PreTrainedModel) -> None:
    expected = encode(model)
    add_adapters(model, SMALL)
    assert torch.equal(encode(model), expected)


def test_every_adapter_affects_the_vectors(model: PreTrainedModel) -> None:
    add_adapters(model, SMALL)
    stir(trainable_parameters(model))
    whole = encode(model)
    names = [name for name, module in model.named_modules() if name.endswith("adapter")]
    assert len(names) == 3

    for name in names:
        without = copy.deepcopy(model)
        for part in without.get_submodule(name).modules():
            if isinstance(part, Bottleneck):
                torch.nn.init.zeros_(part.up.weight)
                torch.nn.init.zeros_(part.up.bias)
        assert (encode(without) - whole).abs().max() > 1e-3


def test_a_layer_applies_its_adapter_before_its_norm_as_pfeiffer_does() -> None:
    bert = build()
    add_adapters(bert, SMALL)
    stir(trainable_parameters(bert))
    output = bert.get_submodule("encoder.layer.1.output")
    dense, norm = output.get_submodule("dense"), output.get_submodule("LayerNorm")
    weights: dict[str, Tensor] = {name: value.double() for name, value in norm.state_dict().items()}
    inner, residual = torch.randn(3, 48), torch.randn(3, 32)

    def normalised(row: Tensor) -> Tensor:
        deviation = math.sqrt(float(row.var(correction=0)) + 1e-12)
        result: Tensor = (row - row.mean()) / deviation * weights["weight"] + weights["bias"]
        return result

    def linear(part: str, row: Tensor) -> Tensor:
        result: Tensor = weights[f"adapter.{part}.weight"] @ row + weights[f"adapter.{part}.bias"]
        return result

    for row, found in enumerate(output(inner, residual)):
        total = dense(inner[row]).double() + residual[row]
        correction = linear("up", linear("down", normalised(total)).clamp(min=0))
        assert torch.allclose(found.double(), normalised(total + correction), atol=1e-5)


# Training


def test_gradients_reach_every_adapter_parameter_and_nothing_else(model: PreTrainedModel) -> None:
    add_adapters(model, SMALL)
    stir(trainable_parameters(model))

    encode(model)[:, 0].square().mul(torch.arange(32)).sum().backward()

    reached = {
        name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()
    }
    assert reached == {name for name, _ in model.named_parameters() if ".adapter." in name}


def test_training_changes_the_vectors_but_not_the_base() -> None:
    bert = build()
    base = copy.deepcopy(bert.state_dict())
    add_adapters(bert, SMALL)
    before = encode(bert).detach()
    optimizer = torch.optim.AdamW(trainable_parameters(bert), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        (encode(bert)[0, 0] - encode(bert)[1, 0]).square().sum().backward()
        optimizer.step()

    after = encode(bert)

    assert (after[0, 0] - after[1, 0]).norm() < (before[0, 0] - before[1, 0]).norm()
    assert all(torch.equal(bert.state_dict()[name], value) for name, value in base.items())


def test_adapters_depend_on_the_seed_and_do_not_change_the_random_state() -> None:
    drawn = []
    for seed in (3, 3, 4):
        bert = build()
        before = torch.get_rng_state()
        add_adapters(bert, SMALL, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        drawn.append(bert.get_parameter("embeddings.adapter.shift_left.down.weight"))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_adapters_have_the_precision_of_their_base() -> None:
    bert = build().bfloat16()
    add_adapters(bert, SMALL)
    assert {parameter.dtype for parameter in bert.parameters()} == {torch.bfloat16}
    assert encode(bert).isfinite().all()


def test_a_state_dict_restores_an_adapter_model(model: PreTrainedModel) -> None:
    family = str(model.config.model_type)
    add_adapters(model, SMALL)
    stir(trainable_parameters(model))
    other = build(family, seed=9)
    add_adapters(other, SMALL, seed=9)

    other.load_state_dict(model.state_dict())

    assert torch.equal(encode(other), encode(model))


# On disk


def test_saved_adapters_on_their_base_give_the_same_vectors(model: PreTrainedModel, tmp_path: Path) -> None:
    base = copy.deepcopy(model)
    add_adapters(model, SMALL)
    stir(trainable_parameters(model))
    save_adapters(model, tmp_path / "adapter")

    load_adapters(base, tmp_path / "adapter")

    assert torch.equal(encode(base), encode(model))
    assert {value.shape for value in trainable_parameters(base)} == {
        value.shape for value in trainable_parameters(model)
    }


def test_the_folder_has_only_adapter_weights_and_their_settings(tmp_path: Path) -> None:
    bert = build()
    bert.name_or_path = "example/bert"
    add_adapters(bert, SMALL)
    save_adapters(bert, tmp_path / "adapter")

    manifest = load_manifest(tmp_path / "adapter", kind=KIND)
    weights = load_file(tmp_path / "adapter" / "adapter.safetensors")

    assert manifest.settings == {"reduction": 4}
    assert manifest.inputs["base"]["name"] == "example/bert"
    assert manifest.counts["parameters"] == sum(value.numel() for value in trainable_parameters(bert))
    assert all(".adapter." in name for name in weights)


def test_a_base_with_another_random_pooler_is_the_same_base(tmp_path: Path) -> None:
    bert, other = build(), build()
    stir(list(other.get_submodule("pooler").parameters()))
    add_adapters(bert, SMALL)
    save_adapters(bert, tmp_path / "adapter")
    load_adapters(other, tmp_path / "adapter")
    assert torch.equal(encode(other), encode(bert))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: build(seed=1),
        lambda: build("roberta"),
        lambda: build().bfloat16(),
        lambda: build(hidden_size=64),
        lambda: build(num_hidden_layers=3),
    ],
    ids=["other weights", "other family", "other precision", "wider", "deeper"],
)
def test_adapters_are_refused_on_another_base(wrong: Callable[[], PreTrainedModel], tmp_path: Path) -> None:
    bert = build()
    bert.name_or_path = "example/bert"
    add_adapters(bert, SMALL)
    save_adapters(bert, tmp_path / "adapter")
    base = wrong()

    with pytest.raises(
        ArtifactError, match=r"adapter was trained on example/bert \(.*does not fit this base"
    ):
        load_adapters(base, tmp_path / "adapter")

    assert not any(".adapter." in name for name in base.state_dict())


def test_damaged_adapters_are_refused(tmp_path: Path) -> None:
    bert = build()
    add_adapters(bert, SMALL)
    save_adapters(bert, tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ArtifactError, match="does not match its checksum"):
        load_adapters(build(), tmp_path / "adapter")


def test_adapters_with_other_names_are_refused_and_not_partly_loaded(tmp_path: Path) -> None:
    bert = build()
    add_adapters(bert, SMALL)
    save_adapters(bert, tmp_path / "adapter")
    manifest = load_manifest(tmp_path / "adapter")
    with create(tmp_path / "other") as draft:
        weights = load_file(tmp_path / "adapter" / "adapter.safetensors")
        weights.pop("embeddings.adapter.shift_left.up.bias")
        save_file(weights, draft.path / "adapter.safetensors")
        draft.seal(KIND, settings=manifest.settings, inputs=manifest.inputs, counts={})
    with pytest.raises(ArtifactError, match="whose adapters have other parameters"):
        load_adapters(build(), tmp_path / "other")


# Errors


@pytest.mark.parametrize(
    "unfit",
    [
        lambda: build("distilbert", dim=32, n_layers=2, n_heads=2, hidden_dim=48),
        lambda: masked_language_model_from(config_of("bert")),
        lambda: masked_language_model_from(config_of("modernbert")),
        lambda: build("electra", embedding_size=16),
    ],
    ids=["distilbert", "bert with a head", "modernbert with a head", "widened embeddings"],
)
def test_an_unsupported_model_is_refused_with_a_list_of_supported_ones(
    unfit: Callable[[], PreTrainedModel],
) -> None:
    model = unfit()
    with pytest.raises(
        ConfigError, match=rf"{type(model).__name__}: use BERT, RoBERTa, XLM-R, MPNet or ModernBERT"
    ):
        add_adapters(model, SMALL)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="reduction is at least 1, got 0"):
        AdapterSettings(reduction=0)
    with pytest.raises(ConfigError, match="reduction 33 exceeds the 32 dimensions"):
        add_adapters(build(), AdapterSettings(reduction=33))


def test_adding_adapters_twice_or_saving_none_is_a_value_error(tmp_path: Path) -> None:
    bert = build()
    assert reduction_of(bert) is None
    with pytest.raises(ValueError, match="no adapters"):
        save_adapters(bert, tmp_path / "adapter")
    add_adapters(bert, SMALL)
    assert reduction_of(bert) == SMALL.reduction
    with pytest.raises(ValueError, match="already"):
        add_adapters(bert, SMALL)
