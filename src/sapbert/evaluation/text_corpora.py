"""Compare annotations of running text with those of a corpus: strict, relaxed and per document.

| level | an annotation is correct if |
|---|---|
| strict | its offsets and its concept are those of a gold mention |
| relaxed | the same, where each offset may differ by one character |
| document | the document has a gold mention of its concept, wherever it is |

Precision counts annotations, recall counts gold mentions; at document level both count distinct concepts. A
gold mention with several ids is found by any of them. Gold mentions without a concept are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any, NamedTuple

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.annotator import Annotator
from sapbert.annotation.input.pubtator import Document
from sapbert.curies import parse_curie
from sapbert.index.name_table import NameTable

LEVELS = ("strict", "relaxed", "document")
_LAYERS: dict[str, tuple[str, ...] | None] = {"exact": ("exact",), "words": ("exact", "words"), "all": None}
_MAX_DIFFERENCE = 1
_SEPARATOR = re.compile(r"[|+,;]")
_MESH, _OMIM = re.compile(r"[CD]\d+"), re.compile(r"\d+")


class GoldMention(NamedTuple):
    """A mention as the corpus annotates it."""

    start: int
    end: int
    concept_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Counts:
    """What was found, and how much of it is right."""

    annotated: int
    correct: int
    """Annotations that are right."""
    gold: int
    found: int
    """Gold mentions that were found."""

    @property
    def precision(self) -> float:
        """Fraction of the annotations that are correct."""
        return self.correct / self.annotated if self.annotated else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the gold mentions that were found."""
        return self.found / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.annotated + other.annotated,
            self.correct + other.correct,
            self.gold + other.gold,
            self.found + other.found,
        )


def gold_mentions(
    document: Document,
    *,
    types: Collection[str] = (),
    prefix: str | None = None,
    name_table: NameTable | None = None,
) -> list[GoldMention]:
    """Return the gold mentions of a document that have a concept, of these types if any are given.

    Ids without a prefix get `prefix`, or `mesh` and `omim` by their form. With a `name_table`, aliases are
    replaced by the ids of its concepts.
    """
    gold = []
    for annotation in document.annotations:
        ids = frozenset(filter(None, (_curie(one, prefix) for one in _SEPARATOR.split(annotation.ids))))
        if name_table is not None:
            resolved = name_table.resolve(sorted(ids))
            ids = frozenset(one for curie in ids for one in resolved.get(curie, (curie,)))
        if ids and (not types or annotation.type in types):
            gold.append(GoldMention(annotation.start, annotation.end, ids))
    return gold


def _curie(text: str, prefix: str | None) -> str | None:
    text = text.strip().lstrip("*")
    if text in ("", "-", "-1"):
        return None
    if ":" not in text and prefix is None:
        prefix = "mesh" if _MESH.fullmatch(text) else "omim" if _OMIM.fullmatch(text) else None
    return parse_curie(text, prefix=prefix)


def compare(gold: Sequence[GoldMention], found: Iterable[Annotation]) -> dict[str, Counts]:
    """Compare the annotations of one document with its gold mentions, at each of `LEVELS`."""
    annotated = list(found)
    counts = {
        level: _count_spans(gold, annotated, slack)
        for level, slack in zip(LEVELS, (0, _MAX_DIFFERENCE), strict=False)
    }
    concepts = {one.concept_id for one in annotated}
    possible = {concept for mention in gold for concept in mention.concept_ids}
    wanted = {mention.concept_ids for mention in gold}
    counts["document"] = Counts(
        len(concepts),
        len(concepts & possible),
        len(wanted),
        sum(bool(ids & concepts) for ids in wanted),
    )
    return counts


def _count_spans(gold: Sequence[GoldMention], found: Sequence[Annotation], slack: int) -> Counts:
    correct: set[int] = set()
    matched: set[int] = set()
    for place, one in enumerate(found):
        for number, mention in enumerate(gold):
            near = abs(one.start - mention.start) <= slack and abs(one.end - mention.end) <= slack
            if near and one.concept_id in mention.concept_ids:
                correct.add(place)
                matched.add(number)
    return Counts(len(found), len(correct), len(gold), len(matched))


def total(counts: Iterable[dict[str, Counts]]) -> dict[str, Counts]:
    """Add up the counts of all documents."""
    zero = Counts(0, 0, 0, 0)
    sums = dict.fromkeys(LEVELS, zero)
    for document in counts:
        sums = {level: sums[level] + document[level] for level in LEVELS}
    return sums


@dataclass(frozen=True, slots=True)
class TextEvaluation:
    """Accuracy and speed of an annotator on a corpus."""

    documents: int
    mentions: int
    """Gold mentions with a concept."""
    scores: dict[str, dict[str, Counts]]
    """Layer (`exact`: equal spelling; `words`: also other forms; `all`) → level → counts."""
    cpu_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return precision, recall and F1 by layer and level."""
        return {
            "documents": self.documents,
            "mentions": self.mentions,
            "documents_per_cpu_second": round(self.documents / max(self.cpu_seconds, 1e-9)),
            "scores": {
                layer: {
                    level: {
                        "precision": round(counts.precision, 4),
                        "recall": round(counts.recall, 4),
                        "f1": round(counts.f1, 4),
                    }
                    for level, counts in levels.items()
                }
                for layer, levels in self.scores.items()
            },
        }


def evaluate_texts(
    documents: Iterable[Document],
    annotator: Annotator,
    *,
    types: Collection[str] = (),
    prefix: str | None = None,
) -> TextEvaluation:
    """Annotate the texts of a corpus and compare with its gold mentions of these types."""
    corpus = list(documents)
    table = annotator.linker.name_table
    gold = [gold_mentions(one, types=types, prefix=prefix, name_table=table) for one in corpus]
    start = process_time()
    found = annotator.annotate([document.text for document in corpus])
    seconds = process_time() - start
    scores = {
        layer: total(
            compare(mentions, [one for one in result.annotations if kinds is None or one.matched_by in kinds])
            for mentions, result in zip(gold, found, strict=True)
        )
        for layer, kinds in _LAYERS.items()
    }
    return TextEvaluation(len(corpus), sum(map(len, gold)), scores, seconds)
