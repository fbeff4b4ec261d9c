"""Mentions and the rows they came in, one after the other, so that no input is too large.

Strings and plain lines are read here, without polars: `sapbert link "heart attack"` must answer at once.
Tables are read by `linking.mention_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sapbert.errors import FormatError

COLUMN = "mention"
"""The column of mentions that come without a table, and the one looked for in a table."""
BOM = b"\xef\xbb\xbf"


class MentionRow(NamedTuple):
    """A mention and all of its row, which is carried along."""

    mention: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mentions:
    """Mentions to be linked."""

    rows: Iterator[MentionRow]
    """To be read once."""
    column: str = COLUMN
    """Where in a row the mention stands."""
    columns: tuple[str, ...] = (COLUMN,)
    """The columns of the rows; of JSONL those of its first lines."""
    schema: Mapping[str, Any] | None = None
    """The polars type of each column, where the input has types."""


def contexts_of(rows: Iterable[MentionRow], column: str | None) -> list[str] | None:
    """Return what stands in `column` of each row, empty where it is no text; None without a column."""
    if column is None:
        return None
    values = (row.row.get(column) for row in rows)
    return [value if isinstance(value, str) else "" for value in values]


def listed(mentions: Iterable[str]) -> Mentions:
    """Take mentions from a list."""
    return Mentions(MentionRow(mention, {COLUMN: mention}) for mention in mentions)


def lines(stream: Iterable[bytes], name: str) -> Mentions:
    """Take one mention a line of UTF-8 text; an empty line is an empty mention. `name` is for messages."""
    return listed(_decoded(stream, name))


def _decoded(stream: Iterable[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(stream, 1):
        line = raw.removeprefix(BOM) if number == 1 else raw
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            problem = f"byte 0x{line[error.start]:02x} in column {error.start + 1} is not UTF-8"
            raise FormatError(name, number, problem, hint="mentions must be UTF-8") from error
