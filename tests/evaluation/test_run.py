from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from sapbert.errors import ArtifactError, ConfigError
from sapbert.evaluation.benchmarks.loader import EvaluationSet, open_evaluation_set
from sapbert.evaluation.metrics import compute_metrics
from sapbert.evaluation.rankers import baseline
from sapbert.evaluation.run import Evaluation, evaluate, write_evaluation
from sapbert.protocols import RerankRequest
from tests.conftest import GOLDEN
from tests.evaluation.conftest import mentions, ranker_answering, small_set


def test_both_dictionaries_are_measured(plain: EvaluationSet) -> None:
    found = evaluate(plain, baseline("edit"))

    assert found.dictionaries == ["dictionary", "test_dictionary"]
    assert found.for_dictionary("dictionary").height == found.for_dictionary("test_dictionary").height == 4
    assert found.for_dictionary("dictionary")["rank"].to_list() == [1, 1, None, 1]


def test_training_mentions_help_only_where_they_are_names(plain: EvaluationSet) -> None:
    exact = evaluate(plain, baseline("exact"), split="train")

    assert compute_metrics(exact.for_dictionary("dictionary")).accuracy[1] == 0
    assert compute_metrics(exact.for_dictionary("test_dictionary")).accuracy[1] == 1
    assert not exact.results["seen"].any()  # or every mention would have been seen, in itself


def test_candidates_are_kept_with_names_ids_and_scores() -> None:
    names = {"fever": "F|G", "moss lung": "M"}
    found = evaluate(
        small_set(names, mentions(("hot|wet", "F"))), ranker_answering({"wet": ["moss lung", "fever"]})
    )

    assert found.candidates.drop("score").rows() == [
        ("dictionary", 0, 1, 1, "moss lung", "M"),
        ("dictionary", 0, 1, 2, "fever", "F|G"),
    ]


class BySentence:
    """A reranker that puts the name first which the context ends with; others stay."""

    fingerprint = "by sentence"

    def rerank(self, requests: Sequence[RerankRequest]) -> list[NDArray[np.float32]]:
        """Return one score a name."""
        return [
            np.array([request.context.endswith(name) for name in request.names], np.float32)
            for request in requests
        ]


def test_a_reranker_orders_names_by_the_context_of_each_mention() -> None:
    names = {"fever": "F", "moss lung": "M", "tin ear": "T"}
    test = mentions(("it", "M"), ("it", "T"), ("it", "F"), ("nobody", "F")).with_columns(
        context=pl.Series(["so a moss lung", "such a tin ear", "", ""])
    )
    build = ranker_answering({"it": ["fever", "moss lung", "tin ear"]})
    plain = evaluate(small_set(names, test), build)
    again = evaluate(small_set(names, test), build, reranker=BySentence())

    assert plain.results["rank"].to_list() == [2, 3, 1, None]
    assert again.results["rank"].to_list() == [1, 1, 1, None]
    second = again.candidates.filter(mention=1)
    assert second.select("name", "score").rows() == [("tin ear", 1), ("fever", 0), ("moss lung", 0)]


def test_a_name_that_is_the_mention_stays_in_front_as_in_linking() -> None:
    names = {"fever": "F", "moss lung": "M", "tin ear": "T"}
    test = mentions(("fever", "F")).with_columns(context=pl.lit("a fever or a tin ear"))
    build = ranker_answering({"fever": ["moss lung", "fever", "tin ear"]})
    again = evaluate(small_set(names, test), build, reranker=BySentence())

    expected = [("fever", 1), ("tin ear", 1), ("moss lung", 0)]
    assert again.candidates.select("name", "score").rows() == expected


def test_an_evaluation_survives_the_disk(plain: EvaluationSet, tmp_path: Path) -> None:
    found = evaluate(plain, baseline("exact"))
    write_evaluation(found, tmp_path / "run", benchmark=plain, settings={"split": "test"}, ranker="exact")

    opened = Evaluation.open(tmp_path / "run")

    assert opened.results.equals(found.results)
    assert opened.candidates.equals(found.candidates)
    assert opened.manifest is not None
    assert opened.manifest.details == {"benchmark": plain.fingerprint}


def test_a_damaged_evaluation_is_refused(plain: EvaluationSet, tmp_path: Path) -> None:
    found = evaluate(plain, baseline("exact"))
    write_evaluation(found, tmp_path / "run", benchmark=plain, settings={}, ranker="exact")
    with open(tmp_path / "run" / "mentions.parquet", "r+b") as file:
        file.write(b"x")

    with pytest.raises(ArtifactError, match="does not match its checksum"):
        Evaluation.open(tmp_path / "run")


def test_a_set_without_a_dictionary_asks_for_one() -> None:
    with pytest.raises(ConfigError, match="has no dictionary"):
        evaluate(open_evaluation_set(GOLDEN / "benchmarks" / "xl-bel"), baseline("exact"))


@pytest.mark.shared_data
def test_exact_match_on_ncbi_agrees_with_slow_loops(shared_data: Path) -> None:
    benchmark = open_evaluation_set(shared_data / "benchmarks" / "ncbi-disease")
    found = evaluate(benchmark, baseline("exact"), split="dev")

    for name, dictionary in benchmark.dictionaries.items():
        ids = dict(dictionary.table.iter_rows())
        right = 0
        for parts, gold in benchmark.split("dev").select("parts", "ids").iter_rows():
            right += all(any(one in gold for one in ids.get(part, [])) for part in parts)
        assert compute_metrics(found.for_dictionary(name)).accuracy[1] == pytest.approx(right / 787)
