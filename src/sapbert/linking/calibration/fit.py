"""Fit a calibration on labelled mentions: the sparse weight, the ranker, the curve and a threshold.

Repeated mentions count each time, since they are as frequent in the text to be linked. Mentions whose concept
is not in the index are kept: every answer to them is wrong, and the confidence must account for them.

The curve is fitted on answers to mentions that the ranker was not fitted on: there is one ranker per fold for
that, and one of all mentions for use.
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
    Outcomes,
    ThresholdPoint,
    choose_threshold,
    fit,
    folds_of,
    reliability_report,
    threshold_points,
)
from sapbert.linking.fusion.examples import fit_for_index, labelled_requests
from sapbert.linking.fusion.fit import LabelledRequest
from sapbert.linking.fusion.ranker import FusionRanker
from sapbert.linking.hybrid import HybridSearch, ScoredRows, best_row_correct, best_weight
from sapbert.linking.linker import BATCH, Linker
from sapbert.linking.settings import CalibrateSettings, LinkSettings
from sapbert.mentions import LabelledMention, no_known_concept, resolve_concepts

_REPORTED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Thresholds in the report."""
_DEPTH = 20
"""Names per mention, by vector and by n-grams each, that are ranked to fit the weight."""


def calibrate(
    linker: Linker, labelled: Sequence[LabelledMention], settings: CalibrateSettings
) -> Calibration:
    """Fit a calibration of `linker`; its own calibration is not used, but its ranker and reranker are."""
    gold = _gold(linker.name_table, labelled)
    weight = 0.0
    weight_report: dict[str, Any] = {}
    search = linker.search
    if isinstance(search, HybridSearch):
        weight = search.weight
        if settings.sparse_weight is None:
            weight, weight_report = _fit_weight(linker, search, gold, settings)
        search = replace(search, weight=weight)
    linker = Linker(
        linker.encoder,
        search,
        linker.name_table,
        fingerprint=linker.fingerprint,
        ranker=linker.ranker,
        reranker=linker.reranker,
    )
    if settings.ranker:
        linker, outcomes = _fit_ranker(linker, gold, settings)
    else:
        outcomes = _outcomes(linker, gold, settings)
    fitted = fit(outcomes, settings.method)
    points = threshold_points(fitted.held_out, outcomes.correct, len(gold))
    best = None if settings.precision is None else choose_threshold(points, settings.precision)
    chosen = best if best is not None and best.precision >= (settings.precision or 0) else None
    return Calibration(
        index=linker.fingerprint,
        exact=settings.exact,
        sparse_weight=weight,
        method=fitted.method,
        curve=fitted.curve,
        threshold=None if chosen is None else chosen.threshold,
        ranker=_own_ranker(linker),
        reranker=None if linker.reranker is None else linker.reranker.fingerprint,
        report={
            "mentions": len(gold),
            "mentions without a concept of the index": sum(not mention.concept_ids for mention in gold),
            **weight_report,
            **reliability_report(outcomes, fitted.held_out),
            **_threshold_report(points, chosen),
            "highest precision": best._asdict() if best is not None and chosen is None else None,
        },
    )


def _gold(name_table: NameTable, labelled: Sequence[LabelledMention]) -> list[LabelledMention]:
    """Replace gold ids by those of the index, dropping unknown ones."""
    gold = resolve_concepts(labelled, name_table.resolve)
    if not any(mention.concept_ids for mention in gold):
        raise no_known_concept(labelled, "the index")
    return gold


def _own_ranker(linker: Linker) -> FusionRanker | None:
    """Return the ranker of a linker, which must be one that a file can hold."""
    if linker.ranker is None or isinstance(linker.ranker, FusionRanker):
        return linker.ranker
    raise TypeError(f"a calibration can store a FusionRanker, not a {type(linker.ranker).__name__}")


def _outcomes(linker: Linker, gold: Sequence[LabelledMention], settings: CalibrateSettings) -> Outcomes:
    texts = [mention.text for mention in gold]
    contexts = [mention.context for mention in gold]
    linked = linker.link(texts, settings=LinkSettings(k=2, exact=settings.exact), contexts=contexts)
    answered = [(mention, ranked) for mention, ranked in zip(gold, linked, strict=True) if ranked]
    scores = np.array([ranked[0].ranking_score for _, ranked in answered], np.float64)
    second = np.array(
        [ranked[1].ranking_score if len(ranked) > 1 else 0.0 for _, ranked in answered], np.float64
    )
    correct = np.array(
        [ranked[0].concept_id in mention.concept_ids for mention, ranked in answered], np.bool_
    )
    return Outcomes(scores, scores - second, correct, [mention.text for mention, _ in answered])


def _fit_ranker(
    linker: Linker, gold: Sequence[LabelledMention], settings: CalibrateSettings
) -> tuple[Linker, Outcomes]:
    """Return a linker with a ranker of all mentions, and the outcomes of each by a ranker of other folds."""
    mentions_of: dict[int, list[LabelledMention]] = {}
    for fold, mention in zip(folds_of([mention.text for mention in gold]).tolist(), gold, strict=True):
        mentions_of.setdefault(fold, []).append(mention)
    examples = {fold: labelled_requests(linker, mentions) for fold, mentions in mentions_of.items()}
    parts = []
    for fold, mentions in mentions_of.items():
        others = [each for other, group in examples.items() if other != fold for each in group]
        parts.append(_outcomes(_with_ranker(linker, others), mentions, settings))
    outcomes = Outcomes(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.margins for part in parts]),
        np.concatenate([part.correct for part in parts]),
        [text for part in parts for text in part.texts],
    )
    return _with_ranker(linker, [each for group in examples.values() for each in group]), outcomes


def _with_ranker(linker: Linker, examples: Sequence[LabelledRequest]) -> Linker:
    return Linker(
        linker.encoder,
        linker.search,
        linker.name_table,
        fingerprint=linker.fingerprint,
        ranker=fit_for_index(linker, examples),
        reranker=linker.reranker,
    )


def _fit_weight(
    linker: Linker, search: HybridSearch, gold: Sequence[LabelledMention], settings: CalibrateSettings
) -> tuple[float, dict[str, Any]]:
    """Fit the weight on mentions without an exact match; report the accuracy on held-out mentions."""
    rows = linker.name_table.rows_of([mention.text for mention in gold])
    searched = [mention for mention, row in zip(gold, rows, strict=True) if not (settings.exact and row >= 0)]
    if not searched:
        return 0.0, {}
    scored, correct = _scored_rows(linker, search, searched)
    weight, accuracy = best_weight(scored, correct)
    folds = folds_of([mention.text for mention in searched])
    held_out = np.zeros(len(searched), np.bool_)
    for fold in np.unique(folds):
        test, train = folds == fold, folds != fold
        fold_weight = best_weight(_select(scored, train), correct[train])[0] if train.any() else 0.0
        held_out[test] = best_row_correct(_select(scored, test), correct[test], fold_weight)
    if held_out.mean() <= accuracy[0.0]:
        weight = 0.0  # no gain on held-out mentions
    return weight, {
        "sparse weight": {
            "mentions": len(searched),
            "right by vectors alone": accuracy[0.0],
            "right by both": float(held_out.mean()),
            "right by weight": {str(each): share for each, share in accuracy.items()},
        }
    }


def _scored_rows(
    linker: Linker, search: HybridSearch, gold: Sequence[LabelledMention]
) -> tuple[ScoredRows, NDArray[np.bool_]]:
    """Return the rows found for mentions, and which of them are names of a right concept."""
    distinct = list(dict.fromkeys(mention.text for mention in gold))
    parts = []
    for start in range(0, len(distinct), BATCH):
        texts = distinct[start : start + BATCH]
        parts.append(search.scored_rows(texts, linker.encoder.encode(texts), _DEPTH))
    place_of = {text: place for place, text in enumerate(distinct)}
    places = [place_of[mention.text] for mention in gold]
    scored = ScoredRows(*(np.concatenate(arrays)[places] for arrays in zip(*parts, strict=True)))
    # If a name has several concepts, the linker ranks the first first; links are ordered by concept.
    name_table = linker.name_table
    first_links = name_table.link_offsets[np.maximum(scored.rows, 0)]
    concepts = name_table.link_concepts[first_links]  # (mentions, width)
    gold_concepts = [name_table.concepts_of(sorted(mention.concept_ids)) for mention in gold]
    correct = np.array([np.isin(row, right) for row, right in zip(concepts, gold_concepts, strict=True)])
    return scored, correct & (scored.rows >= 0)


def _select(scored: ScoredRows, mentions: NDArray[np.bool_]) -> ScoredRows:
    return ScoredRows(scored.rows[mentions], scored.dense[mentions], scored.sparse[mentions])


def _threshold_report(points: Sequence[ThresholdPoint], chosen: ThresholdPoint | None) -> dict[str, Any]:
    """Return precision and coverage at some thresholds, and at the chosen one."""
    steps = [next((point for point in points if point.threshold >= step), None) for step in _REPORTED]
    return {
        "thresholds": [
            {**point._asdict(), "threshold": step}
            for step, point in zip(_REPORTED, steps, strict=True)
            if point
        ],
        "chosen": None if chosen is None else chosen._asdict(),
    }
