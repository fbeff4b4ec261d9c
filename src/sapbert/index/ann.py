"""Approximate search: 512-bit codes select candidates, and the stored vectors rank them.

A code contains the signs of the components of a vector after subtracting a mean and applying a random
rotation: codes of similar names differ in few bits. All codes are compared. This kept recall where graphs and
clusters lost it (these vectors do not cluster well), needs no training, and supports filters. A code has 512
bits whatever the dimension: faiss compares 64 bytes as fast as 48, and more bits find more.

Codes are compared in blocks of fixed size by several threads, so the candidates of a mention depend neither
on the number of threads nor on the other mentions of a batch.
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
"""Codes that one thread compares at a time."""
MENTIONS = 64
"""Mentions compared with a block at a time."""
_ROW_SHIFT = 40
_ROW_BITS = (1 << _ROW_SHIFT) - 1
_CODES, _PROJECTION, _MEAN = "codes.npy", "frame.npy", "mean.npy"
_SEED = 33
_ROWS_PER_PIECE = 16_384


class AnnIndex:
    """Approximate search, much faster and nearly as good as exact; implements `protocols.Index`."""

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
        """Number of rows that are rescored per mention."""
        self._coder = coder
        self._codes = codes
        self._pool = ThreadPoolExecutor(threads or cpu_count() or 1, initializer=_single_threaded)

    @classmethod
    def open(cls, folder: Path, vectors: Vectors, *, candidates: int, threads: int | None = None) -> AnnIndex:
        """Map the files written by `write_codes`."""
        codes = map_array(folder / _CODES, np.uint8, shape=(len(vectors), BITS // 8))
        coder = Coder.open(folder, vectors.dimension)
        rows = vectors.spread()
        # One at a time: BLAS would start threads for more.
        expected = [coder.encode(vector[np.newaxis]) for vector in vectors.floats(rows)]
        differing = np.bitwise_count(codes[rows] ^ np.concatenate(expected)).sum(axis=1)
        # Rounding may flip a bit or two.
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
        """Find the k nearest rows of each mention, as defined by `protocols.Index`."""
        mentions = check_search(self, vectors, k, allowed)
        rows = None if allowed is None else np.flatnonzero(allowed)
        return self.vectors.rank_each(mentions, self._near(mentions, rows, max(self.candidates, 2 * k)), k)

    def _near(
        self, mentions: NDArray[np.float32], rows: NDArray[np.int64] | None, count: int
    ) -> Iterator[NDArray[np.int64]]:
        """Yield for each mention the `count` rows whose codes differ least from its own."""
        total = len(self) if rows is None else len(rows)
        if total <= count:
            all_rows = np.arange(total) if rows is None else rows
            yield from (all_rows for _ in mentions)
            return
        # One at a time: a product with many mentions may round differently and flip a bit.
        codes = [self._coder.encode(mention[np.newaxis]) for mention in mentions]
        blocks = [slice(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK)]
        for start in range(0, len(codes), MENTIONS):
            group = np.concatenate(codes[start : start + MENTIONS])
            block_keys = self._pool.map(
                lambda block, group=group: self._compare(group, block, rows, count), blocks
            )
            keys = np.concatenate(list(block_keys), axis=1)  # (mentions, blocks * count)
            if keys.shape[1] > count:
                keys = np.partition(keys, count - 1, axis=1)[:, :count]
            near = keys & _ROW_BITS
            yield from near if rows is None else rows[near]

    def _compare(
        self, mentions: NDArray[np.uint8], block: slice, rows: NDArray[np.int64] | None, count: int
    ) -> NDArray[np.int64]:
        """Return the best rows of a block as numbers that sort by distance, then row; runs in threads."""
        codes = self._codes[block] if rows is None else self._codes[rows[block]]
        distances, near = faiss.knn_hamming(mentions, codes, min(count, len(codes)))
        keys: NDArray[np.int64] = (distances.astype(np.int64) << _ROW_SHIFT) | (near + block.start)
        return keys


class Coder:
    """Converts vectors to codes."""

    def __init__(self, mean: NDArray[np.float32], projection: NDArray[np.float32]) -> None:
        self._mean = mean
        self._projection = projection

    @classmethod
    def open(cls, folder: Path, dimension: int) -> Coder:
        """Load the files written by `write_codes`."""
        mean = map_array(folder / _MEAN, np.float32, shape=(dimension,))
        return cls(mean, map_array(folder / _PROJECTION, np.float32, shape=(dimension, BITS)))

    def encode(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the codes of `vectors`.  # (vectors, BITS / 8)"""
        return np.packbits((vectors - self._mean) @ self._projection > 0, axis=1)


def write_codes(folder: Path) -> None:
    """Write the codes of all vectors in `folder` to the same folder."""
    vectors = Vectors.open(folder)
    spread = evenly_spaced_rows(len(vectors), _ROWS_PER_PIECE)
    size = max(vectors.dimension, BITS)
    square = np.random.default_rng(_SEED).standard_normal((size, size))
    projection = np.linalg.qr(square)[0][: vectors.dimension, :BITS]
    np.save(folder / _MEAN, vectors.floats(spread).mean(axis=0))
    np.save(folder / _PROJECTION, projection.astype(np.float32))
    coder = Coder.open(folder, vectors.dimension)
    with ArrayWriter(folder / _CODES, np.uint8, BITS // 8) as codes:
        for start in range(0, len(vectors), _ROWS_PER_PIECE):
            # Mapped again for each piece, so that pages of a file larger than memory can be freed.
            codes.append(coder.encode(Vectors.open(folder).floats(slice(start, start + _ROWS_PER_PIECE))))


def _single_threaded() -> None:
    """Prevent faiss from starting its own threads in each of our threads."""
    faiss.omp_set_num_threads(1)
