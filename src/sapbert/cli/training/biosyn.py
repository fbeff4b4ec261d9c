"""`sapbert biosyn`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from sapbert.cli.options import with_options
from sapbert.cli.output import Out, Overwrite, refuse_input
from sapbert.cli.training import train
from sapbert.errors import needing
from sapbert.training.settings import BiosynSettings

_GROUPS = {
    "pooling": "Objective",
    "batch_size": "Loop",
    "max_length": "Loop",
    "checkpoint_every": "Checkpoints",
}


@with_options(BiosynSettings, _GROUPS)
def biosyn(
    context: typer.Context,
    vocabulary: Annotated[Path, typer.Argument(help="Written by `sapbert read` or `sapbert merge`.")],
    mentions: train.LearnedMentions,
    base: train.Base,
    out: Out,
    prefix: train.LearnedPrefix = None,
    recipe: train.Recipe = None,
    tensorboard: train.TensorBoard = None,
    resume: train.Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune on labelled mentions, spelling included (BioSyn).

    Right names come first among the nearest by vector and by spelling, which are sought anew before each
    epoch. `index`, `link` and `evaluate` use the learned weight of spelling with the model. Ctrl-C finishes
    the step and saves a checkpoint; --resume goes on from there.
    """
    settings = train.asked_settings(context, recipe, BiosynSettings)
    with needing("train"):
        from sapbert.training import distributed as gather
        from sapbert.training.biosyn.trainer import train_biosyn
    from sapbert.training.biosyn.dataset_writer import write_biosyn_dataset
    from sapbert.vocab.vocabulary import Vocabulary

    refuse_input(out, vocabulary, mentions, base)
    opened, device = Vocabulary.open(vocabulary), gather.local_device()
    with TemporaryDirectory(prefix="sapbert-", ignore_cleanup_errors=True) as folder:
        labelled = write_biosyn_dataset(opened, mentions, Path(folder) / "labelled", prefix=prefix)
        with train.watched(out, tensorboard) as on_step:
            train_biosyn(
                labelled,
                base,
                out,
                settings,
                device=device,
                resume=resume,
                overwrite=overwrite,
                on_step=on_step,
            )
