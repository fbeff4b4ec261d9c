"""From mentions to the nearest concepts: as deep into the nearest names as it takes.

An index breaks ties by row, but candidates are ordered by score and then by identifier. So the search goes
deeper until k concepts are found and the last row found scores below the last of them: only then can no row
left behind change the answer. Scores are rounded first, since equal vectors may differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sapbert.index.name_table import NameTable
from sapbert.linking.candidate import MatchedBy
from sapbert.protocols import Index

_DECIMALS = 6
_CELLS = 1 << 22
"""Rows held at a time: mentions times depth of the search."""


class NameSearch(Protocol):
    """Finds the names nearest to mentions; `DenseSearch`, or one that knows more than vectors."""

    @property
    def matched_by(self) -> MatchedBy:
        """`Candidate.matched_by` of the candidates that this search finds."""
        ...

    def search(
        self,
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `protocols.Index.search`, of mentions known by folded text and by vector."""
        ...


@dataclass(frozen=True, slots=True)
class DenseSearch:
    """Finds names by their vectors alone."""

    index: Index
    matched_by: MatchedBy = "dense"

    def search(
        self,
        texts: Sequence[str],  # noqa: ARG002
        vectors: NDArray[np.float32],
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the nearest rows."""
        return self.index.search(vectors, k, allowed=allowed)


class Scope(NamedTuple):
    """What filters leave; None where nothing is filtered."""

    rows: NDArray[np.bool_] | None
    links: NDArray[np.bool_] | None
    concepts: NDArray[np.bool_] | None
    size: int
    """Rows left."""


class _Ranked(NamedTuple):
    """The concepts behind rows, each with its best name: ordered by mention, score and identifier."""

    mentions: NDArray[np.int64]
    concepts: NDArray[np.int64]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]


class Near(NamedTuple):
    """A concept near a mention."""

    concept: int
    score: float
    row: int
    """Of its best name."""


def scope_of(
    name_table: NameTable, types: Sequence[str], sources: Sequence[str], prefixes: Sequence[str]
) -> Scope:
    """Find what filters leave."""
    selection = name_table.select(types=types, sources=sources, prefixes=prefixes)
    if selection is None:
        return Scope(None, None, None, len(name_table))
    concepts = np.zeros(len(name_table.concepts), np.bool_)
    concepts[name_table.link_concepts[selection.links]] = True
    return Scope(selection.rows, selection.links, concepts, int(selection.rows.sum()))


def nearest_concepts(
    search: NameSearch,
    name_table: NameTable,
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    k: int,
    scope: Scope,
) -> list[list[Near]]:
    """Return the best k concepts of each mention, best first.  # vectors: (texts, dimension)"""
    best: list[list[Near]] = [[] for _ in texts]
    k = min(k, len(name_table.concepts))
    waiting = list(range(len(texts)))
    depth = min(max(64, 8 * k), scope.size)
    while waiting and depth:
        deeper = []
        step = max(1, _CELLS // depth)
        for start in range(0, len(waiting), step):
            some = waiting[start : start + step]
            own = [texts[number] for number in some]
            scores, rows = search.search(own, vectors[some], depth, allowed=scope.rows)
            floors = _floors(scores, rows, whole=depth >= scope.size)
            ranked = _concepts_behind(name_table, scores, rows, scope)
            for number, floor, found in zip(some, floors, ranked, strict=True):
                best[number] = found[:k]
                if floor is not None and (len(found) < k or found[k - 1].score <= floor):
                    deeper.append(number)
        waiting = deeper
        depth = min(4 * depth, scope.size)
    return best


def _concepts_behind(
    name_table: NameTable, scores: NDArray[np.float32], rows: NDArray[np.int64], scope: Scope
) -> Iterator[list[Near]]:
    """Yield the concepts behind the rows of each mention, best first.  # scores, rows: (mentions, depth)"""
    ranked = _rank(name_table, scores, rows, scope.links)
    bounds = np.searchsorted(ranked.mentions, np.arange(len(rows) + 1)).tolist()
    columns = (ranked.concepts.tolist(), ranked.scores.tolist(), ranked.rows.tolist())
    near = list(map(Near, *columns))
    for start, stop in pairwise(bounds):
        yield near[start:stop]


def _floors(scores: NDArray[np.float32], rows: NDArray[np.int64], *, whole: bool) -> list[float | None]:
    """Say of each mention what a row not found may score at most; None where every row was found."""
    if whole:
        return [None] * len(rows)
    lowest = scores[:, -1].astype(np.float64).round(_DECIMALS).tolist()
    return [score if row >= 0 else None for score, row in zip(lowest, rows[:, -1].tolist(), strict=True)]


def _rank(
    name_table: NameTable,
    scores: NDArray[np.float32],
    rows: NDArray[np.int64],
    allowed: NDArray[np.bool_] | None,
) -> _Ranked:
    """Find the concepts behind the rows of some mentions; of each concept the best name, or the first.

    # scores, rows: (mentions, depth); allowed: (links,)
    """
    mention, column = np.nonzero(rows >= 0)
    row = rows[mention, column]
    score = scores[mention, column].astype(np.float64).round(_DECIMALS)
    hit, link = name_table.links_behind(row)
    if allowed is not None:
        hit, link = hit[allowed[link]], link[allowed[link]]
    concept = name_table.link_concepts[link].astype(np.int64)
    mention, score, row = mention[hit], score[hit], row[hit]
    order = np.lexsort((row, -score, concept, mention))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(mention[order]) != 0) | (np.diff(concept[order]) != 0)
    best = order[first]
    best = best[np.lexsort((concept[best], -score[best], mention[best]))]
    return _Ranked(mention[best], concept[best], score[best], row[best])
