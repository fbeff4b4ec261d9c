"""Calibration curves, compared with scikit-learn, and their reports."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from sapbert.errors import SapbertError
from sapbert.linking.calibration.model import (
    FOLDS,
    Curve,
    Isotonic,
    Outcomes,
    Platt,
    brier,
    calibration_error,
    choose_threshold,
    fit,
    fit_isotonic,
    fit_platt,
    folds_of,
    load_curve,
    reliability,
    threshold_points,
)
from sapbert.linking.settings import Method

outcome = st.tuples(st.integers(0, 20), st.integers(0, 5), st.booleans())


def outcomes_of(rows: list[tuple[int, int, bool]]) -> Outcomes:
    scores, margins, right = zip(*rows, strict=True)
    texts = [f"mention {number}" for number in range(len(rows))]
    return Outcomes(np.array(scores) / 20, np.array(margins) / 20, np.array(right), texts)


def random_outcomes(count: int, seed: int = 0) -> Outcomes:
    """Outcomes that are correct with probability score + margin - 0.3."""
    rng = np.random.default_rng(seed)
    scores, margins = rng.uniform(0.4, 1, count), rng.uniform(0, 0.3, count)
    right = rng.random(count) < np.clip(scores + margins - 0.3, 0, 1)
    return Outcomes(scores, margins, right, [f"mention {number}" for number in range(count)])


def test_confidence_equals_the_accuracy_at_a_score() -> None:
    outcomes = outcomes_of([(18, 1, number % 10 > 0) for number in range(100)])

    for method in (Method.PLATT, Method.ISOTONIC):
        confidence = fit(outcomes, method).curve.confidence(np.array([0.9]), np.array([0.05]))
        np.testing.assert_allclose(confidence, [0.9], atol=1e-6)


@given(st.lists(outcome, min_size=1, max_size=40))
def test_the_isotonic_curve_equals_that_of_scikit_learn(rows: list[tuple[int, int, bool]]) -> None:
    outcomes = outcomes_of(rows)
    oracle = IsotonicRegression(out_of_bounds="clip").fit(outcomes.scores, outcomes.correct)
    everywhere = np.linspace(-0.2, 1.2, 57)

    found = fit_isotonic(outcomes).confidence(everywhere, everywhere)

    np.testing.assert_allclose(found, oracle.predict(everywhere), atol=1e-9)
    assert (np.diff(found) >= -1e-12).all()


def test_the_logistic_curve_equals_that_of_scikit_learn() -> None:
    outcomes = random_outcomes(400)
    plain = np.column_stack([outcomes.scores, outcomes.margins])
    scaled = (plain - plain.mean(0)) / plain.std(0)
    oracle = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(scaled, outcomes.correct)

    found = fit_platt(outcomes).confidence(outcomes.scores, outcomes.margins)

    np.testing.assert_allclose(found, oracle.predict_proba(scaled)[:, 1], atol=1e-6)


@pytest.mark.parametrize("right", [True, False])
def test_equal_or_separable_outcomes_still_give_a_curve(right: bool) -> None:
    alike = outcomes_of([(number % 20, 1, right) for number in range(60)])
    parted = outcomes_of([(number % 20, 1, (number % 20 > 10) is right) for number in range(60)])

    for outcomes in (alike, parted):
        for curve in (fit_platt(outcomes), fit_isotonic(outcomes)):
            confidence = curve.confidence(outcomes.scores, outcomes.margins)
            assert np.isfinite(confidence).all()
            assert ((confidence >= 0) & (confidence <= 1)).all()


def test_the_better_method_on_held_out_mentions_is_kept() -> None:
    outcomes = random_outcomes(2_000)  # the lead matters, and only Platt's curve reads it

    best = fit(outcomes)

    assert best.method is Method.PLATT
    assert brier(best.held_out, outcomes.correct) < brier(
        fit(outcomes, Method.ISOTONIC).held_out, outcomes.correct
    )


def test_equal_mentions_are_held_out_together() -> None:
    """Each mention occurs twice with a random outcome, which a curve fitted on its copy would predict."""
    rng = np.random.default_rng(1)
    right = np.repeat(rng.random(300) < 0.5, 2)
    scores = np.repeat(rng.random(300), 2)
    texts = [f"mention {number // 2}" for number in range(600)]

    held_out = fit(Outcomes(scores, np.zeros(600), right, texts), Method.ISOTONIC).held_out

    assert brier(held_out, right) > 0.24


@pytest.mark.parametrize(("method", "fit_one"), [(Method.PLATT, fit_platt), (Method.ISOTONIC, fit_isotonic)])
def test_held_out_confidences_are_those_of_a_curve_of_the_other_folds(
    method: Method, fit_one: Callable[[Outcomes], Curve]
) -> None:
    scores, margins, correct, texts = random_outcomes(80)
    folds = folds_of(texts)

    held_out = fit(Outcomes(scores, margins, correct, texts), method).held_out

    for fold in range(FOLDS):
        own, others = folds == fold, folds != fold
        curve = fit_one(Outcomes(scores[others], margins[others], correct[others], ()))
        np.testing.assert_allclose(held_out[own], curve.confidence(scores[own], margins[own]))


def test_confidence_has_a_lower_error_than_the_score() -> None:
    outcomes = random_outcomes(3_000)

    held_out = fit(outcomes).held_out

    assert (
        calibration_error(held_out, outcomes.correct)
        < 0.03
        < calibration_error(outcomes.scores, outcomes.correct)
    )
    assert brier(held_out, outcomes.correct) < brier(outcomes.scores, outcomes.correct)


def test_too_few_mentions_are_refused() -> None:
    with pytest.raises(SapbertError, match="at least 50 mentions with a candidate, got 49"):
        fit(random_outcomes(49))


def test_repetitions_of_one_mention_are_refused() -> None:
    outcomes = random_outcomes(60)._replace(texts=["same"] * 60)

    with pytest.raises(SapbertError, match="all equal"):
        fit(outcomes)


@pytest.mark.parametrize("method", [Method.PLATT, Method.ISOTONIC])
def test_a_curve_can_be_stored_as_json(method: Method) -> None:
    outcomes = random_outcomes(200)
    curve = fit(outcomes, method).curve

    again = load_curve(method, json.loads(json.dumps(curve.parameters())))

    np.testing.assert_array_equal(
        again.confidence(outcomes.scores, outcomes.margins),
        curve.confidence(outcomes.scores, outcomes.margins),
    )


def test_reliability_counts_every_answer_once() -> None:
    confidence, right = np.array([0.0, 0.05, 0.5, 1.0]), np.array([False, True, True, True])

    bins = reliability(confidence, right)

    assert [own.answers for own in bins] == [2, 1, 1]
    assert bins[0].accuracy == 0.5
    assert calibration_error(confidence, right) == pytest.approx((2 * abs(0.025 - 0.5) + 0.5 + 0) / 4)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_threshold_points_equal_a_plain_count(rows: list[tuple[int, bool]]) -> None:
    confidence: NDArray[np.float64] = np.array([own for own, _ in rows]) / 5
    right = np.array([own for _, own in rows])

    found = threshold_points(confidence, right, mentions=len(rows) + 3)

    assert [cut.threshold for cut in found] == sorted(set(confidence.tolist()))
    for cut in found:
        left = confidence >= cut.threshold
        assert cut.precision == pytest.approx(right[left].mean())
        assert cut.coverage == pytest.approx(left.sum() / (len(rows) + 3))


def test_the_lowest_sufficient_threshold_is_chosen() -> None:
    confidence = np.repeat([0.9, 0.8, 0.7, 0.6, 0.5], 50)
    right = np.repeat([True, True, False, True, False], 50)
    found = threshold_points(confidence, right, mentions=250)

    assert choose_threshold(found, 0.75).threshold == 0.6
    assert choose_threshold(found, 0.9).threshold == 0.8


def test_for_an_unreachable_precision_the_highest_is_returned() -> None:
    """A single correct answer is not enough to estimate precision."""
    confidence, right = np.append(np.full(99, 0.5), 0.9), np.append(np.arange(99) < 49, True)

    best = choose_threshold(threshold_points(confidence, right, mentions=100), 0.99)
    assert (best.precision, best.coverage) == (0.5, 1.0)


def test_an_unknown_method_is_refused() -> None:
    assert isinstance(load_curve("platt", {"intercept": 0, "score": 1, "lead": 0}), Platt)
    assert isinstance(load_curve("isotonic", {"scores": [0.5], "values": [1.0]}), Isotonic)
    with pytest.raises(ValueError, match="unknown method"):
        load_curve("magic", {"scores": [0.5], "values": [1.0]})
