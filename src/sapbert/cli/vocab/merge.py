"""`sapbert merge`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import forbid_overwriting_input, progress_bar, report_manifest
from sapbert.cli.parameters import Output
from sapbert.vocab.settings import MergeSettings

if TYPE_CHECKING:
    from sapbert.vocab.merge import MergeReport


@with_options()
def merge(
    vocabularies: Annotated[
        list[Path],
        typer.Argument(help="Vocabularies; a joined concept keeps its id in the first.", show_default=False),
    ],
    output: Output,
    settings: MergeSettings,
    xrefs: Annotated[
        list[Path],
        typer.Option(
            help="TSV file with the columns concept_id and xref, or a vocabulary with cross-references. "
            "Repeatable."
        ),
    ] = [],
) -> None:
    """Merge several vocabularies into one.

    Concepts that cross-references declare equal are joined. The ids of all joined concepts remain valid:
    `sapbert show OUT ID` accepts any of them.
    """
    from sapbert.artifacts import load_manifest
    from sapbert.vocab.input_files import InputReader
    from sapbert.vocab.merge import merge_vocabularies
    from sapbert.vocab.vocabulary import Vocabulary
    from sapbert.vocab.writer import write_vocabulary

    forbid_overwriting_input(output.out, *vocabularies, *xrefs)
    with progress_bar() as progress:
        inputs = InputReader(progress=progress)
        opened = [Vocabulary.open(path) for path in vocabularies]
        with write_vocabulary(output.out, asdict(settings), inputs, overwrite=output.overwrite) as writer:
            report = merge_vocabularies(opened, xrefs, writer, inputs, settings)
    _report_clusters(report)
    report_manifest(load_manifest(output.out, verify=False), output)


def _report_clusters(report: MergeReport) -> None:
    for size, number in sorted(report.sizes.items()):
        typer.echo(f"joined concepts with {size} members: {number:,}", err=True)
    if not report.sizes:
        typer.echo("no concepts were joined; give cross-references with --xrefs", err=True)
    if report.refused:
        largest = " ".join(report.largest_refused[:6])
        typer.echo(f"{report.refused:,} clusters were not joined; the largest contains {largest} …", err=True)
