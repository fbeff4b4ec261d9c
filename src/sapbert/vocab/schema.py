"""The tables of a vocabulary: their columns and their order.

Rows are sorted, so equal content has one representation: a fingerprint can be computed row by row, the rows
of a concept are adjacent, and a vocabulary of any size can be read in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl
from xxhash import xxh3_64_intdigest, xxh3_128

from sapbert.vocab.settings import KINDS, RELATIONS, SCOPES
from sapbert.vocab.text_columns import map_categories

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

Scope = pl.Enum(SCOPES)
Kind = pl.Enum(KINDS)

NAMES: Schema = {
    "concept_id": pl.String,
    "name": pl.String,
    "preferred": pl.Boolean,
    "language": pl.Categorical,
    "source": pl.Categorical,
    "scope": Scope,
    "kind": Kind,
    "count": pl.UInt32,
}
"""One row per name, sorted by concept, language, name and source, which together are unique. `count` is how
often the name was seen with this meaning, 0 if unknown."""

OPTIONAL_COLUMNS: Mapping[str, str | int] = {"kind": "", "count": 0}
"""Columns that vocabularies of older versions do not have, and their value there. If all rows have this
value, the column does not change the fingerprint."""

TYPES: Schema = {"concept_id": pl.String, "type": pl.String}
"""Semantic types of a concept, as codes (`T047`, `C`, `disorder`)."""

XREFS: Schema = {"concept_id": pl.String, "xref": pl.String}
"""Concepts of other vocabularies that a source relates to this one."""

ALIASES: Schema = {"concept_id": pl.String, "alias": pl.String}
"""Other identifiers of the same concept: retired ones, and those of concepts merged into it."""

PARENTS: Schema = {"concept_id": pl.String, "parent_id": pl.String, "relation": pl.Enum(RELATIONS)}
"""The concepts directly above a concept, as the source says: cycles and unknown parents are kept."""

DEFINITIONS: Schema = {
    "concept_id": pl.String,
    "text": pl.String,
    "language": pl.String,
    "source": pl.String,
}
"""Definitions of a concept, one line each."""


class HashInput(NamedTuple):
    """Some rows, as the bytes to be hashed."""

    rows: int
    columns: dict[str, tuple[bytes, bytes]]
    unused: frozenset[str]
    """Columns of `OPTIONAL_COLUMNS` in which all rows have the default value."""


def hash_input(frame: pl.DataFrame) -> HashInput:
    """Prepare rows for `TableDigest.update`. This is the slow part; it can run on any thread."""
    unused = (
        name for name, default in OPTIONAL_COLUMNS.items() if name in frame and (frame[name] == default).all()
    )
    return HashInput(frame.height, {column.name: _bytes(column) for column in frame}, frozenset(unused))


class TableDigest:
    """A digest of a table's content, independent of how the table is split into frames."""

    def __init__(self, schema: Schema) -> None:
        self.rows = 0
        self._columns = {name: (xxh3_128(), xxh3_128()) for name in schema}
        self._unused = frozenset(OPTIONAL_COLUMNS)

    def update(self, part: HashInput) -> None:
        """Add the next rows."""
        self.rows += part.rows
        self._unused &= part.unused
        for name, hashes in self._columns.items():
            for digest, content in zip(hashes, part.columns[name], strict=True):
                digest.update(content)

    def hexdigest(self) -> str:
        """Return the digest of all rows so far."""
        parts = [
            f"{name} {a.hexdigest()} {b.hexdigest()}"
            for name, (a, b) in self._columns.items()
            if name not in self._unused
        ]
        return xxh3_128("\n".join(parts).encode()).hexdigest()


def _bytes(column: pl.Series) -> tuple[bytes, bytes]:
    if column.dtype == pl.String:
        return column.str.len_bytes().to_numpy().tobytes(), column.str.join("").cast(pl.Binary).item()
    if column.dtype in (pl.Boolean, pl.UInt32):
        return b"", column.to_numpy().tobytes()
    # One number per row that depends only on the text of its category.
    return b"", map_categories(
        column, lambda texts: [xxh3_64_intdigest(text.encode()) for text in texts]
    ).tobytes()
