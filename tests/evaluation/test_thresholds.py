from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapbert.errors import SapbertError
from sapbert.evaluation.run import Evaluation, evaluate
from sapbert.evaluation.thresholds import calibration_outcomes, reliability, threshold_curve
from tests.evaluation.conftest import mentions, scored, small_set

NAMES = {"fever": "F", "hot fever": "F", "moss lung": "M", "tin ear": "T"}
Scored = Mapping[str, Sequence[tuple[str, float]]]


def run(answers: Scored, *rows: tuple[str, str]) -> Evaluation:
    return evaluate(small_set(NAMES, mentions(*rows)), scored(answers))


def test_a_higher_threshold_leaves_fewer_and_better_answers() -> None:
    answers = {
        "hot": [("fever", 0.9)],
        "wet": [("moss lung", 0.5)],
        "tin": [("fever", 0.4)],
        "nil": [("fever", 0.6)],
    }
    found = threshold_curve(
        run(answers, ("hot", "F"), ("wet", "M"), ("tin", "T"), ("nil", "-1"), ("mud", "M")), "dictionary"
    )

    assert found.scores.tolist() == [0.4, 0.5, 0.6, 0.9]
    assert found.precision.tolist() == [2 / 4, 2 / 3, 1 / 2, 1]
    assert found.coverage.tolist() == [4 / 5, 3 / 5, 2 / 5, 1 / 5]
    # From 0.9 on the NIL mention is right as well, by having no answer.
    assert found.accuracy.tolist() == pytest.approx([2 / 5, 2 / 5, 1 / 5, 2 / 5])
    assert [found.lowest_reaching(wanted) for wanted in (0.5, 0.6, 0.95)] == [0, 1, 3]


def test_the_lead_is_over_the_next_concept_and_that_of_the_worst_part() -> None:
    answers = {
        "hot": [("fever", 0.9), ("hot fever", 0.8), ("moss lung", 0.5)],
        "wet": [("moss lung", 0.7), ("tin ear", 0.6)],
        "tin": [("tin ear", 0.4)],
    }
    found = calibration_outcomes(run(answers, ("hot", "F"), ("hot|wet", "F|M"), ("tin", "F")), "dictionary")

    assert found.scores.tolist() == [0.9, 0.7, 0.4]
    assert found.margins.tolist() == pytest.approx([0.4, 0.1, 0.4])
    assert found.correct.tolist() == [True, True, False]


def test_scores_that_differ_in_the_last_bits_are_one_threshold() -> None:
    answers = {"hot": [("fever", 1.0)], "wet": [("fever", 1 - 6e-8)]}
    assert len(threshold_curve(run(answers, ("hot", "F"), ("wet", "M")), "dictionary").scores) == 1


def test_an_evaluation_without_candidates_has_no_curve() -> None:
    with pytest.raises(SapbertError, match="dictionary: no mention has a candidate"):
        threshold_curve(run({}, ("hot", "F")), "dictionary")


def test_confidence_is_fitted_to_an_evaluation() -> None:
    names = [f"m{number}" for number in range(200)]
    answers = {name: [("fever", (number % 20 + 0.5) / 20)] for number, name in enumerate(names)}
    # Right as often as its score squared says, so that the score promises too much.
    gold = [
        "F" if (number * 7 % 200) / 200 < ((number % 20 + 0.5) / 20) ** 2 else "M" for number in range(200)
    ]
    found = reliability(run(answers, *zip(names, gold, strict=True)), "dictionary")

    assert found["mentions answered"] == 200
    assert found["right"] == gold.count("F") / 200
    assert found["calibration error"]["confidence"] < found["calibration error"]["score"]
    assert sum(own["answers"] for own in found["reliability"]) == 200


cases = st.lists(
    st.tuples(st.sampled_from([0.1, 0.25, 0.5, 0.75, None]), st.sampled_from(["F", "M", "-1"])),
    min_size=1,
    max_size=20,
).filter(lambda rows: any(score is not None for score, _ in rows))


@given(cases)
def test_curves_agree_with_counting(rows: list[tuple[float | None, str]]) -> None:
    answers = {f"m{at}": [("fever", score)] for at, (score, _) in enumerate(rows) if score is not None}
    found = threshold_curve(
        run(answers, *((f"m{at}", gold) for at, (_, gold) in enumerate(rows))), "dictionary"
    )

    assert found.scores.tolist() == sorted({score for score, _ in rows if score is not None})
    for at, threshold in enumerate(found.scores):
        answered = [gold for score, gold in rows if score is not None and score >= threshold]
        silent = [gold for score, gold in rows if score is None or score < threshold]
        assert found.precision[at] == pytest.approx(answered.count("F") / len(answered))
        assert found.coverage[at] == pytest.approx(len(answered) / len(rows))
        assert found.accuracy[at] == pytest.approx((answered.count("F") + silent.count("-1")) / len(rows))
