"""`Annotator`: find the concepts of an index in running text.

Texts are split into words; all names among their n-grams are found at once (`exact`), each span with its most
probable concept; then abbreviations are resolved, and overlapping spans are ordered. Long texts are processed
in pieces that end with a line or a sentence, so that memory does not grow with them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from sapbert.annotation.abbreviations import defined_abbreviations, occurrences
from sapbert.annotation.annotation import AnnotatedText, Annotation
from sapbert.annotation.context.annotate import add_context
from sapbert.annotation.context.rules import ContextRules
from sapbert.annotation.exact import Concept, ExactLayer, Span
from sapbert.annotation.filters import annotation_masks
from sapbert.annotation.lexicons import open_lexicon
from sapbert.annotation.settings import AnnotateSettings
from sapbert.annotation.variants import ADJECTIVE, composites_with, nouns_of
from sapbert.defaults import DEFAULT, resolve_default
from sapbert.index.lexicon.lexicon import Lexicon
from sapbert.index.lexicon.ngrams import NgramHashes
from sapbert.index.lexicon.words import Splitter
from sapbert.index.name_table import NameTable
from sapbert.linking.linker import Linker

BATCH = 128
"""Texts annotated together."""
PIECE = 100_000
"""Characters of a text that are annotated at a time."""
_MAX_CACHED: Final = 1 << 16
_ADJECTIVE: Final = 0.7
"""Factor of the confidence of an adjective: "diabetic" is not always about diabetes."""
DEFAULTS: Final = AnnotateSettings()


class Annotator:
    """Finds the concepts of an index in running text."""

    def __init__(self, linker: Linker, lexicon: Lexicon, settings: AnnotateSettings = DEFAULTS) -> None:
        self.linker = linker
        self.settings = settings
        self._splitter = Splitter()
        self._rules = ContextRules.open()
        self._fields = lru_cache(_MAX_CACHED)(self._fields_of)
        self._whole = lru_cache(_MAX_CACHED)(self._concept_of)
        masks = annotation_masks(linker.name_table, settings)
        self.lexicon = lexicon
        self._exact = ExactLayer(lexicon, linker.name_table, masks)

    @classmethod
    def open(
        cls, path: Path | str = DEFAULT, settings: AnnotateSettings = DEFAULTS, *, threads: int | None = None
    ) -> Self:
        """Open an index written by `sapbert index`, or the bundled MeSH index."""
        linker = Linker.open(path, threads=threads)
        lexicon = open_lexicon(resolve_default(path, "index"), linker.name_table, linker.fingerprint)
        return cls(linker, lexicon, settings)

    def annotate(self, texts: Sequence[str]) -> list[AnnotatedText]:
        """Return the annotations of each text."""
        if isinstance(texts, str):
            raise TypeError("annotate takes a list of texts, got a string; put it into a list")
        return list(self.stream(texts))

    def stream(self, texts: Iterable[str]) -> Iterator[AnnotatedText]:
        """Yield the annotations of each text; only a batch of texts is in memory."""
        remaining = iter(texts)
        while batch := list(islice(remaining, BATCH)):
            pieces = [(number, offset) for number, text in enumerate(batch) for offset in _pieces(text)]
            found: list[list[Annotation]] = [[] for _ in batch]
            for first in range(0, len(pieces), BATCH):
                part = pieces[first : first + BATCH]
                spans = [batch[number][start:end] for number, (start, end) in part]
                for (number, (start, _)), ordered in zip(part, self._annotate(spans), strict=True):
                    found[number].extend(_shift(ordered, start))
            yield from map(AnnotatedText, batch, map(tuple, found))

    def _annotate(self, texts: list[str]) -> Iterator[list[Annotation]]:
        words = self._splitter.split(texts)
        by_text: list[list[Span]] = [[] for _ in texts]
        for span in self._exact.find(texts, words, NgramHashes(words)):
            by_text[span.text].append(span)
        found = [self._finish(text, spans) for text, spans in zip(texts, by_text, strict=True)]
        yield from add_context(self._rules, texts, words, found) if self.settings.context else found

    def _finish(self, text: str, spans: list[Span]) -> list[Annotation]:
        """Resolve abbreviations, drop improbable spans, and mark or drop nested ones."""
        found = [self._annotation(text, span) for span in spans]
        if self.settings.abbreviations and (defined := defined_abbreviations(text)):
            found = [annotation for annotation in found if annotation.mention not in defined]
            for short, long in defined.items():
                found += self._abbreviated(text, short, long)
        found = [one for one in found if one.confidence >= self.settings.min_confidence]
        found += [*self._adjectives(text, found), *self._composites(text, found)]
        return resolve_overlaps(found, nested=self.settings.nested)

    def _adjectives(self, text: str, found: Sequence[Annotation]) -> Iterator[Annotation]:
        """Yield adjectives of names, where no name was found."""
        taken = {place for one in found for place in range(one.start, one.end)}
        for match in ADJECTIVE.finditer(text):
            concept = None if match.start() in taken else self._concept_of_adjective(match[0].lower())
            if concept is not None and concept.confidence >= self.settings.min_confidence:
                yield self._annotation(text, Span(0, *match.span(), concept))

    def _composites(self, text: str, found: Sequence[Annotation]) -> Iterator[Annotation]:
        """Yield the concepts of "breast and ovarian cancer", each with the whole span."""
        for one in found:
            if " " not in one.mention or text[one.start - 1 : one.start] not in (" ", "/"):
                continue
            for start, parts in composites_with(text, one.start, one.end):
                concepts = [self._whole(part) for part in parts]
                if all(part is not None and part.confidence >= 0.5 for part in concepts):
                    spans = (Span(0, start, one.end, part) for part in concepts if part is not None)
                    yield from (self._annotation(text, span) for span in spans)
                    break

    def _concept_of_adjective(self, adjective: str) -> Concept | None:
        for noun in nouns_of(adjective):
            if (concept := self._whole(noun)) is not None:
                return concept._replace(same_spelling=False, confidence=concept.confidence * _ADJECTIVE)
        return None

    def _concept_of(self, mention: str) -> Concept | None:
        """Return the concept of a mention that as a whole has the words of a name."""
        return self._exact.concept_of(mention, self._splitter.content_hashes(mention))

    def _abbreviated(self, text: str, short: str, long: str) -> Iterator[Annotation]:
        """Yield a short form as its long form, also with the word after it: "VHL disease"."""
        alone = self._whole(long)
        for start, end, after in occurrences(text, short):
            following = text[end:after].lstrip(" )]")
            together = self._whole(f"{long} {following}") if following else None
            concept, stop = (together, after) if together is not None else (alone, end)
            if concept is not None:
                yield replace(self._annotation(text, Span(0, start, stop, concept)), expanded=long)

    def _annotation(self, text: str, span: Span) -> Annotation:
        return Annotation(span.start, span.end, text[span.start : span.end], **self._fields(span.concept))

    def _fields_of(self, concept: Concept) -> dict[str, Any]:
        """Return the fields of an annotation that do not depend on its place."""
        table = self.linker.name_table
        return {
            "concept_id": table.concepts[concept.number],
            "preferred_name": table.preferred[concept.number],
            "matched_name": table.texts[concept.row],
            "matched_by": "exact" if concept.same_spelling else "words",
            "score": 1.0,
            "confidence": round(concept.confidence, 4),
            "other_concept_ids": tuple(table.concepts[number] for number in concept.others),
            "types": _types(table, concept.number),
        }


def resolve_overlaps(found: Iterable[Annotation], *, nested: bool) -> list[Annotation]:
    """Order annotations, mark those inside others, and drop what is redundant.

    A span inside a span of the same concept is always dropped. Without `nested`, of overlapping spans the
    longest is kept.
    """
    ordered = sorted(found, key=lambda one: (one.start, -one.end, -one.confidence))
    kept: list[Annotation] = []
    for one in ordered:
        around = [
            other for other in kept[-_MAX_OVERLAPPING:] if other.start <= one.start and one.end <= other.end
        ]
        if any(other.concept_id == one.concept_id for other in around):
            continue
        kept.append(replace(one, nested=True) if around else one)
    return kept if nested else longest(kept)


_MAX_OVERLAPPING = 64


def longest(ordered: Sequence[Annotation]) -> list[Annotation]:
    """Return annotations that do not overlap, unless their spans are equal: the longest, then the first."""
    taken: list[tuple[int, int]] = []
    kept = []
    for one in sorted(ordered, key=lambda one: (one.start - one.end, one.start)):
        span = (one.start, one.end)
        place = bisect_left(taken, span)
        free = (place == 0 or taken[place - 1][1] <= one.start) and (
            place == len(taken) or one.end <= taken[place][0]
        )
        if free:
            taken.insert(place, span)
        if free or taken[place : place + 1] == [span]:
            kept.append(one)
    return sorted(kept, key=lambda one: one.start)


def _types(table: NameTable, concept: int) -> tuple[str, ...]:
    numbers = table.type_numbers[table.type_offsets[concept] : table.type_offsets[concept + 1]]
    return tuple(table.types[number] for number in numbers.tolist())


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the pieces of a text; they end with a line, a sentence or a word."""
    start = 0
    while len(text) - start > PIECE:
        tail = text[start + PIECE // 2 : start + PIECE]
        cut = max(tail.rfind("\n"), -1) + 1 or max(tail.rfind(". "), -1) + 1 or tail.rfind(" ") + 1
        end = start + PIECE // 2 + cut if cut else start + PIECE
        yield start, end
        start = end
    yield start, len(text)


def _shift(annotations: Iterable[Annotation], offset: int) -> Iterable[Annotation]:
    if not offset:
        return annotations
    return (
        replace(
            one,
            start=one.start + offset,
            end=one.end + offset,
            context=tuple(
                trigger._replace(start=trigger.start + offset, end=trigger.end + offset)
                for trigger in one.context
            ),
        )
        for one in annotations
    )
