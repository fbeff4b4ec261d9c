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


def index(
    vocabulary: Annotated[Path, typer.Argument(help="Written by `sapbert read` or `sapbert merge`.")],
    model: Annotated[
        str, typer.Option(help="Encoder: written by `sapbert export`, or any that this can export.")
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
    try:
        with _exported(model) as folder, _progress() as progress:
            encoder = OnnxEncoder.open(folder, threads=threads, variant=variant)
            weight = encoder.sparse_weight if hybrid is not False else 0.0
            manifest = build_index(
                opened,
                encoder,
                out,
                IndexSettings(
                    kind=kind, precision=precision, hybrid=bool(hybrid or weight), sparse_weight=weight
                ),
                update=update,
                overwrite=overwrite,
                progress=progress,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is finished is in {run_folder(out)}, the same command goes on", err=True)
        raise typer.Exit(1) from None
    tell(manifest, out, as_json=json)


@contextmanager
def _exported(model: str) -> Iterator[Path]:
    """Give out the folder of an encoder that runs without torch, exported to a passing place if need be."""
    from sapbert.encoder.onnx import is_exported

    if is_exported(Path(model)):
        yield Path(model)
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
