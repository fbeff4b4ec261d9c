"""Mentions made ready for linking: abbreviations written out, composite ones in parts.

Both change what is linked, so both show: in a column `expanded` or `part` that is carried along with the row.
A row whose mention has several parts becomes several rows. A name of the vocabulary is never split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sapbert.errors import ConfigError, suggestion
from sapbert.linking.mention_source import MentionRow, Mentions
from sapbert.linking.preprocess.abbreviations import expand, find_abbreviations
from sapbert.linking.preprocess.composites import split_composite

EXPANDED, PART = "expanded", "part"
_REMEMBERED = 64
"""Documents whose short forms are remembered: the mentions of one mostly come together."""


def expand_mentions(mentions: Mentions, document: str) -> Mentions:
    """Write out the short forms that the text in column `document` defines."""
    require_column(mentions, document, "--document-column")
    defined = lru_cache(_REMEMBERED)(find_abbreviations)

    def rows() -> Iterator[MentionRow]:
        for mention, row in mentions.rows:
            text = row.get(document)
            expanded = expand(mention, defined(text)) if isinstance(text, str) else mention
            yield MentionRow(expanded, {**row, EXPANDED: expanded})

    return _with_column(mentions, EXPANDED, rows())


def split_mentions(mentions: Mentions, is_name: Callable[[str], bool]) -> Mentions:
    """Split mentions of several concepts; `is_name` says of a mention whether it is a name as it stands."""

    def rows() -> Iterator[MentionRow]:
        for mention, row in mentions.rows:
            parts = split_composite(mention)
            if len(parts) > 1 and is_name(mention):
                parts = [mention]
            for part in parts:
                yield MentionRow(part, {**row, PART: part})

    return _with_column(mentions, PART, rows())


def require_column(mentions: Mentions, column: str, option: str) -> None:
    """Refuse a column that the input does not have, and name the nearest that it has."""
    if column not in mentions.columns:
        raise ConfigError(f"no column {column!r} for {option}{suggestion(column, mentions.columns)}")


def _with_column(mentions: Mentions, column: str, rows: Iterator[MentionRow]) -> Mentions:
    if column in mentions.columns:
        raise ConfigError(f"the input has a column {column!r}, which linking would write; rename it")
    schema: Mapping[str, Any] | None = mentions.schema
    if schema is not None:
        import polars as pl

        schema = {**schema, column: pl.String}
    return replace(mentions, rows=rows, columns=(*mentions.columns, column), schema=schema)
