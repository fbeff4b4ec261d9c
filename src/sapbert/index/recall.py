"""Measure the recall of an index against an exact search, while the index is built.

The exact search compares a sample of names with each chunk of vectors when it is encoded, in full precision;
later only the stored vectors are available. The sample is evenly spaced over the sorted names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.index.name_table import NameTable
from sapbert.index.vectors import evenly_spaced_rows
from sapbert.protocols import Encoder, Index

SAMPLE_SIZE = 200
"""Number of names in a sample."""
NEIGHBOURS = 10
MIN_CANDIDATES, MAX_CANDIDATES = 100, 6_400
MIN_GAIN = 0.001
"""Least increase of recall for which the number of candidates is doubled."""


class Neighbours(NamedTuple):
    """The nearest rows of each name of a sample, without the name itself."""

    scores: NDArray[np.float32]
    """Best first; -inf if there are fewer rows.  # (sample, NEIGHBOURS)"""
    rows: NDArray[np.int64]


class Sample(NamedTuple):
    """Names whose neighbours are searched."""

    rows: NDArray[np.int64]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, name_table: NameTable, encoder: Encoder) -> Sample:
        """Select and encode a sample of all names."""
        rows = evenly_spaced_rows(len(name_table), SAMPLE_SIZE)
        return cls(rows, encoder.encode(name_table.folded.take(rows)))

    def nearest(self, vectors: NDArray[np.float32], start: int) -> Neighbours:
        """Return the nearest of the vectors of the rows from `start` on."""
        scores = self.vectors @ vectors.T
        positions = self.rows - start
        inside = (positions >= 0) & (positions < len(vectors))
        scores[inside, positions[inside]] = -np.inf
        rows = np.broadcast_to(np.arange(start, start + len(vectors)), scores.shape)
        return _best(scores, rows)

    def recall(self, index: Index, truth: Neighbours) -> float:
        """Return the fraction of the true neighbours that `index` finds."""
        _, rows = index.search(self.vectors, NEIGHBOURS + 1)
        rows[rows == self.rows[:, np.newaxis]] = -1
        hits = (truth.rows[:, :, np.newaxis] == rows[:, np.newaxis, :]).any(axis=2)
        real = np.isfinite(truth.scores)
        return float(hits[real].mean()) if real.any() else 1.0


def merge_neighbours(parts: Sequence[Neighbours]) -> Neighbours:
    """Combine the neighbours found in all chunks."""
    scores, rows = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return _best(scores, rows)


def choose_candidates(recall_with: Callable[[int], float]) -> tuple[int, float]:
    """Double the number of candidates until recall hardly increases; return the number and its recall."""
    candidates = MIN_CANDIDATES
    recall = recall_with(candidates)
    while candidates < MAX_CANDIDATES and (more := recall_with(2 * candidates)) >= recall + MIN_GAIN:
        candidates, recall = 2 * candidates, more
    return candidates, recall


def _best(scores: NDArray[np.float32], rows: NDArray[np.int64]) -> Neighbours:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :NEIGHBOURS]
    return Neighbours(np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1))
