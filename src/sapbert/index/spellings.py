"""The spellings of names, stored as the difference to their folded form.

Most names differ from their folded form only in capital letters. So one bit per byte of the folded names says
whether a letter is a capital, an eighth of the space of the text; other spellings (`ß`, typographic quotes)
are stored as text. Files, beside those of the folded names:

| file | type | what |
|---|---|---|
| `capitals.npy` | uint8 | bits, one per byte of `folded.npy`; the first byte of a capital letter is set |
| `other_rows.npy` | int32 | rows whose spelling is not made by capitals, ascending |
| `others` | texts | the spellings of these rows |
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, Texts, TextsWriter, map_array, map_numbers

if TYPE_CHECKING:
    import polars as pl

CAPITALS, OTHER_ROWS, OTHERS = "capitals.npy", "other_rows.npy", "others"
_CONTINUATION, _CONTINUATION_MASK = 0x80, 0xC0
"""Bytes of UTF-8 that continue a character."""
_PLANE = 1 << 16
"""Letters above this code point have no capitals in any name; their spellings are stored as text."""


@dataclass(frozen=True, slots=True)
class Spellings:
    """The spelling of each row, as `arrays.Texts`."""

    folded: Texts
    capitals: NDArray[np.uint8]
    other_rows: NDArray[np.int32]
    others: Texts

    @classmethod
    def open(cls, folder: Path, folded: Texts) -> Self:
        """Map the files written by `SpellingWriter`."""
        others = Texts.open(folder, OTHERS)
        rows = map_numbers(folder / OTHER_ROWS, np.int32, rows=len(others), below=len(folded))
        bits = map_array(folder / CAPITALS, np.uint8, shape=((len(folded.data) + 7) // 8,))
        return cls(folded, bits, rows, others)

    def __len__(self) -> int:
        return len(self.folded)

    def __getitem__(self, row: int) -> str:
        row = range(len(self))[row]
        place = bisect_left(self.other_rows, row)
        if place < len(self.other_rows) and self.other_rows[place] == row:
            return self.others[place]
        start, stop = int(self.folded.offsets[row]), int(self.folded.offsets[row + 1])
        raw = self.folded.data[start:stop].tobytes()
        # One integer for all bits: a name has few capitals, and numpy is slow for so little data.
        bits = int.from_bytes(self.capitals[start // 8 : (stop + 7) // 8].tobytes(), "little") >> start % 8
        return _with_capitals(raw, bits & ((1 << (stop - start)) - 1))

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> list[str]:
        """Return the spellings of `rows`."""
        return [self[int(row)] for row in rows]

    def span(self, start: int, stop: int) -> list[str]:
        """Return the spellings from row `start` to row `stop`."""
        return [self[row] for row in range(start, stop)]


def _with_capitals(raw: bytes, bits: int) -> str:
    """Return the text of UTF-8 bytes, with a capital for each letter whose first byte has its bit set."""
    text = raw.decode()
    letters = list(text)
    while bits:
        place = (bits & -bits).bit_length() - 1
        bits &= bits - 1
        number = place if len(text) == len(raw) else len(raw[:place].decode())
        letters[number] = letters[number].upper()
    return "".join(letters)


class SpellingWriter(ExitStack):
    """Writes the files of `Spellings` piece by piece."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._capitals = self.enter_context(ArrayWriter(folder / CAPITALS, np.uint8))
        self._other_rows = self.enter_context(ArrayWriter(folder / OTHER_ROWS, np.int32))
        paths = (folder / f"{OTHERS}.npy", folder / f"{OTHERS}_offsets.npy")
        self._others = self.enter_context(TextsWriter(*paths))
        self._rows = 0
        self._rest = np.empty(0, np.bool_)
        """Bits that do not fill a byte yet."""
        self.callback(self._flush)

    def append(self, texts: pl.Series, folded: pl.Series) -> None:
        """Append the spellings of some rows and their folded forms."""
        bits, other = _capital_bits(texts, folded)
        bits = np.concatenate([self._rest, bits])
        whole = len(bits) // 8 * 8
        self._capitals.append(np.packbits(bits[:whole], bitorder="little"))
        self._rest = bits[whole:]
        texts = texts.gather(other)
        self._others.append(texts.str.join("").item().encode(), texts.str.len_bytes().to_numpy())
        self._other_rows.append(other + self._rows)
        self._rows += len(folded)

    def _flush(self) -> None:
        self._capitals.append(np.packbits(self._rest, bitorder="little"))


def _capital_bits(texts: pl.Series, folded: pl.Series) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return a bit per byte of `folded`, and the rows whose text is not `folded` with capitals."""
    lengths = folded.str.len_chars()
    same = texts.str.len_chars() == lengths
    small = _code_points(folded)
    # Rows of another length are taken as equal here, and stored as text.
    spelled = _code_points(texts.zip_with(same, folded))
    differs = spelled != small
    upper = _upper_table()[np.minimum(small, _PLANE - 1)]
    wrong = differs & ((upper != spelled) | (small >= _PLANE))
    row_of = np.repeat(np.arange(len(folded)), lengths.to_numpy())
    is_other = ~same.to_numpy()
    is_other[row_of[wrong]] = True
    data = np.frombuffer(folded.str.join("").item().encode(), np.uint8)
    bits = np.zeros(len(data), np.bool_)
    bits[np.flatnonzero((data & _CONTINUATION_MASK) != _CONTINUATION)] = differs & ~is_other[row_of]
    return bits, np.flatnonzero(is_other)


def _code_points(texts: pl.Series) -> NDArray[np.uint32]:
    return np.frombuffer(texts.str.join("").item().encode("utf-32-le"), np.uint32)


@cache
def _upper_table() -> NDArray[np.uint32]:
    """Return the capital of each code point of the basic plane; itself if that is not one character."""
    capitals = (chr(code).upper() for code in range(_PLANE))
    return np.array([ord(to) if len(to) == 1 else code for code, to in enumerate(capitals)], np.uint32)
