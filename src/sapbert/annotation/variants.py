"""Mentions that are no name but a variant of one: adjectives, and composites with a shared word.

"Hypertensive" is a form of "hypertension", and "breast and ovarian cancer" names two concepts, of which only
the second is a span of its own. Both are looked for after names, and only where no name was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sapbert.linking.preprocess.composites import split_composite

ADJECTIVE = re.compile(r"(?<![\w-])[A-Za-z]{4,}(?:ic|ive|ous|ian)(?!\w)")
"""Words that may be the adjective of a name."""
_ENDINGS = (
    ("ensive", "ension"),
    ("epileptic", "epilepsy"),
    ("leptic", "lepsy"),
    ("betic", "betes"),
    ("otic", "osis"),
    ("itic", "itis"),
    ("emic", "emia"),
    ("mic", "mia"),
    ("phic", "phy"),
    ("gic", "gia"),
    ("rotic", "rosis"),
    ("tic", "sis"),
    ("sic", "sia"),
    ("nian", "nism"),
    ("cerous", "cer"),
    ("morous", "mor"),
    ("ic", "ia"),
    ("ic", "y"),
    ("ic", "ism"),
)
"""Ending of an adjective → ending of its noun."""
_BEFORE = re.compile(r"(?<![\w-])(?:[\w-]+ )?[\w-]+(?:,? (?:and/or|and|or) | ?/ ?)$")
_MAX_BEFORE = 60


def nouns_of(adjective: str) -> Iterator[str]:
    """Yield the words that an adjective may be formed from."""
    lowered = adjective.lower()
    for ending, noun in _ENDINGS:
        if lowered.endswith(ending):
            yield lowered.removesuffix(ending) + noun


def composites_with(text: str, start: int, end: int) -> Iterator[tuple[int, list[str]]]:
    """Yield composites that end with the span: where each starts, and its parts; the shortest first."""
    window = max(0, start - _MAX_BEFORE)
    before = _BEFORE.search(text[window:start])
    if before is None:
        return
    begins = [window + before.start()]
    if (blank := before[0].find(" ")) > 0 and before[0][blank + 1 :].count(" ") >= 2:
        begins.insert(0, window + before.start() + blank + 1)
    for begin in begins:
        parts = split_composite(text[begin:end])
        if len(parts) > 1:
            yield begin, parts
