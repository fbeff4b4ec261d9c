"""`sapbert compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    first: Annotated[
        Path, typer.Argument(help="Written by `sapbert evaluate -o`, or a folder of such runs.")
    ],
    second: Annotated[Path, typer.Argument(help="What is compared with it.")],
    k: Annotated[int, typer.Option(min=1, help="Right among the first k candidates.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Page to write, with the mentions that changed.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same intervals and p.")] = 0,
) -> None:
    """Tell whether one system is better or was lucky.

    Both must have been measured on the same mentions. A folder of several evaluations is one system trained
    with several seeds: its mean and deviation are told, and each mention counts by its mean.
    """
    from sapbert.artifacts import create_file
    from sapbert.evaluation import report
    from sapbert.evaluation.compare import System
    from sapbert.evaluation.compare import compare as compare_systems
    from sapbert.evaluation.compare_page import comparison_page

    systems = System.open(first), System.open(second)
    found = compare_systems(*systems, k=k, seed=seed)
    names = [system.name for system in systems]
    for line in report.comparison_lines(found, *names):
        typer.echo(line)
    if html is not None:
        with create_file(html, overwrite=True) as page:
            page.write_text(comparison_page(found, *names, k=k), encoding="utf-8")
        typer.echo(f"page -> {html}", err=True)
