"""Search the nearest concepts of mentions, as deep into the nearest names as necessary.

An index breaks ties by row, but candidates are ordered by score and then by identifier. So the search gets
deeper until it has k concepts and the last row found scores lower than the last of them: only then can no
other row change the result. Scores are rounded first, since equal vectors may differ in the last bits.
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
_MAX_CELLS = 1 << 22
"""Scores in memory at a time: mentions times depth of the search."""


class NameSearch(Protocol):
    """Finds the names nearest to mentions: by vectors (`DenseSearch`), or with n-grams (`HybridSearch`)."""

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
        """Same as `protocols.Index.search`, given the folded text and the vector of each mention."""
        ...


@dataclass(frozen=True, slots=True)
class DenseSearch:
    """Finds names by vectors only."""

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


class FilterMasks(NamedTuple):
    """What the filters on concepts and names allow; each mask is None without filters."""

    rows: NDArray[np.bool_] | None
    links: NDArray[np.bool_] | None
    concepts: NDArray[np.bool_] | None
    row_count: int
    """Number of rows allowed."""


class _RankedConcepts(NamedTuple):
    """Concepts of the rows found, each with its best row; ordered by mention, score and identifier."""

    mentions: NDArray[np.int64]
    concepts: NDArray[np.int64]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]


class ConceptHit(NamedTuple):
    """A concept near a mention."""

    concept: int
    """Number of the concept in the index."""
    score: float
    row: int
    """Row of its best name."""


def filter_masks(
    name_table: NameTable,
    types: Sequence[str] = (),
    sources: Sequence[str] = (),
    kinds: Sequence[str] = (),
    prefixes: Sequence[str] = (),
    within: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> FilterMasks:
    """Return the masks of these filters."""
    selection = name_table.select(
        types=types, sources=sources, kinds=kinds, prefixes=prefixes, within=within, exclude=exclude
    )
    if selection is None:
        return FilterMasks(None, None, None, len(name_table))
    concepts = np.zeros(len(name_table.concepts), np.bool_)
    concepts[name_table.link_concepts[selection.links]] = True
    return FilterMasks(selection.rows, selection.links, concepts, int(selection.rows.sum()))


def nearest_concepts(
    search: NameSearch,
    name_table: NameTable,
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    k: int,
    masks: FilterMasks,
) -> list[list[ConceptHit]]:
    """Return the best k concepts of each mention, best first.  # vectors: (texts, dimension)"""
    best: list[list[ConceptHit]] = [[] for _ in texts]
    k = min(k, len(name_table.concepts))
    pending = list(range(len(texts)))
    depth = min(max(64, 8 * k), masks.row_count)
    while pending and depth:
        unfinished = []
        step = max(1, _MAX_CELLS // depth)
        for start in range(0, len(pending), step):
            batch = pending[start : start + step]
            batch_texts = [texts[number] for number in batch]
            scores, rows = search.search(batch_texts, vectors[batch], depth, allowed=masks.rows)
            bounds = _score_bounds(scores, rows, complete=depth >= masks.row_count)
            ranked = _concepts_of_rows(name_table, scores, rows, masks, k)
            for number, bound, hits in zip(batch, bounds, ranked, strict=True):
                best[number] = hits
                if bound is not None and (len(hits) < k or hits[k - 1].score <= bound):
                    unfinished.append(number)
        pending = unfinished
        depth = min(4 * depth, masks.row_count)
    return best


def _concepts_of_rows(
    name_table: NameTable, scores: NDArray[np.float32], rows: NDArray[np.int64], masks: FilterMasks, k: int
) -> Iterator[list[ConceptHit]]:
    """Yield the best k concepts of each mention, best first.  # scores, rows: (mentions, depth)"""
    ranked = _rank(name_table, scores, rows, masks.links)
    bounds = np.searchsorted(ranked.mentions, np.arange(len(rows) + 1)).tolist()
    for start, stop in pairwise(bounds):
        best = slice(start, min(stop, start + k))
        columns = (ranked.concepts[best], ranked.scores[best], ranked.rows[best])
        yield list(map(ConceptHit, *(column.tolist() for column in columns)))


def _score_bounds(
    scores: NDArray[np.float32], rows: NDArray[np.int64], *, complete: bool
) -> list[float | None]:
    """Return for each mention the highest score a row not found can have; None if all rows were found."""
    if complete:
        return [None] * len(rows)
    lowest = scores[:, -1].astype(np.float64).round(_DECIMALS).tolist()
    return [score if row >= 0 else None for score, row in zip(lowest, rows[:, -1].tolist(), strict=True)]


def _rank(
    name_table: NameTable,
    scores: NDArray[np.float32],
    rows: NDArray[np.int64],
    allowed: NDArray[np.bool_] | None,
) -> _RankedConcepts:
    """Rank the concepts of the rows by their best name; of names with equal scores, the first row counts.

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
    return _RankedConcepts(mention[best], concept[best], score[best], row[best])
