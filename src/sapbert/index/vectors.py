"""Unit vectors on disk, in full, half, a quarter or an eighth of the room, mapped into memory.

`int8` rounds each vector to 127 steps of its largest component, `int4` to 7, and puts two into a byte; scores
are cosines with that. Where room is short, more dimensions in `int4` link better than fewer in `int8`.
Whatever the precision, arithmetic is in float32 and some thousand rows at a time: no file is held whole.

Scores that are given out come from `rank` alone. A matrix product may round a row's score differently in
other company; `rank` does not: equal vectors have equal scores, alone as in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, map_array
from sapbert.errors import ConfigError
from sapbert.index.settings import Precision
from sapbert.protocols import Index

Rows = slice | NDArray[np.integer[Any]]
ROUNDING = 1e-5
"""More than two ways to compute the cosine of unit vectors in float32 ever differ."""
_VECTORS, _SCALES = "vectors.npy", "scales.npy"
_STEPS = {Precision.INT8: 127, Precision.INT4: 7}
_ZERO = 8
"""What stands for 0 in half a byte."""
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
        scales = map_array(folder / _SCALES) if (folder / _SCALES).exists() else None
        return cls(map_array(folder / _VECTORS), scales)

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

    def floats(self, rows: Rows) -> NDArray[np.float32]:
        """Return some of the vectors in float32.  # (rows, dimension)"""
        data = self.data[rows]
        floats = _unpacked(data) if data.dtype == np.uint8 else data.astype(np.float32, copy=False)
        if self.scales is not None:
            floats *= self.scales[rows][:, np.newaxis]
        return floats

    def rank(
        self, mention: NDArray[np.float32], rows: NDArray[np.integer[Any]], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.integer[Any]]]:
        """Return the k best of some rows for one mention: scores, best first, and rows.

        Of equal scores the lower row comes first.  # (k,), (k,)
        """
        if len(rows) > k:
            rough = self.floats(rows) @ mention
            rows = rows[rough >= np.partition(rough, len(rows) - k)[len(rows) - k] - ROUNDING]
        scores = (self.floats(rows) * mention).sum(axis=1)
        order = np.lexsort((rows, -scores))[:k]
        # Rounded, a vector may be longer than one.
        return np.minimum(scores[order], 1), rows[order]


class VectorWriter:
    """Writes the files of `Vectors` piece by piece."""

    def __init__(self, folder: Path, dimension: int, precision: Precision) -> None:
        width = dimension // 2 if precision is Precision.INT4 else dimension
        self._data = ArrayWriter(folder / _VECTORS, _DTYPES[precision], width)
        self._scales = ArrayWriter(folder / _SCALES, np.float32) if precision in _STEPS else None

    def append(self, vectors: Vectors) -> None:
        """Append vectors of the precision that is being written."""
        self._data.append(vectors.data)
        if self._scales is not None and vectors.scales is not None:
            self._scales.append(vectors.scales)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.__exit__(kind, error, trace)
        if self._scales is not None:
            self._scales.__exit__(kind, error, trace)


def quantised(vectors: NDArray[np.float32], precision: Precision) -> Vectors:
    """Return unit vectors as they are stored."""
    if precision not in _STEPS:
        return Vectors(vectors.astype(_DTYPES[precision]), None)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    steps = np.rint(vectors / np.where(largest > 0, largest, 1) * _STEPS[precision])
    lengths = np.linalg.norm(steps, axis=1)
    data = steps.astype(np.int8) if precision is Precision.INT8 else _packed(steps)
    return Vectors(data, (1 / np.maximum(lengths, 1)).astype(np.float32))


def _packed(steps: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Put two components into a byte."""
    if steps.shape[1] % 2:
        raise ConfigError(f"int4 stores dimensions by twos, not {steps.shape[1]}; give an even --dimensions")
    halves: NDArray[np.uint8] = (steps + _ZERO).astype(np.uint8)
    pairs: NDArray[np.uint8] = (halves[:, ::2] << np.uint8(4)) | halves[:, 1::2]
    return pairs


def _unpacked(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    floats = np.empty((len(data), 2 * data.shape[1]), np.float32)
    floats[:, ::2], floats[:, 1::2] = data >> 4, data & 15
    floats -= _ZERO
    return floats


def checked(
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


def no_results(mentions: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and rows of a search that found nothing yet."""
    return np.full((mentions, k), -np.inf, np.float32), np.full((mentions, k), -1, np.int64)
