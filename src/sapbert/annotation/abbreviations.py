"""Abbreviations that a text defines, resolved everywhere in the text.

"Familial adenomatous polyposis (FAP)" makes every "FAP" of the text a mention of the concept of the long
form. If the long form has no concept, its short form has none either, whatever the vocabulary says: a text
that defines "MS" as "mass spectrometry" does not mean multiple sclerosis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sapbert.linking.preprocess.abbreviations import find_abbreviations


def defined_abbreviations(text: str) -> Mapping[str, str]:
    """Return the long form of each short form that `text` defines."""
    return find_abbreviations(text) if "(" in text or "[" in text else {}


def occurrences(text: str, short: str) -> Iterator[tuple[int, int, int]]:
    """Yield the offsets of a short form, as a whole word, and the end of the word after it.

    Without a word after it, or after a plural s, the last offset is the end of the short form.
    """
    for match in re.finditer(rf"(?<!\w){re.escape(short)}(?=s?(?!\w))(?:[ -]\w+)?", text):
        yield match.start(), match.start() + len(short), match.end()
