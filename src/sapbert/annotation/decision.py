"""Decide whether a span that has the words of a name is a mention of its concept.

The probability is a logistic function of what can be seen in the span and the name: whether their spelling,
order and capitals are equal, how long they are, and whether the words are common in ordinary English. Two
rules come first, because no weight should outvote them: a name that is written like a symbol ("CAT", "MS")
must have its capitals in the text, and common words alone ("role", "all") are no mention.

The weights were set by hand while looking at dev splits, not fitted; `benchmarks/annotate.py` measures their
accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import exp
from typing import NamedTuple

from sapbert.index.lexicon.words import normal_form
from sapbert.text import fold

_MAX_SYMBOL = 5
"""Letters of a name that may be a symbol."""


class Match(NamedTuple):
    """A span and the name it has the words of."""

    mention: str
    name: str
    ordered: bool
    """Whether the words are in the same order."""


WEIGHTS: dict[str, float] = {
    "bias": 1.6,
    "same spelling": 0.4,
    "reordered": -1.0,
    "several words": 1.2,
    "short": -1.0,
    "capitals differ": -1.5,
    "general": -4.0,
    "common": -3.0,
}
"""Name of each feature → its weight."""


def probability(match: Match) -> float:
    """Return the probability that the span is a mention of a concept with this name."""
    if is_symbol(match.name) and not _has_capitals_of(match.mention, match.name):
        return 0.0
    total = sum(WEIGHTS[name] * value for name, value in features(match).items())
    return 1 / (1 + exp(-total))


def features(match: Match) -> dict[str, float]:
    """Return the features of a match."""
    words = [word for word in _split(match.mention) if word]
    letters = sum(map(len, words))
    common = all(normal_form(word) in _common() for word in words)
    symbol = is_symbol(match.name)
    return {
        "bias": 1.0,
        "same spelling": float(fold(match.mention) == fold(match.name)),
        "reordered": float(not match.ordered),
        "several words": float(len(words) > 1),
        "short": float(letters <= 3),
        "capitals differ": float(not symbol and len(words) == 1 and _is_acronym(match.mention)),
        "general": float(not symbol and all(normal_form(word) in _general() for word in words)),
        "common": float(common and not symbol),
    }


def is_symbol(name: str) -> bool:
    """Return whether a name is written like a symbol, so that capitals distinguish it from a word."""
    return len(name) <= _MAX_SYMBOL and sum(character.isupper() for character in name) > 1


def _has_capitals_of(mention: str, name: str) -> bool:
    """Return whether a mention has at least the capitals of a symbol; a plural s is ignored."""
    return mention.removesuffix("s") == name.removesuffix("s") or mention == name.upper()


def _is_acronym(mention: str) -> bool:
    return len(mention) <= _MAX_SYMBOL and mention.isupper() and len(mention) > 1


def _split(mention: str) -> Sequence[str]:
    return "".join(character if character.isalnum() else " " for character in mention).split()


@cache
def _common() -> frozenset[str]:
    """Words that are common in ordinary English, and general words of the field."""
    return _read("common_words.txt") | _general()


@cache
def _general() -> frozenset[str]:
    """General words of the field: a name that consists of them is rarely what an annotator would mark."""
    return _read("general_words.txt")


def _read(name: str) -> frozenset[str]:
    text = (files(__package__) / name).read_text(encoding="utf-8")
    return frozenset(map(normal_form, text.split()))
