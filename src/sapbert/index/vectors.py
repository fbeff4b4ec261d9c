"""Unit vectors on disk, in full, half, a quarter or an eighth of the room, mapped into memory.

`int8` rounds each vector to 127 steps of its largest component; `int4` to 7 steps of that or of a little
less, as keeps its direction best, and puts two into a byte. Scores are cosines with what is stored. Where
room is short, more dimensions in `int4` link better than fewer in `int8`.
Whatever the precision, arithmetic is in float32 and some thousand rows at a time: no file is held whole.

Scores that are given out come from `rank` alone. A matrix product may round a row's score differently in
other company; `rank` does not: equal vectors have equal scores, alone as in a batch.
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
"""More than two ways to compute the cosine of unit vectors in float32 ever differ."""
_SLACK = 0.01
"""More than rounding to any precision adds to a length."""
_LOOKED_AT = 16
"""Vectors that are looked at when they are mapped."""
_VECTORS, _SCALES = "vectors.npy", "scales.npy"
_STEPS = {Precision.INT8: 127, Precision.INT4: 7}
_CUTS = (0.9, 0.8, 0.7)
"""Shares of the largest component at which `int4` may cut components off."""
_ZERO = 8
"""What stands for 0 in half a byte."""
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
    """As stored.  # (rows, dimension), of int4 (rows, dimension / 2)"""
    scales: NDArray[np.float32] | None
    """What each row of integers is multiplied with.  # (rows,)"""

    @classmethod
    def open(cls, folder: Path) -> Vectors:
        """Map what a `VectorWriter` wrote."""
        data = map_array(folder / _VECTORS, *_DTYPES.values(), shape=(None, None))
        scales = None
        if data.dtype in (np.int8, np.uint8):
            scales = map_array(folder / _SCALES, np.float32, shape=(len(data),))
            require_within(folder / _SCALES, scales, 0, 1)
        vectors = cls(data, scales)
        lengths = np.linalg.norm(vectors.floats(vectors.spread()), axis=1)
        # Of zeros there may be some; where all are, or one is no number, it is the file.
        if len(data) and not abs(lengths.max() - 1) < _SLACK:
            raise damaged(folder / _VECTORS, f"there is a vector of length {lengths.max():.3g}")
        return vectors

    def __len__(self) -> int:
        return len(self.data)

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return int(self.data.shape[1]) * (2 if self.precision is Precision.INT4 else 1)

    @property
    def precision(self) -> Precision:
        """How a component is stored."""
        return next(precision for precision, dtype in _DTYPES.items() if self.data.dtype == dtype)

    def spread(self) -> NDArray[np.int64]:
        """Return a few rows, from the first to the last."""
        return evenly_spaced_rows(len(self), _LOOKED_AT)

    def widened(self) -> Vectors:
        """Return the same vectors in float32, in memory; as they are where they are float32."""
        return self if self.precision is Precision.FP32 else Vectors(self.floats(slice(None)), None)

    def floats(self, rows: Rows) -> NDArray[np.float32]:
        """Return some of the vectors in float32.  # (rows, dimension)"""
        floats = _widened(self.data[rows])
        if self.scales is not None:
            floats *= self.scales[rows][:, np.newaxis]
        return floats

    def cosines(self, mentions: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
        """Compare mentions with some rows, give or take `ROUNDING`.  # (mentions, rows)"""
        cosines: NDArray[np.float32] = mentions @ _widened(self.data[rows]).T
        if self.scales is not None:
            cosines *= self.scales[rows]
        return cosines

    def rank(
        self, mention: NDArray[np.float32], rows: NDArray[np.integer[Any]], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.integer[Any]]]:
        """Return the k best of some rows for one mention: scores, best first, and rows.

        Of equal scores the lower row comes first.  # (k,), (k,)
        """
        rough = self.cosines(mention, rows)
        if not np.all(np.abs(rough) < 1 + _SLACK):
            raise ValueError("there is a vector that is none of length 1")
        if len(rows) > k:
            rows = rows[rough >= np.partition(rough, len(rows) - k)[len(rows) - k] - ROUNDING]
        scores = (self.floats(rows) * mention).sum(axis=1)
        order = np.lexsort((rows, -scores))[:k]
        # Rounded, a vector may be longer than one.
        return np.minimum(scores[order], 1), rows[order]

    def rank_each(
        self, mentions: NDArray[np.float32], near: Iterable[NDArray[np.integer[Any]]], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Rank for each mention the rows that come with it, as `protocols.Index.search` answers."""
        scores, found = no_results(len(mentions), k)
        for number, (mention, rows) in enumerate(zip(mentions, near, strict=True)):
            own_scores, own_rows = self.rank(mention, rows, k)
            scores[number, : len(own_rows)], found[number, : len(own_rows)] = own_scores, own_rows
        return scores, found


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
        """Append vectors of the precision that is being written."""
        self._data.append(vectors.data)
        if self._scales is not None and vectors.scales is not None:
            self._scales.append(vectors.scales)


def quantize(vectors: NDArray[np.float32], precision: Precision) -> Vectors:
    """Return unit vectors as they are stored."""
    if precision not in _STEPS:
        return Vectors(vectors.astype(_DTYPES[precision]), None)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    most = _STEPS[precision]
    exact = vectors / np.where(largest > 0, largest, 1) * most
    steps = np.rint(exact)
    for cut in _CUTS if precision is Precision.INT4 else ():
        # What is cut off a few components makes the steps of all others finer.
        finer = np.clip(np.rint(exact / cut), -most, most)
        better = _agreement(finer, exact) > _agreement(steps, exact)
        steps[better] = finer[better]
    lengths = np.linalg.norm(steps, axis=1)
    data = steps.astype(np.int8) if precision is Precision.INT8 else _packed(steps)
    return Vectors(data, (1 / np.maximum(lengths, 1)).astype(np.float32))


def _agreement(steps: NDArray[Any], exact: NDArray[Any]) -> NDArray[np.float32]:
    """How well each rounded vector keeps its direction; higher is better.  # (rows,)"""
    lengths = np.maximum(np.linalg.norm(steps, axis=1), 1)
    agreement: NDArray[np.float32] = (steps * exact).sum(axis=1) / lengths
    return agreement


def require_storable(dimension: int, precision: Precision) -> None:
    """Refuse so many dimensions in this precision before they are encoded."""
    if precision is Precision.INT4 and dimension % 2:
        raise ConfigError(f"int4 stores dimensions by twos, not {dimension}; give an even --dimensions")


def _packed(steps: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Put two components into a byte."""
    require_storable(steps.shape[1], Precision.INT4)
    halves: NDArray[np.uint8] = (steps + _ZERO).astype(np.uint8)
    pairs: NDArray[np.uint8] = (halves[:, ::2] << np.uint8(4)) | halves[:, 1::2]
    return pairs


def _unpacked(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    floats = np.empty((len(data), 2 * data.shape[1]), np.float32)
    floats[:, ::2], floats[:, 1::2] = data >> 4, data & 15
    floats -= _ZERO
    return floats


def _widened(data: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored components in float32: finite ones of float16 as numpy does, in half its time."""
    if data.dtype == np.uint8:
        return _unpacked(data)
    if data.dtype != np.float16:
        return data.astype(np.float32, copy=False)
    # Sign, exponent and fraction go to their places in a float32, whose exponents are counted from elsewhere.
    bits = data.view(np.int16).astype(np.int32)
    bits <<= _FRACTION_SHIFT
    bits &= _HALF_BITS
    floats = bits.view(np.float32)
    floats *= _EXPONENT_SHIFT
    return floats


def check_search(
    index: Index, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
) -> NDArray[np.float32]:
    """Return mentions in the shape that a search needs, or say what is wrong with what a caller gave."""
    mentions = np.ascontiguousarray(vectors, np.float32)
    if mentions.ndim != 2 or mentions.shape[1] != index.dimension:
        raise ValueError(f"mentions have shape {mentions.shape}, expected (mentions, {index.dimension})")
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    if allowed is not None and allowed.shape != (len(index),):
        raise ValueError(f"allowed has shape {allowed.shape}, expected ({len(index)},)")
    return mentions


def evenly_spaced_rows(rows: int, size: int) -> NDArray[np.int64]:
    """Return `size` of so many rows, from the first to the last; all where there are no more."""
    return np.linspace(0, max(0, rows - 1), min(rows, size)).astype(np.int64)


def no_results(mentions: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and rows of a search that found nothing yet."""
    return np.full((mentions, k), -np.inf, np.float32), np.full((mentions, k), -1, np.int64)
