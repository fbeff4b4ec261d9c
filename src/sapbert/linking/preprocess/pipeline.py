"""Preprocessing of mentions: expand abbreviations, split composite mentions.

Both change the text that is linked, so both add a column to the output row: `expanded` or `part`. A row whose
mention has several parts becomes several rows. A name of the vocabulary is never split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sapbert.errors import ConfigError, suggestion
from sapbert.linking.input.mentions import MentionRow, MentionStream
from sapbert.linking.preprocess.abbreviations import expand, find_abbreviations
from sapbert.linking.preprocess.composites import split_composite

EXPANDED, PART = "expanded", "part"
_CACHED_DOCUMENTS = 64
"""Documents whose abbreviations are cached; mentions of one document are usually adjacent."""


def expand_mentions(mentions: MentionStream, document_column: str) -> MentionStream:
    """Expand the abbreviations that the text in `document_column` defines."""
    require_column(mentions, document_column, "--document-column")
    abbreviations_of = lru_cache(_CACHED_DOCUMENTS)(find_abbreviations)

    def rows() -> Iterator[MentionRow]:
        for mention, row in mentions.rows:
            text = row.get(document_column)
            expanded = expand(mention, abbreviations_of(text)) if isinstance(text, str) else mention
            yield MentionRow(expanded, {**row, EXPANDED: expanded})

    return _with_column(mentions, EXPANDED, rows())


def split_mentions(mentions: MentionStream, is_name: Callable[[str], bool]) -> MentionStream:
    """Split composite mentions, except those that are a name of the vocabulary (`is_name`)."""

    def rows() -> Iterator[MentionRow]:
        for mention, row in mentions.rows:
            parts = split_composite(mention)
            if len(parts) > 1 and is_name(mention):
                parts = [mention]
            for part in parts:
                yield MentionRow(part, {**row, PART: part})

    return _with_column(mentions, PART, rows())


def require_column(mentions: MentionStream, column: str, option: str) -> None:
    """Raise `ConfigError` if the input does not have `column`, which `option` names."""
    if column not in mentions.columns:
        raise ConfigError(f"no column {column!r} for {option}{suggestion(column, mentions.columns)}")


def _with_column(mentions: MentionStream, column: str, rows: Iterator[MentionRow]) -> MentionStream:
    if column in mentions.columns:
        raise ConfigError(f"the input has a column {column!r}, which linking adds; rename the input column")
    schema: Mapping[str, Any] | None = mentions.schema
    if schema is not None:
        import polars as pl

        schema = {**schema, column: pl.String}
    return replace(mentions, rows=rows, columns=(*mentions.columns, column), schema=schema)
