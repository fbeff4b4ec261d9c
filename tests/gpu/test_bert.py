from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sapbert.encoder.adapters import AdapterSettings, add_adapters
from sapbert.encoder.loading import load_encoder
from sapbert.encoder.transformer import TransformerEncoder, set_truncation, tokenize
from sapbert.gpu.bert import RowEncoder, RowTensors, supports_rows
from sapbert.gpu.layers import PLAIN
from sapbert.gpu.rows import Rows
from sapbert.gpu.stream import RowStream
from sapbert.tokens.pooling import Pooling, pool
from tests.encoder.tiny import FAMILIES, WORDS, tiny_bert

CPU = torch.device("cpu")
NAMES = ["heart attack", "fever", "", "chronic renal failure of the type b", "common cold", "a b c d e a b c"]
LAID = ("bert", "roberta", "xlm-roberta")
POOLINGS = [pooling for pooling in Pooling if pooling is not Pooling.MEAN_ALL]


def row_encoder(model: PreTrainedModel, pooling: Pooling, dtype: torch.dtype = torch.float32) -> RowEncoder:
    encode = RowEncoder(model, pooling, width=32, dtype=dtype, kernels=PLAIN)
    encode.refresh()
    return encode


def rows_of(tokenizer: PreTrainedTokenizerBase, names: list[str], pooling: Pooling) -> RowTensors:
    tokens = tokenize(tokenizer, names, max_length=12)
    return RowTensors.of(Rows.of(tokens, pooling, pad_id=tokenizer.pad_token_id, width=32, multiple=3), CPU)


def padded(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pooling: Pooling) -> Tensor:
    """Encode with the model itself, padded to the longest name."""
    tokens = tokenize(tokenizer, NAMES, max_length=12)
    batch = tokens.pad(np.arange(len(NAMES)), pad_id=tokenizer.pad_token_id)
    ids, real, special = map(torch.from_numpy, (batch.ids, batch.attention, batch.special))
    hidden = model(input_ids=ids, attention_mask=real.long()).last_hidden_state
    return pool(hidden, real, special, pooling)


def weighted_sum(vectors: Tensor) -> Tensor:
    return (vectors * torch.linspace(-1, 1, vectors.numel()).view_as(vectors)).sum()


@pytest.mark.parametrize("family", LAID)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_names_in_rows_have_the_vectors_and_gradients_of_padded_names(
    family: str, pooling: Pooling, tmp_path: Path
) -> None:
    model, tokenizer = load_encoder(FAMILIES[family](tmp_path))
    assert supports_rows(model, pooling, 12)

    encode = row_encoder(model, pooling)
    vectors = encode(rows_of(tokenizer, NAMES, pooling))
    found = encode.gradients(torch.autograd.grad(weighted_sum(vectors), encode.leaves), encode.buffers())

    expected = padded(model, tokenizer, pooling)
    weighted_sum(expected).backward()
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[parameter], parameter.grad, atol=1e-4, rtol=1e-4, msg=name)


def test_backward_adds_the_gradients_to_those_of_the_parameters(tmp_path: Path) -> None:
    model, tokenizer = load_encoder(tiny_bert(tmp_path))
    encode, rows = row_encoder(model, Pooling.MEAN), rows_of(tokenizer, NAMES, Pooling.MEAN)
    for _ in range(2):
        weighted_sum(encode(rows)).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    weighted_sum(2 * padded(model, tokenizer, Pooling.MEAN)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-4, rtol=1e-4, msg=name)


def test_the_callback_gets_each_layer_when_its_gradients_are_complete_last_layer_first(
    tmp_path: Path,
) -> None:
    model, tokenizer = load_encoder(tiny_bert(tmp_path))
    encode, calls = row_encoder(model, Pooling.CLS), list[tuple[int, int]]()
    found = 0

    def count(_: Tensor) -> None:
        nonlocal found
        found += 1

    for leaf in encode.leaves[: -len(list(model.get_submodule("embeddings").parameters()))]:
        leaf.register_hook(count)
    vectors = encode(rows_of(tokenizer, NAMES, Pooling.CLS), lambda number: calls.append((number, found)))
    torch.autograd.grad(weighted_sum(vectors), encode.leaves)

    last, each = encode.layers - 1, 12
    assert [number for number, _ in calls] == list(range(last, -1, -1))
    assert all(there >= each * (last + 1 - number) for number, there in calls)


@pytest.fixture
def bert(tmp_path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_encoder(tiny_bert(tmp_path))


def test_bfloat16_vectors_are_close_to_float32(bert: tuple[PreTrainedModel, PreTrainedTokenizerBase]) -> None:
    model, tokenizer = bert
    half = row_encoder(model, Pooling.CLS, torch.bfloat16)(rows_of(tokenizer, NAMES, Pooling.CLS))
    assert half.dtype == torch.float32
    assert torch.cosine_similarity(half, padded(model, tokenizer, Pooling.CLS)).min() > 0.999


def test_refresh_copies_changed_weights(
    bert: tuple[PreTrainedModel, PreTrainedTokenizerBase],
) -> None:
    model, tokenizer = bert
    encode, rows = row_encoder(model, Pooling.CLS), rows_of(tokenizer, NAMES, Pooling.CLS)
    before = encode(rows)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    encode.refresh()
    assert not torch.allclose(encode(rows), before, atol=1e-3)
    torch.testing.assert_close(encode(rows), padded(model, tokenizer, Pooling.CLS), atol=1e-4, rtol=1e-4)


def test_a_model_in_training_mode_applies_dropout(
    bert: tuple[PreTrainedModel, PreTrainedTokenizerBase],
) -> None:
    model, tokenizer = bert
    encode, rows = row_encoder(model, Pooling.CLS), rows_of(tokenizer, NAMES, Pooling.CLS)
    model.train()
    draws = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        draws.append(encode(rows))
    assert not torch.allclose(draws[0], draws[1], atol=1e-3)
    assert torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("dropout", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_both_dropout_rates_of_a_model_are_applied(
    dropout: str, bert: tuple[PreTrainedModel, PreTrainedTokenizerBase]
) -> None:
    model, tokenizer = bert
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    encode, rows = row_encoder(model, Pooling.CLS), rows_of(tokenizer, NAMES, Pooling.CLS)
    model.train()
    assert torch.equal(encode(rows), encode(rows))
    setattr(model.config, dropout, 0.5)
    assert not torch.allclose(encode(rows), encode(rows), atol=1e-3)


def test_only_a_plain_bert_is_supported(tmp_path: Path) -> None:
    for family in sorted(FAMILIES.keys() - set(LAID)):
        assert not supports_rows(load_encoder(FAMILIES[family](tmp_path / family))[0], Pooling.CLS, 12)
    model, _ = load_encoder(tiny_bert(tmp_path / "plain"))
    assert supports_rows(model, Pooling.CLS, 12)
    assert not supports_rows(model, Pooling.MEAN_ALL, 12)
    assert not supports_rows(model, Pooling.CLS, 65)
    add_adapters(model, AdapterSettings(reduction=4))
    assert not supports_rows(model, Pooling.CLS, 12)
    model, _ = load_encoder(tmp_path / "plain")
    model.config.is_decoder = True
    assert not supports_rows(model, Pooling.CLS, 12)
    model.config.is_decoder, model.config.hidden_act = False, "relu"
    assert not supports_rows(model, Pooling.CLS, 12)


@pytest.mark.parametrize("pooling", [Pooling.CLS, Pooling.NO_SPECIAL])
def test_a_stream_gives_the_vectors_of_the_encoder_in_order(pooling: Pooling, tmp_path: Path) -> None:
    encoder = TransformerEncoder.open(tiny_bert(tmp_path), pooling=pooling, max_length=12, device="cpu")
    names = [f"{left} {right}" for left in WORDS[:15] for right in WORDS[:9]]
    set_truncation(encoder.tokenizer, 12)
    stream = RowStream(
        row_encoder(encoder.model, pooling), encoder.tokenizer.backend_tokenizer, pooling, pad_id=0, rows=3
    )
    windows = [names[start : start + 40] for start in range(0, len(names), 40)]
    with torch.inference_mode():
        found = list(stream(windows))

    assert [len(part) for part in found] == [40, 40, 40, 15]
    np.testing.assert_allclose(np.concatenate(found), encoder.encode(names), atol=1e-5)


def test_an_encoder_uses_the_stream_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TransformerEncoder.open(tiny_bert(tmp_path), max_length=12, device="cpu")
    expected = encoder.encode(NAMES * 2)
    stream = RowStream(
        row_encoder(encoder.model, Pooling.CLS), encoder.tokenizer.backend_tokenizer, Pooling.CLS, pad_id=0
    )
    monkeypatch.setattr(encoder, "_encode_window", partial(pytest.fail, "the stream was not taken"))
    monkeypatch.setattr(encoder, "_stream", lambda _names: stream)
    np.testing.assert_allclose(encoder.encode(NAMES * 2), expected, atol=1e-5)
