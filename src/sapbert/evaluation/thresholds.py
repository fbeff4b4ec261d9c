"""Precision and coverage by score threshold, and the reliability of a fitted confidence.

NIL mentions count here, as in practice: any answer to one is wrong. A composite mention has the score and the
lead of its worst part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sapbert.errors import SapbertError
from sapbert.evaluation.run import Evaluation
from sapbert.linking.calibration.model import Outcomes, fit, reliability_report, threshold_points

_DECIMALS = 5


@dataclass(frozen=True, slots=True)
class ThresholdCurve:
    """Metrics if answers below a threshold become NIL; one entry per threshold.  # (thresholds,) all"""

    scores: NDArray[np.float64]
    """The thresholds, ascending."""
    precision: NDArray[np.float64]
    """Share of the remaining answers that are correct."""
    coverage: NDArray[np.float64]
    """Share of all mentions that have an answer."""
    accuracy: NDArray[np.float64]
    """Share of all mentions that are correct; a NIL mention is correct if it has no answer."""

    def lowest_reaching(self, precision: float) -> int | None:
        """Return the entry of the lowest threshold with at least this precision; None if there is none."""
        above = np.flatnonzero(self.precision >= precision)
        return int(above[0]) if len(above) else None


def threshold_curve(evaluation: Evaluation, dictionary: str) -> ThresholdCurve:
    """Return precision, coverage and accuracy at each threshold, with one dictionary."""
    results = evaluation.for_dictionary(dictionary)
    outcomes = calibration_outcomes(evaluation, dictionary)
    points = np.array(threshold_points(outcomes.scores, outcomes.correct, results.height))
    scores, precision, coverage, answers = points.T
    nil = results.filter(pl.col("gold") == "")["score"].cast(pl.Float64).round(_DECIMALS)
    # A mention without candidates is below every threshold.
    true_nil = np.searchsorted(nil.fill_null(-np.inf).sort().to_numpy(), scores)
    return ThresholdCurve(scores, precision, coverage, (precision * answers + true_nil) / results.height)


def reliability(evaluation: Evaluation, dictionary: str) -> Mapping[str, Any]:
    """Return the report of `sapbert calibrate`; confidence is measured on mentions held out of the fit."""
    outcomes = calibration_outcomes(evaluation, dictionary)
    return reliability_report(outcomes, fit(outcomes).held_out)


def calibration_outcomes(evaluation: Evaluation, dictionary: str) -> Outcomes:
    """Return score, lead and correctness of the best answer of each mention that has one."""
    key = ["mention", "part"]
    candidates = evaluation.candidates.filter(dictionary=dictionary)
    # The lead is over the best candidate of another concept; other names of the same concept do not compete.
    best = candidates.sort("position").group_by(key).agg(pl.first("score", "ids"))
    others = candidates.join(best, on=key, suffix="_best").filter(pl.col("ids") != pl.col("ids_best"))
    second = others.group_by(key).agg(second=pl.max("score"))
    leads = best.join(second, on=key, how="left").select(
        "mention", lead=pl.col("score") - pl.col("second").fill_null(0)
    )
    answered = (
        evaluation.for_dictionary(dictionary)
        .filter(pl.col("score").is_not_null())
        .join(leads.group_by("mention").agg(pl.min("lead")), on="mention", maintain_order="left")
    )
    if answered.is_empty():
        raise SapbertError(f"{dictionary}: no mention has a candidate, so there are no scores")
    # Scores of exact matches differ in their last bits; rounding keeps them at one threshold.
    rounded = answered.select(pl.col("score", "lead").cast(pl.Float64).round(_DECIMALS))
    scores, lead = (rounded[name].to_numpy() for name in ("score", "lead"))
    right = (answered["rank"] == 1).fill_null(value=False).to_numpy()
    return Outcomes(scores, lead, right, answered["text"].to_list())
