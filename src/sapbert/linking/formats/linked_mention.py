"""A mention with its candidates, and the columns of the output tables.

Every mention has exactly one row of rank 1, its answer; if it has no candidate, `concept_id` of that row is
NIL. The columns of the input are copied in front of the columns that linking adds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sapbert.errors import SapbertError
from sapbert.linking.candidate import NIL, Candidate

RANK = "rank"
FIELDS = (
    RANK,
    "concept_id",
    "preferred_name",
    "matched_name",
    "name_kind",
    "score",
    "confidence",
    "matched_by",
    "rerank_score",
)
"""Columns that linking adds to a row."""


class LinkedMention(NamedTuple):
    """A mention, its input row and its candidates, best first."""

    number: int
    """Number of its row in the input, from 1."""
    mention: str
    row: Mapping[str, Any]
    candidates: Sequence[Candidate]

    @property
    def result_count(self) -> int:
        """Number of candidates."""
        return len(self.candidates)


def candidate_fields(candidates: Sequence[Candidate]) -> Iterator[dict[str, Any]]:
    """Yield the `FIELDS` of each candidate, or of NIL if there is none."""
    if not candidates:
        yield dict(zip(FIELDS, (1, NIL, *[None] * (len(FIELDS) - 2)), strict=True))
    for rank, candidate in enumerate(candidates, 1):
        yield {RANK: rank, **{field: getattr(candidate, field) for field in FIELDS[1:]}}


def input_column_names(columns: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return the output names of the input columns: `input_` is added to names that are in `FIELDS`."""
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


def input_values(linked: LinkedMention, columns: Sequence[str]) -> list[Any]:
    """Return the values of the input row in the order of `columns`; None for missing values."""
    for column in linked.row:
        if column not in columns:
            raise SapbertError(
                f"row {linked.number} has a new key {column!r}, which only JSONL output supports; "
                "write to a .jsonl file"
            )
    return [linked.row.get(column) for column in columns]


def to_text(value: object) -> str:
    """Return a value as the text of a CSV field."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list | dict | bool):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
