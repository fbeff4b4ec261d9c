"""How `sapbert link` gives its links: on standard output, or to a file that is there when it is whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from sapbert.cli.output import counted
from sapbert.errors import SapbertError

if TYPE_CHECKING:
    from sapbert.linking.candidate import Candidate
    from sapbert.linking.formats.rows import Linked, TextFormat
    from sapbert.linking.job import OnLinked, Outlet
    from sapbert.linking.linker import Linker
    from sapbert.linking.mention_source import MentionRow, Mentions
    from sapbert.linking.settings import LinkSettings
    from sapbert.progress import Progress


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


class Task(NamedTuple):
    """What is linked, how, and how that is written."""

    kind: LinkFormat
    source: Mentions
    linker: Linker
    settings: LinkSettings
    context_column: str | None
    asked: Mapping[str, Any]
    """All that the links depend on beside their mentions, in words of JSON."""

    def answer(self, rows: Sequence[MentionRow]) -> list[list[Candidate]]:
        """Link some mentions."""
        from sapbert.linking.mention_source import contexts_of

        mentions, contexts = [row.mention for row in rows], contexts_of(rows, self.context_column)
        return self.linker.link(mentions, settings=self.settings, contexts=contexts)

    def text_format(self) -> TextFormat:
        """Make what writes links as text."""
        from sapbert.curies import canonical_prefix
        from sapbert.linking.formats.rows import CsvFormat, JsonlFormat
        from sapbert.linking.formats.sssom import SssomFormat
        from sapbert.linking.formats.usagi import UsagiFormat

        if self.kind == LinkFormat.JSONL:
            return JsonlFormat()
        if self.kind == LinkFormat.CSV:
            return CsvFormat(self.source.columns)
        wanted = map(canonical_prefix, self.settings.prefixes)
        prefixes = tuple(wanted) or tuple(self.linker.name_table.prefixes())
        if self.kind == LinkFormat.SSSOM:
            return SssomFormat(prefixes, self.linker.fingerprint, json.dumps(self.asked))
        return UsagiFormat(self.source.columns, self.source.column, prefixes)


def link_format(out: Path | None, asked: LinkFormat | None, *, json: bool) -> LinkFormat:
    """Tell the format from what was asked (`json` is short for JSONL), or from the name of the file."""
    if json:
        if asked not in (None, LinkFormat.JSONL):
            raise typer.BadParameter("give --json or --format, not both")
        asked = LinkFormat.JSONL
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


def print_links(task: Task) -> None:
    """Print links as they come, batch by batch."""
    from sapbert.linking.job import link_batches

    batches = link_batches(task.source.rows, task.answer)
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

    from sapbert.linking.formats.rows import answers

    sure = any(found.confidence is not None for linked in batch for found in linked.candidates)
    again = any(found.rerank_score is not None for linked in batch for found in linked.candidates)
    titles = ["mention", "concept_id", "preferred_name", "matched_name", "matched_by", "score"]
    titles += [*["confidence"] * sure, *["rerank_score"] * again]
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for linked in batch:
        for row in answers(linked.candidates):
            rank, concept, preferred, matched, score, confidence, matched_by, reranked = row.values()
            words = (linked.mention if rank == 1 else "", concept, preferred, matched, matched_by)
            figures = [score, *[confidence] * sure, *[reranked] * again]
            numbers = ("" if figure is None else f"{figure:.3f}" for figure in figures)
            table.add_row(*(Text(word or "") for word in words), *numbers)
    # A pipe has no width to keep to, and wrapped names are hard to read.
    Console(width=None if sys.stdout.isatty() else _UNWRAPPED).print(table)


def is_finished(source: Mentions, out: Path) -> bool:
    """Tell whether there is nothing to go on with, and say so."""
    from sapbert.linking.job import is_interrupted

    if not out.is_file() or is_interrupted(out):
        return False
    from sapbert.linking.mention_tables import count_linked

    done = count_linked(out, source)
    if done is None:
        raise SapbertError(
            f"{out} exists, and no interrupted job for it; choose another name or give --overwrite"
        )
    typer.echo(f"{out} is finished: {counted(done, 'mention')}; --overwrite links again", err=True)
    return True


def write_links(task: Task, out: Path, on_linked: OnLinked, *, resume: bool, overwrite: bool) -> int:
    """Write links to a file; returns how many mentions they are of."""
    from sapbert.linking.job import TextOutlet, is_interrupted, link_to_file
    from sapbert.resumable import run_folder

    outlet: Outlet
    if task.kind == LinkFormat.PARQUET:
        from sapbert.linking.formats.parquet import ParquetOutlet

        outlet = ParquetOutlet(task.source.columns, task.source.schema)
    else:
        outlet = TextOutlet(task.text_format())
    job = {"format": task.kind.value, "column": task.source.column, **task.asked}
    try:
        return link_to_file(
            task.source,
            task.answer,
            outlet,
            out,
            job,
            resume=resume,
            overwrite=overwrite,
            on_linked=on_linked,
        )
    except KeyboardInterrupt:
        if not is_interrupted(out):
            raise  # so early that there is nothing to go on from
        where = run_folder(out)
        raise SapbertError(f"stopped; the same command with --resume goes on from {where}") from None


@contextmanager
def linking_bar(*, drawn: bool) -> Iterator[tuple[Progress, OnLinked]]:
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
