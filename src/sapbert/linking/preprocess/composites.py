"""Mentions that name several concepts at once: "breast and ovarian cancer" is two.

A vocabulary has a name for each cancer, but none for the composite. The rules are few and conservative: they
split if the parts share their last words, or the words before "of" or "in". Other mentions are not split,
and are still linked to their nearest name. A mention that is itself a name of the vocabulary ("cleft lip and
palate") must not be split; the caller has to check that.
"""

from __future__ import annotations

import re

_CONJUNCTION = re.compile(r",?\s+(?:and/or|and|or|&)\s+|,\s+|\s*/\s*", re.IGNORECASE)
_FINAL = re.compile(r"\s(?:and/or|and|or|&)\s|\w\s*/\s*\w", re.IGNORECASE)
# Never split these: "head and neck cancer" is not cancer of the head.
_INSEPARABLE = re.compile(
    r"\b(?:head and neck|hand,? foot,? and mouth|ear,? nose,? and throat|one or more)\b", re.IGNORECASE
)
_SHARED_FRONT = re.compile(r"^(?P<front>.*?\b(?:of|in)(?: the)?) (?P<rest>.+)$", re.IGNORECASE)
_DETERMINER = re.compile(r"^(?:the|a|an|some) ", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][\w'\u2019-]*\w")
_MAX_PARTS, _MAX_CHARACTERS = 10, 200


def split_composite(mention: str) -> list[str]:
    """Return the parts of `mention`, each with the shared words; only the mention if it is not composite."""
    protected = _INSEPARABLE.sub(lambda words: words[0].replace(" ", "\0"), mention)
    if len(mention) > _MAX_CHARACTERS or not _FINAL.search(protected) or re.search(r"[()\[\]]", mention):
        return [mention]
    front = _SHARED_FRONT.match(protected)
    parts = _share_front(front["front"], front["rest"]) if front else _share_end(protected)
    return [part.replace("\0", " ") for part in parts] or [mention]


def _share_front(front: str, rest: str) -> list[str]:
    """Return the parts of "cancer of the breast and ovaries"; none if the pattern does not fit."""
    simple = "," not in front and not _FINAL.search(front)
    return [f"{front} {item}" for item in _items(rest)] if simple else []


def _share_end(text: str) -> list[str]:
    """Return the parts of "Duchenne and Becker muscular dystrophy"; none if the pattern does not fit.

    The shared words are those after the first word of the last part. Parts that already end in the same word
    are complete: "renal failure and hepatic failure".
    """
    items = _items(text)
    if not items:
        return []
    *others, last = [item.split() for item in items]
    if len(last) == 1:
        return []
    if all(_same_word(item[-1], last[-1]) for item in others):
        return items
    return [*(" ".join([*item, *_head(item, last)]) for item in others), items[-1]]


def _head(item: list[str], last: list[str]) -> list[str]:
    """Return the words of `last` that `item` shares."""
    if item[0] == last[0]:  # "stage II and stage III cancer"
        return last[len(item) :]
    return last[2:] if item[-1] == last[1] else last[1:]  # "hereditary and non hereditary deafness"


def _items(text: str) -> list[str]:
    """Split at conjunctions; none unless there are two to ten items, each of one to three plain words."""
    items = [_DETERMINER.sub("", item.strip()) for item in _CONJUNCTION.split(text)]
    plain = all(_is_plain(item) for item in items)
    longest = max(len(item.split()) for item in items[:-1]) if len(items) > 1 else 0
    return items if plain and 2 <= len(items) <= _MAX_PARTS and longest <= 3 else []


def _is_plain(item: str) -> bool:
    words = item.replace("\0", " ").split()
    return bool(words) and all(_WORD.fullmatch(word) for word in words)


def _same_word(one: str, other: str) -> bool:
    """Return whether two words are equal, ignoring a plural s."""
    return one.lower().rstrip("s") == other.lower().rstrip("s")
