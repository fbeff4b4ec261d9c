"""Unit vectors on disk in four precisions, memory-mapped.

`fp16` takes half of the space of `fp32`, `int8` a quarter and `int4` an eighth. `int8` rounds each vector to
127 steps of its largest component; `int4` to 7 steps of that component or a little less, whichever keeps its
direction best, and packs two components into a byte. Scores are cosines with the stored vectors. If space is
short, more dimensions in `int4` give better links than fewer in `int8`. In all precisions, arithmetic is in
float32 and some thousand rows at a time; no file is loaded completely.

All returned scores are computed by `rank`. A matrix product may round the score of a row differently in
another batch; `rank` does not: equal vectors have equal scores, alone and in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, damaged, map_array, require_within
from sapbert.errors import ConfigError
from sapbert.index.settings import Precision
from sapbert.protocols import Index

Rows = slice | NDArray[np.integer[Any]]
ROUNDING = 1e-5
"""More than the largest difference between two ways to compute a cosine of unit vectors in float32."""
_SLACK = 0.01
"""More than the change of a length by rounding to any precision."""
_CHECKED_ROWS = 16
"""Vectors that are checked when the file is mapped."""
_VECTORS, _SCALES = "vectors.npy", "scales.npy"
_STEPS = {Precision.INT8: 127, Precision.INT4: 7}
_CLIP_FRACTIONS = (0.9, 0.8, 0.7)
"""Fractions of the largest component at which `int4` may clip components."""
PACKED_ZERO = 8
"""The half byte that represents 0."""
_FRACTION_SHIFT = 13
_HALF_BITS = np.int32(~0x7000_1FFF)
_EXPONENT_SHIFT = np.float32(2.0**112)
_DTYPES: dict[Precision, type[np.generic]] = {
    Precision.FP32: np.float32,
    Precision.FP16: np.float16,
    Precision.INT8: np.int8,
    Precision.INT4: np.uint8,
}


@dataclass(frozen=True, slots=True)
class Vectors:
    """Many unit vectors."""

    data: NDArray[Any]
    """As stored.  # (rows, dimension); for int4 (rows, dimension / 2)"""
    scales: NDArray[np.float32] | None
    """Factor for each row of integers.  # (rows,)"""

    @classmethod
    def open(cls, folder: Path) -> Vectors:
        """Map the files written by `VectorWriter`."""
        data = map_array(folder / _VECTORS, *_DTYPES.values(), shape=(None, None))
        scales = None
        if data.dtype in (np.int8, np.uint8):
            scales = map_array(folder / _SCALES, np.float32, shape=(len(data),))
            require_within(folder / _SCALES, scales, 0, 1)
        vectors = cls(data, scales)
        with np.errstate(over="ignore", invalid="ignore"):  # damaged numbers may be huge
            lengths = np.linalg.norm(vectors.floats(vectors.spread()), axis=1)
        # Some vectors may be zero; if all are, or one is NaN, the file is damaged.
        if len(data) and not abs(lengths.max() - 1) < _SLACK:
            raise damaged(folder / _VECTORS, f"it contains a vector of length {lengths.max():.3g}")
        return vectors

    def __len__(self) -> int:
        return len(self.data)

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return int(self.data.shape[1]) * (2 if self.precision is Precision.INT4 else 1)

    @property
    def precision(self) -> Precision:
        """Data type of a stored component."""
        return next(precision for precision, dtype in _DTYPES.items() if self.data.dtype == dtype)

    def spread(self) -> NDArray[np.int64]:
        """Return a few rows, evenly spaced from the first to the last."""
        return evenly_spaced_rows(len(self), _CHECKED_ROWS)

    def to_float32(self) -> Vectors:
        """Return the same vectors in float32, in memory; unchanged if they are float32."""
        return self if self.precision is Precision.FP32 else Vectors(self.floats(slice(None)), None)

    def floats(self, rows: Rows) -> NDArray[np.float32]:
        """Return some vectors in float32.  # (rows, dimension)"""
        floats = _to_float32(self.data[rows])
        if self.scales is not None:
            floats *= self.scales[rows][:, np.newaxis]
        return floats

    def cosines(self, mentions: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """Compare mentions with some rows, up to `ROUNDING`.  # (mentions, rows)"""
        cosines: NDArray[np.float32] = mentions @ _to_float32(self.data[rows]).T
        if self.scales is not None:
            cosines *= self.scales[rows]
        return cosines

    def rank(
        self, mention: NDArray[np.float32], rows: NDArray[np.integer[Any]], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.integer[Any]]]:
        """Return the k best of `rows` for one mention: scores, best first, and rows.

        Of equal scores the lower row is first.  # (k,), (k,)
        """
        rough = self.cosines(mention, rows)
        if not np.all(np.abs(rough) < 1 + _SLACK):
            raise ValueError("a vector does not have length 1")
        if len(rows) > k:
            rows = rows[rough >= np.partition(rough, len(rows) - k)[len(rows) - k] - ROUNDING]
        scores = (self.floats(rows) * mention).sum(axis=1)
        order = np.lexsort((rows, -scores))[:k]
        # After rounding, a vector may be longer than 1.
        return np.minimum(scores[order], 1), rows[order]

    def rank_each(
        self, mentions: NDArray[np.float32], near: Iterable[NDArray[np.integer[Any]]], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Rank the rows given for each mention; returns the result of `protocols.Index.search`."""
        scores, result_rows = no_results(len(mentions), k)
        for number, (mention, rows) in enumerate(zip(mentions, near, strict=True)):
            best_scores, best_rows = self.rank(mention, rows, k)
            scores[number, : len(best_rows)], result_rows[number, : len(best_rows)] = best_scores, best_rows
        return scores, result_rows


class VectorWriter(ExitStack):
    """Writes the files of `Vectors` piece by piece."""

    def __init__(self, folder: Path, dimension: int, precision: Precision) -> None:
        super().__init__()
        width = dimension // 2 if precision is Precision.INT4 else dimension
        self._data = self.enter_context(ArrayWriter(folder / _VECTORS, _DTYPES[precision], width))
        self._scales = None
        if precision in _STEPS:
            self._scales = self.enter_context(ArrayWriter(folder / _SCALES, np.float32))

    def append(self, vectors: Vectors) -> None:
        """Append vectors of the precision of this writer."""
        self._data.append(vectors.data)
        if self._scales is not None and vectors.scales is not None:
            self._scales.append(vectors.scales)


def quantize(vectors: NDArray[np.float32], precision: Precision) -> Vectors:
    """Convert unit vectors to the form in which they are stored."""
    if precision not in _STEPS:
        return Vectors(vectors.astype(_DTYPES[precision]), None)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    most = _STEPS[precision]
    exact = vectors / np.where(largest > 0, largest, 1) * most
    steps = np.rint(exact)
    for fraction in _CLIP_FRACTIONS if precision is Precision.INT4 else ():
        # Clipping a few components makes the steps of all others finer.
        finer = np.clip(np.rint(exact / fraction), -most, most)
        better = _agreement(finer, exact) > _agreement(steps, exact)
        steps[better] = finer[better]
    lengths = np.linalg.norm(steps, axis=1)
    data = steps.astype(np.int8) if precision is Precision.INT8 else _packed(steps)
    return Vectors(data, (1 / np.maximum(lengths, 1)).astype(np.float32))


def _agreement(steps: NDArray[Any], exact: NDArray[Any]) -> NDArray[np.float32]:
    """Return how well each rounded vector keeps its direction; higher is better.  # (rows,)"""
    lengths = np.maximum(np.linalg.norm(steps, axis=1), 1)
    agreement: NDArray[np.float32] = (steps * exact).sum(axis=1) / lengths
    return agreement


def require_storable(dimension: int, precision: Precision) -> None:
    """Refuse a number of dimensions that this precision cannot store, before encoding."""
    if precision is Precision.INT4 and dimension % 2:
        raise ConfigError(f"int4 stores pairs of dimensions, got {dimension}; give an even --dimensions")


def _packed(steps: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Pack two components into a byte."""
    require_storable(steps.shape[1], Precision.INT4)
    halves: NDArray[np.uint8] = (steps + PACKED_ZERO).astype(np.uint8)
    pairs: NDArray[np.uint8] = (halves[:, ::2] << np.uint8(4)) | halves[:, 1::2]
    return pairs


def _unpacked(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    floats = np.empty((len(data), 2 * data.shape[1]), np.float32)
    floats[:, ::2], floats[:, 1::2] = data >> 4, data & 15
    floats -= PACKED_ZERO
    return floats


def _to_float32(data: NDArray[Any]) -> NDArray[np.float32]:
    """Convert stored components to float32: finite float16 as numpy does, in half the time."""
    if data.dtype == np.uint8:
        return _unpacked(data)
    if data.dtype != np.float16:
        return data.astype(np.float32, copy=False)
    # Move sign, exponent and fraction to their positions in a float32, which has another exponent bias.
    bits = data.view(np.int16).astype(np.int32)
    bits <<= _FRACTION_SHIFT
    bits &= _HALF_BITS
    floats = bits.view(np.float32)
    floats *= _EXPONENT_SHIFT
    return floats


def check_search(
    index: Index, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
) -> NDArray[np.float32]:
    """Return the mentions in the shape that a search needs; raise a ValueError for invalid arguments."""
    mentions = np.ascontiguousarray(vectors, np.float32)
    if mentions.ndim != 2 or mentions.shape[1] != index.dimension:
        raise ValueError(f"mentions have shape {mentions.shape}, expected (mentions, {index.dimension})")
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    if allowed is not None and allowed.shape != (len(index),):
        raise ValueError(f"allowed has shape {allowed.shape}, expected ({len(index)},)")
    return mentions


def evenly_spaced_rows(rows: int, size: int) -> NDArray[np.int64]:
    """Return `size` of `total` rows, evenly spaced from the first to the last; all if there are fewer."""
    return np.linspace(0, max(0, rows - 1), min(rows, size)).astype(np.int64)


def no_results(mentions: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return empty scores and rows of a search."""
    return np.full((mentions, k), -np.inf, np.float32), np.full((mentions, k), -1, np.int64)
