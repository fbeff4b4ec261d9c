"""Documents to annotate: from lists, text files, tables, PubTator and BioC.

| input | documents |
|---|---|
| `.txt`, standard input | one |
| a folder | one per `.txt` file, in order of their names |
| CSV, TSV, JSONL, Parquet | one per row; the other columns are copied to the output |
| PubTator, BioC (XML, JSON) | as in the file; annotations in it are left out |

The format is recognized by the name of the file and, for `.txt`, `.xml` and `.json`, by its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sapbert.annotation.input.bioc import read_bioc
from sapbert.annotation.input.document import Document, Passage
from sapbert.annotation.input.pubtator import read_pubtator
from sapbert.errors import FormatError
from sapbert.linking.input.mentions import BOM
from sapbert.vocab.input_files import InputFile, InputReader, Release

TEXT_COLUMN = "text"
"""Default column of a table."""
_PUBTATOR_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*[^|\t\n]+\|[ta]\|")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_SNIFFED = 4096


@dataclass(frozen=True, slots=True)
class DocumentStream:
    """Documents to be annotated."""

    rows: Iterator[Document]
    """Can be read once."""
    columns: tuple[str, ...] = ()
    """Columns that are copied to the output."""
    schema: Mapping[str, Any] | None = field(default=None)
    """Polars type of each of these columns, if the input has types."""


def documents_from_list(texts: Iterable[str]) -> DocumentStream:
    """Return a stream of texts; their ids are 1, 2, …"""
    return DocumentStream(_document(str(number), text) for number, text in enumerate(texts, 1))


def read_text(content: bytes, name: str) -> Document:
    """Return a text file as a document."""
    if b"\0" in content[:_SNIFFED]:
        raise FormatError(name, None, "this is not text: it contains null bytes", hint="expected UTF-8")
    try:
        text = content.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise FormatError(name, line, problem, hint="texts must be UTF-8") from error
    return _document(Path(name).stem, text)


def read_documents(path: Path, column: str | None, inputs: InputReader) -> DocumentStream:
    """Read the documents of a file or folder; `column` is the column of a table with the texts."""
    if path.is_dir():
        return DocumentStream(_read_folder(path))
    source = next(iter(Release(path).find_all(".*")), None)
    if source is None:
        raise FormatError(path, None, "the archive contains no file")
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if column is not None or suffix in _TABLES:
        return _read_table(path, column or TEXT_COLUMN, inputs)
    if suffix in (".xml", ".json"):
        return DocumentStream(read_bioc(source, inputs))
    if _PUBTATOR_START.match(_start(source, inputs)):
        return DocumentStream(_read_pubtator(source, inputs))
    return DocumentStream(_read_one(source, inputs))


def _read_folder(folder: Path) -> Iterator[Document]:
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise FormatError(folder, None, "this folder contains no .txt file")
    for file in files:
        yield read_text(file.read_bytes(), file.name)


def _read_one(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    with inputs.stream(source) as stream:
        yield read_text(stream.read(), Path(source.name).name.removesuffix(".gz"))


def _read_table(path: Path, column: str, inputs: InputReader) -> DocumentStream:
    from sapbert.linking.input.tables import read_mention_table

    table = read_mention_table(path, column, inputs)
    columns = tuple(name for name in table.columns if name != table.column)
    schema = None if table.schema is None else {name: table.schema[name] for name in columns}
    rows = (
        Document(_row_id(row.row, number), row.mention, row.row) for number, row in enumerate(table.rows, 1)
    )
    return DocumentStream(rows, columns, schema)


def _row_id(row: Mapping[str, Any], number: int) -> str:
    """Return the id of a row: its column `document_id` or `id`, or its number."""
    value = row.get("document_id", row.get("id"))
    return str(number) if value is None or value == "" else str(value)


def _read_pubtator(source: InputFile, inputs: InputReader) -> Iterator[Document]:
    for read in read_pubtator(source, inputs):
        passages = [Passage("title", 0, len(read.title))]
        if read.abstract:
            passages.append(Passage("abstract", len(read.title) + 1, len(read.text)))
        yield Document(read.id, read.text, {TEXT_COLUMN: read.text}, tuple(passages))


def _start(source: InputFile, inputs: InputReader) -> bytes:
    with inputs.stream(source) as stream:
        return stream.read(_SNIFFED)


def _document(id: str, text: str) -> Document:
    return Document(id, text, {TEXT_COLUMN: text})
