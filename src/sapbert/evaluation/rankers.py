"""What can be measured: anything that ranks the names of a dictionary for a mention.

Baselines stand beside encoders because they are hard to beat: with training mentions in the dictionary, an
exact match alone answers three mentions of NCBI in four. Scores of different rankers are not comparable, only
their order is; equal scores are in order of rows, so that every run gives the same figures.
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
from sapbert.errors import ConfigError, MissingExtraError
from sapbert.index.flat import FlatIndex
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse
from sapbert.index.vectors import Vectors, no_results
from sapbert.linking.hybrid import HybridSearch
from sapbert.protocols import Encoder

Ranked = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores, best first, and rows of the dictionary, -1 where there are fewer.  # (mentions, k) both"""
_DEEPER = 8
"""How much deeper than asked for each of two searches looks whose scores are joined."""
_CELLS = 16 << 20
"""Scores held at a time: 64 MB."""


class Ranker(Protocol):
    """Ranks the names of one dictionary."""

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k best rows of each mention; names and mentions are folded."""
        ...


RankerFactory = Callable[[Sequence[str]], Ranker]
"""Makes a ranker of the names of a dictionary."""


class ExactRanker:
    """Finds the name that is the mention, or nothing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._rows = {name: row for row, name in enumerate(names)}

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the one row of each mention, or none."""
        scores, rows = no_results(len(mentions), k)
        rows[:, 0] = [self._rows.get(mention, -1) for mention in mentions]
        scores[rows >= 0] = 1
        return scores, rows


class ScoringRanker:
    """Ranks by a function from some mentions to their scores with all names."""

    def __init__(self, score: Callable[[Sequence[str]], NDArray[np.float32]], names: int) -> None:
        """Rank by `score`, which gives a matrix (mentions, names); zero or less is no candidate."""
        self._score = score
        self._names = names

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k best rows of each mention."""
        scores, rows = no_results(len(mentions), k)
        step = max(_CELLS // max(self._names, 1), 1)
        for start in range(0, len(mentions), step):
            block = self._score(mentions[start : start + step])  # (block, names)
            best = top_k_columns(block, k)
            width = best.shape[1]
            own = np.take_along_axis(block, best, axis=1)
            stop = start + len(best)
            rows[start:stop, :width] = np.where(own > 0, best, -1)
            scores[start:stop, :width] = np.where(own > 0, own, -np.inf)
        return scores, rows


def top_k_columns(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the k best scores of each row, best first; of equal scores the lower column comes first.

    # (rows, min(k, columns))
    """
    columns = scores.shape[1]
    if columns == 0:
        return np.empty((len(scores), 0), np.int64)
    k = min(k, columns)
    floor = np.partition(scores, columns - k, axis=1)[:, columns - k, np.newaxis]
    best = np.empty((len(scores), k), np.int64)
    for row, above in enumerate(scores >= floor):
        near = np.flatnonzero(above)
        best[row] = near[np.argsort(-scores[row, near], kind="stable")[:k]]
    return best


class EncoderRanker:
    """Ranks by the cosine of vectors, exactly."""

    def __init__(self, names: Sequence[str], encoder: Encoder) -> None:
        self._encoder = encoder
        self._index = FlatIndex(Vectors(encoder.encode(names), None))

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k nearest rows of each mention."""
        return self._index.search(self._encoder.encode(mentions), k)


class HybridRanker:
    """Ranks by vectors and spelling together, as `sapbert link` does in a hybrid index."""

    def __init__(self, names: Sequence[str], encoder: Encoder, weight: float) -> None:
        self._names = names
        self._encoder = encoder
        self._vectors = Vectors(encoder.encode(names), None)
        self._weight = weight

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k best rows of each mention, of those near by either."""
        with _spelling(self._names) as sparse:
            search = HybridSearch(FlatIndex(self._vectors), self._vectors, sparse, self._weight)
            # A name may be good enough by both and among the first by neither.
            scores, rows = search.search(mentions, self._encoder.encode(mentions), _DEEPER * k)
        return scores[:, :k], rows[:, :k]


class TfidfRanker:
    """Ranks by the cosine of character 1- and 2-grams weighed by tf-idf, as BioSyn does before it learns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def rank(self, mentions: Sequence[str], k: int) -> Ranked:
        """Return the k most alike rows of each mention."""
        with _spelling(self._names) as sparse:
            return sparse.search(mentions, k)


def bm25_ranker(names: Sequence[str], *, saturation: float = 1.2, length_weight: float = 0.75) -> Ranker:
    """Rank by BM25 over words: how many and how rare the words are that a name shares with a mention."""
    sparse = _require("scipy.sparse", "eval")
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
    """Rank by Levenshtein distance, as a share of the longer text."""
    process = _require("rapidfuzz.process", "eval")
    distance = _require("rapidfuzz.distance", "eval")

    def score(mentions: Sequence[str]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = process.cdist(
            mentions, names, scorer=distance.Levenshtein.normalized_similarity, workers=-1, dtype=np.float32
        )
        return found

    return ScoringRanker(score, len(names))


BASELINES: dict[str, RankerFactory] = {
    "exact": ExactRanker,
    "tfidf": TfidfRanker,
    "bm25": bm25_ranker,
    "edit": levenshtein_ranker,
}


def baseline(name: str) -> RankerFactory:
    """Return a baseline by its name."""
    if name not in BASELINES:
        raise ConfigError(f"no baseline {name!r}; there are {', '.join(BASELINES)}")
    return BASELINES[name]


@contextmanager
def _spelling(names: Sequence[str]) -> Iterator[SparseIndex]:
    """Index names by character n-grams for a while."""
    # The index lives on disk; where files that are mapped cannot be removed, they stay a while.
    with TemporaryDirectory(prefix="sapbert-", ignore_cleanup_errors=True) as folder:
        write_sparse(_texts(names), Path(folder), SparseSettings())
        yield SparseIndex.open(Path(folder))


def _texts(names: Sequence[str]) -> Texts:
    encoded = [name.encode(errors="replace") for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return Texts(np.frombuffer(b"".join(encoded), np.uint8), offsets)


def _word_counts(texts: Sequence[str], words: dict[str, int], sparse: Any) -> Any:
    """How often each text has each of `words`.  # sparse (texts, words)"""
    offsets: list[int] = [0]
    columns: list[int] = []
    counts: list[int] = []
    for text in texts:
        own = Counter(words[word] for word in text.split() if word in words)
        columns.extend(own.keys())
        counts.extend(own.values())
        offsets.append(len(columns))
    arrays = (np.array(counts, np.float64), np.array(columns, np.int64), np.array(offsets, np.int64))
    return sparse.csr_matrix(arrays, shape=(len(texts), len(words)))


def _require(module: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], extra) from error
