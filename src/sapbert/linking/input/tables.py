"""Mentions from a column of a CSV, TSV, JSONL or Parquet table, or from a text file, one per line.

Rows are Python objects and not data frames, unlike in the rest of the package: linking takes a thousand times
as long as reading, and a row may contain any JSON value, which must be written unchanged.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import polars as pl

from sapbert.errors import FormatError, suggestion
from sapbert.linking.input.mentions import (
    BOM,
    MENTION_COLUMN,
    MentionRow,
    MentionStream,
    mentions_from_lines,
)
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.tables import (
    csv_delimiter,
    csv_records,
    detect_format,
    find_table,
    first_line,
    json_objects,
)

_ROWS_PER_SLICE = 20_000
_HEADER_LINES = 1_000
"""Lines of a JSONL file that determine its columns."""


def read_mention_table(path: Path, column: str | None, inputs: InputReader) -> MentionStream:
    """Read mentions from `column` of a table, which may be gzip.

    The default column is `mention`, or the only one. A `.txt` file without `column` has one mention per line.
    """
    source = find_table(path)
    if column is None and source.name.lower().endswith(".txt"):
        return mentions_from_lines(_raw_lines(source, inputs), source.name)
    kind = detect_format(source, inputs)
    if kind == "biosyn":
        raise FormatError(source.name, None, "this is a BioSyn dictionary", hint="give a table of mentions")
    if kind == "parquet":
        return _read_parquet(path, source, column, inputs)
    if kind == "jsonl":
        return _read_jsonl(source, column, inputs)
    return _read_delimited(source, kind, column, inputs)


def mention_text(value: object) -> str | None:
    """Return a cell as the text of a mention; empty for null, None if it is not a string or number."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(value) if isinstance(value, int | float) else None


def _raw_lines(source: InputFile, inputs: InputReader) -> Iterator[bytes]:
    with inputs.stream(source) as stream:
        yield from stream


def _read_delimited(
    source: InputFile, kind: Literal["csv", "tsv"], column: str | None, inputs: InputReader
) -> MentionStream:
    records = _records(source, kind, inputs)
    header = next(records, (1, []))[1]
    mention_column = _mention_column(header, column, source)
    position = header.index(mention_column)
    rows = (MentionRow(record[position], dict(zip(header, record, strict=True))) for _, record in records)
    return MentionStream(rows, mention_column, tuple(header))


def _records(
    source: InputFile, kind: Literal["csv", "tsv"], inputs: InputReader
) -> Iterator[tuple[int, list[str]]]:
    header = first_line(source, inputs)
    with inputs.stream(source) as stream:
        if kind == "csv":
            yield from csv_records(stream, source.name, inputs, delimiter=csv_delimiter(header))
        else:
            # Quotes in TSV are data, as in vocabularies.
            yield from csv_records(stream, source.name, inputs, delimiter="\t", quoting=csv.QUOTE_NONE)


def _read_jsonl(source: InputFile, column: str | None, inputs: InputReader) -> MentionStream:
    objects = _json_objects(source, inputs)
    first = list(islice(objects, _HEADER_LINES))
    if not first:
        raise FormatError(source.name, None, "the file is empty", hint="expected one object per line")
    columns = list(dict.fromkeys(key for _, row in first for key in row))
    mention_column = _mention_column(columns, column, source)
    rows = (
        MentionRow(_require_text(row.get(mention_column), source, line), row)
        for line, row in chain(first, objects)
    )
    return MentionStream(rows, mention_column, tuple(columns))


def _json_objects(source: InputFile, inputs: InputReader) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, raw in enumerate(_raw_lines(source, inputs), 1):
        yield from json_objects(raw.removeprefix(BOM) if number == 1 else raw, number, source.name, inputs)


def _read_parquet(path: Path, source: InputFile, column: str | None, inputs: InputReader) -> MentionStream:
    try:
        scan = pl.scan_parquet(path)
        schema = scan.collect_schema()
        total = scan.select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(source, error) from error
    mention_column = _mention_column(schema.names(), column, source)
    rows = _parquet_rows(scan, total, mention_column, source, inputs)
    return MentionStream(rows, mention_column, tuple(schema.names()), schema)


def _parquet_rows(
    scan: pl.LazyFrame, total: int, column: str, source: InputFile, inputs: InputReader
) -> Iterator[MentionRow]:
    for start in range(0, total, _ROWS_PER_SLICE):
        try:
            frame = scan.slice(start, _ROWS_PER_SLICE).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _unreadable(source, error) from error
        for number, row in enumerate(frame.iter_rows(named=True), start + 1):
            yield MentionRow(_require_text(row[column], source, number), row)
        inputs.progress(source.name, start + frame.height, total)


def _unreadable(source: InputFile, error: Exception) -> FormatError:
    problem = str(error).partition("\n")[0]
    return FormatError(source.name, None, f"not a readable Parquet file: {problem}")


def _mention_column(columns: list[str], requested: str | None, source: InputFile) -> str:
    """Return the column with the mentions."""
    for column in columns:
        if columns.count(column) > 1:
            raise FormatError(source.name, 1, f"two columns are called {column!r}", hint="rename one")
    name = requested or (columns[0] if len(columns) == 1 else MENTION_COLUMN)
    if name in columns:
        return name
    listed = ", ".join(columns)[:300] or "none"
    problem = f"no column {name!r}{suggestion(name, columns)}"
    raise FormatError(source.name, None, problem, hint=f"give --column with one of: {listed}")


def _require_text(value: object, source: InputFile, line: int) -> str:
    text = mention_text(value)
    if text is not None:
        return text
    raise FormatError(source.name, line, f"the mention is a {type(value).__name__}", hint="expected a string")
