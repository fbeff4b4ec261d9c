"""How verbs talk: progress and words to standard error, results to standard output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapbert.errors import ConfigError

if TYPE_CHECKING:
    from sapbert.artifacts import Manifest
    from sapbert.progress import Progress

Out = Annotated[Path, typer.Option("--out", "-o", help="What to write.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print the manifest as JSON on standard output.")]


@contextmanager
def progress_bar(unit: str | None = None) -> Iterator[Progress]:
    """Give out a callback that draws one bar a file; silent where standard error is no terminal.

    With a `unit` bars tell how many of it are done in a second.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    rate = TextColumn("{task.fields[rate]}")
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(
        *columns, TimeRemainingColumn(), rate, console=console, disable=not console.is_terminal
    ) as bar:

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, rate="")
            speed = bar.tasks[tasks[name]].speed
            told = f"{speed:,.0f} {unit}/s" if unit and speed else ""
            bar.update(tasks[name], completed=done, total=max(total, 1), rate=told)

        yield update


def tell(manifest: Manifest, path: Path, *, as_json: bool) -> None:
    """Say what was written: one line a count, or the whole manifest as JSON."""
    if as_json:
        typer.echo(json.dumps(asdict(manifest), ensure_ascii=False))
        return
    for line in manifest.details.get("skipped", ()):
        typer.echo(f"skipped: {line}", err=True)
    typer.echo(f"{manifest.kind} -> {path}", err=True)
    for line in aligned({what: count for what, count in manifest.counts.items() if count}):
        typer.echo(f"  {line}", err=True)


def refuse_input(out: Path | None, *read: Path | str | None) -> None:
    """Refuse to write over what is read; `--overwrite` is for what an earlier call wrote."""
    for path in read:
        with suppress(OSError):  # most often one of them is not there
            if out is not None and path is not None and out.samefile(path):
                raise ConfigError(f"{out} is what is read; choose another name to write to")


def counted(number: int, what: str) -> str:
    """Return a number and what it counts: 1 mention, 2 mentions."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def aligned(rows: Mapping[str, Any]) -> list[str]:
    """Lay out names and values in two columns: numbers to the right, words to the left."""
    texts = {name: _text(value) for name, value in rows.items()}
    wide = max((len(name) for name in rows), default=0)
    long = max((len(text) for text in texts.values()), default=0)
    numbers = all(text.replace(",", "").isdigit() for text in texts.values())
    return [
        f"{name:<{wide}}  {text:>{long}}" if numbers else f"{name:<{wide}}  {text}"
        for name, text in texts.items()
    ]


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
