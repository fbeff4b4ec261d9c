"""Find the names of an index in running text by hashes of their words.

| file | type | what |
|---|---|---|
| `keys.npy` | uint64 | hash of the words of each name in any order, sorted |
| `orders.npy` | uint32 | hash of the words in order |
| `rows.npy` | int32 | row of the name in the name table |
| `filter.npy` | uint8 | a bit for every possible beginning of a hash: set if a name has it |

All n-grams of a batch of texts are looked up at once. The filter excludes nearly all of them with one memory
access, and a binary search finds the others. The files are memory-mapped, some 20 bytes per name, so
processes share them and opening takes no time. Names without a letter and names with more than ten content
words are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.arrays import ArrayWriter, map_array, map_numbers
from sapbert.errors import ArtifactError
from sapbert.index.lexicon.ngrams import MAX_WORDS, NgramHashes, Ngrams, hash_words
from sapbert.index.lexicon.words import Gap, Splitter, Words
from sapbert.index.name_table import NameTable
from sapbert.progress import Progress, no_progress

LEXICON = "lexicon"
"""Folder of these files in an index artifact."""
VERSION = 1
"""Increased when words are split or hashed in another way; a lexicon with another version is not used."""
_NAMES_PER_PIECE = 200_000
_FILTER_BITS_PER_NAME = 32
_LETTER = re.compile(r"[^\W\d_]")


class Hits(NamedTuple):
    """Names found in texts; each column has one value per pair of a span and a name."""

    first: NDArray[np.int64]
    """Number of the first word of the span in `Words`."""
    last: NDArray[np.int64]
    """Number of the last word."""
    row: NDArray[np.int64]
    """Row of the name in the name table."""
    ordered: NDArray[np.bool_]
    """Whether the name has its words in the order of the span."""

    def take(self, chosen: NDArray[np.bool_]) -> Hits:
        """Return some of the hits."""
        return Hits(self.first[chosen], self.last[chosen], self.row[chosen], self.ordered[chosen])


def write_lexicon(name_table: NameTable, folder: Path, *, progress: Progress = no_progress) -> None:
    """Write the lexicon of a name table to `folder`, which must exist."""
    parts = []
    for start in range(0, len(name_table), _NAMES_PER_PIECE):
        stop = min(start + _NAMES_PER_PIECE, len(name_table))
        parts.append(_hash_names(name_table.texts.span(start, stop), start))
        progress("lexicon", stop, len(name_table))
    keys, orders, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(keys, kind="stable")
    for name, column, dtype in (
        ("keys", keys, np.uint64),
        ("orders", orders, np.uint32),
        ("rows", rows, np.int32),
    ):
        with ArrayWriter(folder / f"{name}.npy", dtype) as writer:
            writer.append(column[order])
    np.save(folder / "filter.npy", _filter(keys))
    np.save(folder / "version.npy", np.array([VERSION], np.int32))


def _hash_names(
    names: Sequence[str], first_row: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64]]:
    """Return both hashes of each name, and its row; without names that are not looked for."""
    words = Splitter().split(names)
    hashes = NgramHashes(words)
    per_name = np.bincount(words.text[hashes.content], minlength=len(names))
    has_letter = np.fromiter((_LETTER.search(name) is not None for name in names), np.bool_, len(names))
    length = np.fromiter(map(len, names), np.int64, len(names))
    chosen = np.flatnonzero((per_name > 0) & (per_name <= MAX_WORDS) & has_letter & (length > 1))
    first = np.cumsum(per_name) - per_name
    ngrams = hashes.hashed(first[chosen], per_name[chosen])
    return ngrams.bag, ngrams.order, chosen + first_row


def _filter(keys: NDArray[np.uint64]) -> NDArray[np.uint8]:
    bits = max(10, int(max(len(keys), 1) * _FILTER_BITS_PER_NAME - 1).bit_length())
    prefix = keys >> np.uint64(64 - bits)
    table = np.zeros(1 << (bits - 3), np.uint8)
    np.bitwise_or.at(table, prefix >> np.uint64(3), _bit(prefix))
    return table


def _bit(prefix: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (prefix & np.uint64(7)).astype(np.uint8))


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The hashes of the names of an index."""

    keys: NDArray[np.uint64]
    orders: NDArray[np.uint32]
    rows: NDArray[np.int32]
    filter: NDArray[np.uint8]

    @classmethod
    def open(cls, folder: Path, *, names: int) -> Lexicon:
        """Map the files written by `write_lexicon` for an index of so many names."""
        version = map_array(folder / "version.npy", np.int32, shape=(1,))[0]
        if version != VERSION:
            raise ArtifactError(f"{folder} has version {version} instead of {VERSION}; make the index again")
        keys = map_array(folder / "keys.npy", np.uint64, shape=(None,))
        return cls(
            keys,
            map_array(folder / "orders.npy", np.uint32, shape=(len(keys),)),
            map_numbers(folder / "rows.npy", np.int32, rows=len(keys), below=names),
            map_array(folder / "filter.npy", np.uint8, shape=(None,)),
        )

    def find(self, words: Words, hashes: NgramHashes | None = None) -> Hits:
        """Return all names in texts, including names inside other names."""
        found = []
        for ngrams in (hashes or NgramHashes(words)).by_length():
            candidates = ngrams.take(self._may_be_names(ngrams.bag))
            candidates = candidates.take(_has_word_boundaries(words, candidates))
            found.append(self._hits(words, candidates))
        if not found:
            none = np.empty(0, np.int64)
            return Hits(none, none, none, np.empty(0, np.bool_))
        return Hits(
            np.concatenate([hits.first for hits in found]),
            np.concatenate([hits.last for hits in found]),
            np.concatenate([hits.row for hits in found]),
            np.concatenate([hits.ordered for hits in found]),
        )

    def rows_of(self, hashes: Sequence[int]) -> list[tuple[int, bool]]:
        """Return the names with exactly these content words: row, and whether in this order."""
        bag, order = hash_words(hashes)
        left = int(np.searchsorted(self.keys, np.uint64(bag), "left"))
        right = int(np.searchsorted(self.keys, np.uint64(bag), "right"))
        rows, orders = self.rows[left:right].tolist(), self.orders[left:right].tolist()
        return [(row, one == order) for row, one in zip(rows, orders, strict=True)]

    def _may_be_names(self, bags: NDArray[np.uint64]) -> NDArray[np.bool_]:
        bits = len(self.filter).bit_length() - 1 + 3
        prefix = bags >> np.uint64(64 - bits)
        found: NDArray[np.bool_] = (self.filter[prefix >> np.uint64(3)] & _bit(prefix)) > 0
        return found

    def _hits(self, words: Words, ngrams: Ngrams) -> Hits:
        """Look up n-grams; a span with a comma, a bracket or a glued digit must have the name's order."""
        left = np.searchsorted(self.keys, ngrams.bag, "left")
        count = np.searchsorted(self.keys, ngrams.bag, "right") - left
        place = np.repeat(np.arange(len(ngrams)), count)
        entry = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count) + left[place]
        ordered = self.orders[entry] == ngrams.order[place]
        special = (words.gap == Gap.COMMA) | (words.gap == Gap.NONE)
        sums = np.cumsum(special)
        plain = sums[ngrams.first] == sums[ngrams.last]
        kept = ordered | plain[place]
        place, entry = place[kept], entry[kept]
        return Hits(ngrams.first[place], ngrams.last[place], self.rows[entry].astype(np.int64), ordered[kept])


def _has_word_boundaries(words: Words, ngrams: Ngrams) -> NDArray[np.bool_]:
    """Return which n-grams neither begin nor end inside a word such as "IL6" or "N-acetylcysteine"."""
    length = words.end - words.start
    before, after = words.gap, np.append(words.gap[1:], np.uint8(Gap.BREAK))
    short_before = np.concatenate([[False], length[:-1] == 1])
    short_after = np.append(length[1:] == 1, False)
    starts = (before != Gap.NONE) & ~((before == Gap.HYPHEN) & short_before)
    ends = (after != Gap.NONE) & ~((after == Gap.HYPHEN) & short_after)
    whole: NDArray[np.bool_] = starts[ngrams.first] & ends[ngrams.last]
    return whole
