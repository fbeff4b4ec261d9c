"""Arrange names in rows of one width, several names per row, so that a GPU gets few different shapes.

A name has nine tokens on average. Padded to the longest name, most of a rectangle is padding; packed end to
end, every batch has a different shape, which CUDA graphs cannot handle. Rows of 64 tokens contain seven names
on average and are 96 % full in a training batch, 99 % in a large one.

Names of one length are interchangeable, so only the number of names per length matters: a row is filled with
the longest names that fit, and this pattern is repeated for as many rows as there are names. Each pattern
uses up one length, so a few dozen patterns place 512 or 32,768 names without a loop over names. Needs only
numpy.
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
"""Tokens per row."""
Number = TypeVar("Number", np.int32, np.int64, np.float32)
PADDING = -1
"""Name number of a padding token."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Names in rows. Each token has the number of its name, to which attention is limited."""

    packed: NDArray[np.int32]
    """Everything in one array, so that it is copied at once: token ids, positions, name numbers and weights,
    one per token, then picks, one per name."""
    tokens: int
    """Rows times width."""
    width: int

    @classmethod
    def of(
        cls, tokens: TokenRows, pooling: Pooling, *, pad_id: int, width: int = WIDTH, multiple: int = 1
    ) -> Rows:
        """Arrange all names; the number of rows is rounded up to a multiple of `multiple`."""
        lengths = tokens.lengths
        starts, rows = _place(lengths, width)
        size = -(-rows // multiple) * multiple * width
        name = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        position = np.arange(len(name)) - tokens.offsets[name]
        index = starts[name] + position
        picks, weights = _pooling_inputs(tokens, name, pooling)
        return cls._pack(
            _scatter(tokens.ids, index, size, pad_id),
            _scatter(position, index, size, 0),
            _scatter(name, index, size, PADDING),
            _scatter(weights, index, size, 0),
            starts + picks,
            width,
        )

    @classmethod
    def _pack(
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
        """Position of each token in its name.  # (rows * width,)"""
        return self.packed[self.tokens : 2 * self.tokens]

    @property
    def names(self) -> NDArray[np.int32]:
        """Number of the name of each token, or `PADDING`.  # (rows * width,)"""
        return self.packed[2 * self.tokens : 3 * self.tokens]

    @property
    def weights(self) -> NDArray[np.float32]:
        """Weight of each token in the mean of its name, for mean pooling.  # (rows * width,)"""
        return self.packed[3 * self.tokens : 4 * self.tokens].view(np.float32)

    @property
    def picks(self) -> NDArray[np.int32]:
        """Index of the token that represents each name, for poolings that use one token.  # (names,)"""
        return self.packed[4 * self.tokens :]

    def __len__(self) -> int:
        return self.tokens // self.width

    def cut(self, rows: int) -> Iterator[tuple[NDArray[np.int64], Rows]]:
        """Yield parts of at most `rows` rows, each with the original numbers of its names."""
        order = np.argsort(self.picks)
        borders = np.searchsorted(self.picks[order], np.arange(0, len(self.ids) + 1, rows * self.width))
        borders = np.append(borders, len(order))
        # The last entry is for padding, whose number is -1.
        local = np.full(len(order) + 1, PADDING, np.int32)
        local[order] = np.arange(len(order))
        for number, start in enumerate(range(0, len(self.ids), rows * self.width)):
            part = slice(start, start + rows * self.width)
            first, last = borders[number], borders[number + 1]
            names = local[self.names[part]]
            yield (
                order[first:last],
                Rows._pack(
                    self.ids[part],
                    self.positions[part],
                    np.where(names == PADDING, PADDING, names - first),
                    self.weights[part],
                    self.picks[order[first:last]] - start,
                    self.width,
                ),
            )


def _place(lengths: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], int]:
    """Return where each name starts, counted over consecutive rows, and the number of rows."""
    if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= width:
        raise ValueError(f"a name in rows of {width} tokens must have 1 to {width} tokens")
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
    """Yield the number of names per length in a row and the number of such rows; empties `counts`."""
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


def _pooling_inputs(
    tokens: TokenRows, name: NDArray[np.int32], pooling: Pooling
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the picked token of each name, and the weight of each token in the mean of its name."""
    count = len(tokens.lengths)
    if pooling is Pooling.CLS:
        return np.zeros(count, np.int64), np.zeros(len(name), np.float32)
    if pooling is Pooling.MEAN:
        return np.zeros(count, np.int64), (1 / tokens.lengths[name]).astype(np.float32)
    of_name = ~tokens.special
    sizes = np.bincount(name[of_name], minlength=count)
    if pooling is Pooling.FIRST:
        first = np.zeros(count, np.int64)
        # Assignment keeps the last of several values per name, so go from the last token to the first.
        indices = np.flatnonzero(of_name)[::-1]
        first[name[indices]] = indices - tokens.offsets[name[indices]]
        return first, np.zeros(len(name), np.float32)
    if pooling is Pooling.NO_SPECIAL:
        counted = of_name | (sizes == 0)[name]
        weights = counted / np.where(sizes == 0, tokens.lengths, sizes)[name]
        return np.zeros(count, np.int64), weights.astype(np.float32)
    raise ValueError(f"{pooling} pooling depends on padding, which rows do not have")


def _scatter(values: NDArray[Number], index: NDArray[np.int64], size: int, fill: float) -> NDArray[Number]:
    """Return an array of `fill` with `values` at `index`.  # (size,)"""
    scattered = np.full(size, fill, values.dtype)
    scattered[index] = values
    return scattered
