"""Arrays on disk: many strings in one, and arrays written piece by piece.

Nothing here is parsed or copied on opening: files are mapped into memory, so fifteen million strings open as
fast as fifteen, and processes that open the same file share its pages. Strings that were written in order can
be found by bisection; that needs no hash table in memory, and none on disk to go stale.

Who maps a file without comparing its checksum may believe a damaged one. So numbers that lead to others are
looked at first: all of them where they are few, else pieces spread over the array.
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

_FEW = 1 << 20
"""Numbers of an array that are all looked at when it is mapped, in some milliseconds."""
_PIECES, _PIECE = 16, 1 << 14
"""What is looked at of a longer one: no more places than a slow disk finds at once."""
_LAST_BYTE = 0xF4
"""UTF-8 has none above."""
Offsets = NDArray[np.signedinteger[Any]]
"""Where each row begins, and the last ends."""


def damaged(path: Path, problem: str) -> ArtifactError:
    """Return the error to raise for a file of an artifact."""
    return ArtifactError(
        f"{path} is damaged: {problem}; make the artifact again (`sapbert show` compares all its files)"
    )


def map_array(
    path: Path, *dtypes: type[np.generic], shape: tuple[int | None, ...] | None = None
) -> NDArray[Any]:
    """Map the array in a `.npy` file into memory, to be read only.

    It must be of one of `dtypes` and of this `shape`, where they are given; None stands for any length.
    """
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError) as error:
        # A header is a piece of Python, so it may be wrong in as many ways.
        raise damaged(path, "it holds no array") from error
    # Cutting a piece from numpy's own class of mapped arrays takes five times as long as from this view.
    array = np.asarray(mapped)
    wanted = array.shape if shape is None else shape
    if array.ndim != len(wanted) or any(
        rows not in (None, found) for rows, found in zip(wanted, array.shape, strict=True)
    ):
        raise damaged(path, f"its shape is {array.shape} instead of {wanted}")
    if dtypes and array.dtype not in dtypes:
        raise damaged(path, f"it holds {array.dtype} instead of {dtypes[0].__name__}")
    return array


def map_numbers(path: Path, *dtypes: type[np.generic], rows: int | None, below: int) -> NDArray[Any]:
    """Map numbers, each of which is the place of something that there are `below` of."""
    numbers = map_array(path, *dtypes, shape=(rows,))
    require_within(path, numbers, 0, below - 1)
    return numbers


def offset_type(most: int) -> type[np.int32 | np.int64]:
    """The smaller integers that can say where rows begin in something of length `most`."""
    # Not unsigned ones, whose differences numpy would make huge or turn into floats.
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


def map_offsets(path: Path, *, rows: int | None, end: int) -> Offsets:
    """Map where each row begins in something of length `end`."""
    offsets = map_array(path, np.int64, np.int32, shape=(None if rows is None else rows + 1,))
    looked_at = _spread(offsets)
    if not len(offsets) or (offsets[0], offsets[-1]) != (0, end):
        raise damaged(path, f"rows do not go from 0 to {end}")
    if (looked_at[1:] < looked_at[:-1]).any():
        raise damaged(path, "a row ends before it begins")
    return offsets


def require_within(path: Path, array: NDArray[Any], least: float, most: float) -> None:
    """Refuse an array whose numbers are not what they can be."""
    looked_at = _spread(array)
    if len(array) and not (least <= looked_at.min() and looked_at.max() <= most):
        raise damaged(path, f"it holds numbers that are not between {least} and {most}")


def _spread(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or pieces from its beginning to its end."""
    if len(array) <= _FEW:
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
        # For each byte of the result, how far it has moved from its place.
        moved = np.repeat(stops - ends, stops - starts)
        return _decode(self.data[np.arange(len(moved)) + moved], ends)

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
        """Return the first row that is not below `text`, of strings that are in order of their bytes."""
        return bisect_left(range(len(self)), text, key=self._encoded)

    def rows_of(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each of `texts`, -1 where it is not here; the strings must be in order."""
        rows = np.full(len(texts), -1, np.int64)
        for number, text in enumerate(texts):
            # Half a surrogate pair, which JSON can carry, is no text that a vocabulary holds.
            wanted = text.encode(errors="surrogatepass")
            row = self.position(wanted)
            if row < len(self) and self._encoded(row) == wanted:
                rows[number] = row
        return rows

    def _encoded(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()


def _decode(data: NDArray[np.uint8], ends: Offsets) -> list[str]:
    """Cut UTF-8 bytes at `ends`."""
    content = data.tobytes()
    return [content[start:end].decode() for start, end in pairwise([0, *ends.tolist()])]


class ArrayWriter:
    """Writes a `.npy` file piece by piece, so that an array of any size passes through little memory."""

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
        # numpy leaves room for the first dimension to grow, so a header can be rewritten in place.
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
        """Begin both files; offsets are of `dtype`, which must hold the number of all bytes."""
        super().__init__()
        self._data = self.enter_context(ArrayWriter(data, np.uint8))
        self._offsets = self.enter_context(ArrayWriter(offsets, dtype))
        self._offsets.append(np.zeros(1, np.int64))

    @property
    def rows(self) -> int:
        """Strings written so far."""
        return self._offsets.rows - 1

    def append(self, data: bytes, lengths: NDArray[np.integer[Any]]) -> None:
        """Append strings: their bytes one after the other, and how many each has."""
        self._offsets.append(np.cumsum(lengths, dtype=np.int64) + self._data.rows)
        self._data.append(data)
