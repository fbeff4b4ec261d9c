"""`sapbert index`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sapbert.cli.report import Json, Out, Overwrite, tell
from sapbert.errors import SapbertError
from sapbert.index.settings import IndexSettings, Kind, Precision

if TYPE_CHECKING:
    from sapbert.vocab.intake import Progress

_LONG = 100
"""Seconds above which a time is told in minutes."""


def index(
    vocabulary: Annotated[Path, typer.Argument(help="Written by `sapbert read` or `sapbert merge`.")],
    model: Annotated[
        str,
        typer.Option(help="Encoder: `default`, written by `sapbert export`, or any that this can export."),
    ],
    out: Out,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="flat compares all vectors exactly; ann goes by codes first.", show_default="by size"
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="Of the vectors on disk.", show_default="fp32 for flat, int8 for ann"),
    ] = None,
    dimensions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Store so many leading ones, if the encoder was trained for it.", show_default="all"
        ),
    ] = None,
    inverted: Annotated[
        bool,
        typer.Option(
            "--inverted/--no-inverted",
            help="Keep 'Infarction, Myocardial' where there is 'Myocardial Infarction'.",
        ),
    ] = True,
    variant: Annotated[
        Literal["fp32", "int8"] | None,
        typer.Option(help="Of the encoder.", show_default="as its folder prefers"),
    ] = None,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Know spelling too: character n-grams beside vectors.")
    ] = False,
    update: Annotated[
        Path | None, typer.Option(help="An older index; names that it has are not encoded again.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that encode; by default all.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Encode a vocabulary, to link against.

    All that linking needs goes into one folder. A build that was stopped leaves its finished part in
    OUT.run; the same command goes on from there.
    """
    from sapbert.artifacts import refuse_occupied
    from sapbert.encoder.onnx import OnnxEncoder
    from sapbert.index.build import build_index, run_folder
    from sapbert.vocab.vocabulary import Vocabulary

    refuse_occupied(out, overwrite=overwrite)
    opened = Vocabulary.open(vocabulary)
    settings = IndexSettings(
        kind=kind, precision=precision, dimensions=dimensions, inverted=inverted, hybrid=hybrid
    )
    try:
        with _exported(model) as folder, _progress() as progress:
            manifest = build_index(
                opened,
                OnnxEncoder.open(folder, threads=threads, variant=variant),
                out,
                settings,
                update=update,
                overwrite=overwrite,
                progress=progress,
                on_forecast=_tell_forecast,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is finished is in {run_folder(out)}, the same command goes on", err=True)
        raise typer.Exit(1) from None
    tell(manifest, out, as_json=json)


@contextmanager
def _exported(model: str) -> Iterator[Path]:
    """Give out the folder of an encoder that runs without torch, exported to a passing place if need be."""
    from sapbert.defaults import chosen
    from sapbert.encoder.onnx import is_exported

    folder = chosen(model, "encoder")
    if is_exported(folder):
        yield folder
        return
    try:
        from sapbert.encoder.export import export_model
    except ImportError as error:
        raise SapbertError(
            f"{model} was not written by `sapbert export`, and exporting it needs {error.name}: "
            "pip install 'sapbert[train]', or export it on another machine"
        ) from error
    with TemporaryDirectory(prefix="sapbert-") as place:
        export_model(model, Path(place) / "encoder")
        yield Path(place) / "encoder"


def _tell_forecast(names: int, rate: float) -> None:
    seconds = names / rate
    wait = f"{seconds:.0f} seconds" if seconds < _LONG else f"{seconds / 60:.0f} minutes"
    typer.echo(f"{names:,} names to encode, {rate:,.0f} a second: about {wait}", err=True)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Give out a callback that draws a bar with names a second; silent where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]:,.0f} names/s")
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), rate)
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("names", total=None, rate=0)

        def update(_name: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, rate=bar.tasks[task].speed or 0)

        yield update
