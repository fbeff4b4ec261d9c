from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.encoder.cross_encoder import (
    CONTEXT_WIDTH,
    CrossEncoder,
    Head,
    bracket_mention,
    read_head,
    write_head,
)
from sapbert.errors import ArtifactError
from sapbert.protocols import RerankRequest
from tests.index.conftest import NgramEncoder

HEAD = Head(direction=(0.5, -1.0), score_weight=2.0, separator="[SEP]", context=True)
WORDS = st.lists(st.sampled_from(["cold", "scold", "a", "hot" * 20, "[", "."]), max_size=20).map(" ".join)


@pytest.mark.parametrize(
    ("mention", "context", "expected"),
    [
        ("cold", "", "cold"),
        ("cold", "had a cold since monday", "had a [ cold ] since monday"),
        ("cold", "a scold has a cold, no colder", "a scold has a [ cold ], no colder"),
        ("cold", "colder than cold", "colder than [ cold ]"),
        ("a (b", "has a (b or so", "has [ a (b ] or so"),
        ("familial polyposis", "fap is rare", "[ familial polyposis ] fap is rare"),
    ],
)
def test_a_mention_is_bracketed_in_its_context(mention: str, context: str, expected: str) -> None:
    assert bracket_mention(mention, context) == expected


@given(WORDS, WORDS)
def test_the_mention_is_kept_and_the_context_is_truncated(before: str, after: str) -> None:
    text = bracket_mention("cold", f"{before} cold {after}")
    assert "[ cold ]" in text
    assert (
        len(bracket_mention("cold", "warm " * 99 + "cold" + " warm" * 99))
        == len("[ cold ]") + 2 * CONTEXT_WIDTH
    )
    assert len(text) <= len("[ cold ]") + 2 * CONTEXT_WIDTH


def test_a_name_and_its_mention_are_joined() -> None:
    request = RerankRequest("Cold", ("Common  COLD", "a [SEP] b"), (1.0, 0.5), "A Cold day")

    assert HEAD.texts(request) == ["common cold [SEP] a [ cold ] day", "a [sep] b [SEP] a [ cold ] day"]


def test_context_is_ignored_by_a_model_trained_without_it() -> None:
    head = Head(direction=(1.0,), score_weight=1.0, separator="</s>", context=False)
    assert head.texts(RerankRequest("cold", ("a </s> b",), (1.0,), "a cold day")) == ["a   b </s> cold"]


def test_a_score_combines_the_vector_and_the_search_score() -> None:
    encoder = NgramEncoder(8)
    head = Head(direction=tuple(np.arange(8.0)), score_weight=3.0, separator="|", context=False)
    request = RerankRequest("cold", ("common cold", "heat"), (0.25, 0.5))
    [scores] = CrossEncoder(encoder, head).rerank([request])

    vectors = encoder.encode(["common cold | cold", "heat | cold"])
    np.testing.assert_allclose(scores, vectors @ np.arange(8) + 3 * np.array([0.25, 0.5]), rtol=1e-5)


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_head(tmp_path, HEAD)
    assert read_head(tmp_path) == HEAD


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        "{}",
        json.dumps({"direction": ["x"], "score_weight": 1, "separator": "a", "context": True}),
        json.dumps({"direction": [float("nan")], "score_weight": 1, "separator": "a", "context": True}),
        json.dumps({"direction": [1], "score_weight": 1, "separator": "", "context": True}),
        json.dumps({"direction": [1], "score_weight": 1, "separator": "a", "context": True, "more": 1}),
    ],
)
def test_a_damaged_head_is_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / "reranker.json").write_text(damage)
    with pytest.raises(ArtifactError, match=r"reranker\.json is damaged"):
        read_head(tmp_path)


def test_a_head_of_another_encoder_is_refused() -> None:
    with pytest.raises(ArtifactError, match="8 dimensions and the head 2"):
        CrossEncoder(NgramEncoder(8), HEAD)
