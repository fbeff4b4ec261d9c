"""`sapbert link`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.linking.link_output import (
    LinkFormat,
    Task,
    is_finished,
    link_format,
    linking_bar,
    print_links,
    write_links,
)
from sapbert.cli.output import Overwrite, counted, refuse_input
from sapbert.defaults import DEFAULT, resolve_default

if TYPE_CHECKING:
    from sapbert.linking.linker import Linker
    from sapbert.linking.mention_source import Mentions
    from sapbert.progress import Progress


def link(
    mentions: Annotated[
        list[str] | None,
        typer.Argument(help="Mentions; without any, and without --file, one a line of standard input."),
    ] = None,
    index: Annotated[
        str, typer.Option(help="Written by `sapbert index`.", show_default="MeSH, which comes along")
    ] = DEFAULT,
    file: Annotated[
        Path | None, typer.Option(help="CSV, TSV, JSONL (.gz), Parquet, or .txt with one mention a line.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Column of --file with the mentions.", show_default="mention")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; its name tells the format.", show_default=False),
    ] = None,
    format: Annotated[
        LinkFormat | None,
        typer.Option(help="Where no name tells.", show_default="table on a terminal, else csv"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Short for --format jsonl.")] = False,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Candidates of a mention.")] = 5,
    threshold: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Candidates that score less are left out.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact/--no-exact", help="Names that equal the mention answer first.")
    ] = True,
    types: Annotated[
        list[str], typer.Option(metavar="TYPE", help="Only concepts of this type; repeat for more.")
    ] = [],
    sources: Annotated[
        list[str], typer.Option(metavar="SOURCE", help="Only names from this source; repeat for more.")
    ] = [],
    prefix: Annotated[
        list[str], typer.Option(metavar="PREFIX", help="Only concepts such as mesh:…; repeat for more.")
    ] = [],
    labelled: Annotated[
        Path | None,
        typer.Option("--mentions", help="TSV with columns mention and concept_ids, to answer exactly."),
    ] = None,
    labelled_prefix: Annotated[
        str | None, typer.Option("--mentions-prefix", help="For identifiers in --mentions without one.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="Written by `sapbert calibrate`: adds confidence.", show_default=False)
    ] = None,
    sparse_weight: Annotated[
        float | None,
        typer.Option(
            min=0, help="What spelling counts, in a hybrid index.", show_default="calibrated, learned, or 0"
        ),
    ] = None,
    reranker: Annotated[
        str | None,
        typer.Option(help="Puts candidates in order: `sapbert export` of one, or MODULE:ATTRIBUTE."),
    ] = None,
    context_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --file with text around the mention, for --reranker."),
    ] = None,
    document_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of --file with the text whose abbreviations to write out."
        ),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split-composites", help="Link 'breast and ovarian cancer' as two mentions.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, show_default="all cores")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted job.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Link mentions to concepts, of MeSH or of your own index.

    Candidates come one a row, the best of a mention first; that is the answer, or NIL. All columns of a
    table are carried along. With -o, Ctrl-C keeps what was linked, and --resume goes on.
    """
    from sapbert.index.folder import damage_explained
    from sapbert.linking.linker import Linker
    from sapbert.linking.reranking import open_reranker
    from sapbert.linking.settings import LinkSettings

    _refuse_mentions(mentions, file)
    if out is None and (resume or overwrite):
        raise typer.BadParameter("--resume and --overwrite go with --out")
    if context_column is not None and reranker is None:
        raise typer.BadParameter("--context-column goes with --reranker")
    refuse_input(out, file)
    kind = link_format(out, format, json=json)
    settings = LinkSettings(
        k=k,
        exact=exact,
        threshold=threshold,
        types=tuple(types),
        sources=tuple(sources),
        prefixes=tuple(prefix),
    )
    with (
        damage_explained(resolve_default(index, "index")),
        linking_bar(drawn=out is not None) as (on_read, on_linked),
    ):
        second = open_reranker(reranker, threads=threads) if reranker else None
        linker = Linker.open(
            index, threads=threads, sparse_weight=sparse_weight, calibration=calibration, reranker=second
        )
        _add_labelled(linker, labelled, labelled_prefix, index)
        source = _source(mentions, file, column, on_read)
        source = _prepared(source, linker, context_column, document_column, split=split)
        asked = {
            "index": linker.fingerprint,
            **asdict(settings),
            "sparse_weight": sparse_weight,
            "reranker": second and second.fingerprint,
            "context_column": context_column,
            "document_column": document_column,
            "split": split,
            "mentions": labelled and _sha256(labelled),
            "calibration": calibration and _sha256(calibration),
        }
        task = Task(kind, source, linker, settings, context_column, asked)
        if out is None:
            print_links(task)
            return
        if resume and not overwrite and is_finished(source, out):
            return
        done = write_links(task, out, on_linked, resume=resume, overwrite=overwrite)
    typer.echo(f"{counted(done, 'mention')} -> {out}", err=True)


def _refuse_mentions(mentions: list[str] | None, file: Path | None) -> None:
    if mentions and file is not None:
        raise typer.BadParameter("give mentions or --file, not both")
    if mentions and _is_artifact(mentions[0]):
        raise typer.BadParameter(f"{mentions[0]} is a folder, not a mention: give --index {mentions[0]}")


def _is_artifact(mention: str) -> bool:
    """Tell a folder that sapbert wrote, which was meant for --index, from a mention."""
    from sapbert.artifacts import MANIFEST

    try:
        return (Path(mention) / MANIFEST).is_file()
    except OSError:  # longer than a path may be
        return False


def _add_labelled(linker: Linker, labelled: Path | None, prefix: str | None, index: str) -> None:
    if labelled is None:
        return
    from sapbert.mentions import no_known_concept, read_labelled_mentions, text_concept_pairs
    from sapbert.vocab.input_files import InputReader

    mentions = read_labelled_mentions(labelled, InputReader(), prefix=prefix)
    pairs = text_concept_pairs(mentions)
    added = linker.add_mentions(pairs)
    if not added:
        raise no_known_concept(mentions, index, table=labelled, option="--mentions-prefix")
    typer.echo(f"{added:,} of {counted(len(pairs), 'labelled mention')} have a concept of {index}", err=True)


def _prepared(
    source: Mentions,
    linker: Linker,
    context_column: str | None,
    document_column: str | None,
    *,
    split: bool,
) -> Mentions:
    from sapbert.linking.preprocess.pipeline import expand_mentions, require_column, split_mentions

    if context_column is not None:
        require_column(source, context_column, "--context-column")
    if document_column is not None:
        source = expand_mentions(source, document_column)
    return split_mentions(source, linker.is_name) if split else source


def _source(
    mentions: list[str] | None, file: Path | None, column: str | None, progress: Progress
) -> Mentions:
    from sapbert.linking.mention_source import lines, listed

    if mentions:
        return listed(mentions)
    if file is not None:
        from sapbert.linking.mention_tables import read_mentions
        from sapbert.vocab.input_files import InputReader

        return read_mentions(file, column, InputReader(progress=progress))
    if sys.stdin.isatty():
        typer.echo("reading mentions from standard input, one a line, to its end (Ctrl-D)", err=True)
    return lines(sys.stdin.buffer, "standard input")


def _sha256(path: Path) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
