from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.evaluation.ancestry import Relation, measure_ancestry, relate
from sapbert.evaluation.report import ancestry_lines
from sapbert.evaluation.run import evaluate
from sapbert.hierarchy import Hierarchy
from tests.evaluation.conftest import mentions, ranker_answering, small_set
from tests.vocab.contents import Content, write

#  1 above 2 and 3; 4 below 2; 5 below 3; 6 alone
PARENTS = [(2, 1), (3, 1), (4, 2), (5, 3)]
edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10)


def graph(pairs: list[tuple[int, int]]) -> Hierarchy:
    children, parents = np.array(pairs, np.int64).reshape(-1, 2).T
    return Hierarchy.from_edges(7, children, parents)


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        (4, 4, (Relation.SAME, 0)),
        (2, 4, (Relation.BROADER, 1)),
        (1, 4, (Relation.BROADER, 2)),
        (4, 1, (Relation.NARROWER, 2)),
        (2, 3, (Relation.SIBLING, 2)),
        (4, 5, (Relation.RELATED, 4)),
        (6, 4, (Relation.UNRELATED, None)),
    ],
)
def test_an_answer_is_broader_narrower_or_a_sibling(
    answer: int, gold: int, expected: tuple[Relation, int | None]
) -> None:
    assert relate(graph(PARENTS), answer, gold) == expected


@given(edges, st.integers(0, 5), st.integers(0, 5))
def test_the_distance_is_symmetric(pairs: list[tuple[int, int]], one: int, other: int) -> None:
    hierarchy = graph(pairs)
    assert relate(hierarchy, one, other)[1] == relate(hierarchy, other, one)[1]


def test_answers_within_one_step_are_counted(tmp_path: Path) -> None:
    vocabulary = write(
        tmp_path / "v",
        Content(
            [(f"x:{number}", f"name {number}", 1, "en", "x", "exact") for number in range(1, 7)],
            aliases=[("x:2", "x:20")],
            parents=[(f"x:{child}", f"x:{parent}", "is_a") for child, parent in PARENTS],
        ),
    )
    names = {"all": "1", "two": "20", "three": "3", "four": "4", "six": "6"}
    answers = {"a": ["four"], "b": ["two"], "c": ["all"], "d": ["six"], "e": ["three"], "f": []}
    gold = [("a", "4"), ("b", "4"), ("c", "4"), ("d", "4"), ("e", "2|99"), ("f", "4"), ("a|b", "4|1")]
    run = evaluate(small_set(names, mentions(*gold)), ranker_answering(answers))

    measured = measure_ancestry(run, "dictionary", vocabulary, prefix="x")

    assert (measured.mentions, measured.correct, measured.within_one_step) == (7, 1, 2)
    assert {relation: count for relation, count in measured.wrong.items() if count} == {
        Relation.BROADER: 2,
        Relation.SIBLING: 1,
        Relation.UNRELATED: 3,
    }
    assert measured.mean_distance == pytest.approx((1 + 2 + 2) / 3)
    assert "within one step     28.6%" in list(ancestry_lines({"x": measured}))
