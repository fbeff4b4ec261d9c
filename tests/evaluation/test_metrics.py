from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.evaluation.metrics import RESULTS, compute_metrics, compute_metrics_by, correct_at
from sapbert.evaluation.run import evaluate
from tests.evaluation.conftest import mentions, ranker_answering, small_set

NAMES = {
    "fever": "F",
    "heat": "F|H",
    "moss lung": "M|700",
    "lung of moss": "M|700",
    "tin ear": "T",
    "ear": "E",
}
Answers = Mapping[str, Sequence[str]]


def results_of(
    rows: Sequence[tuple[str, str]], answers: Answers, *, names: Mapping[str, str] = NAMES, depth: int = 20
) -> pl.DataFrame:
    return evaluate(small_set(names, mentions(*rows)), ranker_answering(answers), depth=depth).results


def ranks(rows: Sequence[tuple[str, str]], answers: Answers) -> list[int | None]:
    return results_of(rows, answers)["rank"].to_list()


def strict_ranks(rows: Sequence[tuple[str, str]], answers: Answers) -> list[int | None]:
    return results_of(rows, answers)["strict_rank"].to_list()


def test_the_rank_is_that_of_the_first_correct_candidate() -> None:
    assert ranks([("hot", "F")], {"hot": ["ear", "fever", "heat"]}) == [2]
    assert ranks([("hot", "F")], {"hot": ["ear", "tin ear"]}) == [None]


def test_any_gold_id_and_any_id_of_a_name_are_enough() -> None:
    assert ranks([("hot", "X|H")], {"hot": ["heat"]}) == [1]
    assert ranks([("hot", "X+H")], {"hot": ["heat"]}) == [1]


def test_a_composite_mention_is_correct_at_the_rank_of_its_worst_part() -> None:
    answers = {"moss": ["moss lung"], "tin": ["fever", "ear", "tin ear"]}

    assert ranks([("moss|tin", "M|T")], answers) == [3]
    assert ranks([("moss|tin", "M|X")], answers) == [None]
    assert ranks([("moss|unknown", "M|T")], answers) == [None]


def test_by_the_strict_rule_an_ambiguous_name_is_not_correct() -> None:
    assert strict_ranks([("hot", "F")], {"hot": ["heat", "fever"]}) == [2]
    assert strict_ranks([("hot", "F|H")], {"hot": ["heat", "fever"]}) == [1]


def test_two_ids_of_one_concept_are_not_two_concepts() -> None:
    assert strict_ranks([("mossy", "700")], {"mossy": ["moss lung"]}) == [1]


def test_a_gold_id_that_no_name_has_makes_a_mention_wrong_and_uncovered() -> None:
    figures = compute_metrics(results_of([("a", "X"), ("b", "T")], {"a": ["ear"], "b": ["tin ear"]}))

    assert figures.mentions == 2
    assert figures.accuracy == {1: 0.5, 5: 0.5}
    assert figures.coverage == 0.5


def test_a_mention_counts_as_often_as_it_occurs() -> None:
    rows = [("hot", "F"), ("hot", "F"), ("cold", "T")]

    assert compute_metrics(results_of(rows, {"hot": ["fever"]})).accuracy[1] == pytest.approx(2 / 3)


def test_mentions_without_gold_ids_count_only_for_nil_metrics() -> None:
    rows = [("hot", "F"), ("blue", "-1"), ("green", ""), ("red", "cui-less")]
    found = results_of(rows, {"hot": ["fever"], "red": ["ear"]})

    figures = compute_metrics(found)

    assert (figures.mentions, figures.nil) == (1, 3)
    assert figures.accuracy[1] == figures.coverage == 1
    assert figures.nil_precision == 1
    assert figures.nil_recall == pytest.approx(2 / 3)
    assert compute_metrics(found, threshold=1.1).nil_recall == 1
    assert compute_metrics(found, threshold=1.1).nil_precision == 3 / 4
    assert list(correct_at(found, 1)) == [1]


def test_a_metric_with_a_zero_denominator_is_none() -> None:
    figures = compute_metrics(results_of([("blue", "-1")], {"blue": ["ear"]}))

    assert figures.accuracy == {1: None, 5: None}
    assert (figures.mrr, figures.coverage, figures.nil_precision, figures.nil_recall) == (None, None, None, 0)


def test_candidates_beyond_the_depth_are_not_found() -> None:
    answers = {"hot": ["ear", "tin ear", "fever"]}

    assert results_of([("hot", "F")], answers, depth=2)["rank"].to_list() == [None]
    assert compute_metrics(results_of([("hot", "F")], answers)).mrr == pytest.approx(1 / 3)


def test_metrics_by_type_and_by_seen_in_training() -> None:
    test = mentions(("hot", "F"), ("mossy", "M"), ("hot", "T"), type=["Disease", "Lung", "Disease"])
    train = mentions(("hot", "F"))
    found = evaluate(
        small_set(NAMES, test, train=train), ranker_answering({"hot": ["fever"], "mossy": ["ear"]})
    ).results

    assert {key: m.mentions for key, m in compute_metrics_by(found, "type").items()} == {
        "Disease": 2,
        "Lung": 1,
    }
    assert compute_metrics_by(found, "type")["Disease"].accuracy[1] == 0.5
    assert {key: m.accuracy[1] for key, m in compute_metrics_by(found, "seen").items()} == {
        "true": 0.5,
        "false": 0,
    }


def test_with_folds_every_metric_is_the_mean_over_folds() -> None:
    found = results_of(
        [("hot", "F"), ("hot", "F"), ("hot", "F"), ("hot", "X"), ("blue", "-1")], {"hot": ["ear", "fever"]}
    ).with_columns(fold=pl.Series(["0", "0", "0", "1", "2"]))

    figures = compute_metrics(found)

    assert figures.mentions == 4
    assert figures.accuracy == figures.strict == {1: 0, 5: 0.5}
    assert (figures.mrr, figures.coverage) == (0.25, 0.5)


def test_results_have_the_documented_columns() -> None:
    found = results_of([("moss|tin", "M|T")], {"moss": ["ear"]})

    assert tuple(found.columns) == ("dictionary", *RESULTS, "rank", "strict_rank")
    assert found.select("text", "gold").row(0) == ("moss|tin", "M|T")


IDS = st.sampled_from("ABCDE")
ID_SETS = st.lists(IDS, min_size=1, max_size=3, unique=True).map("|".join)
TEXTS = st.sampled_from(["m1", "m2", "m3"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple[str, str]], dict[str, list[str]]]:
    names = {f"n{number}": ids for number, ids in enumerate(draw(st.lists(ID_SETS, min_size=1, max_size=6)))}
    gold = st.one_of(ID_SETS, st.just("-1"), st.just("X"))
    part = st.lists(TEXTS, min_size=1, max_size=2).map("|".join)
    rows = draw(st.lists(st.tuples(part, gold), min_size=1, max_size=6))
    answers = {
        text: draw(st.lists(st.sampled_from(sorted(names)), unique=True)) for text in ("m1", "m2", "m3")
    }
    return names, rows, answers


def slow_concept(id: str, names: Mapping[str, str]) -> Any:
    owners = frozenset(name for name, ids in names.items() if id in ids.split("|"))
    return owners or id


def slow_rank(
    row: tuple[str, str], names: Mapping[str, str], answers: Answers, *, strict: bool
) -> int | None:
    """Look for the least k at which each part has a right name, the way the rules are told."""
    gold = [] if row[1] == "-1" else row[1].split("|")
    for k in range(1, 21):
        parts_right = 0
        parts = row[0].split("|")
        for part in parts:
            for name in answers[part][:k]:
                ids = names[name].split("|")
                if strict:
                    golden = [slow_concept(one, names) for one in gold]
                    right = all(slow_concept(one, names) in golden for one in ids)
                else:
                    right = any(one in gold for one in ids)
                if right:
                    parts_right += 1
                    break
        if parts_right == len(parts):
            return k
    return None


@given(worlds())
def test_metrics_agree_with_slow_loops(
    world: tuple[dict[str, str], list[tuple[str, str]], dict[str, list[str]]],
) -> None:
    names, rows, answers = world
    found = results_of(rows, answers, names=names)

    any_rank = [slow_rank(row, names, answers, strict=False) for row in rows]
    strict_rank = [slow_rank(row, names, answers, strict=True) for row in rows]
    linked = [rank for rank, row in zip(any_rank, rows, strict=True) if row[1] != "-1"]

    assert found["rank"].to_list() == any_rank
    assert found["strict_rank"].to_list() == strict_rank
    figures = compute_metrics(found, ks=(1, 2, 3))
    if linked:
        for k in (1, 2, 3):
            right = sum(1 for rank in linked if rank is not None and rank <= k)
            assert figures.accuracy[k] == pytest.approx(right / len(linked))
        assert figures.mrr == pytest.approx(sum(1 / rank for rank in linked if rank) / len(linked))
