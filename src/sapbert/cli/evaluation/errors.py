"""`sapbert errors`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.output import Overwrite

if TYPE_CHECKING:
    from sapbert.evaluation.run import Evaluation


def errors(
    evaluation: Annotated[Path, typer.Argument(help="Written by `sapbert evaluate -o`.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Page to write, with every wrong link: .html.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Tell what kinds of errors an evaluation has, and browse them.

    Wrong links are sorted into kinds: abbreviations, composite mentions, ambiguous names, answers too broad
    or too narrow, near misses and others. The page shows each with its candidates and gold names, and needs
    nothing but a browser.
    """
    from sapbert.artifacts import create_file, require_free
    from sapbert.evaluation.errors.page import errors_page
    from sapbert.evaluation.errors.wrong_links import wrong_links
    from sapbert.evaluation.report import error_lines
    from sapbert.evaluation.run import Evaluation

    if out is not None:
        require_free(out, overwrite=overwrite)
    found = Evaluation.open(evaluation)
    links = wrong_links(found)
    for line in error_lines(found, links):
        typer.echo(line)
    if out is not None:
        page = errors_page(found, links, title=f"Wrong links of {evaluation.resolve().name}{_of(found)}")
        with create_file(out, overwrite=overwrite) as partial:
            partial.write_text(page, encoding="utf-8", errors="replace")
        typer.echo(f"page -> {out}", err=True)


def _of(evaluation: Evaluation) -> str:
    """What was measured, where the evaluation says."""
    settings = evaluation.manifest.settings if evaluation.manifest else {}
    return f" on {settings['benchmark']}, {settings['split']}" if "benchmark" in settings else ""
