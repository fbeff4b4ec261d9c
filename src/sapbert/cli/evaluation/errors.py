"""`sapbert errors`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.evaluation.ancestry import HierarchyVocabulary, IdPrefix, ancestry_by_dictionary
from sapbert.cli.parameters import Overwrite

if TYPE_CHECKING:
    from sapbert.evaluation.run import Evaluation


def errors(
    evaluation: Annotated[Path, typer.Argument(help="Written by `sapbert evaluate -o`.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML page to write, with every wrong link.")
    ] = None,
    vocabulary: HierarchyVocabulary = None,
    prefix: IdPrefix = None,
    overwrite: Overwrite = False,
) -> None:
    """Classify the errors of an evaluation and list them on a page.

    Wrong links are classified: abbreviations, composite mentions, ambiguous names, answers that are too broad
    or too narrow, near misses and others. The page shows each with its candidates and gold names; it needs
    only a browser. With a vocabulary that has parents, wrong answers are also counted as broader, narrower or
    siblings of the gold concept.
    """
    from sapbert.artifacts import create_file, require_free
    from sapbert.evaluation.errors.page import errors_page
    from sapbert.evaluation.errors.wrong_links import wrong_links
    from sapbert.evaluation.report import ancestry_lines, error_lines
    from sapbert.evaluation.run import Evaluation

    if out is not None:
        require_free(out, overwrite=overwrite)
    opened = Evaluation.open(evaluation)
    measured = ancestry_by_dictionary(opened, vocabulary, prefix)
    links = wrong_links(opened)
    for line in error_lines(opened, links):
        typer.echo(line)
    for line in ancestry_lines(measured) if measured else ():
        typer.echo(line)
    if out is not None:
        page = errors_page(
            opened, links, title=f"Wrong links of {evaluation.resolve().name}{_benchmark(opened)}"
        )
        with create_file(out, overwrite=overwrite) as partial:
            partial.write_text(page, encoding="utf-8", errors="replace")
        typer.echo(f"page -> {out}", err=True)


def _benchmark(evaluation: Evaluation) -> str:
    """Return the benchmark and the split, if the evaluation records them."""
    settings = evaluation.manifest.settings if evaluation.manifest else {}
    return f" on {settings['benchmark']}, {settings['split']}" if "benchmark" in settings else ""
