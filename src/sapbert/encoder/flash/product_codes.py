"""Product quantization: a table of vectors in one byte per few dimensions.

Each row is divided by its length and cut into pieces; a piece is stored as the number of the nearest of 256
centroids, which each position in the row has of its own. Pieces of one dimension (8 bits per dimension) keep
everything that matters; pieces of four dimensions (2 bits) are a quarter as large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import map_array
from sapbert.errors import ConfigError
from sapbert.parallel import ordered_map

CODES: Final = "codes.npy"
SCALES: Final = "scales.npy"
CENTROIDS: Final = "centroids.npy"
FILES = (CODES, SCALES, CENTROIDS)
PIECES = (1, 2, 4)
"""Dimensions per code."""
_CENTROIDS = 256
_ITEMS: Mapping[int, type[np.generic]] = {1: np.float32, 2: np.complex64, 4: np.complex128}
"""Dimensions of a piece → a type of the same size: numpy copies one item faster than several floats."""
_SAMPLE = 8_192
"""Rows from which the centroids are computed."""
_ROUNDS = 12
_BLOCK = 2_048
"""Points compared with all centroids at once: the distances fit in a core's cache."""
_TINY = np.float32(1e-12)


@dataclass(frozen=True, slots=True)
class ProductCodes:
    """A quantized table of vectors."""

    codes: NDArray[np.uint8]
    """# (rows, pieces)"""
    scales: NDArray[np.float16]
    """Length of each row.  # (rows,)"""
    centroids: NDArray[np.float32]
    """# (pieces, 256, dimensions per piece)"""

    @property
    def dimension(self) -> int:
        """Length of a row."""
        return int(self.centroids.shape[0] * self.centroids.shape[2])

    def __len__(self) -> int:
        return len(self.codes)

    def decode(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the vectors of `rows`.  # (rows, dimension)"""
        pieces, centroids, size = self.centroids.shape
        items = self.centroids.reshape(-1).view(_ITEMS[size])
        numbers = self.codes[rows] + np.arange(0, pieces * centroids, centroids)
        vectors: NDArray[np.float32] = items.take(numbers).view(np.float32)
        vectors *= self.scales[rows].astype(np.float32)[:, np.newaxis]
        return vectors

    def save(self, folder: Path) -> None:
        """Write the arrays to `folder`."""
        np.save(folder / CODES, self.codes)
        np.save(folder / SCALES, self.scales)
        np.save(folder / CENTROIDS, self.centroids)

    @classmethod
    def open(cls, folder: Path, *, rows: int, dimension: int) -> ProductCodes:
        """Map the arrays in `folder`."""
        centroids = map_array(folder / CENTROIDS, np.float32, shape=(None, _CENTROIDS, None))
        pieces, _, size = centroids.shape
        if size not in PIECES or pieces * size != dimension:
            raise ConfigError(
                f"{folder / CENTROIDS}: {pieces} pieces of {size} are not {dimension} dimensions"
            )
        codes = map_array(folder / CODES, np.uint8, shape=(rows, pieces))
        scales = map_array(folder / SCALES, np.float16, shape=(rows,))
        return cls(codes, scales, np.ascontiguousarray(centroids))


def quantize_table(
    table: NDArray[np.float32], piece: int, *, uses: NDArray[np.integer] | None = None, seed: int = 0
) -> ProductCodes:
    """Quantize the rows of `table` in pieces of `piece` dimensions.

    `uses` says how often each row is used: centroids are computed from rows that are used, and rows that are
    not become zero.
    """
    rows, dimension = table.shape
    if piece not in PIECES or dimension % piece:
        raise ConfigError(f"{dimension} dimensions cannot be coded in pieces of {piece}")
    lengths: NDArray[np.float32] = np.linalg.norm(table, axis=1)
    used = np.flatnonzero(lengths > _TINY if uses is None else (lengths > _TINY) & (uses > 0))
    sample = np.random.default_rng(seed).permutation(len(used))[:_SAMPLE]

    def quantize_piece(number: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        points = table[used, number * piece : (number + 1) * piece] / lengths[used, np.newaxis]
        if not len(used):
            return np.zeros((_CENTROIDS, piece), np.float32), np.zeros(0, np.uint8)
        centroids = _cluster(points[sample], np.random.default_rng([seed, number]))
        return centroids, _nearest(points, centroids)

    codes = np.zeros((rows, dimension // piece), np.uint8)
    centroids = np.empty((dimension // piece, _CENTROIDS, piece), np.float32)
    for number, (found, nearest) in enumerate(ordered_map(quantize_piece, range(codes.shape[1]))):
        centroids[number], codes[used, number] = found, nearest
    scales = np.zeros(rows, np.float16)
    scales[used] = lengths[used]
    return ProductCodes(codes, scales, centroids)


def _cluster(points: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float32]:
    """Return 256 centroids of `points`, by k-means.  # (256, dimensions)"""
    centroids = points[generator.integers(len(points), size=_CENTROIDS)]
    for _ in range(_ROUNDS):
        nearest = _nearest(points, centroids)
        counts = np.bincount(nearest, minlength=_CENTROIDS)
        sums = np.stack([np.bincount(nearest, axis, _CENTROIDS) for axis in points.T], axis=1)
        # A centroid without points moves to a random point.
        centroids = np.where(
            counts[:, np.newaxis] > 0,
            sums / np.maximum(counts, 1)[:, np.newaxis],
            points[generator.integers(len(points), size=_CENTROIDS)],
        ).astype(np.float32)
    return centroids


def _nearest(points: NDArray[np.float32], centroids: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the number of the nearest centroid of each point."""
    if points.shape[1] == 1:
        order = np.argsort(centroids[:, 0], kind="stable")
        ascending = centroids[order, 0]
        middles = (ascending[1:] + ascending[:-1]) / 2
        return order.astype(np.uint8)[np.searchsorted(middles, points[:, 0])]
    nearest = np.empty(len(points), np.uint8)
    directions, lengths = -2 * centroids.T, (centroids * centroids).sum(axis=1)
    for start in range(0, len(points), _BLOCK):
        distances = points[start : start + _BLOCK] @ directions
        distances += lengths
        nearest[start : start + _BLOCK] = distances.argmin(axis=1)
    return nearest
