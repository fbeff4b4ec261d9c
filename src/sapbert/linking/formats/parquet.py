"""Links as Parquet: a part for each commit of a job, joined into one file at the end.

Columns carried from a Parquet input keep their type; those from other inputs are text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sapbert.linking.formats.rows import FIELDS, Linked, answers, carried_names, plain, row_values
from sapbert.vocab.parquet import polars_os_errors

_TYPES = (pl.Int32, pl.String, pl.String, pl.String, pl.Float64, pl.Float64, pl.String, pl.Float64)


@dataclass(frozen=True, slots=True)
class ParquetOutlet:
    """Parts in a folder; the position is their number."""

    columns: tuple[str, ...]
    """Of the input."""
    schema: Mapping[str, Any] | None
    """Their types, where the input has any."""

    def write(self, folder: Path, position: int, batches: Sequence[Sequence[Linked]]) -> int:
        """Write some batches as one part."""
        part = _part(folder, position)
        frame = self._frame([linked for batch in batches for linked in batch])
        with polars_os_errors(part):
            frame.write_parquet(part)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        return position + 1

    def finish(self, folder: Path, position: int, target: Path) -> None:
        """Join the parts into one file."""
        whole = folder / "whole.parquet"
        parts = pl.scan_parquet([_part(folder, number) for number in range(position)])
        with polars_os_errors(whole):
            parts.sink_parquet(whole)
        whole.replace(target)

    def _frame(self, batch: Sequence[Linked]) -> pl.DataFrame:
        typed = self.schema or dict.fromkeys(self.columns, pl.String)
        names = carried_names(self.columns)
        schema = {
            **{name: typed[column] for name, column in zip(names, self.columns, strict=True)},
            **dict(zip(FIELDS, _TYPES, strict=True)),
        }
        rows = [
            (*carried, *answer.values())
            for linked in batch
            for carried in [self._carried(linked)]
            for answer in answers(linked.candidates)
        ]
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _carried(self, linked: Linked) -> list[Any]:
        values = row_values(linked, self.columns)
        return values if self.schema else [None if value is None else plain(value) for value in values]


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.parquet"
