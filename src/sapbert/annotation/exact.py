"""Spans that have the words of a name, each with its best concept.

Equal spans have equal results, so results are cached by the text of the span: in a large corpus most spans
repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapbert.annotation.decision import Match, probability
from sapbert.index.lexicon.lexicon import Hits, Lexicon
from sapbert.index.lexicon.ngrams import NgramHashes
from sapbert.index.lexicon.words import Words
from sapbert.index.name_table import NameTable
from sapbert.linking.search import FilterMasks
from sapbert.text import fold

_MAX_CACHED = 1 << 18


class Concept(NamedTuple):
    """The best concept of a span."""

    number: int
    """Number in the name table."""
    row: int
    """Row of the name."""
    same_spelling: bool
    """Whether span and name are equal after folding."""
    confidence: float
    others: tuple[int, ...]
    """Other concepts that fit as well."""


class Span(NamedTuple):
    """A span of a text with its concept."""

    text: int
    start: int
    end: int
    concept: Concept


class ExactLayer:
    """Finds the names of an index in texts."""

    def __init__(self, lexicon: Lexicon, name_table: NameTable, masks: FilterMasks) -> None:
        self._lexicon = lexicon
        self._name_table = name_table
        self._masks = masks
        self._cache: dict[str, Concept | None] = {}

    def find(self, texts: Sequence[str], words: Words, hashes: NgramHashes) -> Iterator[Span]:
        """Yield the spans of all names, in no particular order."""
        hits = self._allowed(self._lexicon.find(words, hashes))
        for text, start, end, rows, ordered in _by_span(words, hits):
            mention = texts[text][start:end]
            if mention in self._cache:
                concept = self._cache[mention]
            else:
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                concept = self._cache[mention] = self._best(mention, rows, ordered)
            if concept is not None:
                yield Span(text, start, end, concept)

    def concept_of(self, mention: str, hashes: Sequence[int]) -> Concept | None:
        """Return the concept of a mention with these content words; None if no name has them."""
        found = self._lexicon.rows_of(hashes) if hashes else []
        if self._masks.rows is not None:
            found = [(row, ordered) for row, ordered in found if self._masks.rows[row]]
        return self._best(mention, [row for row, _ in found], [ordered for _, ordered in found])

    def _allowed(self, hits: Hits) -> Hits:
        if self._masks.rows is None:
            return hits
        return hits.take(self._masks.rows[hits.row])

    def _best(self, mention: str, rows: Sequence[int], ordered: Sequence[bool]) -> Concept | None:
        """Return the most probable concept; of equally probable ones that whose preferred name it is."""
        table, folded = self._name_table, fold(mention)
        ranked = []
        for row, in_order in zip(rows, ordered, strict=True):
            name = table.texts[row]
            confidence = probability(Match(mention, name, in_order))
            for number in self._concepts(row):
                preferred = fold(table.preferred[number]) == table.folded[row]
                ranked.append((-confidence, not preferred, number, row, table.folded[row] == folded))
        if not ranked:
            return None
        ranked.sort()
        best, _, number, row, same = ranked[0]
        others = dict.fromkeys(rank[2] for rank in ranked if rank[0] == best and rank[2] != number)
        return Concept(number, row, same, -best, tuple(others))

    def _concepts(self, row: int) -> list[int]:
        links = self._name_table.links_of(row)
        concepts: NDArray[np.int32] = self._name_table.link_concepts[links]
        if self._masks.links is not None:
            concepts = concepts[self._masks.links[links]]
        numbers: list[int] = np.unique(concepts).tolist()
        return numbers


def _by_span(words: Words, hits: Hits) -> Iterator[tuple[int, int, int, list[int], list[bool]]]:
    """Yield text, start and end of each span, and its rows."""
    order = np.lexsort((hits.last, hits.first))
    first, last = hits.first[order], hits.last[order]
    rows, ordered = hits.row[order].tolist(), hits.ordered[order].tolist()
    new = np.ones(len(order), np.bool_)
    new[1:] = (first[1:] != first[:-1]) | (last[1:] != last[:-1])
    begin = np.flatnonzero(new)
    bounds = [*begin.tolist(), len(order)]
    columns = (words.text[first[begin]], words.start[first[begin]], words.end[last[begin]])
    spans = zip(*(column.tolist() for column in columns), strict=True)
    for place, (text, start, end) in enumerate(spans):
        here = slice(bounds[place], bounds[place + 1])
        yield text, start, end, rows[here], ordered[here]
