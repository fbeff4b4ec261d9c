"""Approximate search without further files: the signs of the stored vectors select candidates.

Each vector is reduced to one bit per dimension when the index is first searched, which takes some
milliseconds for int4. The bits of a mention are compared with all of them, and the stored vectors rank the
rows that differ least. All rows at the largest distance are kept, so the candidates of a mention do not
depend on the other mentions. For a million names and more, the longer codes of `index.ann` find more.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sapbert.index.settings import Precision
from sapbert.index.vectors import PACKED_ZERO, Vectors, check_search

_ROWS_PER_PIECE = 65_536
_WORD = 8
"""Bytes compared at once."""


class SignIndex:
    """Approximate search of some hundred thousand names in milliseconds; implements `protocols.Index`."""

    def __init__(self, vectors: Vectors, *, candidates: int) -> None:
        self.vectors = vectors
        self.candidates = candidates
        """Number of rows that are rescored per mention, at least."""

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
        count = max(self.candidates, 2 * k)
        codes = _codes_of_floats(mentions)
        near = (self._near(code, rows, count) for code in codes)
        return self.vectors.rank_each(mentions, near, k)

    @cached_property
    def _codes(self) -> list[NDArray[np.uint64]]:
        """The bits of all vectors, one array per 64 dimensions."""
        pieces = range(0, len(self), _ROWS_PER_PIECE)
        codes = [_codes(self.vectors, slice(start, start + _ROWS_PER_PIECE)) for start in pieces]
        return list(np.ascontiguousarray(np.concatenate(codes).T)) if codes else []

    def _near(
        self, code: NDArray[np.uint64], rows: NDArray[np.int64] | None, count: int
    ) -> NDArray[np.int64]:
        """Return the `count` rows whose bits differ least, and others at the same distance."""
        if (len(self) if rows is None else len(rows)) <= count:
            return np.arange(len(self)) if rows is None else rows
        distances = np.zeros(len(self) if rows is None else len(rows), np.uint16)
        for word, all_words in zip(code, self._codes, strict=True):
            distances += np.bitwise_count((all_words if rows is None else all_words[rows]) ^ word)
        most = int(np.searchsorted(np.cumsum(np.bincount(distances)), count))
        near: NDArray[np.int64] = np.flatnonzero(distances <= most)
        return near if rows is None else rows[near]


def _codes(vectors: Vectors, rows: slice) -> NDArray[np.uint64]:
    if vectors.precision is not Precision.INT4:
        return _codes_of_floats(vectors.floats(rows))
    # A byte holds two dimensions; the sign is known without converting them.
    packed = vectors.data[rows]
    return _packed_words(packed >> 4 > PACKED_ZERO, packed & 15 > PACKED_ZERO)


def _codes_of_floats(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return the bits of each vector: those of even dimensions first.  # (vectors, words)"""
    return _packed_words(vectors[:, ::2] > 0, vectors[:, 1::2] > 0)


def _packed_words(even: NDArray[np.bool_], odd: NDArray[np.bool_]) -> NDArray[np.uint64]:
    packed = np.concatenate([np.packbits(even, axis=1), np.packbits(odd, axis=1)], axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % _WORD))).view(np.uint64)
