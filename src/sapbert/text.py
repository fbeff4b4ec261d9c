"""Folding: decide whether two spellings are the same name.

`fold` maps a name to the text by which it is compared. Compatibility forms, case, white space, invisible
characters and typographic apostrophes and hyphens do not distinguish names; other punctuation and word order
do ("Migraine, Acute" may be another name than "acute migraine", and an encoder learns more from the pair than
from a rule). Folding twice changes nothing. Whole columns are folded by `vocab.text_columns`.
"""

from __future__ import annotations

import re
import unicodedata

# Soft hyphens, zero-width spaces, bidirectional marks and byte-order marks are not visible in a name.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_TYPEWRITER = str.maketrans(
    dict.fromkeys("\u2018\u2019\u02bc\u2032", "'") | dict.fromkeys("\u2010\u2012\u2013\u2014\u2212", "-")
)
"""Apostrophes and hyphens as a keyboard has them; vocabularies use these."""
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def fold(name: str) -> str:
    """Return the text by which `name` is compared with other names."""
    # Case folding can undo NFKC (`\u0130` plus an accent), so normalize on both sides of it.
    once = unicodedata.normalize("NFKC", _INVISIBLE.sub("", name)).casefold()
    return tidy(unicodedata.normalize("NFKC", once).translate(_TYPEWRITER))


def tidy(name: str) -> str:
    """Return `name` on one line: runs of white space and control characters become one space."""
    return _BLANK.sub(" ", name).strip(" ")
