"""`sapbert annotate`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.annotation.settings import AnnotateSettings
from sapbert.cli.linking.annotate_output import AnnotateOutput, print_annotations, write_annotations
from sapbert.cli.linking.link_output import linking_bar
from sapbert.cli.options import with_options
from sapbert.cli.output import forbid_overwriting_input, quantity
from sapbert.cli.parameters import Threads
from sapbert.defaults import DEFAULT, resolve_default

if TYPE_CHECKING:
    from sapbert.annotation.input.documents import DocumentStream
    from sapbert.progress import Progress

_GROUPS = {"file": "Input", "out": "Output", "min_confidence": "Annotations"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateInput:
    """The documents."""

    file: Annotated[
        Path | None,
        typer.Option(
            help="Text file, folder of .txt files, CSV, TSV, JSONL or Parquet table, PubTator or BioC file."
        ),
    ] = None
    column: Annotated[
        str | None, typer.Option(help="Column of a table with the texts.", show_default="text")
    ] = None


@with_options(_GROUPS)
def annotate(
    source: AnnotateInput,
    output: AnnotateOutput,
    settings: AnnotateSettings,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; without any and without --file, standard input is one text."),
    ] = None,
    index: Annotated[
        str, typer.Option(help="Written by `sapbert index`.", show_default="bundled MeSH index")
    ] = DEFAULT,
    threads: Threads = None,
) -> None:
    """Find concepts in running text.

    Writes one row per annotation, with offsets in code points. With -o, Ctrl-C keeps the finished part, and
    --resume continues an interrupted job.
    """
    from sapbert.annotation.annotator import Annotator
    from sapbert.index.folder import damage_explained

    if texts and source.file is not None:
        raise typer.BadParameter("give texts or --file, not both")
    forbid_overwriting_input(output.out, source.file)
    with (
        damage_explained(resolve_default(index, "index")),
        linking_bar("documents", drawn=output.out is not None) as (on_read, on_done),
    ):
        annotator = Annotator.open(index, settings, threads=threads)
        documents = _documents(texts, source, on_read)
        if output.out is None:
            print_annotations(documents, annotator, output)
            return
        job = {"index": annotator.linker.fingerprint, "column": source.column, **asdict(settings)}
        done = write_annotations(documents, annotator, output, job, on_done)
    typer.echo(f"{quantity(done, 'document')} -> {output.out}", err=True)


def _documents(texts: list[str] | None, source: AnnotateInput, progress: Progress) -> DocumentStream:
    from sapbert.annotation.input.documents import (
        DocumentStream,
        documents_from_list,
        read_documents,
        read_text,
    )
    from sapbert.vocab.input_files import InputReader

    if texts:
        return documents_from_list(texts)
    if source.file is not None:
        return read_documents(source.file, source.column, InputReader(progress=progress))
    if sys.stdin.isatty():
        typer.echo("reading a text from standard input until end of file (Ctrl-D)", err=True)
    return DocumentStream(iter([read_text(sys.stdin.buffer.read(), "standard input")]))
