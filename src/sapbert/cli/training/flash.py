"""`sapbert flash`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapbert.cli.options import ExplicitOptions, with_options
from sapbert.cli.output import forbid_overwriting_input, progress_bar
from sapbert.cli.parameters import PairsPath, Recipe
from sapbert.cli.training.run import TrainingOutput, monitored, recipe_settings
from sapbert.errors import needing
from sapbert.training.settings import FlashSettings

_GROUPS = {
    "learning_rate": "Loop",
    "dimension": "Encoder",
    "temperature": "Objective",
    "batch_size": "Loop",
    "held_out": "Evaluation",
    "seed": "Loop",
    "checkpoint_every": "Checkpoints",
}


@with_options(_GROUPS)
def flash(
    pairs: PairsPath,
    output: TrainingOutput,
    explicit: ExplicitOptions[FlashSettings],
    base: Annotated[
        str | None,
        typer.Option(
            help="Flash encoder to continue from: a folder, or `default`.", show_default="random rows"
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Encoder whose similarities are imitated: a folder, a Hugging Face id, `default` or "
            "`open-mini`.",
            show_default="none",
        ),
    ] = None,
    recipe: Recipe = None,
) -> None:
    """Train a flash encoder: a table instead of a transformer.

    The vector of a name is the normalized sum of the table rows of its words, pairs of words and character
    n-grams. Training takes minutes on a CPU and needs no pretrained model; the encoder runs without torch.
    Ctrl-C finishes the step and saves a checkpoint; --resume continues from it.
    """
    settings = recipe_settings(recipe, explicit, FlashSettings)
    with needing("train"):
        from sapbert.training.distributed import local_device
        from sapbert.training.flash.teacher import open_teacher
        from sapbert.training.flash.trainer import train_flash
    from sapbert.pairs.artifact import Pairs

    forbid_overwriting_input(output.out, pairs, *filter(None, (base, teacher)))
    opened, device = Pairs.open(pairs), local_device()
    with progress_bar("names") as progress:
        opened_teacher = None if teacher is None else open_teacher(teacher, opened, progress=progress)
    with monitored(output) as on_step:
        train_flash(
            opened,
            output.out,
            settings,
            base=base,
            teacher=opened_teacher,
            device=device,
            resume=output.resume,
            overwrite=output.overwrite,
            on_step=on_step,
        )
