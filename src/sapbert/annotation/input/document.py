"""`Document`: a text to annotate, with its id, its passages and the input row it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Passage(NamedTuple):
    """A part of a document, such as its title."""

    kind: str
    start: int
    """Offset of the first character, in code points."""
    end: int


class Document(NamedTuple):
    """A text to annotate."""

    id: str
    text: str
    row: Mapping[str, Any]
    """The input row, including the text."""
    passages: tuple[Passage, ...] = ()
    """Parts of the text that the input distinguishes; empty if it does not."""
