"""Approximate search: 512-bit codes choose candidates, better vectors decide among them.

A code holds the signs of a vector's components in a random frame, once the mean of many is taken off: names
that lie close differ in few bits. All codes are compared, because that is what kept recall where graphs
and clusters lost it (these vectors do not cluster kindly), it needs no training, and filters as it goes.
512 bits whatever the dimension: faiss compares 64 bytes as fast as it does 48, and more bits find more.

Codes are compared in blocks of fixed size, by several threads, so that a mention's candidates depend neither
on the number of threads nor on the mentions that it is searched with.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, damaged, map_array
from sapbert.index.vectors import Vectors, check_search, evenly_spaced_rows

BITS = 512
BLOCK = 1 << 17
"""Codes compared by one thread at a time."""
MENTIONS = 64
"""Mentions that a thread compares a block with."""
_ROW_SHIFT = 40
_ROW_BITS = (1 << _ROW_SHIFT) - 1
_CODES, _FRAME, _MEAN = "codes.npy", "frame.npy", "mean.npy"
_SEED = 33
_ROWS_PER_PIECE = 16_384


class AnnIndex:
    """Finds nearly always the nearest vectors, in a fraction of the time; fits `protocols.Index`."""

    def __init__(
        self,
        vectors: Vectors,
        coder: Coder,
        codes: NDArray[np.uint8],
        *,
        candidates: int,
        threads: int | None,
    ) -> None:
        self.vectors = vectors
        self.candidates = candidates
        """How many rows are rescored for a mention."""
        self._coder = coder
        self._codes = codes
        self._pool = ThreadPoolExecutor(threads or cpu_count() or 1, initializer=_single_threaded)

    @classmethod
    def open(cls, folder: Path, vectors: Vectors, *, candidates: int, threads: int | None = None) -> AnnIndex:
        """Map what `write_codes` wrote."""
        codes = map_array(folder / _CODES, np.uint8, shape=(len(vectors), BITS // 8))
        coder = Coder.open(folder, vectors.dimension)
        rows = vectors.spread()
        # One by one, as BLAS would start threads for more.
        expected = [coder.encode(vector[np.newaxis]) for vector in vectors.floats(rows)]
        differing = np.bitwise_count(codes[rows] ^ np.concatenate(expected)).sum(axis=1)
        # Rounding may turn a bit or two.
        if differing.max() > BITS // 8:
            raise damaged(folder / _CODES, "its codes are not those of the vectors")
        return cls(vectors, coder, codes, candidates=candidates, threads=threads)

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
        return self.vectors.rank_each(mentions, self._near(mentions, rows, max(self.candidates, 2 * k)), k)

    def _near(
        self, mentions: NDArray[np.float32], rows: NDArray[np.int64] | None, wanted: int
    ) -> Iterator[NDArray[np.int64]]:
        """For each mention, the `wanted` rows whose codes differ least from its own."""
        total = len(self) if rows is None else len(rows)
        if total <= wanted:
            everything = np.arange(total) if rows is None else rows
            yield from (everything for _ in mentions)
            return
        # One by one, as a product with many may round, and a bit turn, that would not alone.
        codes = [self._coder.encode(mention[np.newaxis]) for mention in mentions]
        blocks = [slice(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK)]
        for start in range(0, len(codes), MENTIONS):
            group = np.concatenate(codes[start : start + MENTIONS])
            found = self._pool.map(
                lambda block, group=group: self._compare(group, block, rows, wanted), blocks
            )
            keys = np.concatenate(list(found), axis=1)  # (mentions, blocks * wanted)
            if keys.shape[1] > wanted:
                keys = np.partition(keys, wanted - 1, axis=1)[:, :wanted]
            near = keys & _ROW_BITS
            yield from near if rows is None else rows[near]

    def _compare(
        self, mentions: NDArray[np.uint8], block: slice, rows: NDArray[np.int64] | None, wanted: int
    ) -> NDArray[np.int64]:
        """The best of a block as one number each that sorts by distance, then row; on several threads."""
        codes = self._codes[block] if rows is None else self._codes[rows[block]]
        distances, near = faiss.knn_hamming(mentions, codes, min(wanted, len(codes)))
        keys: NDArray[np.int64] = (distances.astype(np.int64) << _ROW_SHIFT) | (near + block.start)
        return keys


class Coder:
    """Turns vectors into codes."""

    def __init__(self, mean: NDArray[np.float32], frame: NDArray[np.float32]) -> None:
        self._mean = mean
        self._frame = frame

    @classmethod
    def open(cls, folder: Path, dimension: int) -> Coder:
        """Load what `write_codes` wrote."""
        mean = map_array(folder / _MEAN, np.float32, shape=(dimension,))
        return cls(mean, map_array(folder / _FRAME, np.float32, shape=(dimension, BITS)))

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the codes of some vectors.  # (vectors, BITS / 8)"""
        return np.packbits((vectors - self._mean) @ self._frame > 0, axis=1)


def write_codes(folder: Path) -> None:
    """Write the codes of all vectors in `folder` beside them."""
    vectors = Vectors.open(folder)
    spread = evenly_spaced_rows(len(vectors), _ROWS_PER_PIECE)
    size = max(vectors.dimension, BITS)
    square = np.random.default_rng(_SEED).standard_normal((size, size))
    frame = np.linalg.qr(square)[0][: vectors.dimension, :BITS]
    np.save(folder / _MEAN, vectors.floats(spread).mean(axis=0))
    np.save(folder / _FRAME, frame.astype(np.float32))
    coder = Coder.open(folder, vectors.dimension)
    with ArrayWriter(folder / _CODES, np.uint8, BITS // 8) as codes:
        for start in range(0, len(vectors), _ROWS_PER_PIECE):
            # Mapped anew, so that what was read of a file larger than memory is let go.
            codes.append(coder.encode(Vectors.open(folder).floats(slice(start, start + _ROWS_PER_PIECE))))


def _single_threaded() -> None:
    """Keep faiss from starting threads of its own in each of ours."""
    faiss.omp_set_num_threads(1)
