"""`sapbert link`."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sapbert.cli.report import Overwrite, counted
from sapbert.defaults import DEFAULT, chosen
from sapbert.errors import SapbertError

if TYPE_CHECKING:
    from sapbert.linking.formats import Linked, TextFormat
    from sapbert.linking.job import Link, Outlet
    from sapbert.linking.linker import Candidate, Linker, LinkSettings
    from sapbert.linking.mentions import MentionRow, Mentions
    from sapbert.vocab.intake import Progress


class LinkFormat(StrEnum):
    """How links are written."""

    TABLE = "table"
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    SSSOM = "sssom"
    USAGI = "usagi"


_UNWRAPPED = 1_000
_SUFFIXES = {
    ".sssom.tsv": LinkFormat.SSSOM,
    ".usagi.csv": LinkFormat.USAGI,
    ".csv": LinkFormat.CSV,
    ".jsonl": LinkFormat.JSONL,
    ".ndjson": LinkFormat.JSONL,
    ".parquet": LinkFormat.PARQUET,
}


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
    from sapbert.index.folder import damage_told
    from sapbert.linking.linker import Linker, LinkSettings
    from sapbert.linking.mentions import contexts_of
    from sapbert.linking.preparing import require_column
    from sapbert.linking.reranking import open_reranker

    kind = _kind(out, LinkFormat.JSONL if json else format)
    if json and format not in (None, LinkFormat.JSONL):
        raise typer.BadParameter("give --json or --format, not both")
    _refuse_mentions(mentions, file)
    if out is None and (resume or overwrite):
        raise typer.BadParameter("--resume and --overwrite go with --out")
    if context_column is not None and reranker is None:
        raise typer.BadParameter("--context-column goes with --reranker")
    settings = LinkSettings(
        exact=exact,
        threshold=threshold,
        types=tuple(types),
        sources=tuple(sources),
        prefixes=tuple(prefix),
    )
    with damage_told(chosen(index, "index")), _bar(drawn=out is not None) as (on_read, on_linked):
        second = open_reranker(reranker, threads=threads) if reranker else None
        linker = Linker.open(
            index, threads=threads, sparse_weight=sparse_weight, calibration=calibration, reranker=second
        )
        _add_labelled(linker, labelled, labelled_prefix, index)
        source = _source(mentions, file, column, on_read)
        if context_column is not None:
            require_column(source, context_column, "--context-column")
        source = _prepared(source, linker, document_column, split=split)
        asked = {
            "k": k,
            **asdict(settings),
            "sparse_weight": sparse_weight,
            "reranker": second and second.fingerprint,
            "context_column": context_column,
            "document_column": document_column,
            "split": split,
            "mentions": labelled and _sha256(labelled),
            "calibration": calibration and _sha256(calibration),
        }
        task = _Task(kind, source, linker, settings, {"index": linker.fingerprint, **asked})

        def answer(rows: Sequence[MentionRow]) -> list[list[Candidate]]:
            contexts = contexts_of(rows, context_column)
            return linker.link([row.mention for row in rows], k=k, settings=settings, contexts=contexts)

        if out is None:
            _print(task, answer)
            return
        if resume and not overwrite and _finished(source, out):
            return
        done = _write(task, answer, out, on_linked, resume=resume, overwrite=overwrite)
    typer.echo(f"{counted(done, 'mention')} -> {out}", err=True)


class _Task(NamedTuple):
    """What is linked, and how it is written."""

    kind: LinkFormat
    source: Mentions
    linker: Linker
    settings: LinkSettings
    asked: dict[str, Any]

    def text_format(self) -> TextFormat:
        from sapbert.curies import canonical_prefix
        from sapbert.linking.formats import CsvFormat, JsonlFormat
        from sapbert.linking.sssom import SssomFormat
        from sapbert.linking.usagi import UsagiFormat

        if self.kind == LinkFormat.JSONL:
            return JsonlFormat()
        if self.kind == LinkFormat.CSV:
            return CsvFormat(self.source.columns)
        wanted = map(canonical_prefix, self.settings.prefixes)
        prefixes = tuple(wanted) or tuple(self.linker.entries.prefixes())
        if self.kind == LinkFormat.SSSOM:
            return SssomFormat(prefixes, self.linker.fingerprint, json_module.dumps(self.asked))
        return UsagiFormat(self.source.columns, self.source.column, prefixes)


def _kind(out: Path | None, asked: LinkFormat | None) -> LinkFormat:
    """Tell the format from what was asked, or from the name of the file."""
    if out is None:
        if asked == LinkFormat.PARQUET:
            raise typer.BadParameter("Parquet needs a file: give --out")
        return asked or (LinkFormat.TABLE if sys.stdout.isatty() else LinkFormat.CSV)
    if asked == LinkFormat.TABLE:
        raise typer.BadParameter("a table is for the terminal: give another --format, or no --out")
    told = next((kind for suffix, kind in _SUFFIXES.items() if out.name.lower().endswith(suffix)), None)
    if (asked or told) is None:
        raise typer.BadParameter(f"{out.name} tells no format ({', '.join(_SUFFIXES)}): give --format")
    return asked or told or LinkFormat.CSV


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
    from sapbert.linking.tables import read_labelled

    pairs = read_labelled(labelled, prefix)
    added = linker.add_mentions(pairs)
    if not added:
        hint = "give --mentions-prefix if its identifiers have none"
        raise SapbertError(f"{labelled}: no mention has a concept of {index} ({hint})")
    typer.echo(f"{added:,} of {counted(len(pairs), 'labelled mention')} have a concept of {index}", err=True)


def _prepared(source: Mentions, linker: Linker, document_column: str | None, *, split: bool) -> Mentions:
    from sapbert.linking.preparing import expand_mentions, split_mentions

    if document_column is not None:
        source = expand_mentions(source, document_column)
    return split_mentions(source, linker.is_name) if split else source


def _source(
    mentions: list[str] | None, file: Path | None, column: str | None, progress: Progress
) -> Mentions:
    from sapbert.linking.mentions import lines, listed

    if mentions:
        return listed(mentions)
    if file is not None:
        from sapbert.linking.tables import read_mentions
        from sapbert.vocab.intake import Intake

        return read_mentions(file, column, Intake(progress=progress))
    if sys.stdin.isatty():
        typer.echo("reading mentions from standard input, one a line, to its end (Ctrl-D)", err=True)
    return lines(sys.stdin.buffer, "standard input")


def _print(task: _Task, answer: Link) -> None:
    from sapbert.linking.job import link_batches

    batches = link_batches(task.source.rows, answer)
    if task.kind == LinkFormat.TABLE:
        for batch in batches:
            _print_table(batch)
        return
    format = task.text_format()
    text = format.head()
    for batch in batches:
        # The head goes with the first links: before them, all may still be in vain.
        typer.echo((text + format.body(batch)).encode(errors="replace"), nl=False)
        text = ""
    typer.echo(text.encode(), nl=False)


def _print_table(batch: Sequence[Linked]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sapbert.linking.formats import answers

    sure = any(found.confidence is not None for linked in batch for found in linked.candidates)
    again = any(found.rerank_score is not None for linked in batch for found in linked.candidates)
    titles = ["mention", "concept", "preferred name", "matched name", "how", "score"]
    titles += [*["confidence"] * sure, *["rerank score"] * again]
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for linked in batch:
        for row in answers(linked.candidates):
            rank, concept, preferred, matched, score, confidence, how, reranked = row.values()
            words = (linked.mention if rank == 1 else "", concept, preferred, matched, how)
            figures = [score, *[confidence] * sure, *[reranked] * again]
            numbers = ("" if figure is None else f"{figure:.3f}" for figure in figures)
            table.add_row(*(Text(word or "") for word in words), *numbers)
    # A pipe has no width to keep to, and wrapped names are hard to read.
    Console(width=None if sys.stdout.isatty() else _UNWRAPPED).print(table)


def _finished(source: Mentions, out: Path) -> bool:
    """Tell whether there is nothing to go on with, and say so."""
    from sapbert.linking.job import is_interrupted

    if not out.is_file() or is_interrupted(out):
        return False
    from sapbert.linking.tables import count_linked

    done = count_linked(out, source)
    if done is None:
        raise SapbertError(
            f"{out} exists, and no interrupted job for it; choose another name or give --overwrite"
        )
    typer.echo(f"{out} is finished: {counted(done, 'mention')}; --overwrite links again", err=True)
    return True


def _write(
    task: _Task, answer: Link, out: Path, progress: Callable[[int], None], *, resume: bool, overwrite: bool
) -> int:
    from sapbert.linking.job import TextOutlet, is_interrupted, link_to_file, run_folder

    outlet: Outlet
    if task.kind == LinkFormat.PARQUET:
        from sapbert.linking.parquet import ParquetOutlet

        outlet = ParquetOutlet(task.source.columns, task.source.schema)
    else:
        outlet = TextOutlet(task.text_format())
    job = {"format": task.kind.value, "column": task.source.column, **task.asked}
    try:
        return link_to_file(
            task.source, answer, outlet, out, job, resume=resume, overwrite=overwrite, progress=progress
        )
    except KeyboardInterrupt:
        if not is_interrupted(out):
            raise  # so early that there is nothing to go on from
        where = run_folder(out)
        raise SapbertError(f"stopped; the same command with --resume goes on from {where}") from None


@contextmanager
def _bar(*, drawn: bool) -> Iterator[tuple[Progress, Callable[[int], None]]]:
    """Give out two callbacks that draw one bar: what part of the input was read, and mentions linked."""
    if not (drawn and sys.stderr.isatty()):
        yield (lambda _name, _done, _total: None), (lambda _mentions: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[linked]:,} mentions  {task.fields[rate]:,.0f}/s")
    columns = (BarColumn(), TimeRemainingColumn(), rate)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("link", total=None, linked=0, rate=0.0)

        def on_read(_name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(total, 1))

        def on_linked(mentions: int) -> None:
            elapsed = bar.tasks[task].elapsed or 1.0
            bar.update(task, linked=mentions, rate=mentions / elapsed)

        yield on_read, on_linked


def _sha256(path: Path) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
