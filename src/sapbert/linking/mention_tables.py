"""Mentions from a column of a table: CSV, TSV, JSONL or Parquet; plain text is one mention a line.

Rows are Python objects, not frames, unlike everywhere else: linking takes a thousand times as long as
reading, and a row may hold anything that JSON can, which has to come out as it went in.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal

import polars as pl

from sapbert.errors import FormatError, suggestion
from sapbert.linking.formats.rows import RANK
from sapbert.linking.mention_source import BOM, COLUMN, MentionRow, Mentions, lines
from sapbert.vocab.input_files import InputFile, InputReader
from sapbert.vocab.tables import (
    csv_delimiter,
    csv_records,
    detect_format,
    find_table,
    first_line,
    json_objects,
)

_ROWS_A_SLICE = 20_000
_PEEKED = 1_000
"""Lines of JSONL that tell its columns."""


def read_mentions(path: Path, column: str | None, inputs: InputReader) -> Mentions:
    """Read mentions from a table (may be gzip); without `column` it is `mention`, or the only one.

    A `.txt` without a `column` is no table: one mention a line.
    """
    source = find_table(path)
    if column is None and source.name.lower().endswith(".txt"):
        return lines(_raw_lines(source, inputs), source.name)
    kind = detect_format(source, inputs)
    if kind == "biosyn":
        raise FormatError(source.name, None, "this is a dictionary", hint="give a table of mentions")
    if kind == "parquet":
        return _parquet(path, source, column, inputs)
    if kind == "jsonl":
        return _jsonl(source, column, inputs)
    return _delimited(source, kind, column, inputs)


def count_linked(links: Path, mentions: Mentions) -> int | None:
    """Count the mentions that the table `links` answers; None where they are not exactly `mentions`.

    Links for other programs, SSSOM and Usagi's, are no such table.
    """
    asked = (_plain(row.row.get(mentions.column)) for row in mentions.rows)
    count = 0
    try:
        rows = read_mentions(links, mentions.column, InputReader()).rows
        answered = (row.mention for row in rows if str(row.row.get(RANK)) == "1")
        for one, other in zip_longest(asked, answered):
            if one != other:
                return None
            count += 1
    except FormatError:
        return None
    return count


def _raw_lines(source: InputFile, inputs: InputReader) -> Iterator[bytes]:
    with inputs.stream(source) as stream:
        yield from stream


def _delimited(
    source: InputFile, kind: Literal["csv", "tsv"], column: str | None, inputs: InputReader
) -> Mentions:
    records = _records(source, kind, inputs)
    header = next(records, (1, []))[1]
    chosen = _choose(header, column, source)
    at = header.index(chosen)
    rows = (MentionRow(record[at], dict(zip(header, record, strict=True))) for _, record in records)
    return Mentions(rows, chosen, tuple(header))


def _records(
    source: InputFile, kind: Literal["csv", "tsv"], inputs: InputReader
) -> Iterator[tuple[int, list[str]]]:
    header = first_line(source, inputs)
    with inputs.stream(source) as stream:
        if kind == "csv":
            yield from csv_records(stream, source.name, inputs, delimiter=csv_delimiter(header))
        else:
            # In TSV quotes are data, here as in vocabularies.
            yield from csv_records(stream, source.name, inputs, delimiter="\t", quoting=csv.QUOTE_NONE)


def _jsonl(source: InputFile, column: str | None, inputs: InputReader) -> Mentions:
    objects = _objects(source, inputs)
    first = list(islice(objects, _PEEKED))
    if not first:
        raise FormatError(source.name, None, "the file is empty", hint="one object a line is wanted")
    columns = list(dict.fromkeys(key for _, found in first for key in found))
    chosen = _choose(columns, column, source)
    rows = (
        MentionRow(_text(found.get(chosen), source, line), found) for line, found in chain(first, objects)
    )
    return Mentions(rows, chosen, tuple(columns))


def _objects(source: InputFile, inputs: InputReader) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, raw in enumerate(_raw_lines(source, inputs), 1):
        yield from json_objects(raw.removeprefix(BOM) if number == 1 else raw, number, source.name, inputs)


def _parquet(path: Path, source: InputFile, column: str | None, inputs: InputReader) -> Mentions:
    try:
        scan = pl.scan_parquet(path)
        schema = scan.collect_schema()
        total = scan.select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(source, error) from error
    chosen = _choose(schema.names(), column, source)
    rows = _parquet_rows(scan, total, chosen, source, inputs)
    return Mentions(rows, chosen, tuple(schema.names()), schema)


def _parquet_rows(
    scan: pl.LazyFrame, total: int, column: str, source: InputFile, inputs: InputReader
) -> Iterator[MentionRow]:
    for start in range(0, total, _ROWS_A_SLICE):
        try:
            frame = scan.slice(start, _ROWS_A_SLICE).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _unreadable(source, error) from error
        for number, row in enumerate(frame.iter_rows(named=True), start + 1):
            yield MentionRow(_text(row[column], source, number), row)
        inputs.progress(source.name, start + frame.height, total)


def _unreadable(source: InputFile, error: Exception) -> FormatError:
    problem = str(error).partition("\n")[0]
    return FormatError(source.name, None, f"no readable Parquet file: {problem}")


def _choose(found: list[str], asked: str | None, source: InputFile) -> str:
    """Return the column of mentions."""
    for column in found:
        if found.count(column) > 1:
            raise FormatError(source.name, 1, f"two columns are called {column!r}", hint="rename one")
    wanted = asked or (found[0] if len(found) == 1 else COLUMN)
    if wanted in found:
        return wanted
    columns = ", ".join(found)[:300] or "nothing"
    problem = f"no column {wanted!r}{suggestion(wanted, found)}"
    raise FormatError(source.name, None, problem, hint=f"give --column with one of: {columns}")


def _plain(value: object) -> str | None:
    """Return what a mention may be as text; None where it may not."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(value) if isinstance(value, int | float) else None


def _text(value: object, source: InputFile, line: int) -> str:
    text = _plain(value)
    if text is not None:
        return text
    raise FormatError(source.name, line, f"the mention is a {type(value).__name__}", hint="text is wanted")
