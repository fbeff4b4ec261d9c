"""A document with its annotations, and the columns of the output tables.

Documents without annotations have no row in a table; JSONL, PubTator and BioC contain all documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sapbert.annotation.annotation import Annotation
from sapbert.annotation.context.rules import KINDS
from sapbert.annotation.input.document import Document

FIELDS = (
    "document_id",
    "start",
    "end",
    "mention",
    "concept_id",
    "preferred_name",
    "matched_name",
    "matched_by",
    "score",
    "confidence",
    "nested",
    "expanded",
    "other_concept_ids",
    "types",
    "section",
    *KINDS,
    "triggers",
)
"""Columns that annotation adds to a row."""


class AnnotatedDocument(NamedTuple):
    """A document and its annotations."""

    number: int
    """Number of the document in the input, from 1."""
    document: Document
    annotations: Sequence[Annotation]

    @property
    def row(self) -> Mapping[str, Any]:
        """The input row."""
        return self.document.row

    @property
    def result_count(self) -> int:
        """Number of annotations."""
        return len(self.annotations)


def annotation_fields(annotation: Annotation) -> dict[str, Any]:
    """Return the fields of an annotation as JSON values, without the document id."""
    fields = {field: _value(getattr(annotation, field)) for field in FIELDS[1:-1]}
    return fields | {"triggers": [trigger._asdict() for trigger in annotation.context]}


def _value(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def copied_columns(columns: Sequence[str]) -> dict[str, str]:
    """Map the input columns to their names in the output: `input_` is added to names that are in `FIELDS`."""
    taken = {*columns, *FIELDS}
    names = {}
    for column in columns:
        name = column
        if column == FIELDS[0]:
            continue  # The document id is this column.
        while name in FIELDS or (name != column and name in taken):
            name = f"input_{name}"
        names[column] = name
    return names
