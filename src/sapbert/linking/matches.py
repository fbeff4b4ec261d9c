"""Matches: the names found for a mention, before they become candidates.

A match is a few numbers. Only the best k of a mention get their texts from the index, since a ranker looks at
fifty of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.index.name_table import NameTable
from sapbert.linking.reranking import rerank_scores
from sapbert.linking.search import FilterMasks
from sapbert.protocols import Reranker, RerankRequest

_DECIMALS = 6


class Match(NamedTuple):
    """A name of a concept that was found for a mention."""

    concept: int
    """Number of the concept in the index."""
    score: float
    """Score of the search; 1 if the name equals the mention."""
    row: int
    """Row of the name; -1 for an added mention, which is equal to the mention."""
    exact: bool = False
    added: str = ""
    """The added mention as it was spelled."""
    rank_score: float | None = None
    """Score of the ranker, if there is one."""


def exact_matches(
    name_table: NameTable, added: Mapping[str, Mapping[int, str]], texts: Sequence[str], masks: FilterMasks
) -> Iterator[list[Match]]:
    """Yield for each folded mention the concepts with this name.

    The most frequent meaning of an abbreviation is first, but after concepts whose own name it is; then they
    are in order of identifiers. `added` are further names by text and concept.
    """
    for text, row in zip(texts, name_table.rows_of(texts).tolist(), strict=True):
        matches = {
            concept: Match(concept, 1.0, -1, exact=True, added=name)
            for concept, name in added.get(text, {}).items()
        }
        if masks.concepts is not None:
            matches = {concept: match for concept, match in matches.items() if masks.concepts[concept]}
        order = dict.fromkeys(matches, (0, 0))
        if row >= 0:
            for concept, kind, count in _meanings(name_table, row, masks.links):
                matches[concept] = Match(concept, 1.0, row, exact=True)
                order[concept] = min(order.get(concept, (kind, -count)), (kind, -count))
        yield [matches[concept] for concept in sorted(matches, key=lambda each: (order[each], each))]


def _meanings(
    name_table: NameTable, row: int, allowed: NDArray[np.bool_] | None
) -> Iterator[tuple[int, int, int]]:
    """Yield the concept, the number of the kind and the count of each allowed link of a row."""
    links = name_table.links_of(row)
    columns = (name_table.link_concepts, name_table.link_kinds, name_table.link_counts)
    kept = slice(None) if allowed is None else allowed[links]
    yield from zip(*(column[links][kept].tolist() for column in columns), strict=True)


def rank_matches(
    ranker: Reranker,
    name_table: NameTable,
    texts: Sequence[str],
    lists: Sequence[Sequence[Match]],
    masks: FilterMasks,
) -> list[list[Match]]:
    """Order the matches of each mention by the ranker; exact matches stay first."""
    scores = rerank_scores(ranker, rank_requests(name_table, texts, lists, masks))
    return [_ordered(matches, ranked) for matches, ranked in zip(lists, scores, strict=True)]


def _ordered(matches: Sequence[Match], scores: NDArray[np.float32]) -> list[Match]:
    rounded = scores.astype(np.float64).round(_DECIMALS).tolist()
    ranked = [match._replace(rank_score=score) for match, score in zip(matches, rounded, strict=True)]
    return sorted(ranked, key=lambda match: (not match.exact, -(match.rank_score or 0.0)))


def rank_requests(
    name_table: NameTable, texts: Sequence[str], lists: Sequence[Sequence[Match]], masks: FilterMasks
) -> list[RerankRequest]:
    """Return what a ranker is given: folded mentions and names, scores, kinds and counts."""
    matches = [match for each in lists for match in each]
    rows = np.array([match.row for match in matches], np.int64)
    concepts = np.array([match.concept for match in matches], np.int64)
    names = name_table.folded.take(np.maximum(rows, 0)) if matches else []
    kinds, counts = _kinds_and_counts(name_table, rows, concepts, masks.links)
    bounds = np.cumsum([0, *map(len, lists)]).tolist()
    return [
        RerankRequest(
            text,
            tuple(
                text if match.row < 0 else name for match, name in zip(each, names[start:stop], strict=True)
            ),
            tuple(match.score for match in each),
            kinds=tuple(kinds[start:stop]),
            counts=tuple(counts[start:stop]),
        )
        for text, each, (start, stop) in zip(texts, lists, pairwise(bounds), strict=True)
    ]


def _kinds_and_counts(
    name_table: NameTable,
    rows: NDArray[np.int64],
    concepts: NDArray[np.int64],
    allowed: NDArray[np.bool_] | None,
) -> tuple[list[str], list[int]]:
    """Return the kind and the count of each row as a name of a concept: the first kind if sources differ."""
    numbers = np.zeros(len(rows), np.int64)
    counts = np.zeros(len(rows), np.int64)
    if len(name_table.kinds) > 1:
        found = np.flatnonzero(rows >= 0)
        place, link = name_table.links_behind(rows[found])
        named = name_table.link_concepts[link] == concepts[found][place]
        if allowed is not None:
            named &= allowed[link]
        place, link = found[place[named]], link[named]
        numbers[place] = len(name_table.kinds) - 1
        np.minimum.at(numbers, place, name_table.link_kinds[link])
        np.maximum.at(counts, place, name_table.link_counts[link].astype(np.int64))
    kinds = np.array(name_table.kinds, np.object_)
    return kinds[numbers].tolist(), counts.tolist()
