"""`sapbert sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sapbert.cli.training.train import training_bar
from sapbert.errors import TrainingError, needing


def sweep(
    pairs: Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.", show_default=False)],
    base: Annotated[
        str,
        typer.Option(help="Encoder to start from: a folder or a Hugging Face id.", show_default=False),
    ],
    recipe: Annotated[
        Path, typer.Option(help="TOML file with settings and a table [sweep].", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder for models and table; made or gone on with.", show_default=False
        ),
    ],
) -> None:
    """Train with many settings and compare.

    The recipe is one of `sapbert train` with a table [sweep] that lists values of some settings; every
    combination is trained and measured on the same held-out concepts. OUT/results.csv and OUT/results.md
    tell of each, best first; models are in OUT/cells.

    Ctrl-C finishes the step and saves. The same command goes on: what is done is not trained again.
    """
    with needing("train"):
        from sapbert.paper.results_table import MARKDOWN, markdown_table
        from sapbert.paper.sweep import read_sweep, run_sweep
        from sapbert.training import distributed as gather
    from sapbert.pairs.artifact import Pairs

    asked = read_sweep(recipe)
    opened, device = Pairs.open(pairs), gather.local_device()
    try:
        with training_bar() as on_step:
            results = run_sweep(opened, base, out, asked, device=device, on_cell=_tell, on_step=on_step)
    except KeyboardInterrupt:
        typer.echo(f"stopped and saved in {out}; the same command goes on", err=True)
        raise typer.Exit(1) from None
    typer.echo(markdown_table([result.row() for result in results]), nl=False)
    typer.echo(f"sweep -> {out / MARKDOWN}", err=True)
    failed = sum(bool(result.problem) for result in results)
    if failed:
        raise TrainingError(
            f"{failed} of {len(results)} cells have a problem; the same command tries them again"
        )


def _tell(number: int, total: int, varied: Mapping[str, Any]) -> None:
    settings = ", ".join(f"{name} {value}" for name, value in varied.items() if value is not None)
    typer.echo(f"cell {number} of {total}: {settings}", err=True)
