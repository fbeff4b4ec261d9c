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

NEAR = 5
"""A right candidate this far up is a near miss."""
_LONGEST_SHORT = 10
"""Characters of a short form."""
_WORD = re.compile(r"\w+")


class Kind(StrEnum):
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


EXPLAINED: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.ABSENT: "The dictionary has none of the gold concepts: nothing could have found them.",
        Kind.COMPOSITE: "The mention names several concepts at once, and each of its parts must be right.",
        Kind.ABBREVIATION: "The mention holds a short form that no name of the gold concept has: "
        "write it out by its document.",
        Kind.UNANSWERED: "No name was similar enough to be a candidate.",
        Kind.AMBIGUOUS: "The mention is, but for plurals and the order of words, a name of another concept: "
        "only its context, or the annotators' rules, can tell.",
        Kind.BROADER: "The answer lacks words of the mention, or of a gold name, and has no others: a "
        "modifier was lost.",
        Kind.NARROWER: "The answer has all words of the mention, or of a gold name, and more: a modifier was "
        "made up.",
        Kind.NEAR_MISS: f"None of these, and the gold concept is among the first {NEAR} candidates: "
        "reranking could mend it.",
        Kind.OTHER: "None of these: mention and gold names share too little for this ranker.",
    }
)
"""A sentence a kind, for reports."""


class Case(NamedTuple):
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


def kind_of(case: Case) -> Kind:
    """Return the first kind that fits."""
    return next((kind for kind, fits in _RULES if fits(case)), Kind.OTHER)


def _absent(case: Case) -> bool:
    return not case.gold


def _composite(case: Case) -> bool:
    return len(case.parts) > 1 or any(len(split_composite(text)) > 1 for text in (case.raw, *case.parts))


def _abbreviation(case: Case) -> bool:
    """Whether a short form was searched that is no word of a gold name."""
    (text,) = case.parts
    golds = [_words(name) for name in case.gold]
    shorts = {fold(short) for short in _short_forms(case.raw)}
    # Some corpora are written in small letters, and only initials betray a short form.
    if len(text) > 1 and any(text == "".join(word[0] for word in gold) for gold in golds):
        shorts.add(text)
    return not shorts.intersection(_words(text)) <= {word for gold in golds for word in gold}


def _unanswered(case: Case) -> bool:
    return case.answers[0] is None


def _ambiguous(case: Case) -> bool:
    return _stems(case.answers[0] or "") == _stems(case.parts[0])


def _broader(case: Case, meant: Sequence[str]) -> bool:
    answer = _stems(case.answers[0] or "")
    return bool(answer) and any(answer < _stems(text) for text in meant)


def _narrower(case: Case, meant: Sequence[str]) -> bool:
    answer = _stems(case.answers[0] or "")
    return any(words and words < answer for words in map(_stems, meant))


def _near_miss(case: Case) -> bool:
    return case.rank is not None and case.rank <= NEAR


_RULES: tuple[tuple[Kind, Callable[[Case], bool]], ...] = (
    (Kind.ABSENT, _absent),
    (Kind.COMPOSITE, _composite),
    (Kind.ABBREVIATION, _abbreviation),
    (Kind.UNANSWERED, _unanswered),
    (Kind.AMBIGUOUS, _ambiguous),
    # What the mention says counts more than one of many gold names.
    (Kind.BROADER, lambda case: _broader(case, case.parts)),
    (Kind.NARROWER, lambda case: _narrower(case, case.parts)),
    (Kind.BROADER, lambda case: _broader(case, case.gold)),
    (Kind.NARROWER, lambda case: _narrower(case, case.gold)),
    (Kind.NEAR_MISS, _near_miss),
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
