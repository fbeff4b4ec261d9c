"""`sapbert index`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from sapbert.cli.output import Json, Out, Overwrite, progress_bar, refuse_input, tell
from sapbert.errors import SapbertError
from sapbert.index.settings import IndexSettings, Kind, Precision

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
            min=1,
            help="Store so many, along axes that suit the names; recall does not tell the cost.",
            show_default="all",
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
        bool | None,
        typer.Option(
            "--hybrid/--no-hybrid",
            help="Know spelling too: character n-grams beside vectors.",
            show_default="as the encoder was trained",
        ),
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option(help="An older index; names that it has are not encoded again, and its axes are kept."),
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
    from sapbert.index.build import build_index
    from sapbert.resumable import run_folder
    from sapbert.vocab.vocabulary import Vocabulary

    refuse_input(out, vocabulary, model)
    refuse_occupied(out, overwrite=overwrite)
    opened = Vocabulary.open(vocabulary)
    try:
        with _exported(model, out) as folder, progress_bar("names") as progress:
            encoder = OnnxEncoder.open(folder, threads=threads, variant=variant)
            weight = encoder.sparse_weight if hybrid is not False else 0.0
            manifest = build_index(
                opened,
                encoder,
                out,
                IndexSettings(
                    kind=kind,
                    precision=precision,
                    dimensions=dimensions,
                    inverted=inverted,
                    hybrid=bool(hybrid or weight),
                    sparse_weight=weight,
                ),
                update=update,
                overwrite=overwrite,
                progress=progress,
                on_forecast=partial(_tell_forecast, update is not None),
            )
    except KeyboardInterrupt:
        if not run_folder(out).exists():
            raise  # so early that nothing is finished
        typer.echo(f"stopped; what is finished is in {run_folder(out)}, the same command goes on", err=True)
        raise typer.Exit(1) from None
    tell(manifest, out, as_json=json)


@contextmanager
def _exported(model: str, out: Path) -> Iterator[Path]:
    """Give out the folder of an encoder that runs without torch, exported beside `out` if need be."""
    from rich.console import Console
    from rich.markup import escape

    from sapbert.artifacts import work_folder
    from sapbert.defaults import resolve_default
    from sapbert.encoder.onnx import is_exported

    folder = resolve_default(model, "encoder")
    if is_exported(folder):
        yield folder
        return
    with work_folder(out) as place:
        with Console(stderr=True).status(f"exporting {escape(model)}"):
            _export(model, place / "encoder")
        yield place / "encoder"


def _export(model: str, target: Path) -> None:
    try:
        from sapbert.encoder.onnx_export.export import export_model
    except ImportError as error:
        raise SapbertError(
            f"{model} was not written by `sapbert export`, and exporting it needs {error.name}: "
            "pip install 'sapbert[train]', or export it on another machine"
        ) from error
    export_model(model, target)


def _tell_forecast(updating: bool, names: int, rate: float) -> None:
    seconds = names / rate
    wait = f"{seconds:.0f} seconds" if seconds < _LONG else f"{seconds / 60:.0f} minutes"
    # Which of them the older index has is found out on the way.
    most = "at most " if updating else ""
    typer.echo(f"{most}{names:,} names to encode, {rate:,.0f} a second: {most or 'about '}{wait}", err=True)
