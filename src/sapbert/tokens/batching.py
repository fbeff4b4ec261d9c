"""Lay token sequences of many lengths into rectangles with little padding or none.

Names average ten tokens and a few reach the limit, so a batch of names in the order they come is mostly
padding. Sorted by length and cut by a budget of tokens instead of a number of rows, padding all but vanishes
and every batch costs about the same. Needs numpy alone: torch and ONNX Runtime share it.

On a GPU a batch must be large, so lengths are mixed (`plan_batches`). A processor is as fast with small ones,
so there each batch has one length (`plan_equal_batches`): no padding, and no mask to compute with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

OnProgress = Callable[[int, int], None]
"""Is told how many distinct names are done, and of how many."""


def plan_batches(
    lengths: Sequence[int] | NDArray[np.int64], *, tokens: int, rows: int
) -> list[NDArray[np.int64]]:
    """Group sequences into batches; each batch is the positions of its members in `lengths`.

    A batch holds at most `rows` sequences, and its longest times its number at most `tokens`; a sequence
    longer than that makes a batch alone. Longest first, so that memory that does not suffice fails at once.
    """
    if tokens < 1 or rows < 1:
        raise ValueError(f"a batch needs room for one token and one row, got tokens={tokens}, rows={rows}")
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        longest = max(int(sizes[order[start]]), 1)
        stop = start + min(max(tokens // longest, 1), rows)
        batches.append(order[start:stop])
        start = stop
    return batches


def plan_equal_batches(lengths: Sequence[int] | NDArray[np.int64], *, tokens: int) -> list[NDArray[np.int64]]:
    """Group sequences of equal length into batches of at most `tokens` tokens, or of one sequence."""
    if tokens < 1:
        raise ValueError(f"a batch needs room for one token, got tokens={tokens}")
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    borders = np.flatnonzero(np.diff(sizes[order])) + 1
    batches: list[NDArray[np.int64]] = []
    for group in np.split(order, borders):
        step = max(tokens // max(int(sizes[group].max(initial=0)), 1), 1)
        batches.extend(group[start : start + step] for start in range(0, len(group), step))
    return batches


def encode_distinct(
    names: Sequence[str],
    encode: Callable[[Iterator[list[str]]], Iterable[NDArray[np.float32]]],
    *,
    dimension: int,
    window: int,
    on_progress: OnProgress | None = None,
) -> NDArray[np.float32]:
    """Give out distinct names, at most `window` at a time, and put their vectors in the order of `names`.

    `encode` may ask for the next names before it returns the vectors of those it has.

    # (names, dimension)
    """
    if isinstance(names, str):
        raise TypeError("encode takes a sequence of names, got one string")
    places: dict[str, int] = {}
    rows = [places.setdefault(name, len(places)) for name in names]
    distinct = list(places)
    vectors = np.empty((len(distinct), dimension), np.float32)
    done = 0
    for part in encode(distinct[start : start + window] for start in range(0, len(distinct), window)):
        vectors[done : done + len(part)] = part
        done += len(part)
        if on_progress is not None:
            on_progress(done, len(distinct))
    return vectors if len(distinct) == len(rows) else vectors[rows]


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Token sequences end to end, as a tokenizer gave them."""

    ids: NDArray[np.int64]
    """All token ids.  # (tokens,)"""
    special: NDArray[np.bool_]
    """Which of them the tokenizer added, such as [CLS].  # (tokens,)"""
    offsets: NDArray[np.int64]
    """Where each sequence begins, and the end of the last.  # (sequences + 1,)"""

    @classmethod
    def of(cls, ids: Iterable[Sequence[int]], special: Iterable[Sequence[int]]) -> TokenRows:
        """Join one list of token ids and one list of special-token flags a sequence."""
        joined, offsets = _join(ids)
        return cls(joined, np.fromiter(chain.from_iterable(special), np.bool_, len(joined)), offsets)

    @classmethod
    def framed(cls, ids: Iterable[Sequence[int]], before: int, after: int) -> TokenRows:
        """Join one list of token ids a sequence, whose first and last so many are special."""
        joined, offsets = _join(ids)
        lengths = np.diff(offsets)
        place = np.arange(len(joined))
        leads = place < np.repeat(offsets[:-1] + before, lengths)
        return cls(joined, leads | (place >= np.repeat(offsets[1:] - after, lengths)), offsets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence.  # (sequences,)"""
        return np.diff(self.offsets)

    def span(self, start: int, stop: int) -> TokenRows:
        """Return the sequences from `start` to `stop`, as a view."""
        begin, end = self.offsets[start], self.offsets[stop]
        return TokenRows(self.ids[begin:end], self.special[begin:end], self.offsets[start : stop + 1] - begin)

    def pad(self, rows: NDArray[np.int64], *, pad_id: int, width: int | None = None) -> Rectangle:
        """Lay the sequences in `rows` under each other, padded on the right to `width` or to the longest."""
        lengths = self.lengths[rows]
        column = np.arange(width if width is not None else int(lengths.max(initial=0)))
        real = column < lengths[:, None]  # (rows, width)
        source = (self.offsets[rows][:, None] + column)[real]
        ids = np.full(real.shape, pad_id, np.int64)
        ids[real] = self.ids[source]
        special = np.ones(real.shape, np.bool_)
        special[real] = self.special[source]
        return Rectangle(ids, real, special)


def _join(rows: Iterable[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lay lists end to end; returns also where each begins, and the end of the last.

    From a generator no list outlives its turn; thousands at once would set off the garbage collector, which
    then takes longer than all else here.
    """
    lengths: list[int] = []

    def counted() -> Iterator[Sequence[int]]:
        for row in rows:
            lengths.append(len(row))
            yield row

    joined = np.fromiter(chain.from_iterable(counted()), np.int64)
    return joined, np.cumsum([0, *lengths], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One batch of sequences of equal width."""

    ids: NDArray[np.int64]
    """Token ids.  # (rows, width)"""
    attention: NDArray[np.bool_]
    """False for padding.  # (rows, width)"""
    special: NDArray[np.bool_]
    """True for padding and for what the tokenizer added.  # (rows, width)"""


def usable_cores() -> int:
    """Count the cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
