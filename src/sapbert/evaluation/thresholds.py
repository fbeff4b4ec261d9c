"""How far the scores of an evaluation can be trusted: what a threshold leaves, and what confidence keeps.

A NIL mention counts here, as it will when linking: any answer to it is wrong. Composite mentions have the
score and the lead of their worst part.
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
    """What is left when answers below a score are NIL: one entry a score, ascending.  # (scores,) all"""

    scores: NDArray[np.float64]
    precision: NDArray[np.float64]
    """The share of the answers left that is right."""
    coverage: NDArray[np.float64]
    """The share of all mentions that are answered."""
    accuracy: NDArray[np.float64]
    """The share of all mentions that are right, NIL ones by having no answer."""

    def lowest_reaching(self, precision: float) -> int | None:
        """The lowest entry with this precision; None where there is none."""
        above = np.flatnonzero(self.precision >= precision)
        return int(above[0]) if len(above) else None


def threshold_curve(evaluation: Evaluation, dictionary: str) -> ThresholdCurve:
    """Return what each threshold would leave of the answers with one dictionary."""
    results = evaluation.for_dictionary(dictionary)
    outcomes = calibration_outcomes(evaluation, dictionary)
    found = np.array(threshold_points(outcomes.scores, outcomes.correct, results.height))
    scores, precision, coverage, answers = found.T
    nil = results.filter(pl.col("gold") == "")["score"].cast(pl.Float64).round(_DECIMALS)
    # A mention without any candidate is below every threshold.
    unanswered = np.searchsorted(nil.fill_null(-np.inf).sort().to_numpy(), scores)
    return ThresholdCurve(scores, precision, coverage, (precision * answers + unanswered) / results.height)


def reliability(evaluation: Evaluation, dictionary: str) -> Mapping[str, Any]:
    """Return what `sapbert calibrate` reports; confidence is of mentions held out of the fit."""
    outcomes = calibration_outcomes(evaluation, dictionary)
    return reliability_report(outcomes, fit(outcomes).held_out)


def calibration_outcomes(evaluation: Evaluation, dictionary: str) -> Outcomes:
    """Return what became of the mentions that were answered."""
    places = ["mention", "part"]
    candidates = evaluation.candidates.filter(dictionary=dictionary)
    # The second is the next concept: further names of the first do not contest it.
    best = candidates.sort("position").group_by(places).agg(pl.first("score", "ids"))
    others = candidates.join(best, on=places, suffix="_best").filter(pl.col("ids") != pl.col("ids_best"))
    second = others.group_by(places).agg(second=pl.max("score"))
    leads = best.join(second, on=places, how="left").select(
        "mention", lead=pl.col("score") - pl.col("second").fill_null(0)
    )
    answered = (
        evaluation.for_dictionary(dictionary)
        .filter(pl.col("score").is_not_null())
        .join(leads.group_by("mention").agg(pl.min("lead")), on="mention", maintain_order="left")
    )
    if answered.is_empty():
        raise SapbertError(f"{dictionary}: no mention has an answer, so there are no scores to look at")
    # Exact matches differ in their last bits, which would part them by threshold.
    rounded = answered.select(pl.col("score", "lead").cast(pl.Float64).round(_DECIMALS))
    scores, lead = (rounded[name].to_numpy() for name in ("score", "lead"))
    right = (answered["rank"] == 1).fill_null(value=False).to_numpy()
    return Outcomes(scores, lead, right, answered["text"].to_list())
