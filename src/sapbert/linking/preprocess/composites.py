"""Mentions that name several concepts at once: "breast and ovarian cancer" is two.

A vocabulary names cancers one by one, so such a mention has no name of its own near it. The rules are few
and shy: they split where the parts share their last words, or the words before "of" or "in", and leave alone
what they do not understand, because a mention kept whole still finds its nearest name. A mention that is
itself a name of the vocabulary ("cleft lip and palate") must not be split; the caller knows.
"""

from __future__ import annotations

import re

_CONJUNCTION = re.compile(r",?\s+(?:and/or|and|or|&)\s+|,\s+|\s*/\s*", re.IGNORECASE)
_FINAL = re.compile(r"\s(?:and/or|and|or|&)\s|\w\s*/\s*\w", re.IGNORECASE)
# These hang together in front of any head: "head and neck" cancer is not cancer of the head.
_INSEPARABLE = re.compile(
    r"\b(?:head and neck|hand,? foot,? and mouth|ear,? nose,? and throat|one or more)\b", re.IGNORECASE
)
_SHARED_FRONT = re.compile(r"^(?P<front>.*?\b(?:of|in)(?: the)?) (?P<rest>.+)$", re.IGNORECASE)
_DETERMINER = re.compile(r"^(?:the|a|an|some) ", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][\w'\u2019-]*\w")
_MOST_PARTS, _LONGEST = 10, 200


def split_composite(mention: str) -> list[str]:
    """Return the parts of `mention`, each with the words they share; the mention alone where it is one."""
    kept = _INSEPARABLE.sub(lambda words: words[0].replace(" ", "\0"), mention)
    if len(mention) > _LONGEST or not _FINAL.search(kept) or re.search(r"[()\[\]]", mention):
        return [mention]
    front = _SHARED_FRONT.match(kept)
    parts = _share_front(front["front"], front["rest"]) if front else _share_end(kept)
    return [part.replace("\0", " ") for part in parts] or [mention]


def _share_front(front: str, rest: str) -> list[str]:
    """Parts of "cancer of the breast and ovaries"; none where `front` or `rest` is no such thing."""
    simple = "," not in front and not _FINAL.search(front)
    return [f"{front} {item}" for item in _items(rest)] if simple else []


def _share_end(text: str) -> list[str]:
    """Parts of "Duchenne and Becker muscular dystrophy": the words after the first of the last are shared.

    Parts that all end in the same word already are whole: "renal failure and hepatic failure".
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
    """The words of `last` that belong to `item` too."""
    if item[0] == last[0]:  # "stage II and stage III cancer"
        return last[len(item) :]
    return last[2:] if item[-1] == last[1] else last[1:]  # "hereditary and non hereditary deafness"


def _items(text: str) -> list[str]:
    """What conjunctions part; none where there are not two to ten, each of one to three plain words."""
    items = [_DETERMINER.sub("", item.strip()) for item in _CONJUNCTION.split(text)]
    plain = all(_is_plain(item) for item in items)
    longest = max(len(item.split()) for item in items[:-1]) if len(items) > 1 else 0
    return items if plain and 2 <= len(items) <= _MOST_PARTS and longest <= 3 else []


def _is_plain(item: str) -> bool:
    words = item.replace("\0", " ").split()
    return bool(words) and all(_WORD.fullmatch(word) for word in words)


def _same_word(one: str, other: str) -> bool:
    """Tell whether two words are one, in singular or plural."""
    return one.lower().rstrip("s") == other.lower().rstrip("s")
