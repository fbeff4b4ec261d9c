"""`sapbert link`."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.cli.linking.link_output import (
    LinkOutput,
    Task,
    is_finished,
    linking_bar,
    print_links,
    write_links,
)
from sapbert.cli.options import with_options
from sapbert.cli.output import forbid_overwriting_input, quantity
from sapbert.defaults import DEFAULT, resolve_default
from sapbert.linking.settings import InputSettings, LinkerSettings, LinkSettings

if TYPE_CHECKING:
    from sapbert.linking.input.mentions import MentionStream
    from sapbert.linking.linker import Linker
    from sapbert.progress import Progress
    from sapbert.protocols import Reranker

_GROUPS = {
    "file": "Input",
    "out": "Output",
    "k": "Candidates",
    "types": "Filters",
    "calibration": "Linker",
}
_TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInput(InputSettings):
    """The table of mentions, and its columns."""

    file: Annotated[
        Path | None,
        typer.Option(help="CSV, TSV, JSONL (.gz) or Parquet file, or .txt with one mention per line."),
    ] = None


@with_options(_GROUPS)
def link(
    table: LinkInput,
    output: LinkOutput,
    settings: LinkSettings,
    linker_settings: LinkerSettings,
    mentions: Annotated[
        list[str] | None,
        typer.Argument(help="Mentions; without any and without --file, one per line of standard input."),
    ] = None,
    index: Annotated[
        str, typer.Option(help="Written by `sapbert index`.", show_default="bundled MeSH index")
    ] = DEFAULT,
) -> None:
    """Link mentions to concepts of MeSH or of your own index.

    Writes one row per candidate, best first. A mention without candidates gets one row with NIL. All columns
    of the input are copied. With -o, Ctrl-C keeps the finished part, and --resume continues an interrupted
    job.
    """
    from sapbert.index.folder import damage_explained
    from sapbert.linking.linker import Linker
    from sapbert.linking.reranking import open_reranker

    _check_mentions(mentions, table.file)
    if table.context_column is not None and linker_settings.reranker is None:
        raise typer.BadParameter("--context-column needs --reranker")
    forbid_overwriting_input(output.out, table.file)
    with (
        damage_explained(resolve_default(index, "index")),
        linking_bar(drawn=output.out is not None) as (on_read, on_linked),
    ):
        reranker = (
            open_reranker(linker_settings.reranker, threads=linker_settings.threads)
            if linker_settings.reranker
            else None
        )
        linker = Linker.open(
            index,
            threads=linker_settings.threads,
            sparse_weight=linker_settings.sparse_weight,
            calibration=linker_settings.calibration,
            reranker=reranker,
        )
        _add_labelled_mentions(linker, linker_settings, index)
        source = _preprocess(_source(mentions, table, on_read), linker, table)
        job = {"index": linker.fingerprint, **asdict(settings), **_job(linker_settings, table, reranker)}
        task = Task(output.kind, source, linker, settings, table.context_column, job)
        if output.out is None:
            print_links(task)
            return
        if output.resume and not output.overwrite and is_finished(source, output.out):
            return
        done = write_links(task, output.out, on_linked, resume=output.resume, overwrite=output.overwrite)
    typer.echo(f"{quantity(done, 'mention')} -> {output.out}", err=True)


def _job(
    linker_settings: LinkerSettings, columns: InputSettings, reranker: Reranker | None
) -> dict[str, Any]:
    """Return the settings that the links depend on; only a job with equal ones may be resumed."""
    labelled, calibration = linker_settings.labelled_mentions, linker_settings.calibration
    return {
        "sparse_weight": linker_settings.sparse_weight,
        "reranker": reranker and reranker.fingerprint,
        "context_column": columns.context_column,
        "document_column": columns.document_column,
        "split": columns.split_composites,
        "mentions": labelled and _sha256(labelled),
        "calibration": calibration and _sha256(calibration),
    }


def _check_mentions(mentions: list[str] | None, file: Path | None) -> None:
    if mentions and file is not None:
        raise typer.BadParameter("give mentions or --file, not both")
    if not mentions:
        return
    with suppress(OSError):  # A mention may be longer than a path may be.
        path = Path(mentions[0])
        _refuse_folder(path)
        if len(mentions) == 1:
            _refuse_table(path)


def _refuse_folder(path: Path) -> None:
    """Refuse a folder that sapbert wrote, and say where to give it instead."""
    from sapbert.artifacts import MANIFEST, kind_with_article, load_manifest

    if not (path / MANIFEST).is_file():
        return
    kind = load_manifest(path, verify=False).kind
    hints = {
        "index": f"; give --index {path}",
        "vocabulary": "; index it with `sapbert index`, then give --index",
    }
    raise typer.BadParameter(f"{path} is {kind_with_article(kind)}, not a mention{hints.get(kind, '')}")


def _refuse_table(path: Path) -> None:
    """Refuse a table, which was meant for --file."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in _TABLE_SUFFIXES and path.is_file():
        raise typer.BadParameter(f"{path} is a file, not a mention; give --file {path}")


def _add_labelled_mentions(linker: Linker, linker_settings: LinkerSettings, index: str) -> None:
    if linker_settings.labelled_mentions is None:
        return
    from sapbert.mentions import no_known_concept, read_labelled_mentions, text_concept_pairs
    from sapbert.vocab.input_files import InputReader

    path = linker_settings.labelled_mentions
    mentions = read_labelled_mentions(path, InputReader(), prefix=linker_settings.labelled_prefix)
    pairs = text_concept_pairs(mentions)
    added = linker.add_mentions(pairs)
    if not added:
        raise no_known_concept(mentions, index, table=path, option="--mentions-prefix")
    typer.echo(f"{added:,} of {quantity(len(pairs), 'labelled mention')} have a concept of {index}", err=True)


def _preprocess(source: MentionStream, linker: Linker, columns: InputSettings) -> MentionStream:
    from sapbert.linking.preprocess.pipeline import expand_mentions, require_column, split_mentions

    if columns.context_column is not None:
        require_column(source, columns.context_column, "--context-column")
    if columns.document_column is not None:
        source = expand_mentions(source, columns.document_column)
    return split_mentions(source, linker.is_name) if columns.split_composites else source


def _source(mentions: list[str] | None, table: LinkInput, progress: Progress) -> MentionStream:
    from sapbert.linking.input.mentions import (
        MENTION_COLUMN,
        limited_lines,
        mentions_from_lines,
        mentions_from_list,
    )

    if mentions:
        return mentions_from_list(mentions)
    if table.file is not None:
        from sapbert.linking.input.tables import read_mention_table
        from sapbert.vocab.input_files import InputReader

        stream = read_mention_table(table.file, table.column, InputReader(progress=progress))
        if table.column is None and stream.columns == (stream.column,) and stream.column != MENTION_COLUMN:
            typer.echo(
                f"{table.file.name}: the first line is the name of the column, {stream.column!r}; "
                "if it is a mention, save the list as .txt",
                err=True,
            )
        return stream
    if sys.stdin.isatty():
        typer.echo("reading mentions from standard input, one per line, until end of file (Ctrl-D)", err=True)
    name = "standard input"
    return mentions_from_lines(limited_lines(sys.stdin.buffer, name), name)


def _sha256(path: Path) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
