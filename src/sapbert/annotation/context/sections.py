"""Sections of a note, by its header lines: "PAST MEDICAL HISTORY" or "Family history: …".

Only headers in `sections_en.tsv` count, whose first lines describe the format. A section may give its
mentions a context: what is listed under "Family history" is about the family.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_HEADER = re.compile(r"^[ \t]*(?P<words>[A-Za-z][A-Za-z /&-]{0,48}?)[ \t]*(?::|$)", re.MULTILINE)


class Section(NamedTuple):
    """A section of a text, which ends where the next one begins."""

    start: int
    """Offset of its header, in code points."""
    end: int
    """Offset after its header."""
    name: str
    context: str
    """Context of its mentions; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections of a text."""

    sections: tuple[Section, ...]

    def of(self, offset: int) -> Section | None:
        """Return the section at an offset; None before the first one."""
        place = bisect_right(self.sections, offset, key=lambda section: section.start)
        return self.sections[place - 1] if place else None


def find_sections(text: str) -> Sections:
    """Return the sections of a text."""
    found = []
    for match in _HEADER.finditer(text):
        words, ends_line = match["words"], not match[0].endswith(":")
        known = _headers().get(words.lower())
        # A line without a colon is a header only if it is in capitals: "Fever" alone may be a finding.
        if known and (not ends_line or words.isupper()):
            found.append(Section(match.start("words"), match.end(), *known))
    return Sections(tuple(found))


@cache
def _headers() -> dict[str, tuple[str, str]]:
    """Return section and context of each header."""
    lines = (files(__package__) / "sections_en.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {header: (section, context) for header, section, context in rows}
