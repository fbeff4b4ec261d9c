"""Text formats of links: CSV and JSONL; see also `sssom` and `usagi`.

A format is stateless: a header, and rows that can be appended, so that an interrupted job can be resumed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from sapbert.linking.formats.linked_mention import (
    FIELDS,
    LinkedMention,
    candidate_fields,
    input_column_names,
    input_values,
    to_text,
)

Item = TypeVar("Item", contravariant=True)


class TextFormat(Protocol[Item]):
    """Writes links, or other items of a job, as text."""

    def header(self) -> str:
        """Return the text before the first row."""
        ...

    def rows(self, batch: Sequence[Item]) -> str:
        """Return the complete lines of some items."""
        ...


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values with a header."""

    columns: tuple[str, ...]
    """Columns of the input."""

    def header(self) -> str:
        """Return the column names."""
        return csv_text([[*input_column_names(self.columns), *FIELDS]])

    def rows(self, batch: Sequence[LinkedMention]) -> str:
        """Return one line per candidate."""
        return csv_text(
            [*copied, *fields.values()]
            for linked in batch
            for copied in [[to_text(value) for value in input_values(linked, self.columns)]]
            for fields in candidate_fields(linked.candidates)
        )


@dataclass(frozen=True, slots=True)
class JsonlFormat:
    """One JSON object per line."""

    def header(self) -> str:
        """Return an empty text."""
        return ""

    def rows(self, batch: Sequence[LinkedMention]) -> str:
        """Return one line per candidate."""
        return "".join(
            json.dumps({**copied, **fields}, ensure_ascii=False, default=str) + "\n"
            for linked in batch
            for copied in [dict(zip(input_column_names(linked.row), linked.row.values(), strict=True))]
            for fields in candidate_fields(linked.candidates)
        )


def csv_text(records: Iterable[Sequence[object]], *, delimiter: str = ",") -> str:
    """Return records as lines, with quotes where necessary."""
    rows = list(records)
    text = _csv_text(rows, delimiter, csv.QUOTE_MINIMAL)
    # The csv module does not quote fields with a carriage return, which readers take for a line end.
    return _csv_text(rows, delimiter, csv.QUOTE_ALL) if "\r" in text else text


def _csv_text(rows: list[Sequence[object]], delimiter: str, quoting: Literal[0, 1]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerows(rows)
    return text.getvalue()
