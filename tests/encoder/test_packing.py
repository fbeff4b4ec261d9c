from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from sapbert.encoder.loading import load_encoder
from sapbert.encoder.packing import PackedNames, supports_packing
from sapbert.encoder.transformer import tokenize
from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling, pool
from tests.encoder.tiny import FAMILIES, WORDS, tiny_bert

CPU = torch.device("cpu")
NAMES = ["heart attack", "fever", "", "chronic renal failure of the type b", "common cold", "a b c d e a b c"]
PACKED = ("bert", "roberta", "xlm-roberta")
POOLINGS = [pooling for pooling in Pooling if pooling is not Pooling.MEAN_ALL]


def one_by_one(model: PreTrainedModel, tokens: TokenRows, pooling: Pooling) -> Tensor:
    """Encode each name in a separate sequence, slowly but obviously correct."""
    vectors = []
    for row in range(len(tokens.lengths)):
        alone = tokens.pad(np.array([row]), pad_id=0)
        ids, real, special = map(torch.from_numpy, (alone.ids, alone.attention, alone.special))
        vectors.append(pool(model(input_ids=ids).last_hidden_state, real, special, pooling))
    return torch.cat(vectors)


def gradients(model: PreTrainedModel, vectors: Tensor) -> dict[str, Tensor]:
    weights = torch.linspace(-1, 1, vectors.numel()).view_as(vectors)
    model.zero_grad()
    (vectors * weights).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(params=["by length", "in a grid"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test both attention layouts, whatever the device."""
    if request.param == "in a grid":
        monkeypatch.setattr(PackedNames, "attend_by_length", PackedNames.attend_in_grid)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_packed_names_have_the_vectors_and_gradients_of_single_names(
    family: str, pooling: Pooling, tmp_path: Path
) -> None:
    model, tokenizer = load_encoder(FAMILIES[family](tmp_path))
    tokens = tokenize(tokenizer, NAMES, max_length=12)
    assert supports_packing(model)

    vectors = PackedNames.of(tokens, np.arange(len(NAMES)), CPU).encode(model, pooling)
    found = gradients(model, vectors)

    expected = one_by_one(model, tokens, pooling)
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)
    for name, gradient in gradients(model, expected).items():
        torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreTrainedModel, TokenRows]:
    model, tokenizer = load_encoder(tiny_bert(tmp_path_factory.mktemp("bert")))
    return model, tokenize(tokenizer, [" ".join(WORDS[:n]) for n in range(12)], max_length=12)


@given(rows=st.lists(st.integers(0, 11), min_size=1, max_size=20))
@settings(max_examples=30)
def test_vectors_are_in_the_requested_order(bert: tuple[PreTrainedModel, TokenRows], rows: list[int]) -> None:
    model, tokens = bert
    with torch.no_grad():
        every = one_by_one(model, tokens, Pooling.MEAN)
        some = PackedNames.of(tokens, np.array(rows), CPU).encode(model, Pooling.MEAN)
    torch.testing.assert_close(some, every[rows], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - set(PACKED)))
def test_encoders_whose_attention_depends_on_distance_are_not_packed(family: str, tmp_path: Path) -> None:
    model, _ = load_encoder(FAMILIES[family](tmp_path))
    assert not supports_packing(model)


def test_attention_applies_dropout_in_training_mode(
    bert: tuple[PreTrainedModel, TokenRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = bert
    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda _dropout, hidden: hidden)
    packed = PackedNames.of(tokens, np.arange(12), CPU)
    model.train()
    with torch.no_grad():
        first, second = (packed.encode(model, Pooling.MEAN) for _ in range(2))
    model.train(mode=False)
    assert not torch.allclose(first, second, atol=1e-3)


def test_a_model_encodes_padded_names_unchanged_after_packing(
    bert: tuple[PreTrainedModel, TokenRows],
) -> None:
    model, tokens = bert
    with torch.no_grad():
        before = one_by_one(model, tokens, Pooling.CLS)
        PackedNames.of(tokens, np.arange(12), CPU).encode(model, Pooling.CLS)
        unknown = TokenRows(tokens.ids + 10_000, tokens.special, tokens.offsets)
        with pytest.raises(IndexError):
            PackedNames.of(unknown, np.arange(12), CPU).encode(model, Pooling.CLS)
        assert torch.equal(one_by_one(model, tokens, Pooling.CLS), before)
