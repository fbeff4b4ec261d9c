"""A stream of mentions with their input rows, so that inputs of any size can be linked.

Lists and lines are read here, without polars, because `sapbert link "heart attack"` must start fast. Tables
are read by `linking.input.tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from sapbert.errors import FormatError

MENTION_COLUMN = "mention"
"""Column name for mentions without a table, and the default column of a table."""
_MAX_LINE_BYTES = 16 << 20
BOM = b"\xef\xbb\xbf"


class MentionRow(NamedTuple):
    """A mention and its input row, which is copied to the output."""

    mention: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MentionStream:
    """Mentions to be linked."""

    rows: Iterator[MentionRow]
    """Can be read once."""
    column: str = MENTION_COLUMN
    """Column of a row with the mention."""
    columns: tuple[str, ...] = (MENTION_COLUMN,)
    """Columns of the rows; for JSONL, those of the first lines."""
    schema: Mapping[str, Any] | None = None
    """Polars type of each column, if the input has types."""


def context_texts(rows: Iterable[MentionRow], column: str | None) -> list[str] | None:
    """Return the text in `column` of each row, empty if it is not a string; None without a column."""
    if column is None:
        return None
    values = (row.row.get(column) for row in rows)
    return [value if isinstance(value, str) else "" for value in values]


def mentions_from_list(mentions: Iterable[str]) -> MentionStream:
    """Return a stream of mentions without further columns."""
    return MentionStream(MentionRow(mention, {MENTION_COLUMN: mention}) for mention in mentions)


def limited_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a stream; a line that would fill the memory is an error."""
    while line := stream.readline(_MAX_LINE_BYTES + 1):
        if len(line) > _MAX_LINE_BYTES:
            raise FormatError(name, None, f"a line is longer than {_MAX_LINE_BYTES >> 20} MB")
        yield line


def mentions_from_lines(stream: Iterable[bytes], name: str) -> MentionStream:
    """Read one mention per line of UTF-8 text; an empty line is an empty mention.

    `name` is the name of the input in error messages.
    """
    return mentions_from_list(_decode_lines(stream, name))


def _decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(stream, 1):
        line = raw.removeprefix(BOM) if number == 1 else raw
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            problem = f"byte 0x{line[error.start]:02x} in column {error.start + 1} is not UTF-8"
            raise FormatError(name, number, problem, hint="mentions must be UTF-8") from error
