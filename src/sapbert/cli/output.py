"""What commands print: progress and messages to standard error, results to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sapbert.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from sapbert.artifacts import Manifest
    from sapbert.cli.parameters import Output
    from sapbert.progress import Progress

_PIPE_WIDTH = 1_000


@contextmanager
def progress_bar(unit: str | None = None) -> Iterator[Progress]:
    """Yield a callback that draws one progress bar per file, if standard error is a terminal.

    With a `unit` the bars also show the rate, in units per second.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    rate_column = TextColumn("{task.fields[rate]}")
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(
        *columns, TimeRemainingColumn(), rate_column, console=console, disable=not console.is_terminal
    ) as bar:

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, rate="")
            speed = bar.tasks[tasks[name]].speed
            rate = f"{speed:,.0f} {unit}/s" if unit and speed else ""
            bar.update(tasks[name], completed=done, total=max(total, 1), rate=rate)

        yield update


def report_manifest(manifest: Manifest, output: Output) -> None:
    """Report a written artifact: one line per count, or the whole manifest as JSON."""
    if output.json:
        typer.echo(json.dumps(asdict(manifest), ensure_ascii=False))
        return
    for line in manifest.details.get("skipped", ()):
        typer.echo(f"skipped: {line}", err=True)
    typer.echo(f"{manifest.kind} -> {output.out}", err=True)
    for line in two_columns({name: count for name, count in manifest.counts.items() if count}):
        typer.echo(f"  {line}", err=True)


def forbid_overwriting_input(out: Path | None, *inputs: Path | str | None) -> None:
    """Raise if the output is one of the inputs, whether or not --overwrite is given."""
    for path in inputs:
        with suppress(OSError):  # Usually one of the two does not exist.
            if out is not None and path is not None and out.samefile(path):
                raise ConfigError(f"{out} is an input; choose another output path")


def print_table(table: Table) -> None:
    """Print a table to standard output, without spaces at the end of lines."""
    from rich.console import Console
    from rich.text import Text

    # A pipe has no width, and wrapped names are hard to read.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    for line in console.render_lines(table, pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True)


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: 1 mention, 2 mentions."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def two_columns(rows: Mapping[str, Any]) -> list[str]:
    """Align names and values in two columns; values are right-aligned if all are numbers."""
    texts = {name: _text(value) for name, value in rows.items()}
    name_width = max((len(name) for name in rows), default=0)
    value_width = max((len(text) for text in texts.values()), default=0)
    numbers = all(text.replace(",", "").isdigit() for text in texts.values())
    return [
        f"{name:<{name_width}}  {text:>{value_width}}" if numbers else f"{name:<{name_width}}  {text}"
        for name, text in texts.items()
    ]


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
