"""Arguments and options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("--out", "-o", help="Path to write to.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted job.")]
Json = Annotated[bool, typer.Option("--json", help="Print the manifest as JSON to standard output.")]
JsonResults = Annotated[bool, typer.Option("--json", help="Print the results as JSON to standard output.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads of the encoder.", show_default="all cores")
]
VectorCache = Annotated[
    Path | None, typer.Option(help="Folder of cached vectors.", show_default="below SAPBERT_HOME")
]

VocabularyPath = Annotated[
    Path, typer.Argument(help="Written by `sapbert read` or `sapbert merge`.", show_default=False)
]
PairsPath = Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.", show_default=False)]
IndexPath = Annotated[
    str, typer.Argument(help="Written by `sapbert index`, or `default`.", show_default=False)
]

Base = Annotated[
    str, typer.Option(help="Encoder to start from: a folder or a Hugging Face id.", show_default=False)
]
Recipe = Annotated[Path | None, typer.Option(help="TOML file with settings; options override it.")]
TensorBoard = Annotated[Path | None, typer.Option(help="Folder for TensorBoard event files.")]

LABELLED_MENTIONS = "TSV file with the columns mention and concept_ids"
TrainingMentions = Annotated[
    Path, typer.Option("--mentions", help=f"{LABELLED_MENTIONS} to train on.", show_default=False)
]
Prefix = Annotated[str | None, typer.Option(help="Prefix for concept ids without one, such as `mesh`.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a command writes an artifact, and how it reports it."""

    out: Out
    overwrite: Overwrite = False
    json: Json = False
