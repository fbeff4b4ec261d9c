"""Classify wrong links by their texts.

Kinds are checked in a fixed order and the first that applies is used, so every error has exactly one kind and
the shares add up: first errors that no ranker could avoid, then difficult mentions, then how the answer
differs. The rules are heuristics over words, because a dictionary has no hierarchy of concepts: an answer is
"broader" if its words are a proper subset of those of the mention or of a gold name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from sapbert.linking.preprocess.composites import split_composite
from sapbert.text import fold

NEAR_MISS_DEPTH = 5
"""A wrong link is a near miss if a correct candidate is among this many."""
_LONGEST_ABBREVIATION = 10
"""Maximum number of characters of an abbreviation."""
_WORD = re.compile(r"\w+")


class ErrorKind(StrEnum):
    """The kinds of errors, in the order they are checked."""

    ABSENT = "not in dictionary"
    COMPOSITE = "composite"
    ABBREVIATION = "abbreviation"
    UNANSWERED = "no candidate"
    AMBIGUOUS = "ambiguous"
    BROADER = "broader"
    NARROWER = "narrower"
    NEAR_MISS = "near miss"
    OTHER = "other"


DESCRIPTIONS: Mapping[ErrorKind, str] = MappingProxyType(
    {
        ErrorKind.ABSENT: "The dictionary contains none of the gold concepts, so no ranker could be right.",
        ErrorKind.COMPOSITE: "The mention names several concepts, and each of its parts must be right.",
        ErrorKind.ABBREVIATION: "The mention contains an abbreviation that is not in any name of the gold "
        "concept. Expand abbreviations with the definitions in the document.",
        ErrorKind.UNANSWERED: "No name was similar enough to become a candidate.",
        ErrorKind.AMBIGUOUS: "Except for plurals and word order, the mention is a name of another concept. "
        "Only the context or the annotation guidelines can decide.",
        ErrorKind.BROADER: "All words of the answer are in the mention, or in a gold name, but some are "
        "missing: the answer lost a modifier.",
        ErrorKind.NARROWER: "The answer has all words of the mention, or of a gold name, and others: it "
        "added a modifier.",
        ErrorKind.NEAR_MISS: "None of the above, and the gold concept is among the first "
        f"{NEAR_MISS_DEPTH} candidates: a reranker could correct it.",
        ErrorKind.OTHER: "None of the above: the mention and the gold names have too little in common for "
        "this ranker.",
    }
)
"""One description per kind, for reports."""


class ErrorCase(NamedTuple):
    """A mention that was linked wrongly."""

    raw: str
    """As written in the corpus."""
    parts: Sequence[str]
    """As searched: folded; several texts for a composite mention."""
    answers: Sequence[str | None]
    """Name of the best candidate of each part; None if a part has no candidate."""
    gold: Sequence[str]
    """All names of the gold concepts in the dictionary, folded."""
    rank: int | None
    """Rank of the first correct candidate; None if there is none."""


def classify_error(case: ErrorCase) -> ErrorKind:
    """Return the first kind that applies."""
    return next((kind for kind, applies in _RULES if applies(case)), ErrorKind.OTHER)


def _absent(case: ErrorCase) -> bool:
    return not case.gold


def _composite(case: ErrorCase) -> bool:
    return len(case.parts) > 1 or any(len(split_composite(text)) > 1 for text in (case.raw, *case.parts))


def _abbreviation(case: ErrorCase) -> bool:
    """Whether the searched text contains an abbreviation that is not a word of a gold name."""
    (text,) = case.parts
    gold_words = [_words(name) for name in case.gold]
    abbreviations = {fold(short) for short in _abbreviations(case.raw)}
    # Some corpora are lowercase; there, only the initials of a gold name reveal an abbreviation.
    if len(text) > 1 and any(text == "".join(word[0] for word in gold) for gold in gold_words):
        abbreviations.add(text)
    return not abbreviations.intersection(_words(text)) <= {word for gold in gold_words for word in gold}


def _unanswered(case: ErrorCase) -> bool:
    return case.answers[0] is None


def _ambiguous(case: ErrorCase) -> bool:
    return _stems(case.answers[0] or "") == _stems(case.parts[0])


def _broader(case: ErrorCase, texts: Sequence[str]) -> bool:
    answer = _stems(case.answers[0] or "")
    return bool(answer) and any(answer < _stems(text) for text in texts)


def _narrower(case: ErrorCase, texts: Sequence[str]) -> bool:
    answer = _stems(case.answers[0] or "")
    return any(words and words < answer for words in map(_stems, texts))


def _near_miss(case: ErrorCase) -> bool:
    return case.rank is not None and case.rank <= NEAR_MISS_DEPTH


_RULES: tuple[tuple[ErrorKind, Callable[[ErrorCase], bool]], ...] = (
    (ErrorKind.ABSENT, _absent),
    (ErrorKind.COMPOSITE, _composite),
    (ErrorKind.ABBREVIATION, _abbreviation),
    (ErrorKind.UNANSWERED, _unanswered),
    (ErrorKind.AMBIGUOUS, _ambiguous),
    # The words of the mention are checked before those of the gold names.
    (ErrorKind.BROADER, lambda case: _broader(case, case.parts)),
    (ErrorKind.NARROWER, lambda case: _narrower(case, case.parts)),
    (ErrorKind.BROADER, lambda case: _broader(case, case.gold)),
    (ErrorKind.NARROWER, lambda case: _narrower(case, case.gold)),
    (ErrorKind.NEAR_MISS, _near_miss),
)


def _abbreviations(raw: str) -> list[str]:
    """Words with two capitals, or with a capital and a digit; none if the whole text is in capitals."""
    words = _words(raw)
    if raw.isupper() and len(words) > 1:
        return []
    return [word for word in words if 1 < len(word) <= _LONGEST_ABBREVIATION and _is_abbreviation(word)]


def _is_abbreviation(word: str) -> bool:
    capitals = sum(character.isupper() for character in word)
    return capitals > 1 or (capitals == 1 and any(character.isdigit() for character in word))


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _stems(name: str) -> frozenset[str]:
    """The set of words of a name, with a plural "s" removed."""
    return frozenset(word.removesuffix("s") if len(word) > 3 else word for word in _words(name))
