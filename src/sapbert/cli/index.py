"""`sapbert index`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.report import Json, Out, Overwrite, tell

if TYPE_CHECKING:
    from sapbert.vocab.intake import Progress


class KindOption(StrEnum):
    """How an index searches, or as its size suggests."""

    AUTO = "auto"
    FLAT = "flat"
    ANN = "ann"


class PrecisionOption(StrEnum):
    """How vectors are stored, or as its kind suggests."""

    AUTO = "auto"
    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


def index(
    vocabulary: Annotated[Path, typer.Argument(help="Written by `sapbert read` or `sapbert merge`.")],
    model: Annotated[
        Path, typer.Option(help="Encoder: a folder written by `sapbert export`, `train` or Hugging Face.")
    ],
    out: Out,
    kind: Annotated[
        KindOption, typer.Option(help="flat compares all vectors exactly, ann goes by codes first.")
    ] = KindOption.AUTO,
    precision: Annotated[
        PrecisionOption, typer.Option(help="Of stored vectors; auto is fp32 for flat, int8 for ann.")
    ] = PrecisionOption.AUTO,
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
    """Encode the names of a vocabulary and write all that linking needs into one folder.

    A build that was stopped leaves its finished part in OUT.run; the same command goes on from there.
    """
    from sapbert.index.build import IndexSettings, build_index, run_folder
    from sapbert.index.folder import Kind
    from sapbert.index.vectors import Precision
    from sapbert.vocab.vocabulary import Vocabulary

    settings = IndexSettings(
        kind=None if kind is KindOption.AUTO else Kind(kind.value),
        precision=None if precision is PrecisionOption.AUTO else Precision(precision.value),
        hybrid=hybrid,
    )
    opened = Vocabulary.open(vocabulary)
    try:
        with _opened_encoder(model, out, threads) as (encoder, folder), _progress() as progress:
            manifest = build_index(
                opened,
                encoder,
                folder,
                out,
                settings,
                update=update,
                overwrite=overwrite,
                progress=progress,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is finished is in {run_folder(out)}, the same command goes on", err=True)
        raise typer.Exit(1) from None
    tell(manifest, out, as_json=json)
