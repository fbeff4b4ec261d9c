"""`sapbert benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapbert.cli.output import Json, Out, Overwrite, tell


def benchmark(
    name: Annotated[str, typer.Argument(help="ncbi-disease, bc5cdr-disease or bc5cdr-chemical.")],
    raw: Annotated[
        list[Path], typer.Argument(help="PubTator files of the three splits, which their names tell.")
    ],
    dictionary: Annotated[
        Path,
        typer.Option(
            help="BioSyn's id||name text, CTD's own CSV or TSV, or one with concept_id and name.",
            show_default=False,
        ),
    ],
    out: Out,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Build an evaluation set from a raw corpus.

    By BioSyn's protocol: abbreviations are written out, composite mentions split, all is lowercase without
    punctuation; the dictionary comes alone and enlarged by the training and development mentions.
    """
    from sapbert.evaluation.benchmarks.biosyn_protocol import build_benchmark

    manifest = build_benchmark(name, raw, dictionary, out, overwrite=overwrite)
    tell(manifest, out, as_json=json)
