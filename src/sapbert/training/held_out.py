"""Hold out concepts, and measure how well an encoder retrieves their synonyms.

The concepts are selected by the seed, and none of their pairs is trained on. Each provides two names, a query
and a target. A query is correct if its nearest target, among those of all held-out concepts, belongs to the
same concept. This takes seconds and correlates with linking accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapbert.pairs.artifact import Pairs
from sapbert.protocols import Encoder

_QUERIES_PER_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Split:
    """Numbers of the pairs for training and of those held out for evaluation."""

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


def split_pairs(pairs: Pairs, *, held_out_concepts: int, seed: int) -> Split:
    """Hold out all pairs of some concepts, at most a fifth of the concepts with pairs."""
    owners = pairs.concepts[pairs.pairs[:, 0]]
    if not held_out_concepts:
        return Split(np.arange(len(pairs)), np.empty(0, np.int64))
    # Boolean tables over all concepts: to sort the concepts of twelve million pairs would take seconds.
    paired = np.zeros(len(pairs.concept_ids), np.bool_)
    paired[owners] = True
    concepts = np.flatnonzero(paired)
    count = min(held_out_concepts, len(concepts) // 5)
    chosen = np.zeros_like(paired)
    chosen[np.random.default_rng(seed).choice(concepts, count, replace=False)] = True
    held = chosen[owners]
    return Split(np.flatnonzero(~held), np.flatnonzero(held))


def retrieval_accuracy(pairs: Pairs, held_out: NDArray[np.int64], encoder: Encoder) -> float:
    """Return the fraction of held-out concepts whose query retrieves its target first."""
    owners = pairs.concepts[pairs.pairs[held_out, 0]]
    _, first_rows = np.unique(owners, return_index=True)
    query_names, target_names = pairs.pairs[held_out[first_rows]].T
    queries = encoder.encode(pairs.names.take(query_names))  # (concepts, dim)
    targets = encoder.encode(pairs.names.take(target_names))  # (concepts, dim)
    correct = 0
    for start in range(0, len(queries), _QUERIES_PER_BLOCK):
        best = (queries[start : start + _QUERIES_PER_BLOCK] @ targets.T).argmax(axis=1)
        correct += int((best == np.arange(start, start + len(best))).sum())
    return correct / len(queries)


def retrieval(pairs: Pairs, held_out: NDArray[np.int64], encoder: Encoder) -> dict[str, float]:
    """Return the metric `retrieval`; nothing if no pair is held out."""
    return {"retrieval": retrieval_accuracy(pairs, held_out, encoder)} if len(held_out) else {}
