"""Annotations as PubTator, with title and abstract of each document.

PubTator has one line per title and abstract, so line ends and tabs in a text become spaces: offsets do not
change. A document without a title uses its first line as the title.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sapbert.annotation.formats.annotated_document import AnnotatedDocument
from sapbert.annotation.input.document import Document

# The characters at which Python, and so most readers, split lines; and tabs, which separate fields.
_SEPARATOR = re.compile("[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class PubtatorFormat:
    """PubTator; the type of a concept without types is `Concept`. Implements `TextFormat`."""

    def header(self) -> str:
        """Return an empty text."""
        return ""

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return the documents, each followed by an empty line."""
        return "".join(map(_document, batch))


def _document(item: AnnotatedDocument) -> str:
    text = _SEPARATOR.sub(" ", item.document.text)
    name = _SEPARATOR.sub(" ", item.document.id).replace("|", " ")
    cut = _title_end(item.document)
    lines = [f"{name}|t|{text[:cut]}", f"{name}|a|{text[cut + 1 :]}"]
    for annotation in item.annotations:
        mention = text[annotation.start : annotation.end]
        kind = ",".join(annotation.types) or "Concept"
        lines.append(
            f"{name}\t{annotation.start}\t{annotation.end}\t{mention}\t{kind}\t{annotation.concept_id}"
        )
    return "\n".join(lines) + "\n\n"


def _title_end(document: Document) -> int:
    if document.passages:
        return document.passages[0].end
    line = document.text.find("\n")
    return len(document.text) if line < 0 else line
