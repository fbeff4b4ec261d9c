"""`sapbert sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sapbert.cli.parameters import Base, Out, Overwrite, PairsPath, Resume
from sapbert.cli.training.run import training_bar
from sapbert.errors import TrainingError, needing
from sapbert.resumable import refuse_earlier_results


def sweep(
    pairs: PairsPath,
    base: Base,
    recipe: Annotated[
        Path, typer.Option(help="TOML file with settings and a table [sweep].", show_default=False)
    ],
    out: Out,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train and compare combinations of settings.

    The recipe is one of `sapbert train` with a table [sweep] that lists values of some settings. Every
    combination is trained and evaluated on the same held-out concepts. OUT/results.csv and OUT/results.md
    list the results, best first; the models are in OUT/cells.

    Ctrl-C finishes the step and saves a checkpoint. --resume continues: finished models are not trained
    again.
    """
    with needing("train"):
        from sapbert.paper.results_table import MARKDOWN, markdown_table
        from sapbert.paper.sweep import CELLS, read_sweep, run_sweep
        from sapbert.training.distributed import local_device
    from sapbert.pairs.artifact import Pairs

    plan = read_sweep(recipe)
    refuse_earlier_results(out / CELLS, resume=resume, overwrite=overwrite)
    opened, device = Pairs.open(pairs), local_device()
    try:
        with training_bar() as on_step:
            results = run_sweep(
                opened,
                base,
                out,
                plan,
                device=device,
                overwrite=overwrite,
                on_cell=_report_cell,
                on_step=on_step,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; finished models are kept in {out}; add --resume to continue", err=True)
        raise typer.Exit(1) from None
    typer.echo(markdown_table([result.row() for result in results]), nl=False)
    typer.echo(f"sweep -> {out / MARKDOWN}", err=True)
    failed = sum(bool(result.problem) for result in results)
    if failed:
        raise TrainingError(f"{failed} of {len(results)} cells failed; add --resume to try them again")


def _report_cell(number: int, total: int, varied: Mapping[str, Any]) -> None:
    settings = ", ".join(f"{name} {value}" for name, value in varied.items() if value is not None)
    typer.echo(f"cell {number} of {total}: {settings}", err=True)
