"""Group token sequences of many lengths into batches with little or no padding.

Names average ten tokens and a few reach the limit, so a batch of names in input order is mostly padding.
Sorted by length and cut by a token budget instead of a number of rows, batches have almost no padding and
similar cost. Needs only numpy: torch and ONNX Runtime share it.

On a GPU a batch must be large, so lengths are mixed (`plan_batches`). A CPU is as fast with small batches, so
there each batch has one length (`plan_equal_length_batches`): no padding and no mask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

OnProgress = Callable[[int, int], None]
"""Called with the number of distinct names done and their total."""


def plan_batches(
    lengths: Sequence[int] | NDArray[np.int64], *, tokens: int, rows: int
) -> list[NDArray[np.int64]]:
    """Group sequences into batches; each batch is the positions of its members in `lengths`.

    A batch has at most `rows` sequences and, padded to its longest, at most `tokens` tokens; a longer
    sequence is a batch of its own. Longest first, so that insufficient memory fails at once.
    """
    if tokens < 1 or rows < 1:
        raise ValueError(f"tokens and rows are at least 1, got tokens={tokens}, rows={rows}")
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


def plan_equal_length_batches(
    lengths: Sequence[int] | NDArray[np.int64], *, tokens: int
) -> list[NDArray[np.int64]]:
    """Group sequences of equal length into batches of at most `tokens` tokens, or of one sequence."""
    if tokens < 1:
        raise ValueError(f"tokens is at least 1, got {tokens}")
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
    """Encode distinct names, at most `window` at a time, and return vectors in the order of `names`.

    `encode` may take the next names from its iterator before it returns the vectors of earlier ones.

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
    """Token sequences, concatenated."""

    ids: NDArray[np.int64]
    """All token ids.  # (tokens,)"""
    special: NDArray[np.bool_]
    """True for tokens that the tokenizer added, such as [CLS].  # (tokens,)"""
    offsets: NDArray[np.int64]
    """Start of each sequence, and the end of the last.  # (sequences + 1,)"""

    @classmethod
    def of(cls, ids: Iterable[Sequence[int]], special: Iterable[Sequence[int]]) -> TokenRows:
        """Concatenate one list of token ids and one list of special-token flags per sequence."""
        joined, offsets = _join(ids)
        return cls(joined, np.fromiter(chain.from_iterable(special), np.bool_, len(joined)), offsets)

    @classmethod
    def framed(cls, ids: Iterable[Sequence[int]], before: int, after: int) -> TokenRows:
        """Concatenate one list of token ids per sequence; its first and last tokens are special."""
        joined, offsets = _join(ids)
        lengths = np.diff(offsets)
        place = np.arange(len(joined))
        leads = place < np.repeat(offsets[:-1] + before, lengths)
        return cls(joined, leads | (place >= np.repeat(offsets[1:] - after, lengths)), offsets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens per sequence.  # (sequences,)"""
        return np.diff(self.offsets)

    def span(self, start: int, stop: int) -> TokenRows:
        """Return the sequences from `start` to `stop`, as a view."""
        begin, end = self.offsets[start], self.offsets[stop]
        return TokenRows(self.ids[begin:end], self.special[begin:end], self.offsets[start : stop + 1] - begin)

    def pad(self, rows: NDArray[np.int64], *, pad_id: int, width: int | None = None) -> PaddedBatch:
        """Return the sequences in `rows`, padded on the right to `width` or to the longest."""
        lengths = self.lengths[rows]
        column = np.arange(width if width is not None else int(lengths.max(initial=0)))
        real = column < lengths[:, None]  # (rows, width)
        source = (self.offsets[rows][:, None] + column)[real]
        ids = np.full(real.shape, pad_id, np.int64)
        ids[real] = self.ids[source]
        special = np.ones(real.shape, np.bool_)
        special[real] = self.special[source]
        return PaddedBatch(ids, real, special)


def _join(rows: Iterable[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenate lists; return also the start of each, and the end of the last.

    A generator frees each list at once. Thousands of live lists would trigger the garbage collector, which
    then takes longer than everything else here.
    """
    lengths: list[int] = []

    def counted() -> Iterator[Sequence[int]]:
        for row in rows:
            lengths.append(len(row))
            yield row

    joined = np.fromiter(chain.from_iterable(counted()), np.int64)
    return joined, np.cumsum([0, *lengths], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """A batch of sequences, padded to equal length."""

    ids: NDArray[np.int64]
    """Token ids.  # (rows, width)"""
    attention: NDArray[np.bool_]
    """False for padding.  # (rows, width)"""
    special: NDArray[np.bool_]
    """True for padding and for tokens that the tokenizer added.  # (rows, width)"""


def usable_cores() -> int:
    """Return the number of cores that this process may use; in a container, fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
