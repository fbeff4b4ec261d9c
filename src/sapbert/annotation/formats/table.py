"""Annotations as CSV, one row per annotation, and as JSONL, one line per document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sapbert.annotation.formats.annotated_document import (
    FIELDS,
    AnnotatedDocument,
    annotation_fields,
    copied_columns,
)
from sapbert.linking.formats.linked_mention import to_text
from sapbert.linking.formats.text import csv_text


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values with a header; implements `TextFormat`."""

    columns: tuple[str, ...] = ()
    """Columns of the input that are copied."""

    def header(self) -> str:
        """Return the column names."""
        return csv_text([[*copied_columns(self.columns).values(), *FIELDS]])

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return one line per annotation."""
        copied = list(copied_columns(self.columns))
        return csv_text(
            [
                *(to_text(item.row.get(column)) for column in copied),
                item.document.id,
                *(_text(value) for value in annotation_fields(annotation).values()),
            ]
            for item in batch
            for annotation in item.annotations
        )


@dataclass(frozen=True, slots=True)
class JsonlFormat:
    """One JSON object per document: the input row, its id and its annotations; implements `TextFormat`."""

    def header(self) -> str:
        """Return an empty text."""
        return ""

    def rows(self, batch: Sequence[AnnotatedDocument]) -> str:
        """Return one line per document."""
        return "".join(json.dumps(_document(item), ensure_ascii=False, default=str) + "\n" for item in batch)


def _document(item: AnnotatedDocument) -> dict[str, object]:
    found = [annotation_fields(annotation) for annotation in item.annotations]
    return {**item.row, "document_id": item.document.id, "annotations": found}


def _text(value: object) -> str:
    return "|".join(map(_item, value)) if isinstance(value, list) else to_text(value)


def _item(value: object) -> str:
    """Return an item of a list; a trigger as kind, offsets and phrase: `negated:0:2:No`."""
    return ":".join(map(str, value.values())) if isinstance(value, dict) else str(value)
