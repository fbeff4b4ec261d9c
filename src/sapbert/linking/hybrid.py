"""Hybrid search: names by vectors (dense) and by character n-grams (sparse).

The rows of a mention are the union of the nearest by vector and the nearest by n-grams. Each gets both
cosines, and its score is (dense + weight x sparse) / (1 + weight). The division does not change the order; it
keeps scores at most 1, which thresholds and exact matches rely on. As in BioSyn, a row that is among the best
of neither search is not considered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ConfigError
from sapbert.index.sparse import SPARSE, SparseIndex
from sapbert.index.vectors import Vectors, no_results
from sapbert.linking.candidate import MatchedBy
from sapbert.protocols import Index

WEIGHT_GRID = tuple(number / 20 for number in range(41))
"""Weights tried by `best_weight`: 0, 0.05, … 2."""


class ScoredRows(NamedTuple):
    """Rows found for some mentions, with their dense and sparse cosines; all (mentions, width)."""

    rows: NDArray[np.int64]
    """Distinct rows per mention, in ascending order; -1 if there are fewer."""
    dense: NDArray[np.float32]
    sparse: NDArray[np.float32]

    def scores(self, weight: float) -> NDArray[np.float32]:
        """Return the combined score of each row; -inf for row -1.  # (mentions, width)"""
        scores = ((self.dense + weight * self.sparse) / (1 + weight)).astype(np.float32)
        return np.where(self.rows >= 0, scores, np.float32(-np.inf))


@dataclass(frozen=True, slots=True)
class HybridSearch:
    """Finds names by vectors and n-grams; implements `search.NameSearch`."""

    index: Index
    vectors: Vectors
    """The vectors of `index`."""
    sparse: SparseIndex
    weight: float
    """Weight of the sparse score relative to the dense score; 0 ranks by vectors only."""
    matched_by: MatchedBy = "hybrid"

    def __post_init__(self) -> None:
        if not 0 <= self.weight < np.inf:
            raise ConfigError(f"sparse weight is a finite number of at least 0, got {self.weight}")

    def search(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores, best first, and rows; see `search.NameSearch`."""
        scored = self.scored_rows(texts, vectors, k, allowed=allowed)
        combined = scored.scores(self.weight)
        scores, rows = no_results(len(texts), k)
        for mention, (row_scores, row_numbers) in enumerate(zip(combined, scored.rows, strict=True)):
            order = np.lexsort((row_numbers, -row_scores))
            order = order[row_numbers[order] >= 0][:k]
            scores[mention, : len(order)] = row_scores[order]
            rows[mention, : len(order)] = row_numbers[order]
        return scores, rows

    def scored_rows(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> ScoredRows:
        """Return the k nearest rows by vector and the k nearest by n-grams, with both cosines of each."""
        _, by_vector = self.index.search(vectors, k, allowed=allowed)
        _, by_ngrams = self.sparse.search(texts, k, allowed=allowed)
        rows = np.sort(np.concatenate([by_vector, by_ngrams], axis=1), axis=1)  # (mentions, 2k)
        rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = -1
        dense = np.zeros(rows.shape, np.float32)
        for row_numbers, vector, scores in zip(rows, vectors, dense, strict=True):
            valid = row_numbers >= 0
            # Computed as in `Vectors.rank`: a row has the same cosine whichever search found it.
            scores[valid] = (self.vectors.floats(row_numbers[valid]) * vector).sum(axis=1)
        return ScoredRows(rows, dense, self.sparse.compare(texts, rows))


def open_hybrid(index: Index, folder: Path, weight: float) -> HybridSearch:
    """Open the n-grams and vectors of `index`, which was opened from `folder`."""
    require_ngrams(folder)
    return HybridSearch(index, Vectors.open(folder), SparseIndex.open(folder / SPARSE), weight)


def require_ngrams(folder: Path) -> None:
    """Raise `ConfigError` if the index in `folder` has no n-grams."""
    if not (folder / SPARSE).is_dir():
        raise ConfigError("the index has no n-grams; build one with `sapbert index --hybrid`")


def best_row_correct(scored: ScoredRows, correct: NDArray[np.bool_], weight: float) -> NDArray[np.bool_]:
    """Return for each mention whether its best row is correct.  # correct: (mentions, width)"""
    # Rows are in ascending order, so of equal scores the lower row wins, as in a search.
    best = np.argmax(scored.scores(weight), axis=1)
    result: NDArray[np.bool_] = correct[np.arange(len(best)), best]
    return result


def best_weight(scored: ScoredRows, correct: NDArray[np.bool_]) -> tuple[float, dict[float, float]]:
    """Return the weight with the highest accuracy (the lowest if several), and the accuracy of each weight.

    `correct` is whether a row is a name of the right concept.  # (mentions, width)
    """
    accuracy = {weight: float(best_row_correct(scored, correct, weight).mean()) for weight in WEIGHT_GRID}
    return max(WEIGHT_GRID, key=lambda weight: (accuracy[weight], -weight)), accuracy
