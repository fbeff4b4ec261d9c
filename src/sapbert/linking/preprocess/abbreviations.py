"""Short forms that a document defines ("familial adenomatous polyposis (FAP)"), and mentions written out.

The rules are Schwartz and Hearst's (PSB 2003): the characters of the short form are sought from the right in
the words before the parenthesis, and its first must begin a word. Their known fault, that "HH" becomes the
second word of "hereditary hemochromatosis", is mended by trying the initials of words first. The code is our
own: the packages with these rules have been left alone for years, and Ab3P comes as an 11 MB binary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sapbert.text import tidy

_BRACKETED = re.compile(r"[(\[]\s*([^()\[\]]{2,200}?)\s*[)\]]")
_SENTENCE_END = re.compile(r"[.!?]\s+")
_WORD = re.compile(r"[^\s/-]+")
_LONGEST_SHORT, _LONGEST_REACH = 10, 400
"""Characters of a short form, and how far before a parenthesis its long form may begin."""
_MOST = 500
"""Short forms of one document; a whole book is no document."""


def find_abbreviations(document: str) -> dict[str, str]:
    """Return what each short form of `document` stands for; where it is defined twice, the first counts."""
    document = tidy(document)
    found: dict[str, str] = {}
    for bracket in _BRACKETED.finditer(document):
        before = document[max(0, bracket.start() - _LONGEST_REACH) : bracket.start()]
        before = _SENTENCE_END.split(before)[-1].rstrip()
        inside = re.split(r"[,;]\s", bracket[1])[0]
        if _is_short(inside):
            short, long = inside, _long_form(inside, before)
        else:  # the other way round: "FAP (familial adenomatous polyposis)"
            short = before.rsplit(None, 1)[-1] if before else ""
            signs = sum(character.isupper() or character.isdigit() for character in short)
            long = _long_form(short, bracket[1]) if signs > 1 and _is_short(short) else None
        if long is not None and len(found) < _MOST:
            found.setdefault(short, long)
    # "attenuated FAP (AFAP)": a long form may hold another short one.
    return {short: expand(long, found) for short, long in found.items()}


def expand(mention: str, abbreviations: Mapping[str, str]) -> str:
    """Write `mention` with long forms for the short ones; as it is, where there are none.

    A short form beside its own long form ("growth hormone (GH) deficiency") is dropped.
    """
    shorts = [short for short in abbreviations if short in mention]
    if not shorts:
        return mention
    # The longest first, so that "HIV-1" is not taken for "HIV" and a tail.
    choices = "|".join(re.escape(short) for short in sorted(shorts, key=len, reverse=True))
    folded = mention.casefold()

    def write_out(match: re.Match[str]) -> str:
        long = abbreviations[match["short"]]
        if long.casefold() in folded:
            return "" if match["bracket"] else match[0]
        return long

    pattern = rf"(?<!\w)(?P<bracket>[(\[]\s*)?(?P<short>{choices})(?(bracket)\s*[)\]]|(?!\w))"
    return tidy(re.sub(pattern, write_out, mention))


def _is_short(text: str) -> bool:
    """Say whether `text` may be a short form: short, at most two words, a letter among its characters."""
    return (
        2 <= len(text) <= _LONGEST_SHORT
        and len(text.split()) <= 2
        and text[0].isalnum()
        and any(character.isalpha() for character in text)
    )


def _long_form(short: str, before: str) -> str | None:
    """Return the tail of `before` that `short` stands for; None where there is none."""
    words = [match.start() for match in _WORD.finditer(before)]
    most = min(len(short) + 5, 2 * len(short))
    text = before[words[-most] :] if len(words) > most else before
    start = _initials_start(short, text)
    if start is None:
        start = _scattered_start(short, text)
    if start is None:
        return None
    long = text[start:].strip()
    whole = " (" not in long and long.count("(") == long.count(")")
    defines = len(long) > len(short) and short not in re.split(r"[\s()\[\]]+", long)
    return long if whole and defines else None


def _initials_start(short: str, text: str) -> int | None:
    """Where the last words of `text` begin whose initials are `short`."""
    words = list(_WORD.finditer(text))[-len(short) :]
    initials = "".join(word[0][0] for word in words)
    return words[0].start() if initials.lower() == short.lower() else None


def _scattered_start(short: str, text: str) -> int | None:
    """Where the shortest tail of `text` begins that holds the characters of `short` in order."""
    at = len(text)
    for number in range(len(short) - 1, -1, -1):
        wanted = short[number].lower()
        if not wanted.isalnum():
            continue
        at -= 1
        while at >= 0 and not (
            text[at].lower() == wanted and (number > 0 or at == 0 or not text[at - 1].isalnum())
        ):
            at -= 1
        if at < 0:
            return None
    return at
