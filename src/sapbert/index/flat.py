"""Exact search: every mention is compared with every vector, some thousand rows at a time.

A matrix product finds the rows that may be among the best k, with a margin for rounding; `Vectors.rank`
decides. Memory is one block of float32 vectors and its scores, whatever the size of the index. A small index
is kept in memory as float32, because converting it takes longer than comparing it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sapbert.index.vectors import ROUNDING, Vectors, check_search

BLOCK_BYTES = 64 << 20
"""Bytes of float32 vectors compared at a time. With less, BLAS spends its time synchronizing threads."""
BLOCK_BYTES_ALONE = 512 << 10
"""The same for one mention, which one thread compares: a block that fits into its cache."""
IN_MEMORY_BYTES = 128 << 20
"""Indexes up to this size are kept in memory as float32: twice the block that every search needs."""
MENTIONS = 256
"""Mentions compared per pass over the vectors."""


class FlatIndex:
    """Exact search, up to the precision of the stored vectors; implements `protocols.Index`."""

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
        """Find the k nearest rows of each mention, as defined by `protocols.Index`."""
        mentions = check_search(self, vectors, k, allowed)
        rows = None if allowed is None else np.flatnonzero(allowed)
        batches = (mentions[start : start + MENTIONS] for start in range(0, len(mentions), MENTIONS))
        near = chain.from_iterable(self._near(batch, rows, k) for batch in batches)
        return self._compared.rank_each(mentions, near, k)

    @cached_property
    def _compared(self) -> Vectors:
        """The vectors that are compared: in float32 if the index is small."""
        small = 4 * len(self) * self.dimension <= IN_MEMORY_BYTES
        return self.vectors.to_float32() if small else self.vectors

    def _near(
        self, mentions: NDArray[np.float32], rows: NDArray[np.int64] | None, k: int
    ) -> list[NDArray[np.int64]]:
        """Return for each mention the rows that may be among its best k."""
        best = [_Best(k) for _ in mentions]
        total = len(self) if rows is None else len(rows)
        size = BLOCK_BYTES if len(mentions) > 1 else BLOCK_BYTES_ALONE
        step = max(size // (4 * self.dimension), 1)
        for start in range(0, total, step):
            stop = min(start + step, total)
            block = slice(start, stop) if rows is None else rows[start:stop]
            scores = self._compared.cosines(mentions, block)  # (mentions, block)
            for row_scores, candidates in zip(scores, best, strict=True):
                # NaN counts as a hit, so that `rank` can refuse it.
                hits = np.flatnonzero(~(row_scores < candidates.floor))
                if len(hits):
                    candidates.add(row_scores[hits], hits + start if rows is None else rows[hits + start])
        return [candidates.rows for candidates in best]


class _Best:
    """The rows of one mention that may still be among its best k."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._scores = np.empty(0, np.float32)
        self.rows = np.empty(0, np.int64)
        self.floor = -np.inf
        """Rows with a lower score are dropped."""

    def add(self, scores: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        scores, rows = np.append(self._scores, scores), np.append(self.rows, rows)
        if len(rows) > self._k:
            self.floor = float(np.partition(scores, len(rows) - self._k)[len(rows) - self._k]) - ROUNDING
            kept = ~(scores < self.floor)
            scores, rows = scores[kept], rows[kept]
        self._scores, self.rows = scores, rows
