"""Shared by the training commands: output options, recipes, and the progress of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sapbert.cli.options import ExplicitOptions
from sapbert.cli.parameters import Out, Overwrite, Resume, TensorBoard
from sapbert.resumable import run_folder
from sapbert.settings_file import Settings, combine_settings, read_settings_file

if TYPE_CHECKING:
    from sapbert.training.loop import OnStep

_MEASUREMENTS = {
    "retrieval": "held-out synonyms found",
    "first": "training mentions have a correct candidate first",
    "held_out_first": "held-out mentions have a correct candidate first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOutput:
    """Where a run writes its model and its metrics."""

    out: Out
    tensorboard: TensorBoard = None
    resume: Resume = False
    overwrite: Overwrite = False


def recipe_settings(
    recipe: Path | None, explicit: ExplicitOptions[Settings], settings: type[Settings]
) -> Settings:
    """Combine the recipe with the options that the user typed, which take precedence."""
    values = read_settings_file(recipe, settings) if recipe else {}
    return combine_settings(values, explicit.values, settings)


@contextmanager
def monitored(output: TrainingOutput) -> Iterator[OnStep]:
    """Yield a callback that shows each step and, if requested, logs it for TensorBoard.

    Reports where the model is, or after an interrupt how to continue.
    """
    try:
        with _callbacks(output.tensorboard) as on_step:
            yield on_step
    except KeyboardInterrupt:
        folder = run_folder(output.out)
        if not folder.exists():
            raise  # The run was interrupted before its first checkpoint.
        typer.echo(f"stopped; checkpoint saved in {folder}; add --resume to continue", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"model -> {output.out}", err=True)


@contextmanager
def _callbacks(tensorboard_folder: Path | None) -> Iterator[OnStep]:
    with ExitStack() as stack:
        callbacks = [stack.enter_context(training_bar())]
        if tensorboard_folder is not None:
            from sapbert.training.tensorboard import tensorboard

            callbacks.append(stack.enter_context(tensorboard(tensorboard_folder)))

        def on_step(done: int, total: int, metrics: Mapping[str, float]) -> None:
            for callback in callbacks:
                callback(done, total, metrics)

        yield on_step


@contextmanager
def training_bar() -> Iterator[OnStep]:
    """Yield a callback that draws a bar with the metrics of the last step and prints each measurement."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    metrics_column = TextColumn(
        "loss {task.fields[loss]:.3f}  hard {task.fields[positives]:.0f}+{task.fields[negatives]:.0f}  "
        "{task.fields[names_per_second]:,.0f} names/s"
    )
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), metrics_column)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("train", total=None, loss=0, positives=0, negatives=0, names_per_second=0)

        def update(done: int, total: int, metrics: Mapping[str, float]) -> None:
            bar.tasks[task].fields.update(metrics)
            bar.update(task, completed=done, total=total)
            for name, measured in _MEASUREMENTS.items():
                if name in metrics:
                    bar.console.print(f"step {done:,}: {metrics[name]:.1%} of {measured}", highlight=False)

        yield update
