"""`sapbert merge`."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sapbert.cli.output import Json, Out, Overwrite, progress_bar, refuse_input, tell


class Trust(StrEnum):
    """How far cross-references are believed."""

    ONE_TO_ONE = "one-to-one"
    ANY = "any"


def merge(
    vocabularies: Annotated[
        list[Path], typer.Argument(help="Vocabularies; a joined concept takes its id from the earliest.")
    ],
    out: Out,
    xrefs: Annotated[
        list[Path],
        typer.Option(
            help="TSV with columns concept_id and xref, or a vocabulary with xrefs; repeat for more."
        ),
    ] = [],
    trust: Annotated[
        Trust, typer.Option(help="Never join two concepts of one vocabulary, or believe every reference.")
    ] = Trust.ONE_TO_ONE,
    max_cluster: Annotated[int, typer.Option(min=2, help="Most concepts that may become one.")] = 20,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make one vocabulary of several.

    Concepts that cross-references call the same become one. The ids of all members stay findable:
    `sapbert show OUT ID` works with any of them.
    """
    from sapbert.artifacts import load_manifest
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.merge import merge_vocabularies
    from sapbert.vocab.settings import MergeSettings
    from sapbert.vocab.vocabulary import Vocabulary
    from sapbert.vocab.writer import write_vocabulary

    refuse_input(out, *vocabularies, *xrefs)
    settings = MergeSettings(trust=trust.value, max_cluster=max_cluster)
    with progress_bar() as progress:
        inputs = InputReader(progress=progress)
        opened = [Vocabulary.open(path) for path in vocabularies]
        with write_vocabulary(out, asdict(settings), inputs, overwrite=overwrite) as writer:
            report = merge_vocabularies(opened, xrefs, writer, inputs, settings)
    for size, number in sorted(report.sizes.items()):
        typer.echo(f"joined concepts of {size} members: {number:,}", err=True)
    if not report.sizes:
        typer.echo("nothing was joined by cross-references; --xrefs says where they are", err=True)
    if report.refused:
        largest = " ".join(report.largest_refused[:6])
        typer.echo(f"{report.refused:,} clusters were not joined; the largest holds {largest} …", err=True)
    tell(load_manifest(out, verify=False), out, as_json=json)
