"""Links as Parquet: one part per commit of a job, concatenated at the end.

Columns copied from a Parquet input keep their type; columns from other inputs are strings.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sapbert.linking.formats.linked_mention import (
    FIELDS,
    LinkedMention,
    candidate_fields,
    input_column_names,
    input_values,
    to_text,
)
from sapbert.vocab.parquet import polars_os_errors

_TYPES = (pl.Int32, *[pl.String] * 4, pl.Float64, pl.Float64, pl.String, pl.Float64)
"""Types of `FIELDS`."""


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """Writes parts to the folder of the job; the position is their number. Implements `LinkWriter`."""

    columns: tuple[str, ...]
    """Columns of the input."""
    schema: Mapping[str, Any] | None
    """Polars types of the input columns, if the input has types."""

    def write(self, folder: Path, position: int, batches: Sequence[Sequence[LinkedMention]]) -> int:
        """Write some batches as one part."""
        part = _part(folder, position)
        frame = self._frame([linked for batch in batches for linked in batch])
        with polars_os_errors(part):
            frame.write_parquet(part)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        return position + 1

    def digest(self, folder: Path, start: int, stop: int) -> str:
        """Return a digest of one part."""
        assert stop == start + 1
        with open(_part(folder, start), "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Concatenate the parts."""
        whole = folder / "whole.parquet"
        parts = pl.scan_parquet([_part(folder, number) for number in range(position)])
        with polars_os_errors(whole):
            parts.sink_parquet(whole)
        whole.replace(target)

    def _frame(self, batch: Sequence[LinkedMention]) -> pl.DataFrame:
        input_types = self.schema or dict.fromkeys(self.columns, pl.String)
        names = input_column_names(self.columns)
        schema = {
            **{name: input_types[column] for name, column in zip(names, self.columns, strict=True)},
            **dict(zip(FIELDS, _TYPES, strict=True)),
        }
        rows = [
            (*copied, *fields.values())
            for linked in batch
            for copied in [self._input_values(linked)]
            for fields in candidate_fields(linked.candidates)
        ]
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _input_values(self, linked: LinkedMention) -> list[Any]:
        values = input_values(linked, self.columns)
        return values if self.schema else [None if value is None else to_text(value) for value in values]


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.parquet"
