"""Curves from scores to probabilities, and how well calibrated they are.

A cosine ranks candidates but is not a probability. Labelled mentions show how often the best candidate is
correct, given its score and its margin over the second. Two curves are fitted: Platt's logistic curve, which
needs few mentions and also uses the margin, and isotonic regression, which can take any increasing shape but
ignores the margin. The one with the smaller squared error on held-out mentions is kept. The held-out
confidences are also the basis of all reported figures and of the threshold for NIL.

Only the best candidate has a confidence: labels say little about the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import SapbertError
from sapbert.linking.settings import Method

Floats = NDArray[np.float64]
FOLDS = 5
BINS = 10
_MIN_ANSWERS = 50
"""With fewer answers, a curve or the precision at a threshold is not reliable."""
_NEWTON_STEPS = 50


class Outcomes(NamedTuple):
    """Results of linking labelled mentions: one entry per mention that has a candidate."""

    scores: Floats
    """Score of the best candidate."""
    margins: Floats
    """Score of the best minus score of the second candidate; the score itself if there is no second."""
    correct: NDArray[np.bool_]
    """Whether the best candidate is correct."""
    texts: Sequence[str]
    """The folded mentions: equal mentions are always in the same fold."""


class Curve(Protocol):
    """A fitted curve."""

    def confidence(self, scores: Floats, margins: Floats) -> Floats:
        """Return the probability that best candidates with these scores and margins are correct."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return the JSON parameters from which `load_curve` restores the curve."""
        ...


@dataclass(frozen=True, slots=True)
class Platt:
    """A logistic curve of score and margin."""

    intercept: float
    score_weight: float
    margin_weight: float

    def confidence(self, scores: Floats, margins: Floats) -> Floats:
        """See `Curve`."""
        return _logistic(self.intercept + self.score_weight * scores + self.margin_weight * margins)

    def parameters(self) -> dict[str, Any]:
        """See `Curve`."""
        return {"intercept": self.intercept, "score": self.score_weight, "lead": self.margin_weight}


@dataclass(frozen=True, slots=True)
class Isotonic:
    """An increasing, piecewise linear curve of the score."""

    scores: Floats
    values: Floats

    def confidence(self, scores: Floats, margins: Floats) -> Floats:
        """See `Curve`; margins are ignored."""
        del margins
        confidence: Floats = np.interp(scores, self.scores, self.values)
        return confidence

    def parameters(self) -> dict[str, Any]:
        """See `Curve`."""
        return {"scores": self.scores.tolist(), "values": self.values.tolist()}


def load_curve(method: str, parameters: Mapping[str, Any]) -> Curve:
    """Restore a curve from its `parameters`."""
    if method == Method.PLATT:
        return Platt(*(float(parameters[name]) for name in ("intercept", "score", "lead")))
    scores, values = (np.array(parameters[name], np.float64) for name in ("scores", "values"))
    if method != Method.ISOTONIC or len(scores) != len(values) or not len(scores):
        raise ValueError(f"unknown method {method!r} or wrong number of points")
    return Isotonic(scores, values)


def fit_platt(outcomes: Outcomes) -> Platt:
    """Fit by Newton's method; weak L2 regularization keeps weights finite if outcomes are separable."""
    raw = np.column_stack([outcomes.scores, outcomes.margins])
    center, spread = raw.mean(0), np.maximum(raw.std(0), 1e-9)
    features = np.column_stack([np.ones(len(raw)), (raw - center) / spread])
    correct = outcomes.correct.astype(np.float64)
    penalty = np.array([0.0, 1.0, 1.0])
    weights = np.zeros(3)
    for _ in range(_NEWTON_STEPS):
        p = _logistic(features @ weights)
        gradient = features.T @ (p - correct) + penalty * weights
        # If all outcomes are equal the intercept diverges; the lower bound keeps the system solvable.
        curvature = (features.T * np.maximum(p * (1 - p), 1e-9)) @ features + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        weights -= np.clip(step, -5, 5)
        if np.abs(step).max() < 1e-10:
            break
    score, margin = weights[1:] / spread
    return Platt(float(weights[0] - (weights[1:] / spread) @ center), float(score), float(margin))


def fit_isotonic(outcomes: Outcomes) -> Isotonic:
    """Fit by pooling adjacent violators."""
    scores, place, sizes = np.unique(outcomes.scores, return_inverse=True, return_counts=True)
    means = np.bincount(place, outcomes.correct) / sizes
    pools: list[tuple[float, float, int]] = []  # mean, mentions, distinct scores
    for mean, size in zip(means.tolist(), sizes.tolist(), strict=True):
        pool = (mean, float(size), 1)
        while pools and pools[-1][0] >= pool[0]:
            other = pools.pop()
            weight = pool[1] + other[1]
            pool = ((pool[0] * pool[1] + other[0] * other[1]) / weight, weight, pool[2] + other[2])
        pools.append(pool)
    values = np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
    # Points inside a constant segment are redundant.
    needed = np.ones(len(values), np.bool_)
    needed[1:-1] = (values[1:-1] != values[:-2]) | (values[1:-1] != values[2:])
    return Isotonic(scores[needed], values[needed])


_FITS: Mapping[Method, Callable[[Outcomes], Curve]] = {
    Method.PLATT: fit_platt,
    Method.ISOTONIC: fit_isotonic,
}


class FittedCurve(NamedTuple):
    """A fitted curve and its cross-validated confidences."""

    method: Method
    curve: Curve
    held_out: Floats
    """Confidence of each outcome by a curve fitted on the other folds."""


def fit(outcomes: Outcomes, method: Method = Method.AUTO) -> FittedCurve:
    """Fit `method`; `AUTO` selects the best on held-out mentions."""
    if len(outcomes.scores) < _MIN_ANSWERS:
        answers = len(outcomes.scores)
        raise SapbertError(
            f"a calibration needs at least {_MIN_ANSWERS} mentions with a candidate, got {answers}; "
            "give more labelled mentions"
        )
    methods = list(_FITS) if method is Method.AUTO else [method]
    held_out = {each: _cross_fit(outcomes, _FITS[each]) for each in methods}
    best = min(methods, key=lambda each: brier(held_out[each], outcomes.correct))
    return FittedCurve(best, _FITS[best](outcomes), held_out[best])


def folds_of(texts: Sequence[str]) -> NDArray[np.int64]:
    """Assign each text to a fold by its hash, so that equal texts share a fold."""
    digests = (hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest() for text in texts)
    return np.array([int.from_bytes(digest) % FOLDS for digest in digests], np.int64)


def _cross_fit(outcomes: Outcomes, fit_one: Callable[[Outcomes], Curve]) -> Floats:
    folds = folds_of(outcomes.texts)
    confidence = np.zeros(len(folds))
    for fold in np.unique(folds):
        test, train = folds == fold, folds != fold
        if not train.any():
            raise SapbertError("the labelled mentions are all equal; a calibration needs different mentions")
        curve = fit_one(
            Outcomes(outcomes.scores[train], outcomes.margins[train], outcomes.correct[train], ())
        )
        confidence[test] = curve.confidence(outcomes.scores[test], outcomes.margins[test])
    return confidence


def brier(confidence: Floats, correct: NDArray[np.bool_]) -> float:
    """Return the Brier score: the mean squared error of `confidence`."""
    return float(np.mean((confidence - correct) ** 2))


class ReliabilityBin(NamedTuple):
    """The answers in one range of confidence."""

    answers: int
    confidence: float
    """Mean confidence."""
    accuracy: float
    """Fraction of correct answers."""

    def report(self) -> dict[str, Any]:
        """Return the bin as it is written to files."""
        return {"answers": self.answers, "confidence": self.confidence, "right": self.accuracy}


def reliability(confidence: Floats, correct: NDArray[np.bool_]) -> list[ReliabilityBin]:
    """Group answers into ten equal ranges of confidence; empty ranges are left out."""
    numbers = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    bins = [np.flatnonzero(numbers == number) for number in range(BINS)]
    return [
        ReliabilityBin(len(rows), float(confidence[rows].mean()), float(correct[rows].mean()))
        for rows in bins
        if len(rows)
    ]


def calibration_error(confidence: Floats, correct: NDArray[np.bool_]) -> float:
    """Return the expected calibration error over ten bins."""
    bins = reliability(confidence, correct)
    return sum(each.answers * abs(each.confidence - each.accuracy) for each in bins) / len(confidence)


def reliability_report(outcomes: Outcomes, held_out: Floats) -> dict[str, Any]:
    """Return how well calibrated the scores, taken as probabilities, and the held-out confidences are."""
    scores, correct = np.clip(outcomes.scores, 0, 1), outcomes.correct
    return {
        "mentions answered": len(correct),
        "right": float(correct.mean()),
        "brier": {"score": brier(scores, correct), "confidence": brier(held_out, correct)},
        "calibration error": {
            "score": calibration_error(scores, correct),
            "confidence": calibration_error(held_out, correct),
        },
        "reliability": [each.report() for each in reliability(held_out, correct)],
        "reliability of the score": [each.report() for each in reliability(scores, correct)],
    }


class ThresholdPoint(NamedTuple):
    """Precision and coverage if answers below a threshold are NIL."""

    threshold: float
    precision: float
    """Fraction of the remaining answers that are correct."""
    coverage: float
    """Fraction of the mentions that have an answer."""
    answers: int


def threshold_points(confidence: Floats, correct: NDArray[np.bool_], mentions: int) -> list[ThresholdPoint]:
    """Return precision and coverage at every threshold, lowest threshold first."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    answered = np.arange(1, len(order) + 1)
    precision = np.cumsum(correct[order]) / answered
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # per distinct confidence
    points = [
        ThresholdPoint(float(ordered[at]), float(precision[at]), float(answered[at] / mentions), at + 1)
        for at in last.tolist()
    ]
    return points[::-1]


def choose_threshold(points: Sequence[ThresholdPoint], precision: float) -> ThresholdPoint:
    """Return the lowest threshold with at least this precision, of those with enough answers.

    If none reaches it, return the one of highest precision.
    """
    reliable = [point for point in points if point.answers >= _MIN_ANSWERS]
    reaching = (point for point in reliable if point.precision >= precision)
    return next(reaching, None) or max(reliable, key=lambda point: point.precision)


def _logistic(x: Floats) -> Floats:
    result: Floats = 0.5 * (1 + np.tanh(x / 2))  # tanh does not overflow
    return result
