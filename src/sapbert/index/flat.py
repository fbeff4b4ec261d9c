"""Exact search: every mention is compared with every vector, some thousand rows at a time.

A matrix product finds who may be among the best k, with a little room for its rounding; `Vectors.rank` then
decides. Memory is one block of vectors in float32 and its scores, whatever the size of the index; but a small
index is held in float32, since to widen it takes longer than to compare it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sapbert.index.vectors import ROUNDING, Vectors, check_search

BLOCK_BYTES = 64 << 20
"""Vectors compared at a time, in float32. With less, BLAS is busy calling its threads together."""
BLOCK_BYTES_ALONE = 512 << 10
"""The same for one mention, which one thread compares: what stays in its cache is not moved twice."""
IN_MEMORY_BYTES = 128 << 20
"""Most that is held: twice the block that every search needs."""
MENTIONS = 256
"""Mentions that go through all vectors together."""


class FlatIndex:
    """Finds the nearest vectors exactly, as far as their precision goes; fits `protocols.Index`."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return self.vectors.dimension

    def search(
        self, vectors: NDArray[np.float32], k: int, *, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k nearest rows of each mention, as `protocols.Index` says."""
        mentions = check_search(self, vectors, k, allowed)
        rows = None if allowed is None else np.flatnonzero(allowed)
        batches = (mentions[start : start + MENTIONS] for start in range(0, len(mentions), MENTIONS))
        near = chain.from_iterable(self._near(batch, rows, k) for batch in batches)
        return self._compared.rank_each(mentions, near, k)

    @cached_property
    def _compared(self) -> Vectors:
        """The vectors as they are searched."""
        small = 4 * len(self) * self.dimension <= IN_MEMORY_BYTES
        return self.vectors.widened() if small else self.vectors

    def _near(
        self, mentions: NDArray[np.float32], rows: NDArray[np.int64] | None, k: int
    ) -> list[NDArray[np.int64]]:
        """For each mention, the rows that may be among its best k."""
        best = [_Best(k) for _ in mentions]
        total = len(self) if rows is None else len(rows)
        size = BLOCK_BYTES if len(mentions) > 1 else BLOCK_BYTES_ALONE
        step = max(size // (4 * self.dimension), 1)
        for start in range(0, total, step):
            stop = min(start + step, total)
            block = slice(start, stop) if rows is None else rows[start:stop]
            scores = self._compared.cosines(mentions, block)  # (mentions, block)
            for own, own_best in zip(scores, best, strict=True):
                # What is no number is a hit too, to be refused when rows are ranked.
                hits = np.flatnonzero(~(own < own_best.floor))
                if len(hits):
                    own_best.add(own[hits], hits + start if rows is None else rows[hits + start])
        return [own_best.rows for own_best in best]


class _Best:
    """The rows of one mention that may still be among its best k."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._scores = np.empty(0, np.float32)
        self.rows = np.empty(0, np.int64)
        self.floor = -np.inf
        """Below this a row is out."""

    def add(self, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        scores, rows = np.append(self._scores, scores), np.append(self.rows, rows)
        if len(rows) > self._k:
            self.floor = float(np.partition(scores, len(rows) - self._k)[len(rows) - self._k]) - ROUNDING
            kept = ~(scores < self.floor)
            scores, rows = scores[kept], rows[kept]
        self._scores, self.rows = scores, rows
