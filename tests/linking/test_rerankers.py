"""Properties that all rerankers share: torch, ONNX, and a language model."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapbert.artifacts import create
from sapbert.encoder.cross_encoder import ENCODER, CrossEncoder, read_head
from sapbert.encoder.onnx import GRAPHS, OnnxEncoder
from sapbert.encoder.onnx_export.export import export_reranker
from sapbert.encoder.transformer import TransformerEncoder
from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.protocols import Reranker, RerankRequest
from tests.conftest import GOLDEN
from tests.encoder.tiny import WORDS
from tests.linking.rerankers import answering, labelled, train
from tests.training.conftest import one_thread as one_thread
from tests.training.conftest import tiny_base as tiny_base

EXAMPLE = GOLDEN.parents[1] / "examples" / "ask_model.py"
REQUESTS = [
    RerankRequest(
        "fever", ("common cold", "fever", "heart"), (0.9, 0.8, 0.7), "A chronic fever of the heart."
    ),
    RerankRequest("fever", ("common cold", "fever", "heart"), (0.9, 0.8, 0.7)),
    RerankRequest("", ("a",), (0.0,)),
    RerankRequest("感冒 \ud800", ("fever [SEP] cold", "", "fever"), (-1.0, 1.0, 1.0), "no such mention"),
]


@pytest.fixture(scope="session")
def trained(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_base, tmp_path_factory.mktemp("reranker") / "model")


@pytest.fixture(scope="session")
def exported(trained: Path) -> Path:
    export_reranker(trained, trained.with_name("exported"))
    return trained.with_name("exported")


def ask_model() -> Callable[[], Reranker]:
    spec = importlib.util.spec_from_file_location("ask_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[[], Reranker] = module.AskModel
    return made


@pytest.fixture(scope="module", params=["torch", "fp32", "int8", "language model"])
def reranker(request: pytest.FixtureRequest, trained: Path, exported: Path) -> Iterator[Reranker]:
    if request.param == "language model":
        with answering("Number 2.", []) as url, pytest.MonkeyPatch.context() as patch:
            patch.setenv("RERANKER_URL", url)
            patch.setenv("RERANKER_MODEL", "stub")
            yield ask_model()()
    elif request.param == "torch":
        encoder = TransformerEncoder.open(trained / ENCODER, device="cpu")
        yield CrossEncoder(encoder, read_head(trained))
    else:
        variant = OnnxEncoder.open(exported / ENCODER, variant=request.param, threads=1)
        yield CrossEncoder(variant, read_head(exported))


def test_each_candidate_of_each_request_gets_one_finite_score(reranker: Reranker) -> None:
    scores = reranker.rerank(REQUESTS)

    assert [len(own) for own in scores] == [len(request.names) for request in REQUESTS]
    assert all(np.isfinite(own).all() for own in scores)


def test_no_requests_give_no_scores(reranker: Reranker) -> None:
    assert list(reranker.rerank([])) == []


@given(
    st.lists(
        st.builds(
            lambda mention, names, context: RerankRequest(
                mention, tuple(names), (0.5,) * len(names), context
            ),
            st.sampled_from(WORDS),
            st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
            st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
        ),
        max_size=4,
    )
)
@settings(max_examples=10)
def test_a_score_does_not_depend_on_other_requests(reranker: Reranker, requests: list[RerankRequest]) -> None:
    together = reranker.rerank(requests)
    for request, own in zip(requests, together, strict=True):
        np.testing.assert_allclose(own, reranker.rerank([request])[0], atol=1e-4)


def test_scores_and_fingerprint_are_reproducible(reranker: Reranker) -> None:
    before = reranker.fingerprint
    for own, again in zip(reranker.rerank(REQUESTS), reranker.rerank(REQUESTS), strict=True):
        np.testing.assert_array_equal(own, again)
    assert isinstance(before, str)
    assert reranker.fingerprint == before


# The cross-encoder


def test_onnx_scores_equal_those_of_torch(trained: Path, exported: Path) -> None:
    requests = [own.request for own in labelled().examples] + REQUESTS
    torch = CrossEncoder(TransformerEncoder.open(trained / ENCODER, device="cpu"), read_head(trained))
    for variant, close in zip(GRAPHS, (1e-3, 0.5), strict=True):
        graph = CrossEncoder(OnnxEncoder.open(exported / ENCODER, variant=variant), read_head(exported))
        for own, other in zip(torch.rerank(requests), graph.rerank(requests), strict=True):
            np.testing.assert_allclose(own, other, atol=close)


def test_many_requests_are_scored_in_batches(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [own.request for own in labelled().examples]
    reranker = CrossEncoder.open(exported, threads=1)
    whole = reranker.rerank(requests)
    monkeypatch.setattr("sapbert.encoder.cross_encoder._REQUESTS_PER_BATCH", 3)
    for own, again in zip(whole, reranker.rerank(requests), strict=True):
        np.testing.assert_allclose(own, again, atol=1e-5)


def test_only_an_exported_reranker_can_be_opened(trained: Path, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not exported; run: sapbert export"):
        CrossEncoder.open(trained)
    with pytest.raises(ArtifactError, match="already exported"):
        export_reranker(exported, tmp_path / "again")
    with create(tmp_path / "other") as draft:
        (draft.path / "a").write_text("b")
        draft.seal("pairs", settings={}, inputs={}, counts={})
    with pytest.raises(ArtifactError, match="is a folder of pairs, not a reranker"):
        CrossEncoder.open(tmp_path / "other")


def test_a_damaged_reranker_is_refused(trained: Path, exported: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(exported, tmp_path / "broken"))
    weights = broken / ENCODER / "onnx" / "model_int8.onnx.data"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model_int8\.onnx\.data"):
        CrossEncoder.open(broken)
    headless = Path(shutil.copytree(trained, tmp_path / "headless"))
    (headless / "reranker.json").unlink()
    with pytest.raises(ArtifactError, match=r"reranker\.json"):
        export_reranker(headless, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# The language model


def test_the_candidate_chosen_by_a_language_model_scores_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    with answering("3", asked) as url:
        monkeypatch.setenv("RERANKER_URL", url)
        monkeypatch.setenv("RERANKER_MODEL", "stub")
        monkeypatch.setenv("RERANKER_KEY", "secret")
        [scores] = ask_model()().rerank(REQUESTS[:1])

    assert scores.tolist() == [0, 0, 1]
    [question] = asked
    assert (question["path"], question["key"]) == ("/v1/chat/completions", "Bearer secret")
    content = question["messages"][0]["content"]
    assert "Mention: fever\nContext: A chronic fever of the heart.\n1. common cold\n2. fever" in content


@pytest.mark.parametrize("reply", ["none of them", "17", ""])
def test_an_unusable_reply_keeps_the_order(reply: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(reply, []) as url:
        monkeypatch.setenv("RERANKER_URL", url)
        monkeypatch.setenv("RERANKER_MODEL", "stub")
        assert ask_model()().rerank(REQUESTS[:1])[0].tolist() == [0, 0, 0]


def test_a_single_candidate_is_not_sent_to_the_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    with answering("1", asked) as url:
        monkeypatch.setenv("RERANKER_URL", url)
        monkeypatch.setenv("RERANKER_MODEL", "stub")
        ask_model()().rerank(REQUESTS[2:3])
    assert asked == []


def test_errors_of_the_server_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RERANKER_URL", raising=False)
    with pytest.raises(ConfigError, match="set RERANKER_URL"):
        ask_model()()
    with answering({"error": "no such model"}, []) as url:
        monkeypatch.setenv("RERANKER_URL", url)
        monkeypatch.setenv("RERANKER_MODEL", "stub")
        with pytest.raises(SapbertError, match=r"returned no answer: .*no such model"):
            ask_model()().rerank(REQUESTS[:1])
    with pytest.raises(SapbertError, match=r"127\.0\.0\.1:\d+/v1 returned no answer: .*refused"):
        ask_model()().rerank(REQUESTS[:1])  # the server has stopped


def test_an_http_error_is_reported_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering("1", [], status=401) as url:
        monkeypatch.setenv("RERANKER_URL", url)
        monkeypatch.setenv("RERANKER_MODEL", "stub")
        with pytest.raises(SapbertError, match=r"/v1 returned no answer: HTTP Error 401"):
            ask_model()().rerank(REQUESTS[:1])
