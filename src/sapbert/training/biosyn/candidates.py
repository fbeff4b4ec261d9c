"""Find the candidate names that a mention is trained on: some by n-grams, the rest by current vectors.

As in BioSyn, the first of k candidates are the nearest by character n-grams, which never change; the nearest
by vector fill the remaining places, without repeats. Both searches scan names in blocks and keep the best,
and vectors are on disk: there is no matrix of mentions by names, which took 192 GB in the original on
MedMentions. Up to a million names are compared exactly: encoding a name costs a thousand times more than
comparing it with a thousand mentions. Beyond that, binary codes find candidates and 8-bit vectors rescore
them (`index.ann`).

A name equal to the mention is not a candidate: linking finds it by exact match. So training mentions may also
be names of the vocabulary, as in the dictionaries of BioSyn's protocol.
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

EXACT_SEARCH_LIMIT = 1_000_000
"""Up to so many names, all vectors are compared."""
_RESCORED = 1_000
"""Names per mention that are rescored after the search by codes: enough to miss almost no nearest name."""
_NAMES_PER_BLOCK = 32_768
"""Names encoded at a time."""
_MENTIONS_PER_BLOCK = 8_192
"""Mentions encoded and searched at a time."""


class Candidates(NamedTuple):
    """The candidates of all mentions."""

    rows: NDArray[np.int64]
    """Rows of names; -1 if there are fewer than k.  # (mentions, k)"""
    dense: NDArray[np.float32]
    """Cosine of the vectors at the time of the search.  # (mentions, k)"""
    sparse: NDArray[np.float32]
    """Cosine of the n-grams.  # (mentions, k)"""
    right: NDArray[np.bool_]
    """Whether the candidate is a name of a gold concept.  # (mentions, k)"""

    def recall(self) -> float:
        """Return the share of mentions with a right candidate."""
        return float(self.right.any(axis=1).mean())

    def accuracy(self, sparse_weight: float) -> float:
        """Return the share of mentions whose best candidate is right."""
        scores = np.where(self.rows >= 0, self.dense + np.float32(sparse_weight) * self.sparse, -np.inf)
        best = scores.argmax(axis=1)
        return float(self.right[np.arange(len(best)), best].mean())


class CandidateSearch:
    """Searches the candidates of labelled mentions; its files are in `folder`, which it creates."""

    def __init__(
        self,
        labelled: BiosynDataset,
        folder: Path,
        k: int,
        open_frozen_encoder: Callable[[], Encoder] | None = None,
    ) -> None:
        """Search `k` candidates per mention.

        If names are frozen, `open_frozen_encoder` opens the encoder of names; they are then encoded once.
        """
        self._labelled = labelled
        self._folder = folder
        self._k = k
        self._open_frozen_encoder = open_frozen_encoder
        self._sparse: tuple[SparseIndex, NDArray[np.int64]] | None = None

    def search(self, encoder: Encoder, dense_share: float) -> Candidates:
        """Encode mentions, and names unless they are frozen, and return the candidates."""
        sparse_index, by_ngrams = self._nearest_by_ngrams()
        rows = np.empty_like(by_ngrams)
        dense, sparse = np.zeros(rows.shape, np.float32), np.zeros(rows.shape, np.float32)
        index, vectors = self._index(encoder) if self._open_frozen_encoder is None else self._frozen_index
        for start in range(0, len(rows), _MENTIONS_PER_BLOCK):
            block = slice(start, min(start + _MENTIONS_PER_BLOCK, len(rows)))
            texts = self._labelled.mentions.span(block.start, block.stop)
            mentions = encoder.encode(texts)
            by_vector = drop_row(index.search(mentions, self._k + 1)[1], self._equal_names(block))
            rows[block] = mix_candidates(by_ngrams[block], by_vector, dense_share)
            sparse[block] = sparse_index.compare(texts, rows[block])
            for names, mention, scores in zip(rows[block], mentions, dense[block], strict=True):
                scores[names >= 0] = vectors.floats(names[names >= 0]) @ mention
        if self._open_frozen_encoder is None:
            shutil.rmtree(self._folder / "vectors", ignore_errors=True)
        return Candidates(rows, dense, sparse, self._labelled.right(rows))

    def encode_frozen_names(self) -> None:
        """Encode frozen names unless that is done; it may take long."""
        if self._open_frozen_encoder is not None:
            _ = self._frozen_index

    def frozen_vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of frozen names.  # (rows,) -> (rows, dim)"""
        return self._frozen_index[1].floats(rows)

    @cached_property
    def _frozen_index(self) -> tuple[Index, Vectors]:
        # A second encoder: that of mentions is trained, and already changed in a resumed run.
        assert self._open_frozen_encoder is not None
        return self._index(self._open_frozen_encoder())

    def _nearest_by_ngrams(self) -> tuple[SparseIndex, NDArray[np.int64]]:
        """Index the names by n-grams, once; return the index and the nearest names of each mention."""
        if self._sparse is None:
            folder = _empty_folder(self._folder / "spelling")
            write_sparse(self._labelled.name_table.folded, folder, SparseSettings())
            index = SparseIndex.open(folder)
            every = slice(0, len(self._labelled))
            near = index.search(self._labelled.mentions.span(0, len(self._labelled)), self._k + 1)[1]
            self._sparse = index, drop_row(near, self._equal_names(every))
        return self._sparse

    def _equal_names(self, block: slice) -> NDArray[np.int64]:
        """Return the row of the name equal to each mention, or -1.  # (mentions,)"""
        return self._labelled.name_table.rows_of(self._labelled.mentions.span(block.start, block.stop))

    def _index(self, encoder: Encoder) -> tuple[Index, Vectors]:
        names, folder = self._labelled.name_table.folded, _empty_folder(self._folder / "vectors")
        exact = len(names) <= EXACT_SEARCH_LIMIT
        precision = Precision.FP32 if exact else Precision.INT8
        with VectorWriter(folder, encoder.dimension, precision) as writer:
            for start in range(0, len(names), _NAMES_PER_BLOCK):
                encoded = encoder.encode(names.span(start, min(start + _NAMES_PER_BLOCK, len(names))))
                writer.append(quantize(encoded, precision))
        vectors = Vectors.open(folder)
        if exact:
            return FlatIndex(vectors), vectors
        # Only this branch needs faiss.
        from sapbert.index.ann import AnnIndex, write_codes

        write_codes(folder)
        return AnnIndex.open(folder, vectors, candidates=_RESCORED), vectors


def drop_row(rows: NDArray[np.int64], dropped: NDArray[np.int64]) -> NDArray[np.int64]:
    """Remove the row `dropped` of each mention, or its last row if it does not have that one.

    # rows (mentions, k + 1), dropped (mentions,), result (mentions, k)
    """
    # Stable, so that the others keep their order.
    order = np.argsort(rows == dropped[:, np.newaxis], axis=1, kind="stable")
    kept: NDArray[np.int64] = np.take_along_axis(rows, order, axis=1)[:, :-1]
    return kept


def mix_candidates(
    by_ngrams: NDArray[np.int64], by_vector: NDArray[np.int64], dense_share: float
) -> NDArray[np.int64]:
    """Fill a share of the places with the nearest by vector, the others by n-grams, each row once.

    # (mentions, k) all three; -1 if there are fewer
    """
    k = by_ngrams.shape[1]
    sparse = by_ngrams[:, : k - int(k * dense_share)]
    repeated = (by_vector[:, :, np.newaxis] == sparse[:, np.newaxis, :]).any(axis=2)
    rows = np.concatenate([sparse, np.where(repeated, -1, by_vector)], axis=1)
    # Stable, so that rows move to the front and keep their order.
    order = np.argsort(rows < 0, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, axis=1)


def _empty_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
