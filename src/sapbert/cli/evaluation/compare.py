"""`sapbert compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapbert.cli.evaluation.ancestry import HierarchyVocabulary, IdPrefix, ancestry_by_dictionary


def compare(
    first: Annotated[
        Path,
        typer.Argument(
            help="Written by `sapbert evaluate -o`, or a folder of such evaluations.", show_default=False
        ),
    ],
    second: Annotated[Path, typer.Argument(help="Evaluation to compare it with.", show_default=False)],
    k: Annotated[int, typer.Option(min=1, help="Compare accuracy among the first k candidates.")] = 1,
    html: Annotated[
        Path | None, typer.Option(help="HTML page to write, with the mentions whose result differs.")
    ] = None,
    vocabulary: HierarchyVocabulary = None,
    prefix: IdPrefix = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of intervals and p-values.")] = 0,
) -> None:
    """Test whether two systems differ significantly.

    Both must be evaluated on the same mentions. A folder of several evaluations is one system trained with
    several seeds: its mean and standard deviation are reported, and each mention counts with its mean. With a
    vocabulary that has parents, wrong answers are also counted by their relation to the gold concept.
    """
    from sapbert.artifacts import create_file
    from sapbert.evaluation import report
    from sapbert.evaluation.compare import System
    from sapbert.evaluation.compare import compare as compare_systems
    from sapbert.evaluation.compare_page import comparison_page

    systems = System.open(first), System.open(second)
    comparison = compare_systems(*systems, k=k, seed=seed)
    measured = [ancestry_by_dictionary(system.runs[0], vocabulary, prefix) for system in systems]
    names = [system.name for system in systems]
    for line in report.comparison_lines(comparison, *names):
        typer.echo(line)
    for dictionary in measured[0]:
        typer.echo(f"answers of the first runs, {dictionary}")
        by_system = dict(zip(names, (each[dictionary] for each in measured), strict=True))
        for line in report.ancestry_lines(by_system):
            typer.echo(line)
    if html is not None:
        with create_file(html, overwrite=True) as page:
            page.write_text(comparison_page(comparison, *names, k=k), encoding="utf-8")
        typer.echo(f"page -> {html}", err=True)
