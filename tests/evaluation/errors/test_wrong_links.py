from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.evaluation.benchmarks.dataset import mention_table
from sapbert.evaluation.benchmarks.loader import open_evaluation_set
from sapbert.evaluation.errors.kinds import ErrorKind
from sapbert.evaluation.errors.wrong_links import WrongLink, WrongLinkCandidate, count_kinds, wrong_links
from sapbert.evaluation.metrics import compute_metrics
from sapbert.evaluation.rankers import baseline
from sapbert.evaluation.run import Evaluation, evaluate
from tests.evaluation.conftest import mentions, ranker_answering, small_set

NAMES = {"fever": "F", "moss lung": "M|O", "tin ear": "T"}
RANKED = {
    "hot": ["moss lung", "fever"],
    "fever": ["fever"],
    "cold": ["tin ear"],
    "wet": ["moss lung"],
}


def run(*rows: tuple[str, str]) -> Evaluation:
    return evaluate(small_set(NAMES, mentions(*rows)), ranker_answering(RANKED))


def test_wrong_links_are_collected_with_their_candidates() -> None:
    found = wrong_links(run(("hot", "F|X"), ("fever", "F"), ("cold", "Z"), ("hot", "F|X"), ("mud", "-1")))

    assert found == {
        "dictionary": [
            WrongLink(
                kind=ErrorKind.NEAR_MISS,
                times=2,
                raw_texts=("hot",),
                documents=(),
                parts=(
                    (
                        "hot",
                        (
                            WrongLinkCandidate("moss lung", "M|O", 1.0, correct=False),
                            WrongLinkCandidate(
                                "fever", "F", float(pl.Series([0.99], dtype=pl.Float32)[0]), correct=True
                            ),
                        ),
                    ),
                ),
                gold=("F", "X"),
                rank=2,
                seen=False,
            ),
            WrongLink(
                kind=ErrorKind.ABSENT,
                times=1,
                raw_texts=("cold",),
                documents=(),
                parts=(("cold", (WrongLinkCandidate("tin ear", "T", 1.0, correct=False),)),),
                gold=("Z",),
                rank=None,
                seen=False,
            ),
        ]
    }


def test_parts_of_a_composite_mention_keep_their_own_candidates() -> None:
    (found,) = wrong_links(run(("wet|hot|mud", "M|F")))["dictionary"]

    assert found.kind is ErrorKind.COMPOSITE
    assert [(text, [(own.name, own.correct) for own in answers]) for text, answers in found.parts] == [
        ("wet", [("moss lung", True)]),
        ("hot", [("moss lung", True), ("fever", True)]),
        ("mud", []),
    ]


def test_spellings_of_one_mention_are_one_link_of_each_kind() -> None:
    columns = {"mention": ["hot"] * 3, "raw": ["hot", "Hot", "HOT"], "ids": ["F"] * 3, "document": [*"212"]}
    table = mention_table({name: pl.Series(values) for name, values in columns.items()})
    found = wrong_links(evaluate(small_set(NAMES, table), ranker_answering(RANKED)))["dictionary"]

    assert [(link.kind, link.times, link.raw_texts, link.documents) for link in found] == [
        (ErrorKind.NEAR_MISS, 2, ("hot", "Hot"), ("2", "1")),
        (ErrorKind.ABBREVIATION, 1, ("HOT",), ("2",)),
    ]


rows = st.lists(
    st.tuples(
        st.sampled_from(["hot", "Hot", "fever", "cold", "wet", "hot|wet"]),
        st.sampled_from(["F", "M", "Z", "-1"]),
    ),
    min_size=1,
    max_size=12,
)


@given(rows)
def test_every_wrong_mention_is_counted_once(chosen: list[tuple[str, str]]) -> None:
    evaluation = run(*chosen)
    found = wrong_links(evaluation)["dictionary"]
    figures = compute_metrics(evaluation.results)

    right = round((figures.accuracy[1] or 0) * figures.mentions)
    counts = count_kinds(found)
    assert sum(counts.values()) == sum(link.times for link in found) == figures.mentions - right
    assert [link.times for link in found] == sorted((link.times for link in found), reverse=True)
    texts = Counter("|".join(text for text, _ in link.parts) for link in found for _ in range(link.times))
    wrong = evaluation.results.filter(pl.col("gold") != "", pl.col("rank").is_null() | (pl.col("rank") > 1))
    assert texts == Counter(wrong["text"])


@pytest.mark.shared_data
def test_the_errors_of_exact_match_on_ncbi(shared_data: Path) -> None:
    benchmark = open_evaluation_set(shared_data / "benchmarks" / "ncbi-disease")
    found = wrong_links(evaluate(benchmark, baseline("exact")))

    counts = {kind: count for kind, count in count_kinds(found["dictionary"]).items() if count}
    assert counts == {"composite": 24, "abbreviation": 48, "no candidate": 302, "ambiguous": 10}
    most = found["dictionary"][0]
    assert (most.kind, most.times, most.raw_texts) == (ErrorKind.ABBREVIATION, 36, ("DM",))
