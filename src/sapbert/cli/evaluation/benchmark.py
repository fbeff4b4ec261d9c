"""`sapbert benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import report_manifest
from sapbert.cli.parameters import Output


@with_options()
def benchmark(
    name: Annotated[
        str,
        typer.Argument(help="ncbi-disease, bc5cdr-disease or bc5cdr-chemical.", show_default=False),
    ],
    raw: Annotated[
        list[Path],
        typer.Argument(
            help="PubTator files of the three splits, which are recognized by file name.", show_default=False
        ),
    ],
    dictionary: Annotated[
        Path,
        typer.Option(
            help="BioSyn's id||name text, CTD's CSV or TSV, or a table with the columns concept_id and name.",
            show_default=False,
        ),
    ],
    output: Output,
) -> None:
    """Build an evaluation set from a raw corpus.

    Follows BioSyn's protocol: abbreviations are expanded, composite mentions are split, and all text is
    lowercase without punctuation. Writes the dictionary alone and extended by the training and development
    mentions.
    """
    from sapbert.evaluation.benchmarks.biosyn_protocol import build_benchmark

    manifest = build_benchmark(name, raw, dictionary, output.out, overwrite=output.overwrite)
    report_manifest(manifest, output)
