"""Read the rows of a table from TSV, CSV, JSONL or Parquet.

A table is read in batches whose columns are named by their roles (`id`, `name`, …). The caller decides which
column has which role once the columns of the file are known.

In TSV, quotes are data, as in many biomedical files (`"Dfy protein, mouse` is a MeSH name), so a file can be
split at newlines and read in parallel. In CSV, quotes delimit fields. The csv module reads it, at about 2.5
seconds per million rows: polars would pad short rows and lose rows after a stray quote.
"""

from __future__ import annotations

import csv
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import polars as pl

from sapbert.errors import FormatError
from sapbert.vocab.delimited import Layout
from sapbert.vocab.input_files import InputFile, InputReader, Release
from sapbert.vocab.settings import Format

FORMATS: Mapping[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""File name suffix → format; the format of a `.txt` file is detected from its first line."""
ChooseColumns = Callable[[list[str]], dict[str, str]]
"""Maps roles to the columns found in a file; raises an error if a column is missing."""
LIST_ROLES = ("synonyms", "types", "parents")
"""Roles whose field may be a list."""
ROWS_PER_BATCH = 200_000
_BOM = b"\xef\xbb\xbf"
_LONGEST_HEADER = 1 << 20
_LONGEST_FIELD = 1 << 24


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Some rows of a table."""

    frame: pl.DataFrame
    """Strings, or lists of strings for `LIST_ROLES`; null or empty if the file has no value."""
    line: Callable[[int], int]
    """Returns the line where a row of this batch starts (in Parquet: its row). Call it in ascending order."""


def find_table(path: Path) -> InputFile:
    """Return the only table at `path`: a file, or the only file of a folder or zip."""
    members = Release(path).members
    if len(members) != 1:
        raise FormatError(path, None, f"contains {len(members)} files", hint="give the table itself")
    return InputFile(members[0].plain_name, (members[0],))


def detect_format(source: InputFile, inputs: InputReader, *, hint: str = "save it as one of these") -> Format:
    """Detect the format from the file name, of a `.txt` from its first line; `hint` is for other names."""
    suffix = PurePosixPath(source.name).suffix.lower()
    if suffix == ".txt":
        line = first_line(source, inputs)
        return "biosyn" if "||" in line else "tsv" if "\t" in line else "csv"
    if suffix not in FORMATS:
        known = ", ".join([*FORMATS, ".txt"])
        raise FormatError(source.name, None, f"not a table: its suffix is none of {known}", hint=hint)
    return FORMATS[suffix]


def first_line(source: InputFile, inputs: InputReader) -> str:
    """Return the first line without its line end."""
    with inputs.stream(source) as stream:
        line = stream.readline(_LONGEST_HEADER)
    if not line:
        raise FormatError(source.name, None, "the file is empty", hint="expected a header and rows")
    return line.removeprefix(_BOM).decode("utf-8", "replace").rstrip("\r\n")


def tsv_batches(source: InputFile, inputs: InputReader, choose: ChooseColumns) -> Iterator[TableBatch]:
    """Read tab-separated values."""
    header = first_line(source, inputs).split("\t")
    roles = choose(header)
    # Columns are named by number because a header may repeat a name; the header is then the first row.
    numbers = tuple(str(number) for number in range(len(header)))
    layout = Layout("\t", numbers, hint="fields must be separated by tabs")
    picked = {role: str(header.index(column)) for role, column in roles.items()}
    good_lines = enumerate(_good_lines(source, inputs, len(header)))
    rows = 0
    for frame in inputs.frames(source, layout, sorted(set(picked.values()))):
        body = frame[1:] if rows == 0 else frame
        start = rows + frame.height - body.height
        yield TableBatch(_in_roles(body, picked), partial(_advance, good_lines, start))
        rows += frame.height


def csv_batches(source: InputFile, inputs: InputReader, choose: ChooseColumns) -> Iterator[TableBatch]:
    """Read values separated by commas, semicolons or tabs; fields may be quoted."""
    delimiter = csv_delimiter(first_line(source, inputs))
    with inputs.stream(source) as stream:
        records = csv_records(stream, source.name, inputs, delimiter=delimiter)
        columns = next(records, (1, [""]))[1]
        roles = choose(columns)
        indices = [columns.index(column) for column in roles.values()]
        while rows := list(islice(records, ROWS_PER_BATCH)):
            fields = [[record[index] for _, record in rows] for index in indices]
            lines = [line for line, _ in rows]
            yield TableBatch(_frame(dict(zip(roles, fields, strict=True)), {}), lines.__getitem__)


def jsonl_batches(
    source: InputFile, inputs: InputReader, choose: ChooseColumns, separator: str
) -> Iterator[TableBatch]:
    """Read one JSON object per line; the columns are the keys in the first block of lines."""
    roles: dict[str, str] | None = None
    first = 1
    for block in inputs.blocks(source):
        objects = list(json_objects(block, first, source.name, inputs))
        first += block.count(b"\n")
        if roles is None:
            roles = choose(list(dict.fromkeys(key for _, content in objects for key in content)))
        rows: list[list[Any]] = []
        lines: list[int] = []
        for line, content in objects:
            try:
                rows.append([_json_field(role, content.get(key), separator) for role, key in roles.items()])
            except TypeError as error:
                inputs.reject_row(FormatError(source.name, line, str(error)))
            else:
                lines.append(line)
        fields = [[row[index] for row in rows] for index in range(len(roles))]
        many = {role: pl.List(pl.String) for role in LIST_ROLES}
        yield TableBatch(_frame(dict(zip(roles, fields, strict=True)), many), lines.__getitem__)


def parquet_batches(
    path: Path, source: InputFile, inputs: InputReader, choose: ChooseColumns
) -> Iterator[TableBatch]:
    """Read an uncompressed Parquet file on disk."""
    with inputs.stream(source) as stream:
        while stream.read(1 << 20):  # read everything, for the checksum
            pass
    try:
        scan = pl.scan_parquet(path)
        schema = scan.collect_schema()
        roles = choose(schema.names())
        fields = [_parquet_field(role, column, schema[column], source) for role, column in roles.items()]
        for start in range(0, scan.select(pl.len()).collect().item(), ROWS_PER_BATCH):
            frame = scan.slice(start, ROWS_PER_BATCH).select(fields).collect()
            yield TableBatch(frame, partial(operator.add, start + 1))
    except (pl.exceptions.PolarsError, OSError) as error:
        problem = str(error).partition("\n")[0]
        raise FormatError(source.name, None, f"not a readable Parquet file: {problem}") from error


def csv_delimiter(header: str) -> str:
    """Detect the character that separates the fields of a CSV file."""
    return max(",;\t", key=header.count)


def csv_records(
    lines: Iterable[bytes],
    name: str,
    inputs: InputReader,
    *,
    delimiter: str,
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL,
) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are as long as the header, each with the line where it starts."""
    broken: dict[int, str] = {}
    # The module has one limit per process, far below the length of a field that a user may have.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    reader = csv.reader(_decoded(lines, broken), delimiter=delimiter, strict=True, quoting=quoting)
    width = 0
    while True:
        start = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            inputs.reject_row(
                FormatError(name, start, f"broken record: {error}", hint="is a quote left open?")
            )
            continue
        if broken:
            inputs.reject_row(FormatError(name, *broken.popitem(), hint="the file must be UTF-8"))
            broken.clear()
        elif len(record) == (width := width or len(record)):
            yield start, record
        elif any(field.strip() for field in record):
            problem = f"expected {width} columns, found {len(record)}"
            quotable = quoting != csv.QUOTE_NONE and len(record) > width
            hint = "quote fields that contain the separator" if quotable else None
            inputs.reject_row(FormatError(name, start, problem, hint=hint))


def json_objects(
    block: bytes, first: int, name: str, inputs: InputReader
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects in the lines of a block, each with its line number, counted from `first`."""
    for number, line in enumerate(block.split(b"\n"), first):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except UnicodeDecodeError as error:
            inputs.reject_row(
                FormatError(name, number, utf8_problem(line, error), hint="the file must be UTF-8")
            )
        except (ValueError, RecursionError) as error:
            inputs.reject_row(
                FormatError(name, number, f"not JSON: {error}", hint="expected one object per line")
            )
        else:
            if isinstance(content, dict):
                yield number, content
            else:
                problem = f"a {type(content).__name__} instead of an object"
                inputs.reject_row(FormatError(name, number, problem, hint="expected one object per line"))


def text_lines(block: bytes, first: int, source: InputFile, inputs: InputReader) -> pl.DataFrame:
    """Return the lines of a block that are neither blank nor invalid: `line` (from `first`) and `text`."""
    try:
        texts = block.decode().split("\n")
        numbers = list(range(first, first + len(texts)))
    except UnicodeDecodeError:
        texts, numbers = [], []
        for number, raw in enumerate(block.split(b"\n"), first):
            try:
                texts.append(raw.decode())
                numbers.append(number)
            except UnicodeDecodeError as error:
                problem = utf8_problem(raw, error)
                inputs.reject_row(FormatError(source.name, number, problem, hint="the file must be UTF-8"))
    lines = pl.DataFrame({"line": numbers, "text": texts}, schema={"line": pl.Int64, "text": pl.String})
    return lines.filter(pl.col("text").str.strip_chars() != "")


def utf8_problem(raw: bytes, error: UnicodeDecodeError) -> str:
    """Describe which byte of a line is not UTF-8."""
    return f"byte 0x{raw[error.start]:02x} in column {error.start + 1} is not UTF-8"


def _in_roles(frame: pl.DataFrame, picked: Mapping[str, str]) -> pl.DataFrame:
    return frame.select(pl.col(column).alias(role) for role, column in picked.items())


def _frame(fields: Mapping[str, list[Any]], types: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(fields, schema={role: types.get(role, pl.String) for role in fields})


def _good_lines(source: InputFile, inputs: InputReader, width: int) -> Iterator[int]:
    """Yield the number of each line that becomes a row of `InputReader.frames`; used for errors only."""
    with inputs.stream(source) as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            if line.strip() and line.count(b"\t") == width - 1 and _decodes(line):
                yield number


def _decodes(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _advance(numbers: Iterable[tuple[int, int]], start: int, row: int) -> int:
    return next(line for index, line in numbers if index == start + row)


def _decoded(lines: Iterable[bytes], broken: dict[int, str]) -> Iterator[str]:
    """Decode line by line; record lines that are not UTF-8 in `broken`."""
    for number, raw in enumerate(lines, 1):
        line = raw.removeprefix(_BOM) if number == 1 else raw
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            broken[number] = utf8_problem(line, error)
            yield line.decode("utf-8", "replace")


def _json_field(role: str, value: object, separator: str) -> str | list[str] | None:
    if role in LIST_ROLES:
        if isinstance(value, list):
            return [text for text in (_json_text(role, item) for item in value) if text is not None]
        text = _json_text(role, value)
        return [] if text is None else text.split(separator)
    return _json_text(role, value)


def _json_text(role: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        # A lone surrogate (`\ud800`) is valid JSON but not valid text.
        return value and value.encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"the {role} is a {type(value).__name__}")


def _parquet_field(role: str, column: str, dtype: pl.DataType, source: InputFile) -> pl.Expr:
    if role in LIST_ROLES and dtype == pl.List:
        return pl.col(column).cast(pl.List(pl.String)).alias(role)
    if dtype.is_nested():
        raise FormatError(source.name, None, f"the column {column!r} contains {dtype} instead of text")
    return pl.col(column).cast(pl.String).alias(role)
