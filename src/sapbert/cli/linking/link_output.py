"""Output of `sapbert link`: links to standard output, or to a file that appears when it is complete."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sapbert.cli.output import print_table, quantity
from sapbert.cli.parameters import Overwrite, Resume
from sapbert.errors import SapbertError

if TYPE_CHECKING:
    from sapbert.linking.candidate import Candidate
    from sapbert.linking.formats.linked_mention import LinkedMention
    from sapbert.linking.formats.text import TextFormat
    from sapbert.linking.formats.writer import BatchWriter
    from sapbert.linking.input.mentions import MentionRow, MentionStream
    from sapbert.linking.job import OnLinked
    from sapbert.linking.linker import Linker
    from sapbert.linking.settings import LinkSettings
    from sapbert.progress import Progress


class LinkFormat(StrEnum):
    """Format of the links."""

    TABLE = "table"
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    SSSOM = "sssom"
    USAGI = "usagi"


_TABLE_COLUMNS = (
    "mention", "concept_id", "preferred_name", "matched_name", "name_kind", "matched_by", "score",
    "confidence", "rerank_score",
)  # fmt: skip
_OPTIONAL_COLUMNS = ("name_kind", "confidence", "rerank_score")
_SUFFIXES = {
    ".sssom.tsv": LinkFormat.SSSOM,
    ".usagi.csv": LinkFormat.USAGI,
    ".csv": LinkFormat.CSV,
    ".jsonl": LinkFormat.JSONL,
    ".ndjson": LinkFormat.JSONL,
    ".parquet": LinkFormat.PARQUET,
}


class Task(NamedTuple):
    """The mentions to link, how to link them, and the format of the links."""

    kind: LinkFormat
    source: MentionStream
    linker: Linker
    settings: LinkSettings
    context_column: str | None
    job: Mapping[str, Any]
    """All settings that the links depend on, as JSON values."""

    def answer(self, rows: Sequence[MentionRow]) -> list[list[Candidate]]:
        """Link some mentions."""
        from sapbert.linking.input.mentions import context_texts

        mentions, contexts = [row.mention for row in rows], context_texts(rows, self.context_column)
        return self.linker.link(mentions, settings=self.settings, contexts=contexts)

    def text_format(self) -> TextFormat[LinkedMention]:
        """Return the writer of a text format."""
        from sapbert.curies import canonical_prefix
        from sapbert.linking.formats.sssom import SssomFormat
        from sapbert.linking.formats.text import CsvFormat, JsonlFormat
        from sapbert.linking.formats.usagi import UsagiFormat

        if self.kind == LinkFormat.JSONL:
            return JsonlFormat()
        if self.kind == LinkFormat.CSV:
            return CsvFormat(self.source.columns)
        prefixes = tuple(map(canonical_prefix, self.settings.prefixes)) or tuple(
            self.linker.name_table.prefixes()
        )
        if self.kind == LinkFormat.SSSOM:
            language = self.settings.language
            return SssomFormat(prefixes, self.linker.fingerprint, json.dumps(self.job), language)
        return UsagiFormat(self.source.columns, self.source.column, prefixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOutput:
    """Where links are written, and in which format."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File to write; its name determines the format.", show_default=False
        ),
    ] = None
    format: Annotated[
        LinkFormat | None,
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
        if self.json and self.format not in (None, LinkFormat.JSONL):
            raise typer.BadParameter("give --json or --format, not both")

    @property
    def kind(self) -> LinkFormat:
        """The format that was requested, or that the file name implies."""
        kind = LinkFormat.JSONL if self.json else self.format
        if self.out is None:
            if kind == LinkFormat.PARQUET:
                raise typer.BadParameter("Parquet needs a file: give --out")
            return kind or (LinkFormat.TABLE if sys.stdout.isatty() else LinkFormat.CSV)
        if kind == LinkFormat.TABLE:
            raise typer.BadParameter("a table is for the terminal: give another --format, or no --out")
        name = self.out.name.lower()
        kind = kind or next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)
        if kind is None:
            raise typer.BadParameter(
                f"{self.out.name}: links are not written as {self.out.suffix or 'a file without a suffix'}; "
                "use .csv, .jsonl, .parquet, .sssom.tsv or .usagi.csv, or give --format"
            )
        return kind


def print_links(task: Task) -> None:
    """Print links batch by batch."""
    from sapbert.linking.job import link_batches

    batches = link_batches(task.source.rows, task.answer, k=task.settings.k)
    if task.kind == LinkFormat.TABLE:
        for batch in batches:
            _print_table(batch)
        return
    format = task.text_format()
    text = format.header()
    for batch in batches:
        # The header is printed with the first links: nothing is printed if linking them fails.
        typer.echo((text + format.rows(batch)).encode(errors="replace"), nl=False)
        text = ""
    typer.echo(text.encode(), nl=False)


def _print_table(batch: Sequence[LinkedMention]) -> None:
    from rich.table import Table
    from rich.text import Text

    from sapbert.linking.formats.linked_mention import candidate_fields

    rows = [
        {"mention": linked.mention if fields["rank"] == 1 else "", **fields}
        for linked in batch
        for fields in candidate_fields(linked.candidates)
    ]
    # Columns that few indexes or linkers fill are shown only if they are not empty.
    columns = [
        name
        for name in _TABLE_COLUMNS
        if name not in _OPTIONAL_COLUMNS or any(row[name] not in (None, "") for row in rows)
    ]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[column])) for column in columns))
    print_table(table)


def _cell(value: str | float | None) -> str:
    return f"{value:.3f}" if isinstance(value, float) else value or ""


def is_finished(source: MentionStream, out: Path) -> bool:
    """Return whether the job is already finished, and report it."""
    from sapbert.linking.job import is_interrupted

    if not out.is_file() or is_interrupted(out):
        return False
    from sapbert.linking.job import count_finished

    done = count_finished(out, source)
    if done is None:
        raise SapbertError(
            f"{out} exists and no interrupted job belongs to it; choose another name or give --overwrite"
        )
    typer.echo(
        f"{out} is already finished ({quantity(done, 'mention')}); give --overwrite to link again", err=True
    )
    return True


def write_links(task: Task, out: Path, on_linked: OnLinked, *, resume: bool, overwrite: bool) -> int:
    """Write links to a file; returns the number of mentions."""
    from sapbert.linking.formats.writer import TextWriter
    from sapbert.linking.job import is_interrupted, link_to_file
    from sapbert.resumable import run_folder

    writer: BatchWriter[LinkedMention]
    if task.kind == LinkFormat.PARQUET:
        from sapbert.linking.formats.parquet import ParquetWriter

        writer = ParquetWriter(task.source.columns, task.source.schema)
    else:
        writer = TextWriter(task.text_format())
    job = {"format": task.kind.value, "column": task.source.column, **task.job}
    try:
        return link_to_file(
            task.source,
            task.answer,
            writer,
            out,
            job,
            resume=resume,
            overwrite=overwrite,
            on_linked=on_linked,
        )
    except KeyboardInterrupt:
        if not is_interrupted(out):
            raise  # The job was interrupted before its first link.
        raise SapbertError(
            f"stopped; the finished part is kept in {run_folder(out)}; add --resume to continue"
        ) from None


@contextmanager
def linking_bar(unit: str = "mentions", *, drawn: bool) -> Iterator[tuple[Progress, OnLinked]]:
    """Yield two callbacks that draw one bar: the part of the input that was read, and the mentions linked."""
    if not (drawn and sys.stderr.isatty()):
        yield (lambda _name, _done, _total: None), (lambda _mentions: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn(f"{{task.fields[linked]:,}} {unit}  {{task.fields[rate]:,.0f}}/s")
    columns = (BarColumn(), TimeRemainingColumn(), rate)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("link", total=None, linked=0, rate=0.0)

        def on_read(_name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(total, 1))

        def on_linked(mentions: int) -> None:
            elapsed = bar.tasks[task].elapsed or 1.0
            bar.update(task, linked=mentions, rate=mentions / elapsed)

        yield on_read, on_linked
