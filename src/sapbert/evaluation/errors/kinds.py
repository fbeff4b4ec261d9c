"""What kind of error a wrong link is, told from its texts alone.

The kinds are asked for in one order and the first that fits counts, so every error has one kind and shares
add up: first what no ranker could have found, then what is difficult about the mention, then how the answer
missed. They are rules of thumb over words, because a dictionary knows no hierarchy of concepts: a broader
answer is one whose words are some of the mention's or of a gold name's.
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
"""A right candidate this far up is a near miss."""
_LONGEST_SHORT = 10
"""Characters of a short form."""
_WORD = re.compile(r"\w+")


class ErrorKind(StrEnum):
    """The kinds, in the order they are asked for."""

    ABSENT = "absent"
    COMPOSITE = "composite"
    ABBREVIATION = "abbreviation"
    UNANSWERED = "unanswered"
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
    """As the corpus has it."""
    parts: Sequence[str]
    """As it was searched: folded, one or, of a composite mention, several."""
    answers: Sequence[str | None]
    """The best candidate's name of each part; None where there is no candidate."""
    gold: Sequence[str]
    """All names that the dictionary has for the gold concepts, folded."""
    rank: int | None
    """Where the first right candidate stands, if any does."""


def classify_error(case: ErrorCase) -> ErrorKind:
    """Return the first kind that fits."""
    return next((kind for kind, fits in _RULES if fits(case)), ErrorKind.OTHER)


def _absent(case: ErrorCase) -> bool:
    return not case.gold


def _composite(case: ErrorCase) -> bool:
    return len(case.parts) > 1 or any(len(split_composite(text)) > 1 for text in (case.raw, *case.parts))


def _abbreviation(case: ErrorCase) -> bool:
    """Whether a short form was searched that is no word of a gold name."""
    (text,) = case.parts
    golds = [_words(name) for name in case.gold]
    shorts = {fold(short) for short in _short_forms(case.raw)}
    # Some corpora are written in small letters, and only initials betray a short form.
    if len(text) > 1 and any(text == "".join(word[0] for word in gold) for gold in golds):
        shorts.add(text)
    return not shorts.intersection(_words(text)) <= {word for gold in golds for word in gold}


def _unanswered(case: ErrorCase) -> bool:
    return case.answers[0] is None


def _ambiguous(case: ErrorCase) -> bool:
    return _stems(case.answers[0] or "") == _stems(case.parts[0])


def _broader(case: ErrorCase, meant: Sequence[str]) -> bool:
    answer = _stems(case.answers[0] or "")
    return bool(answer) and any(answer < _stems(text) for text in meant)


def _narrower(case: ErrorCase, meant: Sequence[str]) -> bool:
    answer = _stems(case.answers[0] or "")
    return any(words and words < answer for words in map(_stems, meant))


def _near_miss(case: ErrorCase) -> bool:
    return case.rank is not None and case.rank <= NEAR_MISS_DEPTH


_RULES: tuple[tuple[ErrorKind, Callable[[ErrorCase], bool]], ...] = (
    (ErrorKind.ABSENT, _absent),
    (ErrorKind.COMPOSITE, _composite),
    (ErrorKind.ABBREVIATION, _abbreviation),
    (ErrorKind.UNANSWERED, _unanswered),
    (ErrorKind.AMBIGUOUS, _ambiguous),
    # What the mention says counts more than one of many gold names.
    (ErrorKind.BROADER, lambda case: _broader(case, case.parts)),
    (ErrorKind.NARROWER, lambda case: _narrower(case, case.parts)),
    (ErrorKind.BROADER, lambda case: _broader(case, case.gold)),
    (ErrorKind.NARROWER, lambda case: _narrower(case, case.gold)),
    (ErrorKind.NEAR_MISS, _near_miss),
)


def _short_forms(raw: str) -> list[str]:
    """Words with two capitals, or a capital and a digit; none where all of several words are shouted."""
    words = _words(raw)
    if raw.isupper() and len(words) > 1:
        return []
    return [word for word in words if 1 < len(word) <= _LONGEST_SHORT and _is_short(word)]


def _is_short(word: str) -> bool:
    capitals = sum(character.isupper() for character in word)
    return capitals > 1 or (capitals == 1 and any(character.isdigit() for character in word))


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _stems(name: str) -> frozenset[str]:
    """The words of a name, whatever their order; plural and singular are one."""
    return frozenset(word.removesuffix("s") if len(word) > 3 else word for word in _words(name))
