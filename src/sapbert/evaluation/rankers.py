"""Rankers to evaluate: each ranks the names of a dictionary for a mention.

Baselines are included because they are hard to beat: with training mentions in the dictionary, exact matching
alone links three of four NCBI mentions. Scores of different rankers are not comparable, only their order is.
Equal scores are ordered by row, so that every run gives the same results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import Texts
from sapbert.errors import ConfigError, needing
from sapbert.index.flat import FlatIndex
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse
from sapbert.index.vectors import Vectors, no_results
from sapbert.linking.hybrid import HybridSearch
from sapbert.protocols import Encoder

Ranked = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores, best first, and rows of the dictionary, padded with -1.  # (mentions, k) both"""
_HYBRID_OVERSAMPLING = 8
"""The hybrid ranker searches this many times k names, because it merges the results of two searches."""
_SCORES_PER_BLOCK = 16 << 20
"""Scores computed at a time: 64 MB."""


class Ranker(Protocol):
    """Ranks the names of one dictionary."""

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k best rows per mention; names and mentions are folded."""
        ...


RankerFactory = Callable[[Sequence[str]], Ranker]
"""Creates a ranker for the names of a dictionary."""


class ExactRanker:
    """Returns the name that is equal to the mention, if any."""

    def __init__(self, names: Sequence[str]) -> None:
        self._rows = {name: row for row, name in enumerate(names)}

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return at most one row per mention."""
        scores, rows = no_results(len(mentions), k)
        rows[:, 0] = [self._rows.get(mention, -1) for mention in mentions]
        scores[rows >= 0] = 1
        return scores, rows


class ScoringRanker:
    """Ranks by a function that scores mentions against all names."""

    def __init__(self, score: Callable[[Sequence[str]], NDArray[np.float32]], names: int) -> None:
        """Rank by `score`, which returns a matrix (mentions, names); scores above zero are candidates."""
        self._score = score
        self._names = names

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k best rows per mention."""
        scores, rows = no_results(len(mentions), k)
        step = max(_SCORES_PER_BLOCK // max(self._names, 1), 1)
        for start in range(0, len(mentions), step):
            block = self._score(mentions[start : start + step])  # (block, names)
            best = top_k_columns(block, k)
            width = best.shape[1]
            best_scores = np.take_along_axis(block, best, axis=1)
            stop = start + len(best)
            rows[start:stop, :width] = np.where(best_scores > 0, best, -1)
            scores[start:stop, :width] = np.where(best_scores > 0, best_scores, -np.inf)
        return scores, rows


def top_k_columns(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the k best scores per row, best first; equal scores are ordered by column.

    # (rows, min(k, columns))
    """
    columns = scores.shape[1]
    if columns == 0:
        return np.empty((len(scores), 0), np.int64)
    k = min(k, columns)
    kth_best = np.partition(scores, columns - k, axis=1)[:, columns - k, np.newaxis]
    best = np.empty((len(scores), k), np.int64)
    for row, is_near in enumerate(scores >= kth_best):
        near = np.flatnonzero(is_near)
        best[row] = near[np.argsort(-scores[row, near], kind="stable")[:k]]
    return best


class EncoderRanker:
    """Ranks by cosine similarity of vectors, with exact search."""

    def __init__(self, names: Sequence[str], encoder: Encoder) -> None:
        self._encoder = encoder
        self._index = FlatIndex(Vectors(encoder.encode(names), None))

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k nearest rows per mention."""
        return self._index.search(self._encoder.encode(mentions), k)


class HybridRanker:
    """Ranks by dense and n-gram score combined, as `sapbert link` does with a hybrid index."""

    def __init__(self, names: Sequence[str], encoder: Encoder, weight: float) -> None:
        self._names = names
        self._encoder = encoder
        self._vectors = Vectors(encoder.encode(names), None)
        self._weight = weight

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k best rows per mention by combined score."""
        with _ngram_index(self._names) as sparse:
            search = HybridSearch(FlatIndex(self._vectors), self._vectors, sparse, self._weight)
            # The best name by combined score need not be among the first k by either score.
            scores, rows = search.search(mentions, self._encoder.encode(mentions), _HYBRID_OVERSAMPLING * k)
        return scores[:, :k], rows[:, :k]


class TfidfRanker:
    """Ranks by cosine similarity of tf-idf weighted character 1- and 2-grams, like BioSyn's sparse score."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k most similar rows per mention."""
        with _ngram_index(self._names) as sparse:
            return sparse.search(mentions, k)


def bm25_ranker(names: Sequence[str], *, saturation: float = 1.2, length_weight: float = 0.75) -> Ranker:
    """Rank by BM25 over words: by how many words a name shares with a mention, and how rare they are."""
    with needing("eval"):
        from scipy import sparse
    words = {word: number for number, word in enumerate(dict.fromkeys(w for n in names for w in n.split()))}
    counts = _word_counts(names, words, sparse)  # (names, words)
    documents = np.bincount(counts.indices, minlength=len(words))
    rarity = np.log1p((len(names) - documents + 0.5) / (documents + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    norm = saturation * (1 - length_weight + length_weight * lengths / max(lengths.mean(), 1e-9))
    per_entry = np.repeat(norm, np.diff(counts.indptr))
    counts.data = counts.data * (saturation + 1) / (counts.data + per_entry) * rarity[counts.indices]
    weights = counts.T.tocsr()

    def score(mentions: Sequence[str]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = (
            (_word_counts(mentions, words, sparse) @ weights).toarray().astype(np.float32)
        )
        return scores

    return ScoringRanker(score, len(names))


def levenshtein_ranker(names: Sequence[str]) -> Ranker:
    """Rank by Levenshtein distance, normalized by the length of the longer text."""
    with needing("eval"):
        from rapidfuzz import distance, process

    def score(mentions: Sequence[str]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = process.cdist(
            mentions, names, scorer=distance.Levenshtein.normalized_similarity, workers=-1, dtype=np.float32
        )
        return scores

    return ScoringRanker(score, len(names))


BASELINES: dict[str, RankerFactory] = {
    "exact": ExactRanker,
    "tfidf": TfidfRanker,
    "bm25": bm25_ranker,
    "edit": levenshtein_ranker,
}


def baseline(name: str) -> RankerFactory:
    """Return the baseline called `name`."""
    if name not in BASELINES:
        raise ConfigError(f"unknown baseline {name!r}; choose from {', '.join(BASELINES)}")
    return BASELINES[name]


@contextmanager
def _ngram_index(names: Sequence[str]) -> Iterator[SparseIndex]:
    """Provide a temporary n-gram index of `names`."""
    # The index is on disk. Windows cannot remove files that are memory-mapped, so errors are ignored.
    with TemporaryDirectory(prefix="sapbert-", ignore_cleanup_errors=True) as folder:
        write_sparse(_texts(names), Path(folder), SparseSettings())
        yield SparseIndex.open(Path(folder))


def _texts(names: Sequence[str]) -> Texts:
    encoded = [name.encode(errors="replace") for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return Texts(np.frombuffer(b"".join(encoded), np.uint8), offsets)


def _word_counts(texts: Sequence[str], words: dict[str, int], sparse: Any) -> Any:
    """Count of each of `words` in each text.  # sparse (texts, words)"""
    offsets: list[int] = [0]
    columns: list[int] = []
    counts: list[int] = []
    for text in texts:
        text_counts = Counter(words[word] for word in text.split() if word in words)
        columns.extend(text_counts.keys())
        counts.extend(text_counts.values())
        offsets.append(len(columns))
    arrays = (np.array(counts, np.float64), np.array(columns, np.int64), np.array(offsets, np.int64))
    return sparse.csr_matrix(arrays, shape=(len(texts), len(words)))
