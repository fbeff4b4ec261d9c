from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from sapbert.encoder.loading import load_encoder
from sapbert.encoder.transformer import set_truncation
from sapbert.tokens.tokenizer import tokenize_names
from tests.encoder.tiny import FAMILIES


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedTokenizerBase:
    folder = FAMILIES[request.param](tmp_path_factory.mktemp(request.param))
    return load_encoder(folder)[1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab [SEP]</s>é", max_size=20), max_size=5), st.integers(3, 8))
def test_special_tokens_are_those_of_the_tokenizer(
    tokenizer: PreTrainedTokenizerBase, names: list[str], max_length: int
) -> None:
    set_truncation(tokenizer, max_length)
    backend = tokenizer.backend_tokenizer
    found = tokenize_names(backend, ["", *names])
    rows = backend.encode_batch(["", *names])

    assert found.ids.tolist() == [token for row in rows for token in row.ids]
    assert found.special.tolist() == [bool(flag) for row in rows for flag in row.special_tokens_mask]
    assert found.lengths.tolist() == [len(row.ids) for row in rows]
