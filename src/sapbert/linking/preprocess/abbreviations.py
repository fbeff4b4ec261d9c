"""Abbreviations that a document defines ("familial adenomatous polyposis (FAP)"), and their expansion.

The algorithm is that of Schwartz and Hearst (PSB 2003): it matches the characters of the short form from the
right in the words before the parenthesis; the first character must start a word. A known error, that "HH"
becomes the second word of "hereditary hemochromatosis", is avoided by trying the initials of words first. No
package is used: those with this algorithm are unmaintained, and Ab3P is an 11 MB binary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sapbert.text import tidy

_BRACKETED = re.compile(r"[(\[]\s*([^()\[\]]{2,200}?)\s*[)\]]")
_SENTENCE_END = re.compile(r"[.!?]\s+")
_WORD = re.compile(r"[^\s/-]+")
_MAX_SHORT_FORM = 10
"""Characters of a short form."""
_MAX_DISTANCE = 400
"""Characters before a parenthesis in which its long form must start."""
_MAX_ABBREVIATIONS = 500
"""Abbreviations per document; bounds the time for very long texts."""


def find_abbreviations(document: str) -> dict[str, str]:
    """Return the long form of each short form in `document`; the first definition counts."""
    document = tidy(document)
    long_forms: dict[str, str] = {}
    for bracket in _BRACKETED.finditer(document):
        before = document[max(0, bracket.start() - _MAX_DISTANCE) : bracket.start()]
        before = _SENTENCE_END.split(before)[-1].rstrip()
        inside = re.split(r"[,;]\s", bracket[1])[0]
        if _is_short(inside):
            short, long = inside, _long_form(inside, before)
        else:  # reverse order: "FAP (familial adenomatous polyposis)"
            short = before.rsplit(None, 1)[-1] if before else ""
            signs = sum(character.isupper() or character.isdigit() for character in short)
            long = _long_form(short, bracket[1]) if signs > 1 and _is_short(short) else None
        if long is not None and len(long_forms) < _MAX_ABBREVIATIONS:
            long_forms.setdefault(short, long)
    # "attenuated FAP (AFAP)": a long form may contain another short form.
    return {short: expand(long, long_forms) for short, long in long_forms.items()}


def expand(mention: str, abbreviations: Mapping[str, str]) -> str:
    """Replace the short forms in `mention` by their long forms.

    A short form next to its own long form ("growth hormone (GH) deficiency") is removed.
    """
    shorts = [short for short in abbreviations if short in mention]
    if not shorts:
        return mention
    # Longest first, so that "HIV-1" is not matched as "HIV".
    alternatives = "|".join(re.escape(short) for short in sorted(shorts, key=len, reverse=True))
    folded = mention.casefold()

    def replacement(match: re.Match[str]) -> str:
        long = abbreviations[match["short"]]
        if long.casefold() in folded:
            return "" if match["bracket"] else match[0]
        return long

    pattern = rf"(?<!\w)(?P<bracket>[(\[]\s*)?(?P<short>{alternatives})(?(bracket)\s*[)\]]|(?!\w))"
    return tidy(re.sub(pattern, replacement, mention))


def _is_short(text: str) -> bool:
    """Return whether `text` can be a short form: short, at most two words, with a letter."""
    return (
        2 <= len(text) <= _MAX_SHORT_FORM
        and len(text.split()) <= 2
        and text[0].isalnum()
        and any(character.isalpha() for character in text)
    )


def _long_form(short: str, before: str) -> str | None:
    """Return the end of `before` that `short` abbreviates; None if there is none."""
    words = [match.start() for match in _WORD.finditer(before)]
    max_words = min(len(short) + 5, 2 * len(short))
    text = before[words[-max_words] :] if len(words) > max_words else before
    start = _initials_start(short, text)
    if start is None:
        start = _scattered_start(short, text)
    if start is None:
        return None
    long = text[start:].strip()
    balanced = " (" not in long and long.count("(") == long.count(")")
    defines = len(long) > len(short) and short not in re.split(r"[\s()\[\]]+", long)
    return long if balanced and defines else None


def _initials_start(short: str, text: str) -> int | None:
    """Return the start of the last words of `text` if their initials are `short`."""
    words = list(_WORD.finditer(text))[-len(short) :]
    initials = "".join(word[0][0] for word in words)
    return words[0].start() if initials.lower() == short.lower() else None


def _scattered_start(short: str, text: str) -> int | None:
    """Return the start of the shortest end of `text` that contains the characters of `short` in order."""
    position = len(text)
    for number in range(len(short) - 1, -1, -1):
        character = short[number].lower()
        if not character.isalnum():
            continue
        position -= 1
        while position >= 0 and not (
            text[position].lower() == character
            and (number > 0 or position == 0 or not text[position - 1].isalnum())
        ):
            position -= 1
        if position < 0:
            return None
    return position
