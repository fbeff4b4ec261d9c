"""Fit what only labelled mentions can tell: the weight of spelling, confidence, a threshold.

A mention counts as often as it comes, because linking will meet it as often. One whose concept the index does
not have is not left out: whatever it is answered is wrong, and confidence has to know that this happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapbert.index.name_table import NameTable
from sapbert.linking.calibration.file import Calibration
from sapbert.linking.calibration.model import (
    Cut,
    Outcomes,
    choose_cut,
    cuts,
    fit,
    folds_of,
    reliability_report,
)
from sapbert.linking.hybrid import Found, HybridSearch, best_are_right, best_weight
from sapbert.linking.linker import BATCH, Linker
from sapbert.linking.settings import CalibrateSettings, LinkSettings
from sapbert.mentions import LabelledMention, no_known_concept, resolve_concepts

_STEPS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Thresholds that are reported."""
_DEPTH = 20
"""Names by vector and by spelling among which a weight chooses."""


def calibrate(
    linker: Linker, labelled: Sequence[LabelledMention], settings: CalibrateSettings
) -> Calibration:
    """Fit a calibration of `linker`, which has none."""
    gold = _gold(linker.name_table, labelled)
    weight = 0.0
    weighed: dict[str, Any] = {}
    if isinstance(linker.search, HybridSearch):
        weight = linker.search.weight
        if settings.sparse_weight is None:
            weight, weighed = _fit_weight(linker, linker.search, gold, settings)
        search = replace(linker.search, weight=weight)
        linker = Linker(linker.encoder, search, linker.name_table, fingerprint=linker.fingerprint)
    outcomes = _outcomes(linker, gold, settings)
    fitted = fit(outcomes, settings.method)
    every = cuts(fitted.held_out, outcomes.right, len(gold))
    cut = None if settings.precision is None else choose_cut(every, settings.precision)
    return Calibration(
        index=linker.fingerprint,
        exact=settings.exact,
        sparse_weight=weight,
        method=fitted.method,
        curve=fitted.curve,
        threshold=None if cut is None else cut.threshold,
        report={
            "mentions": len(gold),
            "mentions without a concept of the index": sum(not mention.concept_ids for mention in gold),
            **weighed,
            **reliability_report(outcomes, fitted.held_out),
            **_cuts(every, cut),
        },
    )


def _gold(name_table: NameTable, labelled: Sequence[LabelledMention]) -> list[LabelledMention]:
    """Replace gold ids by those of the index, dropping unknown ones."""
    gold = resolve_concepts(labelled, name_table.resolve)
    if not any(mention.concept_ids for mention in gold):
        raise no_known_concept(labelled, "the index")
    return gold


def _outcomes(linker: Linker, gold: Sequence[LabelledMention], settings: CalibrateSettings) -> Outcomes:
    answers = linker.link(
        [mention.text for mention in gold], k=2, settings=LinkSettings(exact=settings.exact)
    )
    answered = [(mention, found) for mention, found in zip(gold, answers, strict=True) if found]
    scores = np.array([found[0].score for _, found in answered], np.float64)
    second = np.array([found[1].score if len(found) > 1 else 0.0 for _, found in answered], np.float64)
    right = np.array([found[0].concept_id in mention.concept_ids for mention, found in answered], np.bool_)
    return Outcomes(scores, scores - second, right, [mention.text for mention, _ in answered])


def _fit_weight(
    linker: Linker, search: HybridSearch, gold: Sequence[LabelledMention], settings: CalibrateSettings
) -> tuple[float, dict[str, Any]]:
    """Find the weight for mentions that no exact name answers, and what it gains on mentions held out."""
    rows = linker.name_table.rows_of([mention.text for mention in gold])
    asked = [mention for mention, row in zip(gold, rows, strict=True) if not (settings.exact and row >= 0)]
    if not asked:
        return 0.0, {}
    found, right = _find(linker, search, asked)
    weight, shares = best_weight(found, right)
    folds = folds_of([mention.text for mention in asked])
    held_out = np.zeros(len(asked), np.bool_)
    for fold in np.unique(folds):
        out, others = folds == fold, folds != fold
        chosen = best_weight(_some(found, others), right[others])[0] if others.any() else 0.0
        held_out[out] = best_are_right(_some(found, out), right[out], chosen)
    if held_out.mean() <= shares[0.0]:
        weight = 0.0  # what looked like a gain was luck
    return weight, {
        "sparse weight": {
            "mentions": len(asked),
            "right by vectors alone": shares[0.0],
            "right by both": float(held_out.mean()),
            "right by weight": {str(own): share for own, share in shares.items()},
        }
    }


def _find(
    linker: Linker, search: HybridSearch, gold: Sequence[LabelledMention]
) -> tuple[Found, NDArray[np.bool_]]:
    """Return the rows that may answer mentions, and which of them are right."""
    distinct = list(dict.fromkeys(mention.text for mention in gold))
    parts = []
    for start in range(0, len(distinct), BATCH):
        texts = distinct[start : start + BATCH]
        parts.append(search.find(texts, linker.encoder.encode(texts), _DEPTH))
    place_of = {text: place for place, text in enumerate(distinct)}
    places = [place_of[mention.text] for mention in gold]
    found = Found(*(np.concatenate(arrays)[places] for arrays in zip(*parts, strict=True)))
    # Of a name of several concepts the linker answers the first, and links are in order of concepts.
    name_table = linker.name_table
    answers = name_table.link_concepts[
        name_table.link_offsets[np.maximum(found.rows, 0)]
    ]  # (mentions, width)
    numbers = [name_table.concepts_of(sorted(mention.concept_ids)) for mention in gold]
    right = np.array([np.isin(own, wanted) for own, wanted in zip(answers, numbers, strict=True)])
    return found, right & (found.rows >= 0)


def _some(found: Found, chosen: NDArray[np.bool_]) -> Found:
    return Found(found.rows[chosen], found.dense[chosen], found.sparse[chosen])


def _cuts(every: Sequence[Cut], chosen: Cut | None) -> dict[str, Any]:
    """What some thresholds leave, and the one that was chosen."""
    steps = [next((cut for cut in every if cut.threshold >= step), None) for step in _STEPS]
    return {
        "thresholds": [
            {**cut._asdict(), "threshold": step} for step, cut in zip(_STEPS, steps, strict=True) if cut
        ],
        "chosen": None if chosen is None else chosen._asdict(),
    }
