"""Linking with a reranker, training examples for one, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapbert.errors import ArtifactError, ConfigError, SapbertError
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import Platt
from sapbert.linking.candidate import Candidate
from sapbert.linking.linker import Linker
from sapbert.linking.reranker_examples import rerank_examples
from sapbert.linking.reranking import RERANK_DEPTH, open_reranker, rerank
from sapbert.linking.search import DenseSearch
from sapbert.linking.settings import LinkSettings, Method
from sapbert.mentions import LabelledMention
from sapbert.protocols import RerankRequest
from tests.linking.conftest import Bench

Score = Callable[[RerankRequest], Sequence[float]]


class FunctionReranker:
    """A reranker that returns the scores of a function and records its requests."""

    fingerprint = "function"

    def __init__(self, score: Score) -> None:
        self.requests: list[RerankRequest] = []
        self._score = score

    def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        self.requests.extend(requests)
        return [np.array(self._score(request), np.float32) for request in requests]


def reversed_order(request: RerankRequest) -> list[float]:
    return [-score for score in request.scores]


def reranking_linker(bench: Bench, score: Score) -> tuple[Linker, FunctionReranker]:
    reranker = FunctionReranker(score)
    search = DenseSearch(bench.index)
    return Linker(bench.encoder, search, bench.name_table, fingerprint="f00d", reranker=reranker), reranker


def test_candidates_are_reordered_and_have_both_scores(bench: Bench) -> None:
    [plain] = bench.linker.link(["hart atack"], k=4)
    linker, reranker = reranking_linker(bench, reversed_order)
    [answer] = linker.link(["hart atack"], k=4, contexts=["had a hart atack"])

    assert [found.concept_id for found in answer] == [found.concept_id for found in reversed(plain)]
    assert [found.score for found in answer] == [found.score for found in reversed(plain)]
    assert [found.rerank_score for found in answer] == pytest.approx([-found.score for found in answer])
    assert {found.matched_by for found in answer} == {"reranked"}
    names = tuple(found.matched_name for found in plain)
    assert reranker.requests == [
        RerankRequest("hart atack", names, tuple(f.score for f in plain), "had a hart atack")
    ]


def test_more_candidates_are_reranked_than_returned(bench: Bench) -> None:
    [plain] = bench.linker.link(["hart atack"], k=RERANK_DEPTH)
    linker, _ = reranking_linker(bench, reversed_order)
    assert [own.concept_id for own in linker.link(["hart atack"], k=1)[0]] == [plain[-1].concept_id]


def test_exact_names_stay_first(bench: Bench) -> None:
    linker, _ = reranking_linker(bench, lambda request: list(range(len(request.names))))
    [answer] = linker.link(["COLD"], k=4)

    assert [found.concept_id for found in bench.linker.link(["COLD"], k=2)[0]] == ["hp:1", "mesh:D2"]
    assert [(found.concept_id, found.matched_by) for found in answer[:2]] == [
        ("mesh:D2", "exact"),
        ("hp:1", "exact"),
    ]
    assert all(found.matched_by == "reranked" for found in answer[2:])


def test_a_reranker_can_use_the_context(bench: Bench) -> None:
    def weather(request: RerankRequest) -> list[float]:
        # Both concepts are called cold; the first is a temperature.
        return [1.0 if place == 0 and "weather" in request.context else 0.5 for place in range(4)]

    linker, reranker = reranking_linker(bench, weather)
    contexts = ["cold weather", "a cold weather", "cold weather"]
    answers = linker.link(["cold", "cold", "cold"], k=4, contexts=contexts)

    assert {own[0].concept_id for own in answers} == {"hp:1"}
    assert len(reranker.requests) == 2  # equal requests are scored once


def test_an_empty_mention_is_not_reranked(bench: Bench) -> None:
    linker, reranker = reranking_linker(bench, reversed_order)
    assert linker.link(["", " "]) == [[], []]
    assert reranker.requests == []


def test_the_threshold_applies_to_the_score_of_the_search(bench: Bench) -> None:
    [plain] = bench.linker.link(["hart atack"], k=4)
    linker, _ = reranking_linker(bench, reversed_order)
    between = (plain[1].score + plain[2].score) / 2
    [answer] = linker.link(["hart atack"], settings=LinkSettings(threshold=between))

    assert [found.concept_id for found in answer] == [plain[1].concept_id, plain[0].concept_id]


def test_reranked_candidates_are_not_cached(bench: Bench) -> None:
    linker, _ = reranking_linker(bench, reversed_order)
    linker.link(["hart atack"], k=4)
    assert linker.cached(["hart atack"], k=4) is None


def test_a_calibration_fitted_without_a_reranker_does_not_apply_to_one(bench: Bench) -> None:
    fitted = Calibration(
        index="", exact=True, sparse_weight=0, method=Method.PLATT, curve=Platt(0, 0, 1), threshold=None
    )
    search = DenseSearch(bench.index)
    parts = (bench.encoder, search, bench.name_table)
    reranker = FunctionReranker(reversed_order)
    with pytest.raises(ConfigError, match="fitted without a reranker"):
        Linker(*parts, fingerprint="", calibration=fitted, reranker=reranker)
    linker = Linker(*parts, fingerprint="", calibration=fitted, reranker=reranker, strict=False)
    assert linker.link(["hart atack"])[0][0].confidence is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda request: [1.0],
        lambda request: [np.nan] * len(request.names),
        lambda request: [np.inf] * len(request.names),
        lambda request: [[1.0]] * len(request.names),
    ],
)
def test_scores_must_be_finite_and_one_per_candidate(bench: Bench, wrong: Score) -> None:
    with pytest.raises(ConfigError, match="return 4 finite scores for 'hart atack'"):
        reranking_linker(bench, wrong)[0].link(["hart atack"])


def test_scores_are_required_for_every_mention(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FunctionReranker, "rerank", lambda self, requests: [])
    with pytest.raises(ConfigError, match="scores for 0 of 1 mentions"):
        reranking_linker(bench, reversed_order)[0].link(["hart atack"])


@pytest.mark.parametrize("wrong", [None, [["high"] * 4], 3])
def test_a_result_without_scores_is_refused(
    bench: Bench, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FunctionReranker, "rerank", lambda self, requests: wrong)
    with pytest.raises(ConfigError, match="one array of scores per mention"):
        reranking_linker(bench, reversed_order)[0].link(["hart atack"])


CANDIDATE = Candidate("x:1", "a", "a", 0.5, None, "dense")


@given(
    st.lists(
        st.tuples(st.sampled_from(["exact", "dense"]), st.sampled_from([0.0, 1.0, 2.5]), st.integers(0, 99))
    )
)
def test_candidates_are_ordered_by_exact_match_then_score_then_rank(
    rows: list[tuple[str, float, int]],
) -> None:
    found = [
        replace(CANDIDATE, concept_id=f"x:{number}", matched_by=matched_by)  # type: ignore[arg-type]
        for matched_by, _, number in rows
    ]
    [answer] = rerank(FunctionReranker(lambda _: [score for _, score, _ in rows]), ["m"], [""], [found])

    expected = sorted(range(len(rows)), key=lambda at: (rows[at][0] != "exact", -rows[at][1], at))
    assert [own.concept_id for own in answer] == [f"x:{rows[at][2]}" for at in expected]


# Training examples


def test_examples_contain_candidates_and_which_are_right(bench: Bench) -> None:
    labelled = [
        LabelledMention("cold", frozenset(["mesh:D2"]), "a cold"),
        LabelledMention("cold", frozenset(["mesh:D2"]), "a cold"),
        LabelledMention("cold", frozenset(["hp:1", "mesh:D2"]), "so cold"),
        LabelledMention("hart atack", frozenset(["mesh:D9", "mesh:D404"])),  # the first is an alias
        LabelledMention("unheard of", frozenset(["mesh:D404"])),
    ]
    made = rerank_examples(bench.linker, labelled, candidates=3, context=True, inputs={"a": {}})

    assert [(own.request.mention, own.request.context) for own in made.examples] == [
        ("cold", "a cold"),
        ("cold", "so cold"),
        ("hart atack", ""),
    ]
    assert [sum(own.is_right) for own in made.examples] == [1, 2, 1]
    assert all(len(own.is_right) == len(own.request.names) == 3 for own in made.examples)
    [heart] = bench.linker.link(["hart atack"], k=3)
    assert made.examples[2].request.names == tuple(found.matched_name for found in heart)
    assert (made.context, made.inputs) == (True, {"a": {}})


def test_examples_contain_what_the_search_finds_without_exact_matches(bench: Bench) -> None:
    [[nearest]] = bench.linker.link(["hart atack"], k=1)
    bench.linker.add_mentions([("hart atack", "hp:2")])  # an exact match
    labelled = [LabelledMention("hart atack", frozenset(["mesh:D1"]))]
    [made] = rerank_examples(bench.linker, labelled, candidates=3, context=False, inputs={}).examples

    assert (made.request.names[0], made.request.scores[0]) == (nearest.matched_name, nearest.score)


def test_mentions_of_another_vocabulary_are_refused(bench: Bench) -> None:
    with pytest.raises(SapbertError, match="no mention has a concept of the index"):
        rerank_examples(
            bench.linker, [LabelledMention("a", frozenset(["y:1"]))], candidates=3, context=False, inputs={}
        )


# Opening a reranker


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the working directory."""
    monkeypatch.chdir(tmp_path)
    name = "my_rerankers"
    (tmp_path / f"{name}.py").write_text(
        "from tests.linking.test_reranking import FunctionReranker, reversed_order\n"
        "def make(): return FunctionReranker(reversed_order)\n"
        "made = make()\n"
        "number = 3\n"
        "class Unnamed:\n"
        "    fingerprint = 3\n"
        "    def rerank(self, requests): return []\n"
        "def fails(): raise TypeError('my own')\n"
    )
    (tmp_path / "unclosed.py").write_text("made = (\n")
    monkeypatch.setattr("sys.path", __import__("sys").path.copy())
    return name


def test_a_reranker_is_imported_from_a_module(module: str) -> None:
    for attribute in ("make", "made"):
        found = open_reranker(f"{module}:{attribute}")
        assert isinstance(found, FunctionReranker)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("my_rerankers:none", "no attribute 'none'"),
        (":make", "importing a reranker failed"),
        ("..:make", "importing a reranker failed"),
        ("my_rerankers:number", "my_rerankers:number: a int without `rerank`"),
        ("my_rerankers:Unnamed", "a Unnamed without `rerank` and `fingerprint`"),
        ("json:loads", r"^json:loads: cannot be called without arguments \(see docs"),
        ("unclosed:make", r"never closed \(unclosed.py, line 1\)"),
    ],
)
def test_an_import_that_is_no_reranker_is_refused(module: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_reranker(name)


def test_an_error_inside_the_factory_is_not_hidden(module: str) -> None:
    with pytest.raises(TypeError, match="my own"):
        open_reranker(f"{module}:fails")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no such file or directory"):
        open_reranker(str(tmp_path / "none"))
