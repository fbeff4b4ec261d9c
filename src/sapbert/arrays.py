"""Arrays on disk: many strings in one array, and arrays written piece by piece.

Files are memory-mapped and neither parsed nor copied when they are opened, so fifteen million strings open as
fast as fifteen, and processes that open the same file share its pages. Sorted strings are found by binary
search, without a hash table in memory or on disk.

A file may be mapped without comparing its checksum and may be damaged. Therefore numbers that point to other
data are checked first: all of them if there are few, otherwise pieces spread over the array.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.errors import ArtifactError

_FULL_CHECK = 1 << 20
"""Arrays up to this length are checked completely when they are mapped, in some milliseconds."""
_PIECES, _PIECE = 16, 1 << 14
"""Of longer arrays so many pieces of this length are checked; a slow disk can seek to few places."""
_LAST_BYTE = 0xF4
"""The largest byte in UTF-8."""
Offsets = NDArray[np.signedinteger[Any]]
"""Where each row starts, and where the last one ends."""


def damaged(path: Path, problem: str) -> ArtifactError:
    """Return the error to raise for a file of an artifact."""
    return ArtifactError(
        f"{path} is damaged: {problem}; make the artifact again (`sapbert show` compares all its files)"
    )


def map_array(
    path: Path, *dtypes: type[np.generic], shape: tuple[int | None, ...] | None = None
) -> NDArray[Any]:
    """Memory-map the array in a `.npy` file, read-only.

    It must have one of `dtypes` and this `shape`, if given; None means any length.
    """
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError) as error:
        # The header is parsed as Python, so many errors are possible.
        raise damaged(path, "it contains no array") from error
    # Slicing the memmap class of numpy takes five times as long as slicing this view.
    array = np.asarray(mapped)
    expected = array.shape if shape is None else shape
    if array.ndim != len(expected) or any(
        rows not in (None, found) for rows, found in zip(expected, array.shape, strict=True)
    ):
        raise damaged(path, f"its shape is {array.shape} instead of {expected}")
    if dtypes and array.dtype not in dtypes:
        raise damaged(path, f"it contains {array.dtype} instead of {dtypes[0].__name__}")
    return array


def map_numbers(path: Path, *dtypes: type[np.generic], rows: int | None, below: int) -> NDArray[Any]:
    """Map numbers, each of which is an index into something of length `below`."""
    numbers = map_array(path, *dtypes, shape=(rows,))
    require_within(path, numbers, 0, below - 1)
    return numbers


def offset_type(most: int) -> type[np.int32 | np.int64]:
    """Return the smallest integer type for offsets into something of length `most`."""
    # Not unsigned integers: numpy would make their differences huge or convert them to floats.
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


def map_offsets(path: Path, *, rows: int | None, end: int) -> Offsets:
    """Map the offsets of rows in something of length `end`."""
    offsets = map_array(path, np.int64, np.int32, shape=(None if rows is None else rows + 1,))
    checked = _spread(offsets)
    if not len(offsets) or (offsets[0], offsets[-1]) != (0, end):
        raise damaged(path, f"rows do not go from 0 to {end}")
    if (checked[1:] < checked[:-1]).any():
        raise damaged(path, "a row ends before it begins")
    return offsets


def require_within(path: Path, array: NDArray[Any], least: float, most: float) -> None:
    """Refuse an array with numbers outside the possible range."""
    checked = _spread(array)
    if len(array) and not (least <= checked.min() and checked.max() <= most):
        raise damaged(path, f"it contains numbers that are not between {least} and {most}")


def _spread(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or pieces of it, evenly spaced."""
    if len(array) <= _FULL_CHECK:
        return array
    starts = np.linspace(0, len(array) - _PIECE, _PIECES).astype(np.int64)
    return np.concatenate([array[start : start + _PIECE] for start in starts])


@dataclass(frozen=True, slots=True)
class Texts:
    """Many strings in one array."""

    data: NDArray[np.uint8]
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        row = range(len(self))[row]
        return self._encoded(row).decode()

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> list[str]:
        """Return the strings in `rows`, counted from 0."""
        at = np.asarray(rows, np.int64)
        starts, stops = self.offsets[at], self.offsets[at + 1]
        ends = np.cumsum(stops - starts)
        # For each byte of the result, the distance to its position in `data`.
        distance = np.repeat(stops - ends, stops - starts)
        return _decode(self.data[np.arange(len(distance)) + distance], ends)

    def span(self, start: int, stop: int) -> list[str]:
        """Return the strings from row `start` to row `stop`, faster than one by one."""
        begin = self.offsets[start]
        return _decode(self.data[begin : self.offsets[stop]], self.offsets[start + 1 : stop + 1] - begin)

    @classmethod
    def open(cls, folder: Path, name: str, *, rows: int | None = None) -> Self:
        """Map the strings written to `folder` as `NAME.npy` and `NAME_offsets.npy`, `rows` of them."""
        data = map_array(folder / f"{name}.npy", np.uint8, shape=(None,))
        require_within(folder / f"{name}.npy", data, 1, _LAST_BYTE)
        return cls(data, map_offsets(folder / f"{name}_offsets.npy", rows=rows, end=len(data)))

    def position(self, text: bytes) -> int:
        """Return the first row that is not less than `text`; the strings must be sorted by their bytes."""
        return bisect_left(range(len(self)), text, key=self._encoded)

    def rows_of(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each of `texts`, -1 if it does not occur; the strings must be sorted."""
        rows = np.full(len(texts), -1, np.int64)
        for number, text in enumerate(texts):
            # A lone surrogate, which JSON can contain, is not part of any vocabulary.
            expected = text.encode(errors="surrogatepass")
            row = self.position(expected)
            if row < len(self) and self._encoded(row) == expected:
                rows[number] = row
        return rows

    def _encoded(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()


def _decode(data: NDArray[np.uint8], ends: Offsets) -> list[str]:
    """Split UTF-8 bytes at `ends`."""
    content = data.tobytes()
    return [content[start:end].decode() for start, end in pairwise([0, *ends.tolist()])]


class ArrayWriter:
    """Writes a `.npy` file piece by piece, so that an array may be larger than memory."""

    def __init__(self, path: Path, dtype: type[np.generic], width: int | None = None) -> None:
        self.rows = 0
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._row_shape = () if width is None else (width,)
        self._file = open(path, "wb")
        self._write_header()

    def append(self, array: NDArray[Any] | bytes) -> None:
        """Append rows."""
        rows = np.frombuffer(array, np.uint8) if isinstance(array, bytes) else array
        self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self.rows += len(rows)

    def _write_header(self) -> None:
        shape = (self.rows, *self._row_shape)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        # numpy reserves space in the header for the first dimension, so it can be rewritten in place.
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._file.seek(0)
            self._write_header()
        self._file.close()


class TextsWriter(ExitStack):
    """Writes the two files of `Texts` piece by piece."""

    def __init__(self, data: Path, offsets: Path, dtype: type[np.int32 | np.int64] = np.int64) -> None:
        """Open both files; `dtype` is the type of the offsets and must hold the total number of bytes."""
        super().__init__()
        self._data = self.enter_context(ArrayWriter(data, np.uint8))
        self._offsets = self.enter_context(ArrayWriter(offsets, dtype))
        self._offsets.append(np.zeros(1, np.int64))

    @property
    def rows(self) -> int:
        """Strings written so far."""
        return self._offsets.rows - 1

    def append(self, data: bytes, lengths: NDArray[np.integer[Any]]) -> None:
        """Append strings: their concatenated bytes and the length of each in bytes."""
        self._offsets.append(np.cumsum(lengths, dtype=np.int64) + self._data.rows)
        self._data.append(data)
