"""Vectors and spelling together: the best names by either, judged by both.

The rows of a mention are the union of the nearest by vector and the nearest by n-grams; each then has both
cosines, and its score is (dense + weight x sparse) / (1 + weight). Dividing changes no order but keeps scores
where thresholds and exact names expect them: at most 1. A row that neither search puts among its best is not
considered, as in BioSyn.
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

WEIGHTS = tuple(number / 20 for number in range(41))
"""The weights that are tried: 0, 0.05, … 2."""


class Found(NamedTuple):
    """Rows that may answer some mentions, with both cosines."""

    rows: NDArray[np.int64]
    """Each row once a mention; -1 where there are fewer.  # (mentions, width)"""
    dense: NDArray[np.float32]
    sparse: NDArray[np.float32]

    def scores(self, weight: float) -> NDArray[np.float32]:
        """Return the score of each row; -inf where there is none.  # (mentions, width)"""
        scores = ((self.dense + weight * self.sparse) / (1 + weight)).astype(np.float32)
        return np.where(self.rows >= 0, scores, np.float32(-np.inf))


@dataclass(frozen=True, slots=True)
class HybridSearch:
    """Finds names by vector and spelling; fits `search.NameSearch`."""

    index: Index
    vectors: Vectors
    """Those of `index`."""
    sparse: SparseIndex
    weight: float
    """What a cosine of spelling counts beside one of vectors; 0 orders as vectors do."""
    matched_by: MatchedBy = "hybrid"

    def __post_init__(self) -> None:
        if not 0 <= self.weight < np.inf:
            raise ConfigError(f"sparse weight is a number from 0 on, got {self.weight}")

    def search(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores, best first, and rows, as `search.NameSearch` says."""
        found = self.find(texts, vectors, k, allowed=allowed)
        every = found.scores(self.weight)
        scores, rows = no_results(len(texts), k)
        for at, (own_scores, own_rows) in enumerate(zip(every, found.rows, strict=True)):
            order = np.lexsort((own_rows, -own_scores))
            order = order[own_rows[order] >= 0][:k]
            scores[at, : len(order)], rows[at, : len(order)] = own_scores[order], own_rows[order]
        return scores, rows

    def find(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Found:
        """Return the k nearest rows by vector, the k nearest by spelling, and both cosines of them all."""
        _, by_vector = self.index.search(vectors, k, allowed=allowed)
        _, by_spelling = self.sparse.search(texts, k, allowed=allowed)
        rows = np.sort(np.concatenate([by_vector, by_spelling], axis=1), axis=1)  # (mentions, 2k)
        rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = -1
        dense = np.zeros(rows.shape, np.float32)
        for own, vector, scores in zip(rows, vectors, dense, strict=True):
            there = own >= 0
            # As `Vectors.rank` does it, so that a row's cosine is the same however it was found.
            scores[there] = (self.vectors.floats(own[there]) * vector).sum(axis=1)
        return Found(rows, dense, self.sparse.compare(texts, rows))


def open_hybrid(index: Index, folder: Path, weight: float) -> HybridSearch:
    """Open what stands beside `index` in the artifact `folder`."""
    if not (folder / SPARSE).is_dir():
        raise ConfigError(f"{folder} knows no spelling: make it with `sapbert index --hybrid`")
    return HybridSearch(index, Vectors.open(folder), SparseIndex.open(folder / SPARSE), weight)


def best_are_right(found: Found, right: NDArray[np.bool_], weight: float) -> NDArray[np.bool_]:
    """Say of each mention whether its best row is right.  # right: (mentions, width)"""
    # Rows are in order, so of equal scores the lower row wins here as in a search.
    best = np.argmax(found.scores(weight), axis=1)
    answers: NDArray[np.bool_] = right[np.arange(len(best)), best]
    return answers


def best_weight(found: Found, right: NDArray[np.bool_]) -> tuple[float, dict[float, float]]:
    """Return the weight with which the best row is right most often, the least of several, and all shares.

    `right` says of each row whether it names what the mention means.  # (mentions, width)
    """
    shares = {weight: float(best_are_right(found, right, weight).mean()) for weight in WEIGHTS}
    return max(WEIGHTS, key=lambda weight: (shares[weight], -weight)), shares
