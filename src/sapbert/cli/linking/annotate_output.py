"""Output of `sapbert annotate`: annotations to standard output, or to a file that appears when complete."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.cli.output import print_table
from sapbert.cli.parameters import Overwrite, Resume
from sapbert.errors import SapbertError

if TYPE_CHECKING:
    from sapbert.annotation.annotator import Annotator
    from sapbert.annotation.formats.annotated_document import AnnotatedDocument
    from sapbert.annotation.input.documents import DocumentStream
    from sapbert.linking.formats.text import TextFormat
    from sapbert.linking.formats.writer import BatchWriter


class AnnotationFormat(StrEnum):
    """Format of the annotations."""

    TABLE = "table"
    CSV = "csv"
    JSONL = "jsonl"
    PUBTATOR = "pubtator"
    BIOC_XML = "bioc-xml"
    BIOC_JSON = "bioc-json"
    WEB_ANNOTATION = "web-annotation"
    NOTE_NLP = "note-nlp"
    FHIR = "fhir"


_SUFFIXES = {
    ".note_nlp.csv": AnnotationFormat.NOTE_NLP,
    ".fhir.ndjson": AnnotationFormat.FHIR,
    ".webannotation.jsonl": AnnotationFormat.WEB_ANNOTATION,
    ".bioc.xml": AnnotationFormat.BIOC_XML,
    ".bioc.json": AnnotationFormat.BIOC_JSON,
    ".csv": AnnotationFormat.CSV,
    ".jsonl": AnnotationFormat.JSONL,
    ".ndjson": AnnotationFormat.JSONL,
    ".pubtator": AnnotationFormat.PUBTATOR,
    ".pubtator.txt": AnnotationFormat.PUBTATOR,
}
_TABLE_COLUMNS = ("start", "end", "mention", "concept_id", "preferred_name", "matched_by", "confidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateOutput:
    """Where annotations are written, and in which format."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File to write; its name determines the format.", show_default=False
        ),
    ] = None
    format: Annotated[
        AnnotationFormat | None,
        typer.Option(
            help="Format, if not that of the file name.", show_default="table on a terminal, else csv"
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Short for --format jsonl.")] = False
    resume: Resume = False
    overwrite: Overwrite = False

    def __post_init__(self) -> None:
        if self.out is None and (self.resume or self.overwrite):
            raise typer.BadParameter("--resume and --overwrite need --out")
        if self.json and self.format not in (None, AnnotationFormat.JSONL):
            raise typer.BadParameter("give --json or --format, not both")

    @property
    def kind(self) -> AnnotationFormat:
        """The format that was requested, or that the file name implies."""
        kind = AnnotationFormat.JSONL if self.json else self.format
        if self.out is None:
            return kind or (AnnotationFormat.TABLE if sys.stdout.isatty() else AnnotationFormat.CSV)
        if kind == AnnotationFormat.TABLE:
            raise typer.BadParameter("a table is for the terminal: give another --format, or no --out")
        name = self.out.name.lower()
        kind = kind or next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)
        if kind is None:
            raise typer.BadParameter(
                f"{self.out.name}: annotations are not written as "
                f"{self.out.suffix or 'a file without a suffix'}; use {', '.join(_SUFFIXES)} or give --format"
            )
        return kind


def print_annotations(documents: DocumentStream, annotator: Annotator, output: AnnotateOutput) -> None:
    """Print annotations batch by batch."""
    from sapbert.annotation.job import annotate_batches

    batches = annotate_batches(documents.rows, annotator)
    if output.kind == AnnotationFormat.TABLE:
        _print_table(item for batch in batches for item in batch)
        return
    format = _text_format(output.kind, documents)
    text = format.header()
    for batch in batches:
        typer.echo((text + format.rows(batch)).encode(errors="replace"), nl=False)
        text = ""
    typer.echo((text + _footer(format)).encode(), nl=False)


def write_annotations(
    documents: DocumentStream,
    annotator: Annotator,
    output: AnnotateOutput,
    job: Mapping[str, Any],
    on_done: Callable[[int], None],
) -> int:
    """Write annotations to a file; returns the number of documents."""
    from sapbert.annotation.job import annotate_to_file
    from sapbert.linking.formats.writer import TextWriter
    from sapbert.linking.job import is_interrupted
    from sapbert.resumable import run_folder

    if output.out is None:
        raise ValueError("there is no file to write to")
    format = _text_format(output.kind, documents)
    writer: BatchWriter[AnnotatedDocument] = TextWriter(format, _footer(format))
    try:
        return annotate_to_file(
            documents.rows,
            annotator,
            writer,
            output.out,
            {"format": output.kind.value, **job},
            resume=output.resume,
            overwrite=output.overwrite,
            on_done=on_done,
        )
    except KeyboardInterrupt:
        if not is_interrupted(output.out):
            raise  # The job was interrupted before its first annotation.
        raise SapbertError(
            f"stopped; the finished part is kept in {run_folder(output.out)}; add --resume to continue"
        ) from None


def _text_format(kind: AnnotationFormat, documents: DocumentStream) -> TextFormat[AnnotatedDocument]:
    from sapbert.annotation.formats import bioc, records
    from sapbert.annotation.formats.pubtator import PubtatorFormat
    from sapbert.annotation.formats.table import CsvFormat, JsonlFormat

    formats: dict[AnnotationFormat, TextFormat[AnnotatedDocument]] = {
        AnnotationFormat.CSV: CsvFormat(documents.columns),
        AnnotationFormat.JSONL: JsonlFormat(),
        AnnotationFormat.PUBTATOR: PubtatorFormat(),
        AnnotationFormat.BIOC_XML: bioc.BiocXmlFormat(),
        AnnotationFormat.BIOC_JSON: bioc.BiocJsonFormat(),
        AnnotationFormat.WEB_ANNOTATION: records.WebAnnotationFormat(),
        AnnotationFormat.NOTE_NLP: records.NoteNlpFormat(),
        AnnotationFormat.FHIR: records.FhirFormat(),
    }
    return formats[kind]


def _footer(format: TextFormat[AnnotatedDocument]) -> str:
    """Return the text after the last document, of formats that have one."""
    from sapbert.annotation.formats.bioc import BiocJsonFormat, BiocXmlFormat

    return format.footer() if isinstance(format, BiocJsonFormat | BiocXmlFormat) else ""


def _print_table(annotated: Iterable[AnnotatedDocument]) -> None:
    from rich.table import Table
    from rich.text import Text

    from sapbert.annotation.formats.annotated_document import annotation_fields

    table = Table(box=None, pad_edge=False)
    for title in ("document_id", *_TABLE_COLUMNS):
        table.add_column(title, overflow="fold")
    for item in annotated:
        for annotation in item.annotations:
            fields = annotation_fields(annotation)
            fields["confidence"] = f"{annotation.confidence:.2f}"
            table.add_row(item.document.id, *(Text(str(fields[name])) for name in _TABLE_COLUMNS))
    print_table(table)
