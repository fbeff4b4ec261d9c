"""From scores to probabilities: how often an answer with such a score is right.

A cosine orders candidates but promises nothing. Labelled mentions tell how often the best candidate was
right, by its score and its lead over the second. Two curves are fitted: Platt's logistic one, which needs few
mentions and reads the lead as well, and the isotonic one, which takes any rising shape but knows no lead.
The one with the smaller squared error on mentions that it was not fitted on is kept. These held-out
confidences also give every figure that is reported, and the threshold for NIL.

Only the best candidate has a confidence: the labels say little about the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ConfigError, SapbertError
from sapbert.linking.settings import Method

Floats = NDArray[np.float64]
FOLDS = 5
BINS = 10
_FEWEST = 50
"""Answers below which a curve, or the precision of a cut, would be guesswork."""
_NEWTON_STEPS = 50


class Outcomes(NamedTuple):
    """What became of labelled mentions: those with any candidate at all."""

    scores: Floats
    """Of the best candidate."""
    leads: Floats
    """How far the second is behind; the score itself where there is none."""
    right: NDArray[np.bool_]
    texts: Sequence[str]
    """The mentions, folded: equal ones are never on both sides of a split."""


class Curve(Protocol):
    """A fitted curve."""

    def confidence(self, scores: Floats, leads: Floats) -> Floats:
        """Return the probability that answers with these scores and leads are right."""
        ...

    def parameters(self) -> dict[str, Any]:
        """Return what `load_curve` needs, in words of JSON."""
        ...


@dataclass(frozen=True, slots=True)
class Platt:
    """A logistic curve over score and lead."""

    intercept: float
    score: float
    lead: float

    def confidence(self, scores: Floats, leads: Floats) -> Floats:
        """As `Curve` says."""
        return _logistic(self.intercept + self.score * scores + self.lead * leads)

    def parameters(self) -> dict[str, Any]:
        """As `Curve` says."""
        return {"intercept": self.intercept, "score": self.score, "lead": self.lead}


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising curve over the score, straight between its corners."""

    scores: Floats
    values: Floats

    def confidence(self, scores: Floats, leads: Floats) -> Floats:
        """As `Curve` says; leads are not read."""
        del leads
        confidence: Floats = np.interp(scores, self.scores, self.values)
        return confidence

    def parameters(self) -> dict[str, Any]:
        """As `Curve` says."""
        return {"scores": self.scores.tolist(), "values": self.values.tolist()}


def load_curve(method: str, parameters: Mapping[str, Any]) -> Curve:
    """Make a curve of what its `parameters` gave out."""
    if method == Method.PLATT:
        return Platt(*(float(parameters[name]) for name in ("intercept", "score", "lead")))
    corners = [np.array(parameters[name], np.float64) for name in ("scores", "values")]
    if method != Method.ISOTONIC or len(corners[0]) != len(corners[1]) or not len(corners[0]):
        raise ValueError(f"no curve of method {method!r}")
    return Isotonic(*corners)


def fit_platt(outcomes: Outcomes) -> Platt:
    """Fit by Newton's method, with a weak pull towards a flat curve in case the outcomes part cleanly."""
    plain = np.column_stack([outcomes.scores, outcomes.leads])
    center, spread = plain.mean(0), np.maximum(plain.std(0), 1e-9)
    features = np.column_stack([np.ones(len(plain)), (plain - center) / spread])
    right = outcomes.right.astype(np.float64)
    pull = np.array([0.0, 1.0, 1.0])
    weights = np.zeros(3)
    for _ in range(_NEWTON_STEPS):
        p = _logistic(features @ weights)
        gradient = features.T @ (p - right) + pull * weights
        # Where all outcomes are alike the intercept runs away; the floor keeps the system solvable.
        curvature = (features.T * np.maximum(p * (1 - p), 1e-9)) @ features + np.diag(pull)
        step = np.linalg.solve(curvature, gradient)
        weights -= np.clip(step, -5, 5)
        if np.abs(step).max() < 1e-10:
            break
    score, lead = weights[1:] / spread
    return Platt(float(weights[0] - (weights[1:] / spread) @ center), float(score), float(lead))


def fit_isotonic(outcomes: Outcomes) -> Isotonic:
    """Fit by pooling neighbours for as long as a lower score does better than a higher one."""
    scores, place, sizes = np.unique(outcomes.scores, return_inverse=True, return_counts=True)
    means = np.bincount(place, outcomes.right) / sizes
    pools: list[tuple[float, float, int]] = []  # mean, mentions, distinct scores
    for mean, size in zip(means.tolist(), sizes.tolist(), strict=True):
        pool = (mean, float(size), 1)
        while pools and pools[-1][0] >= pool[0]:
            other = pools.pop()
            weight = pool[1] + other[1]
            pool = ((pool[0] * pool[1] + other[0] * other[1]) / weight, weight, pool[2] + other[2])
        pools.append(pool)
    values = np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])
    # A corner inside a level stretch changes nothing.
    corner = np.ones(len(values), np.bool_)
    corner[1:-1] = (values[1:-1] != values[:-2]) | (values[1:-1] != values[2:])
    return Isotonic(scores[corner], values[corner])


_FITS: Mapping[Method, Callable[[Outcomes], Curve]] = {
    Method.PLATT: fit_platt,
    Method.ISOTONIC: fit_isotonic,
}


class Fitted(NamedTuple):
    """A curve, and what it says of mentions that it was not fitted on."""

    method: Method
    curve: Curve
    held_out: Floats


def fit(outcomes: Outcomes, method: Method = Method.AUTO) -> Fitted:
    """Fit `method`, or the better of all on held-out mentions."""
    if len(outcomes.scores) < _FEWEST:
        found = len(outcomes.scores)
        raise SapbertError(f"{found} of the mentions have an answer; a calibration needs at least {_FEWEST}")
    methods = list(_FITS) if method is Method.AUTO else [method]
    held_out = {each: _cross_fit(outcomes, _FITS[each]) for each in methods}
    best = min(methods, key=lambda each: brier(held_out[each], outcomes.right))
    return Fitted(best, _FITS[best](outcomes), held_out[best])


def folds_of(texts: Sequence[str]) -> NDArray[np.int64]:
    """Put each text into one of the folds, always the same."""
    digests = (hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest() for text in texts)
    return np.array([int.from_bytes(digest) % FOLDS for digest in digests], np.int64)


def _cross_fit(outcomes: Outcomes, fit_one: Callable[[Outcomes], Curve]) -> Floats:
    folds = folds_of(outcomes.texts)
    confidence = np.zeros(len(folds))
    for fold in np.unique(folds):
        out, others = folds == fold, folds != fold
        if not others.any():
            raise SapbertError("the labelled mentions are all the same; a calibration needs different ones")
        curve = fit_one(Outcomes(outcomes.scores[others], outcomes.leads[others], outcomes.right[others], ()))
        confidence[out] = curve.confidence(outcomes.scores[out], outcomes.leads[out])
    return confidence


def brier(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Mean squared error of `confidence`."""
    return float(np.mean((confidence - right) ** 2))


class Bin(NamedTuple):
    """The answers whose confidence lies in one tenth."""

    answers: int
    confidence: float
    """On average."""
    right: float
    """The share that is right."""


def reliability(confidence: Floats, right: NDArray[np.bool_]) -> list[Bin]:
    """Sort answers into ten equal ranges of confidence; empty ones are left out."""
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    own = [np.flatnonzero(place == number) for number in range(BINS)]
    return [
        Bin(len(rows), float(confidence[rows].mean()), float(right[rows].mean())) for rows in own if len(rows)
    ]


def calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Expected calibration error: how far confidence and share of right answers are apart, over ten bins."""
    bins = reliability(confidence, right)
    return sum(own.answers * abs(own.confidence - own.right) for own in bins) / len(confidence)


def reliability_report(outcomes: Outcomes, held_out: Floats) -> dict[str, Any]:
    """Say how right scores are, taken for probabilities, and how right confidence is on mentions held out."""
    before, right = np.clip(outcomes.scores, 0, 1), outcomes.right
    return {
        "mentions answered": len(right),
        "right": float(right.mean()),
        "brier": {"score": brier(before, right), "confidence": brier(held_out, right)},
        "calibration error": {
            "score": calibration_error(before, right),
            "confidence": calibration_error(held_out, right),
        },
        "reliability": [own._asdict() for own in reliability(held_out, right)],
        "reliability of the score": [own._asdict() for own in reliability(before, right)],
    }


class Cut(NamedTuple):
    """What is left when answers below a confidence are NIL."""

    threshold: float
    precision: float
    """The share of answers left that is right."""
    coverage: float
    """The share of mentions that are answered."""
    answers: int


def cuts(confidence: Floats, right: NDArray[np.bool_], mentions: int) -> list[Cut]:
    """Return what each threshold would leave, from the lowest threshold to the highest."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    answered = np.arange(1, len(order) + 1)
    precision = np.cumsum(right[order]) / answered
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # of those with one confidence
    found = [
        Cut(float(ordered[at]), float(precision[at]), float(answered[at] / mentions), at + 1)
        for at in last.tolist()
    ]
    return found[::-1]


def choose_cut(found: Sequence[Cut], precision: float) -> Cut:
    """Return the cut that answers most mentions with at least this precision, and enough to know it."""
    enough = [cut for cut in found if cut.answers >= _FEWEST]
    for cut in enough:
        if cut.precision >= precision:
            return cut
    best = max(enough, key=lambda cut: cut.precision)
    raise ConfigError(
        f"no threshold that leaves {_FEWEST} answers reaches a precision of {precision}; the best is "
        f"{best.precision:.3f}, answering {best.coverage:.0%} of the mentions"
    )


def _logistic(x: Floats) -> Floats:
    result: Floats = 0.5 * (1 + np.tanh(x / 2))  # never overflows
    return result
