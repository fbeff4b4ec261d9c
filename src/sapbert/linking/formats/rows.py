"""Links as text: a row for each mention and candidate, with the mention's own row carried along.

Every mention has exactly one row of rank 1, its answer; where it has no candidate that row says NIL. A
format is stateless: a head, and bodies that can be appended, so that a job can be continued.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from sapbert.errors import SapbertError
from sapbert.linking.candidate import NIL, Candidate

RANK = "rank"
FIELDS = (
    RANK,
    "concept_id",
    "preferred_name",
    "matched_name",
    "score",
    "confidence",
    "matched_by",
    "rerank_score",
)
"""What linking adds to a row."""


class Linked(NamedTuple):
    """A mention, its row and what it was linked to."""

    number: int
    """Of its row in the input, from 1."""
    mention: str
    row: Mapping[str, Any]
    candidates: Sequence[Candidate]


class TextFormat(Protocol):
    """How links are written as text."""

    def head(self) -> str:
        """Return what comes first."""
        ...

    def body(self, batch: Sequence[Linked]) -> str:
        """Return whole lines for some mentions."""
        ...


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values with a header."""

    columns: tuple[str, ...]
    """Of the input."""

    def head(self) -> str:
        """Return the header."""
        return csv_text([[*carried_names(self.columns), *FIELDS]])

    def body(self, batch: Sequence[Linked]) -> str:
        """Return the rows of some mentions."""
        return csv_text(
            [*carried, *answer.values()]
            for linked in batch
            for carried in [[plain(value) for value in row_values(linked, self.columns)]]
            for answer in answers(linked.candidates)
        )


@dataclass(frozen=True, slots=True)
class JsonlFormat:
    """One JSON object a line."""

    def head(self) -> str:
        """Return nothing."""
        return ""

    def body(self, batch: Sequence[Linked]) -> str:
        """Return the rows of some mentions."""
        return "".join(
            json.dumps({**carried, **answer}, ensure_ascii=False, default=str) + "\n"
            for linked in batch
            for carried in [dict(zip(carried_names(linked.row), linked.row.values(), strict=True))]
            for answer in answers(linked.candidates)
        )


def answers(candidates: Sequence[Candidate]) -> Iterator[dict[str, Any]]:
    """Yield the `FIELDS` of each candidate, or of NIL."""
    if not candidates:
        yield dict(zip(FIELDS, (1, NIL, *[None] * (len(FIELDS) - 2)), strict=True))
    for rank, found in enumerate(candidates, 1):
        named = (found.concept_id, found.preferred_name, found.matched_name)
        judged = (found.score, found.confidence, found.matched_by, found.rerank_score)
        yield dict(zip(FIELDS, (rank, *named, *judged), strict=True))


def carried_names(columns: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return what the columns of the input are called in the output: their own names, unless we need them."""
    taken = {*columns, *FIELDS}
    names = []
    for column in columns:
        name = column
        if column in FIELDS:
            while name in taken:
                name = f"input_{name}"
            taken.add(name)
        names.append(name)
    return names


def row_values(linked: Linked, columns: Sequence[str]) -> list[Any]:
    """Return the values of a row in the order of `columns`, of which it may lack some."""
    for column in linked.row:
        if column not in columns:
            raise SapbertError(
                f"row {linked.number} has a new key {column!r}; only JSONL takes it: write to a .jsonl file"
            )
    return [linked.row.get(column) for column in columns]


def plain(value: object) -> str:
    """Return a value as a field of text."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list | dict | bool):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def csv_text(records: Iterable[Sequence[object]], *, delimiter: str = ",") -> str:
    """Return records as lines, quoted where they must be."""
    rows = list(records)
    text = _csv_text(rows, delimiter, csv.QUOTE_MINIMAL)
    # The csv module does not see that a carriage return must be quoted too.
    return _csv_text(rows, delimiter, csv.QUOTE_ALL) if "\r" in text else text


def _csv_text(rows: list[Sequence[object]], delimiter: str, quoting: Literal[0, 1]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerows(rows)
    return text.getvalue()
