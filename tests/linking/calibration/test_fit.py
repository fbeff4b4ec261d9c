"""Calibrations fitted on labelled mentions, on a vocabulary in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sapbert.errors import ConfigError, SapbertError
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse
from sapbert.index.vectors import Vectors
from sapbert.linking.calibration import fit as fit_module
from sapbert.linking.calibration.fit import calibrate
from sapbert.linking.candidate import Candidate
from sapbert.linking.hybrid import HybridSearch, ScoredRows, best_row_correct, best_weight
from sapbert.linking.linker import Linker
from sapbert.linking.settings import CalibrateSettings, LinkSettings
from sapbert.mentions import LabelledMention
from sapbert.protocols import RerankRequest
from tests.linking.conftest import Bench

GOLD = {
    "heart atack": "mesh:D1",
    "hart attack": "mesh:D1",
    "myocardial infarct": "mesh:D1",
    "colds": "mesh:D2",
    "comon cold": "mesh:D2",
    "low temperatures": "hp:1",
    "chest pains": "hp:2",
}
MENTIONS = [
    LabelledMention(f"{text} {number}", frozenset([concept]))
    for text, concept in GOLD.items()
    for number in range(12)
]


def hybrid(bench: Bench, folder: Path, weight: float = 1.0) -> Linker:
    folder.mkdir()
    write_sparse(bench.name_table.folded, folder, SparseSettings())
    vectors = Vectors(bench.index.vectors, None)
    search = HybridSearch(bench.index, vectors, SparseIndex.open(folder), weight)
    return Linker(bench.encoder, search, bench.name_table, fingerprint="f00d")


def test_confidence_is_closer_to_accuracy_than_the_score(bench: Bench) -> None:
    wrong = [LabelledMention(f"unheard of {number}", frozenset(["mesh:D404"])) for number in range(20)]

    fitted = calibrate(bench.linker, [*MENTIONS, *wrong], CalibrateSettings())

    assert fitted.index == bench.linker.fingerprint
    assert fitted.sparse_weight == 0
    report = fitted.report
    assert report["mentions"] == len(MENTIONS) + 20
    assert report["mentions without a concept of the index"] == 20
    assert report["brier"]["confidence"] < report["brier"]["score"]
    known, unheard = (
        fitted.confidences([candidate.score for candidate in found])[0] or 0
        for found in bench.linker.link(["heart atack", "unheard of"], k=2)
    )
    assert known > unheard


def test_a_ranker_is_fitted_on_request_and_kept(bench: Bench) -> None:
    wrong = [LabelledMention(f"unheard of {number}", frozenset(["mesh:D404"])) for number in range(20)]
    fitted = calibrate(bench.linker, [*MENTIONS, *wrong], CalibrateSettings(ranker=True))

    assert fitted.ranker is not None
    assert fitted.ranker.encoder == bench.encoder.fingerprint
    linker = Linker(
        bench.encoder, bench.linker.search, bench.name_table, fingerprint="f00d", calibration=fitted
    )
    [[best, *_], [other, *_]] = linker.link(["heart atack", "unheard of"])
    assert best.concept_id == "mesh:D1"
    assert (best.confidence or 0) > (other.confidence or 0)
    again = calibrate(linker, [*MENTIONS, *wrong], CalibrateSettings())
    assert again.ranker is fitted.ranker


def test_outcomes_are_those_of_rankers_fitted_on_other_mentions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[set[str]] = []
    linked: list[set[str]] = []
    link = Linker.link

    def record_fit(_linker: Linker, examples: Sequence[str]) -> None:
        fitted.append(set(examples))

    def record_link(linker: Linker, mentions: Sequence[str], **options: Any) -> list[list[Candidate]]:
        linked.append(set(mentions))
        return link(linker, mentions, **options)

    monkeypatch.setattr(fit_module, "labelled_requests", lambda _, mentions: [each.text for each in mentions])
    monkeypatch.setattr(fit_module, "fit_for_index", record_fit)
    monkeypatch.setattr(Linker, "link", record_link)

    calibrate(bench.linker, MENTIONS, CalibrateSettings(ranker=True))

    everything = {mention.text for mention in MENTIONS}
    *folds, last = fitted
    assert [everything - fold for fold in folds] == linked
    assert last == set().union(*linked) == everything


def test_a_calibration_is_fitted_on_the_scores_of_a_reranker(bench: Bench) -> None:
    class Shortest:
        fingerprint = "shortest"

        def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
            return [np.array([-len(name) for name in each.names], np.float32) for each in requests]

    parts = (bench.encoder, bench.linker.search, bench.name_table)
    linker = Linker(*parts, fingerprint="f00d", reranker=Shortest())
    fitted = calibrate(linker, MENTIONS, CalibrateSettings())

    assert fitted.reranker == "shortest"
    with pytest.raises(ConfigError, match="fitted with another reranker"):
        Linker(*parts, fingerprint="f00d", calibration=fitted)
    calibrated = Linker(*parts, fingerprint="f00d", calibration=fitted, reranker=Shortest())
    [[best, second, *_]] = calibrated.link(["heart atack"])
    assert best.confidence is not None
    assert second.confidence is None


def test_the_threshold_reaches_the_target_precision(bench: Bench) -> None:
    wrong = [LabelledMention(f"unheard of {number}", frozenset()) for number in range(20)]
    labelled = [*MENTIONS, *wrong]

    fitted = calibrate(bench.linker, labelled, CalibrateSettings(precision=0.95))

    assert fitted.threshold is not None
    assert fitted.report["chosen"]["precision"] >= 0.95
    assert 0 < fitted.report["chosen"]["coverage"] < 1
    linker = Linker(bench.encoder, bench.linker.search, bench.name_table, fingerprint="", calibration=fitted)
    answers = linker.link([mention.text for mention in labelled], k=1)
    assert any(not found for found in answers[len(MENTIONS) :])
    assert all(found[0].confidence is not None for found in answers if found)


def test_identifiers_may_be_aliases(bench: Bench) -> None:
    labelled = [replace(mention, concept_ids=frozenset(["mesh:D9"])) for mention in MENTIONS[:60]]

    assert calibrate(bench.linker, labelled, CalibrateSettings()).report["right"] > 0.5


def test_the_error_without_known_concepts_names_the_prefix_option(bench: Bench) -> None:
    labelled = [LabelledMention("heart", frozenset(["acme:D1"]))]

    with pytest.raises(SapbertError, match=r"no mention has a concept of the index.*acme:D1.*--prefix"):
        calibrate(bench.linker, labelled, CalibrateSettings())


def test_the_sparse_weight_is_fitted_for_a_hybrid_index(bench: Bench, tmp_path: Path) -> None:
    linker = hybrid(bench, tmp_path / "sparse")
    exact = LabelledMention("heart attack", frozenset(["mesh:D1"]))  # answered before any search

    fitted = calibrate(linker, [*MENTIONS, exact], CalibrateSettings())

    weighed = fitted.report["sparse weight"]
    assert weighed["mentions"] == len(MENTIONS)
    shares = weighed["right by weight"]
    assert shares["0.0"] == weighed["right by vectors alone"]
    gained = weighed["right by both"] > weighed["right by vectors alone"]
    assert (fitted.sparse_weight > 0) == gained
    assert not gained or shares[str(fitted.sparse_weight)] == max(shares.values())


def test_the_sparse_weight_is_zero_without_a_gain_on_held_out_mentions(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit on all mentions shows a gain, but not on any held-out fold."""
    linker = hybrid(bench, tmp_path / "sparse")

    def lucky(found: ScoredRows, right: NDArray[np.bool_]) -> tuple[float, dict[float, float]]:
        return 0.5, {0.0: 0.5, 0.5: 0.9}

    def unlucky(found: ScoredRows, right: NDArray[np.bool_], weight: float) -> NDArray[np.bool_]:
        return np.zeros(len(right), np.bool_)

    monkeypatch.setattr(fit_module, "best_row_correct", unlucky)
    monkeypatch.setattr(fit_module, "best_weight", lucky)

    assert calibrate(linker, MENTIONS, CalibrateSettings()).sparse_weight == 0


def test_the_sparse_weight_of_a_fold_is_fitted_on_the_other_folds(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    tested: list[int] = []

    def record_fit(found: ScoredRows, right: NDArray[np.bool_]) -> tuple[float, dict[float, float]]:
        fitted.append(len(right))
        return best_weight(found, right)

    def record_test(found: ScoredRows, right: NDArray[np.bool_], weight: float) -> NDArray[np.bool_]:
        tested.append(len(right))
        return best_row_correct(found, right, weight)

    monkeypatch.setattr(fit_module, "best_weight", record_fit)
    monkeypatch.setattr(fit_module, "best_row_correct", record_test)

    calibrate(hybrid(bench, tmp_path / "sparse"), MENTIONS, CalibrateSettings())

    total, *others = fitted
    assert total == sum(tested) == len(MENTIONS)
    assert [total - fold for fold in tested] == others


def test_the_best_row_is_the_best_candidate_of_the_linker(bench: Bench, tmp_path: Path) -> None:
    linker = hybrid(bench, tmp_path / "sparse", weight=0.5)
    settings = CalibrateSettings(exact=False)

    shares = calibrate(linker, MENTIONS, settings).report["sparse weight"]["right by weight"]

    answers = linker.link([mention.text for mention in MENTIONS], k=1, settings=LinkSettings(exact=False))
    right = [
        found[0].concept_id in mention.concept_ids for mention, found in zip(MENTIONS, answers, strict=True)
    ]
    assert shares["0.5"] == pytest.approx(np.mean(right))


def test_a_given_sparse_weight_is_not_fitted(bench: Bench, tmp_path: Path) -> None:
    linker = hybrid(bench, tmp_path / "sparse", weight=0.7)

    fitted = calibrate(linker, MENTIONS, CalibrateSettings(sparse_weight=0.7))

    assert fitted.sparse_weight == 0.7
    assert "sparse weight" not in fitted.report


def test_an_unreachable_precision_still_gives_a_calibration(bench: Bench) -> None:
    wrong = [LabelledMention(mention.text, frozenset()) for mention in MENTIONS]
    labelled = [each for pair in zip(MENTIONS, wrong, strict=True) for each in pair]
    fitted = calibrate(bench.linker, labelled, CalibrateSettings(precision=0.95))

    assert fitted.threshold is None
    assert fitted.report["chosen"] is None
    assert fitted.report["highest precision"]["precision"] < 0.95


@pytest.mark.parametrize("precision", [0.0, 1.5, -1, float("nan")])
def test_an_impossible_precision_is_refused(precision: float) -> None:
    with pytest.raises(ConfigError, match=r"0\.95 means 95%"):
        CalibrateSettings(precision=precision)
