"""`sapbert train`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapbert.cli.options import given, with_options
from sapbert.cli.output import Out, Overwrite, refuse_input
from sapbert.errors import ConfigError, needing
from sapbert.resumable import run_folder
from sapbert.settings_file import Settings, combine_settings, read_settings_file
from sapbert.training.settings import TrainSettings

if TYPE_CHECKING:
    from sapbert.training.loop import OnStep

Base = Annotated[str, typer.Option(help="Encoder to start from: a folder or a Hugging Face id.")]
Recipe = Annotated[Path | None, typer.Option(help="TOML file with settings; options count more.")]
TensorBoard = Annotated[
    Path | None, typer.Option(help="Folder to write figures to as TensorBoard reads them.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")]
LearnedMentions = Annotated[
    Path, typer.Option(help="TSV with columns mention and concept_ids to learn from.", show_default=False)
]
LearnedPrefix = Annotated[str | None, typer.Option(help="For identifiers in --mentions without one.")]
_GROUPS = {
    "pooling": "Objective",
    "batch_size": "Loop",
    "held_out": "Measuring",
    "adapter": "Adapters",
    "max_length": "Loop",
    "checkpoint_every": "Checkpoints",
}
_MEASURED = {
    "retrieval": "held-out synonyms found",
    "first": "training mentions have a right candidate first",
    "held_out_first": "held-out mentions have a right candidate first",
}
_GOES_WITH = {"reduction": "pfeiffer", "rank": "lora", "alpha": "lora"}


@with_options(TrainSettings, _GROUPS)
def train(
    context: typer.Context,
    pairs: Annotated[Path, typer.Argument(help="Written by `sapbert pairs`.")],
    base: Base,
    out: Out,
    recipe: Recipe = None,
    tensorboard: TensorBoard = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train an encoder by self-alignment (SapBERT).

    Names of one concept come to lie close together. Defaults are the paper's pretraining. Ctrl-C finishes
    the step and saves a checkpoint; --resume goes on from there. Under torchrun, several processes share
    each batch.
    """
    settings = asked_settings(context, recipe, TrainSettings)
    _refuse_idle(given(context, TrainSettings), settings)
    with needing("train"):
        from sapbert.training import distributed as gather
        from sapbert.training.alignment import trainer
    from sapbert.pairs.artifact import Pairs

    refuse_input(out, pairs, base)
    opened, device = Pairs.open(pairs), gather.local_device()
    with watched(out, tensorboard) as on_step:
        trainer.train(
            opened, base, out, settings, device=device, resume=resume, overwrite=overwrite, on_step=on_step
        )


def asked_settings(context: typer.Context, recipe: Path | None, settings: type[Settings]) -> Settings:
    """Make settings of the recipe and of the options that were given."""
    values = read_settings_file(recipe, settings) if recipe else {}
    return combine_settings(values, given(context, settings), settings)


def _refuse_idle(options: Mapping[str, object], settings: TrainSettings) -> None:
    """Refuse options for an adapter that is not trained: without it the whole encoder would be."""
    for option, adapter in _GOES_WITH.items():
        if option in options and settings.adapter != adapter:
            raise ConfigError(f"--{option} means nothing without --adapter {adapter}")


@contextmanager
def watched(out: Path, board: Path | None) -> Iterator[OnStep]:
    """Give out a callback that shows what it is told and, where asked, writes it for TensorBoard.

    Tells at the end where the model is, or how to go on where the run was stopped.
    """
    try:
        with _watchers(board) as on_step:
            yield on_step
    except KeyboardInterrupt:
        if not run_folder(out).exists():
            raise  # so early that nothing is saved
        typer.echo(f"stopped and saved in {out}.run; the same command with --resume goes on", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"model -> {out}", err=True)


@contextmanager
def _watchers(board: Path | None) -> Iterator[OnStep]:
    with ExitStack() as stack:
        watchers = [stack.enter_context(training_bar())]
        if board is not None:
            from sapbert.training.tensorboard import tensorboard

            watchers.append(stack.enter_context(tensorboard(board)))

        def tell(done: int, total: int, found: Mapping[str, float]) -> None:
            for watch in watchers:
                watch(done, total, found)

        yield tell


@contextmanager
def training_bar() -> Iterator[OnStep]:
    """Give out a callback that draws a bar with the figures of the last step, and tells each measurement."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    figures = TextColumn(
        "loss {task.fields[loss]:.3f}  hard {task.fields[positives]:.0f}+{task.fields[negatives]:.0f}  "
        "{task.fields[names_per_second]:,.0f} names/s"
    )
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), figures)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("train", total=None, loss=0, positives=0, negatives=0, names_per_second=0)

        def update(done: int, total: int, found: Mapping[str, float]) -> None:
            bar.tasks[task].fields.update(found)
            bar.update(task, completed=done, total=total)
            for name, told in _MEASURED.items():
                if name in found:
                    bar.console.print(f"step {done:,}: {found[name]:.1%} of {told}", highlight=False)

        yield update
