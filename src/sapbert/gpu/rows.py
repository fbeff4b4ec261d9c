"""Lay names into rows of one width, several to a row, so that a GPU always gets the same few shapes.

A name has nine tokens on average. Padded to the longest, most of a rectangle is padding; end to end without
any, every batch has a shape of its own, which no captured graph can take. Rows of 64 tokens hold seven names
on average and are 96 % full in a batch of training, 99 % in a large one.

Names of one length are alike to a row, so only how many there are of each is looked at: a row is filled with
the longest names that fit, and as many rows in the same way as there are names for. Each such pattern uses up
a length, so a few dozen place 512 names or 32,768 alike, without a loop over names. Needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sapbert.tokens.batching import TokenRows
from sapbert.tokens.pooling import Pooling

WIDTH = 64
"""Tokens of a row."""
Number = TypeVar("Number", np.int32, np.int64, np.float32)
PADDING = -1
"""Stands for the name of a token that belongs to none."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Names in rows, end to end; a token knows its name, so that attention can keep names apart."""

    packed: NDArray[np.int32]
    """All that is told of them in one array, which is sent to a device or between processes at once: token
    ids, places, numbers of names and weights, one a token, then picks, one a name."""
    tokens: int
    """Places for tokens: rows times width."""
    width: int

    @classmethod
    def of(
        cls, tokens: TokenRows, pooling: Pooling, *, pad_id: int, width: int = WIDTH, multiple: int = 1
    ) -> Rows:
        """Lay all names into rows, whose number is rounded up to a multiple of `multiple`."""
        lengths = tokens.lengths
        starts, rows = _place(lengths, width)
        size = -(-rows // multiple) * multiple * width
        name = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        position = np.arange(len(name)) - tokens.offsets[name]
        place = starts[name] + position
        picks, weights = _pooled(tokens, name, pooling)
        return cls._packed(
            _spread(tokens.ids, place, size, pad_id),
            _spread(position, place, size, 0),
            _spread(name, place, size, PADDING),
            _spread(weights, place, size, 0),
            starts + picks,
            width,
        )

    @classmethod
    def _packed(
        cls,
        ids: NDArray[np.integer[Any]],
        positions: NDArray[np.integer[Any]],
        names: NDArray[np.integer[Any]],
        weights: NDArray[np.float32],
        picks: NDArray[np.integer[Any]],
        width: int,
    ) -> Rows:
        parts = (ids, positions, names, weights.view(np.int32), picks)
        return cls(np.concatenate(parts, dtype=np.int32, casting="same_kind"), len(ids), width)

    @property
    def ids(self) -> NDArray[np.int32]:
        """Token ids.  # (rows * width,)"""
        return self.packed[: self.tokens]

    @property
    def positions(self) -> NDArray[np.int32]:
        """Place of each token in its name.  # (rows * width,)"""
        return self.packed[self.tokens : 2 * self.tokens]

    @property
    def names(self) -> NDArray[np.int32]:
        """Number of the name of each token, `PADDING` where there is none.  # (rows * width,)"""
        return self.packed[2 * self.tokens : 3 * self.tokens]

    @property
    def weights(self) -> NDArray[np.float32]:
        """What each token counts in the mean of its name, where a mean is taken.  # (rows * width,)"""
        return self.packed[3 * self.tokens : 4 * self.tokens].view(np.float32)

    @property
    def picks(self) -> NDArray[np.int32]:
        """Where the token lies that stands for each name, where one does.  # (names,)"""
        return self.packed[4 * self.tokens :]

    def __len__(self) -> int:
        return self.tokens // self.width

    def cut(self, rows: int) -> Iterator[tuple[NDArray[np.int64], Rows]]:
        """Yield at most so many rows at a time, with the numbers that their names have in all of them."""
        order = np.argsort(self.picks)
        borders = np.searchsorted(self.picks[order], np.arange(0, len(self.ids) + 1, rows * self.width))
        borders = np.append(borders, len(order))
        # The last place is that of no name.
        local = np.full(len(order) + 1, PADDING, np.int32)
        local[order] = np.arange(len(order))
        for number, start in enumerate(range(0, len(self.ids), rows * self.width)):
            part = slice(start, start + rows * self.width)
            first, last = borders[number], borders[number + 1]
            names = local[self.names[part]]
            yield (
                order[first:last],
                Rows._packed(
                    self.ids[part],
                    self.positions[part],
                    np.where(names == PADDING, PADDING, names - first),
                    self.weights[part],
                    self.picks[order[first:last]] - start,
                    self.width,
                ),
            )


def _place(lengths: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], int]:
    """Return where each name starts in the rows laid end to end, and how many rows there are."""
    if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= width:
        raise ValueError(f"a name in rows of {width} has from 1 to {width} tokens")
    order = np.argsort(lengths, kind="stable")
    counts = np.bincount(lengths, minlength=width + 1)
    used = np.cumsum(counts) - counts
    starts = np.empty(len(lengths), np.int64)
    row = 0
    for pattern, times in _patterns(counts.tolist()):
        begin = np.arange(row, row + times)[:, None] * width
        for length, number in pattern.items():
            names = order[used[length] : used[length] + times * number]
            starts[names] = (begin + np.arange(number) * length).reshape(-1)
            used[length] += times * number
            begin = begin + number * length
        row += times
    return starts, row


def _patterns(counts: list[int]) -> Iterator[tuple[dict[int, int], int]]:
    """Yield how many names of each length go into a row, and into how many rows; uses `counts` up."""
    width = len(counts) - 1
    left = sum(1 << length for length, count in enumerate(counts) if count)
    while left:
        space, pattern, fitting = width, {}, left
        while fitting := fitting & ((2 << space) - 1):
            length = fitting.bit_length() - 1
            pattern[length] = min(space // length, counts[length])
            space -= length * pattern[length]
            fitting ^= 1 << length
        times = min(counts[length] // number for length, number in pattern.items())
        for length, number in pattern.items():
            counts[length] -= number * times
            if not counts[length]:
                left ^= 1 << length
        yield pattern, times


def _pooled(
    tokens: TokenRows, name: NDArray[np.int32], pooling: Pooling
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return which token of each name stands for it, and what each token counts in the mean of its name."""
    count = len(tokens.lengths)
    if pooling is Pooling.CLS:
        return np.zeros(count, np.int64), np.zeros(len(name), np.float32)
    if pooling is Pooling.MEAN:
        return np.zeros(count, np.int64), (1 / tokens.lengths[name]).astype(np.float32)
    own = ~tokens.special
    numbers = np.bincount(name[own], minlength=count)
    if pooling is Pooling.FIRST:
        found = np.zeros(count, np.int64)
        # Of several values for one name the last is kept, so they come from the last token to the first.
        places = np.flatnonzero(own)[::-1]
        found[name[places]] = places - tokens.offsets[name[places]]
        return found, np.zeros(len(name), np.float32)
    if pooling is Pooling.NO_SPECIAL:
        counted = own | (numbers == 0)[name]
        weights = counted / np.where(numbers == 0, tokens.lengths, numbers)[name]
        return np.zeros(count, np.int64), weights.astype(np.float32)
    raise ValueError(f"{pooling} counts padding, which rows have none of")


def _spread(values: NDArray[Number], place: NDArray[np.int64], size: int, rest: float) -> NDArray[Number]:
    """Put values in their places and `rest` in the others.  # (size,)"""
    spread = np.full(size, rest, values.dtype)
    spread[place] = values
    return spread
