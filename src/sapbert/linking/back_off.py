"""Back off to an ancestor if no candidate is sure enough.

The confidences of the candidates below an ancestor add up: if a mention is one of two kinds of migraine, it
is a migraine. The closest ancestor of the best candidate that reaches the required confidence becomes the
answer, marked `ancestor`; the candidates follow it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sapbert.index.name_table import NameTable
from sapbert.linking.candidate import Candidate

BACK_OFF_DEPTH = 20
"""Candidates whose confidences are added up."""
MAX_STEPS = 3
"""Most steps from the best candidate to the answer; what is further up says little."""


def back_off(
    candidates: Sequence[Candidate],
    name_table: NameTable,
    required: float,
    allowed: NDArray[np.bool_] | None = None,
) -> list[Candidate]:
    """Put the closest ancestor with the `required` confidence first, unless the best candidate has it.

    `allowed` says which concepts may be an answer. If no ancestor qualifies, nothing changes.
    """
    if not candidates or (candidates[0].confidence or 0.0) >= required:
        return list(candidates)
    numbers = name_table.concepts_of([each.concept_id for each in candidates]).tolist()
    shares: defaultdict[int, float] = defaultdict(float)
    for number, candidate in zip(numbers, candidates, strict=True):
        for ancestor in name_table.hierarchy.ancestor_steps(number):
            shares[ancestor] += candidate.confidence or 0.0
    above = name_table.hierarchy.ancestor_steps(numbers[0])
    sure = [
        (steps, -shares[ancestor], ancestor)
        for ancestor, steps in above.items()
        if 0 < steps <= MAX_STEPS and shares[ancestor] >= required
        if allowed is None or allowed[ancestor]
    ]
    if not sure:
        return list(candidates)
    _, share, number = min(sure)
    answer = replace(
        candidates[0],
        concept_id=name_table.concepts[number],
        preferred_name=name_table.preferred[number],
        confidence=round(min(-share, 1.0), 6),
        matched_by="ancestor",
        definition=name_table.definition(number),
    )
    return [answer, *(each for each in candidates if each.concept_id != answer.concept_id)]
