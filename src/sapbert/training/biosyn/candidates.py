"""Which names each mention learns to tell apart: some by spelling, the rest by the vectors of now.

As in BioSyn, of k candidates the first are the nearest by character n-grams, which never change, and the
nearest by vector fill up what is left, without repeats. Both come from searches that scan names in blocks and
keep the best, and vectors lie on disk: no matrix of mentions by names, which took the original 192 GB on
MedMentions. Up to a million names are compared exactly: to encode a name costs a thousand times more than to
compare it with some thousand mentions. Beyond, codes find them and 8-bit vectors decide (`index.ann`).

A name that is the mention itself is no candidate: linking finds it by its letters. So training mentions may
be names of the vocabulary too, as they are in the dictionaries of BioSyn's protocol, and each learns from the
others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.index.flat import FlatIndex
from sapbert.index.settings import Precision
from sapbert.index.sparse import SparseIndex, SparseSettings, write_sparse
from sapbert.index.vectors import Vectors, VectorWriter, quantize
from sapbert.protocols import Encoder, Index
from sapbert.training.biosyn.dataset import BiosynDataset

EXACT = 1_000_000
"""Names up to which all vectors are compared."""
_RESCORED = 1_000
"""Names that codes choose for a mention: with so many nearly none of the nearest is missed."""
_ROWS = 32_768
"""Names encoded at a time."""
_MENTIONS = 8_192
"""Mentions encoded and searched at a time."""


class Candidates(NamedTuple):
    """The candidates of all mentions."""

    rows: NDArray[np.int64]
    """Of names; -1 where there are fewer.  # (mentions, k)"""
    dense: NDArray[np.float32]
    """Cosine of vectors when the candidates were sought.  # (mentions, k)"""
    sparse: NDArray[np.float32]
    """Cosine of spelling.  # (mentions, k)"""
    right: NDArray[np.bool_]
    """Which of them name what the mention means.  # (mentions, k)"""

    def found(self) -> float:
        """The share of mentions with a right candidate."""
        return float(self.right.any(axis=1).mean())

    def first(self, weight: float) -> float:
        """The share of mentions whose best candidate is right, where spelling counts `weight`."""
        scores = np.where(self.rows >= 0, self.dense + np.float32(weight) * self.sparse, -np.inf)
        best = scores.argmax(axis=1)
        return float(self.right[np.arange(len(best)), best].mean())


class CandidateSearch:
    """Seeks the candidates of labelled mentions; what it writes goes to `folder`, which it makes."""

    def __init__(
        self,
        labelled: BiosynDataset,
        folder: Path,
        k: int,
        staying: Callable[[], Encoder] | None = None,
    ) -> None:
        """Let each mention have `k` candidates; where names stay, `staying` opens what encodes them, once."""
        self._labelled = labelled
        self._folder = folder
        self._k = k
        self._staying = staying
        self._spelling: tuple[SparseIndex, NDArray[np.int64]] | None = None

    def seek(self, encoder: Encoder, dense_share: float) -> Candidates:
        """Encode mentions, and names unless they stay, and return the candidates."""
        spelling, by_spelling = self._by_spelling()
        by_vector = np.empty_like(by_spelling)
        rows = np.empty_like(by_spelling)
        dense, sparse = np.zeros(rows.shape, np.float32), np.zeros(rows.shape, np.float32)
        index, vectors = self._indexed(encoder) if self._staying is None else self._stayed
        for start in range(0, len(rows), _MENTIONS):
            some = slice(start, min(start + _MENTIONS, len(rows)))
            texts = self._labelled.mentions.span(some.start, some.stop)
            mentions = encoder.encode(texts)
            by_vector[some] = without(index.search(mentions, self._k + 1)[1], self._own(some))
            rows[some] = mixed(by_spelling[some], by_vector[some], dense_share)
            sparse[some] = spelling.compare(texts, rows[some])
            for own, mention, scores in zip(rows[some], mentions, dense[some], strict=True):
                scores[own >= 0] = vectors.floats(own[own >= 0]) @ mention
        if self._staying is None:
            shutil.rmtree(self._folder / "vectors", ignore_errors=True)
        return Candidates(rows, dense, sparse, self._labelled.right(rows))

    def settle(self) -> None:
        """Encode names that stay, if that is not done; it may take long."""
        if self._staying is not None:
            _ = self._stayed

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of names that stay.  # (rows,) -> (rows, dim)"""
        return self._stayed[1].floats(rows)

    @cached_property
    def _stayed(self) -> tuple[Index, Vectors]:
        # Opened anew, as that of mentions learns, and has learned already in a run that goes on.
        assert self._staying is not None
        return self._indexed(self._staying())

    def _by_spelling(self) -> tuple[SparseIndex, NDArray[np.int64]]:
        """Index the names by n-grams, once, and return also the nearest of each mention."""
        if self._spelling is None:
            folder = _emptied(self._folder / "spelling")
            write_sparse(self._labelled.name_table.folded, folder, SparseSettings())
            index = SparseIndex.open(folder)
            every = slice(0, len(self._labelled))
            near = index.search(self._labelled.mentions.span(0, len(self._labelled)), self._k + 1)[1]
            self._spelling = index, without(near, self._own(every))
        return self._spelling

    def _own(self, some: slice) -> NDArray[np.int64]:
        """The name that is the mention itself, or -1.  # (mentions,)"""
        return self._labelled.name_table.rows_of(self._labelled.mentions.span(some.start, some.stop))

    def _indexed(self, encoder: Encoder) -> tuple[Index, Vectors]:
        names, folder = self._labelled.name_table.folded, _emptied(self._folder / "vectors")
        exact = len(names) <= EXACT
        precision = Precision.FP32 if exact else Precision.INT8
        with VectorWriter(folder, encoder.dimension, precision) as writer:
            for start in range(0, len(names), _ROWS):
                encoded = encoder.encode(names.span(start, min(start + _ROWS, len(names))))
                writer.append(quantize(encoded, precision))
        vectors = Vectors.open(folder)
        if exact:
            return FlatIndex(vectors), vectors
        # faiss is needed here alone.
        from sapbert.index.ann import AnnIndex, write_codes

        write_codes(folder)
        return AnnIndex.open(folder, vectors, candidates=_RESCORED), vectors


def without(rows: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Leave out one row of each mention, and the last where it is not there.

    # rows (mentions, k + 1), own (mentions,), result (mentions, k)
    """
    # Stable, so that the others stay in their order.
    order = np.argsort(rows == own[:, np.newaxis], axis=1, kind="stable")
    kept: NDArray[np.int64] = np.take_along_axis(rows, order, axis=1)[:, :-1]
    return kept


def mixed(
    by_spelling: NDArray[np.int64], by_vector: NDArray[np.int64], dense_share: float
) -> NDArray[np.int64]:
    """Take the nearest by spelling but for `dense_share` of them, then the nearest by vector, each row once.

    # (mentions, k) all three; -1 where there are fewer
    """
    k = by_spelling.shape[1]
    sparse = by_spelling[:, : k - int(k * dense_share)]
    repeated = (by_vector[:, :, np.newaxis] == sparse[:, np.newaxis, :]).any(axis=2)
    rows = np.concatenate([sparse, np.where(repeated, -1, by_vector)], axis=1)
    # Stable, so that what is there moves to the front in its order.
    order = np.argsort(rows < 0, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, axis=1)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
