"""`sapbert index`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import forbid_overwriting_input, progress_bar, quantity, report_manifest
from sapbert.cli.parameters import Output, Resume, Threads, VocabularyPath
from sapbert.index.settings import IndexSettings

_MINUTES_FROM = 100
"""Seconds from which a duration is printed in minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions:
    """The encoder of the index."""

    model: Annotated[
        str,
        typer.Option(
            help="Encoder: `default`, `open-mini`, a folder written by `sapbert export`, or a model to "
            "export first (needs `sapbert[train]`).",
            show_default=False,
        ),
    ]
    variant: Annotated[
        Literal["fp32", "int8"] | None,
        typer.Option(help="Variant of the encoder.", show_default="as recorded in its folder"),
    ] = None
    threads: Threads = None


@with_options()
def index(
    vocabulary: VocabularyPath,
    encoder: EncoderOptions,
    output: Output,
    settings: IndexSettings,
    update: Annotated[
        Path | None,
        typer.Option(help="Older index; its names are not encoded again, and its PCA axes are reused."),
    ] = None,
    resume: Resume = False,
) -> None:
    """Encode the names of a vocabulary into an index to link against.

    The index is one folder with everything that linking needs. An interrupted build keeps its finished part
    in OUT.run; --resume continues from it.
    """
    from sapbert.artifacts import refuse_occupied
    from sapbert.encoder.open import exported_folder, open_exported
    from sapbert.index.build import build_index
    from sapbert.resumable import refuse_interrupted, run_folder
    from sapbert.vocab.vocabulary import Vocabulary

    forbid_overwriting_input(output.out, vocabulary, encoder.model)
    refuse_occupied(output.out, overwrite=output.overwrite, kind="index")
    folder = run_folder(output.out)
    # Building checks this too, but only after the model is exported.
    refuse_interrupted(folder, resume=resume, overwrite=output.overwrite)
    opened = Vocabulary.open(vocabulary)
    try:
        with exported_folder(encoder.model, output.out) as exported, progress_bar("names") as progress:
            names_to_vectors = open_exported(exported, threads=encoder.threads, variant=encoder.variant)
            weight = names_to_vectors.sparse_weight if settings.hybrid is not False else 0.0
            manifest = build_index(
                opened,
                names_to_vectors,
                output.out,
                replace(settings, hybrid=bool(settings.hybrid or weight), sparse_weight=weight),
                update=update,
                resume=resume,
                overwrite=output.overwrite,
                progress=progress,
                on_forecast=partial(_report_forecast, update is not None),
            )
    except KeyboardInterrupt:
        if not folder.exists():
            raise  # The build was interrupted before its first chunk.
        typer.echo(f"stopped; the finished part is kept in {folder}; add --resume to continue", err=True)
        raise typer.Exit(1) from None
    report_manifest(manifest, output)


def _report_forecast(updating: bool, names: int, rate: float) -> None:
    seconds = names / rate
    in_seconds = seconds < _MINUTES_FROM
    duration = quantity(round(seconds), "second") if in_seconds else quantity(round(seconds / 60), "minute")
    # The names that the older index has are not known yet.
    at_most = "at most " if updating else ""
    typer.echo(
        f"{at_most}{names:,} names to encode, {rate:,.0f} per second: {at_most or 'about '}{duration}",
        err=True,
    )
